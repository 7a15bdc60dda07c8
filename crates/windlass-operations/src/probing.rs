//! Measures what a file system, a bucket and the cores can do, and keeps the result as profiles.

mod bucket;

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::Cancel;
use windlass_lab::{
    CODECS, CpuProfile, Point, ProbeRequest as IoRequest, Profile, Worse, measure_memory,
    state_directory,
};
use windlass_object::{Spent, is_in_bucket};

use crate::backup::PageChoice;
use crate::caller::Caller;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::outputs::outputs;
use crate::plan::PlanError;
use crate::sampled::measure;

use bucket::BucketProbe;

/// How long checksums and copies are measured.
const MEMORY_TIME: Duration = Duration::from_millis(600);

/// What to measure.
#[derive(Clone, Debug)]
pub struct ProbeRequest {
    /// A directory, or a file, on the storage to measure; or a place in a bucket.
    pub path: Option<PathBuf>,
    /// A database, on a sample of which codecs are measured.
    pub database: Option<String>,
    /// How long the storage is measured.
    pub budget: Duration,
    /// Bytes of the scratch file; in a bucket the most of the scratch object.
    pub scratch_bytes: u64,
    /// Whether profiles are kept.
    pub keep: bool,
    /// Whether a profile replaces an older one that is better.
    pub replace: bool,
}

/// What was measured.
pub struct ProbeOutcome {
    /// The cores.
    pub cpu: CpuProfile,
    /// The storage.
    pub io: Option<Profile>,
    /// What measuring a bucket has cost.
    pub spent: Option<Spent>,
    /// The files that were written.
    pub kept: Vec<PathBuf>,
    /// What was not kept.
    pub unkept: Vec<Unkept>,
}

/// A profile that is worse than the one that is kept.
pub struct Unkept {
    /// What was measured.
    pub device: String,
    /// In what it is worse.
    pub worse: Worse,
    /// When the older one was made, RFC 3339.
    pub at: String,
}

/// Measures storage and cores.
pub fn probe(
    caller: &Caller,
    request: &ProbeRequest,
    cancel: &Cancel,
) -> Result<ProbeOutcome, OperationError> {
    let of = |path| Measurable::new(path, request.scratch_bytes);
    let measurable = request.path.as_deref().map(of).transpose()?;
    let state = state_directory().filter(|_| request.keep);
    let at = jiff::Timestamp::now().to_string();
    let cpu = cores(caller, request, at.clone())?;
    let (io, spent) = match measurable {
        Some(Measurable::Directory(directory)) => {
            let profile = storage(caller, request, directory, (at, cancel))?;
            (Some(profile), None)
        }
        Some(Measurable::Bucket(bucket)) => {
            let (profile, spent) = bucket.measure(caller, request.budget, (at, cancel))?;
            (Some(profile), Some(spent))
        }
        None => (None, None),
    };
    let mut outcome = ProbeOutcome {
        cpu,
        io,
        spent,
        kept: Vec::new(),
        unkept: Vec::new(),
    };
    if let Some(state) = &state {
        outputs().check(state)?;
        outcome.keep(state, request.replace)?;
    }
    Ok(outcome)
}

impl ProbeOutcome {
    fn keep(&mut self, state: &Path, replace: bool) -> Result<(), OperationError> {
        let older = CpuProfile::load(state).unwrap_or_default();
        let mut keep = self.cpu.clone();
        if let Some(older) = older {
            // Codecs are measured on a database. Without one, the speeds kept before stay.
            keep.speeds = keep.speeds.or(older.speeds.clone());
            if let Some(worse) = self.cpu.worse_than(&older).filter(|_| !replace) {
                self.unkept.push(Unkept {
                    device: "core".to_owned(),
                    worse,
                    at: older.at.clone(),
                });
                keep.memory = older.memory;
            }
        }
        self.kept.push(keep.save(state)?);
        let Some(profile) = &self.io else {
            return Ok(());
        };
        // A profile that cannot be read does not prevent a new one.
        let older = Profile::for_device(state, &profile.device).unwrap_or_default();
        let worse = older.and_then(|older| Some((profile.worse_than(&older)?, older.at)));
        match worse.filter(|_| !replace) {
            Some((worse, at)) => self.unkept.push(Unkept {
                device: profile.device.source.clone(),
                worse,
                at,
            }),
            None => self.kept.push(profile.save(state)?),
        }
        Ok(())
    }
}

/// What a path stands for, before anything is measured.
enum Measurable<'a> {
    Directory(&'a Path),
    Bucket(BucketProbe<'a>),
}

impl<'a> Measurable<'a> {
    fn new(path: &'a Path, scratch_bytes: u64) -> Result<Self, OperationError> {
        match is_in_bucket(path) {
            true => BucketProbe::new(path, scratch_bytes).map(Self::Bucket),
            false => directory(path).map(Self::Directory),
        }
    }
}

/// The directory to probe: the path itself, or the directory of the file at the path.
fn directory(path: &Path) -> Result<&Path, OperationError> {
    let owned = || path.to_owned();
    let found = std::fs::metadata(path).map_err(|source| PlanError::NoProbe {
        path: owned(),
        source,
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
    let parent = parent.ok_or_else(|| PlanError::NoDirectory { path: owned() })?;
    Ok(parent)
}

fn cores(
    caller: &Caller,
    request: &ProbeRequest,
    at: String,
) -> Result<CpuProfile, OperationError> {
    let speeds = match &request.database {
        Some(database) => {
            caller.tell(&Notice::MeasuresCodecs);
            Some(measure(caller.process, database, (&CODECS, PageChoice::Usual))?.speeds)
        }
        None => None,
    };
    Ok(CpuProfile::new(at, speeds, measure_memory(MEMORY_TIME)))
}

fn storage(
    caller: &Caller,
    request: &ProbeRequest,
    directory: &Path,
    (at, cancel): (String, &Cancel),
) -> Result<Profile, OperationError> {
    outputs().check(directory)?;
    let asked = IoRequest {
        budget: request.budget,
        scratch_bytes: request.scratch_bytes,
        at,
    };
    caller.tell(&Notice::Probing {
        directory,
        scratch_bytes: request.scratch_bytes,
        budget: request.budget,
    });
    let mut tell = |index: usize, count: usize, point: &Point| {
        caller.tell(&Notice::Probed {
            index,
            count,
            point,
        });
    };
    Ok(windlass_lab::probe(directory, &asked, cancel, &mut tell)?)
}
