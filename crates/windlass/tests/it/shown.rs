//! What people read on the screen, word for word, except for times, rates, ids and places.
//!
//! The snapshots are in `snapshots/`. `INSTA_UPDATE=always` writes them again. Read them before you
//! keep them.

use std::path::Path;

use crate::support::{Place, command, text};

/// Patterns for what differs from run to run, each with its replacement. The first match wins, so
/// the longer forms come first.
const VARIABLE: [(&str, &str); 18] = [
    // The servers that run on this machine.
    (
        r"(No server with port \d+ answers on|A server with this port answers).*",
        "[sockets of this machine]",
    ),
    // Another test checks what a stage waited for, and how long.
    (
        r"(?m)^(reader|compressor|decompressor|writer) +\d.*$",
        "$1 [times]",
    ),
    (r"(?m)^ {20,}\d+\.\d+ s .*\n", ""),
    (r"(?m)^(verdict|threads) {2,}.*$", "$1 [by the machine]"),
    (r"(?m)^device {2,}(.*?) {2,}.*$", "device $1 [times]"),
    // Progress appears only if the run took long enough, and the name of a phase only if it lasts.
    (
        r"(?m)^( *\d+ %|verifying|restoring|syncing|sealing|(copying|writing|waiting for) \w).*\n",
        "",
    ),
    (r"/(var/)?tmp/\.tmp\w+", "[place]"),
    (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "[time]"),
    (
        r"\(\d{4}-\d\d-\d\d [0-9:]+ [-+]\d\d:\d\d, [^)]*\)",
        "([local time, age])",
    ),
    (r"\b[0-9a-f]{32}\b", "[id]"),
    (r"\d+(\.\d+)? (s|ms|us|B/s|KiB/s|MiB/s|GiB/s)\b", "[n] $2"),
    (
        r"expected [0-9a-f]{8}, found [0-9a-f]{8}",
        "expected [crc], found [crc]",
    ),
    (r"at offset \d+", "at offset [n]"),
    (
        r"(all|stored in|in|a set of) \d+(\.\d+)? (B|KiB|MiB)\b",
        "$1 [n] $3",
    ),
    // The version of the machine's SQLite library, which made the database.
    (r"\b3\.\d+\.\d+\b", "[sqlite]"),
    (r"\(os error \d+\)", "[os error]"),
    (r" {2,}", "  "),
    (r"(?m) +$", ""),
];

/// Runs one command in the directory. Returns its output and its exit code.
fn shown(place: &Path, line: &str) -> String {
    let mut command = command();
    command.current_dir(place).args(line.split_whitespace());
    command.env("WINDLASS_STATE_DIR", place.join("state"));
    command.env("WINDLASS_HOSTNAME", "tests");
    let output = command.output().unwrap();
    let code = output.status.code().unwrap();
    format!("$ windlass {line}\n{}exit {code}\n", text(&output))
}

fn assert_shown(name: &str, lines: &[String]) {
    insta::with_settings!({filters => VARIABLE, omit_expression => true}, {
        insta::assert_snapshot!(name, lines.join("\n"));
    });
}

/// Two stripes side by side, with settings that do not depend on the machine.
fn two_stripes() -> (Place, String) {
    let place = Place::new();
    let words = "backup shop.db --to a.stripe --to b.stripe --compress zstd:1 --buffers 8 \
                 --threads 2 --readers 2";
    let report = shown(place.dir.path(), words);
    (place, report)
}

#[test]
fn a_life_of_a_set() {
    let (place, report) = two_stripes();
    let run = |line: &str| shown(place.dir.path(), line);
    let lines = [
        report,
        run("info --files a.stripe"),
        run("verify a.stripe --buffers 8 --threads 2"),
        run("restore a.stripe --into new.db --buffers 8 --threads 2"),
    ];
    assert_shown("life", &lines);
}

#[test]
fn a_set_that_is_not_whole() {
    let (place, _) = two_stripes();
    std::fs::remove_file(place.path("b.stripe")).unwrap();
    let run = |line: &str| shown(place.dir.path(), line);
    let missing = run("info a.stripe");
    run("backup shop.db --to one.stripe");
    let path = place.path("one.stripe");
    let mut bytes = std::fs::read(&path).unwrap();
    // The first frame begins behind the header.
    let middle = 4096 + 100;
    bytes[middle] ^= 1;
    #[allow(
        clippy::disallowed_methods,
        reason = "a damaged copy need not be durable"
    )]
    std::fs::write(&path, bytes).unwrap();
    let damaged = run("restore one.stripe --into new.db --quiet");
    assert_shown("not_whole", &[missing, damaged]);
}

#[test]
fn refusals() {
    let place = Place::new();
    let lines = [
        "backup nowhere.db --to a.stripe",
        "backup sets --to a.stripe",
        "backup shop.db --to no/such/place",
        "backup shop.db --to a.stripe --to a.stripe",
        "backup shop.db --to nul --compress zip",
        "backup shop.db --to nul --transfer-size 100000",
        "backup shop.db --to nul --max-memory 1MiB",
        "backup postgresql://db.example.test/?sslmode=on --to nul",
        "backup postgresql://127.0.0.1:1/ --to nul",
        "restore shop.db --into new.db",
        "restore sets --into new.db",
        "verify nowhere.stripe",
    ];
    let shown = lines.map(|line| shown(place.dir.path(), line));
    assert_shown("refusals", &shown);
}

#[test]
fn a_plan() {
    let place = Place::new();
    let line = "plan --used-bytes 1TB --ratio 2 --source gp2:1.5TB --target s3:100MB/s \
                --files 1,4 --compress none,zstd --cores 8 --within 2h";
    // The minutes are simulated, so they are the same everywhere.
    let name = "plan";
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(name, shown(place.dir.path(), line));
    });
}
