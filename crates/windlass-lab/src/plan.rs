//! A plan: how long a backup or restore would take before it is run, and what would bind it.
//!
//!   Question + Alternative --> Job --simulate--> Outcome --> Prediction
//!   Predictions + window   --> the cheapest that meets it
//!
//! The duration of a backup follows from the bytes in use, that of a restore from the sizes of the
//! files. A restore first writes the parts of the files that the backup does not have. The
//! simulation says how long the run takes. The busiest resource says why. If no resource was busy
//! enough, the plan names what helps most when it is relaxed.

mod chain;
mod choice;
mod limit;

use serde::Serialize;
use windlass_engine::media::Codec;
use windlass_engine::{
    BufferPlan, BufferRequest, EngineError, inputs_max, read_depth, target_writers,
};
use windlass_model::{Attachment, Instance, Model};

use crate::accuracy::PREDICTED_SECONDS_MIN;
use crate::error::LabError;
use crate::numbers::to_f64;
use crate::setting::{LabFault, LabSetting};
use crate::simulate::{Job, Outcome, simulate};
use crate::speeds::Speeds;

pub use chain::{ChainPrediction, Link, LinkKind, LinkPrediction};
pub use choice::{Choice, Sureness, choose, sureness};
pub use limit::PlanLimit;

/// How many bytes a direct read may take beyond the frames that it is for.
const DIRECT_BYTES: f64 = 4096.0;
/// More buffers stay if a run is faster by this factor with them.
const BUFFERS_GAIN: f64 = 1.05;
/// In a restore, one in this many buffers holds two runs and needs two writes. Stripes have extents
/// in the order in which they came in, so a buffer may end within one run and begin within another.
/// The value was measured on backups by two readers: they need between one and two writes a buffer.
const RESTORE_SPLIT_EVERY: u64 = 2;

/// Backup or restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Database to stripes.
    Backup,
    /// Stripes to database.
    Restore,
}

/// What all alternatives have in common.
#[derive(Clone, Debug)]
pub struct Question {
    /// Backup or restore.
    pub direction: Direction,
    /// Bytes in use: what a backup reads.
    pub used_bytes: u64,
    /// Bytes of all files: what a restore writes; at least `used_bytes`.
    pub file_bytes: u64,
    /// Where bytes come from: the database's volumes (backup), the stripes (restore).
    pub sources: Vec<Model>,
    /// Where bytes go: the stripes (backup), the database's volumes (restore).
    pub targets: Vec<Model>,
    /// The machine, if it is a known instance.
    pub instance: Option<Instance>,
    /// Cores.
    pub cores: usize,
    /// Buffers and threads as asked for.
    pub request: BufferRequest,
    /// Writes in flight to a device.
    pub write_depth: usize,
    /// The limit on reading from the source, in bytes per second.
    pub read_rate: Option<f64>,
    /// The limit on writing to the target, in bytes per second.
    pub write_rate: Option<f64>,
    /// What a core does in a second.
    pub speeds: Speeds,
}

/// One way to make the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// Stripes.
    pub files: usize,
    /// How frames are compressed.
    pub codec: Codec,
    /// Bytes of the database for each stored byte.
    pub ratio: f64,
}

/// What an alternative would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Stripes.
    pub files: usize,
    /// Codec.
    pub compress: String,
    /// Minutes.
    pub minutes: f64,
    /// Seconds.
    pub seconds: f64,
    /// Bytes of the database per second.
    pub rate: f64,
    /// Bytes of the stripes.
    pub stored_bytes: f64,
    /// Seconds on cores.
    pub cpu_seconds: f64,
    /// Buffers of the pool.
    pub buffers: usize,
    /// Bytes of one.
    pub transfer_bytes: usize,
    /// Bytes of all.
    pub buffer_bytes: u64,
    /// What binds it.
    pub limit: PlanLimit,
    /// What would bind it next, if that is known.
    pub next: Option<PlanLimit>,
}

impl Prediction {
    /// Whether data would move for too short a time to predict how long the run takes.
    pub fn is_too_short(&self) -> bool {
        self.seconds < PREDICTED_SECONDS_MIN
    }
}

impl Question {
    /// Puts an object store at the right end. An object store cannot hold a live database. If it is
    /// named as the database's storage, it is taken as the place of the backup instead. Returns
    /// true if the two ends were exchanged.
    pub fn orient(&mut self) -> bool {
        let remote = |models: &[Model]| {
            models
                .iter()
                .any(|model| model.attachment == Attachment::Network)
        };
        let (database, other) = match self.direction {
            Direction::Backup => (&self.sources, &self.targets),
            Direction::Restore => (&self.targets, &self.sources),
        };
        let wrong = remote(database) && !remote(other);
        if wrong {
            std::mem::swap(&mut self.sources, &mut self.targets);
        }
        wrong
    }

