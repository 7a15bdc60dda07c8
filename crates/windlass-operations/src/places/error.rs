//! Why words for sets mean no set.

use std::path::PathBuf;

use thiserror::Error;
use windlass_engine::EngineError;

use super::identity::Identity;
use super::which::WhichError;
use crate::denied::Denied;
use crate::ending::Ending;
use crate::moments::{local_time, when};

/// The most sets that a message lists.
const LISTED_MAX: usize = 12;

/// Why words for sets mean no set.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A place does not exist.
    #[error("there is no file or directory {}", path.display())]
    Missing {
        /// The place.
        path: PathBuf,
    },
    /// A place of a configured database does not exist.
    #[error("there is no directory {}, where sets of {name} are kept", path.display())]
    NotMounted {
        /// The name of the database.
        name: String,
        /// The place.
        path: PathBuf,
        /// Its other places.
        there: Vec<PathBuf>,
    },
    /// A configured database without places.
    #[error("the configuration does not say where the sets of {name} are")]
    NoPlaces {
        /// Its name.
        name: String,
    },
    /// Nearly the name of a configured database.
    #[error("{error}")]
    Mistyped {
        /// There is no set with that name.
        error: EngineError,
        /// The name that was meant.
        near: String,
    },
    /// What follows `@` says no set.
    #[error("{}: {which:?} names no set", word.display())]
    Which {
        /// The whole word.
        word: PathBuf,
        /// What follows.
        which: String,
        /// What is wrong with it.
        error: WhichError,
    },
    /// The set is chosen twice, and differently.
    #[error("{} names another set than the one that is chosen", word.display())]
    ChosenTwice {
        /// The word.
        word: PathBuf,
    },
    /// The word names a snapshot, and a choice among sets was made.
    #[error("{} is one snapshot, and no place of sets to choose from", word.display())]
    ChosenSnapshot {
        /// The word.
        word: PathBuf,
    },
    /// A stripe is of one set, and a choice was made.
    #[error("{} is one stripe, which is of one set{}", stripe.display(), of_set(set.as_ref()))]
    ChosenStripe {
        /// The stripe.
        stripe: PathBuf,
        /// The beginning of the id of its set, and the database of that.
        set: Option<(String, Option<Box<Identity>>)>,
    },
    /// A stripe and the name of a configured database.
    #[error("{} is one stripe, and {name} names all sets of {name}", stripe.display())]
    StripeAndName {
        /// The stripe.
        stripe: PathBuf,
        /// The name.
        name: String,
    },
    /// Two configured databases where one set is wanted.
    #[error("{first} and {second} are two configured databases, and this command takes one set")]
    SeveralNames {
        /// One name.
        first: String,
        /// Another.
        second: String,
    },
    /// A moment that is still to come.
    #[error("{} is in the future", local_time(*nanos))]
    Future {
        /// The moment.
        nanos: i64,
    },
    /// No set is of this database.
    #[error("no set in {place} is of a database {name}")]
    NoDatabase {
        /// Where.
        place: String,
        /// The database that was asked for.
        name: String,
        /// Those of which there are sets.
        found: Vec<Identity>,
    },
    /// No set is of this configured database.
    #[error("no set in {place} is of the configured database {name}")]
    NotOfConfigured {
        /// Where.
        place: String,
        /// Its name.
        name: String,
        /// The databases of which there are sets.
        found: Vec<Identity>,
    },
    /// It would be a guess which database is meant.
    #[error("{place} holds sets of {} databases:\n{}", found.len(), newest_of(found))]
    SeveralDatabases {
        /// Where.
        place: String,
        /// All of them.
        found: Vec<DatabaseSets>,
    },
    /// No id begins like this.
    #[error("the id of no set in {place} begins with {start}")]
    NoId {
        /// Where.
        place: String,
        /// The beginning.
        start: String,
        /// The time that the digits say.
        time: Option<String>,
        /// Databases of which there are sets too, which the words leave out.
        left_out: Vec<Identity>,
    },
    /// The set that was asked for has expired.
    #[error("set {} in {place} has expired, and will be removed", &set[..8])]
    Hidden {
        /// Where.
        place: String,
        /// Its id.
        set: String,
    },
    /// The set that was asked for is of another database than the one that was asked for.
    #[error("set {} in {place} is of {of}, not of {asked}", &set[..8])]
    OfAnother {
        /// Where.
        place: String,
        /// Its id.
        set: String,
        /// Its database.
        of: Box<Identity>,
        /// The database that was asked for.
        asked: String,
    },
    /// The database that was asked for is not the one that the name means.
    #[error("{asked} is {of}, which is not the configured database {name}")]
    OfOtherName {
        /// The word for the database.
        asked: String,
        /// The name that was given.
        name: String,
        /// The name of that database in the configuration.
        other: Option<String>,
        /// The database.
        of: Box<Identity>,
    },
    /// The set that was asked for is of a database that the name does not mean.
    #[error("set {} in {place} is of {of}, which is not what the configuration calls {name}", &set[..8])]
    NotOfName {
        /// Where.
        place: String,
        /// Its id.
        set: String,
        /// Its database.
        of: Box<Identity>,
        /// The name that was given.
        name: String,
        /// The name of its database in the configuration.
        other: Option<String>,
    },
    /// Several ids begin like this.
    #[error("the ids of {} sets in {place} begin with {start}:\n{}", found.len(), ids(found))]
    SeveralIds {
        /// Where.
        place: String,
        /// The beginning.
        start: String,
        /// The sets.
        found: Vec<SetName>,
    },
    /// A file that cannot be read may belong to a newer set.
    #[error(
        "{} of {} may be a newer set, and cannot be read: {fault}",
        path.display(), local_time(*written_nanos)
    )]
    MaybeNewer {
        /// The file.
        path: PathBuf,
        /// When it was written.
        written_nanos: i64,
        /// Why it cannot be read.
        fault: String,
        /// Whether that is damage.
        is_damage: bool,
        /// The newest set that can be read.
        newest: SetName,
    },
    /// The only file there cannot be read.
    #[error("{} is no stripe that can be read: {fault}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        fault: String,
        /// Whether that is damage.
        is_damage: bool,
    },
    /// This user may not read what is there.
    #[error(transparent)]
    Denied(Denied),
    /// All sets are newer.
    #[error("no set in {place} was begun by {}", local_time(*bound))]
    NoneByThen {
        /// Where.
        place: String,
        /// The moment that was asked for.
        bound: i64,
        /// The oldest set.
        oldest: SetName,
        /// Databases of which there are sets too, which the words leave out.
        left_out: Vec<Identity>,
    },
    /// Only a backup that has not ended is there.
    #[error("{place} holds no sealed set: a backup to it is under way, or was cut off")]
    Unfinished {
        /// Where.
        place: String,
    },
    /// No set is there, but below.
    #[error("{error}")]
    Below {
        /// There is no set.
        error: EngineError,
        /// Directories below, with the number of sets in each.
        found: Vec<(PathBuf, usize)>,
    },
}

