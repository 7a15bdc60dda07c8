//! What of snapshots a path lies in: no output may be there.

use std::path::Path;

use super::beside;
use crate::directory;

/// Says what a path belongs to, if it is in a snapshot, or in the directory that has a database's
/// snapshots: what lies there goes with them, and what replaces a part of one destroys it.
pub fn snapshot_around(path: &Path) -> Option<String> {
    path.ancestors().find_map(|above| {
        let place = above.display();
        if directory::is_marked(above) {
            return Some(format!("{place} belongs to a snapshot"));
        }
        let is_home = beside::is_home(above) && above.is_dir();
        is_home.then(|| format!("{place} has the snapshots of a database"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Locked;

    #[test]
    fn a_path_in_a_snapshot_belongs_to_it_wherever_it_is() {
        let at = tempfile::tempdir().unwrap();
        let (home, other) = (
            at.path().join("shop.windlass-snapshots"),
            at.path().join("o"),
        );
        for place in [&home, &other] {
            assert_eq!(snapshot_around(&place.join("one")), None);
            std::fs::create_dir(place).unwrap();
            drop(Locked::create(&place.join("one")).unwrap());
            for inside in ["one", "one/new", "one/hook/deep/new"] {
                let what = snapshot_around(&place.join(inside)).unwrap();
                let expected = format!("{} belongs to a snapshot", place.join("one").display());
                assert_eq!(what, expected, "{inside}");
            }
        }
        let what = format!("{} has the snapshots of a database", home.display());
        assert_eq!(snapshot_around(&home), Some(what.clone()));
        assert_eq!(snapshot_around(&home.join("new")), Some(what));
        assert_eq!(snapshot_around(&other), None);
        assert_eq!(snapshot_around(&other.join("new")), None);
    }
}
