//! `windlass open`: shows a set as a database while a command runs, or until a signal.
//!
//! Ctrl-C in a terminal reaches every process in the foreground. While a COMMAND runs, Ctrl-C is
//! meant for the command, as in a shell: psql cancels a query with it. SIGTERM and SIGHUP are meant
//! for Windlass, which passes them on to the command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;
use windlass_engine::Cancel;
use windlass_engine::media::saturated;
use windlass_object::is_in_bucket;
use windlass_operations::kept::KeptName;
use windlass_operations::opening::{OpenRequest, OpenedSet, open};
use windlass_operations::{OpenSettings, Opened, OperationError};
use windlass_postgres::{Server, UnusableDatabase};

use super::detach;
use crate::cli::{Global, Open};
use crate::damage;
use crate::exit::{Code, Failure};
use crate::output;
use crate::requests;
use crate::signals;

/// The part of a command's words that is replaced by the database's path.
const PATH_PLACE: &[u8] = b"{}";

/// What the signals asked for.
struct Asked {
    /// Any of the signals asks for the end.
    end: Cancel,
    /// The command is to end too.
    terminate: Arc<AtomicBool>,
}

pub fn run(global: &Global, arguments: &Open) -> Result<Code, Failure> {
    let name = arguments.keep.as_deref().map(KeptName::parse).transpose()?;
    if name.is_some() && !arguments.detached {
        return detach::run(global.json, &["--detached"]);
    }
    let asked = listen()?;
    let begun = Instant::now();
    let request = OpenRequest {
        set: requests::sets(global, &arguments.set, &arguments.choice),
        at: arguments.at.recovery(),
        settings: OpenSettings {
            name,
            ..requests::opening(&arguments.opening, arguments.writable)
        },
    };
    let opened = open(&requests::quiet_caller(global), &request, &asked.end);
    let mut opened = opened.map_err(|error| explained(error, global, arguments))?;
    remind_of_path(opened.database(), &arguments.command);
    warn_of_unusable(opened.database());
    if arguments.command.is_empty() {
        let took = begun.elapsed();
        // The name says where a database is that stays open, so whoever wants quiet knows it.
        if global.json || !(global.quiet && arguments.detached) {
            say(global, opened.database(), arguments, took);
        }
        if arguments.detached {
            detach::leave(output::degraded(Code::Done))?;
        }
        opened.serve(&asked.end)?;
        return Ok(match close(opened)? {
            true => Code::Damage,
            false => Code::Done,
        });
    }
    let command = command(opened.database(), &arguments.command);
    let ended = opened.run(command, &asked.terminate).map_err(|error| {
        let hint = "Name a program that can be run.";
        Failure::new(Code::Failed, error.to_string(), hint)
    })?;
    let alive = opened.check_alive();
    let damaged = close(opened)?;
    // The command may have succeeded without reading what is damaged.
    match code(ended) {
        0 if damaged => Ok(Code::Damage),
        0 => Ok(alive.map(|()| Code::Done)?),
        code => Ok(Code::Program(code)),
    }
}

/// Closes the database. Returns whether damage of the set was found, and says what to do about it.
fn close(opened: OpenedSet) -> Result<bool, Failure> {
    let damaged = opened.close()?;
    if let Some(found) = &damaged {
        damage::say_advice(found);
    }
    Ok(damaged.is_some())
}

/// If a word is not a place of stripes, it is probably a command whose two dashes are missing.
fn explained(error: OperationError, global: &Global, arguments: &Open) -> Failure {
    let is_of_words = matches!(error, OperationError::Place(_) | OperationError::Engine(_));
    let is_configured = |word: &OsStr| {
        global
            .configured
            .iter()
            .any(|one| word == one.name.as_str())
    };
    let mut others = arguments.set.iter().skip(1);
    let are_places = others
        .all(|place| place.exists() || is_in_bucket(place) || is_configured(place.as_os_str()));
    let failure = Failure::from(error);
    match is_of_words && !are_places {
        true => failure.hinting("A command comes after two dashes: windlass open SET -- COMMAND."),
        false => failure,
    }
}

/// A program like sqlite3 has to be told which file to open. Without the path it opens an empty
/// database in memory, and finds no table in it.
fn remind_of_path(opened: &Opened, words: &[OsString]) {
    let names_path = |word: &OsString| {
        let bytes = word.as_bytes();
        let says = |part: &[u8]| bytes.windows(part.len()).any(|found| found == part);
        says(PATH_PLACE) || says(b"WINDLASS_DATABASE")
    };
    let program = words.first().map(std::path::Path::new);
    let is_sqlite = program
        .and_then(|path| path.file_name())
        .is_some_and(|name| name.as_bytes().starts_with(b"sqlite3"));
    let is_file = matches!(opened, Opened::Sqlite { .. });
    if is_file && is_sqlite && !words.iter().any(names_path) {
        output::note(
            "warning: no word of the command names the database: sqlite3 opens an empty one",
        );
        output::note(
            "hint: Write {} where the path belongs: windlass open SET -- sqlite3 {} .tables",
        );
    }
}

/// Names the databases that cannot be used, so that nobody takes the one that is used instead for
/// them.
fn warn_of_unusable(opened: &Opened) {
    let Opened::Postgres { server, .. } = opened else {
        return;
    };
    let used = &server.connection().database;
    for UnusableDatabase { database, why } in server.unusable() {
        output::note(&format!(
            "warning: database {database} cannot be used: {why}"
        ));
        output::note(&format!(
            "hint: The connection leads to database {used} instead. `windlass verify --open` of \
             the set lists what is damaged."
        ));
    }
}

