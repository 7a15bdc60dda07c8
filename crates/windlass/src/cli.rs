//! The command line: what can be said, and what each word of it means.

mod accept;
mod archive;
mod buffers;
mod choice;
mod coding;
#[cfg(test)]
mod command_lines;
#[cfg(test)]
mod documented;
mod drill;
mod examples;
mod expire;
mod files;
mod history;
mod hold;
mod hostname;
mod images;
mod key;
mod lab;
mod lab_snapshots;
mod mapping;
mod merge;
mod moment;
mod open;
mod operations;
mod repair;
mod repair_set;
mod repo;
mod restore;
mod schedule;
mod snapshot;
mod sweep;
mod target;
mod tune;
mod verify;
mod watching;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use windlass_operations::MirrorRequest;

pub use choice::{Choice, WHICH_OF_ALL};
pub use coding::Coding;
pub use drill::Drill;
pub use expire::Expire;
pub use files::{check as check_paths, named as named_files};
pub use history::History;
pub use hold::Hold;
pub use images::{Diff, Extract, MountSet};
pub use key::{Key, KeyOf, KeyRotate};
pub use merge::Merge;
pub use moment::{At, AtLog, Recovering};
pub use open::{Close, Open, OpenOptions};

use crate::config::Notify;
use crate::places::Configured;
use crate::terminal::Color;

pub use accept::SQLITE_VERSION;
pub use archive::{ArchiveGet, ArchivePush, Receive};
pub use buffers::{Buffers, Layout, Rates};
pub use operations::{Hooks, LogLevel};
pub use repair::Repair;
pub use repair_set::RepairSet;
pub use repo::Repo;
pub use restore::{OffOrKeep, Restore};
pub use schedule::{Schedule, ScheduleUnits};

pub use lab::{Lab, Pages, Plan, PlannedKind, Probe, Rehearse};
pub use lab_snapshots::LabSnapshots;
pub use snapshot::{
    Making, Of, Snapshot, SnapshotCheckpoint, SnapshotCreate, SnapshotDisable, SnapshotDrop,
    SnapshotEnable, SnapshotList, SnapshotMethod, SnapshotRevert, SnapshotRotate, SnapshotUndo,
};
pub use sweep::Sweep;
pub use tune::Tune;
pub use verify::Verify;
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
    /// A key to encrypted sets and log: identity-file:PATH (of age), passphrase-file:PATH, fd:N or
    /// command:PROGRAM, which prints one. Repeat it for several
    #[arg(long, global = true, value_name = "KEY", env = "WINDLASS_KEY")]
    pub key: Vec<String>,
    /// Read this configuration instead of /etc/windlass/windlass.toml
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CONFIG")]
    pub config: Option<PathBuf>,
    /// The name of this machine in sets and log of SQLite databases, which are known by it and by
    /// their path. The default is the system's hostname. Set it where that changes: in containers
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        value_parser = hostname::parse,
        env = "WINDLASS_HOSTNAME"
    )]
    pub hostname: Option<String>,
    /// Do not keep this run in the history
    #[arg(long, global = true, env = "WINDLASS_NO_HISTORY")]
    pub no_history: bool,
    /// What names the log, in words.
    #[arg(skip)]
    pub log_from: &'static str,
    /// The name of the command: `backup`, `lab`.
    #[arg(skip)]
    pub command: String,
    /// Who is told how the command ends.
    #[arg(skip)]
    pub notify: Option<Notify>,
    /// Places whose sets the configuration wants to be encrypted, and who can read them.
    #[arg(skip)]
    pub encrypted_places: Vec<(PathBuf, Vec<String>)>,
    /// The configured databases, whose names stand for the places of their sets.
    #[arg(skip)]
    pub configured: Vec<Configured>,
}

