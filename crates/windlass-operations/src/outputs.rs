//! The files that an output must not harm, for each kind of operation.
//!
//! The rule itself is in the engine (`windlass_engine::Outputs`). This file knows the databases'
//! own files and the kinds of output that only a command writes.

use std::collections::BTreeSet;
use std::path::Path;

use windlass_engine::{EngineError, FoundSet, OutputKind, Outputs};
use windlass_repository::{Place, log_databases, log_directory, log_systems};

use crate::error::{DatabaseError, OperationError};

/// Metrics for the textfile collector.
pub const METRICS: OutputKind = OutputKind {
    noun: "a file of Windlass's metrics",
    is_own: |beginning| beginning.starts_with(b"# HELP windlass_"),
    is_renamed: true,
};

/// A man page.
pub const MAN_PAGE: OutputKind = OutputKind {
    noun: "a man page of Windlass",
    is_own: |beginning| contains(beginning, b".TH") && contains(beginning, b"indlass"),
    is_renamed: false,
};

/// The configuration.
pub const CONFIGURATION: OutputKind = OutputKind {
    noun: "a configuration of Windlass",
    // A program that changes the file has read it as a configuration before.
    is_own: |beginning| std::str::from_utf8(beginning).is_ok() && !beginning.contains(&0),
    is_renamed: false,
};

/// Outputs of a command that reads no database and no set.
pub fn outputs() -> Outputs {
    Outputs::new()
        .guarded_by(windlass_sqlite::side_file_of)
        .guarded_by(windlass_snapshot::snapshot_around)
        .guarded_by(windlass_postgres::cluster_around)
}

/// Outputs of a command that creates single new files and replaces nothing. The files may be in a
/// data directory if no server runs on it, because an earlier extract may have created that
/// directory.
pub fn of_files() -> Outputs {
    Outputs::new()
        .guarded_by(windlass_sqlite::side_file_of)
        .guarded_by(windlass_snapshot::snapshot_around)
        .guarded_by(windlass_postgres::running_cluster_around)
}

/// Outputs of a command that makes a cluster that is there into another one. Nothing guards that
/// cluster, but a snapshot is none.
pub(crate) fn over_cluster(outputs: Outputs) -> Outputs {
    let outputs = outputs.unguarded();
    outputs.guarded_by(windlass_snapshot::snapshot_around)
}

/// Outputs of a command that reads a set. The log beside it is no place for them.
pub fn of_set(set: &FoundSet) -> Result<Outputs, OperationError> {
    let mut outputs = outputs();
    outputs.protect_set(set)?;
    let stripes = set.links().flat_map(FoundSet::stripes);
    let places = stripes.filter_map(|stripe| stripe.location().parent());
    let places: BTreeSet<&Path> = places.collect();
    places
        .iter()
        .try_for_each(|place| protect_log(&mut outputs, place))?;
    Ok(outputs)
}

/// No output may lie in the log of a place, if that is a directory and has one.
pub(crate) fn protect_log(outputs: &mut Outputs, place: &Path) -> Result<(), OperationError> {
    let (log, at) = (log_directory(place), Place::directory(place));
    let has_log = || log_systems(&at).map_or(true, |systems| !systems.is_empty());
    let has_databases = || log_databases(&at).map_or(true, |databases| !databases.is_empty());
    if log.is_dir() && (has_log() || has_databases()) {
        let what = format!("{} holds archived log", log.display());
        outputs.protect_directory(&log, &what)?;
    }
    Ok(())
}

/// Outputs of a command that reads a SQLite database.
pub fn of_sqlite(database: &Path) -> Result<Outputs, OperationError> {
    let mut outputs = outputs();
    let files = windlass_sqlite::files_of(database).map_err(|source| DatabaseError::Files {
        path: database.to_owned(),
        source,
    })?;
    let what = format!("it belongs to the database {}", database.display());
    for file in files {
        outputs.protect_file(&file, &what)?;
    }
    Ok(outputs)
}

/// Outputs of a command that reads a cluster.
pub fn of_cluster(data_directory: &Path) -> Result<Outputs, OperationError> {
    let mut outputs = outputs();
    for place in windlass_postgres::places_of(data_directory) {
        if place.is_dir() {
            let what = format!("{} belongs to the cluster", place.display());
            outputs.protect_directory(&place, &what)?;
        }
    }
    Ok(outputs)
}

/// Whether an output cannot be written because of the place where it would be: its directory is
/// missing, the file system is read-only, this user lacks a right. What a run tells beside its
/// result is then missing, and the run goes on. Other errors are mistakes: the output would
/// replace something that must stay.
pub fn is_of_place(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::OutputIo { .. }
            | EngineError::OutputUnseen { .. }
            | EngineError::EventFile { .. }
    )
}

/// Whether an operation ends because one of its outputs would harm something. Then it writes to
/// none of them. After any other mistake, metrics still tell that it failed.
pub fn is_refusal(error: &OperationError) -> bool {
    matches!(error, OperationError::Engine(error) if !is_of_place(error))
}

/// The nearest directory above the path, or the path itself, that exists. Above a bare name that is
/// the current directory.
pub fn existing(path: &Path) -> Option<&Path> {
    let mut all = path
        .ancestors()
        .map(|path| match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        });
    all.find(|path| path.is_dir())
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}
