//! Snapshots on another disk while that is not mounted: its mount point is an empty directory.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use serde_json::Value;
use windlass_testkit::postgres::give_to_servers;

use crate::snapshot_orphans::Orphaned;
use crate::support::*;

/// A database with snapshots in the directory `disk`.
struct Away(Place);

impl Away {
    fn new() -> Self {
        Self(Place::new())
    }

    /// Types a command, with this verb, about the snapshots of the database.
    fn snapshot(&self, code: i32, verb: &str, rest: &[&str]) -> Value {
        let database = self.0.arg("shop.db");
        let (ended, said) = json(&[&["snapshot", verb, &database], rest].concat());
        assert_eq!(ended, code, "{verb} {rest:?}: {said}");
        said
    }

    fn create(&self, code: i32, name: &str) -> Value {
        let disk = self.0.arg("disk");
        self.snapshot(code, "create", &[name, "--to", &disk])
    }

    fn unmount(&self) {
        std::fs::rename(self.0.path("disk"), self.0.path("unmounted")).unwrap();
        std::fs::create_dir(self.0.path("disk")).unwrap();
    }

    fn mount(&self) {
        std::fs::remove_dir(self.0.path("disk")).unwrap();
        std::fs::rename(self.0.path("unmounted"), self.0.path("disk")).unwrap();
    }
}

#[test]
fn a_new_snapshot_in_the_place_of_a_disk_that_is_not_mounted_is_a_warning() {
    let away = Away::new();
    let disk = away.0.arg("disk");
    let rotate = ["nightly", "--keep", "2", "--to", &disk];
    for _ in 0..2 {
        let made = away.snapshot(0, "rotate", &rotate);
        assert_eq!(made["warnings"].as_array().unwrap().len(), 0, "{made}");
    }
    away.unmount();
    let made = away.snapshot(3, "rotate", &rotate);
    assert_eq!(made["warnings"][0]["name"], "snapshots-away", "{made}");
    let said = made["warnings"][0]["text"].as_str().unwrap();
    assert!(said.contains("2 earlier snapshots"), "{said}");
    assert!(said.contains("somebody removed them, drop them"), "{said}");
    let made = away.create(3, "one");
    assert_eq!(made["warnings"][0]["name"], "snapshots-away", "{made}");
    // Nothing is missing in another directory.
    let other = away.0.arg("other");
    away.snapshot(0, "create", &["two", "--to", &other]);
    away.snapshot(0, "create", &["three"]);
}

/// Else a rotation would end with 3 for ever.
#[test]
fn a_snapshot_that_somebody_removed_is_a_warning_until_it_is_dropped() {
    let away = Away::new();
    for name in ["one", "two"] {
        away.create(0, name);
    }
    std::fs::remove_dir_all(away.0.path("disk/one")).unwrap();
    let made = away.create(3, "three");
    let said = made["warnings"][0]["text"].as_str().unwrap();
    assert!(said.contains("1 earlier snapshot of"), "{said}");
    assert!(said.contains("somebody removed it, drop it"), "{said}");
    away.snapshot(3, "drop", &["one"]);
    away.create(0, "four");
}

