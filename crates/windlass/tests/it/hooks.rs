//! Hooks before, after, and on failure.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::*;

/// A user that is neither root nor any other user of these tests.
const NOBODY: u32 = 65534;

/// A program that appends its event, and the value of each requested variable, to the file `told`.
fn program(place: &Place, name: &str, body: &str) -> String {
    let path = place.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn teller(place: &Place) -> String {
    let told = place.arg("told");
    let body = format!(
        "echo \"$WINDLASS_HOOK_EVENT $1 $WINDLASS_HOOK_COMMAND $WINDLASS_HOOK_SUBJECT \
         code=$WINDLASS_HOOK_EXIT_CODE set=$WINDLASS_HOOK_SET_ID error=$WINDLASS_HOOK_ERROR \
         rate=$WINDLASS_MAX_RATE\" >> {told}; echo noise"
    );
    program(place, "teller", &body)
}

fn told(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.path("told")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn hooks_are_told_of_a_backup_that_succeeds_and_of_one_that_fails() {
    let place = Place::new();
    let (db, stripe, teller) = (place.arg("shop.db"), place.arg("a.stripe"), teller(&place));
    let hooks = [
        format!("--before={teller} first"),
        format!("--after={teller} 'a b'"),
        format!("--on-failure={teller} last"),
    ];
    let run = || {
        let mut command = command();
        command.env("WINDLASS_MAX_RATE", "900MiB");
        command
            .args(["backup", &db, "--to", &stripe, "--json"])
            .args(&hooks);
        command.output().unwrap()
    };
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    // The output of a hook does not mix with the result.
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let set = report["set_id"].as_str().unwrap();
    let expected = [
        "before first backup shop code= set= error= rate=".to_owned(),
        format!("after a b backup shop code=0 set={set} error= rate="),
    ];
    assert_eq!(told(&place), expected);
    let output = run();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let all = told(&place);
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(
        all[3].starts_with("on-failure last backup shop code=1"),
        "{all:#?}"
    );
    assert!(all[3].contains("already there"), "{all:#?}");
}

#[test]
fn a_failing_first_hook_stops_the_run_and_a_failing_last_one_is_a_warning() {
    let place = Place::new();
    let (db, sets, teller) = (place.arg("shop.db"), place.arg("sets"), teller(&place));
    let failure = format!("--on-failure={teller}");
    let run = |hooks: &[&str]| {
        let words = [&["backup", &db, "--to", &sets, &failure][..], hooks].concat();
        windlass(&words)
    };
    for before in ["false", "/no/such/program", "sh -c 'exit 9'"] {
        let output = run(&["--before", before]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("error: the hook --before"), "{printed}");
        assert!(place.sets().is_empty(), "nothing was begun");
    }
    assert_eq!(told(&place).len(), 3);
    let output = run(&["--after", "false"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(
        text(&output).contains("warning: the hook --after"),
        "{}",
        text(&output)
    );
    assert_eq!(place.sets().len(), 1, "the set is there all the same");
    let output = run(&["--before", "sh -c 'unfinished"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

#[test]
fn a_hook_that_takes_too_long_is_ended_with_all_it_started() {
    let place = Place::new();
    let pid = place.arg("pid");
    let body = format!("sleep 1000 & echo $! > {pid}; wait");
    let sleeper = program(&place, "sleeper", &body);
    // A machine that stands still for a second does not keep the hook from writing its number.
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    let words = [
        "backup",
        &db,
        "--to",
        &sets,
        "--before",
        &sleeper,
        "--hook-timeout",
        "5s",
    ];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("took longer than 5 s"),
        "{}",
        text(&output)
    );
    assert_gone(&pid);
}

/// The process whose number is in this file has ended, or only waits for its parent to notice. A
/// signal was sent to it; it may be a while until it dies of that.
fn assert_gone(file: &str) {
    let pid = std::fs::read_to_string(file).unwrap();
    let is_dead = |stat: String| {
        stat.rsplit_once(')')
            .is_some_and(|(_, it)| it.starts_with(" Z"))
    };
    let gone = || {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        state.map_or(true, is_dead)
    };
    // Without a signal it lives longer than this.
    let asked = Instant::now();
    while !gone() {
        assert!(asked.elapsed() < Duration::from_secs(300), "{pid} lives");
        std::thread::yield_now();
    }
}

#[test]
fn an_interrupted_hook_ends_with_the_run() {
    let place = Place::new();
    let pid = place.arg("pid");
    let body = format!("echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000");
    let sleeper = program(&place, "sleeper", &body);
    let mut command = command();
    command.args([
        "backup",
        &place.arg("shop.db"),
        "--to",
        &place.arg("sets"),
        "--before",
        &sleeper,
    ]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    while !place.path("pid").exists() {
        std::thread::yield_now();
    }
    interrupt(&mut child);
    assert_gone(&pid);
}

#[test]
fn hooks_of_a_configured_database_run_as_its_owner_and_only_once() {
    let place = Place::new();
    let who = program(
        &place,
        "who",
        &format!(
            "id -u >> {0}; \"$WINDLASS\" backup {1} --to nul --quiet >> {0} 2>&1",
            place.arg("told"),
            place.arg("shop.db")
        ),
    );
    let config = format!(
        "[backup]\nbefore = \"{who}\"\n[database.shop]\nsource = \"{}\"\nto = \"{}\"\n",
        place.arg("shop.db"),
        place.arg("sets")
    );
    std::fs::write(place.path("windlass.toml"), config).unwrap();
    std::fs::write(place.path("told"), "").unwrap();
    for path in [".", "shop.db", "told", "sets"] {
        chown(place.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let owner = std::fs::metadata(place.path("shop.db")).unwrap().uid();
    let mut command = command();
    command.env("WINDLASS_CONFIG", place.path("windlass.toml"));
    command.env("WINDLASS", env!("CARGO_BIN_EXE_windlass"));
    let output = command.args(["backup", "shop"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(told(&place), [owner.to_string()]);
}

#[test]
fn a_restore_has_hooks_too_and_a_dry_run_has_none() {
    let place = Place::new();
    let set = place.back_up();
    let set = set.to_str().unwrap();
    let (teller, into) = (teller(&place), place.arg("new.db"));
    let before = format!("--before={teller} x");
    let words = ["restore", set, "--into", &into, &before, "--dry-run"];
    assert_eq!(windlass(&words).status.code(), Some(0));
    assert_eq!(told(&place), Vec::<String>::new());
    assert_eq!(windlass(&words[..5]).status.code(), Some(0));
    assert_eq!(told(&place).len(), 1);
}

#[test]
fn a_hook_hears_of_a_wrong_option_and_its_own_failure_names_the_database() {
    let place = Place::new();
    let (db, sets, teller) = (place.arg("shop.db"), place.arg("sets"), teller(&place));
    let failure = format!("--on-failure={teller} last");
    let words = ["backup", &db, "--to", &sets, "--compress", "gzip", &failure];
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let all = told(&place);
    assert_eq!(all.len(), 1, "{all:#?} {printed}");
    assert!(
        all[0].starts_with("on-failure last backup shop code=2"),
        "{all:#?}"
    );
    let words = ["backup", &db, "--to", &sets, "--after", "false"];
    let printed = text(&windlass(&words));
    let says = "the hook --after (false) of backup shop ended with exit code 1";
    assert!(printed.contains(says), "{printed}");
}

#[test]
fn a_hook_hears_of_a_file_that_vanished_whatever_the_words_for_it() {
    let place = Place::new();
    let (sets, teller) = (place.arg("sets"), teller(&place));
    let failure = format!("--on-failure={teller} last");
    for name in ["gone.db", "./gone.db"] {
        let output = command()
            .args(["backup", name, "--to", &sets, &failure])
            .current_dir(place.dir.path())
            .output()
            .unwrap();
        assert_ne!(output.status.code(), Some(0), "{}", text(&output));
    }
    assert_eq!(told(&place).len(), 2, "{:#?}", told(&place));
}

#[test]
fn a_check_judges_a_hook_that_cannot_run_as_the_backup_does() {
    let place = Place::new();
    let (db, sets) = place.ends();
    std::fs::write(place.path("plain"), "#!/bin/sh\n").unwrap();
    let (missing, plain) = (place.arg("missing"), place.arg("plain"));
    let directory = place.arg("sets");
    for (program, says, hint) in [
        (&*missing, "there is no program", "Correct the path."),
        (&*plain, "is not executable", "Type chmod +x"),
        (&*directory, "is no program", "Name the program itself."),
        (
            "no-such-word",
            "there is no program",
            "Write its whole path.",
        ),
    ] {
        for (event, code) in [("before", 1), ("after", 3), ("on-failure", 0)] {
            let hook = format!("--{event}={program}");
            for command in ["check", "backup"] {
                let output = windlass(&[command, &db, "--to", &sets, &hook]);
                let printed = text(&output);
                assert_eq!(
                    output.status.code(),
                    Some(code),
                    "{command} {hook}: {printed}"
                );
                let is_check = command == "check";
                assert!(!is_check || printed.contains(says), "{hook}: {printed}");
                assert!(
                    !is_check || code == 0 || printed.contains(hint),
                    "{hook}: {printed}"
                );
            }
            // A backup that keeps nothing runs no hooks.
            for command in ["check", "backup"] {
                let output = windlass(&[command, &db, "--to", "nul", &hook]);
                assert_eq!(output.status.code(), Some(0), "{hook}: {}", text(&output));
            }
        }
    }
}
