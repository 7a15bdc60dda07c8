//! The prediction for a run, kept beside what the run took: in the run's own report, and for `plan
//! --accuracy`.
//!
//! The plan is asked after the run, with the values that a user gives it before a run: how many
//! bytes, how well they compress, what is at both ends. So the comparison judges how well the plan
//! predicts time, and not how well sizes were guessed.
//!
//! Invariants
//! - A run never fails because there is no prediction, or because the prediction cannot be kept.
//! - Windlass predicts nothing for storage that is neither probed nor emulated, or for a run that
//!   changed its codec on the way.
//! - The user who started the program opens the file of predictions, before the process becomes the
//!   database's owner.

use std::path::{Path, PathBuf};

use windlass_engine::media::Codec;
use windlass_engine::{BufferRequest, FileDeviceOptions, RunReport, to_json};
use windlass_lab::{
    Advised, Alternative, Direction, LabError, OpenPredictions, Operation, Prediction, Predictions,
    Question, Record, Speeds, profiles_directory, state_directory, to_f64,
};
use windlass_model::{Emulation, Model};

use crate::advice;
use crate::caller::Caller;
use crate::notice::Notice;
use crate::probed::{self, Ends};

/// The state directory of the user who started the program, and its predictions.
#[derive(Debug)]
pub struct StateDirectory {
    directory: Option<PathBuf>,
    predictions: Option<OpenPredictions>,
}

/// A finished run, with what the plan needs to know about it.
#[derive(Debug)]
pub struct Done<'a> {
    /// What it did.
    pub report: &'a RunReport,
    /// The codec of all its frames; `None` if the codec changed during the run.
    pub codec: Option<Codec>,
    /// Whether it took pages apart because somebody asked for it: then it does so with every codec.
    pub pages_asked: bool,
    /// Buffers and threads as asked for.
    pub request: BufferRequest,
    /// Limits in bytes per second: on reading from the source, and on writing to the target.
    pub rates: (Option<u64>, Option<u64>),
}

impl StateDirectory {
    /// Opens the state directory for a run, and its predictions too if `keep` is set. If their file
    /// cannot be opened, this tells so and the run goes on without it.
    pub fn open(caller: &Caller, emulation: &Emulation, keep: bool) -> Self {
        let directory = state_directory();
        let predictions = directory
            .as_deref()
            .filter(|_| keep)
            .filter(|state| is_emulated(emulation) || profiles_directory(state).is_dir())
            .and_then(|state| kept(caller, Predictions::of(state).open()));
        Self {
            directory,
            predictions,
        }
    }

    /// The state directory for somebody who keeps nothing there.
    pub fn to_read() -> Self {
        Self {
            directory: state_directory(),
            predictions: None,
        }
    }

    /// The directory of the profiles.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Judges a finished run, and keeps the plan's prediction beside what was measured.
    pub fn judge(self, caller: &Caller, ends: &Ends<'_>, done: &Done<'_>) -> Judgement {
        let state = self.directory.as_deref();
        let speeds = speeds(caller, state);
        let foretold = record(state, ends, done, &speeds);
        if let Some((predictions, record)) = self.predictions.zip(foretold.as_ref()) {
            kept(caller, predictions.append(record));
        }
        Judgement {
            foretold,
            advice: advice::of(ends, done, &speeds),
        }
    }
}

/// The judgement of a finished run.
#[derive(Debug)]
pub struct Judgement {
    /// What the plan would have predicted before the run.
    pub foretold: Option<Record>,
    /// What would have made the run faster.
    pub advice: Option<Advised>,
}

impl Judgement {
    /// Adds the judgement to the run's JSON object.
    pub fn describe(&self, document: &mut serde_json::Value) {
        document["prediction"] = prediction(self.foretold.as_ref());
        document["advice"] = advice::document(self.advice.as_ref());
    }
}

/// A prediction in JSON. Times that are too short to predict are null.
pub fn document(prediction: &Prediction) -> serde_json::Value {
    let mut document = to_json(prediction);
    let too_short = prediction.is_too_short();
    document["too_short"] = too_short.into();
    if too_short {
        for key in ["minutes", "seconds", "rate"] {
            document[key] = serde_json::Value::Null;
        }
    }
    document
}

/// The prediction in the run's JSON object; null if there is none.
fn prediction(record: Option<&Record>) -> serde_json::Value {
    record.map_or(serde_json::Value::Null, |record| {
        let too_short = record.is_too_short();
        serde_json::json!({
            "seconds": (!too_short).then_some(record.predicted_seconds),
            "too_short": too_short,
            "limit": record.predicted_limit,
            "basis": record.basis,
        })
    })
}

/// The run itself has succeeded. A missing record gives a warning and must not make the run fail.
fn kept<T>(caller: &Caller, result: Result<T, LabError>) -> Option<T> {
    result
        .map_err(|error| caller.tell(&Notice::NoPrediction(&error)))
        .ok()
}

