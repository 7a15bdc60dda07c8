//! An output replaces only its own kind. The tests combine each option that names an output, each
//! thing that must stay, and each kind of name for that thing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::*;

mod same_run;
mod unseen;

/// Everything below a directory: links with their targets, files with their content.
fn everything(place: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        let what = if metadata.is_symlink() {
            fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else if metadata.is_dir() {
            found.append(&mut everything(&path));
            b"a directory".to_vec()
        } else if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            b"something else".to_vec()
        };
        found.insert(path, what);
    }
    found
}

/// Runs a command that must refuse with a hint and change nothing below the place.
fn refused(place: &Place, words: &[&str]) {
    let before = everything(place.dir.path());
    let output = command()
        .args(words)
        .env("WINDLASS_STATE_DIR", "/nonexistent")
        .output()
        .unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
    let says = ["cannot write ", "cannot replace ", "exists"];
    assert!(
        says.iter().any(|it| printed.contains(it)),
        "{words:?}: {printed}"
    );
    assert!(printed.contains("hint: "), "{words:?}: {printed}");
    assert!(
        before == everything(place.dir.path()),
        "{words:?}: {printed}"
    );
}

/// A database and its side files, under every kind of name.
fn names_of_a_database(place: &Place) -> Vec<String> {
    let at = |name: &str| place.path(name);
    fs::create_dir(at("links")).unwrap();
    fs::hard_link(at("shop.db"), at("hard")).unwrap();
    symlink(at("shop.db"), at("links/soft")).unwrap();
    symlink("soft", at("links/soft-to-soft")).unwrap();
    symlink(at("shop.db-journal"), at("links/nowhere-yet")).unwrap();
    symlink(place.dir.path(), at("links/up")).unwrap();
    let names = [
        "shop.db",
        "shop.db-wal",
        "shop.db-shm",
        "shop.db-journal",
        "hard",
        "links/soft",
        "links/soft-to-soft",
        "links/nowhere-yet",
        "links/up/shop.db",
        "links/up/shop.db-wal",
        "links/../shop.db-journal",
    ];
    names.iter().map(|name| place.arg(name)).collect()
}

#[test]
fn no_output_of_a_backup_is_its_source_or_a_side_file_of_it() {
    let place = Place::new();
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    for name in names_of_a_database(&place) {
        refused(&place, &["backup", &db, "--to", &name]);
        refused(&place, &["backup", &db, "--to", &name, "--overwrite"]);
        refused(&place, &["backup", &db, "--to", &sets, "--events", &name]);
        refused(
            &place,
            &["backup", &db, "--to", &sets, "--metrics-file", &name],
        );
        refused(&place, &["tune", &db, "--to", &name]);
    }
    // The name that a stripe has until it is sealed is refused too.
    fs::hard_link(place.path("shop.db"), place.path("set.windlass.partial")).unwrap();
    refused(&place, &["backup", &db, "--to", &place.arg("set.windlass")]);
    assert_eq!(place.ledger.check(&place.path("shop.db")), 20);
}

#[test]
fn a_relative_name_of_a_side_file_is_the_side_file() {
    let place = Place::new();
    for name in ["shop.db-wal", "./shop.db-journal", "sets/../shop.db-shm"] {
        let output = command()
            .args(["backup", "shop.db", "--to", name])
            .current_dir(place.dir.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("cannot write"), "{}", text(&output));
    }
}

#[test]
fn no_output_is_a_stripe_of_the_set_that_is_read() {
    let place = Place::new();
    let set = place.back_up();
    let stripe = set.to_str().unwrap();
    fs::hard_link(&set, place.path("hard")).unwrap();
    symlink(&set, place.path("soft")).unwrap();
    fs::create_dir(place.path("other.db.windlass-restore")).unwrap();
    fs::hard_link(&set, place.path("other.db.windlass-restore/x")).unwrap();
    let into = place.arg("new.db");
    for name in [stripe, &place.arg("hard"), &place.arg("soft")] {
        for option in ["--events", "--metrics-file"] {
            refused(&place, &["restore", stripe, "--into", &into, option, name]);
            refused(&place, &["verify", stripe, option, name]);
        }
        refused(&place, &["restore", stripe, "--into", name, "--force"]);
        // As a device of a second set it would be a stripe, but it belongs to another database.
        refused(&place, &["restore", stripe, "--into", name]);
    }
    refused(
        &place,
        &[
            "restore",
            stripe,
            "--into",
            &place.arg("other.db"),
            "--force",
        ],
    );
    // Here a stripe has the name of a side file.
    windlass_engine::durable::rename(&set, &place.path("new.db-wal")).unwrap();
    let set = place.arg("new.db-wal");
    refused(&place, &["restore", &set, "--into", &into, "--force"]);
}

