//! `windlass lab`: experiments on this machine's storage and cores.

mod rehearse;

use std::path::Path;
use std::time::Duration;

use windlass_engine::{Cancel, show_rate};
use windlass_lab::{
    CODECS, CpuProfile, Knee, Operation, Pattern, Point, ProbeRequest, Profile, measure_memory,
    probe, state_directory,
};

use super::plan::measure;
use crate::cli::{Global, Lab, Probe};
use crate::exit::{Code, Failure};
use crate::output;
use windlass_engine::show_size;

/// How long checksums and copies are measured.
const MEMORY_TIME: Duration = Duration::from_millis(600);

pub fn run(global: &Global, arguments: &Lab) -> Result<Code, Failure> {
    match arguments {
        Lab::Probe(arguments) => run_probe(global, arguments),
        Lab::Rehearse(arguments) => rehearse::run(global, arguments),
        Lab::Sweep(arguments) => super::sweep::run(global, arguments),
    }
}

fn run_probe(global: &Global, arguments: &Probe) -> Result<Code, Failure> {
    let cancel = super::cancel_on_signals()?;
    let state = state_directory().filter(|_| !arguments.no_keep);
    let at = jiff::Timestamp::now().to_string();
    let cpu = cpu_profile(global, arguments, at.clone())?;
    let profile = match &arguments.path {
        Some(path) => Some(io_profile(global, arguments, path, (at, &cancel))?),
        None => None,
    };
    let mut kept = Vec::new();
    if let Some(state) = &state {
        // Speeds of codecs are of a database: without one, those kept before stay.
        let older = CpuProfile::load(state).unwrap_or_default();
        let speeds = cpu.speeds.clone().or(older.and_then(|older| older.speeds));
        kept.push(
            CpuProfile {
                speeds,
                ..cpu.clone()
            }
            .save(state)?,
        );
        if let Some(profile) = &profile {
            kept.push(profile.save(state)?);
        }
    }
    if global.json {
        let document = serde_json::json!({ "cpu": cpu, "io": profile, "kept": kept });
        output::line(&document.to_string());
        return Ok(Code::Done);
    }
    if let Some(profile) = &profile {
        show_io(profile);
    }
    show_cpu(&cpu);
    for path in kept {
        output::line(&format!("kept          {}", path.display()));
    }
    Ok(Code::Done)
}

fn cpu_profile(global: &Global, arguments: &Probe, at: String) -> Result<CpuProfile, Failure> {
    let note = |text: &str| {
        if !super::is_silent(global) {
            output::note(text);
        }
    };
    let speeds = match &arguments.database {
        Some(database) => {
            note("measuring codecs on a sample of the database");
            Some(measure(database, &CODECS)?.speeds)
        }
        None => None,
    };
    Ok(CpuProfile::new(at, speeds, measure_memory(MEMORY_TIME)))
}

fn io_profile(
    global: &Global,
    arguments: &Probe,
    path: &Path,
    (at, cancel): (String, &Cancel),
) -> Result<Profile, Failure> {
    let directory = match path.is_dir() {
        true => path,
        false => path
            .parent()
            .filter(|parent| parent.is_dir())
            .unwrap_or(path),
    };
    let silent = super::is_silent(global);
    let request = ProbeRequest {
        budget: Duration::from_secs_f64(arguments.budget),
        scratch_bytes: arguments.scratch_bytes,
        at,
    };
    if !silent {
        output::note(&format!(
            "probing {} with a scratch file of {} for {:.0} s",
            directory.display(),
            show_size(request.scratch_bytes),
            arguments.budget
        ));
    }
    let mut tell = |index: usize, count: usize, point: &Point| {
        if !silent {
            output::note(&format!("{index:>4} of {count}  {}", point_text(point)));
        }
    };
    Ok(probe(directory, &request, cancel, &mut tell)?)
}

fn point_text(point: &Point) -> String {
    format!(
        "{:<22} {:>8} x {:<2}  {:>10}  {:>8.0} a second  p50 {:.0} us",
        kind(point.pattern, point.operation, point.direct),
        show_size(point.block_bytes),
        point.depth,
        show_rate(point.bytes_per_second),
        point.operations_per_second,
        point.latency_micros_p50
    )
}

fn kind(pattern: Pattern, operation: Operation, direct: bool) -> String {
    let pattern = match pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
    };
    let operation = match operation {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let way = if direct { "" } else { ", cached" };
    format!("{pattern} {operation}{way}")
}

fn show_io(profile: &Profile) {
    output::line(&format!(
        "device        {} ({}) at {}",
        profile.device.source,
        profile.device.file_system,
        profile.device.mount_point.display()
    ));
    output::line("");
    output::line("path                        best        knee           there");
    for knee in &profile.knees {
        output::line(&knee_text(knee));
    }
    output::line("");
}

fn knee_text(knee: &Knee) -> String {
    format!(
        "{:<22} {:>10}  {:>8} x {:<2}  {:>10}",
        kind(knee.pattern, knee.operation, knee.direct),
        show_rate(knee.best_bytes_per_second),
        show_size(knee.block_bytes),
        knee.depth,
        show_rate(knee.bytes_per_second),
    )
}

fn show_cpu(cpu: &CpuProfile) {
    if let Some(speeds) = &cpu.speeds {
        output::line(&format!("codecs on one core, {}", speeds.origin));
        for speed in &speeds.codecs {
            output::line(&format!(
                "{:<10} compresses {:>10}  decompresses {:>10}  ratio {:.2}",
                speed.codec,
                show_rate(speed.compress_bytes_per_second),
                show_rate(speed.decompress_bytes_per_second),
                speed.ratio
            ));
        }
    }
    let memory = &cpu.memory;
    output::line(&format!(
        "core          crc32c {}, blake3 {}, copy {}",
        show_rate(memory.crc32c_bytes_per_second),
        show_rate(memory.blake3_bytes_per_second),
        show_rate(memory.copy_bytes_per_second)
    ));
}
