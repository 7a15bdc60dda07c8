//! What an experiment with snapshots tells while it runs.

use std::path::Path;

/// What an experiment is doing.
#[derive(Debug)]
pub enum ExperimentStep<'a> {
    /// It makes a cluster of its own and fills it.
    MakesCluster {
        /// Where.
        directory: &'a Path,
        /// The server's version.
        version: &'a str,
        /// How large the tables are.
        scale: u32,
    },
    /// Its runs begin.
    Begins {
        /// How many there are in a round.
        units: usize,
        /// Rounds.
        repeat: usize,
    },
    /// A run has ended.
    Ran {
        /// How many have ended.
        done: usize,
        /// Of how many.
        count: usize,
        /// What was run.
        words: &'a str,
        /// How many seconds the others will take, by those that have ended.
        left_seconds: f64,
    },
}
