//! `windlass hold`: a set that must stay.

use std::path::PathBuf;

use clap::Args;

use super::{Choice, Repo};

/// `windlass hold`
#[derive(Debug, Args)]
pub struct Hold {
    /// A directory of sets, a stripe of a set, or the name of a configured database. Name several
    /// places if the stripes are not together
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Why the set must stay: `windlass info` shows it
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub reason: String,
    /// End the hold: the rules count for the set again
    #[arg(long, conflicts_with = "reason")]
    pub release: bool,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
}