#[test]
fn an_output_replaces_files_of_its_own_kind_only() {
    let place = Place::new();
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    let set = place.back_up();
    let set = set.to_str().unwrap();
    let (events, metrics) = (place.arg("events.jsonl"), place.arg("windlass.prom"));
    let page = place.arg("page.html");
    let record = || {
        let words = [
            "verify",
            set,
            "--events",
            &events,
            "--metrics-file",
            &metrics,
        ];
        windlass(&words).status.code()
    };
    let draw = || {
        windlass(&["events", &events, "--html", &page])
            .status
            .code()
    };
    let pages = || windlass(&["man", &sets]).status.code();
    assert_eq!((record(), draw(), pages()), (Some(0), Some(0), Some(0)));
    // A second time, over files of their own kind: links to them stay links.
    windlass_engine::durable::rename(page.as_ref(), &place.path("real.html")).unwrap();
    symlink(place.path("real.html"), &page).unwrap();
    assert_eq!((record(), draw(), pages()), (Some(0), Some(0), Some(0)));
    assert!(place.path("page.html").is_symlink());
    // Over an empty file, as mktemp makes it.
    fs::File::create(place.path("empty")).unwrap();
    let empty = place.arg("empty");
    assert_eq!(
        windlass(&["verify", set, "--events", &empty]).status.code(),
        Some(0)
    );
    let other = Place::new();
    let other_db = other.arg("shop.db");
    let plain = place.arg("notes");
    windlass_engine::durable::write(Path::new(&plain), b"eggs, milk\n", 0o644).unwrap();
    let things: [&str; 8] = [&plain, &other_db, &db, set, &events, &metrics, &page, &sets];
    for thing in things {
        if thing != events {
            refused(&place, &["verify", set, "--events", thing]);
        }
        if thing != metrics {
            refused(&place, &["verify", set, "--metrics-file", thing]);
        }
        if thing != page {
            refused(&place, &["events", &events, "--html", thing]);
        }
        if thing != set && thing != sets {
            refused(&place, &["backup", &db, "--to", thing, "--overwrite"]);
        }
        if thing != sets && ![db.as_str(), &other_db].contains(&thing) {
            refused(&place, &["restore", set, "--into", thing, "--force"]);
        }
    }
    windlass_engine::durable::write(&place.path("sets/windlass.1"), b"eggs\n", 0o644).unwrap();
    refused(&place, &["man", &sets]);
    assert_eq!(other.ledger.check(Path::new(&other_db)), 20);
}

