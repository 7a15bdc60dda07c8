//! `--encrypt`, `--key` and `windlass key`: encrypted sets as people use them.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::*;

/// Two pairs, whose private keys are 32 times the byte 42 and 43 (hexadecimal).
const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const OTHER_IDENTITY: &str =
    "AGE-SECRET-KEY-1GDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDPSST380Y";
const OTHER_RECIPIENT: &str = "age1ehhas7p6jx6yveqw9c0e2kvakd0ysjsqwx7jrq4nkcxssykpp3cq0wk9nt";
const PASSPHRASE: &str = "correct horse battery staple";

/// A database, a place for sets, and files with secrets.
struct Safe(Place);

impl Safe {
    fn new() -> Self {
        let safe = Self(Place::with_accounts(200));
        safe.keep("id", &format!("# a comment\n{IDENTITY}\n"));
        safe.keep("other", &format!("{OTHER_IDENTITY}\n"));
        safe.keep("words", &format!("{PASSPHRASE}\n"));
        safe
    }

    fn keep(&self, name: &str, content: &str) {
        std::fs::write(self.0.path(name), content).unwrap();
        self.mode(name, 0o600);
    }

    fn mode(&self, name: &str, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.0.path(name), mode).unwrap();
    }

    fn word(&self, kind: &str, name: &str) -> String {
        format!("{kind}:{}", self.0.arg(name))
    }

    fn identity(&self) -> String {
        self.word("identity-file", "id")
    }

    /// Backs up, encrypted to these.
    fn back_up(&self, kind: &str, readers: &[&str]) -> Value {
        let (database, sets) = self.0.ends();
        let mut words = vec!["backup", &database, "--to", &sets, "--type", kind];
        readers
            .iter()
            .for_each(|word| words.extend(["--encrypt", word]));
        let key = self.identity();
        words.extend(["--key", &key]);
        let (code, document) = json(&words);
        assert_eq!(code, 0, "{document}");
        document
    }

    /// The bytes of what the newest set restores to.
    fn restored(&self, key: &str) -> Vec<u8> {
        let (_, sets) = self.0.ends();
        let into = self.0.arg("into.db");
        let output = windlass(&["restore", &sets, "--into", &into, "--key", key]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let bytes = std::fs::read(&into).unwrap();
        std::fs::remove_file(&into).unwrap();
        bytes
    }

    fn database(&self) -> Vec<u8> {
        std::fs::read(self.0.path("shop.db")).unwrap()
    }

    fn stripes(&self) -> Vec<PathBuf> {
        let sets = self.0.sets().into_iter();
        let stripes = sets.filter(|name| name.ends_with(".windlass"));
        stripes.map(|name| self.0.path("sets").join(name)).collect()
    }
}

fn ends(words: &[&str], code: i32) -> String {
    let output = windlass(words);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{words:?}: {}",
        text(&output)
    );
    text(&output)
}

