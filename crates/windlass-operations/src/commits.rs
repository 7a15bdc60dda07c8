//! How far the log of a SQLite database takes the sets that lie in a place.
//!
//! A timeline of such a log has every transaction from its first moment to its last. A set that
//! stands in it leads to each of them behind the set. Between two timelines something may be lost.

use std::path::Path;

use jiff::Timestamp;
use windlass_engine::media::SetId;
use windlass_engine::{SetEntry, SetState};
use windlass_postgres::Timeline;
use windlass_repository::{
    CommitReader, Linked, LogPlace, Record, RepositoryError, TimelineLog, link,
};
use windlass_sqlite::{KIND, Standing};

/// A set of a SQLite database, as far as a list of sets describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseSet {
    /// The set.
    pub id: SetId,
    /// The database's file.
    pub path: String,
    /// Where its state stands.
    pub standing: Option<Standing>,
    /// When the backup began, as RFC 3339.
    pub started: String,
}

impl DatabaseSet {
    /// A set of a list, if it can be restored and is of a SQLite database.
    pub fn of(set: &SetEntry) -> Option<Self> {
        let about = set.about.as_ref()?;
        let facts = &about.database;
        if facts["kind"].as_str() != Some(KIND) || !matches!(set.state, SetState::Sealed) {
            return None;
        }
        let begun = Timestamp::from_nanosecond(set.begun_nanos.into()).ok();
        Some(Self {
            id: set.set_id,
            path: facts["path"].as_str()?.to_owned(),
            standing: serde_json::from_value(facts["standing"].clone())
                .ok()
                .flatten(),
            started: begun.map_or_else(String::new, |begun| begun.to_string()),
        })
    }
}

/// A timeline of a log, and the sets that lead into it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitTimeline {
    /// The timeline.
    pub timeline: Timeline,
    /// When it begins, in nanoseconds since 1970.
    pub start_nanos: i64,
    /// Up to when it has every transaction.
    pub end_nanos: i64,
    /// How many transactions it has.
    pub commits: u64,
    /// In how many objects.
    pub objects: u64,
    /// Bytes of the objects.
    pub stored_bytes: u64,
    /// Why it begins, if something before it may be lost.
    pub lost: Option<String>,
    /// The sets that stand in it, oldest first.
    pub sets: Vec<DatabaseSet>,
}

/// What a place has of the log of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseLog {
    /// The database's file.
    pub path: String,
    /// Its timelines, oldest first.
    pub timelines: Vec<CommitTimeline>,
}

impl DatabaseLog {
    /// Looks at the log of a database. Of each timeline, only its first and its last object are
    /// read, and those that may have a set.
    pub fn of(place: &LogPlace, sets: &[DatabaseSet]) -> Result<Self, RepositoryError> {
        let mut found = Self::default();
        for timeline in place.timelines()? {
            found
                .timelines
                .extend(found_in(place, timeline, &mut found.path)?);
        }
        for set in sets.iter().filter(|set| set.path == found.path) {
            let linked = set.standing.as_ref().map(|state| link(place, state));
            if let Some(linked) = linked.transpose()?.flatten() {
                let timelines = &mut found.timelines;
                let of = timelines
                    .iter_mut()
                    .find(|one| one.timeline == linked.timeline);
                of.into_iter().for_each(|one| one.sets.push(set.clone()));
            }
        }
        Ok(found)
    }
}

fn found_in(
    place: &LogPlace,
    timeline: Timeline,
    path: &mut String,
) -> Result<Option<CommitTimeline>, RepositoryError> {
    let stored = TimelineLog::of(place, timeline)?;
    let mut reader = CommitReader::new(place, timeline)?;
    let Some(Record::Stand(head, about)) = reader.next_record()? else {
        return Ok(None);
    };
    path.clone_from(&about.path);
    let mut last = head;
    for object in (0..reader.objects()).rev() {
        reader.seek(object);
        while let Some(record) = reader.next_record()? {
            last = *record.head();
        }
        if last.by_nanos > head.by_nanos {
            break;
        }
    }
    Ok(Some(CommitTimeline {
        timeline,
        start_nanos: head.by_nanos,
        end_nanos: last.by_nanos,
        commits: last.number,
        objects: stored.objects,
        stored_bytes: stored.stored_bytes,
        lost: about.lost,
        sets: Vec::new(),
    }))
}

/// The sets of the database at a path, among those of a list, oldest first.
pub(crate) fn sets_of(list: &[SetEntry], path: &Path) -> Vec<DatabaseSet> {
    let path = path.to_string_lossy();
    let sets = list.iter().filter_map(DatabaseSet::of);
    sets.filter(|set| set.path == path).collect()
}

/// Where a set stands in a log, if it says so and the log has it.
pub(crate) fn linked(
    place: &LogPlace,
    set: &DatabaseSet,
) -> Result<Option<Linked>, RepositoryError> {
    match &set.standing {
        Some(standing) => link(place, standing),
        None => Ok(None),
    }
}
