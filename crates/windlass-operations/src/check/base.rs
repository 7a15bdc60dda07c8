//! The set on which a differential or an incremental backup would build, and how much it would
//! read.

use std::cell::OnceCell;
use std::sync::Arc;

use windlass_engine::{OpenSet, Outputs, show_size};
use windlass_postgres::{ChainBase, Cluster, ExpectedChanges};
use windlass_sqlite::Database;

use crate::backup::{BackupRequest, BaseSearch, Basis, witness};
use crate::caller::Caller;
use crate::checks::Checks;
use crate::devices::DeviceName;
use crate::error::OperationError;
use crate::warnings::of_instead;

type Asked<'a> = (&'a Caller, &'a BackupRequest);

/// Tells on which set a backup of this cluster would build. Returns how much it would read, if that
/// is less than everything.
pub(super) fn of_cluster(
    checks: &mut Checks,
    (caller, request): Asked<'_>,
    cluster: &mut Cluster,
    outputs: &mut Outputs,
) -> Option<u64> {
    let devices = devices(request);
    let kept = OnceCell::new();
    let search = search((caller, request), &devices, &kept);
    let base = found(checks, request, search.base_of_cluster(cluster, outputs))?;
    let witness = witness::of(&cluster.facts().data_directory).unwrap_or_default();
    match cluster.expect_changes(&base, witness) {
        Err(error) => {
            checks.failure("base", error);
            None
        }
        Ok(Err(fault)) => {
            instead(checks, request, &fault.to_string());
            None
        }
        Ok(Ok(changes)) => {
            checks.ok("base", words(&base, changes));
            Some(changes.read_bytes)
        }
    }
}

/// The same for a SQLite database, of which everything is read.
pub(super) fn of_file(
    checks: &mut Checks,
    (caller, request): Asked<'_>,
    database: &Database,
    outputs: &mut Outputs,
) {
    let devices = devices(request);
    let kept = OnceCell::new();
    let search = search((caller, request), &devices, &kept);
    if let Some(base) = found(checks, request, search.base_of_file(database, outputs)) {
        let id = base.set_id();
        checks.ok(
            "base",
            format!("builds on set {id}: reads everything, and stores the pages that differ"),
        );
    }
}

fn devices(request: &BackupRequest) -> Vec<DeviceName> {
    let devices = request.to.iter().map(|text| DeviceName::resolve(text));
    devices.filter_map(Result::ok).collect()
}

fn search<'a>(
    (caller, request): Asked<'a>,
    devices: &'a [DeviceName],
    kept: &'a OnceCell<OpenSet>,
) -> BaseSearch<'a> {
    BaseSearch {
        caller,
        request,
        devices,
        kept,
    }
}

/// The base, if there is one; else the checks say why not.
fn found<T>(
    checks: &mut Checks,
    request: &BackupRequest,
    basis: Result<Basis<T>, OperationError>,
) -> Option<T> {
    match basis {
        Ok(None) => None,
        Ok(Some(Ok(base))) => Some(base),
        Ok(Some(Err(reason))) => {
            instead(checks, request, &reason);
            None
        }
        Err(error) => {
            checks.failure("base", error);
            None
        }
    }
}

/// The backup would be a full one, or fail.
fn instead(checks: &mut Checks, request: &BackupRequest, reason: &str) {
    if request.is_strict {
        let reason = reason.to_owned();
        return checks.failure("base", OperationError::NoBase { reason });
    }
    if let Some(warning) = of_instead(Some(reason.to_owned())) {
        super::foreseen(checks, "base", warning, &request.accept);
    }
}

fn words(base: &Arc<ChainBase>, changes: ExpectedChanges) -> String {
    let (id, kind) = (
        base.set_id(),
        format!("{:?}", base.backup_type()).to_lowercase(),
    );
    let read = show_size(changes.read_bytes);
    match changes.by {
        "summaries" => {
            format!("builds on set {id} ({kind}): reads about {read}, by the WAL summaries")
        }
        "map" => {
            format!("builds on set {id} ({kind}): reads about {read}, by the map of the write hook")
        }
        _ => format!(
            "builds on set {id} ({kind}): reads {read}, and stores the pages that have changed"
        ),
    }
}
