//! How far plans are off for real runs on emulated storage.

mod error;

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::Cancel;
use windlass_engine::media::Codec;
use windlass_lab::{Corpus, Rehearsal, SETUPS, SetUp, measure_codecs, quantile, rehearse as run};

use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::outputs::outputs;

pub use error::RehearseError;

/// The bytes of the corpus on which codecs are measured; then the time for all of them together.
const SAMPLE_BYTES: u64 = 16 << 20;
const SAMPLE_TIME: Duration = Duration::from_secs(6);

/// What to rehearse.
#[derive(Clone, Debug)]
pub struct RehearseRequest {
    /// A directory with room for three times the bytes. It is left as it was.
    pub path: PathBuf,
    /// How much is backed up.
    pub bytes: u64,
    /// Only set-ups whose names contain this.
    pub only: String,
    /// The largest errors that plans may have.
    pub errors_max: Option<ErrorsMax>,
}

/// The largest errors that plans may have, as shares of what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorsMax {
    /// In the middle.
    pub median: f64,
    /// Of any run.
    pub worst: f64,
}

/// What was rehearsed.
pub struct RehearseOutcome {
    /// Each run beside its plan. There is at least one.
    pub rehearsals: Vec<Rehearsal>,
    /// The median error, as a share of what was measured.
    pub error_median: f64,
    /// The largest error.
    pub error_worst: f64,
    /// In how many runs the plan named the limit that the verdict names.
    pub limit_right: usize,
    /// Whether plans are further off than they may be.
    pub is_too_far_off: bool,
}

impl RehearseOutcome {
    fn of(rehearsals: Vec<Rehearsal>, max: Option<ErrorsMax>) -> Self {
        let sizes: Vec<f64> = rehearsals.iter().map(|one| one.error().abs()).collect();
        let (median, worst) = (quantile(&sizes, 0.5), quantile(&sizes, 1.0));
        let right = |one: &&Rehearsal| one.predicted_limit == one.measured_limit;
        Self {
            limit_right: rehearsals.iter().filter(right).count(),
            rehearsals,
            error_median: median,
            error_worst: worst,
            is_too_far_off: max.is_some_and(|max| median > max.median || worst > max.worst),
        }
    }

    /// How the operation ends.
    pub fn ending(&self) -> Ending {
        match self.is_too_far_off {
            true => Ending::Failed,
            false => Ending::Done,
        }
    }
}

/// Makes a backup and a restore on each set-up, and compares them with what is planned for them.
pub fn rehearse(
    caller: &Caller,
    request: &RehearseRequest,
    cancel: &Cancel,
) -> Result<RehearseOutcome, OperationError> {
    if !request.path.is_dir() {
        let path = request.path.clone();
        return Err(RehearseError::NoDirectory { path }.into());
    }
    outputs().check(&request.path)?;
    let wanted = |setup: &&SetUp| setup.name.contains(&request.only);
    let setups: Vec<_> = SETUPS.iter().filter(wanted).collect();
    if setups.is_empty() {
        let text = request.only.clone();
        return Err(RehearseError::NoSetUp { text }.into());
    }
    Corpus::check_space(&request.path, request.bytes)?;
    let place = RehearsalPlace::create(&request.path)?;
    let rehearsals = all(caller, (&setups, request.bytes), &place.0, cancel)?;
    Ok(RehearseOutcome::of(rehearsals, request.errors_max))
}

fn all(
    caller: &Caller,
    (setups, bytes): (&[&SetUp], u64),
    place: &Path,
    cancel: &Cancel,
) -> Result<Vec<Rehearsal>, OperationError> {
    let corpus = Corpus::write(&place.join("corpus"), bytes, cancel)?;
    let mut codecs: Vec<Codec> = setups.iter().map(|setup| setup.codec).collect();
    codecs.dedup();
    let speeds = measure_codecs(&corpus.sample(SAMPLE_BYTES)?, &codecs, SAMPLE_TIME, cancel)?;
    let mut rehearsals = Vec::new();
    for (number, setup) in (1..).zip(setups) {
        caller.tell(&Notice::Rehearsing {
            number,
            count: setups.len(),
            setup: setup.name,
        });
        rehearsals.extend(run(setup, &corpus, place, &speeds, cancel)?);
    }
    Ok(rehearsals)
}

/// A directory of this rehearsal, removed at the end.
struct RehearsalPlace(PathBuf);

impl RehearsalPlace {
    fn create(at: &Path) -> Result<Self, RehearseError> {
        let path = at.join(format!("windlass-rehearsal-{}", uuid::Uuid::new_v4()));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(RehearseError::Create { path, source }),
        }
    }
}

impl Drop for RehearsalPlace {
    fn drop(&mut self) {
        // If it cannot be removed, its name still says what it is.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