#[test]
fn only_the_key_of_a_reader_restores_an_encrypted_set() {
    let safe = Safe::new();
    let words = safe.word("passphrase-file", "words");
    safe.back_up("full", &[&format!("age:{RECIPIENT}"), &words]);
    let (_, sets) = safe.0.ends();
    let (identity, other) = (safe.identity(), safe.word("identity-file", "other"));
    let into = safe.0.arg("nothing.db");
    let restore = ["restore", sets.as_str(), "--into", &into];
    let without = ends(&restore, 1);
    assert!(
        without.contains(RECIPIENT) && without.contains("passphrase"),
        "{without}"
    );
    assert!(
        without.contains("hint: Name the key: --key identity-file:PATH"),
        "{without}"
    );
    let wrong = ends(&[&restore[..], &["--key", &other]].concat(), 1);
    assert!(
        wrong.contains("none of the keys that were given opens it"),
        "{wrong}"
    );
    assert!(
        !safe.0.path("nothing.db").exists(),
        "not a byte was written"
    );
    for key in [&identity, &words] {
        assert!(safe.restored(key) == safe.database(), "{key}");
    }
    let printed = format!("command:cat {}", safe.0.arg("words"));
    assert!(safe.restored(&printed) == safe.database());
    let shell = format!(
        "exec {} restore {sets} --into {into} --key fd:7 7< {}",
        env!("CARGO_BIN_EXE_windlass"),
        safe.0.arg("id")
    );
    let output = Command::new("sh").args(["-c", &shell]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(std::fs::read(&into).unwrap() == safe.database());
}

#[test]
fn every_reader_of_sets_takes_the_key_and_says_so_without_it() {
    let safe = Safe::new();
    safe.back_up("full", &[&format!("age:{RECIPIENT}")]);
    let (database, sets) = safe.0.ends();
    let key = safe.identity();
    let stripe = safe.stripes().remove(0);
    let stripe = stripe.to_str().unwrap();
    let out = safe.0.arg("out");
    for words in [
        vec!["verify", stripe, "--quick"],
        vec!["verify", stripe, "--open"],
        vec!["diff", stripe, &database],
        vec!["extract", stripe, "shop.db", "--into", &out],
        vec![
            "open",
            stripe,
            "--",
            "sqlite3",
            "{}",
            "PRAGMA integrity_check",
        ],
    ] {
        let with = ends(&[&words[..1], &["--key", &key], &words[1..]].concat(), 0);
        let without = windlass(&words);
        assert_ne!(
            without.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&without)
        );
        assert!(
            text(&without).contains("encrypted"),
            "{words:?}: {}",
            text(&without)
        );
        assert!(!with.contains("error"), "{with}");
    }
    let without = ends(&["verify", stripe], 3);
    assert!(without.contains("its content was not checked"), "{without}");
    let files = ends(&["info", stripe, "--files", "--key", &key], 0);
    assert!(
        files.contains("shop.db") && files.contains("restorable"),
        "{files}"
    );
    let shown = ends(&["info", stripe, "--files"], 0);
    assert!(shown.contains("is encrypted: no key was given"), "{shown}");
    assert!(
        shown.contains("stored ") && !shown.contains("damaged"),
        "{shown}"
    );
    let list = ends(&["info", &sets], 0);
    assert!(list.contains("encrypted"), "{list}");
    let list = ends(&["info", &sets, "--key", &key], 0);
    assert!(
        !list.contains("encrypted") && list.contains("full"),
        "{list}"
    );
}

#[test]
fn a_chain_and_its_merge_are_encrypted_and_restore() {
    let safe = Safe::new();
    let to = format!("age:{RECIPIENT}");
    safe.back_up("full", &[&to]);
    safe.0.ledger.commit(21, 40);
    let second = safe.back_up("incr", &[&to]);
    assert_eq!(second["type"], "incr", "{second}");
    let (_, sets) = safe.0.ends();
    let key = safe.identity();
    let whole = safe.restored(&key);
    let merge = [
        "merge",
        &sets,
        "--to",
        &sets,
        "--encrypt",
        &to,
        "--key",
        &key,
    ];
    let (code, merged) = json(&merge);
    assert_eq!(code, 0, "{merged}");
    let id = merged["set_id"].as_str().unwrap();
    let into = safe.0.arg("merged.db");
    ends(
        &[
            "restore", &sets, "--set", id, "--into", &into, "--key", &key,
        ],
        0,
    );
    assert!(std::fs::read(&into).unwrap() == whole);
    for stripe in safe.stripes() {
        let bytes = std::fs::read(stripe).unwrap();
        assert_eq!((bytes[10] & 2, bytes[57]), (2, 1));
    }
}

