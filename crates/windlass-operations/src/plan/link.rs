//! How much a differential or incremental backup would read, by what changed since its base.

use std::cell::OnceCell;
use std::sync::Arc;

use windlass_engine::media::BackupType;
use windlass_engine::show_size;
use windlass_postgres::{ChainBase, Cluster, ExpectedChanges};
use windlass_sqlite::Database;

use super::{PlanError, PlanNote, PlanRequest};
use crate::backup::{BackupRequest, BaseSearch, Basis, witness};
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::devices::DeviceName;
use crate::error::OperationError;
use crate::{outputs, privilege};

/// A differential or incremental backup to plan.
#[derive(Clone, Debug)]
pub struct PlannedLink {
    /// Differential or incremental.
    pub backup_type: BackupType,
    /// The places of the sets on which it would build.
    pub places: Vec<String>,
    /// The set to build on; without it the newest that fits.
    pub base: Option<String>,
}

/// How much would be read, if that is not everything, and what is to be said about it.
pub(super) type Expected = (Option<u64>, PlanNote);

/// Looks at a database and at the sets on which a backup of it would build. Nothing is written.
pub(super) fn expected(
    caller: &Caller,
    (request, link): (&PlanRequest, &PlannedLink),
) -> Result<Expected, OperationError> {
    let database = request.database.as_deref().ok_or(PlanError::NoSize)?;
    let places: Vec<&str> = link.places.iter().map(String::as_str).collect();
    let backup = BackupRequest {
        backup_type: link.backup_type,
        base: link.base.clone(),
        ..BackupRequest::new(database, &places)
    };
    let devices = places.iter().map(|text| DeviceName::resolve(text));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    let kept = OnceCell::new();
    let search = BaseSearch {
        caller,
        request: &backup,
        devices: &devices,
        kept: &kept,
    };
    let name = DatabaseName::resolve(database)?;
    privilege::as_user(caller.process, name.owner(), || match &name {
        DatabaseName::Postgres(conninfo) => of_cluster(&search, Cluster::connect(conninfo)?),
        DatabaseName::Sqlite(path) => {
            let mut database = Database::open(path)?;
            database.set_host(&caller.host);
            let base = search.base_of_file(&database, &mut outputs::of_sqlite(path)?)?;
            Ok(match base {
                Some(Ok(base)) => {
                    let set = base.set_id().to_string();
                    (None, PlanNote::Compares { set })
                }
                other => whole(other.and_then(Result::err)),
            })
        }
    })
}

fn of_cluster(search: &BaseSearch<'_>, mut cluster: Cluster) -> Result<Expected, OperationError> {
    let root = cluster.facts().data_directory.clone();
    let base: Basis<Arc<ChainBase>> =
        search.base_of_cluster(&cluster, &mut outputs::of_cluster(&root)?)?;
    let base = match base {
        Some(Ok(base)) => base,
        other => return Ok(whole(other.and_then(Result::err))),
    };
    let witness = witness::of(&root).unwrap_or_default();
    Ok(match cluster.expect_changes(&base, witness)? {
        Err(fault) => whole(Some(fault.to_string())),
        Ok(ExpectedChanges { by: "pages", .. }) => {
            let set = base.set_id().to_string();
            (None, PlanNote::Scans { set })
        }
        Ok(ExpectedChanges { read_bytes, by }) => {
            let note = PlanNote::BuildsOn {
                set: base.set_id().to_string(),
                read: show_size(read_bytes),
                by: match by {
                    "map" => "the map of the write hook",
                    _ => "the WAL summaries",
                },
            };
            (Some(read_bytes), note)
        }
    })
}

/// A full backup instead.
fn whole(reason: Option<String>) -> Expected {
    let reason = reason.unwrap_or_default();
    (None, PlanNote::Whole { reason })
}
