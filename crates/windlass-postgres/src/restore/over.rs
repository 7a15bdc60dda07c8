//! A restore over a cluster that is there: whose it is, and how no server starts on it meanwhile.
//!
//!   pg_control --gets another name--> (files are rewritten) --> the set's pg_control --> remove it
//!
//! Invariants
//! - A directory that is no cluster's is never touched, and no running server's.
//! - As long as the files are a mixture, there is no pg_control, without which no server starts.
//!   The old one still says whose directory it is, so that a restore that was cut off can be
//!   repeated.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use windlass_engine::{Existing, TargetLayout, durable};

use super::occupied::{check_unoccupied, running_server};
use crate::control::{CONTROL_PATH, Control};
use crate::error::{IoContext, OverFault, PostgresError};

/// The name of the old pg_control during the restore.
const OLD_CONTROL: &str = "global/.windlass-old-control";
/// Where the write hook keeps what belongs to snapshots.
const SNAPSHOTS: &str = "pg_subtrans/windlass";

/// A cluster over which a restore goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverCluster {
    into: PathBuf,
}

impl OverCluster {
    /// Looks at a directory. `None` if there is nothing. With `force`, it may be of any cluster.
    pub(super) fn find(
        into: &Path,
        system: u64,
        force: bool,
    ) -> Result<Option<Self>, PostgresError> {
        match check_unoccupied(into) {
            Err(PostgresError::TargetNotEmpty { .. }) => {}
            other => return other.map(|()| None),
        }
        let path = into.to_owned();
        let refused = |why| PostgresError::TargetKept(path, why);
        if !into.join("PG_VERSION").is_file() {
            return Err(refused(OverFault::NotACluster));
        }
        if let Some(process) = running_server(into) {
            let path = into.into();
            return Err(PostgresError::TargetRunning { path, process });
        }
        let found = system_of(into);
        if found != Some(system) && !force {
            let expected = system;
            return Err(refused(OverFault::Another { found, expected }));
        }
        match check_unoccupied(&into.join(SNAPSHOTS)) {
            Err(PostgresError::TargetNotEmpty { .. }) => Err(refused(OverFault::Snapshots)),
            // Something else lies in the way there.
            Err(PostgresError::TargetNotDirectory { .. }) | Ok(()) => Ok(Some(Self {
                into: into.to_owned(),
            })),
            Err(error) => Err(error),
        }
    }

    /// Whether a directory is that of its tablespace.
    pub fn has(&self, oid: u32, place: &Path) -> bool {
        let link = self.into.join(format!("pg_tblspc/{oid}"));
        std::fs::read_link(link).is_ok_and(|to| to == place)
    }

    /// What is there, and does not belong to the set. Nothing is changed.
    pub fn survey(&self, layout: &TargetLayout) -> Result<Existing, PostgresError> {
        Ok(Existing::survey(layout, &[self.into.join(OLD_CONTROL)])?)
    }

    /// Takes pg_control away, so that no server starts.
    pub fn lock_out(&self) -> Result<(), PostgresError> {
        let (control, old) = (self.into.join(CONTROL_PATH), self.into.join(OLD_CONTROL));
        match durable::rename(&control, &old) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other.doing("rename", &control),
        }?;
        // A server that was faster has read it.
        match running_server(&self.into) {
            None => Ok(()),
            Some(process) => {
                durable::rename(&old, &control).doing("rename", &old)?;
                let path = self.into.clone();
                Err(PostgresError::TargetRunning { path, process })
            }
        }
    }

    /// Removes the old pg_control, when the new one has its name.
    pub fn let_in(&self) -> Result<(), PostgresError> {
        let old = self.into.join(OLD_CONTROL);
        durable::if_there(std::fs::remove_file(&old)).doing("remove", &old)?;
        durable::sync_parent(&old).doing("sync", &old)
    }
}

/// Whose directory it is, if that can still be known.
fn system_of(into: &Path) -> Option<u64> {
    let parsed = |name: &str| Control::parse(std::fs::read(into.join(name)).ok()?).ok();
    let control = parsed(CONTROL_PATH).or_else(|| parsed(OLD_CONTROL));
    control.map(|control| control.system_identifier)
}
