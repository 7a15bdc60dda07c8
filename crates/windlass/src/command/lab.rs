//! `windlass lab`: experiments on this machine's storage and cores.

mod rehearse;

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::{Cancel, show_rate};
use windlass_lab::{
    CODECS, CpuProfile, Knee, Operation, Pattern, Point, ProbeRequest, Profile, Worse,
    measure_memory, probe, state_directory,
};

use super::plan::measure;
use crate::cli::{Global, Lab, Probe};
use crate::exit::{Code, Failure};
use crate::output;
use crate::outputs::outputs;
use crate::signals;
use windlass_engine::show_size;

/// The output mentions a spread above this.
const UNEVEN: f64 = 0.25;

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
    let cancel = signals::cancel_on_signals()?;
    let directory = match &arguments.path {
        Some(path) => Some(probed_directory(path)?),
        None => None,
    };
    let state = state_directory().filter(|_| !arguments.no_keep);
    let at = jiff::Timestamp::now().to_string();
    let cpu = cpu_profile(global, arguments, at.clone())?;
    let profile = match directory {
        Some(directory) => Some(io_profile(global, arguments, directory, (at, &cancel))?),
        None => None,
    };
    let (mut kept, mut unkept) = (Vec::new(), Vec::new());
    if let Some(state) = &state {
        outputs().check(state)?;
        keep_cpu(state, &cpu, arguments.replace, (&mut kept, &mut unkept))?;
        if let Some(profile) = &profile {
            keep_io(state, profile, arguments.replace, (&mut kept, &mut unkept))?;
        }
    }
    if global.json {
        let document = serde_json::json!({
            "cpu": cpu, "io": profile, "kept": kept, "not_kept": unkept,
        });
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
    for text in unkept {
        output::line(&format!("not kept      {text}"));
    }
    Ok(Code::Done)
}

/// The files that were written, and sentences about what was not kept.
type Keeping<'a> = (&'a mut Vec<PathBuf>, &'a mut Vec<String>);

fn keep_cpu(
    state: &Path,
    cpu: &CpuProfile,
    replace: bool,
    (kept, unkept): Keeping<'_>,
) -> Result<(), Failure> {
    let older = CpuProfile::load(state).unwrap_or_default();
    let mut keep = cpu.clone();
    if let Some(older) = older {
        // Codecs are measured on a database. Without one, the speeds kept before stay.
        keep.speeds = keep.speeds.or(older.speeds.clone());
        if let Some(worse) = cpu.worse_than(&older).filter(|_| !replace) {
            unkept.push(worse_text("core", &worse, &older.at));
            keep.memory = older.memory;
        }
    }
    kept.push(keep.save(state)?);
    Ok(())
}

fn keep_io(
    state: &Path,
    profile: &Profile,
    replace: bool,
    (kept, unkept): Keeping<'_>,
) -> Result<(), Failure> {
    // A profile that cannot be read does not prevent a new one.
    let older = Profile::for_path(state, &profile.path).unwrap_or_default();
    let worse = older.and_then(|older| Some((profile.worse_than(&older)?, older.at)));
    match worse.filter(|_| !replace) {
        Some((worse, at)) => unkept.push(worse_text(&profile.device.source, &worse, &at)),
        None => kept.push(profile.save(state)?),
    }
    Ok(())
}

fn worse_text(device: &str, worse: &Worse, at: &str) -> String {
    format!(
        "{device}: {} is {} now and was {} at {at}, so the older profile stays; --replace takes \
         the new one",
        worse.what,
        show_rate(worse.found),
        show_rate(worse.before),
    )
}

/// The directory to probe: the path itself, or the directory of the file at the path.
fn probed_directory(path: &Path) -> Result<&Path, Failure> {
    let hint = "Name a directory, or a file, on the storage that you want to measure.";
    let found = std::fs::metadata(path).map_err(|error| {
        let message = format!("cannot probe {}: {error}", path.display());
        Failure::usage(message, hint)
    })?;
    if found.is_dir() {
        return Ok(path);
    }
    let parent = path
        .parent()
        .map(|parent| match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        });
    let none = || Failure::usage(format!("{} is in no directory", path.display()), hint);
    parent.ok_or_else(none)
}

fn cpu_profile(global: &Global, arguments: &Probe, at: String) -> Result<CpuProfile, Failure> {
    let note = |text: &str| {
        if !global.is_silent() {
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
    directory: &Path,
    (at, cancel): (String, &Cancel),
) -> Result<Profile, Failure> {
    outputs().check(directory)?;
    let silent = global.is_silent();
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
    output::line("path                          best  spread        knee           there");
    for knee in &profile.knees {
        output::line(&knee_text(knee));
    }
    let uneven = |knee: &&Knee| knee.spread.is_some_and(|spread| spread > UNEVEN);
    if profile.knees.iter().any(|knee| uneven(&knee)) {
        output::line("");
        output::line(
            "The spread is how much the fastest quarter of the time differs from the slowest. A \
             large one means that something else was using the storage, or that its speed changes \
             by itself: probe again when it is quiet.",
        );
    }
    output::line("");
}

fn knee_text(knee: &Knee) -> String {
    format!(
        "{:<24} {:>10}  {:>6}  {:>8} x {:<2}  {:>10}",
        kind(knee.pattern, knee.operation, knee.direct),
        show_rate(knee.best_bytes_per_second),
        knee.spread
            .map_or("-".to_owned(), |spread| format!("{:.0} %", spread * 100.0)),
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
