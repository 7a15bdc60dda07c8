//! Completes words of the command line: sets, configured databases, codecs, devices.
//!
//! The script that `windlass completions` prints asks the program itself about each word, through
//! an environment variable. So it also completes a name that was configured a minute ago.

mod sets;

use std::ffi::OsStr;
use std::io;

use clap::Arg;
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::Shells;

use crate::config;

/// The shell puts its question into this variable.
const VARIABLE: &str = "WINDLASS_COMPLETE";

const CODECS: [&str; 9] = [
    "none", "lz4", "zstd", "zstd:-3", "zstd:1", "zstd:3", "zstd:9", "zstd:19", "auto",
];

/// If the shell is asking, this answers and ends the process.
pub fn answer() {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Writes the script that a shell runs when it starts.
pub fn script(shell: clap_complete::Shell, out: &mut dyn io::Write) -> io::Result<()> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&name);
    let completer =
        completer.ok_or_else(|| io::Error::other(format!("no completions for {name}")))?;
    completer.write_registration(VARIABLE, "windlass", "windlass", "windlass", out)
}

/// The command line, with the completion of each argument.
fn command() -> clap::Command {
    with_completers(config::cli())
}

fn with_completers(command: clap::Command) -> clap::Command {
    command.mut_args(complete).mut_subcommands(with_completers)
}

fn complete(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "which" => return argument.add(ArgValueCompleter::new(sets::ids)),
        "of" => return argument.add(ArgValueCompleter::new(sets::databases)),
        _ => {}
    }
    let value = argument.get_value_names().and_then(|names| names.first());
    let value = value.map_or_else(
        || argument.get_id().as_str().to_uppercase(),
        ToString::to_string,
    );
    match value.as_str() {
        "SET" => argument.add(ArgValueCompleter::new(sets::stripes)),
        "IMAGE" => argument.add(ArgValueCompleter::new(sets::images)),
        "DATABASE" | "DATABASES" => argument.add(ArgValueCompleter::new(databases)),
        "DEVICE" => argument.add(ArgValueCompleter::new(devices)),
        "CODEC" => argument.add(ArgValueCompleter::new(codecs)),
        "DIRECTORY" => argument.add(ArgValueCompleter::new(PathCompleter::dir())),
        "FILE" | "PATH" => argument.add(ArgValueCompleter::new(PathCompleter::any())),
        _ => argument,
    }
}

/// Configured names, then files. A configuration that cannot be read offers no names.
fn databases(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut offered = words(current, config::database_names());
    offered.extend(PathCompleter::any().complete(current));
    offered
}

fn devices(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut offered = words(current, ["nul".to_owned()]);
    offered.extend(PathCompleter::any().complete(current));
    offered
}

fn codecs(current: &OsStr) -> Vec<CompletionCandidate> {
    words(current, CODECS.map(ToOwned::to_owned))
}

/// The words that begin with the current one.
fn words(current: &OsStr, words: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let words = words.into_iter().filter(|word| word.starts_with(&*begun));
    words.map(CompletionCandidate::new).collect()
}
