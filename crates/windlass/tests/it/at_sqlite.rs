//! A SQLite database at a moment in its log: it is shown as it was then, without a restore.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use windlass_testkit::sqlite::run_once;

use crate::opening::{Scratch, open_to_all};
use crate::receive_sqlite::Receiving;
use crate::support::*;

/// Moments, and how many transactions the database had then.
struct Moments {
    receiving: Receiving,
    moments: Vec<(String, u64)>,
}

impl Moments {
    fn new() -> Self {
        let mut receiving = Receiving::new();
        receiving.start();
        assert_eq!(receiving.back_up("full").0, 0);
        let mut moments = Vec::new();
        let mut others = 0;
        let sql = [
            "CREATE TABLE more AS SELECT randomblob(3000) AS x FROM log;",
            "DELETE FROM more; VACUUM;",
            "PRAGMA wal_checkpoint(TRUNCATE);",
            "",
        ];
        let path = receiving.place.ledger.path.clone();
        for (number, sql) in (21..).zip(sql) {
            let transaction = receiving.place.ledger.transaction(number);
            run_once(&path, &transaction).unwrap();
            run_once(&path, &format!("PRAGMA busy_timeout=60000; {sql}")).unwrap();
            others += [1, 2, 0, 0][usize::try_from(number - 21).unwrap()];
            receiving.wait_for(number - 20 + others);
            moments.push((jiff::Timestamp::now().to_string(), number));
        }
        receiving.stop();
        Self { receiving, moments }
    }

    fn sets(&self) -> String {
        self.receiving.place.arg("sets")
    }
}

#[test]
fn a_sqlite_database_is_read_as_it_was_at_each_moment() {
    let of = Moments::new();
    let (sets, out) = (of.sets(), of.receiving.place.path("out"));
    let name = out.join("shop.db");
    for (moment, number) in &of.moments {
        let into = out.to_str().unwrap();
        let words = ["extract", &sets, "**", "--into", into, "--at", moment];
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert_eq!(of.receiving.place.ledger.check(&name), *number, "{moment}");
        std::fs::remove_dir_all(&out).unwrap();
    }
    // The set is that of the beginning, and a restore gives the same file.
    let (latest, into) = (&of.moments[3].0, of.receiving.place.arg("restored.db"));
    let output = windlass(&["restore", &sets, "--into", &into, "--target-time", latest]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let output = windlass(&["diff", &sets, "--at", latest, &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let (first, second) = (&of.moments[0].0, &of.moments[1].0);
    let (code, found) = json(&["diff", &sets, "--at", first, "--at", second]);
    assert_eq!((code, &found["same"]), (3, &false.into()), "{found}");
    let (code, found) = json(&["diff", &sets, "--at", second, "--at", second]);
    assert_eq!((code, &found["same"]), (0, &true.into()), "{found}");
}

#[test]
fn a_sqlite_database_opens_at_a_moment_also_to_write() {
    let of = Moments::new();
    let (sets, scratch) = (of.sets(), Scratch::new());
    open_to_all(of.receiving.place.dir.path(), 0o755);
    let open = |options: &[&str], sql: &str| {
        let words = [
            &["open", "--quiet", &sets],
            options,
            &["--", "sqlite3", "{}", sql],
        ];
        let output = scratch.run(None, &words.concat());
        (output.status.code(), text(&output).trim_end().to_owned())
    };
    let count = "SELECT max(id) FROM log";
    for (moment, number) in &of.moments {
        let found = open(&["--at", moment], count);
        assert_eq!(found, (Some(0), number.to_string()), "{moment}");
    }
    let written = "PRAGMA user_version = 7; PRAGMA integrity_check; PRAGMA user_version";
    let found = open(&["--at", &of.moments[1].0, "--writable"], written);
    assert_eq!(found, (Some(0), "ok\n7".to_owned()));
    assert_eq!(open(&["--at", "latest"], count), (Some(0), "24".to_owned()));
    scratch.assert_clean();

    for (at, code, says) in [
        ("2020-01-01T00:00:00Z", 1, "what can be restored: "),
        ("2100-01-01T00:00:00Z", 1, "what can be restored: "),
        ("0/3000028", 2, "SQLite database has no"),
    ] {
        let (found, said) = open(&["--at", at], count);
        assert_eq!(found, Some(code), "{said}");
        assert!(said.contains(says) && said.contains("hint: "), "{said}");
    }
    scratch.assert_clean();
}

#[test]
fn what_leads_to_a_moment_is_verified() {
    let of = Moments::new();
    let sets = of.sets();
    let (moment, _) = &of.moments[1];
    let verify = ["verify", &sets, "--at", moment];
    let (code, found) = json(&verify);
    assert_eq!((code, &found["ok"]), (0, &true.into()), "{found}");
    assert_eq!(found["sets"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["logs"].as_array().unwrap().len(), 1, "{found}");
    let output = windlass(&[&verify[..], &["--open"]].concat());
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("the database was brought there"), "{said}");
    assert!(said.contains("nothing wrong was found in it"), "{said}");
    let output = windlass(&["verify", &sets, "--at", "2020-01-01T00:00:00Z"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));

    // One byte of a transaction.
    let object = crate::receive_sqlite::objects(&of.receiving.place).remove(0);
    let mut bytes = std::fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    let output = windlass(&[&verify[..], &["--open"]].concat());
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
}
