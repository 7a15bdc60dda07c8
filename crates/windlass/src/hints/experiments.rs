//! Sweeps and rehearsals that cannot be made.

use windlass_operations::experimenting::ExperimentError;
use windlass_operations::rehearsing::RehearseError;
use windlass_operations::sweeping::{FailedRun, SweepError};

/// The message about a sweep, and what to do about it.
pub fn sweep(error: &SweepError) -> (String, Option<String>) {
    let (message, hint) = match error {
        SweepError::DifferentOwners => (
            error.to_string(),
            "Sweep each by itself: scratch files belong to the owner of what is backed up.",
        ),
        SweepError::NulAlone => (
            "--to nul: from nothing nothing can be restored, and it stands alone".to_owned(),
            "Name directories.",
        ),
        SweepError::NotOneDirectory => (error.to_string(), "Name one; sweep others by themselves."),
        SweepError::NoDirectory { .. } => (
            error.to_string(),
            "The experiment `device` takes a directory.",
        ),
        SweepError::Room { .. } => (error.to_string(), "Name another place: --to, --into."),
        SweepError::Scratch { .. } => (
            error.to_string(),
            "Name directories that the database's owner may write to: --to, --into.",
        ),
        SweepError::Out { .. } => (error.to_string(), "Name another directory: --out."),
        SweepError::Process { .. } => (error.to_string(), "Try again."),
        SweepError::Failed(run) => return failed(run),
        SweepError::NoReport { .. } => (format!("windlass {error}"), BY_ITSELF),
        other => return (other.to_string(), None),
    };
    (message, Some(hint.to_owned()))
}

const BY_ITSELF: &str = "Run it by itself to see more.";

/// What the run itself says, if it came so far.
fn failed(run: &FailedRun) -> (String, Option<String>) {
    let document: serde_json::Value = serde_json::from_str(&run.output).unwrap_or_default();
    match document["error"].as_str() {
        Some(error) => {
            let hint = document["hint"].as_str();
            (error.to_owned(), hint.map(str::to_owned))
        }
        None => (format!("windlass {run}"), Some(BY_ITSELF.to_owned())),
    }
}

/// The message about an experiment with snapshots, and what to do about it.
pub fn snapshots(error: &ExperimentError) -> (String, Option<String>) {
    let hint = match error {
        ExperimentError::NotAServer => {
            "Name a server: a connection string like 'host=/var/run/postgresql'."
        }
        ExperimentError::NoCounters => {
            "Make one with a name of its own, and look at its size now and then: `windlass \
             snapshot list` shows it."
        }
        ExperimentError::Standby => "Ask the primary.",
        _ => "This is a fault of Windlass or of the server: please report it.",
    };
    (error.to_string(), Some(hint.to_owned()))
}

/// The message about a rehearsal, and what to do about it.
pub fn rehearse(error: &RehearseError) -> (String, Option<String>) {
    let (message, hint) = match error {
        RehearseError::NoDirectory { .. } => (
            error.to_string(),
            "Name a directory with room for three times --bytes; it is left as it was.",
        ),
        RehearseError::NoSetUp { .. } => (
            format!("lab rehearse: {error}"),
            "Leave --only out to see all of them.",
        ),
        _ => (error.to_string(), "Name a directory that can be written."),
    };
    (message, Some(hint.to_owned()))
}
