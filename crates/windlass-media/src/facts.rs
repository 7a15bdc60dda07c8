//! Facts: the set's description as a JSON document, the part a person would read.

use serde::{Deserialize, Serialize};

use crate::error::{FormatError, Structure};

/// What a set is, and what came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupType {
    /// Everything.
    Full,
    /// What changed since the last full.
    Diff,
    /// What changed since the last backup of any kind.
    Incr,
    /// The log since the last log backup.
    Log,
}

/// What a set says about itself. A reader ignores the unknown keys of a newer writer and does not
/// refuse the set: whatever a reader *must* know is a feature bit of the header, not a fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Name and version of the program that wrote the set.
    pub tool: String,
    /// Kind of backup.
    #[serde(rename = "type")]
    pub backup_type: BackupType,
    /// RFC 3339 time at which the backup began.
    pub started: String,
    /// RFC 3339 time at which the last page had been read.
    pub finished: String,
    /// The codec that was asked for, buffers, transfer size and so on, as the run reports them.
    pub options: serde_json::Value,
    /// What the database's own crate says: kind, version, identity, WAL range, label.
    pub database: serde_json::Value,
    /// Ids of the sets that this set needs; empty for a full backup. The field is there for chains.
    #[serde(default)]
    pub parents: Vec<String>,
}

impl Facts {
    /// The document's bytes.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let what = "cannot be written as JSON";
        serde_json::to_vec(self).map_err(|_| FormatError::Invalid {
            structure: Structure::Facts,
            what,
        })
    }

    /// Reads a document.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = "is not the JSON document it should be";
        serde_json::from_slice(bytes).map_err(|_| FormatError::Invalid {
            structure: Structure::Facts,
            what,
        })
    }
}
