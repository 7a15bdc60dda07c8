//! A backup of the log of a SQLite database: what its log has that the place lacks, once.

use std::path::Path;
use std::time::Instant;

use windlass_engine::Cancel;
use windlass_engine::media::SetId;
use windlass_repository::{LogPlace, database_number};

use super::{LogBackupRequest, Named, only_place};
use crate::caller::Caller;
use crate::captured::{CapturedLog, Capturing};
use crate::commits;
use crate::devices;
use crate::error::OperationError;
use crate::info::with_bases;
use crate::outputs;
use crate::places;
use crate::run::Run;
use crate::stored::{log_at, log_into};
use crate::warnings::{LOG_GAP, LOG_WITHOUT_SET, Warnings};

/// The log of a database that was captured once.
#[derive(Debug)]
pub struct DatabaseLogOutcome {
    /// What was captured.
    pub captured: CapturedLog,
    /// The newest set in the place that leads to the log.
    pub set: Option<SetId>,
    /// What the user should know.
    pub warnings: Warnings,
    /// How long it took.
    pub seconds: f64,
}

pub(super) fn make(
    caller: &Caller,
    (request, path): (&LogBackupRequest, &Path),
    run: &Run<'_>,
    cancel: &Cancel,
) -> Result<DatabaseLogOutcome, OperationError> {
    let began = Instant::now();
    let device = only_place(&request.to)?;
    let outputs = outputs::of_sqlite(path)?;
    run.check(&devices::protect(std::slice::from_ref(&device), &outputs)?)?;
    let place = device.place().unwrap_or(Path::new("."));
    let place = log_into(place, &request.encrypt)?;
    let mut capturing = Capturing::open(caller, (path, &place), None, cancel)?;
    capturing.look(cancel)?;
    let captured = capturing.end()?;
    let (set, warnings) = judge(&captured)?;
    Ok(DatabaseLogOutcome {
        captured,
        set,
        warnings: Warnings::new(warnings, &request.accept),
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Whether a set leads to the log. The newest one that does counts.
fn judge(captured: &CapturedLog) -> Result<(Option<SetId>, Vec<Named>), OperationError> {
    let place = std::slice::from_ref(&captured.place);
    let list = places::list(place)?;
    let sets = commits::sets_of(&with_bases(&list.sets, place), &captured.key);
    if sets.is_empty() {
        let text = "the place has no set of this database, and the log alone restores nothing";
        return Ok((None, vec![(LOG_WITHOUT_SET, text.to_owned())]));
    }
    let log = LogPlace::of_database(&log_at(&captured.place), database_number(&captured.key));
    for set in sets.iter().rev() {
        let linked = commits::linked(&log, set)?;
        if linked.is_some_and(|linked| linked.timeline == captured.timeline) {
            return Ok((Some(set.id), Vec::new()));
        }
    }
    let text = format!(
        "no set leads to timeline {} of this log: transactions before it may be missing, so make a \
         full backup",
        captured.timeline
    );
    Ok((None, vec![(LOG_GAP, text)]))
}
