//! Proves that a backup or restore can run, without making one, and predicts how long it takes.
//!
//! Invariant: nothing is written anywhere, and nothing is locked. Only the round trip to a
//! repository and the probe of a bucket write, and remove what they wrote.

mod base;
mod restore;
mod round_trip;
mod sinks;
mod sqlite;
mod targets;

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::{BufferPlan, Cancel, Outputs, counted, show_size};
use windlass_lab::{Prediction, Sample, measure_codecs};
use windlass_object::is_in_bucket;
use windlass_postgres::{Cluster, Foreseen, PageLayouts, Warning};

use crate::backup::{BackupRequest, PageChoice};
use crate::caller::Caller;
use crate::checks::{Checks, Finding};
use crate::database::DatabaseName;
use crate::devices::DeviceName;
use crate::error::OperationError;
use crate::foretold::{self, StateDirectory};
use crate::hooks::{HookCommands, HookEvent, ProgramFault, find_program};
use crate::objects::Objects;
use crate::outputs::{self, existing};
use crate::probed::Ends;
use crate::sampled::{Layouts, cluster_files};
use crate::{privilege, warnings};

pub use restore::{CheckedRestore, check_restore};
pub use round_trip::check_round_trip;
pub(crate) use targets::free;

/// The bytes of the database from which the compression ratio is estimated.
const SAMPLE_BYTES: u64 = 16 << 20;
const SAMPLE_TIME: Duration = Duration::from_millis(500);

/// What the checks found out about the source.
struct Source {
    bytes: u64,
    volumes: usize,
    /// The files from which a sample can be read.
    files: Vec<PathBuf>,
    /// How the pages are laid out that a backup would take apart.
    layouts: Layouts,
    places: Vec<PathBuf>,
    /// What may not be written to.
    outputs: Outputs,
    /// What the backup would read; without it everything.
    read_bytes: Option<u64>,
}

/// A backup that was checked.
pub struct CheckedBackup {
    /// What was checked.
    pub checks: Checks,
    /// Bytes of the database, if they could be found out.
    pub bytes: Option<u64>,
    /// The devices that can be used.
    pub devices: Vec<DeviceName>,
    /// Buffers and threads.
    pub plan: BufferPlan,
    /// How long it would take, if that was asked for and the storage was probed.
    pub prediction: Option<Prediction>,
}

/// Checks whether a backup can run, and if it is asked to, predicts how long it would take.
pub fn check_backup(
    caller: &Caller,
    request: &BackupRequest,
    predicts: bool,
) -> Result<CheckedBackup, OperationError> {
    let name = DatabaseName::resolve_named(&request.database, request.name.as_deref())?;
    let mut checks = Checks::new(&caller.observer);
    // A backup that keeps nothing runs no hooks.
    if request.to.is_empty() || request.to.iter().any(|to| to != "nul") {
        hooks(&mut checks, &request.hooks);
    }
    let was_root = privilege::is_root();
    if let Err(error) = name.become_owner(caller.process) {
        checks.failure("user", error);
    }
    let source = match &name {
        DatabaseName::Postgres(conninfo) => {
            request.cluster_request().check()?;
            postgres(&mut checks, conninfo, (caller, request))
        }
        DatabaseName::Sqlite(path) => sqlite::check(&mut checks, path, (caller, request)),
    };
    let source = source
        .map_err(|error| checks.failure("database", error))
        .ok();
    let bytes = source.as_ref().map(|source| source.bytes);
    let mut outputs = match &source {
        Some(source) => source.outputs.clone(),
        None => outputs::outputs(),
    };
    let read = source.as_ref().and_then(|source| source.read_bytes);
    let devices = targets::check(
        &mut checks,
        request,
        &mut outputs,
        (read.or(bytes), was_root),
    );
    let volumes = source.as_ref().map_or(1, |source| source.volumes);
    let objects = Objects::new(&devices, bytes.unwrap_or_default(), &Cancel::new())?;
    let buffers = objects.gathering(&devices, &request.settings.buffers);
    let plan = buffers.plan(request.to.len().max(1), volumes)?;
    checks.ok("settings", settings(&plan, request));
    sinks::check(&mut checks, (caller, &request.watching), &outputs)?;
    let prediction = match source.filter(|_| predicts) {
        Some(source) => predict(request, (&source, &devices))?,
        None => None,
    };
    Ok(CheckedBackup {
        checks,
        bytes,
        devices,
        plan,
        prediction,
    })
}