#[test]
fn rotated_keys_open_a_set_that_was_not_touched_and_the_rest_is_said() {
    let safe = Safe::new();
    safe.back_up("full", &[&format!("age:{RECIPIENT}")]);
    let (_, sets) = safe.0.ends();
    let (key, other) = (safe.identity(), safe.word("identity-file", "other"));
    let before = std::fs::read(&safe.stripes()[0]).unwrap();
    assert!(ends(&["key", "check", &sets, "--key", &key], 0).contains("opens"));
    assert!(ends(&["key", "check", &sets, "--key", &other], 1).contains("does not open"));
    let to = format!("age:{OTHER_RECIPIENT}");
    let rotate = ["key", "rotate", sets.as_str(), "--encrypt", &to, "--key"];
    ends(&[&rotate[..], &[&other]].concat(), 1);
    assert!(!ends(&["key", "list", &sets], 0).contains(OTHER_RECIPIENT));
    let rotated = ends(&[&rotate[..], &[&key]].concat(), 0);
    assert!(
        rotated.contains(&format!("{RECIPIENT} can still read set")),
        "{rotated}"
    );
    let list = ends(&["key", "list", &sets], 0);
    assert!(
        list.contains(RECIPIENT) && list.contains(OTHER_RECIPIENT),
        "{list}"
    );
    for key in [&other, &key] {
        ends(&["key", "check", &sets, "--key", key], 0);
        assert!(safe.restored(key) == safe.database());
    }
    assert!(std::fs::read(&safe.stripes()[0]).unwrap() == before);
    let clear = Place::new();
    clear.back_up();
    let none = ends(&["key", "list", &clear.ends().1], 1);
    assert!(none.contains("is encrypted"), "{none}");
}

#[test]
fn a_rotation_that_is_killed_anywhere_leaves_a_set_that_opens() {
    let safe = Safe::new();
    safe.back_up("full", &[&format!("age:{RECIPIENT}")]);
    let (_, sets) = safe.0.ends();
    let (key, other) = (safe.identity(), safe.word("identity-file", "other"));
    let to = format!("age:{OTHER_RECIPIENT}");
    let words = [
        "key",
        "rotate",
        &sets,
        "--encrypt",
        &to,
        "--key",
        &key,
        "--quiet",
    ];
    let mut kills = 0;
    for (call, step) in [
        ("openat", 12),
        ("write", 1),
        ("fsync", 1),
        ("rename", 1),
        ("flock", 1),
    ] {
        for number in (1..).step_by(step) {
            let was_killed = killed_at((call, number), &words);
            ends(&["key", "check", &sets, "--key", &key], 0);
            let rotated = windlass(&["key", "check", &sets, "--key", &other]);
            if !was_killed {
                assert_eq!(rotated.status.code(), Some(0), "{}", text(&rotated));
                break;
            }
            kills += 1;
        }
        let files = safe.0.sets().into_iter();
        files
            .filter(|name| name.ends_with("-keys"))
            .for_each(|name| {
                std::fs::remove_file(safe.0.path("sets").join(name)).unwrap();
            });
    }
    assert!(kills > 3, "only {kills} kills");
    ends(&words, 0);
    let left = safe
        .0
        .sets()
        .into_iter()
        .filter(|name| name.contains("tmp"));
    assert_eq!(left.count(), 0, "{:?}", safe.0.sets());
}

/// Newer envelopes that are damaged, or of another set, are named. They never open anything, and
/// the set itself stays as readable as it was written.
#[test]
fn newer_envelopes_that_cannot_be_used_are_named() {
    let safe = Safe::new();
    safe.back_up("full", &[&format!("age:{RECIPIENT}")]);
    safe.back_up("full", &[&format!("age:{RECIPIENT}")]);
    let (_, sets) = safe.0.ends();
    let (key, other) = (safe.identity(), safe.word("identity-file", "other"));
    let to = format!("age:{OTHER_RECIPIENT}");
    let rotate = ["key", "rotate", &sets, "--encrypt", &to, "--key", &key];
    ends(&rotate, 0);
    let names = safe.0.sets().into_iter();
    let files: Vec<_> = names
        .filter(|name| name.ends_with("-keys"))
        .map(|name| safe.0.path("sets").join(name))
        .collect();
    let bytes: Vec<_> = files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect();
    for (content, why) in [
        (&bytes[0][..bytes[0].len() / 2], "file of envelopes"),
        (&bytes[1], "file of envelopes: belongs to set"),
        (&[], "file of envelopes"),
    ] {
        std::fs::write(&files[0], content).unwrap();
        let path = files[0].display().to_string();
        let said = [
            ends(&["key", "list", &sets], 4),
            ends(&["key", "check", &sets, "--key", &other], 1),
        ];
        for said in said {
            assert!(said.contains(why) && said.contains(&path), "{said}");
        }
        ends(&["key", "check", &sets, "--key", &key], 0);
    }
    ends(&rotate, 0);
    ends(&["key", "check", &sets, "--key", &other], 0);
}

