//! The laboratory. `probe` finds what storage can do. `plan` says how long a run would take, and
//! `accuracy` and `rehearse` say how good such predictions have been. `sweep` shows what settings
//! change, `snapshots` what snapshots cost, and `tune` finds the fastest settings.
//!
//!   probe --> profile --+
//!   names, texts -------+--> storage models --> simulation --> plan --> table, cheapest
//!   sample of a database --> size, ratio ------------^            \--> kept beside what happened
//!
//!   file of events --> table, charts --> a page
//!
//! How long would a backup of 1 TB from one volume to two others take?
//!
//! ```
//! use windlass_engine::{BufferRequest, DEVICE_DEPTH, media::Codec};
//! use windlass_lab::{Alternative, Direction, Question, Speeds};
//! use windlass_model::Model;
//!
//! let volume = Model::parse("rate:250MB/s")?;
//! let question = Question {
//!     direction: Direction::Backup,
//!     used_bytes: 1_000_000_000_000,
//!     file_bytes: 1_000_000_000_000,
//!     sources: vec![volume.clone()],
//!     targets: vec![volume.clone(), volume],
//!     instance: None,
//!     cores: 8,
//!     request: BufferRequest::default(),
//!     write_depth: DEVICE_DEPTH,
//!     read_rate: None,
//!     write_rate: None,
//!     speeds: Speeds::default(),
//! };
//! let way = Alternative { files: 2, codec: Codec::Zstd(1), ratio: 3.0 };
//! let prediction = question.predict(&way)?;
//! // The volume that is read is the limit: 4,000 seconds.
//! assert!((prediction.minutes - 66.7).abs() < 1.0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants
//! - The laboratory never changes a production setting, and never writes into a database.
//! - It writes to a scratch file of its own, which it removes, and to the state directory.
//! - It never prints: the command does.

mod accuracy;
mod advice;
pub mod chart;
mod error;
mod events;
mod numbers;
mod pages;
mod plan;
mod points;
mod probe;
mod profile;
mod rehearsal;
mod sample;
mod series_file;
mod setting;
mod simulate;
pub mod snapshots;
mod speeds;
mod state_dir;
mod sweep;
mod trial;
mod tune;

pub use accuracy::{
    Accuracy, OpenPredictions, PREDICTED_SECONDS_MIN, Predictions, Record, Records, quantile,
};
pub use advice::{Advice, Advised, Measured, advise};
pub use error::LabError;
pub use events::{EventFile, EventTable, IoRow, Spread, WaitRow, event_page};
pub use numbers::to_f64;
pub use pages::{PageTrial, PageWay, Spent, try_pages};
pub use plan::{
    Alternative, ChainPrediction, Choice, Direction, Link, LinkKind, LinkPrediction, PlanLimit,
    Prediction, Question, Sureness, choose, sureness,
};
pub use points::{Knee, Operation, Pattern, Point};
pub use probe::{
    CODECS, FLIGHT_BYTES_MAX, ProbeRequest, measure_codecs, measure_memory, probe, with_knees,
};
pub use profile::{CpuProfile, DeviceId, Profile, Worse, profiles_directory};
pub use rehearsal::{Corpus, Rehearsal, SETUPS, SetUp, rehearse};
pub use sample::{Extent, Sample, plain_files};
pub use setting::{LabFault, LabSetting};
pub use simulate::{Job, Outcome, simulate};
pub use speeds::{CodecSpeed, MemorySpeeds, Speeds};
pub use state_dir::{Surroundings, state_directory};
pub use sweep::{
    Axes, Axis, Case, Chosen, Difference, Environment, Experiment, Findings, Inputs, Measure,
    Noise, Series, Source, Storage, SweptRun, Titled, findings, median, report, rounds, tables,
};
pub use trial::TrialSource;
pub use tune::{Bounds, Ended, Settings, Space, Trial, Tuned, exhaust, tune};
