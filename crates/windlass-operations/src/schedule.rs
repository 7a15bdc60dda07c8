//! The schedule: jobs of a configuration as timers and services of systemd.
//!
//!   jobs --> units as text --> judged by systemd-analyze --> compared with the directory
//!                                                              |
//!                            new and changed ones are written, those of lost jobs removed
//!
//! Invariants
//! - A file is written or removed only if its first line says that this configuration's schedule
//!   made it. Everything is judged before the first file changes.
//! - A unit is one job of one database, and systemd starts no unit twice: no job runs twice at
//!   once.
//! - A unit has the words of a command, and no secret: those stay in the configuration.

mod error;
mod files;
mod job;
mod systemd;
mod unit;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use windlass_engine::durable;

use crate::error::OperationError;
use crate::hooks::find_program;

pub use error::ScheduleError;
pub use job::{Activation, Change, Job, JobKind, UnitFile, UnitPlace};
pub use unit::unit_name;

/// What to do with a schedule.
#[derive(Clone, Debug)]
pub struct ScheduleRequest {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// What made the units, for their first line.
    pub maker: String,
    /// The configuration. Units of another one are left alone.
    pub configuration: String,
    /// Where the units lie.
    pub place: UnitPlace,
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// A job, and what becomes of its two units.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The job. None if it is no longer in the configuration.
    pub job: Option<Job>,
    /// The name of its units without their endings.
    pub unit: String,
    /// What becomes of them.
    pub change: Change,
    /// When it is due next, if systemd is there to say so.
    pub next: Option<Timestamp>,
}

/// What was done, or would be.
#[derive(Clone, Debug)]
pub struct ScheduleOutcome {
    /// Where.
    pub directory: PathBuf,
    /// The jobs.
    pub jobs: Vec<Planned>,
    /// The files.
    pub files: Vec<UnitFile>,
    /// Whether systemd judged the units; it is not there otherwise.
    pub is_judged: bool,
    /// What systemd was told.
    pub activation: Activation,
}

impl ScheduleOutcome {
    /// Whether everything is as the configuration says.
    pub fn is_unchanged(&self) -> bool {
        self.jobs.iter().all(|one| one.change == Change::Kept)
    }

    /// The files that are there afterwards.
    fn staying(&self) -> Vec<&UnitFile> {
        let files = self.files.iter();
        files.filter(|file| file.change != Change::Gone).collect()
    }
}

/// Writes the units of the jobs, and removes those of jobs that are gone.
pub fn install(request: &ScheduleRequest) -> Result<ScheduleOutcome, OperationError> {
    let mut outcome = plan(request)?;
    outcome.is_judged = judge(&outcome, &request.jobs)?;
    if !request.dry_run {
        apply(request, &mut outcome)?;
    }
    Ok(outcome)
}

/// Removes all units of this configuration.
pub fn remove(request: &ScheduleRequest) -> Result<ScheduleOutcome, OperationError> {
    let none = ScheduleRequest {
        jobs: Vec::new(),
        ..request.clone()
    };
    let mut outcome = plan(&none)?;
    if !request.dry_run {
        apply(&none, &mut outcome)?;
    }
    Ok(outcome)
}

/// Says what is there and what is not, and when each job is due.
pub fn list(request: &ScheduleRequest) -> Result<ScheduleOutcome, OperationError> {
    plan(request)
}

/// Compares the jobs with the directory.
fn plan(request: &ScheduleRequest) -> Result<ScheduleOutcome, OperationError> {
    let directory = match &request.place {
        UnitPlace::System => PathBuf::from(systemd::SYSTEM_UNITS),
        UnitPlace::User => systemd::user_units().ok_or(ScheduleError::NoHome)?,
        UnitPlace::Other(path) => path.clone(),
    };
    let marker = unit::marker(&request.maker, &request.configuration);
    let mut wanted = Vec::new();
    for job in &request.jobs {
        for (name, text) in unit::texts(job, &request.jobs, &marker)? {
            wanted.push((name, text));
        }
    }
    let files = files::compare(&directory, &request.maker, &marker, wanted)?;
    let mut jobs = Vec::new();
    for job in &request.jobs {
        let unit = unit_name(&job.subject, job.kind);
        jobs.push(Planned {
            change: change_of(&files, &unit),
            next: systemd::next(job)?,
            job: Some(job.clone()),
            unit,
        });
    }
    let gone = files.iter().filter(|file| file.change == Change::Gone);
    let timers = gone.filter_map(|file| file.name.strip_suffix(unit::TIMER));
    jobs.extend(timers.map(|unit| Planned {
        job: None,
        unit: unit.to_owned(),
        change: Change::Gone,
        next: None,
    }));
    Ok(ScheduleOutcome {
        directory,
        jobs,
        files,
        is_judged: false,
        activation: Activation::None,
    })
}

