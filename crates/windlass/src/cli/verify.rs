//! Options of `windlass verify`.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use windlass_engine::parse_rate_limit;

use super::{At, Buffers, Choice, OpenOptions, Repo, Watching};

/// `windlass verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// A directory of sets, a stripe of a set, or the name of a configured database. Name several
    /// places if the stripes are not together
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Verify only the newest set of the directory
    #[arg(long, conflicts_with = "which")]
    pub latest: bool,
    /// Read only sets that no verification has read since then: a time, or how long ago it was, as
    /// in 36h, 7d or 4w
    #[arg(long, value_name = "SINCE", value_parser = super::history::since, conflicts_with_all = ["which", "latest", "quick", "moment"])]
    pub new: Option<Timestamp>,
    /// Check only seals and indexes. This takes seconds and finds no damage inside frames
    #[arg(long)]
    pub quick: bool,
    /// Then open the set, and let the database's own tools check every relation
    #[arg(long)]
    pub open: bool,
    /// Read at most this much per second from the devices
    #[arg(long, value_name = "RATE", value_parser = parse_rate_limit, env = "WINDLASS_MAX_RATE")]
    pub max_rate: Option<u64>,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
    /// A moment in its log
    #[command(flatten)]
    pub at: At,
    /// How it is opened
    #[command(flatten)]
    pub opening: OpenOptions,
    /// Watching and recording
    #[command(flatten)]
    pub watching: Watching,
    /// Buffers and threads
    #[command(flatten)]
    pub buffers: Buffers,
}