#[test]
fn a_file_of_a_key_that_others_may_read_is_refused_before_anything_is_done() {
    let safe = Safe::new();
    let (database, sets) = safe.0.ends();
    safe.mode("words", 0o644);
    let words = safe.word("passphrase-file", "words");
    let refused = ends(
        &["backup", &database, "--to", &sets, "--encrypt", &words],
        1,
    );
    assert!(
        refused.contains("may be read by others (mode 0644)"),
        "{refused}"
    );
    assert!(refused.contains("hint: Run `chmod 600"), "{refused}");
    assert!(safe.0.sets().is_empty());
    let refused = ends(&["info", &sets, "--key", &words], 1);
    assert!(refused.contains("may be read by others"), "{refused}");
    for (word, says) in [
        (format!("age:{RECIPIENT}x"), "no recipient of age"),
        (format!("file:{}", safe.0.arg("words")), "is no key"),
        (
            IDENTITY.to_owned(),
            "a secret stands where everybody can read it",
        ),
    ] {
        let refused = ends(&["backup", &database, "--to", &sets, "--encrypt", &word], 2);
        assert!(refused.contains(says), "{refused}");
        assert!(!refused.contains("GFPYYSJZ"), "{refused}");
    }
    let only = ends(&["info", &sets, "--key", &format!("age:{RECIPIENT}")], 2);
    assert!(only.contains("can only encrypt"), "{only}");
}

/// Whether a file, or what is in a directory, holds eight bytes in a row of a secret.
fn holds(path: &Path, secrets: &[&str]) -> Option<PathBuf> {
    if path.is_dir() {
        let mut entries = std::fs::read_dir(path).unwrap();
        return entries.find_map(|entry| holds(&entry.unwrap().path(), secrets));
    }
    let bytes = std::fs::read(path).unwrap_or_default();
    let pieces: Vec<&[u8]> = secrets
        .iter()
        .flat_map(|it| it.as_bytes().windows(8))
        .collect();
    let found = bytes.windows(8).any(|piece| pieces.contains(&piece));
    found.then(|| path.to_owned())
}

