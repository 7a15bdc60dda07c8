//! The checks that can refuse a restore, before it writes anything.

use std::path::{Component, Path, PathBuf};

use windlass_engine::{EngineError, Outputs};
use windlass_media::{FileEntry, FileTable};

use super::occupied::{check_unoccupied, running_server};
use super::over::OverCluster;
use super::{RestoreRequest, TablespacePlan};
use crate::control::CONTROL_PATH;
use crate::error::{OverFault, PostgresError};
use crate::facts::{DatabaseFacts, Tablespace};

/// What is protected while the places of a restore are compared with each other.
const DATA_DIRECTORY: &str = "the data directory";
const TABLESPACE: &str = "a tablespace";

/// Refuses a set that cannot start as a cluster: damaged by hand, or not made by this crate.
pub(super) fn check_table(facts: &DatabaseFacts, files: &FileTable) -> Result<(), PostgresError> {
    if facts.crash_lsn.is_none() {
        find(files, "backup_label")?;
    }
    if !check_cluster(files)?.flags.last {
        let what = "its pg_control is not marked as the file to appear last".into();
        return Err(PostgresError::Set { what });
    }
    Ok(())
}

/// Refuses files that are no cluster's. Returns the entry of pg_control.
pub(super) fn check_cluster(files: &FileTable) -> Result<&FileEntry, PostgresError> {
    find(files, "PG_VERSION")?;
    find(files, CONTROL_PATH)
}

fn find<'a>(files: &'a FileTable, path: &str) -> Result<&'a FileEntry, PostgresError> {
    let mut entries = files.0.iter();
    let found = entries.find(|entry| entry.path == path.as_bytes());
    found.ok_or_else(|| PostgresError::Set {
        what: format!("it holds no {path}"),
    })
}

/// Refuses the location of a tablespace that PostgreSQL does not allow, or that another tablespace
/// of the set has. A restore could not make it, and could not tell two of them apart to map them.
pub(super) fn check_location(
    oid: u32,
    location: &Path,
    others: &[TablespacePlan],
) -> Result<(), PostgresError> {
    let wrong = |what: String| Err(PostgresError::Set { what });
    let shown = location.display();
    let is_up = |part: Component<'_>| part == Component::ParentDir;
    if !location.is_absolute() || location.components().any(is_up) {
        return wrong(format!(
            "its tablespace {oid} lies in {shown:?}, which is not an absolute path without '..'"
        ));
    }
    match others.iter().find(|other| other.was == location) {
        Some(other) => wrong(format!(
            "its tablespaces {} and {oid} lie in the same directory {shown:?}",
            other.oid
        )),
        None => Ok(()),
    }
}

/// Refuses a data directory that is in use or holds anything, unless that is asked for. Returns the
/// cluster that is there.
pub(super) fn check_data_directory(
    into: &Path,
    request: &RestoreRequest,
    system: u64,
) -> Result<Option<OverCluster>, PostgresError> {
    check_shape(into)?;
    if request.delta {
        let over = OverCluster::find(into, system, request.force)?;
        // Files that are left out are not written, so what is there would stay in them.
        if over.is_some() && !request.left_out.is_empty() {
            return Err(PostgresError::TargetKept(into.into(), OverFault::Part));
        }
        return Ok(over);
    }
    if let Some(process) = running_server(into) {
        return Err(PostgresError::TargetRunning {
            path: into.into(),
            process,
        });
    }
    check_unoccupied(into).map(|()| None)
}

/// Refuses a tablespace that the set holds but its facts do not list, unless it is mapped. `info`
/// does not show it, so nobody knows that its directory may belong to a live cluster.
pub(super) fn check_listed(
    plans: &[TablespacePlan],
    listed: &[Tablespace],
    map: &[(PathBuf, PathBuf)],
) -> Result<(), PostgresError> {
    let is_known = |plan: &&TablespacePlan| {
        listed.iter().any(|space| space.oid == plan.oid)
            || map.iter().any(|(from, _)| *from == plan.was)
    };
    match plans.iter().find(|plan| !is_known(plan)) {
        Some(plan) => Err(PostgresError::TablespaceUnlisted {
            oid: plan.oid,
            path: plan.was.clone(),
        }),
        None => Ok(()),
    }
}

/// Refuses tablespace directories that hold anything, overlap, or lie in the data directory.
pub(super) fn check_tablespaces(
    into: &Path,
    plans: &[TablespacePlan],
    over: Option<&OverCluster>,
) -> Result<(), PostgresError> {
    for plan in plans {
        check_shape(&plan.becomes)?;
    }
    let mut places: Vec<_> = plans.iter().map(|plan| plan.becomes.as_path()).collect();
    places.insert(0, into);
    check_apart(into, places.iter().copied())?;
    check_apart(into, places.iter().rev().copied())?;
    for plan in plans {
        if !over.is_some_and(|over| over.has(plan.oid, &plan.becomes)) {
            check_unoccupied(&plan.becomes)?;
        }
    }
    Ok(())
}

/// Refuses a directory that is, or lies in, one before it in this order, whatever links and mounts
/// lead there.
fn check_apart<'a>(
    into: &Path,
    places: impl Iterator<Item = &'a Path>,
) -> Result<(), PostgresError> {
    let mut earlier = Outputs::new();
    for place in places {
        match earlier.check(place) {
            Err(EngineError::OutputRefused { path, what }) => {
                let what = match place == into || what == DATA_DIRECTORY {
                    true => {
                        "is refused: a tablespace and the data directory may not lie in each other"
                    }
                    false => "is refused: two tablespaces may not lie in each other",
                };
                return Err(PostgresError::Target { path, what });
            }
            checked => checked?,
        }
        let what = if place == into {
            DATA_DIRECTORY
        } else {
            TABLESPACE
        };
        earlier.protect_directory(place, what)?;
    }
    Ok(())
}

/// Refuses a tablespace that is mapped to two directories: only one of them could be meant.
pub(super) fn check_map(map: &[(PathBuf, PathBuf)]) -> Result<(), PostgresError> {
    for (index, (was, _)) in map.iter().enumerate() {
        if map[..index].iter().any(|(other, _)| other == was) {
            return Err(PostgresError::Target {
                path: was.clone(),
                what: "is mapped twice",
            });
        }
    }
    Ok(())
}

fn check_shape(path: &Path) -> Result<(), PostgresError> {
    let refuse = |what| {
        Err(PostgresError::Target {
            path: path.into(),
            what,
        })
    };
    if !path.is_absolute() {
        return refuse("is not absolute");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return refuse("has a component that is '..'");
    }
    Ok(())
}
