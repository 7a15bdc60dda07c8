//! The raw series: the inputs, the environment, and every run. It is kept as JSON.

use std::path::Path;

use serde::{Deserialize, Serialize};
use windlass_engine::{OutputKind, Outputs, RunReport};

use super::axes::{Axis, Case};
use super::environment::Environment;
use super::experiment::Experiment;
use crate::error::LabError;
use crate::plan::Direction;
use crate::profile::Profile;
use crate::series_file::{self, SeriesFile};

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// Which experiment.
    pub experiment: Experiment,
    /// Backups or restores.
    pub direction: Direction,
    /// `PostgreSQL` or `SQLite`, or the kind of what was probed.
    pub kind: String,
    /// Bytes of the database that a backup reads; if there are several, of the largest one.
    pub database_bytes: u64,
    /// Where the stripes went: places, or `nul`.
    pub to: Vec<String>,
    /// Rounds.
    pub repeat: usize,
    /// The arguments that every run got, besides those of its case.
    pub arguments: Vec<String>,
}

/// A finished sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The version of this file's format.
    pub version: u32,
    /// When it began, RFC 3339.
    pub at: String,
    /// What the user asked for.
    pub inputs: Inputs,
    /// Where it ran.
    pub environment: Environment,
    /// The settings.
    pub cases: Vec<Case>,
    /// Every run, in the order in which they were made.
    pub runs: Vec<SweptRun>,
    /// What each round of the experiment `device` probed.
    #[serde(default)]
    pub probes: Vec<Profile>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweptRun {
    /// Index of its case.
    pub case: usize,
    /// Which round, from 0.
    pub round: usize,
    /// CPU time of the whole process of this run, in seconds.
    pub process_cpu_seconds: f64,
    /// What it reported.
    pub report: RunReport,
}

impl SeriesFile for Series {
    const VERSION: u32 = 2;
    const KIND: OutputKind = OutputKind {
        noun: "a series of a sweep",
        is_own: |beginning| {
            let has = |text: &[u8]| beginning.windows(text.len()).any(|part| part == text);
            beginning.starts_with(b"{") && has(b"\"inputs\":{\"experiment\"")
        },
        is_renamed: false,
    };

    fn version(&self) -> u32 {
        self.version
    }

    fn has_all_cases(&self) -> bool {
        self.runs.iter().all(|run| run.case < self.cases.len())
    }
}

impl Series {
    /// A series without runs.
    pub fn new(at: String, inputs: Inputs, environment: Environment, cases: Vec<Case>) -> Self {
        Self {
            version: Self::VERSION,
            at,
            inputs,
            environment,
            cases,
            runs: Vec::new(),
            probes: Vec::new(),
        }
    }

    /// Reads a kept series.
    pub fn load(path: &Path) -> Result<Self, LabError> {
        series_file::load(path)
    }

    /// Writes the series to a file, if `outputs` allows it.
    pub fn save(&self, path: &Path, outputs: &Outputs) -> Result<(), LabError> {
        series_file::save(self, path, outputs)
    }

    /// The axes on which the cases differ.
    pub fn axes(&self) -> Vec<Axis> {
        let differ = |axis: &Axis| {
            let mut labels = self.cases.iter().map(|case| case.label(*axis));
            let first = labels.next();
            labels.any(|label| Some(label) != first)
        };
        Axis::ALL.into_iter().filter(differ).collect()
    }

    /// The values of an axis. Numbers are in ascending order, names as they were given.
    pub fn values(&self, axis: Axis) -> Vec<String> {
        let mut cases: Vec<&Case> = self.cases.iter().collect();
        cases.sort_by_key(|case| case.place(axis));
        let mut labels: Vec<String> = Vec::new();
        for case in cases {
            let label = case.label(axis);
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }

    /// The values of an axis that the user or the experiment gave. A default number of buffers
    /// follows from the devices, so it is not a value of its own.
    pub(super) fn given(&self, axis: Axis) -> Vec<String> {
        let mut values = self.values(axis);
        values.retain(|value| value != super::axes::DEFAULT);
        values
    }

    /// The runs of a case.
    pub fn runs_of(&self, case: usize) -> impl Iterator<Item = &SweptRun> {
        self.runs.iter().filter(move |run| run.case == case)
    }

    /// The case that others are compared with: the one with the most knobs at their defaults.
    pub fn baseline(&self) -> usize {
        let first = |axis: Axis| self.cases.first().map(|case| case.label(axis));
        let touched = |case: &Case| {
            let plain = Case {
                devices: 1,
                transfer_bytes: super::axes::TRANSFER_DEFAULT,
                buffers: None,
                block_bytes: super::axes::BLOCK_BYTES_DEFAULT,
                ..case.clone()
            };
            let is_default = |axis: Axis| match axis {
                Axis::Database | Axis::Storage | Axis::Codec | Axis::Pages => {
                    Some(case.label(axis)) == first(axis)
                }
                Axis::Buffers => case.buffers.is_none_or(|buffers| {
                    buffers == windlass_engine::default_buffer_count(case.devices, 1)
                }),
                axis => case.label(axis) == plain.label(axis),
            };
            Axis::ALL
                .into_iter()
                .filter(|axis| !is_default(*axis))
                .count()
        };
        let cases = self.cases.iter().enumerate();
        let least = cases.min_by_key(|(_, case)| touched(case));
        least.map_or(0, |(index, _)| index)
    }
}
