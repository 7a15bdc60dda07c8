//! The `windlass` command: arguments, configuration, progress, output, exit codes.
//!
//! Invariants
//! - This crate alone prints. Results go to standard output, everything else to standard error.
//! - With `--json` standard output carries one JSON object and nothing else.
//! - Started by root, it becomes the database's owner before it reads or writes anything.

mod cli;
mod command;
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
mod privilege;
mod probed;
mod progress;
mod scratch;
mod status;
mod table;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
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
            error.print().unwrap_or_default();
            return code.into();
        }
    };
    let json = cli.global.json;
    match command::run(cli) {
        Ok(code) => code.into(),
        Err(failure) => failure.report(json),
    }
}
