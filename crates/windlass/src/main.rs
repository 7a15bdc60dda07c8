//! The `windlass` command: arguments, configuration, progress, output, exit codes.
//!
//! Invariants
//! - Only this crate prints. Results go to standard output, everything else to standard error.
//! - With `--json` standard output carries one JSON object and nothing else.
//! - If root starts it, it becomes the database's owner before it reads or writes anything.

mod advice;
mod ask;
mod checks;
mod cli;
mod clock;
mod command;
mod completions;
mod config;
mod damage;
mod exit;
mod hints;
mod log;
mod notify;
mod observer;
mod output;
mod progress;
mod requests;
mod signals;
mod table;
mod terminal;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::SystemTime;

use windlass_operations::{
    compression, database, devices, foretold, images, metrics, nearest, outputs, places, status,
    warnings,
};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if !fetches(&arguments) {
        return run(&arguments, exit::Code::Failed.number()).0;
    }
    // A server that recovers takes most codes for the end of its log. Whatever goes wrong here must
    // not look like that: not a mistyped option, and not a fault of this program.
    let end = std::panic::catch_unwind(|| run(&arguments, exit::COULD_NOT_TELL));
    match end {
        Ok((code, true)) => code,
        _ => exit::of_failed_fetch(),
    }
}

/// Whether a server asks for a file of its log.
fn fetches(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    words.any(|word| word == "archive-get")
}

/// Runs the command. Returns the exit code, and whether the command did its work.
fn run(arguments: &[OsString], of_abort: u8) -> (ExitCode, bool) {
    signals::end_at_once();
    signals::take_file_size_limit();
    signals::end_on_abort(of_abort);
    completions::answer();
    let cli = match understood(arguments) {
        Ok(cli) => cli,
        Err(config::Failed::Config(failure)) => {
            return failed(&failure, config::wants_json(arguments));
        }
        Err(config::Failed::Clap(error)) => {
            // `--help` and `--version` also arrive here, but they are not errors.
            let code = if error.use_stderr() {
                exit::Code::Usage
            } else {
                exit::Code::Done
            };
            match error.use_stderr() {
                // The message repeats the user's words, which may contain the name of a file.
                true => misused(&error.to_string(), config::wants_json(arguments)),
                false => output::help(&error),
            }
            return match ended(code) {
                Ok(code) => (code.into(), code == exit::Code::Done),
                Err(failure) => failed(&failure, false),
            };
        }
    };
    terminal::set_color(cli.global.color);
    let json = cli.global.json;
    let logged = match cli::named_files(&cli) {
        Ok(named) => log::open(&cli.global, arguments, &named),
        Err(error) => Err(error.into()),
    };
    if let Err(failure) = logged {
        return failed(&failure, json);
    }
    let notifier = notify::Notifier::of(&cli);
    let checked = cli::check_paths(&cli);
    let ended = checked.and_then(|()| command::run(cli)).and_then(ended);
    let code = match &ended {
        Ok(code) => *code,
        Err(failure) => failure.code(),
    };
    let exit_code = match ended {
        Ok(code) => (code.into(), true),
        // If standard output has failed, nobody can read a document there.
        Err(failure) => failed(&failure, json && output::failure().is_none()),
    };
    if let Some(fault) = words::zone_fault() {
        output::note(&format!(
            "warning: times are in UTC, because of TZ: {fault}"
        ));
    }
    if let Some(fault) = notifier.ended(code) {
        output::note(&format!("warning: {fault}"));
    }
    log::ended(code);
    exit_code
}

/// The command line. It may have times, so the clock is looked at first.
fn understood(arguments: &[OsString]) -> Result<cli::Cli, config::Failed> {
    clock::check(SystemTime::now()).map_err(config::Failed::Config)?;
    config::parse(arguments)
}

/// Prints a failure.
fn failed(failure: &exit::Failure, json: bool) -> (ExitCode, bool) {
    (output::report(failure, json), false)
}

/// Prints what is wrong with the command line.
fn misused(text: &str, json: bool) {
    text.lines().for_each(output::note);
    if json {
        let first = text.lines().next().unwrap_or_default();
        let document = serde_json::json!({
            "error": first.trim_start_matches("error: "),
            "hint": null,
            "exit_code": exit::Code::Usage.number(),
        });
        output::line(&document.to_string());
    }
}

/// The end of a command that did its work. It is a failure if nobody received the result.
fn ended(code: exit::Code) -> Result<exit::Code, exit::Failure> {
    let code = output::degraded(code);
    match (code, output::failure()) {
        (exit::Code::Done | exit::Code::Warnings, Some(failure)) => Err(failure),
        _ => Ok(code),
    }
}
