//! Whoever sees every write to a cluster's files, such as a hook in the server: what was written
//! since an earlier backup.

use std::fmt::Debug;
use std::fs::Metadata;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A point in the record of a witness. The set of a backup that began there has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMark {
    /// Which record. It ends with the run of the server, and no two have the same name.
    pub epoch: String,
    /// The generation in it.
    pub generation: u32,
    /// Tells the generation from another one with its number: a machine may be set back together
    /// with its memory. Sets of older versions do not have this.
    #[serde(default)]
    pub identity: String,
}

/// Whoever sees every write to a cluster's files.
///
/// Invariant: a part of a file that is not named as changed since a mark has the bytes that every
/// reader has found there since the mark was begun.
pub trait ChangeWitness: Debug + Send + Sync {
    /// Begins a mark in the record that there is: all later writes are seen as later. `None` if
    /// there is no record. If it is impossible, this says why.
    fn go_on(&self) -> Result<Option<ChangeMark>, String>;

    /// The same. If there is no record, this begins one, for a cluster that writes to so many
    /// bytes.
    fn begin(&self, bytes: u64) -> Result<ChangeMark, String>;

    /// Whether all writes since this mark were seen.
    fn has_seen(&self, mark: &ChangeMark) -> bool;

    /// Which of the first blocks of a file may have changed since a mark that was seen, in order:
    /// how many blocks to look at, and how many bytes each has.
    fn changed(&self, mark: &ChangeMark, file: (&Path, &Metadata), blocks: (u64, u64)) -> Vec<u64>;
}