/// A set, as messages name it.
#[derive(Clone, Debug)]
pub struct SetName {
    /// Its id.
    pub id: String,
    /// When it was begun, in nanoseconds since 1970.
    pub begun_nanos: i64,
    /// Its database, if it says that.
    pub of: Option<Box<Identity>>,
}

/// The sets of one database.
#[derive(Clone, Debug)]
pub struct DatabaseSets {
    /// The database.
    pub of: Identity,
    /// How many sets there are.
    pub count: usize,
    /// The newest.
    pub newest: SetName,
}

impl SetName {
    /// The first eight digits of its id.
    pub fn short_id(&self) -> &str {
        &self.id[..8]
    }
}

impl PlaceError {
    /// How an operation ends that fails like this.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::MaybeNewer { is_damage, .. } | Self::Unreadable { is_damage, .. } => {
                match is_damage {
                    true => Ending::Damage,
                    false => Ending::Failed,
                }
            }
            Self::Missing { .. }
            | Self::NotMounted { .. }
            | Self::NotOfConfigured { .. }
            | Self::Denied(_)
            | Self::Mistyped { .. }
            | Self::Below { .. }
            | Self::Hidden { .. }
            | Self::Unfinished { .. } => Ending::Failed,
            _ => Ending::Usage,
        }
    }
}

fn of_set(set: Option<&(String, Option<Box<Identity>>)>) -> String {
    set.map_or(String::new(), |(id, of)| {
        let of = of.as_ref().map(|of| format!(" of {of}"));
        format!(": {id}{}", of.unwrap_or_default())
    })
}

fn newest_of(found: &[DatabaseSets]) -> String {
    let lines = found.iter().take(LISTED_MAX).map(|one| {
        let DatabaseSets { of, count, newest } = one;
        let (id, begun) = (newest.short_id(), when(newest.begun_nanos));
        format!("  {id}  {begun}  {of}, the newest of {count}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn ids(found: &[SetName]) -> String {
    let lines = found.iter().take(LISTED_MAX).map(|set| {
        let of = set.of.as_ref().map(|of| format!("  {of}"));
        let begun = local_time(set.begun_nanos);
        format!("  {}  {begun}{}", set.id, of.unwrap_or_default())
    });
    lines.collect::<Vec<_>>().join("\n")
}
