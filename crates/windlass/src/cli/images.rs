//! `windlass diff`, `extract` and `mount`: what reads single parts of images.

use std::path::PathBuf;

use clap::Args;
use windlass_engine::parse_amount;
use windlass_postgres::{RecoveryPoint, RelationPattern};

use super::mapping::parse_relation;
use super::moment::{AtLog, point};
use super::{At, Choice, Recovering, Repo};

/// `windlass diff`
#[derive(Debug, Args)]
pub struct Diff {
    /// A set, a connection string, a PostgreSQL data directory, or a SQLite file; DIRECTORY@ID,
    /// DIRECTORY@latest and DIRECTORY@TIME choose a set of a directory
    #[arg(value_name = "IMAGE")]
    pub first: PathBuf,
    /// The image to compare it with, of the same kind of database [default: the first, if there are
    /// two moments]
    #[arg(value_name = "IMAGE", required_unless_present = "moment")]
    pub second: Option<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Take sets of this database only, when a directory holds sets of several
    #[arg(long = "database", value_name = "NAME")]
    pub of: Option<String>,
    /// List every range of pages, not only the first few
    #[arg(long)]
    pub pages: bool,
    /// Rely on the sets' checksums for all files, not only for PostgreSQL's relations
    #[arg(long, conflicts_with = "every_byte")]
    pub quick: bool,
    /// Read and compare everything. Rely on no checksums
    #[arg(long)]
    pub every_byte: bool,
    /// The first image at this moment in its log: a time with its zone, a position of the log
    /// (PostgreSQL), or `latest`. A second --at is the moment of the second image
    #[arg(id = "moment", long = "at", value_name = "TIME|LSN|latest", value_parser = point)]
    pub at: Vec<RecoveryPoint>,
    /// Where the log is
    #[command(flatten)]
    pub log: AtLog,
    /// How the sets are recovered
    #[command(flatten)]
    pub recovering: Recovering,
}

/// `windlass extract`
#[derive(Debug, Args)]
pub struct Extract {
    /// A directory of sets, a stripe of a set, or the name of a configured database
    #[arg(value_name = "SET")]
    pub set: PathBuf,
    /// Files to write, by their paths in the set: `base/5/16384*`, `**/PG_VERSION`
    #[arg(required_unless_present = "relation", value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// PostgreSQL: a table with its indexes and long values, as [DATABASE.]SCHEMA.TABLE. Repeat it
    /// for more tables
    #[arg(long, value_name = "NAME", value_parser = parse_relation)]
    pub relation: Vec<RelationPattern>,
    /// The directory to write them into
    #[arg(long, value_name = "DIRECTORY")]
    pub into: PathBuf,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
    /// At a moment
    #[command(flatten)]
    pub at: At,
    /// How the set is recovered
    #[command(flatten)]
    pub recovering: Recovering,
}

/// `windlass mount`
#[derive(Debug, Args)]
pub struct MountSet {
    /// A directory of sets, a stripe of a set, or the name of a configured database
    #[arg(value_name = "SET")]
    pub set: PathBuf,
    /// An empty directory where the files will appear
    #[arg(value_name = "DIRECTORY")]
    pub at: PathBuf,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Accept changes and keep them in this directory: a new one, or that of an earlier mount
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "moment")]
    pub overlay: Option<PathBuf>,
    /// Memory for decoded frames
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, default_value = "64MiB", env = "WINDLASS_CACHE")]
    pub cache: Option<u64>,
    /// Read past the kernel's page cache. Faster for copying whole files once, slower for the rest
    #[arg(long, conflicts_with = "overlay")]
    pub direct_io: bool,
    /// Let other users read, as far as the modes of the files permit
    #[arg(long, env = "WINDLASS_ALLOW_OTHER")]
    pub allow_other: bool,
    /// Number of threads that answer the kernel [default: twice the cores, from 4 to 16]
    #[arg(long, value_name = "N", env = "WINDLASS_MOUNT_THREADS")]
    pub threads: Option<usize>,
    /// Stay in the foreground until it is unmounted
    #[arg(long, short)]
    pub foreground: bool,
    /// What `mount` gives to its own process in the background
    #[arg(long, hide = true)]
    pub detached: bool,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
    /// At a moment
    #[command(flatten)]
    pub at_moment: At,
    /// How the set is recovered
    #[command(flatten)]
    pub recovering: Recovering,
}
