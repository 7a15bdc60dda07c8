//! `DATABASE@NAME` in the place of a set or an image: open, mount, extract, verify, diff, backup.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use windlass_testkit::sqlite::CommitLedger;
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::snapshots::ledger;
use crate::support::*;

/// A database on XFS with a snapshot of each method, after 20 transactions. The database itself has
/// 60.
struct Kept {
    volume: Volume,
    ledger: CommitLedger,
}

const METHODS: [&str; 2] = ["clone", "copy"];

impl Kept {
    fn new() -> Self {
        let volume = Volume::new(VolumeKind::Xfs, 500);
        let ledger = ledger(volume.at());
        let database = ledger.path.to_str().unwrap();
        for method in METHODS {
            let words = ["snapshot", "create", database, method, "--method", method];
            let (code, made) = json(&words);
            assert_eq!((code, &made["method"]), (0, &method.into()), "{made}");
        }
        ledger.commit(21, 60);
        Self { volume, ledger }
    }

    fn database(&self) -> String {
        self.ledger.path.to_str().unwrap().to_owned()
    }

    /// The words for each snapshot: by name, and by directory.
    fn words(&self) -> Vec<String> {
        let database = self.database();
        let named = METHODS.map(|method| format!("{database}@{method}"));
        let placed = METHODS.map(|method| format!("{database}.windlass-snapshots/{method}"));
        named.into_iter().chain(placed).collect()
    }

    fn arg(&self, name: &str) -> String {
        self.volume.at().join(name).to_str().unwrap().to_owned()
    }
}

