//! The history: every run is in it, whatever becomes of the run, of the disk, and of the catalog.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rusqlite::Connection;
use serde_json::Value;
use windlass_testkit::browser::check_page;

use crate::support::{Place, signal, text};

/// A place with a state directory of its own.
struct Kept(Place);

impl Kept {
    fn new() -> Self {
        Self(Place::new())
    }

    fn command(&self) -> Command {
        let mut command = crate::support::command();
        command.env_remove("WINDLASS_NO_HISTORY");
        command.env("WINDLASS_STATE_DIR", self.0.path("state"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command().args(words).output().unwrap()
    }

    fn done(&self, code: i32, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        text(&output)
    }

    fn back_up(&self, more: &[&str]) -> String {
        let (db, sets) = self.0.ends();
        self.done(0, &[&["backup", &db, "--to", &sets], more].concat())
    }

    fn json(&self, more: &[&str]) -> Value {
        let words = [&["history", "--json"], more].concat();
        let output = self.run(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn runs(&self, more: &[&str]) -> Vec<Value> {
        self.json(more)["runs"].as_array().unwrap().clone()
    }

    fn catalog(&self) -> PathBuf {
        self.0.path("state/history.db")
    }
}

fn of<'a>(runs: &'a [Value], key: &str) -> Vec<&'a str> {
    runs.iter()
        .map(|run| run[key].as_str().unwrap_or_default())
        .collect()
}

#[test]
fn every_run_is_kept_with_its_end() {
    let kept = Kept::new();
    let (db, sets) = kept.0.ends();
    kept.back_up(&[]);
    kept.back_up(&["--type", "diff"]);
    let back = kept.0.arg("back.db");
    kept.done(0, &["restore", &sets, "--into", &back]);
    kept.done(0, &["verify", &sets]);
    kept.done(1, &["backup", &db, "--to", &kept.0.arg("no/such/place")]);
    kept.done(0, &["backup", &db, "--to", "nul"]);
    kept.done(0, &["snapshot", "create", &db, "before"]);
    kept.done(0, &["snapshot", "drop", &db, "before"]);
    let document = kept.json(&[]);
    let runs = document["runs"].as_array().unwrap();
    let expected = [
        "backup",
        "backup",
        "restore",
        "verify",
        "verify",
        "backup",
        "backup",
        "snapshot create",
        "snapshot drop",
    ];
    assert_eq!(of(runs, "command"), expected);
    let results = [
        "done", "done", "done", "done", "done", "failed", "done", "done", "done",
    ];
    assert_eq!(of(runs, "result"), results);
    assert_eq!(of(&runs[..2], "type"), ["full", "diff"]);
    assert_eq!(runs[1]["base"], runs[0]["set_id"]);
    assert_eq!(runs[6]["operation"], "trial");
    assert!(
        runs[5]["error"].as_str().unwrap().contains("no/such"),
        "{}",
        runs[5]
    );
    // One database, whatever it is called where.
    assert!(
        of(runs, "database").iter().all(|name| *name == "shop"),
        "{document}"
    );
    let shop = &document["databases"][0];
    assert_eq!(shop["newest"].as_array().unwrap().len(), 2, "{shop}");
    assert_eq!(shop["proven"]["command"], "restore");
    assert_eq!(shop["failed_since"], 1);
    assert!(runs[0]["rate"].as_f64().unwrap() > 0.0);
    assert!(
        runs[0]["settings"]["options"]["compress"]
            .as_str()
            .unwrap()
            .starts_with("zstd")
    );
    // What is asked for, and no more.
    assert_eq!(kept.runs(&["--failed"]).len(), 1);
    assert_eq!(kept.runs(&["--limit", "2"]).len(), 2);
    assert_eq!(kept.runs(&["shop", "--since", "1h"]).len(), 9);
    assert_eq!(kept.runs(&[&db]).len(), 9);
    assert_eq!(kept.runs(&["--since", "2099-01-01"]).len(), 0);
    let unknown = kept.done(1, &["history", "shp"]);
    assert!(unknown.contains("hint: Did you mean shop?"), "{unknown}");
    // A run that is not to be kept is not.
    kept.back_up(&["--no-history"]);
    assert_eq!(kept.runs(&[]).len(), 9);
    let words = kept.done(0, &["history"]);
    for expected in [
        "database      shop",
        "last full",
        "last diff",
        "proven        restore of set",
    ] {
        assert!(words.contains(expected), "{expected} is missing in {words}");
    }
}

/// For what each stage waited is known later, too: the catalog has the whole report.
#[test]
fn the_report_of_a_run_is_kept_with_its_waits_and_its_verdict() {
    let kept = Kept::new();
    let (db, sets) = kept.0.ends();
    let back = kept.0.arg("back.db");
    let mut printed: Vec<Value> = Vec::new();
    for words in [
        &["backup", &db, "--to", &sets][..],
        &["restore", &sets, "--into", &back],
        &["verify", "--latest", &sets],
    ] {
        let output = kept.run(&[words, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        printed.push(serde_json::from_slice(&output.stdout).unwrap());
    }
    let runs = kept.runs(&[]);
    let connection = Connection::open(kept.catalog()).unwrap();
    let mut rows = connection
        .prepare("select report from run order by id")
        .unwrap();
    let reports = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let reports: Vec<_> = reports.map(Result::unwrap).collect();
    assert_eq!((reports.len(), runs.len()), (3, 3));
    for ((report, run), printed) in reports.iter().zip(&runs).zip(&printed) {
        let report: Value = serde_json::from_str(report).unwrap();
        for key in ["stages", "devices", "limit", "bytes_read", "seconds"] {
            assert_eq!(report[key], printed[key], "{key}: {report} {printed}");
        }
        let stages = report["stages"].as_array().unwrap();
        assert!(!stages.is_empty());
        assert!(stages.iter().all(|stage| stage["waits"].is_array()));
        let verdict = run["verdict"].as_str().unwrap();
        assert!(!verdict.is_empty() && report["verdict"] == verdict);
    }
}

/// What is committed while a backup runs need not be in it. What failed or kept nothing does not
/// count.
#[test]
fn what_can_be_restored_is_what_was_there_when_the_newest_backup_began() {
    let kept = Kept::new();
    let (db, sets) = kept.0.ends();
    let away = kept.0.arg("away");
    std::fs::create_dir(&away).unwrap();
    kept.done(1, &["backup", &db, "--to", &kept.0.arg("no/such/place")]);
    kept.done(0, &["backup", &db, "--to", "nul"]);
    let shop = || kept.json(&[])["databases"][0].clone();
    let none = shop();
    assert!(none["restorable"].is_null() && none["restorable_age_seconds"].is_null());
    let words = kept.done(0, &["history"]);
    assert!(words.contains("no backup in the history"), "{words}");
    // No set there leads to the log.
    kept.done(3, &["backup", &db, "--to", &away, "--type", "log"]);
    kept.back_up(&[]);
    kept.done(0, &["backup", &db, "--to", &sets, "--type", "incr"]);
    kept.done(1, &["backup", &db, "--to", &kept.0.arg("no/such/place")]);
    let runs = kept.runs(&[]);
    assert_eq!(of(&runs[2..5], "type"), ["log", "full", "incr"]);
    assert_eq!(runs[2]["warnings"][0], "log-without-set");
    let shop = shop();
    assert_eq!(shop["restorable"], runs[4]["started"], "{shop}");
    // Both ages are told of the same moment.
    let incr = &shop["newest"][1];
    assert_eq!(incr["type"], "incr");
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let took = time(&incr["ended"]).duration_since(time(&shop["restorable"]));
    let age = |value: &Value| value.as_f64().unwrap();
    let older = age(&shop["restorable_age_seconds"]) - age(&incr["age_seconds"]);
    assert!((older - took.as_secs_f64()).abs() < 1e-3, "{shop}");
    let words = kept.done(0, &["history"]);
    assert!(words.contains("restorable    up to "), "{words}");
}

#[test]
fn many_processes_write_at_once_and_none_is_lost() {
    let kept = Kept::new();
    let db = kept.0.arg("shop.db");
    let start = |_| {
        let mut command = kept.command();
        command.args(["backup", &db, "--to", "nul"]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    // The catalog does not exist yet: all of them want to make it.
    let children: Vec<_> = (0..12).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    let runs = kept.runs(&[]);
    assert_eq!(of(&runs, "result"), ["done"; 12]);
}

#[test]
fn a_killed_run_is_known_as_killed_and_a_running_one_as_running() {
    let kept = Kept::new();
    let (db, sets) = kept.0.ends();
    kept.back_up(&[]);
    let mut command = kept.command();
    command.args([
        "backup",
        &db,
        "--to",
        &sets,
        "--max-rate",
        "16KiB",
        "--quiet",
    ]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    while kept.runs(&[]).len() < 2 {
        assert_eq!(child.try_wait().unwrap(), None, "the run has not ended yet");
    }
    assert_eq!(of(&kept.runs(&[]), "result"), ["done", "running"]);
    signal(&child, "KILL");
    child.wait().unwrap();
    assert_eq!(of(&kept.runs(&[]), "result"), ["done", "killed"]);
    // The next run does not mind, and the killed one stays killed.
    kept.back_up(&[]);
    assert_eq!(of(&kept.runs(&[]), "result"), ["done", "killed", "done"]);
    assert_eq!(of(&kept.runs(&["--failed"]), "result"), ["killed"]);
    assert_eq!(kept.json(&[])["databases"][0]["failed_since"], 0);
}

#[test]
fn a_damaged_history_fails_no_backup_and_the_sets_bring_it_back() {
    let kept = Kept::new();
    let (db, sets) = kept.0.ends();
    kept.back_up(&[]);
    kept.back_up(&["--type", "incr", "--compress", "lz4"]);
    let before = kept.runs(&[]);
    for damage in [&b"no database at all"[..], &[0x5a; 8192]] {
        std::fs::write(kept.catalog(), damage).unwrap();
        for side in ["-wal", "-shm"] {
            std::fs::remove_file(kept.0.path(&format!("state/history.db{side}")))
                .unwrap_or_default();
        }
        let printed = kept.done(3, &["backup", &db, "--to", "nul"]);
        assert!(printed.contains("the history was damaged"), "{printed}");
        assert!(kept.0.path("state/history.db.damaged").exists());
        assert_eq!(of(&kept.runs(&[]), "operation"), ["trial"]);
        kept.done(0, &["backup", &db, "--to", "nul"]);
    }
    // Rebuilt equals kept, as far as the sets know.
    let rebuilt = kept.json(&["--from", &sets]);
    assert_eq!(rebuilt["rebuilt_runs"], 2);
    let runs = rebuilt["runs"].as_array().unwrap();
    let rebuilt: Vec<_> = runs.iter().filter(|run| run["rebuilt"] == true).collect();
    for (before, after) in before.iter().zip(&rebuilt) {
        for key in [
            "database",
            "command",
            "operation",
            "key",
            "result",
            "set_id",
            "type",
            "base",
            "bytes_read",
            "bytes_written",
            "tool",
        ] {
            assert_eq!(before[key], after[key], "{key}: {before} {after}");
        }
        for key in ["compress", "pages", "buffers", "transfer_bytes"] {
            assert_eq!(
                before["settings"]["options"][key],
                after["settings"]["options"][key]
            );
        }
        // The set begins within its run, and its last page was read before the run ended.
        let time = |run: &Value, key: &str| run[key].as_str().unwrap().parse::<jiff::Timestamp>();
        assert!(time(before, "started").unwrap() <= time(after, "started").unwrap());
        assert!(time(before, "ended").unwrap() >= time(after, "ended").unwrap());
        assert!(after["seconds"].as_f64().unwrap() <= before["seconds"].as_f64().unwrap() + 0.01);
    }
    // Nothing is added twice, and later runs go on as before.
    assert_eq!(kept.json(&["--from", &sets])["rebuilt_runs"], 0);
    kept.back_up(&[]);
    assert_eq!(kept.json(&["--from", &sets])["rebuilt_runs"], 0);
}

#[test]
fn a_lost_history_is_read_from_the_places_of_the_configuration() {
    let kept = Kept::new();
    let (db, sets) = kept.0.ends();
    let config = kept.0.path("windlass.toml");
    let section = format!("[database.store]\nsource = \"{db}\"\nto = [\"{sets}\"]\n");
    std::fs::write(&config, section).unwrap();
    let config = config.to_str().unwrap();
    for _ in 0..2 {
        kept.done(0, &["--config", config, "backup", "store"]);
    }
    std::fs::remove_dir_all(kept.0.path("state")).unwrap();
    let runs = kept.runs(&["store", "--config", config]);
    assert_eq!(of(&runs, "database"), ["store", "store"]);
    assert!(runs.iter().all(|run| run["rebuilt"] == true));
    // It was compared once. A set that somebody copied there is found on request.
    kept.done(0, &["--config", config, "backup", "store", "--no-history"]);
    assert_eq!(kept.runs(&["store", "--config", config]).len(), 2);
    assert_eq!(
        kept.runs(&["store", "--config", config, "--rebuild"]).len(),
        3
    );
    let missing = kept.0.arg("no/such");
    let refused = kept.done(1, &["history", "--from", &missing]);
    assert!(refused.contains(&missing), "{refused}");
    // The place of the configuration is not mounted: what is known is shown, with a warning.
    std::fs::rename(&sets, kept.0.path("elsewhere")).unwrap();
    let words = ["history", "store", "--config", config, "--rebuild"];
    let warned = kept.done(3, &words);
    assert!(warned.contains("are not in the history"), "{warned}");
    let nowhere = kept.done(1, &["history", "--rebuild"]);
    assert!(nowhere.contains("names no place with sets"), "{nowhere}");
}

#[test]
fn a_lost_device_takes_no_run_from_a_history_that_is_rebuilt() {
    let kept = Kept::new();
    let (db, sets) = kept.0.ends();
    let other = kept.0.arg("other");
    std::fs::create_dir(&other).unwrap();
    let to = format!("{other},{sets}");
    // Of the first set one stripe of two stays, and of the second nothing but parity.
    kept.done(0, &["backup", &db, "--to", &to]);
    kept.done(0, &["backup", &db, "--to", &to, "--parity", "1"]);
    kept.back_up(&[]);
    let ids = |runs: &Value| {
        let mut ids: Vec<_> = of(runs.as_array().unwrap(), "set_id")
            .into_iter()
            .map(str::to_owned)
            .collect();
        ids.sort();
        ids
    };
    let before = ids(&kept.json(&[])["runs"]);
    assert_eq!(before.len(), 3);
    let config = kept.0.arg("windlass.toml");
    let section = format!("[database.store]\nsource = \"{db}\"\nto = [\"{other}\", \"{sets}\"]\n");
    std::fs::write(&config, section).unwrap();
    std::fs::remove_dir_all(&other).unwrap();
    for words in [
        &["--config", &config][..],
        &["--from", &other, "--from", &sets],
    ] {
        std::fs::remove_dir_all(kept.0.path("state")).unwrap();
        let output = kept.run(&[&["history", "--json"], words].concat());
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        let warning = format!("the sets of {other} are not in the history");
        assert!(text(&output).contains(&warning), "{}", text(&output));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["rebuilt_runs"], 3, "{document}");
        assert_eq!(ids(&document["runs"]), before);
    }
}

/// No list of a place shows what was built in another one, but the history knows it.
#[test]
fn expire_keeps_the_base_of_a_set_that_lies_in_another_place() {
    let kept = Kept::new();
    let (db, sets) = kept.0.ends();
    let away = kept.0.arg("away");
    std::fs::create_dir(&away).unwrap();
    kept.back_up(&[]);
    let words = [
        "backup", &db, "--to", &away, "--type", "incr", "--base", &sets,
    ];
    kept.done(0, &words);
    kept.back_up(&[]);
    let runs = kept.runs(&[]);
    let ids = of(&runs, "set_id");
    // The place may have another name than it had when the set was made there.
    let link = kept.0.arg("link");
    std::os::unix::fs::symlink(&sets, &link).unwrap();
    let named = std::cell::Cell::new(sets.as_str());
    let expire = |code: i32, more: &[&str]| {
        let words = ["expire", named.get(), "--keep-full", "1", "--json"];
        let output = kept.run(&[&words, more].concat());
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (document, text(&output))
    };
    for (place, more) in [
        (&sets, &["--dry-run"][..]),
        (&link, &["--dry-run"][..]),
        (&sets, &[][..]),
    ] {
        named.set(place);
        let (document, said) = expire(3, more);
        let database = &document["databases"][0];
        assert_eq!(
            of(database["sets"].as_array().unwrap(), "fate"),
            ["stays"; 2]
        );
        let because = &database["withheld"]["because"][0];
        assert_eq!(because["set_id"], ids[1], "{document}");
        assert_eq!(because["elsewhere"], true, "{document}");
        assert!(said.contains(&format!("it lies in {away}")), "{said}");
        assert!(said.contains("hint: Name all places"), "{said}");
    }
    // What is gone needs nothing, and what is named is counted.
    let gone = kept.0.path("gone");
    std::fs::rename(&away, &gone).unwrap();
    let (document, _) = expire(0, &["--dry-run"]);
    let fates = document["databases"][0]["sets"].as_array().unwrap();
    assert_eq!(of(fates, "fate"), ["goes", "stays"]);
    std::fs::rename(&gone, &away).unwrap();
    let (document, _) = expire(0, &[&away]);
    assert_eq!(
        document["removed"].as_array().unwrap().len(),
        2,
        "{document}"
    );
}

#[test]
fn a_full_disk_fails_no_backup() {
    let kept = Kept::new();
    let (db, state) = (kept.0.arg("shop.db"), kept.0.arg("state"));
    std::fs::create_dir(&state).unwrap();
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    // First a catalog is made and then the disk becomes full; then there is no room for a catalog.
    let script = "state=$1 db=$2 windlass=$3
        mount -t tmpfs -o size=256k none \"$state\" || exit 9
        \"$windlass\" backup \"$db\" --to nul --quiet || exit 8
        dd if=/dev/zero of=\"$state\"/fill bs=4k 2> /dev/null
        \"$windlass\" backup \"$db\" --to nul --quiet; test $? = 3 || exit 7
        rm \"$state\"/history.db*
        dd if=/dev/zero of=\"$state\"/fill2 bs=4k 2> /dev/null
        \"$windlass\" backup \"$db\" --to nul --quiet; test $? = 3 || exit 6
        rm \"$state\"/fill*
        \"$windlass\" backup \"$db\" --to nul --quiet || exit 5
        \"$windlass\" history --json";
    unshare.args(["--mount", "sh", "-c", script, "sh", &state, &db]);
    unshare.arg(env!("CARGO_BIN_EXE_windlass"));
    unshare
        .env("WINDLASS_CONFIG", "/dev/null")
        .env("WINDLASS_STATE_DIR", &state);
    unshare
        .env_remove("WINDLASS_NO_HISTORY")
        .env("WINDLASS_NO_PREDICTION", "1");
    let output = unshare.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let warned = text(&output)
        .matches("this run is not in the history")
        .count();
    assert_eq!(warned, 2, "{}", text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_history_of_a_later_version_is_not_touched() {
    let kept = Kept::new();
    let db = kept.0.arg("shop.db");
    kept.done(0, &["backup", &db, "--to", "nul"]);
    let connection = Connection::open(kept.catalog()).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let before = std::fs::read(kept.catalog()).unwrap();
    let printed = kept.done(3, &["backup", &db, "--to", "nul"]);
    assert!(printed.contains("is of version 2"), "{printed}");
    assert_eq!(std::fs::read(kept.catalog()).unwrap(), before);
    let refused = kept.done(1, &["history"]);
    assert!(
        refused.contains("hint: Use the newer windlass"),
        "{refused}"
    );
    // A database of something else is not touched, either.
    std::fs::remove_file(kept.catalog()).unwrap();
    let connection = Connection::open(kept.catalog()).unwrap();
    connection.execute_batch("create table mine(x)").unwrap();
    drop(connection);
    let printed = kept.done(3, &["backup", &db, "--to", "nul"]);
    assert!(printed.contains("is no history of Windlass"), "{printed}");
}

#[test]
fn a_run_that_becomes_the_owner_of_the_database_is_in_the_history_of_who_began_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let kept = Kept::new();
    let nobody = Some(65534);
    for name in ["", "sets", "shop.db", "shop.db-wal", "shop.db-shm"] {
        chown(kept.0.path(name), nobody, nobody).unwrap_or_default();
    }
    std::fs::create_dir(kept.0.path("state")).unwrap();
    // Nobody but root sees it.
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(kept.0.path("state"), mode).unwrap();
    for _ in 0..3 {
        kept.back_up(&[]);
    }
    let back = kept.0.arg("back.db");
    kept.done(0, &["restore", &kept.0.arg("sets"), "--into", &back]);
    assert_eq!(of(&kept.runs(&[]), "result"), ["done"; 4]);
    let mode = std::fs::metadata(kept.catalog())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_user_without_a_place_for_a_history_is_told_and_not_warned() {
    let kept = Kept::new();
    let db = kept.0.arg("shop.db");
    // Not even root can make a directory below a file.
    std::fs::write(kept.0.path("state"), "").unwrap();
    let printed = kept.done(0, &["backup", &db, "--to", "nul"]);
    assert!(printed.contains("note: no history is kept"), "{printed}");
    assert_eq!(kept.done(0, &["backup", &db, "--to", "nul", "--quiet"]), "");
}

/// Ten nights of a database, of which the last four are slow.
fn nights(kept: &Kept) {
    kept.done(0, &["backup", &kept.0.arg("shop.db"), "--to", "nul"]);
    let connection = Connection::open(kept.catalog()).unwrap();
    connection.execute_batch("delete from run").unwrap();
    let day = 86_400_000;
    let first = 1_700_000_000_000i64;
    for night in (0..14).filter(|night| *night != 8) {
        let slow = night >= 10;
        let seconds = if slow { 200.0 } else { 100.0 } + f64::from(night % 3);
        let settings = format!(
            "{{\"options\":{{\"compress\":\"zstd:1\"}},\"buffers\":7,\"devices\":[{{\"place\":\
             \"/disk1\",\"latency_micros_p50\":{}}}]}}",
            if slow { 9000 } else { 900 }
        );
        connection
            .execute(
                "insert into run (is_rebuilt, command, operation, subject, series, key, database,
                 began, ended, state, pid, process_start, boot, tool, set_id, set_type, bytes_read,
                 bytes_written, seconds, bound_by, settings, warnings)
                 values (0, 'backup', 'backup', 'shop', '/srv/shop.db', '/srv/shop.db', 'shop.db',
                 ?1, ?2, 'done', 1, 1, '', 'windlass 1', ?3, 'full', 10000000000, 4000000000, ?4,
                 ?5, ?6, '[]')",
                rusqlite::params![
                    first + i64::from(night) * day,
                    first + i64::from(night) * day + 100_000,
                    format!("{night:032x}"),
                    seconds,
                    if slow { "device /disk1" } else { "compressor" },
                    settings,
                ],
            )
            .unwrap();
    }
}

#[test]
fn what_changed_is_named_with_its_numbers_on_the_terminal_and_on_a_page() {
    let kept = Kept::new();
    nights(&kept);
    let page = kept.0.arg("page.html");
    let words = kept.done(0, &["history", "--html", &page]);
    for expected in [
        "rate of full backups",
        "in 9 runs",
        "in 4 runs",
        "/disk1 is slower: half of the transfers took up to 900 us and take up to 9.0 ms",
        "the limit was the compressor and is the device /disk1",
        "no full backup between",
        "usual is one every 24 h",
        "no full backup since",
    ] {
        assert!(words.contains(expected), "{expected} is missing in {words}");
    }
    assert!(!words.contains("ratio of full"), "{words}");
    let shown = check_page(&kept.0.path("page.html"), 3);
    for expected in [
        "History of backups",
        "/disk1 is slower",
        "Last full",
        "Rate",
        "Ratio",
    ] {
        assert!(shown.contains(expected), "{expected} is missing in {shown}");
    }
    let change = &kept.json(&[])["databases"][0]["changes"][0];
    assert_eq!(
        (&change["before"]["runs"], &change["after"]["runs"]),
        (&9.into(), &4.into())
    );
    let refused = kept.done(1, &["history", "--html", &kept.0.arg("shop.db")]);
    assert!(refused.contains("shop.db"), "{refused}");
}
