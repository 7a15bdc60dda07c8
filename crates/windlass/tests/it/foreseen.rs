//! `windlass check` says before the night what the backup says in the night.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};
use windlass_testkit::sqlite::{Shell, run_once};

use crate::clusters::{directory, place};
use crate::opening::Scratch;
use crate::support::*;

/// What a case does to the directory of the database.
type Spoil = fn(&Path);

fn mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Gives everything to an ordinary user, whom root then becomes.
fn give_away(directory: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let nobody = Some(65534);
    chown(directory, nobody, nobody).unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        chown(entry.unwrap().path(), nobody, nobody).unwrap();
    }
}

/// Copies the files of a database while a program has it open.
fn copy_all(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let name = |directory: &Path| directory.join(format!("shop.db{suffix}"));
        if name(from).exists() {
            fs::copy(name(from), name(to)).unwrap();
        }
    }
}

/// A database in WAL mode, with the files beside it.
fn in_wal(scratch: &Path, to: &Path) {
    let mut shell = Shell::open(&scratch.join("shop.db"));
    shell.run("PRAGMA journal_mode=wal; CREATE TABLE t(a); INSERT INTO t VALUES(1);");
    copy_all(scratch, to);
}

/// A database with the journal of a transaction that never ended.
fn in_transaction(scratch: &Path, to: &Path) {
    let mut shell = Shell::open(&scratch.join("shop.db"));
    shell.run("CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(300000));");
    shell.run("PRAGMA cache_size=2; BEGIN; UPDATE t SET a = randomblob(300000);");
    copy_all(scratch, to);
    assert!(to.join("shop.db-journal").exists());
}

fn backup_and_check_agree(make: fn(&Path, &Path), spoil: Spoil) -> i32 {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    mode(place.path(), 0o755);
    let (scratch, home) = (place.path().join("scratch"), place.path().join("home"));
    fs::create_dir(&scratch).unwrap();
    fs::create_dir(&home).unwrap();
    make(&scratch, &home);
    give_away(&home);
    spoil(&home);
    let db = home.join("shop.db");
    let words = |command| [command, db.to_str().unwrap(), "--to", "nul"];
    let checked = windlass(&words("check"));
    let backed_up = windlass(&words("backup"));
    mode(&home, 0o755);
    let printed = format!("{}\n{}", text(&checked), text(&backed_up));
    let codes = [checked, backed_up].map(|output| output.status.code().unwrap());
    assert_eq!(codes[0], codes[1], "{printed}");
    codes[1]
}

#[test]
fn a_check_foresees_a_log_whose_files_cannot_be_used() {
    let cases: [(i32, Spoil); 7] = [
        (0, |_| ()),
        (0, |home| mode(home, 0o555)),
        (0, |home| mode(home.join("shop.db-shm"), 0o444)),
        (1, |home| mode(home.join("shop.db-shm"), 0)),
        (1, |home| mode(home.join("shop.db-wal"), 0)),
        (1, |home| {
            fs::remove_file(home.join("shop.db-shm")).unwrap();
            mode(home, 0o555);
        }),
        (1, |home| {
            fs::remove_file(home.join("shop.db-shm")).unwrap();
            fs::remove_file(home.join("shop.db-wal")).unwrap();
            mode(home, 0o555);
        }),
    ];
    for (index, (code, spoil)) in cases.into_iter().enumerate() {
        assert_eq!(backup_and_check_agree(in_wal, spoil), code, "{index}");
    }
}

#[test]
fn a_check_foresees_a_journal_that_cannot_be_rolled_back() {
    let cases: [(i32, Spoil); 5] = [
        (3, |_| ()),
        (1, |home| mode(home, 0o555)),
        (1, |home| mode(home.join("shop.db"), 0o444)),
        (1, |home| mode(home.join("shop.db-journal"), 0o444)),
        (1, |home| mode(home.join("shop.db-journal"), 0)),
    ];
    for (index, (code, spoil)) in cases.into_iter().enumerate() {
        let found = backup_and_check_agree(in_transaction, spoil);
        assert_eq!(found, code, "{index}");
    }
}

/// A set of the database, which is emptied then.
fn emptied(journal: &str) -> (Place, [String; 2]) {
    let place = Place::new();
    let (db, sets) = (place.arg("other.db"), place.arg("sets"));
    let sql = format!("PRAGMA journal_mode={journal}; CREATE TABLE t(a);");
    run_once(&place.path("other.db"), &sql).unwrap();
    let made = windlass(&["backup", &db, "--to", &sets]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made));
    drop(File::create(&db).unwrap());
    (place, [db, sets])
}

