//! The kinds of rolling snapshots: what their names begin with. Windlass gives the rest, which is
//! the moment.

use windlass_snapshot::{Entry, Place, Snapshot, State};

use crate::error::OperationError;

/// How a moment is written in a name.
pub(super) const MOMENT: &str = "%Y%m%dT%H%M%SZ";

/// The snapshots of this kind, the oldest first. One that cannot be read, or whose disk is not
/// there, is not among them.
pub(super) fn of_kind(place: &Place, kind: &str) -> Result<Vec<Snapshot>, OperationError> {
    let snapshots = place.list()?.into_iter().filter_map(|entry| match entry {
        Entry::Snapshot(snapshot) => Some(*snapshot),
        _ => None,
    });
    let is_of_it = |snapshot: &Snapshot| is_of_kind(&snapshot.record().name, kind);
    Ok(snapshots.filter(is_of_it).collect())
}

/// The newest snapshot of a kind, of those that can be read if there are any.
pub(super) fn newest_of_kind(
    place: &Place,
    kind: &str,
) -> Result<Option<Snapshot>, OperationError> {
    let mut all = of_kind(place, kind)?;
    let is_kept = |one: &Snapshot| one.record().state == State::Kept;
    let newest = all.iter().rposition(is_kept);
    Ok(match newest {
        Some(position) => Some(all.swap_remove(position)),
        None => all.pop(),
    })
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
