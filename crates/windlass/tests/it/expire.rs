//! `windlass expire` and `hold`: what goes, what stays, and that nothing that is left is harmed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use windlass_operations::expire::{ExpireRequest, expire};
use windlass_operations::{Caller, Ending, SetRequest, Unobserved};
use windlass_repository::retention::Policy;

use crate::support::*;

/// A full set, one on it, and the same again; each in stripes in two directories.
fn two_chains(place: &Place) -> Vec<String> {
    std::fs::create_dir(place.path("more")).unwrap();
    let sets = ["full", "incr", "full", "incr"];
    sets.map(|kind| back_up(place, kind, &[])).into()
}

fn back_up(place: &Place, kind: &str, more: &[&str]) -> String {
    let (database, sets) = place.ends();
    let count = place.ledger.check(&place.ledger.path);
    place.ledger.commit(count + 1, count + 3);
    let also = place.arg("more");
    let words = [
        "backup", &database, "--to", &sets, "--to", &also, "--type", kind,
    ];
    let (code, document) = json(&[&words, more].concat());
    assert_eq!(code, 0, "{document}");
    document["set_id"].as_str().unwrap().to_owned()
}

fn run(place: &Place, words: &[&str]) -> (i32, Value) {
    let (sets, more) = (place.arg("sets"), place.arg("more"));
    json(&[&["expire", &sets, &more], words].concat())
}

/// The ids of all sets that `info` lists. It must find no damage.
fn listed(place: &Place) -> Vec<String> {
    let (code, document) = json(&["info", &place.arg("sets"), &place.arg("more")]);
    assert_eq!(code, 0, "{document}");
    let sets = document["sets"].as_array().unwrap().iter();
    sets.map(|set| set["set_id"].as_str().unwrap().to_owned())
        .collect()
}

fn names(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

fn words(values: &Value) -> Vec<&str> {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value.as_str().unwrap()).collect()
}

#[test]
fn a_dry_run_says_what_would_go_and_a_run_removes_just_that() {
    let place = Place::new();
    let ids = two_chains(&place);
    let (code, plan) = run(&place, &["--keep-full", "1", "--dry-run"]);
    assert_eq!(code, 0);
    let sets = plan["databases"][0]["sets"].as_array().unwrap();
    let fates: Vec<_> = sets
        .iter()
        .map(|set| set["fate"].as_str().unwrap())
        .collect();
    assert_eq!(fates, ["goes", "goes", "stays", "stays"]);
    assert_eq!(words(&sets[2]["reasons"]), ["full", "last-full", "base"]);
    assert_eq!(listed(&place), ids);

    let (code, done) = run(&place, &["--keep-full", "1"]);
    assert_eq!(code, 0);
    assert_eq!(words(&done["removed"]), [&*ids[1], &*ids[0]]);
    assert_eq!(listed(&place), ids[2..]);
    assert_eq!(
        (names(&place.path("sets")), names(&place.path("more"))),
        (2, 2)
    );
    let count = place.ledger.check(&place.ledger.path);
    assert_eq!(place.restored(&place.path("sets")), count);
    // The second night finds nothing to do.
    let (code, done) = run(&place, &["--keep-full", "1"]);
    assert_eq!((code, words(&done["removed"]).len()), (0, 0));
    // The last full set stays, whatever is asked for.
    let (code, _) = run(&place, &["--keep-within", "1h"]);
    assert_eq!((code, listed(&place).len()), (0, 2));
}

