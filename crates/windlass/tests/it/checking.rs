//! `windlass check` and `--dry-run` say what would happen, and do nothing.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

use crate::clusters;
use crate::opening::Scratch;
use crate::support::*;

/// All files below a directory, with their bytes and times.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let modified = path.metadata().unwrap().modified().unwrap();
        if path.is_dir() {
            all.extend(contents(&path));
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        all.push((path, bytes, modified));
    }
    all.sort();
    all
}

/// The state of the first check of this name.
fn state(document: &serde_json::Value, name: &str) -> String {
    let checks = document["checks"].as_array().unwrap();
    let states = checks.iter().filter(|check| check["name"] == name);
    let states: Vec<_> = states
        .map(|check| check["state"].as_str().unwrap())
        .collect();
    states.join(",")
}

#[test]
fn a_check_of_sqlite_says_what_is_right_and_what_is_not_and_changes_nothing() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let before = contents(place.dir.path());
    let (code, document) = json(&["check", &db, "--to", &sets, "--compress", "none"]);
    assert_eq!(code, 0, "{document}");
    for name in [
        "database",
        "side files",
        "locks",
        "target",
        "room",
        "settings",
    ] {
        assert_eq!(state(&document, name), "ok", "{name}: {document}");
    }
    let (code, document) = json(&["check", &db]);
    assert_eq!((code, state(&document, "target").as_str()), (3, "warning"));
    let missing = place.arg("no/such/place");
    let (code, document) = json(&["check", &db, "--to", &sets, "--to", &missing]);
    assert_eq!(
        (code, state(&document, "target").as_str()),
        (1, "failed,ok"),
        "{document}"
    );
    let words = ["check", &db, "--to", &db, "--before", "/no/such/program"];
    let (code, document) = json(&words);
    assert_eq!(
        (code, state(&document, "target").as_str()),
        (1, "failed,failed"),
        "{document}"
    );
    assert_eq!(state(&document, "hooks"), "failed");
    assert_eq!(contents(place.dir.path()), before);
    // An error in the usage has the code for usage.
    assert_eq!(
        windlass(&["check", "nowhere", "--to", &sets]).status.code(),
        Some(2)
    );
}

#[test]
fn a_check_finds_what_a_cut_off_run_left() {
    let place = Place::new();
    std::fs::write(place.path("sets/x.windlass.partial"), "").unwrap();
    let (db, sets) = place.ends();
    let output = windlass(&["check", &db, "--to", &sets, "--quiet"]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.starts_with("warning  clean-up"), "{printed}");
    assert!(printed.contains("hint: "), "{printed}");
    assert_eq!(place.sets().len(), 1);
}

#[test]
fn a_target_without_room_fails_the_check() {
    let place = Place::with_accounts(4000);
    let script = "mount -t tmpfs -o size=64k none \"$1\" && shift && exec \"$@\"";
    let mut unshare = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let (db, sets) = place.ends();
    unshare.args(["--mount", "sh", "-c", script, "sh", &sets]);
    unshare.args([env!("CARGO_BIN_EXE_windlass"), "check", &db, "--to", &sets]);
    unshare.args(["--compress", "none", "--config", "/dev/null"]);
    let output = unshare.output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("failed   room"), "{printed}");
}

#[test]
fn a_check_of_a_cluster_names_the_rights_that_are_missing() {
    let place = clusters::place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let sets = clusters::directory(place.path(), "sets");
    let sets = sets.to_str().unwrap();
    let check = |conninfo: &str| {
        let words = ["check", conninfo, "--to", sets, "--json"];
        let output = Scratch::new().run(None, &words);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
        (output.status.code().unwrap(), document)
    };
    let (code, document) = check(&source.conninfo());
    assert_eq!(code, 0, "{document}");
    for name in [
        "server",
        "rights",
        "slots",
        "files",
        "checksums",
        "target",
        "room",
    ] {
        assert_eq!(state(&document, name), "ok", "{name}: {document}");
    }
    source.sql("postgres", "CREATE ROLE keeper LOGIN");
    source.sql("postgres", "GRANT pg_read_all_settings TO keeper");
    source.sql(
        "postgres",
        "GRANT EXECUTE ON FUNCTION pg_control_system() TO keeper",
    );
    let conninfo = source.conninfo().replace("user=postgres", "user=keeper");
    let (code, document) = check(&conninfo);
    assert_eq!(
        (code, state(&document, "rights").as_str()),
        (1, "failed,failed,warning")
    );
    let checks = document["checks"].as_array().unwrap();
    for check in checks.iter().filter(|check| check["name"] == "rights") {
        let hint = check["hint"].as_str().unwrap();
        let (_, statement) = hint.split_once(": ").unwrap();
        source.sql("postgres", statement);
    }
    let (_, document) = check(&conninfo);
    assert_eq!(state(&document, "rights"), "ok", "{document}");
    // The server's own state has not changed: no backup, no slot.
    assert_eq!(
        source.sql("postgres", "SELECT count(*) FROM pg_replication_slots"),
        "0"
    );
    let down = source.conninfo().replace("5432", "5433");
    let (code, document) = check(&down);
    assert_eq!(
        (code, state(&document, "database").as_str()),
        (1, "failed"),
        "{document}"
    );
}

