//! Tidiness as a test: what a reader can rely on in every file.
//!
//! - Every file begins with a header that says what it is for.
//! - Lines have at most 100 characters, source files at most 500 lines, functions at most 60.
//! - No notes about work to do, and no debugging code, are left.
//! - No error becomes a default value, and no number that does not fit becomes another one.
//! - Libraries know no option and no command of the command line.
//! - ARCHITECTURE.md's map names every file, and only files that exist.
//!
//! The table of exceptions is a ratchet. An entry says how long a file may be. The number may only
//! go down, and the entry must be removed when it is no longer needed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LINE_CHARS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 60;

/// Source files longer than they should be, with the length they may have.
const LONG_FILES: [(&str, usize); 0] = [];
/// Functions longer than they should be, with the length they may have.
const LONG_FUNCTIONS: [(&str, &str, usize); 0] = [];

struct Source {
    name: String,
    text: String,
}

impl Source {
    /// Whether this is shipped code and not a test.
    fn ships(&self) -> bool {
        self.name.contains("/src/") && !self.name.ends_with("/tests.rs")
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut waiting = vec![root.join("crates"), root.join("fuzz")];
    let mut found = Vec::new();
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let is_built = path.ends_with("target") && !path.ends_with("src/target");
            if path.is_dir() && !is_built {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(source(&root, path));
            }
        }
    }
    assert!(found.len() > 100, "only {} files were found", found.len());
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn source(root: &Path, path: PathBuf) -> Source {
    let name = path
        .strip_prefix(root)
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let text = fs::read_to_string(path).unwrap();
    Source { name, text }
}

fn assert_none(faults: &[String], what: &str) {
    assert!(faults.is_empty(), "{what}:\n  {}", faults.join("\n  "));
}

#[test]
fn every_file_begins_with_a_header() {
    let faults: Vec<_> = sources()
        .into_iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.name)
        .collect();
    assert_none(&faults, "no header");
}

/// A line of code without the text between quotes. The formatter does not break texts, and a
/// message in one piece can be found by searching.
fn without_text(line: &str) -> String {
    match (line.find('"'), line.rfind('"')) {
        (Some(from), Some(to)) if !line.trim_start().starts_with("//") => {
            format!("{}{}", &line[..from], &line[to..])
        }
        _ => line.to_owned(),
    }
}

#[test]
fn lines_are_short() {
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in (1..).zip(source.text.lines()) {
            if without_text(line).chars().count() > LINE_CHARS_MAX {
                faults.push(format!("{}:{number}", source.name));
            }
        }
    }
    assert_none(&faults, "lines of more than 100 characters");
}

#[test]
fn files_are_short_or_listed_and_no_longer_than_listed() {
    let mut faults = Vec::new();
    for source in sources().into_iter().filter(Source::ships) {
        let lines = source.text.lines().count();
        let listed = LONG_FILES.iter().find(|(name, _)| *name == source.name);
        match listed {
            None if lines > FILE_LINES_MAX => faults.push(format!("{}: {lines}", source.name)),
            Some((_, most)) if lines > *most => {
                faults.push(format!("{}: grew to {lines}", source.name))
            }
            Some(_) if lines <= FILE_LINES_MAX => {
                faults.push(format!("{}: list it no more", source.name))
            }
            _ => {}
        }
    }
    for (name, _) in LONG_FILES {
        if !sources().iter().any(|source| source.name == name) {
            faults.push(format!("{name}: is not there"));
        }
    }
    assert_none(&faults, "files of more than 500 lines");
}

/// The functions that are longer than allowed, with their names and lengths. The code is formatted,
/// so a function ends at the first brace with the same indentation as its beginning.
fn long_functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let words = code.split(['(', '<']).next().unwrap_or_default();
        let Some(name) = words.split("fn ").nth(1).filter(|_| is_function(code)) else {
            continue;
        };
        let end = lines[start..]
            .iter()
            .position(|line| *line == format!("{indent}}}"));
        let length = end.map_or(0, |end| end + 1);
        if length > FUNCTION_LINES_MAX {
            long.push((name.to_owned(), length));
        }
    }
    long
}