#[test]
fn without_a_rule_nothing_goes() {
    let place = Place::new();
    let output = windlass(&["expire", &place.arg("sets")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("--keep-full"));
    let stripe = place.back_up();
    let words = ["expire", stripe.to_str().unwrap(), "--keep-full", "1"];
    assert_eq!(windlass(&words).status.code(), Some(2));
    for wrong in [
        ["--keep-full", "0"],
        ["--keep-within", "30"],
        ["--keep-daily", "x"],
    ] {
        let output = windlass(&[&["expire", &*place.arg("sets")], &wrong[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    }
}

#[test]
fn a_held_set_stays_with_what_it_builds_on() {
    let place = Place::new();
    let ids = two_chains(&place);
    let (sets, more) = (place.arg("sets"), place.arg("more"));
    let hold = |words: &[&str]| json(&[&["hold", &sets, &more, "--set", &ids[1]], words].concat());
    let (code, held) = hold(&["--reason", "before the upgrade"]);
    assert_eq!((code, words(&held["bases"])), (0, vec![&*ids[0]]));
    let (code, done) = run(&place, &["--keep-full", "1"]);
    assert_eq!((code, words(&done["removed"]).len()), (0, 0));
    let (_, info) = json(&["info", &sets, &more]);
    assert_eq!(info["holds"][0]["reason"], "before the upgrade");
    assert!(text(&windlass(&["info", &sets])).contains("held: before the upgrade"));
    assert_eq!(hold(&["--release"]).0, 0);
    assert_eq!(hold(&["--release"]).0, 0);
    assert_eq!(run(&place, &["--keep-full", "1"]).0, 0);
    assert_eq!(listed(&place), ids[2..]);
}

/// A process that reads a set until it is told to end.
struct Reader(Child);

impl Reader {
    fn start(words: &[&str]) -> Self {
        let mut command = command();
        command
            .args(words)
            .args(["--", "sh", "-c", "echo open; read line"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "open\n");
        Self(child)
    }

    fn end(mut self) {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn what_another_process_reads_stays_until_it_ends() {
    let place = Place::new();
    let ids = two_chains(&place);
    let (sets, more) = (place.arg("sets"), place.arg("more"));
    let reader = Reader::start(&["open", &sets, &more, "--set", &ids[1]]);
    let (code, done) = run(&place, &["--keep-full", "1"]);
    assert_eq!((code, words(&done["removed"]).len()), (3, 0), "{done}");
    assert_eq!(listed(&place), ids);
    reader.end();
    // A reader that is killed keeps nothing.
    let mut killed = Reader::start(&["open", &sets, &more, "--set", &ids[1]]);
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    // What it ran has its descriptors until it ends, too.
    drop(killed.0.stdin.take());
    let mut tries = 0;
    while run(&place, &["--keep-full", "1"]).0 != 0 {
        tries += 1;
        assert!(tries < 100, "the lock of a killed process stays");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(listed(&place), ids[2..]);
}

#[test]
fn what_a_restore_reads_stays_until_it_is_written() {
    let place = Place::new();
    std::fs::create_dir(place.path("more")).unwrap();
    // As long as the database is, so that the restore lasts.
    let ids = ["full", "full"].map(|kind| back_up(&place, kind, &["--compress", "none"]));
    let (sets, more) = (place.arg("sets"), place.arg("more"));
    let (copy, before) = (place.arg("copy.db"), names(place.dir.path()));
    let mut command = command();
    command.args(["restore", &sets, &more, "--set", &ids[0], "--into", &copy]);
    command.args(["--max-rate", "150KiB", "--quiet"]);
    let mut child = command.spawn().unwrap();
    // It has opened the set before it makes its file.
    while names(place.dir.path()) <= before {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the restore ended too early");
    }
    // It stands still from here on, however long the next command takes.
    signal(&child, "STOP");
    let ended = child.try_wait().unwrap();
    assert!(ended.is_none(), "the restore ended too early");
    let (code, done) = run(&place, &["--keep-full", "1"]);
    signal(&child, "CONT");
    assert_eq!((code, words(&done["removed"]).len()), (3, 0), "{done}");
    assert!(child.wait().unwrap().success());
    assert!(place.ledger.check(Path::new(&copy)) > 0);
    assert_eq!(run(&place, &["--keep-full", "1"]).0, 0);
    assert_eq!(listed(&place), ids[1..]);
}

#[test]
fn a_backup_keeps_its_base_until_it_is_sealed() {
    let place = Place::new();
    let ids = two_chains(&place);
    let (database, sets) = place.ends();
    let more = place.arg("more");
    // It reads slowly, so that it can be stopped on its way.
    let mut command = command();
    command.args([
        "backup", &database, "--to", &sets, "--to", &more, "--type", "incr",
    ]);
    command.args(["--base", &ids[1], "--max-rate", "100KiB", "--quiet"]);
    let mut child = command.spawn().unwrap();
    while names(&place.path("sets")) < 5 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(
            child.try_wait().unwrap().is_none(),
            "the backup ended too early"
        );
    }
    signal(&child, "STOP");
    assert!(
        child.try_wait().unwrap().is_none(),
        "the backup ended too early"
    );
    let (code, done) = run(&place, &["--keep-full", "1"]);
    signal(&child, "CONT");
    assert_eq!((code, words(&done["removed"]).len()), (3, 0), "{done}");
    assert!(child.wait().unwrap().success());
    // Now the new set keeps its chain.
    assert_eq!(run(&place, &["--keep-full", "1"]).0, 0);
    assert_eq!(listed(&place).len(), 5);
}

/// Kills it at each step of each kind. After each kill nothing looks damaged, and the next run ends
/// what was begun.
#[test]
fn a_killed_run_leaves_no_damage_and_the_next_one_ends_it() {
    let place = Place::new();
    let mut kept = two_chains(&place)[2..].to_vec();
    let (sets, more) = (place.arg("sets"), place.arg("more"));
    let words = ["expire", &sets, &more, "--keep-full", "1", "--quiet"];
    let mut kills = 0;
    for call in ["unlink,unlinkat", "rename,renameat,renameat2", "fsync"] {
        for number in 1.. {
            if !killed_at((call, number), &words) {
                break;
            }
            kills += 1;
            let there = listed(&place);
            assert!(there.ends_with(&kept), "{call} {number}: {there:?}");
            let output = windlass(&["verify", &sets, &more, "--quick"]);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{call} {number}: {}",
                text(&output)
            );
            assert_eq!(run(&place, &["--keep-full", "1"]).0, 0);
            assert_eq!(listed(&place), kept, "{call} {number}");
            assert_eq!(
                (names(&place.path("sets")), names(&place.path("more"))),
                (2, 2)
            );
            kept = vec![back_up(&place, "full", &[]), back_up(&place, "incr", &[])];
        }
        // The last run was not killed.
        assert_eq!(listed(&place), kept);
        kept = vec![back_up(&place, "full", &[]), back_up(&place, "incr", &[])];
    }
    assert!(kills >= 12, "only {kills} kills");
}

#[test]
fn a_clock_that_is_wrong_removes_nothing() {
    let place = Place::new();
    let ids = two_chains(&place);
    let at = |hours: i64| {
        let caller = Caller::sharing("test", std::sync::Arc::new(Unobserved));
        let request = ExpireRequest {
            set: SetRequest {
                words: vec![place.path("sets"), place.path("more")],
                ..SetRequest::default()
            },
            policy: Policy {
                within: Some(SignedDuration::from_hours(24)),
                daily: Some(1),
                ..Policy::default()
            },
            dry_run: false,
            grace: None,
            now: Some(Timestamp::now() + SignedDuration::from_hours(hours)),
        };
        expire(&caller, &request).unwrap()
    };
    let (outcome, ending) = at(-2);
    assert_eq!((outcome.removed.len(), ending), (0, Ending::Failed));
    assert!(outcome.plan.databases[0].future.is_some());
    let (outcome, ending) = at(24 * 3650);
    assert_eq!((outcome.removed.len(), ending), (0, Ending::Done));
    assert_eq!(listed(&place), ids);
}

/// A set of which a stripe is lost is left to people, and counts for no rule.
#[test]
fn a_set_that_is_not_whole_stays_and_does_not_count() {
    let place = Place::new();
    let ids = two_chains(&place);
    let id = &ids[2];
    let of_set = |name: &String| name.contains(&id[..8]);
    let stripe = place.sets().into_iter().find(of_set).unwrap();
    std::fs::remove_file(place.path("sets").join(stripe)).unwrap();
    let (code, done) = run(&place, &["--keep-full", "1"]);
    assert_eq!((code, words(&done["removed"]).len()), (0, 0), "{done}");
    let sets = done["databases"][0]["sets"].as_array().unwrap();
    let fates: Vec<_> = sets
        .iter()
        .map(|set| set["fate"].as_str().unwrap())
        .collect();
    assert_eq!(fates, ["stays", "stays", "faulty", "faulty"]);
}

/// Two databases in one place count for themselves.
#[test]
fn databases_in_one_place_are_not_mixed_up() {
    let place = Place::new();
    let ids = two_chains(&place);
    let other = place.path("other.db");
    std::fs::copy(&place.ledger.path, &other).unwrap();
    let sets = place.arg("sets");
    let back_up = || {
        let words = ["backup", other.to_str().unwrap(), "--to", &sets];
        json(&words).1["set_id"].as_str().unwrap().to_owned()
    };
    let others = [back_up(), back_up()];
    let (code, done) = run(&place, &["--keep-full", "1", "--database", "other"]);
    assert_eq!((code, words(&done["removed"])), (0, vec![&*others[0]]));
    let (code, done) = run(&place, &["--keep-full", "1"]);
    assert_eq!(
        (code, words(&done["removed"])),
        (0, vec![&*ids[1], &*ids[0]])
    );
}

#[test]
fn the_words_of_a_plan() {
    let place = Place::new();
    let ids = two_chains(&place);
    let (sets, more) = (place.arg("sets"), place.arg("more"));
    json(&["hold", &sets, &more, "--set", &ids[0]]);
    let runs: Vec<_> = [&["--dry-run"][..], &[]]
        .map(|last| {
            let words = [
                "expire",
                &sets,
                &more,
                "--keep-full",
                "1",
                "--keep-daily",
                "7",
            ];
            text(&windlass(&[&words, last].concat()))
        })
        .into();
    let filters = [
        (r"/(var/)?tmp/\.tmp\w+", "[place]"),
        (r"[\w.-]+:\[place\]", "[host]:[place]"),
        (r"\b[0-9a-f]{8}\b", "[set]"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "[time]"),
        (r" *\d+(\.\d+)? (B|KiB|MiB)\b", " [size]"),
    ];
    insta::with_settings!({filters => filters, omit_expression => true}, {
        insta::assert_snapshot!("expire_plan", runs.join("\n"));
    });
}
