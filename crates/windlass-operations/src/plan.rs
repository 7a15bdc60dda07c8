//! How long a backup or restore would take, without making it.

mod error;
mod growth;
mod link;

use std::path::Path;

use thiserror::Error;
use windlass_engine::media::Codec;
use windlass_engine::{BufferRequest, FileDeviceOptions};
use windlass_lab::{
    Alternative, ChainPrediction, Choice, Direction, LabError, Link, Operation, Prediction,
    Predictions, Question, Records, Speeds, Sureness, choose, state_directory, sureness, to_f64,
};
use windlass_model::{Instance, Model};
use windlass_object::{Location, is_in_bucket};

use crate::backup::PageChoice;
use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::{DeviceError, OperationError};
use crate::probed;
use crate::sampled::measure;
use crate::settings::Rates;

pub use error::PlanError;
pub use growth::{GrowthOutcome, GrowthRequest, plan_snapshot};
pub use link::PlannedLink;

/// What to predict.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// A database to measure: its size, and how well a sample of it compresses.
    pub database: Option<String>,
    /// Instead of a database: the bytes in use, which a backup reads.
    pub used_bytes: Option<u64>,
    /// Bytes of all files, which a restore writes; without them, those in use.
    pub file_bytes: Option<u64>,
    /// Bytes of the database for one stored byte, for every codec that compresses.
    pub ratio: Option<f64>,
    /// Storage that the bytes come from: models, or paths that were probed.
    pub sources: Vec<String>,
    /// Storage that the bytes go to.
    pub targets: Vec<String>,
    /// The machine, by its vendor's name.
    pub instance: Option<String>,
    /// Numbers of stripes to compare.
    pub stripes: Vec<u16>,
    /// Codecs to compare.
    pub codecs: Vec<Codec>,
    /// Whether the backups of the database take pages apart.
    pub pages: PageChoice,
    /// Number of cores; without it, those of the machine.
    pub cores: Option<u16>,
    /// A backup or a restore.
    pub direction: Direction,
    /// The sets after a full backup.
    pub chain: Vec<Link>,
    /// Instead of a full backup: one that builds on a set that is there.
    pub link: Option<PlannedLink>,
    /// It must end within so many seconds.
    pub within: Option<f64>,
    /// Limits of speed.
    pub rates: Rates,
    /// Buffers and threads.
    pub buffers: BufferRequest,
}

/// A prediction, with everything that it rests on.
pub struct PlanOutcome {
    /// The question, as it was understood.
    pub question: Question,
    /// What is to be said about that.
    pub notes: Vec<PlanNote>,
    /// One for each number of stripes and codec.
    pub predictions: Vec<Prediction>,
    /// The chain that begins with each of them; empty if none was asked for.
    pub chains: Vec<ChainPrediction>,
    /// The recommended one.
    pub choice: Option<Choice>,
    /// How certain the times are.
    pub sure: Sureness,
}

impl PlanOutcome {
    /// How the operation ends: with a warning if nothing fits into the time that was given.
    pub fn ending(&self) -> Ending {
        match &self.choice {
            Some(choice) if !choice.meets => Ending::Warnings,
            _ => Ending::Done,
        }
    }
}

/// What is to be said about how a question was understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanNote {
    /// The ratios are not those of the database.
    #[error("the ratio of each codec is that of {origin}")]
    UsualRatios {
        /// Of what they are.
        origin: String,
    },
    /// Source and target were exchanged.
    #[error("an object store holds no live database: taken as the backup's end")]
    Oriented,
    /// The backup reads what changed.
    #[error("builds on set {set}: reads and writes about {read} of the database, by {by}")]
    BuildsOn {
        /// The base.
        set: String,
        /// How much is read.
        read: String,
        /// What says what changed.
        by: &'static str,
    },
    /// The backup reads everything and asks each page.
    #[error(
        "builds on set {set}: reads everything, and writes the pages that have changed; the table \
         is for a database of which all pages have"
    )]
    Scans {
        /// The base.
        set: String,
    },
    /// The backup reads everything and compares it.
    #[error(
        "builds on set {set}: reads everything and the base, unless nobody wrote since, and writes \
         the pages that differ; the table is for a database of which all pages do"
    )]
    Compares {
        /// The base.
        set: String,
    },
    /// The backup would be a full one.
    #[error("would be a full backup: {reason}")]
    Whole {
        /// Why.
        reason: String,
    },
}

/// The predictions of earlier runs, and what these runs really took.
pub fn records() -> Result<Records, OperationError> {
    match state_directory() {
        Some(directory) => Ok(Predictions::of(&directory).read()?),
        None => Ok(Records::default()),
    }
}

/// Predicts how long it would take.
pub fn plan(caller: &Caller, request: &PlanRequest) -> Result<PlanOutcome, OperationError> {
    let state = state_directory();
    let records = records()?;
    let (question, notes) = question(caller, request, state.as_deref())?;
    let alternatives = alternatives(request, &question);
    let predictions = alternatives.iter().map(|one| question.predict(one));
    let predictions = predictions.collect::<Result<Vec<_>, _>>()?;
    let chains = match request.chain.as_slice() {
        [] => Vec::new(),
        links => chains(&question, (&alternatives, &predictions), links)?,
    };
    let direction = question.direction;
    let known = records.accuracy(direction);
    Ok(PlanOutcome {
        choice: choose(&whole(direction, &predictions, &chains), request.within),
        sure: sureness(direction, known.as_ref(), request.database.is_some()),
        question,
        notes,
        predictions,
        chains,
    })
}

