//! What people read on the screen, word for word, but for times, rates, ids and places.
//!
//! The snapshots lie in `snapshots/`; `INSTA_UPDATE=always` writes them anew, to be read before
//! they are kept.

use std::path::Path;

use crate::support::{Place, command, text};

/// What differs from run to run, and what stands for it. The first that fits wins a place, so the
/// longer forms come first.
const VARIABLE: [(&str, &str); 18] = [
    // Which servers run on this machine.
    (
        r"(No server answers on a socket|On this machine a server answers).*",
        "[sockets of this machine]",
    ),
    // What a stage waited for, and how long, is another test's matter.
    (
        r"(?m)^(reader|compressor|decompressor|writer) +\d.*$",
        "$1 [times]",
    ),
    (r"(?m)^ {20,}\d+\.\d+ s .*\n", ""),
    (r"(?m)^(verdict|threads) {2,}.*$", "$1 [by the machine]"),
    (r"(?m)^device {2,}(.*?) {2,}.*$", "device $1 [times]"),
    // Progress is shown when there was time for it.
    (r"(?m)^( *\d+ %|verifying|restoring|copying).*\n", ""),
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
    (r"(all|stored in|in) \d+(\.\d+)? (B|KiB|MiB)\b", "$1 [n] $3"),
    // The library that made the database, which is the machine's.
    (r"\b3\.\d+\.\d+\b", "[sqlite]"),
    (r"\(os error \d+\)", "[os error]"),
    (r" {2,}", "  "),
    (r"(?m) +$", ""),
];

/// Runs one command in the directory; what it printed, and how it ended.
fn shown(place: &Path, line: &str) -> String {
    let mut command = command();
    command.current_dir(place).args(line.split_whitespace());
    command.env("WINDLASS_STATE_DIR", place.join("state"));
    let output = command.output().unwrap();
    let code = output.status.code().unwrap();
    format!("$ windlass {line}\n{}exit {code}\n", text(&output))
}

fn assert_shown(name: &str, lines: &[String]) {
    insta::with_settings!({filters => VARIABLE, omit_expression => true}, {
        insta::assert_snapshot!(name, lines.join("\n"));
    });
}

/// Two stripes, beside each other, of a plan that does not depend on the machine.
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
    let middle = bytes.len() / 3;
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
    // Its minutes are simulated, so they are the same everywhere.
    let name = "plan";
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(name, shown(place.dir.path(), line));
    });
}