#[test]
fn a_stripe_being_written_never_takes_the_place_of_another_file() {
    let place = Place::new();
    let (db, set) = (place.arg("shop.db"), place.arg("set.windlass"));
    windlass_engine::durable::write(&place.path("set.windlass.partial"), b"eggs\n", 0o644).unwrap();
    refused(&place, &["backup", &db, "--to", &set]);
    fs::remove_file(place.path("set.windlass.partial")).unwrap();
    // What a run left that was killed before its first write does not prevent a new run.
    for left in [vec![], vec![0; 100_000]] {
        windlass_engine::durable::write(&place.path("set.windlass.partial"), &left, 0o600).unwrap();
        let output = windlass(&["backup", &db, "--to", &set, "--overwrite"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    assert_eq!(place.restored(&place.path("set.windlass")), 20);
}

/// Creates files that look like a data directory with a tablespace.
fn plant_cluster(place: &Place) {
    for directory in [
        "data/global",
        "data/base/5",
        "space/PG_17_202406281/5",
        "mount",
    ] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    for file in [
        "data/PG_VERSION",
        "data/global/pg_control",
        "data/postmaster.pid",
        "data/conf.toml",
    ] {
        windlass_engine::durable::write(&place.path(file), b"# 17\n", 0o600).unwrap();
    }
    symlink(place.path("data"), place.path("to-data")).unwrap();
}

#[test]
fn no_output_goes_into_a_data_directory_or_a_tablespace() {
    let place = Place::new();
    let db = place.arg("shop.db");
    let set = place.back_up();
    let set = set.to_str().unwrap();
    plant_cluster(&place);
    let events = place.arg("events.jsonl");
    let output = windlass(&["verify", set, "--events", &events]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    for directory in [
        "data",
        "data/base/5",
        "to-data",
        "to-data/base",
        "space/PG_17_202406281",
        "space",
    ] {
        let (inside, new) = (place.arg(directory), place.arg(&format!("{directory}/new")));
        refused(&place, &["backup", &db, "--to", &inside]);
        refused(&place, &["verify", set, "--events", &new]);
        refused(&place, &["verify", set, "--metrics-file", &new]);
        refused(&place, &["events", &events, "--html", &new]);
        refused(&place, &["restore", set, "--into", &new]);
        refused(&place, &["restore", set, "--into", &inside]);
        refused(
            &place,
            &["mount", set, &place.arg("mount"), "--overlay", &new, "-f"],
        );
        refused(&place, &["open", set, "--scratch", &inside]);
        refused(&place, &["man", &inside]);
        refused(&place, &["lab", "probe", &inside]);
        refused(&place, &["lab", "rehearse", &inside]);
        refused(
            &place,
            &[
                "lab", "sweep", "disk", &db, "--to", &inside, "--repeat", "1",
            ],
        );
        refused(
            &place,
            &[
                "lab", "sweep", "nul", &db, "--out", &inside, "--repeat", "1",
            ],
        );
        refused(&place, &["extract", set, "*", "--into", &inside]);
        refused(&place, &["extract", set, "*", "--into", &new]);
    }
    for config in ["data/conf.toml", "to-data/conf.toml"] {
        let config = place.arg(config);
        let words = ["tune", &db, "--to", "nul", "--write", "--config", &config];
        refused(&place, &words);
    }
}

#[test]
fn a_device_that_keeps_nothing_may_take_any_output_that_no_rename_replaces() {
    let place = Place::new();
    let set = place.back_up();
    let set = set.to_str().unwrap();
    let null = fs::metadata("/dev/null").unwrap().rdev();
    // Metrics are put in their place by a rename, which would replace the device.
    refused(&place, &["verify", set, "--metrics-file", "/dev/null"]);
    let (events, page) = (place.arg("events.jsonl"), "/dev/null");
    for words in [
        &["verify", set, "--events", "/dev/null"][..],
        &["verify", set, "--events", &events],
        &["events", &events, "--html", page],
    ] {
        let output = windlass(words);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
    }
    assert_eq!(fs::metadata("/dev/null").unwrap().rdev(), null);
}

#[test]
fn a_source_that_is_mounted_a_second_time_is_the_source() {
    let place = Place::new();
    plant_cluster(&place);
    fs::create_dir(place.path("again")).unwrap();
    let file = place.path("again.db");
    fs::File::create(&file).unwrap();
    // Through the first mount the directory belongs to a cluster. Through the second one, only its
    // device and inode show that.
    let script = "mount --bind \"$1/shop.db\" \"$1/again.db\" && cd \"$1\" && \
                  for to in again.db again.db-wal shop.db-wal; do \
                  \"$2\" backup shop.db --to \"$to\" --overwrite; test $? = 1 || exit 9; done";
    let mut unshare = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let place_name = place.dir.path().to_str().unwrap();
    unshare.args(["--mount", "sh", "-c", script, "sh", place_name]);
    unshare.arg(env!("CARGO_BIN_EXE_windlass"));
    let output = unshare
        .env("WINDLASS_CONFIG", "/dev/null")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(place.ledger.check(&place.path("shop.db")), 20);
}

#[test]
fn what_a_killed_run_left_of_its_metrics_is_removed_by_the_next_run() {
    let place = Place::new();
    let left = place.path(".mf.18ab-7-0.windlass-tmp");
    windlass_engine::durable::write(&left, b"# half", 0o600).unwrap();
    let (db, sets, metrics) = (place.arg("shop.db"), place.arg("sets"), place.arg("mf"));
    let output = windlass(&["backup", &db, "--to", &sets, "--metrics-file", &metrics]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(!left.exists());
    assert!(place.path("mf").exists());
}
