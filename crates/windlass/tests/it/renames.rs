//! A crash between the renames at the end of a run with `--overwrite`: a sealed set is sealed,
//! whatever the names of its stripes.

use std::fs;

use crate::support::*;

/// The state after a crash that hit the run after this many of its two renames.
fn crashed_after(renames: usize) -> Place {
    let place = Place::new();
    let db = place.arg("shop.db");
    let stripes = ["one.windlass", "two.windlass"].map(|name| place.path("sets").join(name));
    let [one, two] = [&stripes[0], &stripes[1]].map(|path| path.to_str().unwrap());
    let words = ["backup", &db, "--to", one, "--to", two, "--overwrite"];
    assert_eq!(windlass(&words).status.code(), Some(0));
    let old = stripes.clone().map(|path| fs::read(path).unwrap());
    place.ledger.commit(21, 22);
    assert_eq!(windlass(&words).status.code(), Some(0));
    // Renaming changes no byte, so this puts back what was not renamed before the crash.
    for (path, old) in stripes.iter().zip(old).skip(renames) {
        windlass_engine::durable::rename(path, &windlass_engine::partial_path(path)).unwrap();
        windlass_engine::durable::write(path, &old, 0o600).unwrap();
    }
    place
}

#[test]
fn after_a_crash_between_the_renames_the_directory_restores_the_newer_set() {
    for renames in 0..=2 {
        let place = crashed_after(renames);
        let sets = place.path("sets");
        assert_eq!(place.restored(&sets), 22, "after {renames} renames");
        let output = windlass(&["verify", "--latest", sets.to_str().unwrap()]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{renames}: {}",
            text(&output)
        );
    }
}

#[test]
fn after_a_crash_between_the_renames_the_next_backup_gives_the_names() {
    for renames in 0..=2 {
        let place = crashed_after(renames);
        let sets = place.path("sets");
        let made = place.arg("sets/three.windlass");
        let output = windlass(&["backup", &place.arg("shop.db"), "--to", &made]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{renames}: {}",
            text(&output)
        );
        fs::remove_file(made).unwrap();
        assert_eq!(place.sets(), ["one.windlass", "two.windlass"]);
        assert_eq!(place.restored(&sets), 22, "after {renames} renames");
    }
}
