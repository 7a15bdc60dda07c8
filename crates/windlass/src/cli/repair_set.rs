//! Options of `windlass repair-set`.

use std::path::PathBuf;

use clap::Args;

use super::{Choice, Repo};

/// `windlass repair-set`
#[derive(Debug, Args)]
pub struct RepairSet {
    /// A directory of sets, a stripe or a file with parity of a set, or the name of a configured
    /// database. Name several places if the devices are not together
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
}
