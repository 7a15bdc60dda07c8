//! Asks a server over its socket, in this process: most tests ask dozens of times, and a program
//! takes longer to start than the server takes to answer.
//!
//! Each question has a session of its own, which has ended when the answer is there.

use std::path::Path;

use postgres::{Config, Error, NoTls, SimpleQueryMessage, SimpleQueryRow};

/// Runs SQL. Returns a line for each row, as `psql -At` prints it.
pub(crate) fn ask(socket: &Path, port: u16, database: &str, sql: &str) -> Result<String, Error> {
    let mut config = Config::new();
    config.host_path(socket).port(port).user("postgres");
    let mut client = config.dbname(database).connect(NoTls)?;
    let answered = client.simple_query(sql)?;
    client.close()?;
    let rows = answered.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(line(row)),
        _ => None,
    });
    let lines: Vec<_> = rows.collect();
    Ok(lines.join("\n").trim_end().to_owned())
}

fn line(row: &SimpleQueryRow) -> String {
    let values = (0..row.len()).map(|column| row.get(column).unwrap_or_default());
    values.collect::<Vec<_>>().join("|")
}