    /// Predicts how long an alternative takes, and what binds it.
    pub fn predict(&self, alternative: &Alternative) -> Result<Prediction, LabError> {
        if self.used_bytes == 0 {
            return Err(LabError::Setting {
                setting: LabSetting::UsedSize,
                fault: LabFault::NothingToPlan,
            });
        }
        let (job, outcome) = self.grown(alternative)?;
        let (limit, next) = limit::find(self, &job, &outcome);
        Ok(Prediction {
            files: alternative.files,
            compress: alternative.codec.to_string(),
            minutes: outcome.seconds / 60.0,
            seconds: outcome.seconds,
            rate: to_f64(self.used_bytes) / outcome.seconds.max(1e-9),
            stored_bytes: to_f64(self.used_bytes) / alternative.ratio,
            cpu_seconds: outcome.cpu_seconds,
            buffers: job.buffers.buffers,
            transfer_bytes: job.buffers.transfer_bytes,
            buffer_bytes: job.buffers.buffer_bytes,
            limit,
            next,
        })
    }

    /// The run with the buffers that it would have in the end: it takes more while they make it
    /// faster, as the engine's own runs do.
    fn grown(&self, alternative: &Alternative) -> Result<(Job, Outcome), LabError> {
        let mut job = self.job(alternative)?;
        let mut outcome = simulate(&job);
        let (least, most) = (job.buffers.buffers, job.buffers.buffers_max(0));
        let compressors = job.buffers.compressors;
        while job.buffers.buffers < most {
            let count = (job.buffers.buffers * 2).min(most);
            let mut question = self.clone();
            question.request.buffers = Some(count);
            question.request.compressors = Some(compressors);
            question.write_depth = self.write_depth * count / least;
            let more = question.job(alternative)?;
            let faster = simulate(&more);
            if faster.seconds * BUFFERS_GAIN > outcome.seconds {
                break;
            }
            (job, outcome) = (more, faster);
        }
        Ok((job, outcome))
    }

    /// The run as the engine would set it up.
    pub fn job(&self, alternative: &Alternative) -> Result<Job, LabError> {
        let ratio = alternative.ratio.max(1e-3);
        let plan = self.buffers(alternative.files)?;
        let pass_through = alternative.codec == Codec::None;
        let restore = self.direction == Direction::Restore;
        let outputs = if pass_through && !restore {
            0
        } else {
            plan.compressors
        };
        let inputs = inputs_max(plan.buffers, outputs);
        let stored_bytes = to_whole(to_f64(self.used_bytes) / ratio);
        let speed = self.speeds.of(alternative.codec);
        let (read_bytes, gain, cpu_seconds_per_byte) = if restore {
            (
                stored_bytes,
                ratio,
                ratio / speed.decompress_bytes_per_second,
            )
        } else {
            (
                self.used_bytes,
                1.0 / ratio,
                1.0 / speed.compress_bytes_per_second,
            )
        };
        Ok(Job {
            read_bytes,
            gain: if pass_through { 1.0 } else { gain },
            outputs,
            pass_through,
            own_files: restore,
            cpu_seconds_per_byte,
            cores: self.cores,
            sources: self.sources.clone(),
            targets: self.targets.clone(),
            unit_bytes: if restore {
                stored_unit(&plan, ratio)
            } else {
                plan.transfer_bytes as u64
            },
            split_every: if restore { RESTORE_SPLIT_EVERY } else { 0 },
            read_depth: read_depth(inputs, plan.readers),
            write_depth: if restore { 1 } else { self.write_depth },
            instance: self.instance.clone(),
            read_rate: self.read_rate,
            write_rate: self.write_rate,
            initialise_bytes: if restore {
                self.file_bytes.saturating_sub(self.used_bytes)
            } else {
                0
            },
            buffers: plan,
        })
    }

    fn buffers(&self, files: usize) -> Result<BufferPlan, EngineError> {
        let restore = self.direction == Direction::Restore;
        let volumes = if restore { 1 } else { self.sources.len() };
        let request = BufferRequest {
            compressors: Some(self.request.compressors.unwrap_or(self.cores)),
            readers: Some(match self.request.readers {
                _ if restore => 1,
                Some(readers) => readers,
                None => self.cores.min(2),
            }),
            restores: restore,
            ..self.request.clone()
        };
        let plan = request.plan(files.max(1), volumes)?;
        Ok(if restore {
            BufferPlan {
                readers: files.max(1),
                writers: target_writers(true, plan.buffers_max(0)),
                ..plan
            }
        } else {
            plan
        })
    }
}

/// Bytes of one read of a restore: as many whole frames as fit into a buffer, less what a direct
/// read takes in addition.
fn stored_unit(plan: &BufferPlan, ratio: f64) -> u64 {
    let frame = to_f64(plan.frame_bytes as u64) / ratio;
    let room = to_f64(plan.transfer_bytes as u64) - DIRECT_BYTES;
    to_whole((room / frame).floor().max(1.0) * frame)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size, and positive"
)]
fn to_whole(value: f64) -> u64 {
    value.max(1.0) as u64
}

#[cfg(test)]
mod tests;