fn run(words: &[&str], code: i32) -> String {
    let output = windlass(words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
    printed
}

#[test]
fn a_snapshot_is_opened_and_shows_its_moment() {
    let kept = Kept::new();
    for word in kept.words() {
        let open = ["open", &word, "--quiet", "--", "sqlite3", "{}"];
        let count = run(&[&open[..], &["SELECT count(*) FROM log"]].concat(), 0);
        assert!(count.ends_with("20\n"), "{word}: {count}");
        let refused = windlass(&[&open[..], &["DELETE FROM log"]].concat());
        assert!(!refused.status.success());
        assert!(
            text(&refused).contains("readonly"),
            "{word}: {}",
            text(&refused)
        );
        let sql = "DELETE FROM log; SELECT count(*) FROM log";
        let words = [
            "open",
            "--writable",
            &word,
            "--quiet",
            "--",
            "sqlite3",
            "{}",
            sql,
        ];
        assert!(run(&words, 0).ends_with("0\n"), "{word}");
        // What was written is thrown away.
        let count = run(&[&open[..], &["SELECT count(*) FROM log"]].concat(), 0);
        assert!(count.ends_with("20\n"), "{word}: {count}");
    }
}

#[test]
fn a_snapshot_is_mounted_and_cannot_be_dropped_meanwhile() {
    let kept = Kept::new();
    let (at, database) = (kept.arg("at"), kept.database());
    std::fs::create_dir(&at).unwrap();
    for (word, method) in kept.words().iter().zip(METHODS.iter().cycle()) {
        run(&["mount", word, &at], 0);
        let copy = kept.arg("copy.db");
        std::fs::copy(format!("{at}/shop.db"), &copy).unwrap();
        let dropped = windlass(&["snapshot", "drop", &database, method]);
        let unmounted = std::process::Command::new("fusermount3")
            .args(["-u", &at])
            .status();
        assert!(unmounted.unwrap().success());
        assert_eq!(kept.ledger.check(copy.as_ref()), 20, "{word}");
        std::fs::remove_file(copy).unwrap();
        if *method == "clone" {
            let printed = text(&dropped);
            assert_eq!(dropped.status.code(), Some(1), "{printed}");
            assert!(
                printed.contains("in use") && printed.contains("hint: "),
                "{printed}"
            );
        } else {
            assert_eq!(dropped.status.code(), Some(0), "{}", text(&dropped));
            break;
        }
    }
}

#[test]
fn files_of_a_snapshot_are_extracted_and_verified() {
    let kept = Kept::new();
    for (number, word) in kept.words().iter().enumerate() {
        let into = kept.arg(&format!("extracted{number}"));
        let printed = run(&["extract", word, "shop.db", "--into", &into], 0);
        assert!(printed.contains("1 file"), "{printed}");
        let file = format!("{into}/shop.db");
        assert_eq!(kept.ledger.check(file.as_ref()), 20);
        run(&["verify", word], 0);
        let printed = run(&["verify", word, "--open"], 0);
        assert!(printed.contains("nothing wrong was found"), "{printed}");
        let (code, document) = json(&["verify", word]);
        assert_eq!((code, &document["ok"]), (0, &true.into()), "{document}");
    }
}

#[test]
fn a_snapshot_differs_from_its_database_and_not_from_another_of_the_same_moment() {
    let kept = Kept::new();
    let database = kept.database();
    let words = kept.words();
    for word in &words {
        let (code, document) = json(&["diff", word, &database]);
        assert_eq!((code, &document["same"]), (3, &false.into()), "{document}");
        let (code, document) = json(&["diff", word, &words[1]]);
        assert_eq!((code, &document["same"]), (0, &true.into()), "{document}");
    }
}

#[test]
fn a_backup_of_a_snapshot_restores_its_moment() {
    let kept = Kept::new();
    for (number, word) in kept.words().iter().enumerate() {
        let (sets, into) = (kept.arg(&format!("sets{number}")), kept.arg("restored.db"));
        let (code, made) = json(&["backup", word, "--to", &sets]);
        assert_eq!(code, 0, "{made}");
        let (code, info) = json(&["info", &sets]);
        assert_eq!(code, 0, "{info}");
        run(&["verify", &sets, "--open"], 0);
        run(&["restore", &sets, "--into", &into], 0);
        assert_eq!(kept.ledger.check(into.as_ref()), 20, "{word}");
        std::fs::remove_file(into).unwrap();
    }
    // A set in the snapshot's own directory would go with it.
    let word = &kept.words()[0];
    let inside = format!("{}.windlass-snapshots/clone", kept.database());
    run(&["backup", word, "--to", &inside], 1);
}

#[test]
fn words_that_mean_no_snapshot_say_what_there_is() {
    let kept = Kept::new();
    let database = kept.database();
    for choice in [["--set", "latest"], ["--database", "other"]] {
        let word = format!("{database}@clone");
        let printed = run(&["open", &word, choice[0], choice[1], "--", "true"], 2);
        assert!(printed.contains("is one snapshot"), "{printed}");
        assert!(printed.contains("leave them out"), "{printed}");
    }
    let zero = ["open", database.as_str(), "--port", "0"];
    assert!(run(&zero, 2).contains("--port"));
    let printed = run(&["open", &format!("{database}@clon"), "--", "true"], 1);
    assert!(printed.contains("Did you mean clone?"), "{printed}");
    // A copy is a set, so it can be restored at once. A clone cannot.
    let into = kept.arg("restored.db");
    run(
        &["restore", &format!("{database}@copy"), "--into", &into],
        0,
    );
    assert_eq!(kept.ledger.check(into.as_ref()), 20);
    let printed = run(
        &["restore", &format!("{database}@clone"), "--into", &into],
        1,
    );
    assert!(
        printed.contains("is no set") && printed.contains("hint: "),
        "{printed}"
    );
}

#[test]
fn a_configured_database_has_snapshots_and_sets_under_its_name() {
    let kept = Kept::new();
    let (database, sets) = (kept.database(), kept.arg("sets"));
    std::fs::create_dir(&sets).unwrap();
    let config = kept.arg("windlass.toml");
    let table = format!("[database.shop]\nsource = {database:?}\nto = [{sets:?}]\n");
    std::fs::write(&config, table).unwrap();
    let with = |words: &[&str]| {
        let output = command()
            .env("WINDLASS_CONFIG", &config)
            .args(words)
            .output();
        let output = output.unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
        text(&output)
    };
    let count = ["--quiet", "--", "sqlite3", "{}", "SELECT count(*) FROM log"];
    with(&["backup", "shop@clone"]);
    with(&["backup", "shop"]);
    assert!(with(&["snapshot", "list", "shop"]).contains("clone"));
    let open = |word: &str| with(&[&["open", word], &count[..]].concat());
    assert!(open("shop@clone").ends_with("20\n"));
    assert!(open("shop@copy").ends_with("20\n"));
    assert!(open("shop@latest").ends_with("60\n"));
    assert!(open("shop").ends_with("60\n"));
}
