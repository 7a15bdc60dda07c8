//! The raw series of an experiment with snapshots: the inputs, the environment, and every run.

use std::path::Path;

use serde::{Deserialize, Serialize};
use windlass_engine::{OutputKind, Outputs};

use super::experiment::SnapshotExperiment;
use crate::chart::Unit;
use crate::error::LabError;
use crate::series_file::{self, SeriesFile};
use crate::sweep::Environment;

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotInputs {
    /// Which experiment.
    #[serde(rename = "snapshots")]
    pub experiment: SnapshotExperiment,
    /// The version of the server.
    pub server: String,
    /// The method that snapshots are made by.
    pub method: String,
    /// How large the tables are.
    pub scale: u32,
    /// Bytes of the cluster after its tables were filled.
    pub cluster_bytes: u64,
    /// How long a load runs before something is measured, or is measured.
    pub seconds: f64,
    /// Rounds.
    pub repeat: usize,
    /// The directory of the cluster.
    pub into: String,
    /// The settings that the server was given.
    pub settings: Vec<(String, String)>,
}

/// A finished experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotSeries {
    /// The version of this file's format.
    pub version: u32,
    /// When it began, RFC 3339.
    pub at: String,
    /// What the user asked for.
    pub inputs: SnapshotInputs,
    /// Where it ran.
    pub environment: Environment,
    /// What was compared.
    pub cases: Vec<SnapshotCase>,
    /// Every run, in the order in which they were made.
    pub runs: Vec<SnapshotRun>,
}

/// A place on an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotSetting {
    /// The axis.
    pub axis: String,
    /// Where on it; names are numbered.
    pub place: f64,
    /// In words.
    pub label: String,
}

/// Settings that are measured together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotCase(pub Vec<SnapshotSetting>);

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes in each second.
    BytesPerSecond,
    /// Things in each second.
    PerSecond,
    /// Things.
    Count,
}

/// A number that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// What it is the number of.
    pub name: String,
    /// What kind of number it is.
    pub kind: ValueKind,
    /// The number.
    pub value: f64,
}

/// A step, and how long it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTook {
    /// What was done.
    pub name: String,
    /// Its seconds.
    pub seconds: f64,
    /// Of what it is a step.
    pub of: TookOf,
}

/// What a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TookOf {
    /// Making the snapshot.
    Making,
    /// Opening it for the first time.
    Opening,
}

/// What was seen at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the run began.
    pub seconds: f64,
    /// What was seen, each under a name.
    pub values: Vec<Value>,
}

/// One run of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRun {
    /// Index of its case.
    pub case: usize,
    /// Which round, from 0.
    pub round: usize,
    /// What was measured.
    pub values: Vec<Value>,
    /// The steps of making and opening, if a snapshot was made.
    #[serde(default)]
    pub steps: Vec<StepTook>,
    /// What happened in the course of it.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// When a snapshot was begun and ended, in seconds since the run began.
    #[serde(default)]
    pub making: Option<(f64, f64)>,
}

impl ValueKind {
    /// The unit of charts. A number of things in a second is drawn as a number of things.
    pub(super) fn unit(self) -> Unit {
        match self {
            Self::Seconds => Unit::Seconds,
            Self::Bytes => Unit::Bytes,
            Self::BytesPerSecond => Unit::BytesPerSecond,
            Self::PerSecond | Self::Count => Unit::Count,
        }
    }

    /// As text.
    pub fn show(self, value: f64) -> String {
        let shown = self.unit().show(value);
        match self {
            Self::PerSecond => format!("{shown}/s"),
            _ => shown,
        }
    }
}

impl SnapshotCase {
    /// Its place on an axis.
    pub(super) fn on(&self, axis: &str) -> Option<&SnapshotSetting> {
        self.0.iter().find(|setting| setting.axis == axis)
    }

    /// In words, without the axis `but`.
    pub fn words(&self, but: Option<&str>) -> String {
        let others = self.0.iter().filter(|one| Some(one.axis.as_str()) != but);
        let labels: Vec<_> = others.map(|one| one.label.as_str()).collect();
        labels.join(", ")
    }
}

impl SnapshotRun {
    /// A measured number.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.name == name)
    }
}

impl SeriesFile for SnapshotSeries {
    const VERSION: u32 = 1;
    const KIND: OutputKind = OutputKind {
        noun: "a series of an experiment with snapshots",
        is_own: |beginning| {
            let mark = b"\"inputs\":{\"snapshots\"";
            beginning.starts_with(b"{") && beginning.windows(mark.len()).any(|part| part == mark)
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

impl SnapshotSeries {
    /// A series without runs.
    pub fn new(
        at: String,
        inputs: SnapshotInputs,
        environment: Environment,
        cases: Vec<SnapshotCase>,
    ) -> Self {
        Self {
            version: Self::VERSION,
            at,
            inputs,
            environment,
            cases,
            runs: Vec::new(),
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

    /// The runs of a case.
    pub(super) fn runs_of(&self, case: usize) -> impl Iterator<Item = &SnapshotRun> {
        self.runs.iter().filter(move |run| run.case == case)
    }

    /// A measure's values in the runs of a case.
    pub(super) fn values_of(&self, case: usize, name: &str) -> Vec<f64> {
        let runs = self.runs_of(case);
        let values = runs.filter_map(|run| run.value(name));
        values.map(|value| value.value).collect()
    }

    /// Names and kinds of all that was measured, in the order in which they came.
    pub(super) fn measures(&self) -> Vec<(String, ValueKind)> {
        let mut measures: Vec<(String, ValueKind)> = Vec::new();
        for value in self.runs.iter().flat_map(|run| &run.values) {
            if !measures.iter().any(|(name, _)| *name == value.name) {
                measures.push((value.name.clone(), value.kind));
            }
        }
        measures
    }

    /// The kind of a measure.
    pub(super) fn kind_of(&self, name: &str) -> Option<ValueKind> {
        let measures = self.measures();
        measures
            .iter()
            .find(|(one, _)| one == name)
            .map(|one| one.1)
    }

    /// The axes, in the order in which they came.
    pub(super) fn axes(&self) -> Vec<String> {
        let mut axes: Vec<String> = Vec::new();
        for setting in self.cases.iter().flat_map(|case| &case.0) {
            if !axes.contains(&setting.axis) {
                axes.push(setting.axis.clone());
            }
        }
        axes
    }
}