#[test]
fn a_dry_run_of_a_backup_tells_what_it_would_do_and_does_nothing() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let before = contents(place.dir.path());
    let words = ["backup", &db, "--to", &sets, "--dry-run"];
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    for says in [
        "would read    ",
        "would write   a new stripe in ",
        "would take    unknown",
    ] {
        assert!(printed.contains(says), "{says}: {printed}");
    }
    assert!(printed.ends_with("nothing was changed\n"), "{printed}");
    let emulated = [
        "--emulate",
        "source=rate:1MB/s",
        "--emulate",
        "target=rate:1GB/s",
    ];
    let (code, document) = json(&[&words[..], &emulated].concat());
    assert_eq!(code, 0, "{document}");
    let bytes = document["bytes"].as_f64().unwrap();
    let seconds = document["prediction"]["seconds"].as_f64().unwrap();
    // The time follows from the model: a megabyte a second.
    assert!(
        (seconds / (bytes / 1e6) - 1.0).abs() < 0.2,
        "{seconds} s for {bytes}"
    );
    assert_eq!(document["prediction"]["limit"]["stage"], "source");
    assert_eq!(contents(place.dir.path()), before);
    // What makes the run fail also makes the dry run fail.
    let output = windlass(&["backup", &db, "--to", &db, "--dry-run"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn a_dry_run_of_a_restore_tells_what_it_would_do_and_does_nothing() {
    let place = Place::new();
    let set = place.back_up();
    let set = set.to_str().unwrap();
    let before = contents(place.dir.path());
    let (into, db) = (place.arg("new.db"), place.arg("shop.db"));
    let words = ["restore", set, "--into", &into, "--dry-run"];
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(
        printed.contains(&format!("would write   {into}")),
        "{printed}"
    );
    let refused = windlass(&["restore", set, "--into", &db, "--dry-run"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    let forced = windlass(&["restore", set, "--into", &db, "--dry-run", "--force"]);
    assert_eq!(forced.status.code(), Some(3), "{}", text(&forced));
    assert!(
        text(&forced).contains("would be replaced"),
        "{}",
        text(&forced)
    );
    assert_eq!(contents(place.dir.path()), before);
}

#[test]
fn a_check_of_a_sqlite_database_that_is_cut_off_fails_as_its_backup_does() {
    for in_log in [false, true] {
        let place = Place::with_accounts(2000);
        // An open connection keeps the log, which then holds what was committed last.
        let keeper = in_log.then(|| place.ledger.shell());
        place.ledger.commit(21, 30);
        let (db, sets) = place.ends();
        let words = ["check", &db, "--to", &sets];
        let (code, document) = json(&words);
        assert_eq!(code, 0, "{document}");
        let file = std::fs::File::options().write(true).open(&db).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(bytes / 2).unwrap();
        let (code, document) = json(&words);
        let found = (code, state(&document, "database"));
        assert_eq!(found, (1, "failed".to_owned()), "{document}");
        let text = document["checks"].to_string();
        assert!(text.contains("is cut off at byte"), "{text}");
        let backup = windlass(&["backup", &db, "--to", &sets]);
        assert_eq!(backup.status.code(), Some(1));
        drop(keeper);
    }
}

#[test]
fn a_dry_run_of_a_restore_to_a_bare_name_looks_at_the_current_directory() {
    let place = Place::new();
    let set = place.back_up();
    let words = ["restore", set.to_str().unwrap(), "--into", "new.db"];
    let mut dry = command();
    let output = dry
        .args(words)
        .arg("--dry-run")
        .current_dir(place.dir.path());
    let output = output.output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let here = format!("{} can be written to", place.dir.path().display());
    let says = [here, format!("would write   {}", place.arg("new.db"))];
    assert!(says.iter().all(|it| printed.contains(it)), "{printed}");
}

#[test]
fn a_dry_run_of_a_clusters_restore_makes_no_directory() {
    let place = clusters::place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let set = clusters::back_up(&source, place.path(), &[]);
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let into = place.path().join("new");
    let words = [
        "restore",
        &set,
        "--into",
        into.to_str().unwrap(),
        "--dry-run",
    ];
    let output = Scratch::new().run(None, &words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("nothing was changed"), "{printed}");
    assert!(!into.exists());
    let data = source.data().to_str().unwrap();
    let output = Scratch::new().run(None, &["restore", &set, "--into", data, "--dry-run"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    // The restore itself says the same: what the directory is, and how to get it out of the way.
    let over = |says: [&str; 2]| {
        let output = Scratch::new().run(None, &["restore", &set, "--into", data, "--force"]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(says.iter().all(|it| printed.contains(it)), "{printed}");
    };
    over([
        "is the data directory of a running server",
        "Stop that server and move",
    ]);
    let old = clusters::directory(place.path(), "old");
    std::fs::write(old.join("PG_VERSION"), "15").unwrap();
    let old = old.to_str().unwrap();
    let output = Scratch::new().run(None, &["restore", &set, "--into", old]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("is not empty") && printed.contains("move the old"),
        "{printed}"
    );
}

#[test]
fn a_check_says_that_a_directory_would_be_made_and_logs_what_it_found() {
    let place = Place::new();
    let (db, new, log) = (place.arg("shop.db"), place.arg("new"), place.arg("log"));
    let words = ["check", &db, "--to", &new, "--log", &log];
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let says = format!("{new} does not exist: the backup would make it");
    assert!(printed.contains(&says), "{printed}");
    assert!(!place.path("new").exists());
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(
        logged.contains(&format!("] info: check: target: {new}")),
        "{logged}"
    );
    let words = [
        "check",
        &db,
        "--before",
        "true",
        "--readers",
        "1",
        "--log",
        &log,
    ];
    let printed = text(&windlass(&words));
    assert!(printed.contains("--before would run "), "{printed}");
    assert!(printed.contains(" 1 reader, "), "{printed}");
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(
        logged.contains("] warn: check: target: no device"),
        "{logged}"
    );
}

#[test]
fn a_check_finds_metrics_that_another_user_owns_in_a_sticky_directory() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let nobody = Some(65534);
    for name in ["", "shop.db", "shop.db-wal", "shop.db-shm", "sets"] {
        if place.path(name).exists() {
            std::os::unix::fs::chown(place.path(name), nobody, nobody).unwrap();
        }
    }
    let metrics = clusters::directory(place.dir.path(), "metrics");
    let file = metrics.join("windlass.prom");
    std::fs::write(&file, "").unwrap();
    std::os::unix::fs::chown(&metrics, Some(0), Some(0)).unwrap();
    std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&metrics, PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let (db, sets, file) = (
        place.arg("shop.db"),
        place.arg("sets"),
        file.to_str().unwrap(),
    );
    let words = ["check", &db, "--to", &sets, "--metrics-file", file];
    let (code, document) = json(&words);
    assert_eq!(
        (code, state(&document, "metrics").as_str()),
        (3, "warning"),
        "{document}"
    );
    assert!(
        document.to_string().contains("only its owner may replace"),
        "{document}"
    );
    let output = windlass(&["backup", &db, "--to", &sets, "--metrics-file", file]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert_eq!(
        printed
            .matches("the metrics of this run are not in")
            .count(),
        1,
        "{printed}"
    );
    assert!(
        printed.contains("Remove the file as its owner"),
        "{printed}"
    );
}

#[test]
fn a_check_refuses_what_the_run_refuses() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let long = "x".repeat(2000);
    for (option, value) in [
        ("--metrics", "zz"),
        ("--metrics", ":9187"),
        ("--emulate", "zz"),
        ("--emulate", "source=floppy"),
        ("--events-limit", "1KiB"),
        ("--hook-timeout", " 5"),
        ("--compress", "zip"),
        ("--before", "sh -c 'x"),
        ("--buffers", "1"),
        ("--frame-size", "700000"),
        ("--to", ""),
        ("--to", "nul"),
        ("--to", "s3:///x"),
        ("--label", long.as_str()),
    ] {
        let (codes, printed): (Vec<_>, Vec<_>) = ["backup", "check"]
            .map(|command| {
                let output = windlass(&[command, &db, "--to", &sets, option, value]);
                (output.status.code(), text(&output))
            })
            .into_iter()
            .unzip();
        // SQLite keeps any label.
        let expected = Some(if option == "--label" { 0 } else { 2 });
        assert_eq!(codes, [expected; 2], "{option} {value}: {printed:?}");
    }
    assert_eq!(
        place.sets().len(),
        1,
        "one backup was made, that with the label"
    );
}

#[test]
fn a_check_warns_of_what_the_backup_would_warn_of() {
    let place = Place::new();
    let (db, sets) = place.ends();
    std::os::unix::fs::symlink(&db, place.path("link.db")).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (link, missing) = (place.arg("link.db"), place.arg("missing/file"));
    for (database, option) in [
        (&link, [].as_slice()),
        (&db, &["--metrics", &taken]),
        (&db, &["--metrics-file", &missing]),
        (&db, &["--events", &missing]),
        (&link, &["--accept", "symbolic-link"]),
    ] {
        let run = |command: &str| {
            let words = [&[command, database, "--to", &sets][..], option].concat();
            let output = windlass(&words);
            (output.status.code(), text(&output))
        };
        let expected = Some(if option.first() == Some(&"--accept") {
            0
        } else {
            3
        });
        let (check, backup) = (run("check"), run("backup"));
        assert_eq!(check.0, expected, "{option:?}: {}", check.1);
        assert_eq!(backup.0, expected, "{option:?}: {}", backup.1);
    }
}

#[test]
fn a_check_sees_that_somebody_has_locked_the_database() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let words = ["check", &db, "--to", &sets];
    assert_eq!(json(&words).0, 0);
    for statement in [
        "PRAGMA locking_mode=EXCLUSIVE; BEGIN IMMEDIATE; COMMIT;",
        "PRAGMA journal_mode=DELETE; BEGIN EXCLUSIVE;",
    ] {
        let mut shell = place.ledger.shell();
        shell.run(statement);
        let (code, document) = json(&words);
        let found = (code, state(&document, "locks"));
        assert_eq!(found, (3, "warning".to_owned()), "{document}");
        let told = document["checks"].to_string();
        assert!(told.contains("has locked the database just now"), "{told}");
        let backup = windlass(&["backup", &db, "--to", &sets, "--lock-wait", "0"]);
        assert_eq!(backup.status.code(), Some(1), "{}", text(&backup));
    }
    // The check itself has locked nothing, and changed nothing.
    assert_eq!(json(&words).0, 0);
}

#[test]
fn a_directory_of_the_configuration_that_is_missing_is_a_warning() {
    let place = Place::new();
    let config = place.arg("windlass.toml");
    let (db, new) = (place.arg("shop.db"), place.arg("disk"));
    let text_of = format!("[database.shop]\nsource = \"{db}\"\nto = \"{new}\"\n");
    std::fs::write(&config, text_of).unwrap();
    let run = |command: &str| {
        let output = windlass(&[command, "shop", "--config", &config]);
        (output.status.code(), text(&output))
    };
    let (code, printed) = run("check");
    assert_eq!(code, Some(3), "{printed}");
    let says = format!("{new} does not exist, although the configuration names it");
    assert!(printed.contains(&says), "{printed}");
    assert!(!place.path("disk").exists());
    let (code, printed) = run("backup");
    assert_eq!(code, Some(3), "{printed}");
    assert!(
        printed.contains("If a disk belongs there, it is not mounted"),
        "{printed}"
    );
    // The directory is there now, and the next night is like any other.
    assert_eq!(run("check").0, Some(0));
    assert_eq!(run("backup").0, Some(0));
}

#[test]
fn a_directory_that_is_append_only_is_refused_before_anything_is_done() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let attribute = |change: &str| {
        let mut chattr = std::process::Command::new("chattr");
        let output = chattr.args([change, &sets]).output();
        output.is_ok_and(|output| output.status.success())
    };
    for (letter, word) in [("a", "append-only"), ("i", "immutable")] {
        // Only root may set it, and not on every file system.
        if !attribute(&format!("+{letter}")) {
            return;
        }
        let outputs = ["check", "backup"].map(|command| windlass(&[command, &db, "--to", &sets]));
        assert!(attribute(&format!("-{letter}")));
        for output in outputs {
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(1), "{printed}");
            assert!(printed.contains(&format!("{sets} is {word}")), "{printed}");
            assert!(
                printed.contains(&format!("hint: Type chattr -{letter} ")),
                "{printed}"
            );
        }
        assert!(place.sets().is_empty(), "{:?}", place.sets());
    }
    assert_eq!(
        windlass(&["backup", &db, "--to", &sets]).status.code(),
        Some(0)
    );
}
