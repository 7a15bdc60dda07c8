//! `windlass lab`: experiments on this machine's storage and cores.

mod pages;
mod rehearse;
mod snapshots;

use std::time::Duration;

use windlass_engine::show_rate;
use windlass_lab::{CpuProfile, Knee, Profile};
use windlass_object::Spent;
use windlass_operations::probing::{ProbeOutcome, ProbeRequest, Unkept, probe};

use crate::cli::{Global, Lab, Probe};
use crate::exit::{Code, Failure};
use crate::output;
use crate::requests;
use crate::signals;
use crate::words::path_kind as kind;
use windlass_engine::show_size;

/// The output mentions a spread above this.
const UNEVEN: f64 = 0.25;

pub fn run(global: &Global, arguments: &Lab) -> Result<Code, Failure> {
    match arguments {
        Lab::Probe(arguments) => run_probe(global, arguments),
        Lab::Rehearse(arguments) => rehearse::run(global, arguments),
        Lab::Pages(arguments) => pages::run(global, arguments),
        Lab::Sweep(arguments) => super::sweep::run(global, arguments),
        Lab::Snapshots(arguments) => snapshots::run(global, arguments),
    }
}

fn run_probe(global: &Global, arguments: &Probe) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let request = ProbeRequest {
        path: arguments.path.clone(),
        database: arguments.database.clone(),
        budget: Duration::from_secs_f64(arguments.budget),
        scratch_bytes: arguments.scratch_bytes,
        keep: !arguments.no_keep,
        replace: arguments.replace,
    };
    let ProbeOutcome {
        cpu,
        io: profile,
        spent,
        kept,
        unkept,
    } = probe(&requests::quiet_caller(global), &request, &cancel)?;
    let unkept: Vec<_> = unkept.iter().map(unkept_text).collect();
    if global.json {
        let spent = spent.map(|spent| {
            serde_json::json!({
                "requests": spent.requests,
                "sent_bytes": spent.sent_bytes,
                "received_bytes": spent.received_bytes,
            })
        });
        let document = serde_json::json!({
            "cpu": cpu, "io": profile, "spent": spent, "kept": kept, "not_kept": unkept,
        });
        output::line(&document.to_string());
        return Ok(Code::Done);
    }
    if let Some(profile) = &profile {
        show_io(profile);
    }
    show_cpu(&cpu);
    if let Some(spent) = spent {
        output::line(&format!("spent         {}", spent_text(&spent)));
    }
    for path in kept {
        output::line(&format!("kept          {}", path.display()));
    }
    for text in unkept {
        output::line(&format!("not kept      {text}"));
    }
    Ok(Code::Done)
}

fn spent_text(spent: &Spent) -> String {
    format!(
        "{} to the bucket, {} sent, {} received",
        output::count(spent.requests, "request"),
        show_size(spent.sent_bytes),
        show_size(spent.received_bytes)
    )
}

fn unkept_text(unkept: &Unkept) -> String {
    let Unkept { device, worse, at } = unkept;
    format!(
        "{device}: {} is {} now and was {} at {at}, so the older profile stays; --replace takes \
         the new one",
        worse.what,
        show_rate(worse.found),
        show_rate(worse.before),
    )
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