/// The same as JSON.
fn warnings(server: &Server) -> Vec<serde_json::Value> {
    let unusable = server.unusable().iter();
    let warning = |one: &UnusableDatabase| {
        serde_json::json!({
            "kind": "database_unusable",
            "database": one.database,
            "error": one.why,
        })
    };
    unusable.map(warning).collect()
}

fn listen() -> Result<Asked, Failure> {
    let asked = Asked {
        end: Cancel::new(),
        terminate: Arc::default(),
    };
    let register = |signal| -> std::io::Result<()> {
        signal_hook::flag::register(signal, asked.end.flag())?;
        if signal != SIGINT {
            signal_hook::flag::register(signal, Arc::clone(&asked.terminate))?;
        }
        Ok(())
    };
    let signals = signals::ENDING.into_iter();
    let mut signals = signals.filter(|signal| !signals::is_ignored(*signal));
    let registered = signals.try_for_each(register);
    registered.map_err(|error| {
        let message = format!("cannot handle signals: {error}");
        Failure::new(Code::Failed, message, "Try again.")
    })?;
    signals::handled();
    Ok(asked)
}

/// Says where the database is.
fn say(global: &Global, opened: &Opened, arguments: &Open, took: Duration) {
    let (writable, name) = (arguments.writable, arguments.keep.as_deref());
    let mode = if writable { "writable" } else { "read-only" };
    let seconds = took.as_secs_f64();
    let directory = opened.view().at().display().to_string();
    match opened {
        Opened::Postgres { server, .. } => {
            let (version, log) = (server.version(), server.log().display());
            let (to, steps) = (server.connection(), steps(server, took));
            let conninfo = to.conninfo();
            if global.json {
                let document = serde_json::json!({
                    "kind": windlass_postgres::KIND,
                    "name": name,
                    "version": version,
                    "writable": writable,
                    "seconds": seconds,
                    "steps": steps.iter().map(step).collect::<Vec<_>>(),
                    "conninfo": conninfo,
                    "host": to.host,
                    "port": to.port,
                    "user": to.user,
                    "dbname": to.database,
                    "directory": directory,
                    "log": server.log(),
                    "warnings": warnings(server),
                });
                return output::line(&document.to_string());
            }
            output::line(&format!(
                "opened        PostgreSQL {version}, {mode}, in {seconds:.2} s"
            ));
            steps.iter().for_each(say_step);
            output::line(&format!("connect       psql \"{conninfo}\""));
            output::line(&format!("log           {log}"));
        }
        Opened::Sqlite { database, .. } => {
            if global.json {
                let document = serde_json::json!({
                    "kind": windlass_sqlite::KIND,
                    "name": name,
                    "writable": writable,
                    "seconds": seconds,
                    "path": database,
                    "directory": directory,
                });
                return output::line(&document.to_string());
            }
            output::line(&format!("opened        SQLite, {mode}, in {seconds:.2} s"));
            output::line(&format!("path          {}", database.display()));
        }
    }
    let ends = match name {
        Some(name) => format!("windlass close {name}"),
        None => "Ctrl-C".to_owned(),
    };
    output::line(&format!(
        "ends          with {ends}; the set is not changed"
    ));
}

/// Where the time went: what the server does not account for was the mount's.
fn steps(server: &Server, took: Duration) -> Vec<(&'static str, f64)> {
    let phases = server.phases().iter().copied();
    let known: Duration = phases.clone().map(|(_, took)| took).sum();
    let mount = ("mounting the image", took.saturating_sub(known));
    let all = std::iter::once(mount).chain(phases);
    all.map(|(name, took)| (name, took.as_secs_f64())).collect()
}

fn say_step((name, seconds): &(&'static str, f64)) {
    output::line(&format!("step          {seconds:>7.3} s  {name}"));
}

/// The same as JSON.
fn step((name, seconds): &(&'static str, f64)) -> serde_json::Value {
    serde_json::json!({ "name": name, "seconds": seconds })
}

fn command(opened: &Opened, words: &[OsString]) -> Command {
    let mut command = match opened {
        Opened::Postgres { server, .. } => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            for (name, value) in server.connection().environment() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command
        }
        Opened::Sqlite { database, .. } => {
            let words: Vec<_> = words.iter().map(|word| with_path(word, database)).collect();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).env("WINDLASS_DATABASE", database);
            command
        }
    };
    command.env("WINDLASS_OPEN_DIR", opened.view().at());
    command
}

/// A word of the command with the database's path in its place.
fn with_path(word: &OsStr, path: &std::path::Path) -> OsString {
    let mut bytes = word.as_bytes();
    let mut made = Vec::new();
    while let Some(at) = bytes
        .windows(PATH_PLACE.len())
        .position(|part| part == PATH_PLACE)
    {
        made.extend_from_slice(&bytes[..at]);
        made.extend_from_slice(path.as_os_str().as_bytes());
        bytes = &bytes[at + PATH_PLACE.len()..];
    }
    made.extend_from_slice(bytes);
    OsString::from_vec(made)
}

/// The exit code of a program, as a shell gives it.
fn code(status: ExitStatus) -> u8 {
    let number = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or(0),
    };
    saturated(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_become_the_path_wherever_they_stand() {
        let put = |word: &str| with_path(word.as_ref(), "/a b/{}".as_ref());
        assert_eq!(put("{}"), "/a b/{}");
        assert_eq!(put("file:{}?mode=ro,{}"), "file:/a b/{}?mode=ro,/a b/{}");
        assert_eq!(put("{"), "{");
    }
}
