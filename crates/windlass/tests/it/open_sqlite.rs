//! `windlass open` on sets of SQLite databases, and how it treats commands and signals.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;

use windlass_testkit::sqlite::run_once;

use crate::opening::{Opened, Scratch, User, open_to_all, users};
use crate::support::{Place, text, windlass};

/// A place with a set that everybody can read.
fn place_with_set() -> (Place, String) {
    let place = Place::new();
    let set = place.back_up();
    open_to_all(place.dir.path(), 0o755);
    open_to_all(&place.path("sets"), 0o755);
    open_to_all(&set, 0o644);
    let set = set.to_str().unwrap().to_owned();
    (place, set)
}

fn sqlite(scratch: &Scratch, user: User, open: &[&str], sql: &str) -> (Option<i32>, String) {
    let words = [&["open"], open, &["--", "sqlite3", "{}", sql]].concat();
    let output = scratch.run(user, &words);
    (output.status.code(), text(&output).trim_end().to_owned())
}

#[test]
fn a_set_opens_read_only_for_root_and_for_others() {
    let (place, set) = place_with_set();
    let scratch = Scratch::new();
    let before = std::fs::read(&set).unwrap();
    let expected = run_once(&place.path("shop.db"), "SELECT count(*) FROM sqlite_schema").unwrap();
    for user in users() {
        let run = |sql: &str| sqlite(&scratch, user, &[&set], sql);
        assert_eq!(
            run("SELECT count(*) FROM sqlite_schema"),
            (Some(0), expected.clone())
        );
        assert_eq!(run("PRAGMA integrity_check"), (Some(0), "ok".to_owned()));
        let (code, said) = run("CREATE TABLE t (i)");
        assert_ne!(code, Some(0));
        assert!(said.contains("readonly database"), "{said}");
        scratch.assert_clean();
    }
    assert_eq!(std::fs::read(&set).unwrap(), before);
}

#[test]
fn a_writable_copy_takes_everything_and_the_set_stays_as_it_is() {
    let (_place, set) = place_with_set();
    let scratch = Scratch::new();
    let before = std::fs::read(&set).unwrap();
    for user in users() {
        let sql = "PRAGMA journal_mode; CREATE TABLE t (i); INSERT INTO t VALUES (7); \
            VACUUM; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA integrity_check; SELECT i FROM t";
        let (code, said) = sqlite(&scratch, user, &["--writable", &set], sql);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(said, "wal\n0|0|0\nok\n7");
        let (code, said) = sqlite(&scratch, user, &["--writable", &set], "SELECT i FROM t");
        assert_ne!(code, Some(0), "what was written is thrown away: {said}");
        scratch.assert_clean();
    }
    assert_eq!(std::fs::read(&set).unwrap(), before);
}

#[test]
fn twenty_opens_of_a_set_at_once() {
    let (place, set) = place_with_set();
    let scratch = Scratch::new();
    let users = users();
    let open = |index: usize| Opened::start(&scratch, users[index % users.len()], &[&set]);
    let opened: Vec<Opened> = (0..20).map(open).collect();
    assert_eq!(scratch.left().len(), 20);
    for one in &opened {
        let path = one.says("path");
        let words = ["-readonly", &path, "PRAGMA integrity_check"];
        assert_eq!(one.run("sqlite3", &words), "ok\n");
    }
    for one in opened {
        assert_eq!(one.end("TERM"), Some(0));
    }
    scratch.assert_clean();
    drop(place);
}

#[test]
fn a_commands_exit_code_and_words_are_its_own() {
    let (_place, set) = place_with_set();
    let scratch = Scratch::new();
    let code = |words: &[&str]| {
        let words = [&["open", &set, "--"], words].concat();
        let output = scratch.run(None, &words);
        (output.status.code(), text(&output))
    };
    assert_eq!(code(&["sh", "-c", "exit 0"]), (Some(0), String::new()));
    assert_eq!(code(&["sh", "-c", "exit 3"]).0, Some(3));
    assert_eq!(code(&["sh", "-c", "exit 77"]).0, Some(77));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]).0, Some(128 + 9));
    // Options of the other program do not belong to Windlass.
    let (ended, said) = code(&["echo", "--config", "/nowhere", "--json", "--help"]);
    assert_eq!(
        (ended, said.as_str()),
        (Some(0), "--config /nowhere --json --help\n")
    );
    let (ended, said) = code(&[
        "sh",
        "-c",
        "echo $WINDLASS_DATABASE; echo $WINDLASS_OPEN_DIR; echo {}",
    ]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!((ended, lines[0]), (Some(0), lines[2]));
    assert_eq!(Path::new(lines[0]).parent(), Some(Path::new(lines[1])));
    let (ended, said) = code(&["/nowhere/program"]);
    assert_eq!(ended, Some(1));
    assert!(
        said.contains("cannot run /nowhere/program") && said.contains("hint: "),
        "{said}"
    );
    scratch.assert_clean();
}

