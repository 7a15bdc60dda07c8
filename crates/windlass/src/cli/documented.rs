//! The manual has every command and every option, and names no option that does not exist. It says
//! what the messages of snapshots, of chains and of the log mean.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Cli;

/// Options of other programs that the manual's examples have.
const FOREIGN: [&str; 10] = [
    "--clone",
    "--copy-file-range",
    "--file",
    "--identity",
    "--link",
    "--nocapture",
    "--now",
    "--swap",
    "--test",
    "--waldir",
];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn page(name: &str) -> String {
    fs::read_to_string(docs().join(name)).unwrap_or_else(|error| panic!("docs/{name}: {error}"))
}

/// The page that describes a command. A new command needs one, and a line here.
fn page_of(command: &str) -> &'static str {
    match command {
        "backup" => "manual/backup.md",
        "restore" => "manual/restore.md",
        "verify" => "manual/verify.md",
        "info" => "manual/info.md",
        "merge" => "manual/chains.md",
        "repair" => "manual/repair.md",
        "repair-set" => "manual/parity.md",
        "expire" | "hold" => "manual/repositories.md",
        "key list" | "key check" | "key rotate" | "key" => "manual/encryption.md",
        "diff" => "manual/diff.md",
        "extract" => "manual/extract.md",
        "mount" => "manual/mount.md",
        "open" | "close" => "manual/open.md",
        "check" => "manual/operations.md",
        "drill" => "manual/drill.md",
        "history" => "manual/history.md",
        "status" | "events" => "events.md",
        "plan" | "tune" | "lab" | "lab probe" | "lab sweep" | "lab rehearse" | "lab pages"
        | "lab snapshots" => "lab.md",
        schedule if schedule.starts_with("schedule") => "manual/schedule.md",
        snapshot if snapshot.starts_with("snapshot") => "manual/snapshots.md",
        "archive-push" | "archive-get" | "receive" => "manual/log.md",
        "completions" | "man" => "manual/configuration.md",
        other => panic!("the manual has no page for `windlass {other}`"),
    }
}

/// The commands below this one with their words, as in `lab probe`.
fn commands(command: &Command) -> Vec<(String, &Command)> {
    let mut found = Vec::new();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        found.push((sub.get_name().to_owned(), sub));
        for (words, below) in commands(sub) {
            found.push((format!("{} {words}", sub.get_name()), below));
        }
    }
    found
}

/// Its long options, without those that every command has.
fn options(command: &Command) -> BTreeSet<String> {
    let own = command
        .get_arguments()
        .filter(|one| !one.is_hide_set() && !one.is_global_set());
    let named = own.filter_map(|one| one.get_long());
    named
        .filter(|name| *name != "help")
        .map(|name| format!("--{name}"))
        .collect()
}

