//! The log of runs: what was started with which settings, what it did, and how it ended.
//!
//!   messages, warnings, errors --> `write` --> a file, syslog, or the systemd journal
//!
//! Lines of a file: `TIME windlass[PROCESS] LEVEL: COMMAND: TEXT`.
//!
//! Invariants
//! - Each line is a single write at the end of the file. So the lines of simultaneous runs may
//!   alternate, but never mix.
//! - A file that is not a log of Windlass is never written to, nor one that the command line names
//!   for another purpose.
//! - If the log can no longer be written, the run goes on. Windlass warns once, and the exit code
//!   becomes 3. The same holds if the log cannot even be opened: no backup fails for its log. A
//!   command that asks a question notes it, and no more.
//! - No password reaches a log.

mod file;
mod socket;

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use windlass_engine::{BufferPlan, EngineError, Outputs, counted, show_size};
use windlass_postgres::user_shown;

use crate::cli::{Global, LogLevel};
use crate::exit::{Code, Failure};
use crate::output::screen;
use crate::outputs;
pub use windlass_operations::hidden;

/// There is one log in each process. Everything that is printed anywhere reaches it.
static LOG: OnceLock<Mutex<Log>> = OnceLock::new();

/// Commands that only answer a question. Whether the answer is logged changes nothing about it.
/// Another user often owns the log, for example root, who runs the backups. `check` is none of
/// them: it says how a backup would end, and a backup that is not logged ends with 3.
const ASKING: [&str; 8] = [
    "info",
    "history",
    "status",
    "diff",
    "plan",
    "events",
    "man",
    "completions",
];

struct Log {
    level: LogLevel,
    /// The command that is logged. It comes before the text of each line.
    command: String,
    /// Whether it only answers a question.
    is_asking: bool,
    sink: Sink,
    has_failed: bool,
}

enum Sink {
    File(file::LogFile),
    Socket(socket::Socket),
    /// The log was withdrawn.
    Nothing,
}

/// Opens the log that the command line asks for, and logs the command. `named` are the files that
/// the command line names for other purposes.
pub fn open(global: &Global, arguments: &[OsString], named: &Outputs) -> Result<(), Failure> {
    let Some(place) = &global.log else {
        return Ok(());
    };
    if let Some(Err(error)) = file(global).map(|path| named.check(path)) {
        return unopened(global, place, error);
    }
    let sink = match place.split_once(':').unwrap_or((place, "")) {
        ("journal", path) => socket::Socket::journal(path).map(Sink::Socket),
        ("syslog", path) => socket::Socket::syslog(path).map(Sink::Socket),
        _ => match file::LogFile::open(place.as_ref()) {
            Ok(file) => Ok(Sink::File(file)),
            Err(error) => return unopened(global, place, error),
        },
    };
    let sink = match sink {
        Ok(sink) => sink,
        Err((what, hint)) => {
            not_logged(global, &what, &hint);
            return Ok(());
        }
    };
    let words = arguments.iter().skip(1);
    let words: Vec<_> = words.map(|word| hidden(&word.to_string_lossy())).collect();
    let log = Log {
        level: global.log_level,
        command: global.command.clone(),
        is_asking: is_asking(global),
        sink,
        has_failed: false,
    };
    // `main` calls this once.
    LOG.set(Mutex::new(log)).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let user = user_shown(rustix::process::geteuid().as_raw());
    info(&format!(
        "started by {user}, windlass {version}: {}",
        words.join(" ")
    ));
    Ok(())
}

fn is_asking(global: &Global) -> bool {
    ASKING.contains(&global.command.as_str())
}

/// Says that the log cannot be opened. The command goes on.
fn not_logged(global: &Global, what: &str, hint: &str) {
    // The process that started this one in the background has said it already.
    if std::env::args_os().any(|word| word == "--detached") {
        screen::degrade_silently();
    } else if !is_asking(global) {
        screen::degrade(&format!("this run is not logged: {what}"));
        screen::unlogged(&format!("hint: {hint}"));
    } else if !global.is_silent() {
        screen::unlogged(&format!("note: this command is not logged: {what}"));
    }
}

