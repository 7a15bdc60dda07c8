//! What earlier runs showed of sets: which were read to the last byte, and which were used.
//!
//! Invariant: a verification counts for the files that it read. A copy of a set elsewhere, or a
//! file that was written since, has not been read by anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;
use windlass_engine::SetEntry;
use windlass_repository::CatalogRun;

use super::figures::is_proof;
use super::record::is_running;
use crate::caller::Caller;
use crate::stored::absolute;

/// What earlier runs showed, by the ids of sets. Empty if there is no history.
#[derive(Debug, Default)]
pub struct Proofs {
    verified: BTreeMap<String, Vec<Verified>>,
    proven: BTreeMap<String, Timestamp>,
}

/// A verification that found nothing wrong.
#[derive(Debug)]
struct Verified {
    began: Timestamp,
    ended: Timestamp,
    /// The directories with what it read.
    places: BTreeSet<String>,
}

impl Proofs {
    /// Reads the history. It makes none, and no fault of it matters here.
    pub(crate) fn of(caller: &Caller) -> Self {
        let runs = caller
            .history
            .with_existing(|catalog| catalog.runs(is_running));
        let mut proofs = Self::default();
        for run in runs.and_then(Result::ok).unwrap_or_default() {
            proofs.add(&run);
        }
        proofs
    }

    fn add(&mut self, run: &CatalogRun) {
        let time = |millis: Option<i64>| Timestamp::from_millisecond(millis?).ok();
        let (Some(id), Some(ended), Some(began)) =
            (&run.set_id, time(run.ended), time(Some(run.began)))
        else {
            return;
        };
        match run.command.as_str() {
            "verify" if run.state.is_success() => {
                let verified = Verified {
                    began,
                    ended,
                    places: places_of(run),
                };
                self.verified.entry(id.clone()).or_default().push(verified);
            }
            _ if is_proof(run) => {
                let last = self.proven.entry(id.clone()).or_insert(ended);
                *last = ended.max(*last);
            }
            _ => {}
        }
    }

    /// When what lies here of a set was last read to the last byte, and was right.
    pub fn verified(&self, set: &SetEntry) -> Option<Timestamp> {
        // Most sets of a long list need no look at their files.
        let runs = self.verified.get(&set.set_id.to_string())?;
        let locations = set.stripes.iter().map(|stripe| &stripe.location);
        let all: Option<Vec<_>> = locations.map(|path| written(path)).collect();
        let all = all?;
        let is_of_these = |one: &&Verified| {
            let is_same = |(place, changed): &(String, Option<Timestamp>)| {
                // A file that was written while it was read is read again.
                let is_older = changed.is_none_or(|changed| changed <= one.began);
                one.places.contains(place) && is_older
            };
            !all.is_empty() && all.iter().all(is_same)
        };
        runs.iter().filter(is_of_these).map(|one| one.ended).max()
    }

    /// When all of a set was last restored, or it was opened and checked in a drill.
    pub fn proven(&self, set: &SetEntry) -> Option<Timestamp> {
        self.proven.get(&set.set_id.to_string()).copied()
    }
}

/// The directory of a stripe, and when its file was changed last. Objects in buckets never change.
fn written(path: &Path) -> Option<(String, Option<Timestamp>)> {
    let path = absolute(path).ok()?;
    let place = path.parent()?.display().to_string();
    if windlass_object::is_in_bucket(&path) {
        return Some((place, None));
    }
    let metadata = path.metadata().ok()?;
    let nanos = i32::try_from(metadata.ctime_nsec()).ok()?;
    let changed = Timestamp::new(metadata.ctime(), nanos).ok()?;
    Some((place, Some(changed)))
}

/// Where the devices of a run are.
pub(super) fn places_of(run: &CatalogRun) -> BTreeSet<String> {
    let settings: Value = serde_json::from_str(&run.settings).unwrap_or_default();
    let devices = settings["devices"].as_array();
    let places = devices.into_iter().flatten();
    let places = places.filter_map(|device| device["place"].as_str());
    places.map(str::to_owned).collect()
}
