//! Values that the command line takes as plain text or as plain numbers. The command that uses such
//! a value checks it later. In a file, nobody would notice a mistake before that command runs, so
//! every command checks them all.

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use windlass_engine::media::saturated;
use windlass_engine::{BufferRequest, TRANSFER_BYTES_MAX, parse_size};
use windlass_model::{Emulation, Model};

use windlass_operations::keys::check_key;

use crate::compression::Compression;
use crate::exit::Failure;
use crate::metrics::MetricsAddress;
use crate::nearest;

/// What to do about a value that only its own parser understands.
pub const CORRECT: &str = "Correct it there.";

/// Asks the option's own parser, then what the command itself will ask. `table` is the name of the
/// command's table.
pub fn parse(argument: &Arg, (table, name): (&str, &str), value: &str) -> Result<(), Failure> {
    let mut alone = Arg::new("value")
        .long(leak(name))
        .num_args(1)
        .value_parser(argument.get_value_parser().clone());
    if let Some(delimiter) = argument.get_value_delimiter() {
        alone = alone.value_delimiter(delimiter);
    }
    let command = Command::new("value").no_binary_name(true).arg(alone);
    let words = [format!("--{name}={value}")];
    if let Err(error) = command.try_get_matches_from(words) {
        let text = error.to_string();
        let text = text.lines().next().unwrap_or_default();
        let hint = match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(known)) => {
                let all = format!("It takes {}.", known.join(", "));
                let wrong = error
                    .get(ContextKind::InvalidValue)
                    .map(ToString::to_string);
                let known = known.iter().map(String::as_str);
                nearest::hint(&wrong.unwrap_or_default(), known, &all)
            }
            _ => CORRECT.to_owned(),
        };
        return Err(Failure::usage(text.trim_start_matches("error: "), &hint));
    }
    check(table, name, value)
}

/// A text that lives as long as the process, as clap wants them.
pub fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// The failure that a command would end with because of this value. `command` is the name of its
/// table.
fn check(command: &str, name: &str, value: &str) -> Result<(), Failure> {
    match name {
        "compress" => Ok(Compression::parse(value).map(drop)?),
        "encrypt" | "key" => Ok(check_key(value)?),
        "emulate" if command != "lab sweep" => {
            Emulation::parse(value.split(' ').filter(|word| !word.is_empty()))?;
            Ok(())
        }
        "source" | "target" if command == "plan" => model(value),
        "before" | "after" | "on-failure" => hook(name, value),
        "metrics" => Ok(MetricsAddress::parse(value).map(drop)?),
        "to" if command != "lab sweep" => device(value),
        _ if command == "lab sweep" => Ok(()),
        _ => number(name, value),
    }
}

/// In the table of `plan`, a source and a target are models of storage, or paths.
fn model(value: &str) -> Result<(), Failure> {
    if !value.starts_with(['/', '.']) {
        Model::parse(value)?;
    }
    Ok(())
}

/// A device has a name, whether it is there or not.
fn device(value: &str) -> Result<(), Failure> {
    match value.trim().is_empty() {
        true => Err(Failure::usage(
            "a device has no name",
            "Name a file, a directory or nul.",
        )),
        false => Ok(()),
    }
}

/// As `Hooks` reads it.
fn hook(name: &str, value: &str) -> Result<(), Failure> {
    match shlex::split(value) {
        Some(_) => Ok(()),
        None => Err(Failure::usage(
            format!("--{name}: {value:?} has a quote without its end"),
            "Write a program and its arguments, as for a shell but without its other signs.",
        )),
    }
}

/// Buffers and threads. clap has read the value as a number before.
fn number(name: &str, value: &str) -> Result<(), Failure> {
    let Some(number) = parse_size(value)
        .ok()
        .and_then(|it| usize::try_from(it).ok())
    else {
        return Ok(());
    };
    let mut asked = BufferRequest {
        memory_limit: Some(u64::MAX),
        ..BufferRequest::default()
    };
    match name {
        "buffers" => asked.buffers = Some(number),
        "transfer-size" => asked.transfer_bytes = Some(number),
        "block-size" => asked.alignment = Some(saturated(number)),
        "threads" => asked.compressors = Some(number),
        "readers" => asked.readers = Some(number),
        "frame-size" => {
            asked.frame_bytes = Some(number);
            // Whether it fits into a transfer depends on the transfer size of the run.
            asked.transfer_bytes = Some(TRANSFER_BYTES_MAX);
        }
        _ => return Ok(()),
    }
    asked.plan(1, 1)?;
    Ok(())
}
