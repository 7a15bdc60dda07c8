//! The command line of the commands that a server starts for each file of its log, without all
//! others.
//!
//! To make every option of every command costs more than the rest of such a start. So these
//! command lines are read first by what can be said in them. What is not understood is read again
//! as part of the whole, which knows what else may have been meant, and has the help.

use std::ffi::OsString;

use clap::{Args, Command};

use crate::cli::{ArchiveGet, ArchivePush, Global};

/// Adds what a command takes.
type Augment = fn(Command) -> Command;

/// The commands that are started for each file.
const COMMANDS: [(&str, Augment); 2] = [
    ("archive-push", ArchivePush::augment_args),
    ("archive-get", ArchiveGet::augment_args),
];

/// The command line with one command, if a word names one of these. The word may as well be the
/// value of an option: then this command line is not understood.
pub fn of(arguments: &[OsString]) -> Option<Command> {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    let named = |word: &OsString| COMMANDS.iter().find(|(name, _)| word == name);
    let (name, augment) = words.find_map(named)?;
    let whole = Global::augment_args(Command::new("windlass"));
    let one = augment(Command::new(*name));
    Some(whole.subcommand_required(true).subcommand(one))
}
