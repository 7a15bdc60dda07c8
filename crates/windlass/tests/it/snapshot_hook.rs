//! A server is prepared for snapshots by the hook, has them, and is as it was again.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::PathBuf;

use serde_json::Value;
use windlass_testkit::installed::{self, LIBRARY};
use windlass_testkit::postgres::{ClusterOptions, DEFAULT_BIN, PrivateCluster, stay_root, succeed};

use crate::opening::{Scratch, open_to_all};
use crate::support::text;

/// A copy of the library, as cargo built it for these tests, where every server can read it.
pub fn library(scratch: &Scratch) -> PathBuf {
    let copy = scratch.path().join(LIBRARY);
    std::fs::copy(installed::library(), &copy).unwrap();
    open_to_all(&copy, 0o755);
    copy
}

/// What a command prints, which must end with this code.
pub fn run(scratch: &Scratch, code: i32, words: &[&str]) -> String {
    let output = scratch.run(None, words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

fn json(scratch: &Scratch, words: &[&str]) -> Value {
    let said = run(scratch, 0, &[words, &["--json"]].concat());
    serde_json::from_str(said.trim()).unwrap()
}

/// Removes the shared memory that the hook made for a server, if there is one.
pub fn forget(cluster: &PrivateCluster) {
    crate::run::forget_memory(cluster.data());
}

fn preloaded(cluster: &PrivateCluster) -> String {
    cluster.sql("postgres", "SHOW shared_preload_libraries")
}

pub fn restart(cluster: &mut PrivateCluster) {
    cluster.stop("fast");
    cluster.run();
}

#[test]
fn a_server_is_enabled_has_snapshots_and_is_disabled_again() {
    stay_root();
    let options = ClusterOptions::default();
    let options = options.setting("shared_preload_libraries = 'auto_explain'");
    let mut cluster = PrivateCluster::start(&options);
    cluster.sql("postgres", "CREATE TABLE mark AS SELECT 1 AS i");
    let (scratch, conninfo) = (Scratch::new(), cluster.conninfo());
    let library = library(&scratch);
    let library = library.to_str().unwrap();
    let create = |name: &str, more: &[&str]| {
        let words = ["snapshot", "create", &conninfo, name];
        scratch.run(None, &[&words, more].concat())
    };
    let refused = text(&create("none", &["--method", "hook"]));
    assert!(refused.contains("windlass snapshot enable"), "{refused}");
    let told = text(&create("copied", &[]));
    assert!(
        told.contains("to prepare the server: windlass snapshot enable"),
        "{told}"
    );
    run(&scratch, 0, &["snapshot", "drop", &conninfo, "copied"]);

    let enable = ["snapshot", "enable", &conninfo, "--library", library];
    let enabled = json(&scratch, &enable);
    assert_eq!(
        (&enabled["changed"], &enabled["active"]),
        (&true.into(), &false.into())
    );
    let again = json(&scratch, &["snapshot", "enable", &conninfo]);
    assert_eq!(
        (&again["changed"], &again["restart_needed"]),
        (&false.into(), &true.into())
    );
    assert_eq!(again["library"], library);
    restart(&mut cluster);
    assert_eq!(preloaded(&cluster), format!("auto_explain, {library:?}"));
    let active = run(&scratch, 0, &enable);
    assert!(
        active.contains("every process of the server writes through it"),
        "{active}"
    );

    // Without the file the server would not start again.
    let away = scratch.path().join("away");
    std::fs::rename(library, &away).unwrap();
    let gone = run(&scratch, 1, &["snapshot", "enable", &conninfo]);
    assert!(
        gone.contains("was not found") && gone.contains(library),
        "{gone}"
    );
    std::fs::rename(&away, library).unwrap();

    let bracketed = create("bracketed", &["--checkpoint", "spread", "--method", "hook"]);
    let told = text(&bracketed);
    assert_eq!(bracketed.status.code(), Some(0), "{told}");
    let is_step = |line: &str| line.starts_with("step ") && line.ends_with(" s  linking files");
    assert!(told.lines().any(is_step), "{told}");
    cluster.sql("postgres", "INSERT INTO mark VALUES (2)");
    let words = ["--checkpoint", "none", "--json"];
    let paused: Value = serde_json::from_str(text(&create("paused", &words)).trim()).unwrap();
    assert_eq!(paused["method"], "hook");
    assert!(
        paused["writers_stopped_seconds"].as_f64().unwrap() > 0.0,
        "{paused}"
    );
    cluster.sql("postgres", "INSERT INTO mark VALUES (3)");
    cluster.sql("postgres", "CHECKPOINT");
    for (name, rows) in [("bracketed", "1\n"), ("paused", "2\n")] {
        let word = format!("{conninfo}@{name}");
        let sql = "SELECT count(*) FROM mark";
        let ask = ["open", "--quiet", &word, "--", "psql", "-XqAt", "-c", sql];
        assert_eq!(run(&scratch, 0, &ask), rows, "{name}");
    }
    verified(&cluster, &scratch, &format!("{conninfo}@bracketed"));

    let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 5000) i";
    cluster.sql("postgres", &format!("CREATE TABLE many AS {rows}"));
    let words = [
        "--max-size",
        "64KiB",
        "--max-age",
        "7d",
        "--keep-free",
        "1MiB",
    ];
    let limited = create("limited", &words);
    assert_eq!(limited.status.code(), Some(0), "{}", text(&limited));
    cluster.sql("postgres", "UPDATE many SET x = 'changed'");
    cluster.sql("postgres", "CHECKPOINT");
    let listed = run(&scratch, 3, &["snapshot", "list", &conninfo]);
    assert!(
        listed.contains("ended: it grew beyond its limit"),
        "{listed}"
    );
    assert!(listed.contains("of 64 KiB"), "{listed}");
    assert_eq!(
        listed.matches("kept").count(),
        2,
        "the older ones stay: {listed}"
    );
    assert!(
        cluster
            .log()
            .contains("a snapshot is lost: it grew beyond its limit")
    );
    run(&scratch, 0, &["snapshot", "drop", &conninfo, "limited"]);

    let words = ["--max-age", "1ms"];
    assert_eq!(create("old", &words).status.code(), Some(0));
    let listed = run(&scratch, 3, &["snapshot", "list", &conninfo, "--json"]);
    assert!(listed.contains("as old as it was to become"), "{listed}");
    run(&scratch, 0, &["snapshot", "drop", &conninfo, "old"]);
    let full = text(&create("full", &["--keep-free", "1000TiB"]));
    assert!(full.contains("are to be kept"), "{full}");

    let disable = ["snapshot", "disable", &conninfo];
    let refused = run(&scratch, 1, &disable);
    assert!(
        refused.contains("2 snapshots would be lost without the hook"),
        "{refused}"
    );
    for name in ["bracketed", "paused"] {
        run(&scratch, 0, &["snapshot", "drop", &conninfo, name]);
    }
    let disabled = json(&scratch, &disable);
    assert_eq!(
        (&disabled["changed"], &disabled["active"]),
        (&true.into(), &true.into())
    );
    let late = create("late", &[]);
    let said = text(&late);
    assert_eq!(late.status.code(), Some(3), "{said}");
    assert!(said.contains("loses this snapshot"), "{said}");
    run(&scratch, 0, &["snapshot", "drop", &conninfo, "late"]);
    // Whoever thinks better of it before the restart has lost nothing.
    let enabled = json(&scratch, &enable);
    assert_eq!(
        (&enabled["changed"], &enabled["restart_needed"]),
        (&true.into(), &false.into())
    );
    json(&scratch, &disable);
    let memory = crate::run::memory_of(cluster.data());
    assert!(memory.exists(), "the server has it");
    restart(&mut cluster);
    assert_eq!(preloaded(&cluster), "auto_explain");
    let disabled = json(&scratch, &disable);
    assert_eq!(
        (&disabled["changed"], &disabled["active"]),
        (&false.into(), &false.into())
    );
    // A command that another test runs may look at it at the same moment.
    let is_gone = |_| {
        json(&scratch, &disable);
        !memory.exists()
    };
    assert!((0..1000).any(is_gone), "nobody needs it any more");
    let system = std::fs::read_to_string(cluster.data().join("postgresql.auto.conf")).unwrap();
    assert!(!system.contains("shared_preload"), "as it was: {system}");
    forget(&cluster);
    scratch.assert_clean();
}

/// A backup of a snapshot has the list with which PostgreSQL's own tool checks a restore.
fn verified(cluster: &PrivateCluster, scratch: &Scratch, word: &str) {
    let (sets, into) = (scratch.path().join("sets"), scratch.path().join("restored"));
    let (sets, into) = (sets.to_str().unwrap(), into.to_str().unwrap());
    run(scratch, 0, &["backup", word, "--to", sets]);
    run(scratch, 0, &["restore", sets, "--into", into]);
    succeed(cluster.tool("pg_verifybackup").arg(into));
}

#[test]
fn a_server_that_cannot_be_prepared_is_refused_and_not_changed() {
    stay_root();
    let mut cluster = PrivateCluster::start(&ClusterOptions::default());
    let (scratch, conninfo) = (Scratch::new(), cluster.conninfo());
    let none = scratch.path().join("none");
    let none = none.to_str().unwrap();
    let missing = ["snapshot", "enable", &conninfo, "--library", none];
    let said = run(&scratch, 1, &missing);
    assert!(
        said.contains("was not found") && said.contains(none),
        "{said}"
    );
    let broken = scratch.path().join(LIBRARY);
    std::fs::copy("/etc/passwd", &broken).unwrap();
    open_to_all(&broken, 0o755);
    let broken = broken.to_str().unwrap();
    let said = run(
        &scratch,
        1,
        &["snapshot", "enable", &conninfo, "--library", broken],
    );
    assert!(
        said.contains("the server cannot load") && said.contains(broken),
        "{said}"
    );
    let data = cluster.data().to_str().unwrap().to_owned();
    let said = run(&scratch, 2, &["snapshot", "enable", &data]);
    assert!(said.contains("hint:"), "{said}");
    // A data directory below the working directory needs no `./` in front.
    let name = cluster.data().file_name().unwrap().to_str().unwrap();
    let word = format!("{name}@none");
    let mut revert = scratch.command(None, &["snapshot", "revert", &word, "--yes"]);
    let output = revert
        .current_dir(cluster.data().parent().unwrap())
        .output();
    let said = text(&output.unwrap());
    assert!(said.contains("there is no snapshot"), "{said}");
    cluster.stop("fast");
    cluster.option("-c shared_preload_libraries=auto_explain");
    cluster.run();
    let said = run(&scratch, 1, &["snapshot", "enable", &conninfo]);
    assert!(said.contains("set by the command line"), "{said}");
    let words = [
        "snapshot",
        "create",
        &conninfo,
        "one",
        "--checkpoint",
        "none",
    ];
    // Words that cannot go together are a mistake of whoever typed them.
    let said = run(&scratch, 2, &[&words[..], &["--method", "copy"]].concat());
    assert!(said.contains("it begins with a checkpoint"), "{said}");
    let limited = [&words[..4], &["--method", "clone", "--max-age", "7d"]].concat();
    let said = run(&scratch, 2, &limited);
    assert!(said.contains("it cannot keep a limit"), "{said}");
    let system = std::fs::read_to_string(cluster.data().join("postgresql.auto.conf")).unwrap();
    assert!(!system.contains("shared_preload"), "{system}");
}

#[test]
fn a_sqlite_database_has_no_hook() {
    let scratch = Scratch::new();
    let path = scratch.path().join("shop.db");
    rusqlite(&path);
    let path = path.to_str().unwrap();
    let create = ["snapshot", "create", path, "one"];
    for (words, what) in [
        (&["snapshot", "enable", path][..], "do not have it"),
        (
            &[&create[..], &["--method", "hook"]].concat()[..],
            "do not have it",
        ),
        (
            &[&create[..], &["--max-size", "1GiB"]].concat()[..],
            "keep a limit",
        ),
        (
            &[&create[..], &["--checkpoint", "none"]].concat()[..],
            "no checkpoint that could be left out",
        ),
        (
            &[
                "snapshot",
                "rotate",
                path,
                "--keep",
                "2",
                "--checkpoint",
                "none",
            ][..],
            "no checkpoint that could be left out",
        ),
    ] {
        let said = run(&scratch, 2, words);
        assert!(said.contains(what) && said.contains("hint: "), "{said}");
    }
}

fn rusqlite(path: &std::path::Path) {
    let mut sqlite = std::process::Command::new("sqlite3");
    let made = sqlite.arg(path).arg("CREATE TABLE t (i)").status();
    assert!(made.unwrap().success());
}

#[test]
fn a_backup_of_a_snapshot_without_a_checkpoint_restores_its_moment() {
    stay_root();
    let scratch = Scratch::new();
    let load = format!(
        "shared_preload_libraries = '{}'",
        library(&scratch).display()
    );
    let cluster = PrivateCluster::start(&ClusterOptions::default().setting(load));
    let conninfo = cluster.conninfo();
    cluster.sql("postgres", "CREATE TABLE mark AS SELECT 1 AS i; CHECKPOINT");
    cluster.sql("postgres", "INSERT INTO mark VALUES (2)");
    let words = [
        "snapshot",
        "create",
        &conninfo,
        "then",
        "--checkpoint",
        "none",
    ];
    run(&scratch, 0, &words);
    cluster.sql("postgres", "INSERT INTO mark VALUES (3)");
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (sets, into) = (path("sets"), path("restored"));
    let word = format!("{conninfo}@then");
    run(&scratch, 0, &["backup", &word, "--to", &sets]);
    run(&scratch, 0, &["verify", &sets, "--open"]);
    run(&scratch, 0, &["restore", &sets, "--into", &into]);
    succeed(cluster.tool("pg_verifybackup").arg(&into));
    let restored = PrivateCluster::adopt(into.as_ref(), DEFAULT_BIN.as_ref());
    assert_eq!(restored.sql("postgres", "SELECT count(*) FROM mark"), "2");
    // It loads the hook, too.
    forget(&restored);
    forget(&cluster);
}

/// The steps of a creation, as far as each of them is there in every run.
const STEPS: [&str; 13] = [
    "choosing the method",
    "checking the server",
    "beginning the backup on the server",
    "waiting for the start checkpoint",
    "pinning the log",
    "waiting for the first links",
    "listing files",
    "linking files",
    "building the map",
    "waiting for writers",
    "copying small files",
    "copying the log",
    "publishing",
];
/// The same without a checkpoint, of a cluster that has no links at first.
const STEPS_OF_PAUSE: [&str; 11] = [
    "choosing the method",
    "checking the server",
    "listing files",
    "examining files",
    "building the map",
    "copying the log",
    "waiting for writers",
    "looking at what changed",
    "flipping the map",
    "copying the end of the log",
    "publishing",
];

/// What a program is told of a snapshot that was made.
fn assert_told(made: &Value, steps: &[&str]) {
    for field in ["name", "place", "as_of", "lsn"] {
        assert!(made[field].is_string(), "{field}: {made}");
    }
    for field in ["seconds", "writers_stopped_seconds"] {
        assert!(made[field].is_number(), "{field}: {made}");
    }
    let told = made["steps"].as_array().unwrap();
    assert!(told.iter().all(|step| step["seconds"].is_number()));
    let names: Vec<_> = told.iter().map(|step| step["name"].as_str()).collect();
    for step in steps {
        assert!(names.contains(&Some(*step)), "{step}: {made}");
    }
}

/// The rows of the list, without the blanks between columns.
fn rows_of_list(scratch: &Scratch, conninfo: &str) -> Vec<Vec<String>> {
    let listed = run(scratch, 0, &["snapshot", "list", conninfo]);
    let columns = listed.lines().map(str::split_whitespace);
    columns
        .map(|row| row.map(str::to_owned).collect())
        .collect()
}

#[test]
fn rolling_snapshots_say_how_they_were_made_and_show_each_its_moment() {
    stay_root();
    let scratch = Scratch::new();
    let library = library(&scratch).display().to_string();
    let options = ClusterOptions::default();
    let options = options.setting(format!("shared_preload_libraries = '{library}'"));
    let cluster = PrivateCluster::start(&options);
    let conninfo = cluster.conninfo();
    cluster.sql("postgres", "CREATE TABLE mark AS SELECT 1 AS i");
    let rotate = ["snapshot", "rotate", &conninfo, "hourly", "--keep", "2"];
    let mut all: Vec<Value> = Vec::new();
    for (checkpoint, steps) in [
        ("fast", &STEPS[..]),
        ("none", &STEPS_OF_PAUSE),
        ("spread", &STEPS),
    ] {
        let more = ["--method", "hook", "--checkpoint", checkpoint];
        let made = json(&scratch, &[&rotate[..], &more].concat());
        assert_told(&made, steps);
        let gone: Vec<_> = match all.len() {
            2 => vec![all[0]["name"].clone()],
            _ => Vec::new(),
        };
        assert_eq!(made["dropped"], Value::from(gone), "{made}");
        all.push(made);
        cluster.sql("postgres", "UPDATE mark SET i = i + 1");
        cluster.sql("postgres", "CHECKPOINT");
    }
    let listed = rows_of_list(&scratch, &conninfo);
    let heads = "snapshot as of age method size growth lsn survives state";
    assert_eq!(listed[0].join(" "), heads);
    assert_eq!(listed.len(), 3, "{listed:?}");
    for ((row, made), moment) in listed[1..].iter().zip(&all[1..]).zip(["2", "3"]) {
        let name = made["name"].as_str().unwrap();
        assert_eq!(row[0], name);
        for word in ["hook", made["lsn"].as_str().unwrap(), "crash", "kept"] {
            assert!(row.iter().any(|column| column == word), "{word}: {row:?}");
        }
        let word = format!("{conninfo}@{name}");
        let ask = ["psql", "-XqAt", "-c", "SELECT i FROM mark"];
        let open = ["open", "--quiet", &word, "--"];
        let shown = run(&scratch, 0, &[&open[..], &ask].concat());
        assert_eq!(shown.trim(), moment, "{name}");
    }
    let listed = json(&scratch, &["snapshot", "list", &conninfo]);
    for one in listed["snapshots"].as_array().unwrap() {
        for field in ["disk_bytes", "grown_bytes"] {
            assert!(one[field].as_u64().unwrap() > 0, "{field}: {one}");
        }
        run(
            &scratch,
            0,
            &["snapshot", "drop", &conninfo, one["name"].as_str().unwrap()],
        );
    }
    forget(&cluster);
    scratch.assert_clean();
}

/// The server's processes go on with the memory that they have, and nobody else finds it.
#[test]
fn a_server_whose_memory_was_removed_has_no_snapshots_until_it_starts_again() {
    stay_root();
    let scratch = Scratch::new();
    let library = library(&scratch).display().to_string();
    let options = ClusterOptions::default();
    let options = options.setting(format!("shared_preload_libraries = '{library}'"));
    let mut cluster = PrivateCluster::start(&options);
    let conninfo = cluster.conninfo();
    cluster.sql("postgres", "CREATE TABLE mark AS SELECT 1 AS i");
    let create = |name: &str, code: i32| {
        let words = ["snapshot", "create", &conninfo, name, "--method", "hook"];
        run(&scratch, code, &words)
    };
    create("one", 0);
    forget(&cluster);
    let enable = ["snapshot", "enable", &conninfo];
    let said = run(&scratch, 1, &enable);
    for part in ["does not write through it", "/dev/shm"] {
        assert!(said.contains(part), "{said}");
    }
    let listed = run(&scratch, 3, &["snapshot", "list", &conninfo]);
    for part in ["lost: ", "/dev/shm was removed"] {
        assert!(listed.contains(part), "{listed}");
    }
    create("two", 1);
    restart(&mut cluster);
    run(&scratch, 0, &enable);
    run(&scratch, 0, &["snapshot", "drop", &conninfo, "one"]);
    create("two", 0);
    cluster.sql("postgres", "UPDATE mark SET i = 2");
    cluster.sql("postgres", "CHECKPOINT");
    let word = format!("{conninfo}@two");
    let ask = ["psql", "-XqAt", "-c", "SELECT i FROM mark"];
    let open = ["open", "--quiet", &word, "--"];
    assert_eq!(run(&scratch, 0, &[&open[..], &ask].concat()), "1\n");
    run(&scratch, 0, &["snapshot", "drop", &conninfo, "two"]);
    forget(&cluster);
    scratch.assert_clean();
}

#[test]
fn a_damaged_page_that_the_hook_kept_is_damage_to_every_command() {
    use std::os::unix::fs::FileExt;
    stay_root();
    let scratch = Scratch::new();
    let library = library(&scratch).display().to_string();
    let options = ClusterOptions::default();
    let options = options.setting(format!("shared_preload_libraries = '{library}'"));
    let cluster = PrivateCluster::start(&options);
    let conninfo = cluster.conninfo();
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 2000) i";
    cluster.sql("postgres", &format!("CREATE TABLE t AS {rows}"));
    let create = ["snapshot", "create", &conninfo, "one", "--method", "hook"];
    run(&scratch, 0, &create);
    cluster.sql("postgres", "UPDATE t SET x = repeat('y', 200)");
    cluster.sql("postgres", "CHECKPOINT");
    let word = format!("{conninfo}@one");
    run(&scratch, 0, &["verify", &word]);
    let home = format!("{}.windlass-snapshots", cluster.data().display());
    let files = std::fs::read_dir(home).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    let store = files.find(|path| path.extension().is_some_and(|it| it == "pages"));
    let store = std::fs::File::options().write(true).open(store.unwrap());
    let store = store.unwrap();
    // The first page is the header, and what the list of the pages says has checksums of its own.
    for page in 2..store.metadata().unwrap().len() / 8192 {
        store.write_all_at(b"damage", page * 8192 + 100).unwrap();
    }
    run(&scratch, 4, &["verify", &word]);
    let sets = scratch.path().join("sets").display().to_string();
    let sql = "SELECT count(*) FROM t";
    let open = ["open", "--quiet", &word, "--", "psql", "-XqAt", "-c", sql];
    for words in [&["backup", &word, "--to", &sets][..], &open] {
        let ended = scratch.run(None, words);
        assert_ne!(ended.status.code(), Some(0), "{}", text(&ended));
    }
    // The database itself is as it was.
    assert_eq!(cluster.sql("postgres", sql), "2000");
    run(&scratch, 0, &["snapshot", "drop", &conninfo, "one"]);
    forget(&cluster);
    scratch.assert_clean();
}
