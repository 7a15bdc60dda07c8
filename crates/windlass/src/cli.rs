//! The command line: what can be said, and what each word of it means.

#[cfg(test)]
mod documented;
mod examples;
mod lab;
mod open;
mod sweep;
mod tune;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use windlass_postgres::RelationPattern;

pub use open::{Open, OpenOptions};
use windlass_engine::{parse_rate, parse_size};

use crate::terminal::Color;

pub use lab::{Lab, Plan, Probe, Rehearse};
pub use sweep::Sweep;
pub use tune::Tune;

/// Backs up and restores PostgreSQL and SQLite at the speed of the hardware, and says what the
/// limit was.
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
    /// Print one JSON object and nothing else on standard output
    #[arg(long, global = true, env = "WINDLASS_JSON")]
    pub json: bool,
    /// Print nothing when all is well: no progress, no report of a run. Warnings and errors still
    /// go to standard error
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
    /// Read this configuration instead of /etc/windlass/windlass.toml
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Back up a live database to one or more devices
    #[command(after_long_help = examples::BACKUP)]
    Backup(Box<Backup>),
    /// Restore a set into a new place
    #[command(after_long_help = examples::RESTORE)]
    Restore(Restore),
    /// Read everything in a set, check everything, and list all damage
    #[command(after_long_help = examples::VERIFY)]
    Verify(Verify),
    /// Show what a set is, or what is left of a damaged one
    #[command(after_long_help = examples::INFO)]
    Info(Info),
    /// Show which pages differ between two sets, or a set and a live database
    #[command(after_long_help = examples::DIFF)]
    Diff(Diff),
    /// Write single files of a set, without restoring it
    #[command(after_long_help = examples::EXTRACT)]
    Extract(Extract),
    /// Show a set as a directory of files, without restoring it
    #[command(after_long_help = examples::MOUNT)]
    Mount(MountSet),
    /// Show what is under way: mounts, and what they have read
    #[command(after_long_help = examples::STATUS)]
    Status,
    /// Predict how long a backup or restore would take, and what would bind it
    Plan(Box<Plan>),
    /// Find the setting that makes backups of a database fastest, by trials
    Tune(Box<Tune>),
    /// Experiments: what this storage and these cores can do, and what settings change
    #[command(subcommand, after_long_help = examples::LAB)]
    Lab(Lab),
    /// Show where the time of a recorded run went
    #[command(after_long_help = examples::EVENTS)]
    Events(Events),
    /// Open a set as a database: a PostgreSQL server, or a SQLite file
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
        /// Where to
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
    /// SQLite file, libpq connection string or URI, or a configured name
    pub database: String,
    /// Where to write a stripe: a file, a directory, or `nul`. Repeat it to stripe over several
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
    /// none, lz4, zstd or zstd:LEVEL (1 to 19, and -7 to -1 for speed); auto lets the waits choose,
    /// auto:WEAKEST..STRONGEST within bounds [auto: lz4..zstd:9]
    #[arg(
        long,
        default_value = "zstd:1",
        value_name = "CODEC",
        env = "WINDLASS_COMPRESS",
        allow_hyphen_values = true
    )]
    pub compress: String,
    /// Write a line at each PERCENT done, when no one watches a terminal
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100), env = "WINDLASS_STATS")]
    pub stats: u8,
    /// Read at most so much per second from the database
    #[arg(long, value_name = "RATE", value_parser = parse_rate, env = "WINDLASS_MAX_RATE")]
    pub max_rate: Option<u64>,
    /// Write at most so much per second to all devices together
    #[arg(long, value_name = "RATE", value_parser = parse_rate, env = "WINDLASS_MAX_DEVICE_RATE")]
    pub max_device_rate: Option<u64>,
    /// Replace stripes that are there already, once the new set is sealed
    #[arg(long, env = "WINDLASS_OVERWRITE")]
    pub overwrite: bool,
    /// Write through the page cache instead of past it
    #[arg(long, env = "WINDLASS_BUFFERED")]
    pub buffered: bool,
    /// A name for the backup, kept in the set
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "windlass",
        env = "WINDLASS_LABEL"
    )]
    pub label: String,
    /// PostgreSQL: `fast` checkpoints at once, `spread` waits for one that spares the disks
    #[arg(long, value_name = "HOW", default_value = "fast", value_parser = ["fast", "spread"], env = "WINDLASS_CHECKPOINT")]
    pub checkpoint: String,
    /// Do not keep this run for `plan --accuracy`
    #[arg(long, env = "WINDLASS_NO_PREDICTION")]
    pub no_prediction: bool,
    /// PostgreSQL: do not verify page checksums on the way
    #[arg(long, env = "WINDLASS_NO_PAGE_CHECKSUMS")]
    pub no_page_checksums: bool,
    /// SQLite: wait at most so many seconds for a lock
    #[arg(long, value_name = "SECONDS", env = "WINDLASS_LOCK_WAIT",
          value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    pub lock_wait: Option<u64>,
    /// SQLite in rollback mode: give up when writers have been locked out for so many seconds; 0
    /// is without end [default: 60]
    #[arg(long, value_name = "SECONDS", env = "WINDLASS_LOCK_LIMIT")]
    pub lock_limit: Option<u64>,
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

