//! The commands, one file for each.

mod archive;
mod backup;
mod check;
mod close;
mod detach;
mod diff;
mod drill;
mod events;
mod expire;
mod extract;
mod history;
mod hold;
mod info;
mod key;
mod lab;
mod manual;
mod merge;
mod mount;
mod open;
mod plan;
mod receive;
mod repair;
mod repair_set;
mod restore;
mod schedule;
mod snapshot;
mod status;
mod sweep;
mod tune;
mod verify;

use crate::cli::{Cli, Command};
use crate::exit::{Code, Failure};

/// Runs the command that the command line names.
pub fn run(cli: Cli) -> Result<Code, Failure> {
    let global = &cli.global;
    windlass_operations::add_keys(&global.key)?;
    match cli.command {
        Command::Backup(arguments) => backup::run(global, &arguments),
        Command::Check(arguments) => check::run(global, &arguments),
        Command::Restore(arguments) => restore::run(global, &arguments),
        Command::Verify(arguments) => verify::run(global, &arguments),
        Command::Info(arguments) => info::run(global, &arguments),
        Command::Diff(arguments) => diff::run(global, &arguments),
        Command::Drill(arguments) => drill::run(global, &arguments),
        Command::History(arguments) => history::run(global, &arguments),
        Command::Events(arguments) => events::run(global, &arguments),
        Command::Expire(arguments) => expire::run(global, &arguments),
        Command::Hold(arguments) => hold::run(global, &arguments),
        Command::Extract(arguments) => extract::run(global, &arguments),
        Command::Mount(arguments) => mount::run(global, &arguments),
        Command::Status => status::run(global),
        Command::Plan(arguments) => plan::run(global, &arguments),
        Command::Tune(arguments) => tune::run(global, &arguments),
        Command::Lab(arguments) => lab::run(global, &arguments),
        Command::Open(arguments) => open::run(global, &arguments),
        Command::Close(arguments) => close::run(global, &arguments),
        Command::Snapshot(arguments) => snapshot::run(global, &arguments),
        Command::ArchivePush(arguments) => archive::push(global, &arguments),
        Command::Key(key) => key::run(global, &key),
        Command::Merge(arguments) => merge::run(global, &arguments),
        Command::Repair(arguments) => repair::run(global, &arguments),
        Command::RepairSet(arguments) => repair_set::run(global, &arguments),
        Command::Receive(arguments) => receive::run(global, &arguments),
        Command::ArchiveGet(arguments) => archive::get(global, &arguments),
        Command::Schedule(arguments) => schedule::run(global, &arguments),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { into } => manual::pages(&into),
    }
}
