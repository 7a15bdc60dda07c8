//! The libraries that a server loads when it starts: which it has loaded, which the next start
//! loads, and how that list is changed.
//!
//!   postgresql.conf, postgresql.auto.conf --[pg_file_settings]--> next start
//!   ALTER SYSTEM --> postgresql.auto.conf
//!
//! Invariants
//! - No name that stands in the list is lost by adding or removing another one.

use std::path::{Path, PathBuf};

use crate::cluster::{Cluster, open};
use crate::error::PostgresError;
use crate::session::Session;

const RUNNING: &str = "SELECT setting, source FROM pg_settings \
     WHERE name = 'shared_preload_libraries'";
/// The files as they are now, in the order in which the server reads them. The last one counts.
const NEXT: &str = "SELECT coalesce(setting, ''), sourcefile, sourceline FROM pg_file_settings \
     WHERE lower(name) = 'shared_preload_libraries' ORDER BY seqno";
/// The file that ALTER SYSTEM writes.
const OF_SYSTEM: &str = "postgresql.auto.conf";
/// What ALTER SYSTEM cannot overrule.
const STRONGER: [&str; 2] = ["command line", "environment variable"];

/// What a server loads at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preload {
    /// What the running server was told to load.
    pub running: Vec<String>,
    /// What the next start loads.
    pub next: Vec<String>,
    /// What it loads without the file of ALTER SYSTEM.
    pub elsewhere: Vec<String>,
    /// Where `next` stands: a file and a line, or `command line`.
    pub named_in: Option<String>,
    /// Whether the command line or the environment decides, so that no file counts.
    pub is_fixed: bool,
}

impl Cluster {
    /// Asks which libraries the server loads at its start.
    pub fn preload(&mut self) -> Result<Preload, PostgresError> {
        self.ask(ask)
    }

    /// Lets a session of the server load a library, so that the server itself says whether it can.
    pub fn try_library(&mut self, library: &Path) -> Result<(), PostgresError> {
        let sql = format!("LOAD {}", literal(&library.to_string_lossy()));
        let mut session = open(&self.conninfo)?;
        session.rows("let the server load the library", &sql)?;
        Ok(())
    }

    /// Sets which libraries the next start loads. Returns what it will load then: somebody else may
    /// decide that.
    pub fn set_preload(&mut self, libraries: &[String]) -> Result<Preload, PostgresError> {
        const DOING: &str = "change shared_preload_libraries";
        let mut session = open(&self.conninfo)?;
        let before = ask(&mut session)?;
        let values: Vec<_> = libraries.iter().map(|name| literal(name)).collect();
        // An empty list cannot be written: every version takes it for a library without a name.
        let sql = match libraries.is_empty() || before.elsewhere == libraries {
            true => "ALTER SYSTEM RESET shared_preload_libraries".to_owned(),
            false => format!(
                "ALTER SYSTEM SET shared_preload_libraries = {}",
                values.join(", ")
            ),
        };
        session.rows(DOING, &sql)?;
        ask(&mut session)
    }
}

fn ask(session: &mut Session) -> Result<Preload, PostgresError> {
    const DOING: &str = "ask for shared_preload_libraries";
    let found = session.rows(DOING, RUNNING)?;
    let row = found.first().ok_or_else(|| PostgresError::Answer {
        doing: DOING,
        answer: "no such setting".to_owned(),
    })?;
    let (running, source): (String, String) = (row.get(0), row.get(1));
    let running = names(&running);
    if STRONGER.contains(&source.as_str()) {
        return Ok(Preload {
            next: running.clone(),
            elsewhere: running.clone(),
            running,
            named_in: Some(source),
            is_fixed: true,
        });
    }
    let (mut next, mut elsewhere, mut named_in) = (Vec::new(), Vec::new(), None);
    for row in session.rows(DOING, NEXT)? {
        let (text, file, line): (String, String, i32) = (row.get(0), row.get(1), row.get(2));
        next = names(&text);
        named_in = Some(format!("{file} line {line}"));
        if PathBuf::from(&file).file_name() != Some(OF_SYSTEM.as_ref()) {
            elsewhere.clone_from(&next);
        }
    }
    Ok(Preload {
        running,
        next,
        elsewhere,
        named_in,
        is_fixed: false,
    })
}

/// The names in a list, as the server takes it apart: between commas, some of them in double
/// quotes.
fn names(text: &str) -> Vec<String> {
    let (mut names, mut name, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = text.trim().chars().peekable();
    let mut push = |name: &mut String| {
        let whole = std::mem::take(name);
        let whole = whole.trim();
        if !whole.is_empty() {
            names.push(whole.to_owned());
        }
    };
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                name.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => push(&mut name),
            letter => name.push(letter),
        }
    }
    push(&mut name);
    names
}

/// A text as SQL wants it, whatever standard_conforming_strings says.
fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\'', "''");
    format!("E'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_taken_apart_as_the_server_does_it() {
        for (text, expected) in [
            ("", vec![]),
            ("auto_explain", vec!["auto_explain"]),
            (
                "pg_stat_statements,  auto_explain ",
                vec!["pg_stat_statements", "auto_explain"],
            ),
            (
                r#""/usr/lib/a b.so", "$libdir/x,y", "q""t""#,
                vec!["/usr/lib/a b.so", "$libdir/x,y", "q\"t"],
            ),
            (r#""""#, vec![]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn a_literal_keeps_quotes_and_backslashes() {
        assert_eq!(literal(r"a'b\c"), r"E'a''b\\c'");
    }
}
