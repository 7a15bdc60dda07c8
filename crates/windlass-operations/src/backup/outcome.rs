//! What a backup made, and what happened meanwhile.

use std::path::{Path, PathBuf};

use windlass_engine::RunReport;
use windlass_engine::media::BackupType;
use windlass_object::is_in_bucket;
use windlass_postgres::{DatabaseFacts, WindowCause};

use super::mirror::Mirrored;
use crate::foretold::Judgement;
use crate::history::RunAbout;
use crate::warnings::Warnings;

/// A sealed backup of any kind of database.
#[derive(Debug)]
pub struct BackupOutcome {
    /// What the run did, and what limited it.
    pub report: RunReport,
    /// What kind of set it is.
    pub backup_type: BackupType,
    /// The id of the set on which it builds.
    pub base: Option<String>,
    /// What the set says about the database.
    pub database: serde_json::Value,
    /// What the user should know about the source.
    pub warnings: Warnings,
    /// What happened, and is no reason to worry.
    pub remarks: Vec<Remark>,
    /// Whether no device keeps anything, so that there is no set.
    pub is_kept_nowhere: bool,
    /// The mirrors.
    pub mirrors: Vec<Mirrored>,
    /// The stripes, in their order; empty unless every stripe of the set can be read again.
    pub stripes: Vec<PathBuf>,
    /// How many of the stripes, the last ones, have parity.
    pub parities: u16,
    /// What the plan would have predicted, and what would have made the run faster.
    pub judgement: Judgement,
}

impl BackupOutcome {
    /// What the history keeps besides the report.
    pub(super) fn about(&self, options: serde_json::Value) -> RunAbout {
        RunAbout {
            database: self.database.clone(),
            options,
            warnings: self.warnings.names(),
            base: self.base.clone(),
        }
    }
}

/// Something that happened during a backup.
#[derive(Clone, Debug, PartialEq)]
pub enum Remark {
    /// What changed was copied again after the first copy.
    AnotherWindow {
        /// Why.
        cause: WindowCause,
    },
    /// PostgreSQL: a tablespace lies in the data directory itself.
    TablespaceInPlace {
        /// Its name.
        name: String,
    },
    /// PostgreSQL: the map of changes of the write hook could not be used.
    NoMapOfChanges {
        /// Why.
        why: String,
    },
    /// SQLite in WAL mode: writers were never blocked.
    WritersWentOn,
    /// SQLite in rollback mode: writers were locked out for this many seconds.
    WritersWaited(f64),
    /// The SQLite that last wrote the database can corrupt it in rare cases.
    WalResetBug {
        /// Its version.
        version: String,
        /// Whether the user accepted it.
        accepted: bool,
    },
}

/// What is to be said of a backup of a cluster: also why the map of changes was not used.
pub(super) fn of_cluster(facts: &DatabaseFacts, unseen: Option<String>) -> Vec<Remark> {
    let windows = facts.earlier_windows.iter();
    let windows = windows.map(|window| Remark::AnotherWindow {
        cause: window.cause.clone(),
    });
    let in_place = facts.tablespaces.iter().filter(|it| it.is_in_place());
    let in_place = in_place.map(|space| Remark::TablespaceInPlace {
        name: space.name.clone(),
    });
    let unseen = unseen.map(|why| Remark::NoMapOfChanges { why });
    windows.chain(in_place).chain(unseen).collect()
}

/// Where the stripes are that can be read again.
pub(super) fn stripes(report: &RunReport) -> Vec<PathBuf> {
    let kept = report.devices.iter().map(|device| Path::new(&device.name));
    kept.filter(|path| path.is_absolute() || is_in_bucket(path))
        .map(Path::to_owned)
        .collect()
}
