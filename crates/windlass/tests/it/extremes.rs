//! The smallest and largest numbers that can be written: each is accepted, or refused with the
//! option's name. None leads to a panic, or to a command that never ends.

use std::process::{Command, Output};

use crate::support::*;

/// The limits of whole numbers up to 64 bits, and values that are not whole numbers.
const WHOLE: [&str; 9] = [
    "0",
    "1",
    "-1",
    "",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
];
const BROKEN: [&str; 6] = ["inf", "nan", "1e308", "0.0000001", "16777216TiB", "1.5e19"];

/// The options of a command that take a number, found by the name of their value in its help.
fn numeric_options(command: &str) -> Vec<(String, String)> {
    const NUMBERS: [&str; 9] = [
        "<N>",
        "<SIZE>",
        "<RATE>",
        "<SECONDS>",
        "<PERCENT>",
        "<TIME>",
        "<CORES>",
        "<RATIO>",
        "<PORT>",
    ];
    /// Of `plan --snapshot`, which takes no other options of `plan`.
    const OF_SNAPSHOTS: [&str; 2] = ["look", "max-size"];
    let help = text(&windlass(&[command, "-h"]));
    let lines = help.lines().filter_map(|line| {
        let (_, option) = line.split_once("--")?;
        let mut words = option.split_whitespace();
        let (name, value) = (words.next()?, words.next()?);
        let is_tried = command != "plan" || !OF_SNAPSHOTS.contains(&name);
        (NUMBERS.contains(&value) && is_tried).then(|| (format!("--{name}"), value.to_owned()))
    });
    lines.collect()
}

/// Runs the command for at most a minute.
fn bounded(words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_windlass")]);
    command.args(words).env("WINDLASS_CONFIG", "/dev/null");
    command.env("WINDLASS_NO_PREDICTION", "1").output().unwrap()
}

fn try_all(words: &[&str], at_least: usize) {
    let options = numeric_options(words[0]);
    assert!(options.len() >= at_least, "{}: {options:?}", words[0]);
    for (option, kind) in &options {
        for value in WHOLE.iter().chain(&BROKEN) {
            // One byte a second is a valid rate, but such a run never ends.
            if kind == "<RATE>" && matches!(*value, "1" | "65536") {
                continue;
            }
            let word = format!("{option}={value}");
            let output = bounded(&[words, &[&word]].concat());
            let printed = text(&output);
            let code = output.status.code();
            assert!(
                matches!(code, Some(0..=2)) && !printed.contains("panicked"),
                "{words:?} {word}: {code:?}: {printed}"
            );
            if code != Some(0) {
                let named =
                    printed.contains(option.as_str()) || printed.contains("above the limit");
                assert!(named, "{words:?} {word} is not named: {printed}");
                assert_eq!(code, Some(2), "{words:?} {word}: {printed}");
            }
        }
    }
}

#[test]
fn a_backups_numbers_are_taken_or_refused_by_name() {
    let place = Place::new();
    try_all(
        &["backup", &place.arg("shop.db"), "--to", "nul", "--quiet"],
        10,
    );
}

#[test]
fn numbers_of_verify_and_restore_are_taken_or_refused_by_name() {
    let place = Place::new();
    let set = place.back_up();
    let (set, into) = (set.to_str().unwrap(), place.arg("new.db"));
    try_all(&["verify", set, "--quiet"], 5);
    try_all(&["restore", set, "--force", "--quiet", "--into", &into], 5);
}

#[test]
fn numbers_of_a_plan_are_taken_or_refused_by_name() {
    try_all(
        &[
            "plan",
            "--used-bytes=1TB",
            "--source=hdd",
            "--target=s3",
            "--quiet",
        ],
        8,
    );
}
