//! One file for each command. What several commands share is in this file.

mod backup;
mod check;
mod diff;
mod events;
mod extract;
mod info;
mod lab;
mod manual;
mod mount;
mod open;
mod plan;
mod restore;
mod status;
mod sweep;
mod tune;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use windlass_engine::{
    BufferPlan, BufferRequest, Cancel, FoundSet, METADATA_LIMIT_DEFAULT, OpenSet, OpenStripe,
    RestoreOptions, target_writers,
};
use windlass_model::Emulation;

use crate::cli::{Buffers, Cli, Command, Global, Layout};
use crate::exit::{Code, Failure};

/// Runs the command that the command line names.
pub fn run(cli: Cli) -> Result<Code, Failure> {
    let global = &cli.global;
    match cli.command {
        Command::Backup(arguments) => backup::run(global, &arguments),
        Command::Check(arguments) => check::run(global, &arguments),
        Command::Restore(arguments) => restore::run(global, &arguments),
        Command::Verify(arguments) => verify::run(global, &arguments),
        Command::Info(arguments) => info::run(global, &arguments),
        Command::Diff(arguments) => diff::run(global, &arguments),
        Command::Events(arguments) => events::run(global, &arguments),
        Command::Extract(arguments) => extract::run(global, &arguments),
        Command::Mount(arguments) => mount::run(global, &arguments),
        Command::Status => status::run(global),
        Command::Plan(arguments) => plan::run(global, &arguments),
        Command::Tune(arguments) => tune::run(global, &arguments),
        Command::Lab(arguments) => lab::run(global, &arguments),
        Command::Open(arguments) => open::run(global, &arguments),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { into } => manual::pages(&into),
    }
}

/// A flag that SIGINT, SIGTERM and SIGHUP set.
fn cancel_on_signals() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if is_ignored(signal) {
            continue;
        }
        let flag = cancel.flag();
        // A second signal ends the process at once. The next run cleans up what was half done.
        let end = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag));
        end.and_then(|_| signal_hook::flag::register(signal, flag))
            .map_err(|error| {
                Failure::new(
                    Code::Failed,
                    format!("cannot handle signals: {error}"),
                    "Try again.",
                )
            })?;
    }
    Ok(cancel)
}

/// Whether the caller wants this process to ignore a signal. `nohup` wants that for SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    // SigIgn in /proc/self/status has one bit for each signal; the lowest bit is signal 1.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// The models that storage has to imitate.
fn emulation(buffers: &Buffers) -> Result<Emulation, Failure> {
    Ok(Emulation::parse(
        buffers.bounds.emulate.iter().map(String::as_str),
    )?)
}

/// The user's settings in the form that the engine takes.
fn request(buffers: &Buffers, layout: &Layout) -> Result<BufferRequest, Failure> {
    let narrow = |option, value: Option<u64>| {
        value
            .map(|value| {
                usize::try_from(value).map_err(|_| {
                    Failure::usage(format!("{option}: {value} is too large"), "Lower it.")
                })
            })
            .transpose()
    };
    Ok(BufferRequest {
        buffers: buffers.buffers,
        transfer_bytes: narrow("--transfer-size", buffers.transfer_size)?,
        alignment: layout
            .block_size
            .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        frame_bytes: narrow("--frame-size", layout.frame_size)?,
        compressors: buffers.threads,
        readers: layout.readers,
        memory_limit: buffers.bounds.max_memory,
    })
}

/// Buffers for reading a set. Each stripe is a volume with one reader. `keeps` says whether the
/// data that are read go anywhere.
fn restore_options(
    set: &FoundSet,
    buffers: &Buffers,
    max_rate: Option<u64>,
    keeps: bool,
) -> Result<RestoreOptions, Failure> {
    let one_each = Layout {
        readers: Some(1),
        ..Layout::default()
    };
    // A damaged set may have no stripe that can be read.
    let stripes = set.stripes().len().max(1);
    let plan = request(buffers, &one_each)?.plan(stripes, 1)?;
    let first = set.stripes().first().map(OpenStripe::header);
    let plan = BufferPlan {
        readers: stripes,
        writers: target_writers(keeps),
        alignment: first.map_or(plan.alignment, |header| header.alignment),
        frame_bytes: first.map_or(plan.frame_bytes, |header| header.frame_bytes as usize),
        ..plan
    };
    let options = RestoreOptions {
        plan,
        device_rate: max_rate,
        ring: !buffers.no_ring,
        pacing: emulation(buffers)?.pacing(),
    };
    Ok(options.fit(set)?)
}

/// The set that these stripes belong to.
pub fn open(stripes: &[PathBuf]) -> Result<OpenSet, Failure> {
    Ok(OpenSet::open(stripes, METADATA_LIMIT_DEFAULT)?)
}

/// Whether nothing but a result that was asked for is to be printed: no notes, no progress.
fn is_silent(global: &Global) -> bool {
    global.json || global.quiet
}