/// Buffers and threads, of backup, restore and verify.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Buffers and threads")]
pub struct Buffers {
    /// Number of buffers [default: devices x 4 + devices + 2 x source volumes]
    #[arg(long, value_name = "N", env = "WINDLASS_BUFFERS")]
    pub buffers: Option<usize>,
    /// Size of a buffer, and so of a transfer: 64KiB to 4MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, env = "WINDLASS_TRANSFER_SIZE")]
    pub transfer_size: Option<u64>,
    /// Threads that compress or decompress [default: cores]
    #[arg(long, value_name = "N", env = "WINDLASS_THREADS")]
    pub threads: Option<usize>,
    /// Refuse to use more memory than this for buffers [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, env = "WINDLASS_MAX_MEMORY")]
    pub max_memory: Option<u64>,
    /// Make storage as slow as a model: source=MODEL (the database's), target=MODEL (the stripes'),
    /// instance=NAME, scale=FACTOR; a MODEL is gp2:1.5TB, s3:4x90MB/s, hdd ... (docs/lab.md).
    /// Repeat it
    #[arg(
        long,
        value_name = "WHAT=MODEL",
        env = "WINDLASS_EMULATE",
        value_delimiter = ' '
    )]
    pub emulate: Vec<String>,
    /// Do without io_uring
    #[arg(long, env = "WINDLASS_NO_RING")]
    pub no_ring: bool,
}

/// What only a backup decides: a restore finds it in the set.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Layout of the set")]
pub struct Layout {
    /// Block size of the devices: 512 to 65536 [default: 4096]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, env = "WINDLASS_BLOCK_SIZE")]
    pub block_size: Option<u64>,
    /// Largest frame, the unit of random reads: a power of two from 4KiB [default: 128KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, env = "WINDLASS_FRAME_SIZE")]
    pub frame_size: Option<u64>,
    /// Threads that read, for each volume of the source [default: 2, or 1 on one core]
    #[arg(long, value_name = "N", env = "WINDLASS_READERS")]
    pub readers: Option<usize>,
}

/// `windlass restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// A stripe of the set, or the directory that holds its stripes; several when they are apart
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// PostgreSQL: the new data directory. SQLite: the new file, or the directory to put it in
    #[arg(long, value_name = "PATH", env = "WINDLASS_INTO")]
    pub into: PathBuf,
    /// PostgreSQL: put the tablespace that was in OLD into NEW
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_mapping)]
    pub tablespace_map: Vec<(PathBuf, PathBuf)>,
    /// PostgreSQL: whether the restored server archives its log where its source does
    #[arg(
        long,
        value_name = "off|keep",
        default_value = "off",
        env = "WINDLASS_ARCHIVE"
    )]
    pub archive: OffOrKeep,
    /// PostgreSQL: whether the restored server goes on with the subscriptions of its source
    #[arg(
        long,
        value_name = "off|keep",
        default_value = "off",
        env = "WINDLASS_SUBSCRIPTIONS"
    )]
    pub subscriptions: OffOrKeep,
    /// SQLite: replace the database that is there
    #[arg(long)]
    pub force: bool,
    /// Do not keep this run for `plan --accuracy`
    #[arg(long, env = "WINDLASS_NO_PREDICTION")]
    pub no_prediction: bool,
    /// Read at most so much per second from the devices
    #[arg(long, value_name = "RATE", value_parser = parse_rate, env = "WINDLASS_MAX_RATE")]
    pub max_rate: Option<u64>,
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
    /// A stripe of the set, or the directory that holds its stripes; several when they are apart
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// Check seals and indexes only: seconds instead of minutes, finds no rot inside frames
    #[arg(long)]
    pub quick: bool,
    /// Then open the set, and have the database's own tools check every relation
    #[arg(long)]
    pub open: bool,
    /// Read at most so much per second from the devices
    #[arg(long, value_name = "RATE", value_parser = parse_rate, env = "WINDLASS_MAX_RATE")]
    pub max_rate: Option<u64>,
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
    /// Stripes, or directories that hold them
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// List every file of the set
    #[arg(long)]
    pub files: bool,
}

/// `windlass diff`
#[derive(Debug, Args)]
pub struct Diff {
    /// A set, a PostgreSQL data directory, or a SQLite file
    #[arg(value_name = "IMAGE")]
    pub first: PathBuf,
    /// What it is compared with, of the same kind of database
    #[arg(value_name = "IMAGE")]
    pub second: PathBuf,
    /// List every range of pages, not only the first few
    #[arg(long)]
    pub pages: bool,
    /// Believe the sets' checksums of all files, not only of PostgreSQL's relations
    #[arg(long, conflicts_with = "every_byte")]
    pub quick: bool,
    /// Read and compare everything; believe no checksums
    #[arg(long)]
    pub every_byte: bool,
}