#[test]
fn dropping_a_snapshot_whose_disk_is_not_mounted_names_the_directory_that_stays() {
    let away = Away::new();
    for name in ["one", "two"] {
        away.create(0, name);
    }
    away.unmount();
    let dropped = away.snapshot(3, "drop", &["one"]);
    assert_eq!(dropped["stays"], away.0.arg("disk/one"), "{dropped}");
    let output = windlass(&["snapshot", "drop", &away.0.arg("shop.db"), "two"]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    let named = format!("{} was not there", away.0.arg("disk/two"));
    assert!(printed.contains(&named), "{printed}");
    assert!(printed.contains("hint: "), "{printed}");
    away.create(0, "three");
    let dropped = away.snapshot(0, "drop", &["three"]);
    assert!(dropped["stays"].is_null(), "{dropped}");
}

/// A drop of that name finds nothing, so nobody is sent there.
#[test]
fn a_name_that_only_the_disk_has_is_refused_with_a_way_out() {
    let away = Away::new();
    away.create(0, "one");
    away.unmount();
    away.snapshot(3, "drop", &["one"]);
    away.mount();
    let (database, disk) = (away.0.arg("shop.db"), away.0.arg("disk"));
    let output = windlass(&["snapshot", "create", &database, "one", "--to", &disk]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains(&away.0.arg("disk/one")), "{printed}");
    assert!(printed.contains("remove that directory"), "{printed}");
    assert!(!printed.contains("snapshot drop"), "{printed}");
    std::fs::remove_dir_all(away.0.path("disk/one")).unwrap();
    away.create(0, "one");
}

/// Nobody removed its directory, so nobody is told that.
#[test]
fn the_server_forgets_a_snapshot_that_is_dropped_while_its_disk_is_not_mounted() {
    let source = Orphaned::new();
    let disk = source.scratch.path().join("disk");
    let make = || {
        std::fs::create_dir(&disk).unwrap();
        give_to_servers(&disk);
    };
    make();
    let to = disk.display().to_string();
    source.snapshot(0, "create", &["one", "--method", "hook", "--to", &to]);
    source.write();
    std::fs::rename(&disk, disk.with_extension("unmounted")).unwrap();
    make();
    let dropped = source.snapshot(3, "drop", &["one"]);
    assert!(dropped.contains("stays on its disk"), "{dropped}");
    assert_eq!(source.links(), 0);
    let listed = source.snapshot(0, "list", &[]);
    assert!(listed.contains("no snapshots"), "{listed}");
    source.create(0, "two");
    source.snapshot(0, "drop", &["two"]);
}

/// It cannot say which one of the server it was, and another entry leads to nothing.
#[test]
fn a_damaged_snapshot_that_is_dropped_while_a_disk_is_away_is_not_called_removed() {
    let source = Orphaned::new();
    let (disk, unmounted) = (
        source.scratch.path().join("disk"),
        source.scratch.path().join("unmounted"),
    );
    std::fs::create_dir(&disk).unwrap();
    give_to_servers(&disk);
    let to = disk.display().to_string();
    source.snapshot(0, "create", &["far", "--method", "copy", "--to", &to]);
    for name in ["one", "two"] {
        source.create(0, name);
    }
    let document = source.home().join("one/hook/hook.json");
    let mut bytes = std::fs::read(&document).unwrap();
    bytes.push(b'x');
    std::fs::write(&document, bytes).unwrap();
    std::fs::rename(&disk, &unmounted).unwrap();
    source.snapshot(0, "drop", &["one"]);
    std::fs::rename(&unmounted, &disk).unwrap();
    let listed = source.snapshot(0, "list", &[]);
    assert!(!listed.contains("gone"), "{listed}");
    source.create(0, "three");
    assert_eq!(source.links(), 2);
    // What somebody removes is told.
    std::fs::remove_dir_all(source.home().join("two")).unwrap();
    let listed = source.snapshot(3, "list", &[]);
    assert!(listed.contains("1 snapshot is gone"), "{listed}");
    for name in ["far", "three"] {
        source.snapshot(0, "drop", &[name]);
    }
}

/// Of the server's snapshots none was dropped, so none that goes later may be kept quiet.
#[test]
fn a_copy_that_is_dropped_while_its_disk_is_away_hides_no_snapshot_that_somebody_removes() {
    let source = Orphaned::new();
    let (disk, unmounted) = (
        source.scratch.path().join("disk"),
        source.scratch.path().join("unmounted"),
    );
    std::fs::create_dir(&disk).unwrap();
    give_to_servers(&disk);
    let to = disk.display().to_string();
    for name in ["far", "further"] {
        source.snapshot(0, "create", &[name, "--method", "copy", "--to", &to]);
    }
    source.create(0, "one");
    std::fs::rename(&disk, &unmounted).unwrap();
    source.snapshot(3, "drop", &["far"]);
    std::fs::rename(&unmounted, &disk).unwrap();
    std::fs::remove_dir_all(source.home().join("one")).unwrap();
    let listed = source.snapshot(3, "list", &[]);
    assert!(listed.contains("1 snapshot is gone"), "{listed}");
    let made = source.create(3, "two");
    assert!(made.contains("(snapshots-removed)"), "{made}");
    for name in ["further", "two"] {
        source.snapshot(0, "drop", &[name]);
    }
}