fn question(
    caller: &Caller,
    request: &PlanRequest,
    state: Option<&Path>,
) -> Result<(Question, Vec<PlanNote>), OperationError> {
    let mut notes = Vec::new();
    let database = request.database.as_deref();
    let asked = (request.codecs.as_slice(), request.pages);
    let measured = database.map(|text| measure(caller.process, text, asked));
    let measured = measured.transpose()?;
    let used_bytes = measured.as_ref().map(|measured| measured.bytes);
    let link = request.link.as_ref();
    let link = link.map(|link| link::expected(caller, (request, link)));
    let mut read_bytes = None;
    if let Some((read, note)) = link.transpose()? {
        read_bytes = read;
        notes.push(note);
    }
    let used_bytes = read_bytes.or(used_bytes).or(request.used_bytes);
    let used_bytes = used_bytes.ok_or(PlanError::NoSize)?;
    let is_measured = measured.is_some();
    let speeds = match measured {
        Some(measured) => measured.speeds,
        None => Speeds::probed(state)?,
    };
    if !is_measured && request.ratio.is_none() {
        let origin = speeds.origin.to_string();
        notes.push(PlanNote::UsualRatios { origin });
    }
    let instance = request.instance.as_deref().map(instance).transpose()?;
    let cores = request.cores.map(usize::from);
    let cores = cores.or(instance.as_ref().map(|instance| instance.cores));
    let here = || std::thread::available_parallelism().map_or(1, usize::from);
    let mut question = Question {
        direction: request.direction,
        used_bytes,
        file_bytes: request.file_bytes.unwrap_or(used_bytes).max(used_bytes),
        sources: models(&request.sources, Operation::Read, state)?,
        targets: models(&request.targets, Operation::Write, state)?,
        cores: cores.unwrap_or_else(here),
        instance,
        request: request.buffers.clone(),
        write_depth: FileDeviceOptions::default().depth,
        read_rate: request.rates.read.map(to_f64),
        write_rate: request.rates.write.map(to_f64),
        speeds,
    };
    if question.orient() {
        notes.push(PlanNote::Oriented);
    }
    Ok((question, notes))
}

/// Every combination of a number of stripes and a codec.
fn alternatives(request: &PlanRequest, question: &Question) -> Vec<Alternative> {
    let mut alternatives = Vec::new();
    for codec in request.codecs.iter().copied() {
        for stripes in &request.stripes {
            let usual = || question.speeds.of(codec).ratio;
            alternatives.push(Alternative {
                files: usize::from(*stripes),
                codec,
                ratio: match codec {
                    Codec::None => 1.0,
                    _ => request.ratio.unwrap_or_else(usual),
                },
            });
        }
    }
    alternatives
}

/// The chain that begins with each alternative.
fn chains(
    question: &Question,
    (alternatives, full): (&[Alternative], &[Prediction]),
    links: &[Link],
) -> Result<Vec<ChainPrediction>, LabError> {
    let each = alternatives.iter().zip(full);
    each.map(|(one, full)| question.predict_chain(one, full, links))
        .collect()
}

/// What the window applies to: each backup by itself, or the restore of the whole chain.
fn whole(
    direction: Direction,
    predictions: &[Prediction],
    chains: &[ChainPrediction],
) -> Vec<Prediction> {
    let mut whole = predictions.to_vec();
    if direction == Direction::Restore {
        for (prediction, chain) in whole.iter_mut().zip(chains) {
            prediction.seconds = chain.seconds;
        }
    }
    whole
}

fn instance(name: &str) -> Result<Instance, PlanError> {
    Instance::named(name).ok_or_else(|| PlanError::UnknownInstance {
        name: name.to_owned(),
    })
}

/// The models of one end of the pipeline.
fn models(
    texts: &[String],
    operation: Operation,
    state: Option<&Path>,
) -> Result<Vec<Model>, OperationError> {
    if texts.is_empty() {
        let is_source = operation == Operation::Read;
        return Err(PlanError::NoStorage { is_source }.into());
    }
    let models = texts.iter().map(|text| model(text, operation, state));
    models.collect()
}

/// A model by its name, or by a path or a place in a bucket that was probed.
fn model(text: &str, operation: Operation, state: Option<&Path>) -> Result<Model, OperationError> {
    let path = Path::new(text);
    if is_in_bucket(path) {
        Location::parse(path).map_err(DeviceError::from)?;
    } else {
        // A model may have a slash, too: `rate:100MB/s`.
        let is_path = text.starts_with(['/', '.']) || (text.contains('/') && path.exists());
        if !is_path {
            return Ok(Model::parse(text)?);
        }
        path.metadata().map_err(|source| PlanError::NoPath {
            path: path.to_owned(),
            source,
        })?;
    }
    let profile = match state {
        Some(state) => probed::profile(state, path)?,
        None => None,
    };
    let profile = profile.ok_or_else(|| PlanError::NotProbed {
        path: path.to_owned(),
    })?;
    Ok(profile.model(operation))
}