/// What becomes of a job, from what becomes of its files.
fn change_of(files: &[UnitFile], unit: &str) -> Change {
    let own = files.iter().filter(|file| {
        let name = file.name.strip_prefix(unit);
        name.is_some_and(|rest| rest == unit::TIMER || rest == unit::SERVICE)
    });
    let changes: Vec<_> = own.map(|file| file.change).collect();
    match changes.as_slice() {
        all if all.iter().all(|one| *one == Change::Kept) => Change::Kept,
        all if all.iter().all(|one| *one == Change::New) => Change::New,
        _ => Change::Changed,
    }
}

/// Lets systemd judge the units. False if it is not there.
fn judge(outcome: &ScheduleOutcome, jobs: &[Job]) -> Result<bool, OperationError> {
    for user in jobs.iter().filter_map(|job| job.user.as_deref()) {
        if crate::owners::user_ids(user).is_none() {
            return Err(ScheduleError::NoUser { user: user.into() }.into());
        }
    }
    if find_program(systemd::ANALYZE).is_none() {
        return Ok(false);
    }
    let stay = outcome.staying();
    if !stay.is_empty() {
        systemd::verify(&stay)?;
    }
    Ok(true)
}

/// Writes and removes, and tells systemd.
fn apply(request: &ScheduleRequest, outcome: &mut ScheduleOutcome) -> Result<(), OperationError> {
    let of = |change: Change| -> Vec<_> {
        let files = outcome.files.iter();
        files.filter(|file| file.change == change).collect()
    };
    let (gone, changed) = (of(Change::Gone), of(Change::Changed));
    let written: Vec<_> = changed.iter().copied().chain(of(Change::New)).collect();
    let manager = systemd::Manager::of(&request.place)?;
    let timers = |files: &[&UnitFile]| -> Vec<String> {
        let names = files.iter().map(|file| file.name.clone());
        names.filter(|name| name.ends_with(unit::TIMER)).collect()
    };
    if let Some(manager) = &manager {
        manager.disable(&timers(&gone))?;
    }
    if request.place == UnitPlace::User && !written.is_empty() {
        let made = std::fs::create_dir_all(&outcome.directory);
        made.map_err(files::io("make", &outcome.directory))?;
    }
    for file in &written {
        let path = outcome.directory.join(&file.name);
        let done = durable::write(&path, file.text.as_bytes(), 0o644);
        done.map_err(files::io("write", &path))?;
    }
    for file in &gone {
        let path = outcome.directory.join(&file.name);
        std::fs::remove_file(&path).map_err(files::io("remove", &path))?;
    }
    if let Some(file) = gone.first() {
        let path = outcome.directory.join(&file.name);
        durable::sync_parent(&path).map_err(files::io("sync", &outcome.directory))?;
    }
    let stay = timers(&outcome.staying());
    if let Some(manager) = manager {
        outcome.activation = manager.enable(&stay, &timers(&changed))?;
    }
    Ok(())
}

/// Whether a directory has units that this user could not write.
pub fn needs_root(place: &UnitPlace) -> bool {
    *place == UnitPlace::System && !crate::privilege::is_root()
}

/// The path of this program that stays the same when a new version is installed: the name by which
/// it was called, without following links, if that is this program.
pub fn program_path(called: Option<&Path>) -> std::io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let real = own.canonicalize()?;
    let found = called.and_then(|word| find_program(word.to_str()?));
    let absolute = found.and_then(|path| std::path::absolute(path).ok());
    let is_own = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == real);
    Ok(absolute.filter(is_own).unwrap_or(real))
}
