//! `windlass check` proves that a backup can run, without making one. `backup --dry-run` also says
//! what the backup would do.
//!
//! Invariant: nothing is written anywhere, and nothing is locked.

mod sqlite;
pub mod targets;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use windlass_engine::{BufferPlan, Cancel, Outputs, counted, show_size};
use windlass_lab::{Prediction, Sample, measure_codecs};
use windlass_postgres::Cluster;

use crate::checks::Checks;
use crate::cli::{Backup, Global};
use crate::database::DatabaseName;
use crate::devices::DeviceName;
use crate::exit::{Code, Failure};
use crate::foretold::{self, State};
use crate::outputs::existing;
use crate::probed::Ends;
use crate::{output, outputs, privilege, requests, warnings, words};
use windlass_operations::{BackupRequest, HookCommands, ProcessUse};

/// The bytes of the database from which the compression ratio is estimated.
const SAMPLE_BYTES: u64 = 16 << 20;
const SAMPLE_TIME: Duration = Duration::from_millis(500);

/// What the checks found out about the source.
struct Source {
    bytes: u64,
    volumes: usize,
    /// The files from which a sample can be read.
    files: Vec<PathBuf>,
    places: Vec<PathBuf>,
    /// What may not be written to.
    outputs: Outputs,
}

/// The run that was checked.
struct Looked {
    checks: Checks,
    source: Option<Source>,
    devices: Vec<DeviceName>,
    plan: Option<BufferPlan>,
    prediction: Option<Prediction>,
}

pub fn run(global: &Global, arguments: &Backup) -> Result<Code, Failure> {
    let looked = look(global, arguments, false)?;
    if global.json {
        let code = looked.checks.code();
        let document = json!({
            "checks": looked.checks.document(),
            "exit_code": code.number(),
        });
        output::line(&document.to_string());
    } else {
        looked.checks.print(global);
    }
    Ok(looked.checks.code())
}

/// Makes the same checks, and says what the run would read, write and take.
pub fn dry_run(global: &Global, arguments: &Backup) -> Result<Code, Failure> {
    let looked = look(global, arguments, true)?;
    let code = looked.checks.code();
    let bytes = looked.source.as_ref().map(|source| source.bytes);
    let to: Vec<_> = looked.devices.iter().map(targets::describe).collect();
    if global.json {
        let document = json!({
            "dry_run": true,
            "bytes": bytes,
            "to": to,
            "plan": looked.plan,
            "prediction": looked.prediction.as_ref().map(foretold::document),
            "checks": looked.checks.document(),
            "exit_code": code.number(),
        });
        output::line(&document.to_string());
        return Ok(code);
    }
    looked.checks.print(global);
    if global.quiet {
        return Ok(code);
    }
    if let Some(bytes) = bytes {
        output::line(&format!("would read    {}", show_size(bytes)));
    }
    for place in &to {
        output::line(&format!("would write   {place}"));
    }
    show_time(looked.prediction.as_ref());
    output::line("nothing was changed");
    Ok(code)
}

/// How long it would take, if the storage was probed.
pub fn show_time(prediction: Option<&Prediction>) {
    output::line(&match prediction {
        Some(prediction) if prediction.is_too_short() => {
            format!("would take    {}", foretold::TOO_SHORT)
        }
        Some(prediction) => format!(
            "would take    about {}, {}",
            words::duration(prediction.seconds),
            words::bound(prediction.limit.stage)
        ),
        None => "would take    unknown: `windlass lab probe PATH` measures the storage of each end"
            .to_owned(),
    });
}

fn look(global: &Global, arguments: &Backup, predicts: bool) -> Result<Looked, Failure> {
    let name = DatabaseName::resolve_named(&arguments.database, arguments.name.as_deref())?;
    // As in a backup, a mistake in these ends the command.
    let request = requests::backup(arguments)?;
    let mut checks = Checks::default();
    hooks(&mut checks, &request.hooks);
    let was_root = privilege::is_root();
    if let Err(failure) = name.become_owner(ProcessUse::Own) {
        checks.failure("user", &failure.into());
    }
    let source = match &name {
        DatabaseName::Postgres(conninfo) => {
            request.cluster_request().check()?;
            postgres(&mut checks, conninfo, &arguments.accept)
        }
        DatabaseName::Sqlite(path) => sqlite::check(&mut checks, path, arguments),
    };
    let source = source
        .inspect_err(|failure| checks.failure("database", failure))
        .ok();
    let bytes = source.as_ref().map(|source| source.bytes);
    let mut outputs = match &source {
        Some(source) => source.outputs.clone(),
        None => outputs::outputs(),
    };
    let devices = targets::check(&mut checks, arguments, &mut outputs, (bytes, was_root));
    let volumes = source.as_ref().map_or(1, |source| source.volumes);
    let buffers = &request.settings.buffers;
    let plan = buffers.plan(arguments.to.len().max(1), volumes)?;
    checks.ok(
        "settings",
        format!(
            "{} buffers of {}, {}, {}, {}",
            plan.buffers,
            show_size(plan.transfer_bytes as u64),
            counted(plan.readers as u64, "reader"),
            counted(plan.compressors as u64, "compressor"),
            request.compression
        ),
    );
    targets::check_watching(&mut checks, (global, &arguments.watching), &outputs)?;
    let mut looked = Looked {
        checks,
        source,
        devices,
        plan: Some(plan),
        prediction: None,
    };
    if let (true, Some(source)) = (predicts, &looked.source) {
        let end = (source, looked.devices.as_slice());
        looked.prediction = predict(&request, end)?;
    }
    Ok(looked)
}

