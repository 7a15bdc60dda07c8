//! How a run ended, as one record: what ran, when, how it ended, and what it moved.
//!
//!   RunStart --> run --> [`RunEnd`] --> events, metrics, hooks, history, `Notice::RunEnded`
//!
//! Everything that says how a run ended takes it from here.

use jiff::Timestamp;
use windlass_engine::media::BackupType;
use windlass_engine::{RunReport, to_json};

use crate::ending::Ending;

/// A run that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStart {
    /// `backup`, `restore`, `verify`.
    pub command: &'static str,
    /// The same for metrics, but a backup that keeps nothing is a `trial`: nobody who looks for the
    /// last backup may find it.
    pub operation: &'static str,
    /// What it works on, as the user named it or as it is called.
    pub subject: String,
    /// The same for metrics. It is another one for each database, and the same one every night.
    pub series: String,
    /// When it began.
    pub started: Timestamp,
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct RunEnd {
    /// What ran.
    pub run: RunStart,
    /// When it ended.
    pub ended: Timestamp,
    /// How it ended.
    pub ending: Ending,
    /// What went wrong, if it failed.
    pub error: Option<String>,
    /// What it did, if it came to its end.
    pub counts: Option<RunCounts>,
    /// Everything that it reported, as JSON; null if it did not come to its end.
    pub report: serde_json::Value,
}

/// What a run did.
#[derive(Clone, Debug, PartialEq)]
pub struct RunCounts {
    /// The set that it wrote or read; `None` if nothing was kept.
    pub set_id: Option<String>,
    /// What kind of backup it made: `full`, `diff`, `incr` or `log`. Nothing else makes one.
    pub set_type: Option<String>,
    /// The stripes.
    pub stripes: Vec<String>,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// How long it took.
    pub seconds: f64,
    /// What limited it.
    pub verdict: String,
}

impl RunStart {
    /// The end of a run that did its work.
    pub(crate) fn done(&self, ending: Ending, report: &RunReport) -> RunEnd {
        RunEnd {
            counts: Some(RunCounts::of(report)),
            report: to_json(report),
            ..self.failed(ending, None)
        }
    }

    /// The end of a run that did not.
    pub(crate) fn failed(&self, ending: Ending, error: Option<&str>) -> RunEnd {
        RunEnd {
            run: self.clone(),
            ended: Timestamp::now(),
            ending,
            error: error.map(str::to_owned),
            counts: None,
            report: serde_json::Value::Null,
        }
    }
}

impl RunEnd {
    /// Whether the run did what it is for.
    pub fn is_success(&self) -> bool {
        matches!(self.ending, Ending::Done | Ending::Warnings)
    }

    /// The same end after the run was judged, which adds to the verdict.
    pub(crate) fn judged(self, ending: Ending, report: &RunReport) -> Self {
        Self {
            ending,
            counts: Some(RunCounts::of(report)),
            report: to_json(report),
            ..self
        }
    }
}

impl RunEnd {
    /// The same end of a run that made a set of this kind. It may be another one than was asked
    /// for.
    pub(crate) fn with_type(mut self, set_type: BackupType) -> Self {
        if let Some(counts) = &mut self.counts {
            counts.set_type = to_json(&set_type).as_str().map(str::to_owned);
        }
        self
    }
}

impl RunCounts {
    fn of(report: &RunReport) -> Self {
        let stripes = report.devices.iter().map(|one| one.name.clone());
        Self {
            set_id: report.set_id.clone(),
            set_type: None,
            stripes: stripes.collect(),
            bytes_read: report.bytes_read,
            bytes_written: report.bytes_written,
            seconds: report.seconds,
            verdict: report.verdict.clone(),
        }
    }
}