/// Everything in a text that looks like a long option.
fn mentioned(text: &str) -> BTreeSet<String> {
    let is_part =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let words = text.split(|letter: char| !is_part(letter));
    words
        .filter(|word| word.starts_with("--"))
        .filter(|word| word.len() > 3)
        .filter(|word| word[2..].starts_with(|letter: char| letter.is_ascii_lowercase()))
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn every_command_and_every_option_is_in_the_manual() {
    let windlass = Cli::command();
    let mut missing = Vec::new();
    for (words, command) in commands(&windlass) {
        let name = page_of(&words);
        let text = page(name);
        if !text.contains(&format!("windlass {words}")) {
            missing.push(format!("docs/{name}: `windlass {words}`"));
        }
        let known = mentioned(&text);
        let mut options = options(command);
        if words == "check" {
            // Its page says that it takes all options of a backup.
            let backup = windlass.find_subcommand("backup").expect("the command");
            options.retain(|option| !self::options(backup).contains(option));
        }
        let absent = options.iter().filter(|option| !known.contains(*option));
        missing.extend(absent.map(|option| format!("docs/{name}: {option} of `windlass {words}`")));
    }
    let global = Cli::command();
    let global = global.get_arguments().filter(|one| one.is_global_set());
    let known = mentioned(&page("manual/words.md"));
    for name in global.filter_map(|one| one.get_long()) {
        if !known.contains(&format!("--{name}")) {
            missing.push(format!("docs/manual/words.md: --{name} of every command"));
        }
    }
    assert!(
        missing.is_empty(),
        "not in the manual:\n  {}",
        missing.join("\n  ")
    );
}

#[test]
fn the_manual_names_no_option_that_does_not_exist() {
    let windlass = Cli::command();
    let mut known: BTreeSet<String> = options(&windlass);
    known.extend(
        windlass
            .get_arguments()
            .filter_map(|one| one.get_long())
            .map(|name| format!("--{name}")),
    );
    for (_, command) in commands(&windlass) {
        known.extend(options(command));
    }
    known.extend(["--help", "--version"].map(ToOwned::to_owned));
    known.extend(FOREIGN.map(ToOwned::to_owned));
    let mut faults = Vec::new();
    let pages = fs::read_dir(docs().join("manual")).expect("the manual");
    let mut names: Vec<String> = vec!["lab.md".to_owned(), "events.md".to_owned()];
    names.extend(pages.map(|entry| {
        format!(
            "manual/{}",
            entry.expect("a page").file_name().to_string_lossy()
        )
    }));
    for name in names.iter().filter(|name| name.ends_with(".md")) {
        let strange: Vec<String> = mentioned(&page(name)).difference(&known).cloned().collect();
        faults.extend(
            strange
                .into_iter()
                .map(|option| format!("docs/{name}: {option}")),
        );
    }
    assert!(
        faults.is_empty(),
        "there is no such option:\n  {}",
        faults.join("\n  ")
    );
}

/// The messages of the errors in a source file, each on one line.
fn messages(source: &str) -> Vec<String> {
    let after = source.split("#[error(").skip(1).map(str::trim_start);
    let quoted = after.filter_map(|text| text.strip_prefix('"')?.split_once('"'));
    let on_one_line = |text: &str| -> String { text.split("\\\n").map(str::trim_start).collect() };
    quoted.map(|(message, _)| on_one_line(message)).collect()
}

/// What is always the same in a message, in order.
fn fixed_parts(message: &str) -> Vec<&str> {
    let parts = message.split(['{', '}']).step_by(2);
    let parts = parts.map(|part| part.trim_matches(|letter: char| " :;,".contains(letter)));
    parts.filter(|part| !part.is_empty()).collect()
}

/// Whether a line has all of these, in order.
fn has_in_order(line: &str, parts: &[&str]) -> bool {
    let mut rest = line;
    parts.iter().all(|part| match rest.split_once(*part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Sources with errors, below `crates`, and the pages that say what their messages mean.
const EXPLAINED: [(&str, &[&str]); 5] = [
    ("windlass-snapshot/src/error.rs", &SNAPSHOTS),
    ("windlass-snapshot/src/hook/error.rs", &SNAPSHOTS),
    (
        "windlass-postgres/src/chain/fault.rs",
        &["manual/chains.md"],
    ),
    ("windlass-repository/src/error.rs", &["manual/log.md"]),
    (
        "windlass-operations/src/recovery/error.rs",
        &["manual/log.md"],
    ),
];
const SNAPSHOTS: [&str; 2] = ["manual/snapshots.md", "manual/snapshots-operations.md"];

/// Whoever sees a message at night looks for its words in the manual.
#[test]
fn the_manual_says_what_messages_mean() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut missing = Vec::new();
    for (name, pages) in EXPLAINED {
        let text: String = pages.iter().map(|one| page(one)).collect();
        let source = fs::read_to_string(crates.join(name)).expect("a source");
        let messages = messages(&source);
        assert!(messages.len() > 5, "{name}: {}", messages.len());
        for message in messages {
            let parts = fixed_parts(&message);
            if !text.lines().any(|row| has_in_order(row, &parts)) {
                missing.push(format!("{name}: {message}: {}", pages.join(", ")));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "no line of a page of the manual has all words of a message:\n  {}",
        missing.join("\n  ")
    );
}

#[test]
fn a_message_is_found_by_what_is_always_the_same_in_it() {
    let source = "#[error(transparent)]\n#[error(\n    \"{} has \\\n     {free}\",\n    0\n)]\n";
    assert_eq!(messages(source), ["{} has {free}"]);
    let parts = fixed_parts("the disk of {} has {free}: {why}");
    assert_eq!(parts, ["the disk of", "has"]);
    assert!(has_in_order("| `the disk of /a has 1` |", &parts));
    assert!(!has_in_order("| `it has the disk of /a` |", &parts));
}
