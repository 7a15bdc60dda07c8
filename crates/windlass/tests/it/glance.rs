//! What a person sees at a glance: units, the end of a run, progress, and the output on a terminal.

use std::process::{Command, Output};

use crate::support::*;
use crate::terminal::{Terminal, rows};

#[test]
fn rates_are_read_in_decimal_and_binary_units_and_shown_in_binary_ones() {
    let place = Place::new();
    for (rate, shown) in [("200MB/s", "191 MiB/s"), ("200MiB/s", "200 MiB/s")] {
        let storage = format!("rate:{rate}");
        let words = ["plan", "--used-bytes", "1GB", "--source", &storage];
        let words = [&words[..], &["--target", "nul", "--compress", "none"]].concat();
        let printed = text(&windlass(&words));
        assert!(printed.contains(shown), "{printed}");
        let db = place.arg("shop.db");
        let backup = windlass(&["backup", &db, "--to", "nul", "--max-rate", rate]);
        assert_eq!(backup.status.code(), Some(0), "{}", text(&backup));
    }
}

/// A throttled backup to nowhere, so that there is progress to see.
fn throttled(place: &Place, rate: &str) -> Command {
    let mut command = command();
    let db = place.arg("shop.db");
    command.args([
        "backup",
        &db,
        "--to",
        "nul",
        "--max-rate",
        rate,
        "--transfer-size",
    ]);
    command
        .arg("64KiB")
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    command
}

fn progress(rows: &[String]) -> Vec<&String> {
    rows.iter().filter(|row| row.contains(" % ")).collect()
}

#[test]
fn progress_and_report_fit_terminals_of_60_80_and_200_columns() {
    let place = Place::with_accounts(4000);
    for columns in [60, 80, 200] {
        let came = Terminal::new(columns).run(throttled(&place, "4MiB/s"), |_| {});
        let rows = rows(&came);
        let seen = progress(&rows);
        assert!(seen.len() >= 3, "{came}");
        for row in &rows {
            assert!(row.chars().count() < columns.into(), "{columns}: {row}");
        }
        let words = [
            " of 3.",
            " MiB/s",
            " s left",
            "copying",
            "bound by the rate limit",
        ];
        for word in &words[..[3, 4, 5][(columns / 80) as usize]] {
            assert!(seen.iter().any(|row| row.contains(word)), "{word}: {came}");
        }
    }
}

#[test]
fn progress_follows_a_terminal_that_becomes_narrower() {
    let place = Place::with_accounts(4000);
    let terminal = Terminal::new(200);
    let mut resized = false;
    // Seconds are left when the first of it is seen, also if nobody looks for a while.
    let slow = throttled(&place, "512KiB/s");
    let came = terminal.run(slow, |came| {
        if !resized && !progress(&rows(came)).is_empty() {
            terminal.resize(60);
            resized = true;
        }
    });
    let rows = rows(&came);
    let widths: Vec<_> = progress(&rows)
        .iter()
        .map(|row| row.chars().count())
        .collect();
    assert!(widths[0] > 60 && *widths.last().unwrap() < 60, "{widths:?}");
}

#[test]
fn a_dumb_terminal_gets_nothing_but_lines() {
    let place = Place::with_accounts(4000);
    for term in [Some("dumb"), None] {
        let mut command = throttled(&place, "4MiB/s");
        command.env_remove("TERM");
        term.map(|term| command.env("TERM", term));
        let came = Terminal::new(80).run(command, |_| {});
        // The terminal itself turns each line feed into two characters.
        let came = came.replace("\r\n", "\n");
        assert!(!came.contains(['\r', '\u{1b}']), "{came:?}");
        assert!(came.contains(" %  ") && came.contains("verdict"), "{came}");
    }
}

#[test]
fn colours_are_for_terminals_unless_asked_for() {
    let place = Place::new();
    let db = place.arg("shop.db");
    let words = ["backup", &db, "--to", "nul"];
    let on_terminal = |words: &[&str], no_color: &str| {
        let mut command = command();
        command
            .args(words)
            .env("TERM", "xterm")
            .env("NO_COLOR", no_color);
        let came = Terminal::new(80).run(command, |_| {});
        came.contains("\u{1b}[1m")
    };
    let never = [&words[..], &["--color", "never"]].concat();
    let always = [&words[..], &["--color", "always"]].concat();
    assert!(on_terminal(&words, ""));
    assert!(!on_terminal(&words, "1"));
    assert!(!on_terminal(&never, ""));
    assert!(on_terminal(&always, "1"));
    assert!(!text(&windlass(&words)).contains('\u{1b}'));
    assert!(text(&windlass(&always)).contains("\u{1b}[1m"));
}

