//! The file of predictions, each beside what then happened: `predictions.jsonl` in the state
//! directory.
//!
//! The file holds one JSON object a line, the newest last. Windlass appends one after each real run
//! whose storage has a profile or is emulated. It cuts the file to its newer half when the file
//! grows beyond a megabyte.
//!
//! Invariants
//! - A line that cannot be read (a power cut left half of it) is counted. The other lines are still
//!   read.
//! - Nothing here makes a run fail: the caller gets the error, and goes on.
//! - The file is opened before a run and written to after it. By the end of the run the process may
//!   have become another user, who has no right to open the file.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windlass_engine::{Resource, durable, open_own, read_regular_at_most};

use crate::error::LabError;
use crate::plan::Direction;

const FILE: &str = "predictions.jsonl";
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Windlass lets no file grow so long. What is longer is something else.
const READ_BYTES_MAX: u64 = 16 * FILE_BYTES_MAX;
/// A plan predicts how long data move. Most of a shorter run is its beginning and its end, so a
/// shorter time is no prediction, and a shorter run judges none. The file keeps it all the same.
pub const PREDICTED_SECONDS_MIN: f64 = 1.0;

/// A run that was predicted and then made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it ended, RFC 3339.
    pub at: String,
    /// Backup or restore.
    pub direction: Direction,
    /// The set, as 32 hex digits.
    pub set_id: String,
    /// Stripes.
    pub files: usize,
    /// Codec.
    pub compress: String,
    /// Bytes of the database.
    pub bytes: u64,
    /// The duration that the plan predicted, in seconds.
    pub predicted_seconds: f64,
    /// The duration that was measured, in seconds.
    pub measured_seconds: f64,
    /// What the plan expected to bind.
    pub predicted_limit: Resource,
    /// What did bind.
    pub measured_limit: Resource,
    /// The models that the plan used: profiles, or names of models.
    pub basis: String,
}

impl Record {
    /// How far the prediction was from what happened, as a share of what happened.
    pub fn error(&self) -> f64 {
        self.predicted_seconds / self.measured_seconds.max(1e-9) - 1.0
    }

    /// Whether the run says nothing about predictions: it was too short, or what was told before it
    /// was no time, but that it would be too short.
    fn is_no_measure(&self) -> bool {
        self.measured_seconds < PREDICTED_SECONDS_MIN || self.is_too_short()
    }

    /// Whether data would move for too short a time to predict how long the run takes.
    pub fn is_too_short(&self) -> bool {
        self.predicted_seconds < PREDICTED_SECONDS_MIN
    }
}

/// How good predictions of one direction have been.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Backup or restore.
    pub direction: Direction,
    /// How many runs.
    pub runs: usize,
    /// Median of the absolute errors, as a share.
    pub error_median: f64,
    /// Nine in ten errors were within this.
    pub error_p90: f64,
    /// The worst.
    pub error_worst: f64,
    /// Median of the signed errors. If it is below zero, plans promise too much.
    pub bias: f64,
    /// Share of runs whose limit was the predicted one.
    pub limit_right: f64,
}

/// Where records are kept.
#[derive(Clone, Debug)]
pub struct Predictions {
    path: PathBuf,
}

/// The file of predictions, open. It takes one more record.
#[derive(Debug)]
pub struct OpenPredictions {
    path: PathBuf,
    file: File,
}

/// What such a file holds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Records {
    /// Oldest first.
    pub records: Vec<Record>,
    /// Lines that could not be read.
    pub unreadable: usize,
}

