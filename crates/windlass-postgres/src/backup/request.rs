//! What the user asks of a backup, and whether a server can take it.

use std::sync::Arc;

use windlass_media::BackupType;

use crate::chain::ChainBase;
use crate::error::PostgresError;
use crate::witness::ChangeWitness;

/// The server takes labels as long as its longest path. A line break in a label would forge a line
/// of backup_label.
const LABEL_BYTES_MAX: usize = 1024;

/// What a backup builds on.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Differential or incremental.
    pub backup_type: BackupType,
    /// The earlier set.
    pub base: Arc<ChainBase>,
    /// Fail if nobody knows what changed since then, instead of reading everything.
    pub is_strict: bool,
}

/// What the user asks of a backup.
#[derive(Clone, Debug)]
pub struct BackupRequest {
    /// A name for people; it appears in backup_label.
    pub label: String,
    /// Begin with an immediate checkpoint instead of waiting for one that is spread over minutes.
    pub fast_checkpoint: bool,
    /// Check page checksums, if the cluster has them.
    pub verify_checksums: bool,
    /// What it builds on; nothing for a full backup.
    pub chain: Option<Chain>,
    /// Who sees every write to the cluster's files, if anybody does.
    pub witness: Option<Arc<dyn ChangeWitness>>,
    /// Name and version of the program, for the set's facts.
    pub tool: String,
    /// The options as the user gave them, for the set's facts.
    pub options: serde_json::Value,
}

impl Default for BackupRequest {
    fn default() -> Self {
        Self {
            label: "windlass".into(),
            fast_checkpoint: true,
            verify_checksums: true,
            chain: None,
            witness: None,
            tool: concat!("windlass ", env!("CARGO_PKG_VERSION")).into(),
            options: serde_json::Value::Null,
        }
    }
}

impl BackupRequest {
    /// Fails if no server takes the label.
    pub fn check(&self) -> Result<(), PostgresError> {
        let label = &self.label;
        if label.len() > LABEL_BYTES_MAX {
            return Err(PostgresError::Label {
                what: "is longer than 1024 bytes",
            });
        }
        if label.contains(['\n', '\r', '\0']) {
            return Err(PostgresError::Label {
                what: "has a line break or a NUL",
            });
        }
        Ok(())
    }
}