#[test]
fn signals_end_it_cleanly() {
    let (_place, set) = place_with_set();
    let scratch = Scratch::new();
    for signal in ["INT", "TERM", "HUP"] {
        let opened = Opened::start(&scratch, None, &["--writable", &set]);
        assert_eq!(opened.document["kind"], "sqlite");
        assert_eq!(opened.end(signal), Some(0), "SIG{signal}");
        scratch.assert_clean();
    }
    // The command is asked to end too, and its exit code is passed on.
    let words = [
        "open",
        &set,
        "--",
        "sh",
        "-c",
        "kill -s TERM $PPID; exec sleep 1000",
    ];
    let output = scratch.run(None, &words);
    assert_eq!(output.status.code(), Some(128 + 15), "{}", text(&output));
    scratch.assert_clean();
}

#[test]
fn what_a_killed_open_left_goes_with_the_next_one() {
    let (_place, set) = place_with_set();
    let scratch = Scratch::new();
    for user in users() {
        let kept = Opened::start(&scratch, user, &[&set]);
        let killed = Opened::start(&scratch, user, &["--writable", &set]);
        assert_eq!(killed.end("KILL"), None);
        assert_eq!(scratch.left().len(), 2, "a killed one cannot clean up");
        let (code, said) = sqlite(&scratch, user, &[&set], "SELECT 1");
        assert_eq!((code, said.as_str()), (Some(0), "1"));
        assert_eq!(scratch.left().len(), 1, "the one in use stays");
        assert_eq!(
            kept.run("sqlite3", &[&kept.says("path"), "SELECT 1"]),
            "1\n"
        );
        assert_eq!(kept.end("TERM"), Some(0));
        scratch.assert_clean();
    }
}

#[test]
fn verify_open_has_sqlite_check_the_database() {
    let (place, set) = place_with_set();
    let scratch = Scratch::new();
    let output = scratch.run(None, &["verify", "--open", &set]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("sound  "), "{}", text(&output));
    // A page that SQLite cannot read, backed up as it is: the set is sound, the database is not.
    let broken = place.path("broken.db");
    run_once(
        &broken,
        "CREATE TABLE good AS SELECT 1 AS i; CREATE TABLE bad AS SELECT 2 AS i",
    )
    .unwrap();
    let mut bytes = std::fs::read(&broken).unwrap();
    bytes[2 * 4096..2 * 4096 + 8].fill(0xAA);
    std::fs::write(&broken, bytes).unwrap();
    let to = place.arg("broken.stripe");
    let backup = scratch.run(None, &["backup", broken.to_str().unwrap(), "--to", &to]);
    assert_eq!(backup.status.code(), Some(0), "{}", text(&backup));
    let output = scratch.run(None, &["verify", "--open", "--json", &to]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    let damaged = report["open"]["damaged"].as_array().unwrap();
    assert!(
        damaged.iter().any(|finding| finding["relation"] == "bad"),
        "{report}"
    );
    assert!(
        damaged.iter().all(|finding| finding["relation"] != "good"),
        "{report}"
    );
    scratch.assert_clean();
}

#[test]
fn status_shows_an_opened_set_until_it_is_closed() {
    let (_place, set) = place_with_set();
    let scratch = Scratch::new();
    let windlass = env!("CARGO_BIN_EXE_windlass");
    for (mode, phase) in [
        ("--writable", "opened, writable"),
        ("", "opened, read-only"),
    ] {
        // The file appears a moment after the set is opened.
        let wait = format!(
            "until {windlass} status --json | grep -q \"on $(dirname {{}})\"; do :; done; \
             {windlass} status | grep -A 3 \"on $(dirname {{}})\""
        );
        let words = ["open", mode, &set, "--", "sh", "-c", &wait];
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let output = scratch.run(None, &words);
        let shown = text(&output);
        assert_eq!(output.status.code(), Some(0), "{shown}");
        assert!(
            shown.contains("open          set ") && shown.contains(phase),
            "{shown}"
        );
        let place = shown
            .split(" on ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .unwrap();
        let after = text(&scratch.run(None, &["status"]));
        assert!(!after.contains(place), "{after}");
    }
}

#[test]
fn ctrl_c_ends_an_opened_set_as_it_should_and_is_no_failure() {
    let (_place, set) = place_with_set();
    let scratch = Scratch::new();
    for signal in ["INT", "TERM", "HUP"] {
        let opened = Opened::start(&scratch, None, &[&set]);
        assert_eq!(opened.end(signal), Some(0), "{signal}");
        scratch.assert_clean();
    }
}

#[test]
fn verify_open_of_a_directory_names_each_set_before_it_opens_it() {
    let place = Place::new();
    let sets = [place.back_up(), place.back_up()];
    let output = windlass(&["verify", "--open", &place.arg("sets")]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let lines: Vec<_> = printed.lines().collect();
    for set in &sets {
        // shop-20261121T081500Z-1f0c9a2e.1of1.windlass
        let name = set.file_name().unwrap().to_str().unwrap();
        let id = &name.split('.').next().unwrap()[name.find('Z').unwrap() + 2..];
        let named = lines.iter().position(|line| line.starts_with(id));
        let named = named.unwrap_or_else(|| panic!("{id} is not in {printed}"));
        assert!(lines[named].ends_with("read and right"), "{printed}");
        assert!(lines[named + 1].starts_with("opened  "), "{printed}");
        assert!(lines[named + 2].starts_with("sound  "), "{printed}");
    }
}