impl Predictions {
    /// The file of predictions of a state directory.
    pub fn of(state_directory: &Path) -> Self {
        Self {
            path: state_directory.join(FILE),
        }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it for a run that is about to begin.
    pub fn open(&self) -> Result<OpenPredictions, LabError> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(LabError::io("create", directory))?;
        self.shorten()?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o644);
        let file = open_own(&self.path, &mut options);
        Ok(OpenPredictions {
            file: file.map_err(LabError::io("open", &self.path))?,
            path: self.path.clone(),
        })
    }

    /// Cuts the file to its newer half when it has become too long.
    fn shorten(&self) -> Result<(), LabError> {
        let found = fs::metadata(&self.path);
        if !found.is_ok_and(|file| file.is_file() && file.len() > FILE_BYTES_MAX) {
            return Ok(());
        }
        let text = read_regular_at_most(&self.path, READ_BYTES_MAX);
        let text = text.map_err(LabError::io("read", &self.path))?;
        let half = &text[text.len() / 2..];
        let begin = half
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        durable::write(&self.path, &half[begin..], 0o644).map_err(LabError::io("write", &self.path))
    }

    /// Reads all records; none if there is no file.
    pub fn read(&self) -> Result<Records, LabError> {
        let text = match read_regular_at_most(&self.path, READ_BYTES_MAX) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Records::default());
            }
            other => other.map_err(LabError::io("read", &self.path))?,
        };
        let mut found = Records::default();
        let lines = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        for line in lines {
            match serde_json::from_slice(line) {
                Ok(record) => found.records.push(record),
                Err(_) => found.unreadable += 1,
            }
        }
        Ok(found)
    }
}

impl OpenPredictions {
    /// Appends a record, durably.
    pub fn append(mut self, record: &Record) -> Result<(), LabError> {
        let line = serde_json::to_vec(record);
        let mut line = line.map_err(|error| LabError::io("write", &self.path)(error.into()))?;
        line.push(b'\n');
        // If the last line was cut off, the new record must not become a part of it.
        if self.ends_inside_a_line() {
            line.insert(0, b'\n');
        }
        let written = self
            .file
            .write_all(&line)
            .and_then(|()| self.file.sync_all());
        written.map_err(LabError::io("write", &self.path))
    }

    fn ends_inside_a_line(&self) -> bool {
        let mut last = [b'\n'];
        let bytes = self.file.metadata().map_or(0, |file| file.len());
        let read = self.file.read_exact_at(&mut last, bytes.saturating_sub(1));
        read.is_ok() && last != [b'\n']
    }
}

impl Records {
    /// How many runs were, or seemed, too short to judge a prediction.
    pub fn too_short(&self) -> usize {
        let records = self.records.iter();
        records.filter(|one| one.is_no_measure()).count()
    }

    /// How good the predictions of a direction were; `None` if no run was long enough to tell.
    pub fn accuracy(&self, direction: Direction) -> Option<Accuracy> {
        let of = |record: &&Record| record.direction == direction && !record.is_no_measure();
        let records: Vec<_> = self.records.iter().filter(of).collect();
        if records.is_empty() {
            return None;
        }
        let signed: Vec<f64> = records.iter().map(|record| record.error()).collect();
        let sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        let right = records
            .iter()
            .filter(|one| one.predicted_limit == one.measured_limit);
        #[expect(clippy::cast_precision_loss, reason = "a number of runs")]
        let limit_right = right.count() as f64 / records.len() as f64;
        Some(Accuracy {
            direction,
            runs: records.len(),
            error_median: quantile(&sizes, 0.5),
            error_p90: quantile(&sizes, 0.9),
            error_worst: quantile(&sizes, 1.0),
            bias: quantile(&signed, 0.5),
            limit_right,
        })
    }
}