fn is_function(code: &str) -> bool {
    let heads = [
        "fn ",
        "pub fn ",
        "pub(crate) fn ",
        "pub(super) fn ",
        "const fn ",
        "unsafe fn ",
    ];
    heads.iter().any(|head| code.starts_with(head)) && !code.ends_with(';')
}

#[test]
fn functions_are_short_or_listed_and_no_longer_than_listed() {
    let mut faults = Vec::new();
    let mut seen = Vec::new();
    for source in sources().into_iter().filter(Source::ships) {
        for (name, lines) in long_functions(&source.text) {
            let key = (source.name.as_str(), name.as_str());
            let listed = LONG_FUNCTIONS
                .iter()
                .find(|(file, name, _)| (*file, *name) == key);
            if lines > listed.map_or(FUNCTION_LINES_MAX, |(.., most)| *most) {
                faults.push(format!("{}: {name}: {lines}", source.name));
            }
            seen.extend(listed);
        }
    }
    for listed in LONG_FUNCTIONS
        .iter()
        .filter(|listed| !seen.contains(listed))
    {
        faults.push(format!("{}: {}: list it no more", listed.0, listed.1));
    }
    assert_none(&faults, "functions of more than 60 lines");
}

#[test]
fn the_search_for_long_functions_finds_them() {
    let body = "    work();\n".repeat(FUNCTION_LINES_MAX);
    let text = format!("fn short() {{\n}}\n\npub fn long(a: u8) {{\n{body}}}\n");
    assert_eq!(
        long_functions(&text),
        [("long".to_owned(), FUNCTION_LINES_MAX + 2)]
    );
}

#[test]
fn nothing_is_left_to_do() {
    // The words are in two halves, so that this file does not contain them.
    let halves = [
        ("TO", "DO"),
        ("FIX", "ME"),
        ("XX", "X"),
        ("db", "g!("),
        ("unimple", "mented!("),
    ];
    let words = halves.map(|(one, other)| format!("{one}{other}"));
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in (1..).zip(source.text.lines()) {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                faults.push(format!("{}:{number}: {word}", source.name));
            }
        }
    }
    assert_none(&faults, "left to do");
}

/// Calls that can fail for reasons from outside. Their errors are returned or told.
const FALLIBLE: [&str; 10] = [
    "serde_json::to_value(",
    "serde_json::to_vec(",
    "serde_json::to_string(",
    "serde_json::from_slice(",
    "serde_json::from_value(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::read_dir(",
    "read_at_most(",
    ".canonicalize()",
];
/// Files in which such a call may have a default value, with the reason.
const DEFAULTED: [(&str, &str); 4] = [
    (
        "windlass-engine/src/process.rs",
        "without proc(5), nothing is known of memory",
    ),
    (
        "windlass-lab/src/sweep/environment.rs",
        "what the kernel does not say stays empty",
    ),
    (
        "windlass-postgres/src/open/process.rs",
        "a server without a file is not ready",
    ),
    (
        "windlass/src/signals.rs",
        "without proc(5), no signal is ignored",
    ),
];

/// The code of a file without its tests, each statement on one line.
fn statements(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with("//"));
    let joined: String = lines.collect();
    joined.split([';', '{', '}']).map(str::to_owned).collect()
}

/// Whether a statement gives a default value in place of an error, or another number in place of
/// one that does not fit.
fn hides_a_fault(statement: &str) -> bool {
    let default = [".unwrap_or_default()", ".unwrap_or("];
    let defaulted = default.iter().any(|default| statement.contains(default));
    let fails = FALLIBLE.iter().any(|call| statement.contains(call));
    let casts = ["::try_from(", ".try_into()"];
    let cast = casts.iter().any(|cast| statement.contains(cast));
    let limited = [
        "::MAX)",
        ".unwrap_or(0)",
        ".unwrap_or(1)",
        ".unwrap_or_default()",
    ];
    let saturates = limited.iter().any(|limit| statement.contains(limit));
    (fails && defaulted) || (cast && defaulted && saturates)
}