impl Global {
    /// The name of this machine.
    pub fn host(&self) -> String {
        let given = self.hostname.clone();
        given.unwrap_or_else(windlass_engine::hostname)
    }

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
    /// Prove that a backup can be used: open it, check it, ask it, without a restore
    #[command(after_long_help = examples::DRILL)]
    Drill(Box<Drill>),
    /// Show what was run when, how fast, and what changed
    #[command(after_long_help = examples::HISTORY)]
    History(History),
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
    /// Close a database that `open --keep` opened
    #[command(after_long_help = examples::CLOSE)]
    Close(Close),
    /// Make, list and drop snapshots of a live database, and go back to them
    #[command(subcommand, after_long_help = examples::SNAPSHOT)]
    Snapshot(Snapshot),
    /// Archive a file of a PostgreSQL server's log: for archive_command
    #[command(after_long_help = examples::ARCHIVE_PUSH)]
    ArchivePush(ArchivePush),
    /// Fetch a file of an archived log: for restore_command
    #[command(after_long_help = examples::ARCHIVE_GET)]
    ArchiveGet(ArchiveGet),
    /// Receive the log of a PostgreSQL server or a SQLite database as it is written
    #[command(after_long_help = examples::RECEIVE)]
    Receive(Receive),
    /// Say who can read encrypted sets, check keys, and encrypt to others
    #[command(subcommand, after_long_help = examples::KEY)]
    Key(Key),
    /// Make one full set of a chain, without reading the database
    #[command(after_long_help = examples::MERGE)]
    Merge(Box<Merge>),
    /// Replace damaged pages of a stopped cluster by those of its sets and its log
    #[command(after_long_help = examples::REPAIR)]
    Repair(Box<Repair>),
    /// Write lost and damaged devices of a set with parity anew
    #[command(after_long_help = examples::REPAIR_SET)]
    RepairSet(RepairSet),
    /// Remove the sets and the log that nobody needs any more, by rules
    #[command(after_long_help = examples::EXPIRE)]
    Expire(Expire),
    /// Keep a set whatever the rules of `expire` say, or end that
    #[command(after_long_help = examples::HOLD)]
    Hold(Hold),
    /// Let systemd run backups, verifications and so on, at the times of the configuration
    #[command(subcommand, after_long_help = examples::SCHEDULE)]
    Schedule(Schedule),
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
    /// What changed since the newest full backup
    Diff,
    /// What changed since the newest backup of any kind
    Incr,
    /// What a place lacks of the log, up to now
    Log,
}

/// Options of a backup that say what a set has, how it is stored, and how a run of the pipeline is
/// watched or slowed down. A backup of the log makes no set, and is no such run. They may stand in
/// the configuration, which is for all types.
pub const NOT_OF_LOG: [(&str, &str); 11] = [
    ("parity", "--parity"),
    ("base", "--base"),
    ("strict", "--strict"),
    ("pages", "--pages"),
    ("no_frame_proof", "--no-frame-proof"),
    ("overwrite", "--overwrite"),
    ("mirror", "--mirror"),
    ("max_rate", "--max-rate"),
    ("max_device_rate", "--max-device-rate"),
    ("events", "--events"),
    ("metrics", "--metrics"),
];

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
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Kind of backup
    #[arg(
        long = "type",
        value_enum,
        default_value = "full",
        env = "WINDLASS_TYPE"
    )]
    pub kind: BackupKind,
    /// For --type diff and incr: the set to build on, as a stripe, a directory or an id [default:
    /// the newest that fits, where this backup goes]
    #[arg(long, value_name = "SET", env = "WINDLASS_BASE")]
    pub base: Option<String>,
    /// For --type diff and incr: fail if there is no base, instead of making a full backup
    #[arg(long, env = "WINDLASS_STRICT")]
    pub strict: bool,
    /// How to make it smaller
    #[command(flatten)]
    pub coding: Coding,
    /// If the output is not a terminal, print a line each time PERCENT more is done
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100), env = "WINDLASS_STATS")]
    pub stats: u8,
    /// Encrypt the set, so that only this one can read it: age:RECIPIENT, identity-file:PATH,
    /// passphrase-file:PATH, fd:N or command:PROGRAM, which prints one. Repeat it for several
    #[arg(long, value_name = "WHO", env = "WINDLASS_ENCRYPT")]
    pub encrypt: Vec<String>,
    /// Then copy the set there, too, without reading the database again: a repository of the
    /// configuration, a directory that exists, or s3://BUCKET/PREFIX. Repeat it for several
    #[arg(
        long,
        value_name = "PLACE",
        value_delimiter = ',',
        env = "WINDLASS_MIRROR"
    )]
    pub mirror: Vec<String>,
    /// What the mirrors are, by the configuration.
    #[arg(skip)]
    pub mirrors: Vec<MirrorRequest>,
    /// Write parity to this many of the devices, the last ones. From it Windlass rebuilds as many
    /// devices as that, whichever are lost or damaged
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..64), hide_default_value = true, env = "WINDLASS_PARITY")]
    pub parity: u16,
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
    /// An option that was typed, and that has no meaning with `--type log`.
    #[arg(skip)]
    pub not_of_log: Option<&'static str>,
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

/// `windlass info`
#[derive(Debug, Args)]
pub struct Info {
    /// A directory of sets, a stripe of a set, or the name of a configured database
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Show everything about each set of a directory, instead of one line
    #[arg(long)]
    pub long: bool,
    /// List every file of the set
    #[arg(long)]
    pub files: bool,
    /// Print metrics of a directory for Prometheus: the newest set of each type, how far the log
    /// leads, gaps
    #[arg(long, conflicts_with_all = ["long", "files", "which"])]
    pub metrics: bool,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