/// A run goes on without its log, with a warning, unless the log would go where it may not be.
fn unopened(global: &Global, place: &str, error: EngineError) -> Result<(), Failure> {
    let is_of_place = outputs::is_of_place(&error);
    let why = match error {
        EngineError::OutputForeign { noun, .. } => format!("it is not {noun}"),
        EngineError::OutputRefused { what, .. } => what,
        EngineError::OutputIo { source, .. } => source.to_string(),
        error => error.to_string(),
    };
    let from = global.log_from;
    let what = format!("cannot append to the log {place}, which {from} names: {why}");
    let hint = "Name a new file, an empty one or a log of Windlass, in a directory that can be \
                written to. If several users run Windlass, name syslog or journal.";
    if is_of_place {
        not_logged(global, &what, hint);
        return Ok(());
    }
    Err(Failure::new(Code::Failed, what, hint))
}

/// Removes the log again if this process created it, because the run needs its path for something
/// else. Nothing is logged after that.
pub fn withdraw() {
    let Some(log) = LOG.get() else { return };
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if let Sink::File(file) = &mut log.sink
        && file.withdraw()
    {
        log.sink = Sink::Nothing;
    }
}

/// The file of the log, if the log goes to a file.
pub fn file(global: &Global) -> Option<&Path> {
    let place = global.log.as_deref()?;
    match place.split_once(':').unwrap_or((place, "")) {
        ("journal" | "syslog", _) => None,
        _ => Some(place.as_ref()),
    }
}

/// Logs something that ends a run or went wrong in it.
pub fn error(text: &str) {
    write(LogLevel::Error, text);
}

/// Logs something that a person should know although the run goes on.
pub fn warn(text: &str) {
    write(LogLevel::Warn, text);
}

/// Logs a step of a run.
pub fn info(text: &str) {
    write(LogLevel::Info, text);
}

/// Logs everything else.
pub fn debug(text: &str) {
    write(LogLevel::Debug, text);
}

/// Logs what was printed for the person who watches. Errors and warnings keep their level.
pub fn told(text: &str) {
    if let Some(text) = text.strip_prefix("error: ") {
        error(text);
    } else if let Some(text) = text.strip_prefix("warning: ") {
        warn(text);
    } else if text.starts_with("hint: ") {
        error(text);
    } else {
        debug(text);
    }
}

/// Logs the buffers and threads of a run that is about to start.
pub fn settings(plan: &BufferPlan, codec: Option<&str>) {
    let codec = codec.map_or(String::new(), |codec| format!(", {codec}"));
    info(&format!(
        "settings: {} buffers of {}, {}, {}, {}{codec}",
        plan.buffers,
        show_size(plan.transfer_bytes as u64),
        counted(plan.readers as u64, "reader"),
        counted(plan.compressors as u64, "compressor"),
        counted(plan.writers as u64, "writer")
    ));
}

/// Logs how the command ended.
pub fn ended(code: Code) {
    let text = format!("ended: exit code {}", code.number());
    match code {
        Code::Done | Code::Program(_) => info(&text),
        Code::Warnings => warn(&text),
        _ => error(&text),
    }
}

fn write(level: LogLevel, text: &str) {
    let Some(log) = LOG.get() else { return };
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if level > log.level || text.trim().is_empty() {
        return;
    }
    // Without control characters, a line stays one line and cannot control a terminal.
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let text: String = text.chars().map(plain).collect();
    let text = format!("{}: {text}", log.command);
    let written = match &mut log.sink {
        Sink::File(file) => file.write(level, &text),
        Sink::Socket(socket) => socket.write(level, &text),
        Sink::Nothing => Ok(()),
    };
    match written {
        Err(error) if !log.has_failed => {
            log.has_failed = true;
            let is_asking = log.is_asking;
            drop(log);
            // `note` would write to this log again.
            match is_asking {
                true => screen::unlogged(&format!("note: the log cannot be written: {error}")),
                false => screen::degrade(&format!("the log cannot be written: {error}")),
            }
        }
        _ => {}
    }
}