/// Buffers, threads and codec, in words.
fn settings(plan: &BufferPlan, request: &BackupRequest) -> String {
    format!(
        "{} buffers of {}, {}, {}, {}",
        plan.buffers,
        show_size(plan.transfer_bytes as u64),
        counted(plan.readers as u64, "reader"),
        counted(plan.compressors as u64, "compressor"),
        request.compression
    )
}

/// Predicts how long it would take, if the storage was probed. Reads a sample of the database.
fn predict(
    request: &BackupRequest,
    (source, devices): (&Source, &[DeviceName]),
) -> Result<Option<Prediction>, OperationError> {
    let codec = request.compression.first();
    let state = StateDirectory::to_read();
    let ends = Ends {
        database: source.places.iter().map(PathBuf::as_path).collect(),
        // For a directory that has to be created, take the one that it will be in.
        stripes: devices
            .iter()
            .filter_map(DeviceName::place)
            .filter_map(|place| match is_in_bucket(place) {
                true => Some(place),
                false => existing(place),
            })
            .collect(),
        is_backup: true,
        emulation: &request.settings.emulation,
    };
    let class = |path: &Path| source.layouts.class(path);
    let sample = Sample::of_relations(&source.files, SAMPLE_BYTES, class)?;
    // The fastest codec of a range leaves pages as they are, whatever was asked.
    let is_asked = request.pages == PageChoice::Auto && request.compression.range.is_none();
    let sample = sample.asked(is_asked);
    let speeds = measure_codecs(&sample, &[codec], SAMPLE_TIME, &Cancel::new())?;
    let before = foretold::Before {
        bytes: source.read_bytes.unwrap_or(source.bytes),
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
        match find_program(program) {
            Some(path) => checks.ok("hooks", Finding::Hook { event, path }),
            None => {
                let fault = ProgramFault::of(program);
                let program = program.to_owned();
                let found = Finding::NoHook {
                    event,
                    program,
                    fault,
                };
                // The check ends as the run would: a run that succeeds never needs the last one.
                match event {
                    HookEvent::Before => checks.failed("hooks", found),
                    HookEvent::After => checks.warning("hooks", found),
                    HookEvent::OnFailure => checks.ok("hooks", found),
                }
            }
        }
    }
}

fn postgres(
    checks: &mut Checks,
    conninfo: &str,
    (caller, request): (&Caller, &BackupRequest),
) -> Result<Source, OperationError> {
    let accept = &request.accept;
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
    let Foreseen { bytes, warnings } = cluster.foresee()?;
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
    for warning in &warnings {
        let what = match warning {
            Warning::ConfigurationOutside { .. } => continue,
            Warning::ReplicationSlots { .. } => "slots",
            _ => "files",
        };
        foreseen(checks, what, (warning.name(), warning.to_string()), accept);
    }
    let files = cluster_files(&root)?;
    let layouts = match request.pages.holds(true, &request.compression) {
        true => cluster.page_layouts()?,
        false => PageLayouts::default(),
    };
    let mut outputs = outputs::of_cluster(&root)?;
    let read_bytes = base::of_cluster(checks, (caller, request), &mut cluster, &mut outputs);
    let mut places = vec![root.clone()];
    let spaces = facts
        .tablespaces
        .iter()
        .map(|space| PathBuf::from(&space.location));
    places.extend(spaces.filter(|path| path.is_absolute()));
    Ok(Source {
        bytes,
        volumes: cluster.scan_volumes()?,
        files,
        layouts: Layouts::Cluster(root, layouts),
        places,
        outputs,
        read_bytes,
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
    match warnings::is_accepted(name, accept) {
        true => checks.ok(check, format!("accepted: {text} ({name})")),
        false => {
            let name = name.to_owned();
            checks.warning(check, Finding::Foreseen { name, text });
        }
    }
}

/// Checks the rights of the role, and the slots of the server.
fn rights(checks: &mut Checks, cluster: &mut Cluster) -> Result<(), OperationError> {
    let rights = cluster.rights()?;
    for right in rights.rights.iter().filter(|right| !right.granted) {
        let lacking = Finding::Right {
            role: rights.role.clone(),
            what: right.what.to_string(),
            database: rights.database.clone(),
            grant: right.grant.clone(),
        };
        match right.optional {
            true => checks.warning("rights", lacking),
            false => checks.failed("rights", lacking),
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
        false => checks.warning("slots", Finding::NoSlots { most }),
    }
    Ok(())
}