/// `windlass events`
#[derive(Debug, Args)]
pub struct Events {
    /// What --events wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a page with charts over time to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// How a run can be watched and recorded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Watching and recording")]
pub struct Watching {
    /// Show also where the time went: a table of the stages, what they waited for, and the devices
    #[arg(long, short = 'v', env = "WINDLASS_DETAILS")]
    pub details: bool,
    /// Record every wait and transfer in this file, for `windlass events`
    #[arg(long, value_name = "FILE", env = "WINDLASS_EVENTS")]
    pub events: Option<PathBuf>,
    /// How: JSON lines, or a trace for ui.perfetto.dev and chrome://tracing
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "jsonl",
        env = "WINDLASS_EVENTS_FORMAT"
    )]
    pub events_format: TraceFormat,
    /// Keep that file below this size: of short events some then stand for all
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        default_value = "64MiB",
        env = "WINDLASS_EVENTS_LIMIT"
    )]
    pub events_limit: u64,
    /// Serve metrics for Prometheus on this address: 127.0.0.1:9187
    #[arg(long, value_name = "ADDRESS", env = "WINDLASS_METRICS")]
    pub metrics: Option<String>,
    /// Write metrics to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE", env = "WINDLASS_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,
}

/// Whether what reaches outside goes on after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OffOrKeep {
    /// Not until somebody turns it on
    Off,
    /// As in the source
    Keep,
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// One JSON object a line
    Jsonl,
    /// The trace format of Chrome and Perfetto
    Trace,
}

/// `windlass extract`
#[derive(Debug, Args)]
pub struct Extract {
    /// A stripe of the set, or the directory that holds its stripes
    #[arg(value_name = "SET")]
    pub set: PathBuf,
    /// Which files, by their paths in the set: `base/5/16384*`, `**/PG_VERSION`
    #[arg(required_unless_present = "relation", value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// PostgreSQL: a table with its indexes and long values, as [DATABASE.]SCHEMA.TABLE; repeat it
    #[arg(long, value_name = "NAME", value_parser = parse_relation)]
    pub relation: Vec<RelationPattern>,
    /// Where to write them
    #[arg(long, value_name = "DIRECTORY")]
    pub into: PathBuf,
}

/// `windlass mount`
#[derive(Debug, Args)]
pub struct MountSet {
    /// A stripe of the set, or the directory that holds its stripes
    #[arg(value_name = "SET")]
    pub set: PathBuf,
    /// Where it is to appear: an empty directory
    #[arg(value_name = "DIRECTORY")]
    pub at: PathBuf,
    /// Take changes, and keep them in this directory: a new one, or one from an earlier mount
    #[arg(long, value_name = "DIRECTORY")]
    pub overlay: Option<PathBuf>,
    /// Memory for decoded frames
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB", env = "WINDLASS_CACHE")]
    pub cache: Option<u64>,
    /// Read past the kernel's page cache: faster for copying whole files out; nothing is kept
    #[arg(long, conflicts_with = "overlay")]
    pub direct_io: bool,
    /// Let other users in, as far as the files' modes do
    #[arg(long, env = "WINDLASS_ALLOW_OTHER")]
    pub allow_other: bool,
    /// Threads that answer the kernel [default: twice the cores, 4 to 16]
    #[arg(long, value_name = "N", env = "WINDLASS_MOUNT_THREADS")]
    pub threads: Option<usize>,
    /// Stay in the foreground until it is unmounted
    #[arg(long, short)]
    pub foreground: bool,
    /// Went into the background: what `mount` starts itself again with
    #[arg(long, hide = true)]
    pub detached: bool,
}

fn parse_relation(text: &str) -> Result<RelationPattern, String> {
    RelationPattern::parse(text).map_err(|error| error.to_string())
}

fn parse_mapping(text: &str) -> Result<(PathBuf, PathBuf), String> {
    // As in pg_basebackup a backslash hides an equals sign that belongs to a path.
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&'=') => {
                parts.last_mut().into_iter().for_each(|p| p.push('='))
            }
            '=' => parts.push(String::new()),
            letter => parts
                .last_mut()
                .into_iter()
                .for_each(|part| part.push(letter)),
        }
        if letter == '\\' && letters.peek() == Some(&'=') {
            letters.next();
        }
    }
    match parts.as_slice() {
        [old, new] if old.starts_with('/') && new.starts_with('/') => Ok((old.into(), new.into())),
        [_, _] => Err("both paths must be absolute".to_owned()),
        _ => Err("write OLD=NEW, with \\= for an equals sign inside a path".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_mapping_may_hide_an_equals_sign() {
        let map = |text| parse_mapping(text).ok();
        assert_eq!(map("/a=/b"), Some(("/a".into(), "/b".into())));
        assert_eq!(map(r"/a\=x=/b"), Some(("/a=x".into(), "/b".into())));
        assert_eq!(map("/a"), None);
        assert_eq!(map("a=/b"), None);
        assert_eq!(map("/a=/b=/c"), None);
    }
}
