//! Any moment equals the model: a drawn history of commits, and of all states a model.
//!
//! The history has a full set and two that build on it, between commits, and every commit is a
//! moment by each kind of target. WINDLASS_TEST_SEED draws the history and the moments that are
//! restored; in `scripts/soak` all of them are.

use std::collections::BTreeMap;

use windlass_testkit::counted::drawn;
use windlass_testkit::sqlite::Random;

use crate::log::Archiving;
use crate::moments::{TIME, recovered};
use crate::run::*;

const CONTENT: &str = "SELECT string_agg(k || '=' || v, ' ' ORDER BY k) FROM m";
const COMMITS: u32 = 40;
/// Behind these commits a set is made.
const SETS: [(u32, &str); 2] = [(13, "incr"), (27, "diff")];
/// So many moments are restored.
const RESTORED: usize = 5;

/// A target, and what the table had then.
struct Moment {
    words: [String; 2],
    content: String,
}

struct History {
    source: Archiving,
    random: Random,
    /// What the table has.
    rows: BTreeMap<u32, u32>,
    moments: Vec<Moment>,
}

impl History {
    fn start(seed: u64) -> Self {
        let source = Archiving::start(&["--wal-segsize=1", "--data-checksums"]);
        let table = "CREATE TABLE m (k int PRIMARY KEY, v int)";
        source.server.sql("postgres", table);
        source.back_up();
        Self {
            source,
            random: Random(seed),
            rows: BTreeMap::new(),
            moments: Vec::new(),
        }
    }

    fn sql(&self, sql: &str) -> String {
        self.source.server.sql("postgres", sql)
    }

    fn content(&self) -> String {
        let rows = self.rows.iter();
        let rows: Vec<_> = rows.map(|(key, value)| format!("{key}={value}")).collect();
        rows.join(" ")
    }

    /// A change of the model, and the statements that make it.
    fn change(&mut self, number: u32) -> String {
        let key = self.random.below(30);
        match self.random.below(8) {
            0 => {
                self.rows.retain(|found, _| found % 3 != key % 3);
                format!("DELETE FROM m WHERE k % 3 = {key} % 3")
            }
            1 => {
                self.rows.clear();
                self.rows.insert(key, number);
                format!("TRUNCATE m; INSERT INTO m VALUES ({key}, {number})")
            }
            2 => {
                self.rows.values_mut().for_each(|value| *value += 1000);
                "UPDATE m SET v = v + 1000".to_owned()
            }
            _ => {
                self.rows.insert(key, number);
                format!(
                    "INSERT INTO m VALUES ({key}, {number}) \
                     ON CONFLICT (k) DO UPDATE SET v = excluded.v"
                )
            }
        }
    }

    /// Commits a change. The moment behind it has a name in each kind of target.
    fn commit(&mut self, number: u32) {
        let change = self.change(number);
        let number_of = "SELECT pg_current_xact_id()";
        let transaction = self.sql(&format!("BEGIN; {change}; {number_of}; COMMIT"));
        let lsn = self.sql("SELECT pg_current_wal_insert_lsn()");
        let time = self.sql(TIME);
        let name = format!("point {number}");
        self.sql(&format!("SELECT pg_create_restore_point('{name}')"));
        let content = self.content();
        for (kind, value) in [
            ("--target-xid", transaction),
            ("--target-lsn", lsn),
            ("--target-time", time),
            ("--target-name", name),
        ] {
            self.moments.push(Moment {
                words: [kind.to_owned(), value],
                content: content.clone(),
            });
        }
    }

    /// What goes on between commits and changes nothing that anybody sees.
    fn go_on(&mut self) {
        let sql = match self.random.below(8) {
            0 => "VACUUM m",
            1 => "VACUUM FULL m",
            2 => "CHECKPOINT",
            3 | 4 => "SELECT pg_switch_wal()",
            5 => "BEGIN; UPDATE m SET v = 0; INSERT INTO m VALUES (99, 0); ROLLBACK",
            _ => return,
        };
        self.sql(sql);
    }

    fn back_up(&self, kind: &str) {
        let (conninfo, place) = (self.source.server.conninfo(), self.source.arg("place"));
        let words = ["backup", &conninfo, "--to", &place, "--type", kind];
        let output = windlass(&[&words[..], &["--strict"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

#[test]
fn any_moment_of_a_history_equals_the_model() {
    let seed = std::env::var("WINDLASS_TEST_SEED").unwrap_or_default();
    let seed = seed.parse().unwrap_or(1);
    let mut history = History::start(seed);
    for number in 1..=COMMITS {
        history.commit(number);
        history.go_on();
        if let Some((_, kind)) = SETS.iter().find(|(behind, _)| *behind == number) {
            history.back_up(kind);
        }
    }
    assert_eq!(history.sql(CONTENT), history.content(), "seed {seed}");
    history.source.insert_and_archive(1);
    let moments: Vec<&Moment> = history.moments.iter().collect();
    for (count, moment) in drawn(moments, RESTORED, seed).into_iter().enumerate() {
        let words = [&*moment.words[0], &*moment.words[1]];
        let server = recovered(&history.source, &format!("into-{count}"), &words);
        let found = server.sql("postgres", CONTENT);
        assert_eq!(found, moment.content, "seed {seed}: {words:?}");
        drop(server);
        std::fs::remove_dir_all(history.source.arg(&format!("into-{count}"))).unwrap();
    }
}