#[test]
fn no_fault_becomes_a_default() {
    let mut faults = Vec::new();
    for source in sources().into_iter().filter(Source::ships) {
        let listed = DEFAULTED
            .iter()
            .any(|(name, _)| source.name.ends_with(name));
        let hidden = statements(&source.text)
            .into_iter()
            .find(|it| hides_a_fault(it));
        match hidden {
            // `saturated` is the one place where a number is cut.
            Some(_) if source.name.ends_with("windlass-media/src/number.rs") => {}
            Some(_) if source.name.contains("windlass-testkit/") => {}
            Some(hidden) if !listed => faults.push(format!("{}: {hidden}", source.name)),
            None if listed => faults.push(format!("{}: list it no more", source.name)),
            _ => {}
        }
    }
    assert_none(&faults, "return the error, or use `fitted` or `saturated`");
}

#[test]
fn the_search_for_hidden_faults_finds_them() {
    for hidden in [
        "let text = fs::read_to_string(path).unwrap_or_default()",
        "let real = path.canonicalize().unwrap_or(path)",
        "let length = u16::try_from(text.len()).unwrap_or(u16::MAX)",
        "let count: u64 = count.try_into().unwrap_or_default()",
    ] {
        assert!(hides_a_fault(hidden), "{hidden}");
    }
    for open in [
        "let text = fs::read_to_string(path)?",
        "let name = path.file_name().unwrap_or_default()",
        "let number = u16::try_from(number).map_err(fault)?",
    ] {
        assert!(!hides_a_fault(open), "{open}");
    }
}

/// Crates that know the command line, or run programs in tests.
const KNOW_COMMANDS: [&str; 2] = ["crates/windlass/", "crates/windlass-testkit/"];
/// Lines of libraries that contain an option or a command, with the reason.
const COMMAND_WORDS: [(&str, &str, &str); 10] = [
    (
        "windlass-object/src/list.rs",
        "--x",
        "the end of names of S3's directory buckets",
    ),
    (
        "windlass-operations/src/schedule/systemd.rs",
        "--man",
        "systemd-analyze's option",
    ),
    (
        "windlass-operations/src/schedule/systemd.rs",
        "--now",
        "systemctl's option",
    ),
    (
        "windlass-operations/src/schedule/systemd.rs",
        "--quiet",
        "systemctl's option",
    ),
    (
        "windlass-operations/src/schedule/systemd.rs",
        "--user",
        "systemctl's option",
    ),
    (
        "windlass-postgres/src/cluster_server/alone.rs",
        "--single",
        "the server's own word, for one user alone",
    ),
    (
        "windlass-postgres/src/open/programs.rs",
        "--bindir",
        "pg_config's option",
    ),
    (
        "windlass-postgres/src/open/programs.rs",
        "--version",
        "postgres's option",
    ),
    (
        "windlass-postgres/src/open/settings.rs",
        "windlass open",
        "how `ps` shows an opened server",
    ),
    (
        "windlass-lab/src/rehearsal.rs",
        "windlass lab",
        "the maker that a rehearsal's set names",
    ),
];
const COMMANDS: [&str; 15] = [
    "backup", "check", "close", "diff", "events", "extract", "info", "lab", "mount", "open",
    "plan", "restore", "status", "tune", "verify",
];

/// The option or the command that a line of code contains.
fn command_word(line: &str) -> Option<String> {
    let letters = |text: &str| text.chars().take_while(char::is_ascii_lowercase).collect();
    for (at, _) in line.match_indices("--") {
        let word: String = letters(&line[at + 2..]);
        if !word.is_empty() && !line[..at].ends_with(|before: char| before.is_alphanumeric()) {
            return Some(format!("--{word}"));
        }
    }
    let commands = line.match_indices("windlass ").find_map(|(at, name)| {
        let word: String = letters(&line[at + name.len()..]);
        COMMANDS.contains(&word.as_str()).then_some(word)
    });
    commands.map(|word| format!("windlass {word}"))
}