#[test]
fn a_database_that_was_emptied_is_a_warning_as_long_as_a_larger_set_is_there() {
    for journal in ["delete", "wal"] {
        let (place, [db, sets]) = emptied(journal);
        for command in ["check", "backup", "backup"] {
            let run = |words: &[&str]| {
                let output = windlass(&[&[command, &db, "--to", &sets][..], words].concat());
                (output.status.code(), text(&output))
            };
            let (code, printed) = run(&[]);
            assert_eq!(code, Some(3), "{command}: {printed}");
            assert!(
                printed.contains("(database-emptied)"),
                "{command}: {printed}"
            );
            assert!(printed.contains("holds 8 KiB"), "{command}: {printed}");
            let (code, printed) = run(&["--accept", "database-emptied"]);
            assert_eq!(code, Some(0), "{command}: {printed}");
        }
        // Another database that is empty has no larger set there.
        let new = place.arg("new.db");
        drop(File::create(&new).unwrap());
        for command in ["check", "backup"] {
            let output = windlass(&[command, &new, "--to", &sets]);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        }
    }
}

#[test]
fn a_configuration_with_a_mistake_is_a_warning_until_it_is_accepted() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.configure(&["work_mem = = 1"]);
    let (conninfo, sets) = (source.conninfo(), directory(place.path(), "sets"));
    let run = |command: &str, options: &[&str]| {
        let words = [command, &conninfo, "--to", sets.to_str().unwrap()];
        Scratch::new().run(None, &[&words[..], options].concat())
    };
    for (command, code) in [("check", 3), ("backup", 3)] {
        let output = run(command, &[]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(said.contains("syntax error"), "{command}: {said}");
        assert!(said.contains("configuration-error"), "{command}: {said}");
        let output = run(command, &["--accept", "configuration-error"]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{command}: {}",
            text(&output)
        );
    }
}

#[test]
fn a_check_of_a_cluster_foresees_the_warnings_of_its_backup() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let (sets, state) = (directory(place.path(), "sets"), Scratch::new());
    let sets = sets.to_str().unwrap();
    let data = Path::new(&source.sql("postgres", "SHOW data_directory")).to_owned();
    source.sql(
        "postgres",
        "SELECT pg_create_physical_replication_slot('s1')",
    );
    std::os::unix::fs::symlink("/nowhere", data.join("dangling")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", data.join("followed")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(data.join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let source = source.conninfo();
    let names = [
        "replication-slots",
        "link-dangling",
        "link-followed",
        "special-file",
    ];
    let accept = names.map(|name| ["--accept", name]).concat();
    for (accept, code) in [(&[][..], 3), (&accept, 0)] {
        for command in ["check", "backup"] {
            let words = [&[command, &source, "--to", sets, "--details"], accept].concat();
            let words: Vec<_> = words
                .into_iter()
                .filter(|word| command == "backup" || *word != "--details")
                .collect();
            let output = state.run(None, &words);
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(code), "{command}: {printed}");
            for name in names {
                assert!(
                    printed.contains(&format!("({name})")),
                    "{command} {name}: {printed}"
                );
            }
        }
    }
}

#[test]
fn a_read_only_file_system_is_named_as_the_cause_by_every_command() {
    let place = Place::new();
    place.back_up();
    let (db, sets) = place.ends();
    for name in ["ro", "at"] {
        fs::create_dir(place.path(name)).unwrap();
    }
    let [ro, new, at] = ["ro", "ro/new.db", "at"].map(|name| place.arg(name));
    for words in [
        &["check", &db, "--to", &ro][..],
        &["check", &db, "--to", &new],
        &["backup", &db, "--to", &ro, "--dry-run"],
        &["backup", &db, "--to", &ro],
        &["backup", &db, "--to", &new],
        &["restore", &sets, "--into", &new, "--dry-run"],
        &["restore", &sets, "--into", &new],
        &["extract", &sets, "**", "--into", &new],
        &["mount", &sets, &at, "--overlay", &new, "--foreground"],
    ] {
        let script = "mount -t tmpfs none \"$1\" && mount -o remount,ro \"$1\" && shift && \
                      exec \"$@\"";
        let mut unshare = std::process::Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--mount", "sh", "-c", script, "sh", &ro]);
        unshare.args([env!("CARGO_BIN_EXE_windlass"), "--config", "/dev/null"]);
        let output = unshare.args(words).output().unwrap();
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert!(printed.contains("remount,rw"), "{words:?}: {printed}");
        assert!(
            !printed.contains("Give the directory"),
            "{words:?}: {printed}"
        );
    }
}
