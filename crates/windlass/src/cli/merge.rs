//! `windlass merge`: which chain becomes one set, and where that goes.

use std::path::PathBuf;

use clap::Args;

use super::{Buffers, Choice, Coding, Hooks, Layout, Rates, Repo, Watching};

/// `windlass merge`
#[derive(Debug, Args)]
pub struct Merge {
    /// A directory of sets, a stripe of a set, or the name of a configured database. Name several
    /// places if the stripes are not together
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Where to write a stripe: a file, a directory, or `nul`. Repeat it to write several stripes
    #[arg(
        long = "to",
        value_name = "DEVICE",
        required = true,
        value_delimiter = ','
    )]
    pub to: Vec<String>,
    /// How to make it smaller
    #[command(flatten)]
    pub coding: Coding,
    /// Encrypt the set, so that only this one can read it. Without it the new set is not encrypted,
    /// whatever the chain is. Repeat it for several
    #[arg(long, value_name = "WHO", env = "WINDLASS_ENCRYPT")]
    pub encrypt: Vec<String>,
    /// If the output is not a terminal, print a line each time PERCENT more is done
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100), env = "WINDLASS_STATS")]
    pub stats: u8,
    /// Limits of speed
    #[command(flatten)]
    pub rates: Rates,
    /// Write through the page cache instead of past it
    #[arg(long, env = "WINDLASS_BUFFERED")]
    pub buffered: bool,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
    /// Before and after
    #[command(flatten)]
    pub hooks: Hooks,
    /// Watching and recording
    #[command(flatten)]
    pub watching: Watching,
    /// Buffers and threads
    #[command(flatten)]
    pub buffers: Buffers,
    /// Blocks, frames and readers
    #[command(flatten)]
    pub layout: Layout,
}
