//! The `windlass` command: arguments, configuration, progress, output, exit codes.
//!
//! Invariants
//! - This crate alone prints. Results go to standard output, everything else to standard error.
//! - With `--json` standard output carries one JSON object and nothing else.
//! - Started by root, it becomes the database's owner before it reads or writes anything.

mod cli;
mod command;
mod completions;
mod config;
mod damage;
mod database;
mod devices;
mod exit;
mod foretold;
mod images;
mod metrics;
mod opened;
mod output;
mod outputs;
mod places;
mod privilege;
mod probed;
mod progress;
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
            return ended(code);
        }
    };
    terminal::set_color(cli.global.color);
    let json = cli.global.json;
    match command::run(cli) {
        Ok(code) => ended(code),
        Err(failure) => failure.report(json),
    }
}

/// The exit code of a command that came to its end: not that of success if nobody has its result.
fn ended(code: exit::Code) -> ExitCode {
    match (code, output::failure()) {
        (exit::Code::Done | exit::Code::Warnings, Some(failure)) => failure.report(false),
        _ => code.into(),
    }
}
