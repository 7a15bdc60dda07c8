//! Transactions of many subtransactions that are open, and prepared, while a snapshot is made.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use windlass_testkit::postgres::PrivateCluster;

/// More than a process keeps in memory, so pg_subtrans has them.
const SUBTRANSACTIONS: u32 = 200;

/// A transaction whose subtransactions are all open. Another one is prepared.
pub struct Nested(Child);

/// Begins a transaction. Each of its rows is from a subtransaction within the one before.
fn begun(who: &str) -> String {
    let within = |number| format!("SAVEPOINT s{number}; INSERT INTO nested VALUES ('{who}'); ");
    let nested: String = (0..SUBTRANSACTIONS).map(within).collect();
    format!("BEGIN; {nested}")
}

fn count(server: &PrivateCluster, who: &str) -> String {
    let sql = format!("SELECT count(*) FROM nested WHERE who = '{who}'");
    server.sql("postgres", &sql)
}

impl Nested {
    /// Makes the table. The server must allow prepared transactions.
    pub fn prepare(server: &PrivateCluster) {
        server.sql("postgres", "CREATE TABLE nested (who text)");
    }

    pub fn begin(server: &PrivateCluster) -> Self {
        let prepared = format!("{} PREPARE TRANSACTION 'prepared'", begun("prepared"));
        server.sql("postgres", &prepared);
        let mut psql = server.tool("psql");
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1"]);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = psql.spawn().unwrap();
        let script = format!("{}\n\\echo open\n", begun("open"));
        let input = psql.stdin.as_mut().unwrap();
        input.write_all(script.as_bytes()).unwrap();
        let mut said = String::new();
        let output = psql.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut said).unwrap();
        assert_eq!(said, "open\n");
        Self(psql)
    }

    /// Commits both.
    pub fn commit(mut self, server: &PrivateCluster) {
        let mut input = self.0.stdin.take().unwrap();
        input.write_all(b"COMMIT;\n").unwrap();
        drop(input);
        assert!(self.0.wait().unwrap().success());
        server.sql("postgres", "COMMIT PREPARED 'prepared'");
        for who in ["open", "prepared"] {
            assert_eq!(count(server, who), SUBTRANSACTIONS.to_string());
        }
    }

    /// What a server has that ended while both were as [`Nested::begin`] left them: the open one
    /// never was, and the prepared one can be committed.
    pub fn assert_open(view: &PrivateCluster) {
        assert_eq!(count(view, "prepared"), "0");
        view.sql("postgres", "COMMIT PREPARED 'prepared'");
        assert_eq!(count(view, "prepared"), SUBTRANSACTIONS.to_string());
        assert_eq!(count(view, "open"), "0");
    }
}