#[test]
fn no_secret_is_in_a_log_a_set_a_report_or_what_others_see_of_the_process() {
    let safe = Safe::new();
    let (database, sets) = safe.0.ends();
    let dir = safe.0.dir.path();
    // Each set of these characters occurs nowhere else.
    let secrets = [&IDENTITY[16..], PASSPHRASE];
    std::fs::create_dir(dir.join("said")).unwrap();
    let (log, metrics) = (safe.0.arg("said/log"), safe.0.arg("said/metrics.prom"));
    let events = safe.0.arg("said/events");
    let seen = safe.0.arg("said/seen");
    let hook =
        format!("sh -c 'cat /proc/$PPID/cmdline /proc/$PPID/environ > {seen}; env >> {seen}'");
    let words = safe.word("passphrase-file", "words");
    let output = windlass(&[
        "backup",
        &database,
        "--to",
        &sets,
        "--encrypt",
        &words,
        "--encrypt",
        &safe.identity(),
        "--log",
        &log,
        "--log-level",
        "debug",
        "--metrics-file",
        &metrics,
        "--events",
        &events,
        "--before",
        &hook,
        "--details",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    std::fs::write(dir.join("said/backup"), text(&output)).unwrap();
    for key in [
        &words,
        &safe.identity(),
        &safe.word("identity-file", "other"),
    ] {
        let output = windlass(&["verify", &sets, "--key", key, "--log", &log, "--json"]);
        std::fs::write(dir.join("said/verify"), text(&output)).unwrap();
        assert_eq!(holds(&dir.join("said"), &secrets), None);
    }
    assert!(std::fs::metadata(&seen).unwrap().len() > 0);
    assert_eq!(holds(&dir.join("said"), &secrets), None);
    assert_eq!(holds(&dir.join("sets"), &secrets), None);
    // The files of the place say nothing of the database but its name, which their own names have.
    assert_eq!(
        holds(
            &dir.join("sets"),
            &["CREATE TABLE", "SQLite format 3", "accounts"]
        ),
        None
    );
    // A typed secret is refused, and the log that names the words of the command hides it.
    ends(&["info", &sets, "--key", IDENTITY, "--log", &log], 2);
    assert_eq!(holds(&dir.join("said"), &secrets), None);
}

#[test]
fn a_process_with_a_key_makes_no_core_file() {
    let safe = Safe::new();
    safe.back_up("full", &[&format!("age:{RECIPIENT}")]);
    let stripe = safe.stripes().remove(0);
    let key = safe.identity();
    let opened = [stripe.to_str().unwrap(), "--key", &key];
    let limit = core_file_limit(&opened, Path::new("/dev/null"));
    assert!(limit == "1" || limit == "0", "{limit}");
}

/// What PostgreSQL says of a backup in the log, in a file of its own.
const LABEL: &str = "START WAL LOCATION: 0/500028\nLABEL: a secret name\n";
const LABEL_FILE: &str = "000000010000000000000005.00000028.backup";

/// Whether a place that is made anew has an encrypted object after this file was archived there.
fn is_encrypted(place: &str, words: &[&str]) -> bool {
    std::fs::create_dir_all(format!("{place}/log")).unwrap();
    ends(words, 0);
    let object = format!("{place}/log/7/files/{LABEL_FILE}.wlog");
    let bytes = std::fs::read(object).unwrap();
    let is_clear = bytes.windows(6).any(|part| part == b"secret");
    assert_eq!(bytes[10] == 0, is_clear);
    std::fs::remove_dir_all(format!("{place}/log")).unwrap();
    !is_clear
}

#[test]
fn log_is_encrypted_where_sets_are_to_be_encrypted() {
    let safe = Safe::new();
    let (database, sets) = safe.0.ends();
    let (config, more) = (safe.0.arg("windlass.toml"), safe.0.arg("more"));
    let file = safe.0.arg(LABEL_FILE);
    std::fs::write(&file, LABEL).unwrap();
    let repository = |of_database: &str, of_all: &str| {
        format!(
            "[repository.main]\nto = \"{more}\"\n[backup]\n{of_all}\n[database.shop]\n\
             source = \"{database}\"\n{of_database}\n"
        )
    };
    let encrypt = format!("encrypt = \"age:{RECIPIENT}\"\n");
    let elsewhere = format!("to = \"{sets}\"\n{encrypt}");
    for (text, expected) in [
        (repository(&format!("repo = \"main\"\n{encrypt}"), ""), true),
        (repository(&encrypt, "repo = \"main\""), true),
        (repository("", &encrypt), true),
        (repository(&encrypt, ""), true),
        (repository(&elsewhere, ""), false),
        (repository("", ""), false),
    ] {
        std::fs::write(&config, &text).unwrap();
        for place in [["--repo", "main"], ["--to", &more]] {
            let push = ["archive-push", &file, "--config", &config];
            let words = [&push[..], &["--compress", "none", "--system", "7"], &place].concat();
            assert_eq!(is_encrypted(&more, &words), expected, "{text}");
        }
    }
    let push = ["archive-push", &file, "--to", &more, "--system", "7"];
    let reader = format!("age:{RECIPIENT}");
    let by_hand = [&push[..], &["--encrypt", &reader]].concat();
    assert!(is_encrypted(&more, &by_hand));

    // Where nothing tells the content, the same file again needs the key.
    std::fs::create_dir_all(safe.0.path("more/log")).unwrap();
    ends(&by_hand, 0);
    let refused = ends(&by_hand, 1);
    assert!(
        refused.contains("no key was given; it can be read by age1"),
        "{refused}"
    );
    ends(
        &[
            &by_hand[..],
            &["--key", &safe.word("identity-file", "other")],
        ]
        .concat(),
        1,
    );
    ends(&[&by_hand[..], &["--key", &safe.identity()]].concat(), 0);
    std::fs::write(&file, LABEL.replace('5', "6")).unwrap();
    let refused = ends(&[&by_hand[..], &["--key", &safe.identity()]].concat(), 1);
    assert!(refused.contains("with other content"), "{refused}");

    // The documents are enough to read it.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-reader.py");
    let mut command = Command::new("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
    command.arg(format!("{more}/log/7/files/{LABEL_FILE}.wlog"));
    let output = command
        .args(["--identity", &safe.0.arg("id")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), LABEL, "{said}");
}

#[test]
fn the_log_of_a_sqlite_database_is_encrypted_and_goes_on_with_the_key() {
    let safe = Safe::new();
    let (database, sets) = safe.0.ends();
    let reader = format!("age:{RECIPIENT}");
    let copy = ["backup", &database, "--to", &sets, "--type", "log"];
    let copy = [&copy[..], &["--encrypt", &reader]].concat();
    let connection = rusqlite::Connection::open(safe.0.path("shop.db")).unwrap();
    connection
        .pragma_update(None, "journal_mode", "wal")
        .unwrap();
    connection
        .execute_batch("CREATE TABLE secrets (word TEXT)")
        .unwrap();
    std::fs::create_dir_all(safe.0.path("sets/log")).unwrap();
    let refused = ends(&copy, 1);
    assert!(refused.contains("could not go on with it"), "{refused}");
    let key = safe.identity();
    let copy = [&copy[..], &["--key", &key]].concat();
    // The first copy begins the log, and the set stands in it.
    windlass(&copy);
    safe.back_up("full", &[&reader]);
    let insert = |word: &str| connection.execute("INSERT INTO secrets VALUES (?1)", [word]);
    for word in ["lighthouse", "keeper"] {
        insert(word).unwrap();
        ends(&copy, 0);
    }
    let grep = Command::new("grep")
        .args(["-rlF", "lighthouse", &sets])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "");
    let into = safe.0.arg("again.db");
    let restore = ["restore", &sets, "--into", &into, "--target-latest"];
    ends(&restore, 1);
    ends(&[&restore[..], &["--key", &key]].concat(), 0);
    let restored = rusqlite::Connection::open(&into).unwrap();
    let words = restored.query_one("SELECT group_concat(word) FROM secrets", [], |row| {
        row.get(0)
    });
    assert_eq!(words, Ok("lighthouse,keeper".to_owned()));
    assert!(ends(&["verify", &sets], 3).contains("without a key"));
    ends(&["verify", &sets, "--key", &key], 0);
}

#[test]
fn the_program_age_and_the_documents_are_enough_to_read_an_encrypted_set() {
    let safe = Safe::new();
    safe.back_up("full", &[&format!("age:{RECIPIENT}")]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-reader.py");
    let mut command = Command::new("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
    command
        .args(safe.stripes())
        .args(["--identity", &safe.0.arg("id")]);
    let output = command.args(["--file", "shop.db"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "needs age and python3-cryptography: {said}"
    );
    assert!(output.stdout == safe.restored(&safe.identity()));
}
