//! The kinds of rolling snapshots: what their names begin with. Windlass gives the rest, which is
//! the moment.
//!
//! Invariants
//! - The order is by the moments of the data, as the server's clock gave them if there is a
//!   server. That of the process that made a snapshot may have been another one.
//! - A moment that is still to come tells nothing of the order, because a clock was wrong. Such a
//!   snapshot counts as older than the others, so it never makes a newer one go.

use jiff::Timestamp;
use windlass_postgres::Lsn;
use windlass_snapshot::{Entry, Place, Record, Snapshot, State};

use crate::error::OperationError;

/// How a moment is written in a name.
pub(super) const MOMENT: &str = "%Y%m%dT%H%M%SZ";

/// The snapshots of a kind.
pub(super) struct OfKind {
    /// All of them, the oldest first. One that cannot be read, or whose disk is not there, is not
    /// among them.
    pub(super) all: Vec<Snapshot>,
    /// So many of the first ones are as of a moment that is still to come.
    pub(super) ahead: usize,
}

/// The snapshots of this kind among these. One that was just made is none of the future, whatever
/// the clock of this process says.
pub(super) fn of_kind(entries: Vec<Entry>, kind: &str, new: Option<&Record>) -> OfKind {
    let snapshots = entries.into_iter().filter_map(|entry| match entry {
        Entry::Snapshot(snapshot) => Some(*snapshot),
        _ => None,
    });
    let is_of_it = |snapshot: &Snapshot| is_of_kind(&snapshot.record().name, kind);
    let mut all: Vec<_> = snapshots.filter(is_of_it).collect();
    // Another rotation may have made one just before the list was read.
    let now = Timestamp::now().max(new.map_or(Timestamp::MIN, moment));
    all.sort_by_cached_key(|one| Turn::of(one.record(), now));
    let ahead = all.partition_point(|one| moment(one.record()) > now);
    OfKind { all, ahead }
}

/// The newest snapshot of a kind, of those that can be read if there are any.
pub(super) fn newest_of_kind(
    place: &Place,
    kind: &str,
) -> Result<Option<Snapshot>, OperationError> {
    let mut all = of_kind(place.list()?, kind, None).all;
    let is_kept = |one: &Snapshot| one.record().state == State::Kept;
    let newest = all.iter().rposition(is_kept);
    Ok(match newest {
        Some(position) => Some(all.swap_remove(position)),
        None => all.pop(),
    })
}

/// As of when the data are, by the clock of the server if there is one.
pub(super) fn moment(record: &Record) -> Timestamp {
    let of_server = record.facts.database["stop_time"].as_str();
    let parsed = |text: &str| text.parse::<Timestamp>().ok();
    let found = of_server.and_then(parsed);
    let found = found.or_else(|| parsed(&record.as_of));
    found.unwrap_or(Timestamp::MIN)
}

/// What decides which one is older. The first that differs counts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    is_past: bool,
    moment: Timestamp,
    /// A revert sets it back, so it is no order of its own.
    lsn: Option<Lsn>,
    name: String,
}

impl Turn {
    fn of(record: &Record, now: Timestamp) -> Self {
        let moment = moment(record);
        Self {
            is_past: moment <= now,
            moment,
            lsn: record.lsn.as_deref().and_then(Lsn::parse),
            name: record.name.clone(),
        }
    }
}

/// Whether a rotation of this kind gave this name.
fn is_of_kind(name: &str, kind: &str) -> bool {
    let rest = name
        .strip_prefix(kind)
        .and_then(|rest| rest.strip_prefix('-'));
    let Some(rest) = rest else {
        return false;
    };
    let (moment, number) = rest.split_once('-').unwrap_or((rest, "2"));
    let is_moment = jiff::civil::DateTime::strptime(MOMENT, moment).is_ok();
    is_moment && number.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_rotation_gave_are_of_its_kind() {
        for name in ["hourly-20261123T160000Z", "hourly-20261123T160000Z-2"] {
            assert!(is_of_kind(name, "hourly"), "{name}");
            assert!(!is_of_kind(name, "hour"), "{name}");
        }
        for name in [
            "hourly",
            "hourly-",
            "hourly-before-upgrade",
            "hourly-2026",
            "hourly-20261323T160000Z",
            "hourly-20261123T160000Z-x",
            "before-hourly-20261123T160000Z",
        ] {
            assert!(!is_of_kind(name, "hourly"), "{name}");
        }
    }
}