/// The binary gives settings their options and says what to type (`hints.rs`).
#[test]
fn libraries_know_no_command_line() {
    let mut faults = Vec::new();
    let mut seen = Vec::new();
    let knows = |name: &str| KNOW_COMMANDS.iter().any(|known| name.starts_with(known));
    let libraries = sources().into_iter().filter(Source::ships);
    for source in libraries.filter(|source| !knows(&source.name)) {
        let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = (1..).zip(code.lines());
        for (number, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let Some(word) = command_word(line) else {
                continue;
            };
            let is_listed = |(file, listed, _): &&(&str, &str, &str)| {
                source.name.ends_with(file) && *listed == word
            };
            match COMMAND_WORDS.iter().find(is_listed) {
                Some(listed) => seen.push(listed),
                None => faults.push(format!("{}:{number}: {word}", source.name)),
            }
        }
    }
    let unseen = COMMAND_WORDS.iter().filter(|listed| !seen.contains(listed));
    faults.extend(unseen.map(|(file, word, _)| format!("{file}: {word}: list it no more")));
    assert_none(&faults, "words of the command line in libraries");
}

#[test]
fn the_search_for_words_of_the_command_line_finds_them() {
    let found = |line: &str| command_word(line).unwrap_or_default();
    assert_eq!(found("\"Lower --buffers.\""), "--buffers");
    assert_eq!(found("\"`windlass verify` says where\""), "windlass verify");
    assert_eq!(found("\"the word windlass is no command\""), "");
    assert_eq!(found("let count = one - -other;"), "");
    assert_eq!(found("\"---- a line ----\""), "");
}

/// The names in the first column of a crate's table in ARCHITECTURE.md.
fn mapped(map: &str, name: &str) -> Vec<String> {
    let table = map.split(&format!("\n**{name}**")).nth(1);
    let table = table.unwrap_or_default().split("\n**").next();
    let rows = table.unwrap_or_default().lines();
    let cells = rows.filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split(", "));
    names
        .map(|name| name.trim_matches('`').to_owned())
        .collect()
}

#[test]
fn the_map_names_every_file_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let map = page.split("\n## Code map\n").nth(1).unwrap();
    let map = map.split("\n## ").next().unwrap();
    let names = sources().into_iter().map(|source| source.name);
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in names {
        let path = name
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"));
        let Some((name, file)) = path else { continue };
        let file = file.trim_end_matches(".rs");
        if !["lib", "main"].contains(&file) && !file.ends_with("tests") {
            let files = files.entry(name.to_owned()).or_default();
            files.insert(file.to_owned());
        }
    }
    let mut faults = Vec::new();
    for (name, files) in &files {
        let names = mapped(map, name);
        let covers = |known: &String, file: &String| match known.strip_suffix('*') {
            Some(folder) => file.starts_with(folder),
            None => known == file,
        };
        let lacking = files
            .iter()
            .filter(|file| !names.iter().any(|name| covers(name, file)));
        faults.extend(lacking.map(|file| format!("{name}: {file} is not in the map")));
        let gone = names
            .iter()
            .filter(|name| !files.iter().any(|file| covers(name, file)));
        faults.extend(gone.map(|file| format!("{name}: {file} is in the map and not in the tree")));
    }
    assert_none(&faults, "ARCHITECTURE.md");
}

#[test]
fn scripts_start_from_an_environment_of_their_own() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = ". scripts/lib/common.sh; env; echo \"binary=${WINDLASS_BINARY:-}\"";
    let output = std::process::Command::new("bash")
        .current_dir(root)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .args(["-c", script])
        .envs([
            ("PGPORT", "1"),
            ("PGHOST", "/nowhere"),
            ("PGOPTIONS", "-c nothing=1"),
            ("LC_NUMERIC", "de_DE.UTF-8"),
            ("LANG", "de_DE.UTF-8"),
            ("WINDLASS_COMPRESS", "none"),
            ("WINDLASS_CONFIG", "/nowhere"),
            ("WINDLASS_BINARY", "/some/windlass"),
            ("WINDLASS_TEST_ONE", "kept"),
        ])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let own = ["PG", "LC_", "LANG", "WINDLASS_"];
    let mut left: Vec<_> = text
        .lines()
        .filter(|line| own.iter().any(|prefix| line.starts_with(prefix)))
        .collect();
    left.sort_unstable();
    assert_eq!(left, ["LC_ALL=C.UTF-8", "WINDLASS_TEST_ONE=kept"]);
    assert!(text.contains("binary=/some/windlass"), "{text}");
}
