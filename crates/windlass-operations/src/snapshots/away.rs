//! Notices that the disk of earlier snapshots is not where a new one goes: nothing is mounted there
//! now, and the directory below the mount point takes what is written.

use std::path::Path;

use windlass_engine::counted;
use windlass_snapshot::Entry;

/// The name of the warning about earlier snapshots that are not in the directory of a new one.
const AWAY: &str = "snapshots-away";

/// The name and the words of the warning if earlier snapshots of the database, which are among
/// these, should be in the directory of a new one, and are not there.
pub(super) fn warning(all: &[Entry], into: &Path) -> Option<(String, String)> {
    let into = into.canonicalize().ok()?;
    let is_away = |entry: &&Entry| match entry {
        Entry::Missing { path, .. } => path.parent() == Some(into.as_path()),
        _ => false,
    };
    let away: Vec<_> = all.iter().filter(is_away).map(Entry::name).collect();
    let (first, count) = (away.first()?, away.len());
    let (are, those, it) = match count {
        1 => ("is", "that", "it"),
        _ => ("are", "those", "them"),
    };
    let text = format!(
        "{} of this database {are} not in {}, where {those} should be ({first}): if a disk is not \
         mounted there, the new one is not on it; if somebody removed {it}, drop {it}, or each \
         new one says so again",
        counted(count as u64, "earlier snapshot"),
        into.display()
    );
    Some((AWAY.to_owned(), text))
}