/// Predicts how long it would take, if the storage was probed. Reads a sample of the database.
fn predict(
    request: &BackupRequest,
    (source, devices): (&Source, &[DeviceName]),
) -> Result<Option<Prediction>, Failure> {
    let codec = request.compression.first();
    let state = State::to_read();
    let ends = Ends {
        database: source.places.iter().map(PathBuf::as_path).collect(),
        // For a directory that has to be created, take the one that it will be in.
        stripes: devices
            .iter()
            .filter_map(DeviceName::directory)
            .filter_map(existing)
            .collect(),
        is_backup: true,
        emulation: &request.settings.emulation,
    };
    let sample = Sample::of_files(&source.files, SAMPLE_BYTES)?;
    let speeds = measure_codecs(&sample, &[codec], SAMPLE_TIME, &Cancel::new())?;
    let before = foretold::Before {
        bytes: source.bytes,
        files: request.to.len(),
        codec,
        ratio: speeds.of(codec).ratio,
        speeds,
        request: request.settings.buffers.clone(),
        rates: (request.rates.read, request.rates.write),
    };
    Ok(foretold::before(state.directory(), &ends, before))
}

fn hooks(checks: &mut Checks, hooks: &HookCommands) {
    for (event, program) in hooks.programs() {
        let option = format!("--{}", event.word());
        match targets::find_program(program) {
            Some(path) => checks.ok("hooks", format!("{option} would run {}", path.display())),
            None => checks.failed(
                "hooks",
                format!("{option}: there is no program {program}"),
                "Write its whole path, and let the database's owner run it.",
            ),
        }
    }
}

fn postgres(checks: &mut Checks, conninfo: &str, accept: &[String]) -> Result<Source, Failure> {
    let mut cluster = Cluster::connect(conninfo)?;
    let facts = cluster.facts().clone();
    let kind = if facts.standby { "standby" } else { "primary" };
    checks.ok(
        "server",
        format!(
            "PostgreSQL {}, a {kind}, wal_level {}",
            facts.version, facts.wal_level
        ),
    );
    rights(checks, &mut cluster)?;
    let bytes = cluster.estimate_bytes()?;
    let root = facts.data_directory.clone();
    checks.ok(
        "files",
        format!("{} in {} can be read", show_size(bytes), root.display()),
    );
    let sums = match facts.data_checksums {
        true => "on: a backup tells damaged pages",
        false => "off: a backup cannot tell a damaged page",
    };
    checks.ok("checksums", sums);
    outside(checks, &facts.configuration_outside, accept);
    let mut files = Vec::new();
    for part in ["base", "global", "pg_tblspc"] {
        files.extend(windlass_lab::plain_files(&root.join(part))?);
    }
    let outputs = outputs::of_cluster(&root)?;
    let mut places = vec![root];
    let spaces = facts
        .tablespaces
        .iter()
        .map(|space| PathBuf::from(&space.location));
    places.extend(spaces.filter(|path| path.is_absolute()));
    Ok(Source {
        bytes,
        volumes: cluster.scan_volumes()?,
        files,
        places,
        outputs,
    })
}

/// Names the files of the configuration that no backup holds, all in one line.
fn outside(checks: &mut Checks, paths: &[PathBuf], accept: &[String]) {
    let name = "configuration-outside";
    let paths: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let are = match paths.len() {
        0 => return,
        1 => "lies outside the data directory and is not in the backup",
        _ => "lie outside the data directory and are not in the backup",
    };
    let text = format!("{} {are}", paths.join(", "));
    foreseen(checks, "files", (name, text), accept);
}

/// Adds what the backup would warn of.
fn foreseen(
    checks: &mut Checks,
    check: &'static str,
    (name, text): (&str, String),
    accept: &[String],
) {
    let text = format!("{text} ({name})");
    match warnings::is_accepted(name, accept) {
        true => checks.ok(check, format!("accepted: {text}")),
        false => {
            let hint = match name {
                "configuration-outside" => "Back this up by other means, and add",
                _ => "If it is meant to be so, add",
            };
            checks.warning(check, text, format!("{hint} --accept {name}."));
        }
    }
}

/// Checks the rights of the role, and the slots of the server.
fn rights(checks: &mut Checks, cluster: &mut Cluster) -> Result<(), Failure> {
    let rights = cluster.rights()?;
    for right in rights.rights.iter().filter(|right| !right.granted) {
        let text = format!("role {} may not {}", rights.role, right.what);
        let hint = format!(
            "As a superuser, type in database {}: {}",
            rights.database, right.grant
        );
        match right.optional {
            true => checks.warning("rights", text, hint),
            false => checks.failed("rights", text, hint),
        }
    }
    if rights.rights.iter().all(|right| right.granted) {
        checks.ok(
            "rights",
            format!("role {} has all rights of a backup", rights.role),
        );
    }
    let (used, most) = cluster.slots()?;
    match used < most {
        true => checks.ok(
            "slots",
            format!("{} of {most} replication slots are free", most - used),
        ),
        false => checks.warning(
            "slots",
            format!("all {most} replication slots are taken"),
            "Raise max_replication_slots: without a slot of its own a backup fails if the server \
             recycles the log that it needs.",
        ),
    }
    Ok(())
}
