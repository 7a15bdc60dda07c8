//! The command line: what can be said, and what each word of it means.

mod accept;
mod buffers;
mod choice;
#[cfg(test)]
mod command_lines;
#[cfg(test)]
mod documented;
mod examples;
mod files;
mod lab;
mod mapping;
mod open;
mod operations;
mod sweep;
mod tune;
mod watching;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use windlass_postgres::RelationPattern;

pub use choice::{Choice, WHICH_OF_ALL};
pub use files::{check as check_paths, named as named_files};
pub use open::{Open, OpenOptions};
use windlass_engine::{parse_amount, parse_rate_limit};

use crate::places::Configured;
use crate::terminal::Color;
use mapping::{parse_mapping, parse_relation};

pub use accept::SQLITE_VERSION;
pub use buffers::{Buffers, Layout, Rates};
pub use operations::{Hooks, LogLevel};

pub use lab::{Lab, Plan, Probe, Rehearse};
pub use sweep::Sweep;
pub use tune::Tune;
pub use watching::{TraceFormat, Watching};

/// Backs up and restores PostgreSQL and SQLite databases at the speed of the hardware, and says
/// what limited the speed
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100, after_help = EXIT_CODES)]
#[command(after_long_help = examples::WINDLASS)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 usage, 3 done with warnings, \
4 damage found, 130 interrupted.";

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Print one JSON object on standard output, and nothing else
    #[arg(long, global = true, env = "WINDLASS_JSON")]
    pub json: bool,
    /// Print nothing if all is well: no progress and no report. Warnings and errors go to standard
    /// error as always. A command that you ask a question (info, status, diff, plan, tune, events
    /// and so on) prints its answer all the same
    #[arg(long, short, global = true, env = "WINDLASS_QUIET")]
    pub quiet: bool,
    /// Use colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        env = "WINDLASS_COLOR"
    )]
    pub color: Color,
    /// Append what is run, and how it ends, to this log: a file, `syslog` or `journal`
    #[arg(long, global = true, value_name = "WHERE", env = "WINDLASS_LOG")]
    pub log: Option<String>,
    /// What the log keeps: each level has those before it, too
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        value_enum,
        default_value = "info",
        hide_possible_values = true,
        env = "WINDLASS_LOG_LEVEL"
    )]
    pub log_level: LogLevel,
    /// Read this configuration instead of /etc/windlass/windlass.toml
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CONFIG")]
    pub config: Option<PathBuf>,
    /// What names the log, in words.
    #[arg(skip)]
    pub log_from: &'static str,
    /// The name of the command: `backup`, `lab`.
    #[arg(skip)]
    pub command: String,
    /// The configured databases, whose names stand for the places of their sets.
    #[arg(skip)]
    pub configured: Vec<Configured>,
}

impl Global {
    /// Whether nothing but a result that was asked for is to be printed: no notes, no progress.
    pub fn is_silent(&self) -> bool {
        self.json || self.quiet
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Back up a live database to one or more devices
    #[command(after_long_help = examples::BACKUP)]
    Backup(Box<Backup>),
    /// Prove that a backup can run: rights, room, targets and settings, without a backup
    #[command(after_long_help = examples::CHECK)]
    Check(Box<Backup>),
    /// Restore a set into a new place
    #[command(after_long_help = examples::RESTORE)]
    Restore(Restore),
    /// Read and check everything in a set, and list all damage
    #[command(after_long_help = examples::VERIFY)]
    Verify(Verify),
    /// Show what a set contains and whether it can be restored
    #[command(after_long_help = examples::INFO)]
    Info(Info),
    /// Show which pages differ between two sets, or between a set and a live database
    #[command(after_long_help = examples::DIFF)]
    Diff(Diff),
    /// Write single files or tables of a set, without restoring it
    #[command(after_long_help = examples::EXTRACT)]
    Extract(Extract),
    /// Show a set as a directory of files, without restoring it
    #[command(after_long_help = examples::MOUNT)]
    Mount(MountSet),
    /// Show what is running now: backups, restores, verifications, mounts
    #[command(after_long_help = examples::STATUS)]
    Status,
    /// Predict how long a backup or restore will take, and what will limit it
    Plan(Box<Plan>),
    /// Find the settings that make backups of a database fastest, by trying
    Tune(Box<Tune>),
    /// Measure what storage and cores can do, and what settings change
    #[command(subcommand, after_long_help = examples::LAB)]
    Lab(Lab),
    /// Show where the time of a recorded run went (see --events)
    #[command(after_long_help = examples::EVENTS)]
    Events(Events),
    /// Run a set as a PostgreSQL server or a SQLite file, without restoring it
    Open(Open),
    /// Print shell completions
    #[command(after_long_help = examples::COMPLETIONS)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory
    #[command(after_long_help = examples::MAN)]
    Man {
        /// The directory to write them into
        #[arg(value_name = "DIRECTORY")]
        into: PathBuf,
    },
}

/// What a backup takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackupKind {
    /// Everything
    Full,
}