fn assert_silent(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", text(output));
    assert_eq!(text(output), "");
}

#[test]
fn quiet_says_nothing_when_all_is_well_and_errors_on_standard_error() {
    let place = Place::new();
    let (db, sets, into) = (place.arg("shop.db"), place.arg("sets"), place.arg("new.db"));
    assert_silent(&windlass(&["backup", &db, "--to", &sets, "--quiet"]));
    assert_silent(&windlass(&["restore", &sets, "--into", &into, "-q"]));
    assert_silent(&windlass(&["verify", &sets, "-q"]));
    assert_silent(&windlass(&["verify", "--quick", &sets, "-q"]));
    let out = place.arg("files");
    assert_silent(&windlass(&["extract", &sets, "*", "--into", &out, "-q"]));
    let failed = windlass(&["restore", &sets, "--into", &into, "-q"]);
    let complaint = String::from_utf8(failed.stderr).unwrap();
    assert!(complaint.contains("error: ") && complaint.contains("hint: "));
    assert!(failed.stdout.is_empty());
}

#[test]
fn the_result_and_the_verdict_come_first_and_the_table_when_asked_for() {
    let place = Place::new();
    let run = |more: &[&str]| {
        let (db, to) = (place.arg("shop.db"), place.arg("a.windlass"));
        let words = ["backup", &db, "--to", &to, "--overwrite"];
        let output = windlass(&[&words[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let short = run(&[]);
    let begins = |line: usize| short.lines().nth(line).unwrap().split(' ').next().unwrap();
    assert_eq!((begins(0), begins(1)), ("sealed", "verdict"));
    assert!(!short.contains("\nstage "), "{short}");
    for more in ["-v", "--details"] {
        let long = run(&[more]);
        let (verdict, table) = (long.find("\nverdict "), long.find("\nstage "));
        assert!(verdict.is_some() && verdict < table, "{long}");
    }
}

#[test]
fn the_size_of_a_set_is_one_number_everywhere() {
    let place = Place::with_accounts(3000);
    let set = place.back_up();
    let bytes = set.metadata().unwrap().len();
    let shown = windlass_engine::show_size(bytes);
    let (set, again) = (set.to_str().unwrap(), place.arg("again.windlass"));
    let (_, report) = json(&["backup", &place.arg("shop.db"), "--to", &again]);
    assert_eq!(
        report["bytes_written"],
        place.path("again.windlass").metadata().unwrap().len()
    );
    let restored = text(&windlass(&["restore", set, "--into", &place.arg("new.db")]));
    assert!(
        restored.contains(&format!("from a set of {shown}, in ")),
        "{restored}"
    );
    let verified = text(&windlass(&["verify", set]));
    assert!(
        verified.contains(&format!("all {shown} read")),
        "{verified}"
    );
}

#[test]
fn what_a_set_a_path_or_an_argument_says_never_controls_the_terminal() {
    let place = Place::new();
    let name = "evil\u{1b}]0;owned\u{7}\u{9b}2J.db";
    windlass_engine::durable::rename(&place.path("shop.db"), &place.path(name)).unwrap();
    let (db, to) = (place.arg(name), place.arg("a\u{1b}[31m.windlass"));
    let label = "x\u{1b}[2J\u{202e}";
    let mut shown = String::new();
    let mut run = |words: &[&str], code: i32| {
        let output = windlass(words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output)
        );
        shown += &text(&output);
    };
    run(&["backup", &db, "--to", &to, "--label", label, "-v"], 0);
    run(&["info", &to, "--files"], 0);
    run(&["verify", &to, "-v"], 0);
    run(
        &["restore", &to, "--into", &place.arg("new\u{1b}c.db"), "-v"],
        0,
    );
    run(&["diff", &to, &db], 0);
    run(&["backup", "nowhere\u{1b}[31m", "--to", "nul"], 2);
    run(&["backup", "--\u{1b}[31mcolour"], 2);
    assert!(
        shown.contains("evil\\u001b]0;owned\\u0007\\u009b2J.db"),
        "{shown}"
    );
    let raw = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
    assert!(!shown.contains(raw), "{shown:?}");
}
