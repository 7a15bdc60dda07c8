//! The `windlass` command: arguments, configuration, progress, output, exit codes.
//!
//! Invariants
//! - This crate alone prints. Results go to standard output, everything else to standard error.
//! - With `--json` standard output carries one JSON object and nothing else.
//! - Started by root, it becomes the database's owner before it reads or writes anything.

mod advice;
mod checks;
mod cli;
mod command;
mod completions;
mod config;
mod damage;
mod database;
mod devices;
mod exit;
mod foretold;
mod hooks;
mod images;
mod log;
mod metrics;
mod opened;
mod output;
mod outputs;
mod places;
mod privilege;
mod probed;
mod progress;
mod run;
mod scratch;
mod status;
mod table;
mod terminal;
mod watch;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    completions::answer();
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match config::parse(&arguments) {
        Ok(cli) => cli,
        Err(config::Failed::Config(failure)) => return failure.report(false),
        Err(config::Failed::Clap(error)) => {
            // `--help` and `--version` arrive here too, and are no errors.
            let code = if error.use_stderr() {
                exit::Code::Usage
            } else {
                exit::Code::Done
            };
            match error.use_stderr() {
                // It repeats what was typed, which may be a file's name.
                true => error.to_string().lines().for_each(output::note),
                false => error.print().unwrap_or_else(output::keep),
            }
            return ended(code).map_or_else(|failure| failure.report(false), ExitCode::from);
        }
    };
    terminal::set_color(cli.global.color);
    let json = cli.global.json;
    if let Err(failure) = log::open(&cli.global, &arguments) {
        return failure.report(json);
    }
    let ended = command::run(cli).and_then(ended);
    let code = match &ended {
        Ok(code) => *code,
        Err(failure) => failure.code(),
    };
    let exit_code = match ended {
        Ok(code) => code.into(),
        // Nobody reads a document on an output that has failed.
        Err(failure) => failure.report(json && output::failure().is_none()),
    };
    log::ended(code);
    exit_code
}

/// The end of a command that did its work: a failure if nobody has its result.
fn ended(code: exit::Code) -> Result<exit::Code, exit::Failure> {
    match (code, output::failure()) {
        (exit::Code::Done | exit::Code::Warnings, Some(failure)) => Err(failure),
        _ => Ok(code),
    }
}