/// The speeds of this machine's cores. If the profile cannot be read, these are the usual ones.
fn speeds(caller: &Caller, state: Option<&Path>) -> Speeds {
    let probed = Speeds::probed(state);
    let told = |error| caller.tell(&Notice::GuessedSpeeds(&error));
    probed.map_err(told).unwrap_or_default()
}

fn is_emulated(emulation: &Emulation) -> bool {
    emulation.source.is_some() || emulation.target.is_some() || emulation.instance.is_some()
}

fn record(
    state: Option<&Path>,
    ends: &Ends<'_>,
    done: &Done<'_>,
    speeds: &Speeds,
) -> Option<Record> {
    let (report, codec) = (done.report, done.codec?);
    let question = question(state, ends, done, speeds)?;
    let (bytes, stored) = ends.amounts(report);
    let alternative = Alternative {
        files: report.devices.len(),
        codec,
        ratio: to_f64(bytes) / to_f64(stored).max(1.0),
    };
    // An empty database has no prediction.
    let prediction = question.predict(&alternative).ok()?;
    Some(Record {
        at: jiff::Timestamp::now().to_string(),
        direction: question.direction,
        set_id: report.set_id.clone().unwrap_or_default(),
        files: alternative.files,
        compress: codec.to_string(),
        bytes,
        predicted_seconds: prediction.seconds,
        measured_seconds: report.seconds,
        predicted_limit: prediction.limit.stage,
        measured_limit: report.limit.stage,
        basis: format!(
            "{} to {}",
            names(&question.sources),
            names(&question.targets)
        ),
    })
}

fn question(
    state: Option<&Path>,
    ends: &Ends<'_>,
    done: &Done<'_>,
    speeds: &Speeds,
) -> Option<Question> {
    let (used_bytes, _) = ends.amounts(done.report);
    let request = BufferRequest {
        buffers: Some(done.report.buffers_peak),
        transfer_bytes: Some(done.report.transfer_bytes),
        memory_limit: Some(u64::MAX),
        ..done.request.clone()
    };
    ask(
        state,
        ends,
        (used_bytes, request, done.rates, speeds.clone()),
    )
}

/// What the plan needs: bytes of the database, buffers, rate limits, speeds of codecs.
type Asked = (u64, BufferRequest, (Option<u64>, Option<u64>), Speeds);

fn ask(
    state: Option<&Path>,
    ends: &Ends<'_>,
    (used_bytes, request, rates, speeds): Asked,
) -> Option<Question> {
    let (at_database, at_stripes) = ends.operations();
    let emulation = ends.emulation;
    let of = |model: &Option<Model>, places, operation| match model {
        Some(model) => Some(vec![model.clone()]),
        None => models(state, places, operation),
    };
    let database = of(&emulation.source, &ends.database, at_database)?;
    let stripes = of(&emulation.target, &ends.stripes, at_stripes)?;
    let (direction, sources, targets) = match ends.is_backup {
        true => (Direction::Backup, database, stripes),
        false => (Direction::Restore, stripes, database),
    };
    Some(Question {
        direction,
        used_bytes,
        // A restore leaves zeros out, so it writes no more than the bytes in use.
        file_bytes: used_bytes,
        sources,
        targets,
        instance: emulation.instance.clone(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        request,
        write_depth: FileDeviceOptions::default().depth,
        read_rate: rates.0.map(to_f64),
        write_rate: rates.1.map(to_f64),
        speeds,
    })
}

/// A run that has not begun, with what the plan needs to know about it.
#[derive(Debug)]
pub struct Before {
    /// Bytes of the database.
    pub bytes: u64,
    /// Stripes.
    pub files: usize,
    /// The codec of all its frames.
    pub codec: Codec,
    /// Bytes of the database for each stored byte.
    pub ratio: f64,
    /// The speeds of the cores.
    pub speeds: Speeds,
    /// Buffers and threads as asked for.
    pub request: BufferRequest,
    /// Limits in bytes per second: on reading from the source, and on writing to the target.
    pub rates: (Option<u64>, Option<u64>),
}

/// The plan's prediction; `None` if the storage of one end was not probed.
pub fn before(state: Option<&Path>, ends: &Ends<'_>, run: Before) -> Option<Prediction> {
    let asked = (run.bytes, run.request, run.rates, run.speeds);
    let question = ask(state, ends, asked)?;
    let alternative = Alternative {
        files: run.files,
        codec: run.codec,
        ratio: run.ratio,
    };
    question.predict(&alternative).ok()
}

/// The models of the devices that hold these places; `None` unless all were probed.
fn models(state: Option<&Path>, places: &[&Path], operation: Operation) -> Option<Vec<Model>> {
    if places.is_empty() {
        return Some(vec![Model::unlimited("nul")]);
    }
    let profiles = probed::profiles(state?, places)?;
    Some(profiles.iter().map(|one| one.model(operation)).collect())
}

fn names(models: &[Model]) -> String {
    let names: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
    names.join(", ")
}
