//! `windlass restore`: where a set goes, and what the restored server does.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use windlass_engine::parse_rate_limit;

use super::mapping::parse_mapping;
use super::target::Targets;
use super::{Buffers, Choice, Hooks, Repo, Watching};

/// Whether what reaches outside goes on after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OffOrKeep {
    /// Off, until somebody turns it on
    Off,
    /// As in the source
    Keep,
}

/// `windlass restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// A directory of sets, a stripe of a set, or the name of a configured database. Name several
    /// places if the stripes are not together
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// PostgreSQL: the new data directory. SQLite: the new file, or the directory to put it in
    #[arg(long, value_name = "PATH", env = "WINDLASS_INTO")]
    pub into: PathBuf,
    /// PostgreSQL: put the tablespace that was in OLD into NEW. Repeat it for more tablespaces
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_mapping)]
    pub tablespace_map: Vec<(PathBuf, PathBuf)>,
    /// PostgreSQL: restore only this database; the tables of others become empty files. Repeat it
    /// for more databases
    #[arg(long, value_name = "NAME", conflicts_with = "delta")]
    pub only_database: Vec<String>,
    /// PostgreSQL: restore only the tables in this tablespace, and those in no tablespace of their
    /// own. Repeat it for more tablespaces
    #[arg(long, value_name = "NAME", conflicts_with = "delta")]
    pub only_tablespace: Vec<String>,
    /// PostgreSQL: turn archiving off in the restored server, or keep it where the source archives
    #[arg(
        long,
        value_name = "off|keep",
        default_value = "off",
        env = "WINDLASS_ARCHIVE"
    )]
    pub archive: OffOrKeep,
    /// PostgreSQL: turn subscriptions off in the restored server, or keep those of the source
    #[arg(
        long,
        value_name = "off|keep",
        default_value = "off",
        env = "WINDLASS_SUBSCRIPTIONS"
    )]
    pub subscriptions: OffOrKeep,
    /// PostgreSQL: make the cluster that is in the data directory into that of the set. Only what
    /// differs is written, and what does not belong there is removed
    #[arg(long)]
    pub delta: bool,
    /// SQLite: replace the database that exists. PostgreSQL, with --delta: replace another cluster
    #[arg(long)]
    pub force: bool,
    /// Do not predict this run, and do not record it for `windlass plan --accuracy`
    #[arg(long, env = "WINDLASS_NO_PREDICTION")]
    pub no_prediction: bool,
    /// Read at most this much per second from the devices
    #[arg(long, value_name = "RATE", value_parser = parse_rate_limit, env = "WINDLASS_MAX_RATE")]
    pub max_rate: Option<u64>,
    /// Say what would be written where, and how long it would take. Change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Back to a moment
    #[command(flatten)]
    pub target: Targets,
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
}