/// `windlass backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// SQLite file, libpq connection string or URI, or a name from the configuration
    pub database: String,
    /// Where to write a stripe: a file, a directory, or `nul`. Repeat it to write several stripes
    #[arg(
        long = "to",
        value_name = "DEVICE",
        required = true,
        env = "WINDLASS_TO",
        value_delimiter = ','
    )]
    pub to: Vec<String>,
    /// Kind of backup
    #[arg(
        long = "type",
        value_enum,
        default_value = "full",
        env = "WINDLASS_TYPE"
    )]
    pub kind: BackupKind,
    /// Codec: none, lz4, zstd or zstd:LEVEL (1 to 19, or -7 to -1 for more speed). With auto,
    /// Windlass chooses during the run from lz4 to zstd:9; auto:WEAKEST..STRONGEST sets other
    /// bounds
    #[arg(
        long,
        default_value = "zstd:1",
        value_name = "CODEC",
        env = "WINDLASS_COMPRESS",
        allow_hyphen_values = true
    )]
    pub compress: String,
    /// If the output is not a terminal, print a line each time PERCENT more is done
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100), env = "WINDLASS_STATS")]
    pub stats: u8,
    /// Limits of speed
    #[command(flatten)]
    pub rates: Rates,
    /// Replace stripes that exist, after the new set is sealed
    #[arg(long, env = "WINDLASS_OVERWRITE")]
    pub overwrite: bool,
    /// Write through the page cache instead of past it
    #[arg(long, env = "WINDLASS_BUFFERED")]
    pub buffered: bool,
    /// A name for the backup, which the set keeps
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "windlass",
        env = "WINDLASS_LABEL"
    )]
    pub label: String,
    /// PostgreSQL: start with a checkpoint at once (fast), or with one that spares the disks
    /// (spread)
    #[arg(long, value_name = "HOW", default_value = "fast", value_parser = ["fast", "spread"], env = "WINDLASS_CHECKPOINT")]
    pub checkpoint: String,
    /// Do not record this run for `windlass plan --accuracy`
    #[arg(long, env = "WINDLASS_NO_PREDICTION")]
    pub no_prediction: bool,
    /// PostgreSQL: do not check page checksums during the backup
    #[arg(long, env = "WINDLASS_NO_PAGE_CHECKSUMS")]
    pub no_page_checksums: bool,
    /// SQLite: wait at most this many seconds for a lock [default: 60]
    #[arg(long, value_name = "SECONDS", env = "WINDLASS_LOCK_WAIT",
          value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    pub lock_wait: Option<u64>,
    /// SQLite in rollback mode: give up when writers have been locked out for so many seconds; 0
    /// is without end [default: 60]
    #[arg(long, value_name = "SECONDS", env = "WINDLASS_LOCK_LIMIT")]
    pub lock_limit: Option<u64>,
    /// Accept the warnings of this name: they no longer change the exit code. A backup shows them
    /// only with --details, with --json and in the log. Repeat it for several
    #[arg(
        long,
        value_name = "NAME",
        value_parser = accept::parser(),
        value_delimiter = ',',
        env = "WINDLASS_ACCEPT"
    )]
    pub accept: Vec<String>,
    /// Say what would be read and written, and how long it would take; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// What the configuration calls the database.
    #[arg(skip)]
    pub name: Option<String>,
    /// Whether the configuration names the devices.
    #[arg(skip)]
    pub to_is_configured: bool,
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
    /// PostgreSQL: the new data directory. SQLite: the new file, or the directory to put it in
    #[arg(long, value_name = "PATH", env = "WINDLASS_INTO")]
    pub into: PathBuf,
    /// PostgreSQL: put the tablespace that was in OLD into NEW. Repeat it for more tablespaces
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_mapping)]
    pub tablespace_map: Vec<(PathBuf, PathBuf)>,
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
    /// SQLite: replace the database that exists
    #[arg(long)]
    pub force: bool,
    /// Do not record this run for `windlass plan --accuracy`
    #[arg(long, env = "WINDLASS_NO_PREDICTION")]
    pub no_prediction: bool,
    /// Read at most this much per second from the devices
    #[arg(long, value_name = "RATE", value_parser = parse_rate_limit, env = "WINDLASS_MAX_RATE")]
    pub max_rate: Option<u64>,
    /// Say what would be written where, and how long it would take. Change nothing
    #[arg(long)]
    pub dry_run: bool,
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

/// `windlass verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// A directory of sets, a stripe of a set, or the name of a configured database. Name several
    /// places if the stripes are not together
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// Verify only the newest set of the directory
    #[arg(long, conflicts_with = "which")]
    pub latest: bool,
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

/// `windlass info`
#[derive(Debug, Args)]
pub struct Info {
    /// A directory of sets, a stripe of a set, or the name of a configured database
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// Show everything about each set of a directory, instead of one line
    #[arg(long)]
    pub long: bool,
    /// List every file of the set
    #[arg(long)]
    pub files: bool,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
}

/// `windlass diff`
#[derive(Debug, Args)]
pub struct Diff {
    /// A set, a PostgreSQL data directory, or a SQLite file; DIRECTORY@ID, DIRECTORY@latest and
    /// DIRECTORY@TIME choose a set of a directory
    #[arg(value_name = "IMAGE")]
    pub first: PathBuf,
    /// The image to compare it with, of the same kind of database
    #[arg(value_name = "IMAGE")]
    pub second: PathBuf,
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
}

/// `windlass events`
#[derive(Debug, Args)]
pub struct Events {
    /// The file that --events wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a page with charts over time to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
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
    /// Accept changes and keep them in this directory: a new one, or that of an earlier mount
    #[arg(long, value_name = "DIRECTORY")]
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
