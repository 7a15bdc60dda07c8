//! A backup that is running: what each of its steps works on.

use std::collections::BTreeMap;

use super::databases::Databases;
use super::request::BackupRequest;
use crate::chain::ChainFault;
use crate::conninfo::Conninfo;
use crate::facts::{ClusterFacts, Tablespace};
use crate::listing::Moment;
use crate::lsn::Lsn;
use crate::session::Session;
use crate::witness::ChangeMark;

pub(super) struct Backup<'a> {
    pub(super) conninfo: &'a Conninfo,
    pub(super) cluster: &'a ClusterFacts,
    pub(super) request: &'a BackupRequest,
    pub(super) session: &'a mut Session,
    pub(super) databases: Databases,
    /// Whether page checksums or wal_log_hints are on.
    pub(super) hints_logged: bool,
    /// Why everything is read although the backup was to build on a base.
    pub(super) instead: Option<ChainFault>,
    /// The point from which on the witness sees all writes as later than the set.
    pub(super) mark: Option<ChangeMark>,
    /// What said what changed, for the facts of the set.
    pub(super) changes_from: Option<&'static str>,
    /// Why the witness could not be asked.
    pub(super) unseen: Option<String>,
    /// Every tablespace that existed at the beginning or at the stop of a window, by number.
    pub(super) spaces: BTreeMap<u32, Tablespace>,
}

/// A window that the server has started.
pub(super) struct Begun {
    pub(super) start_lsn: Lsn,
    /// The server's clock before the start.
    pub(super) time: String,
    /// This machine's clock before the start.
    pub(super) moment: Moment,
    /// The directories of the databases and tablespaces that the server had then.
    pub(super) known: Vec<Vec<u8>>,
}