/// A quantile of the values, interpolated between neighbours; zero if there are no values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    #[expect(clippy::cast_precision_loss, reason = "a number of values")]
    let place = last as f64 * share.clamp(0.0, 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index within the values"
    )]
    let index = place.floor() as usize;
    let (low, high) = (sorted[index], sorted[(index + 1).min(last)]);
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(predicted: f64, measured: f64) -> Record {
        Record {
            at: "2026-01-01T00:00:00Z".to_owned(),
            direction: Direction::Backup,
            set_id: "0".repeat(32),
            files: 1,
            compress: "zstd:1".to_owned(),
            bytes: 1 << 30,
            predicted_seconds: predicted,
            measured_seconds: measured,
            predicted_limit: Resource::Source,
            measured_limit: if measured > 100.0 {
                Resource::Device
            } else {
                Resource::Source
            },
            basis: "profile".to_owned(),
        }
    }

    #[test]
    fn what_is_kept_is_what_is_read_and_judged() {
        let place = tempfile::tempdir().unwrap();
        let predictions = Predictions::of(&place.path().join("state"));
        assert!(predictions.read().unwrap().records.is_empty());
        for (predicted, measured) in [
            (90.0, 100.0),
            (110.0, 100.0),
            (100.0, 100.0),
            (150.0, 200.0),
        ] {
            predictions
                .open()
                .unwrap()
                .append(&record(predicted, measured))
                .unwrap();
        }
        let found = predictions.read().unwrap();
        assert_eq!((found.records.len(), found.unreadable), (4, 0));
        let accuracy = found.accuracy(Direction::Backup).unwrap();
        assert!((accuracy.error_median - 0.1).abs() < 1e-9);
        assert!((accuracy.error_worst - 0.25).abs() < 1e-9);
        assert!((accuracy.bias + 0.05).abs() < 1e-9);
        assert!((accuracy.limit_right - 0.75).abs() < 1e-9);
        assert_eq!(found.accuracy(Direction::Restore), None);
    }

    #[test]
    fn short_runs_are_kept_and_judge_nothing() {
        let place = tempfile::tempdir().unwrap();
        let predictions = Predictions::of(place.path());
        predictions
            .open()
            .unwrap()
            .append(&record(0.01, 0.5))
            .unwrap();
        let found = predictions.read().unwrap();
        assert_eq!((found.records.len(), found.too_short()), (1, 1));
        assert_eq!(found.accuracy(Direction::Backup), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn what_is_no_file_of_predictions_is_an_error_and_not_a_wait() {
        let place = tempfile::tempdir().unwrap();
        let predictions = Predictions::of(place.path());
        let made = std::process::Command::new("mkfifo")
            .arg(predictions.path())
            .status();
        assert!(made.unwrap().success());
        assert!(predictions.read().is_err());
        assert!(predictions.open().is_err());
        let other = place.path().join("other");
        fs::write(&other, "mine").unwrap();
        for target in [Path::new("/dev/zero"), &other] {
            fs::remove_file(predictions.path()).unwrap();
            std::os::unix::fs::symlink(target, predictions.path()).unwrap();
            assert!(predictions.open().is_err(), "{}", target.display());
            assert_eq!(predictions.read().is_err(), target != other);
        }
        fs::remove_file(predictions.path()).unwrap();
        fs::hard_link(&other, predictions.path()).unwrap();
        assert!(predictions.open().is_err());
        assert_eq!(fs::read(&other).unwrap(), b"mine");
    }

    #[test]
    fn half_a_line_costs_no_other_line() {
        let place = tempfile::tempdir().unwrap();
        let predictions = Predictions::of(place.path());
        predictions
            .open()
            .unwrap()
            .append(&record(1.0, 1.0))
            .unwrap();
        let mut file = OpenOptions::new()
            .append(true)
            .open(predictions.path())
            .unwrap();
        file.write_all(b"{\"at\":\"2026").unwrap();
        predictions
            .open()
            .unwrap()
            .append(&record(2.0, 2.0))
            .unwrap();
        let found = predictions.read().unwrap();
        assert_eq!((found.records.len(), found.unreadable), (2, 1));
        assert_eq!(found.records[1], record(2.0, 2.0));
    }

    #[test]
    fn the_file_stays_within_its_bound_and_keeps_the_newest() {
        let place = tempfile::tempdir().unwrap();
        let predictions = Predictions::of(place.path());
        let line = serde_json::to_string(&record(1.0, 1.0)).unwrap() + "\n";
        let lines = FILE_BYTES_MAX / line.len() as u64 + 1;
        let many = line.repeat(usize::try_from(lines).unwrap());
        durable::write(predictions.path(), many.as_bytes(), 0o644).unwrap();
        predictions
            .open()
            .unwrap()
            .append(&record(7.0, 7.0))
            .unwrap();
        let bytes = fs::metadata(predictions.path()).unwrap().len();
        assert!(bytes < FILE_BYTES_MAX * 6 / 10, "{bytes}");
        let found = predictions.read().unwrap();
        assert_eq!(found.unreadable, 0);
        assert_eq!(found.records.last(), Some(&record(7.0, 7.0)));
    }

    #[test]
    fn quantiles_lie_between_the_values() {
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[3.0], 0.9), 3.0);
        assert_eq!(quantile(&[4.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.5), 1.5);
    }
}
