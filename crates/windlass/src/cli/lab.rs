//! The laboratory's part of the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use windlass_engine::{parse_amount, parse_seconds, parse_size};
use windlass_lab::{Link, LinkKind};

use super::{Buffers, Layout};

const MODELS: &str = "\
A MODEL describes storage by its kind and size, or by a path or a bucket that was probed:
  gp2:1.5TB  gp3:1TB,iops=6000,throughput=500MB/s  io1:9000  io2:64000  st1:4TB
  s3  s3:4x90MB/s  hdd  rate:200MB/s,latency=5ms  nul
  /path  s3://bucket/prefix (probed before)
More keys: iops=, throughput=, stream=, latency=, seek=, io=, credits=, volumes=.

Examples:
  windlass plan --used-bytes 1TB --source gp2:1.5TB --target s3 --files 1,4,8 --compress none,zstd
      Compare six ways to back up 1 TB: how long does each take, and what limits it?
  windlass plan shop.db --source hdd --target s3:4x90MB/s --within 2h
      Measure the size of a database first, and how well it compresses.
  windlass plan --used-bytes 4TB --source io2:64000 --target s3 --chain diff:200GBx6,log:2GBx168
      Plan a week: a full backup, a differential on each other day, a log backup in each hour.
  windlass plan 'host=/var/run/postgresql' --type diff --in /backup --source /var --target /backup
      How much would a differential read and write now, and how long would it take?
  windlass plan --snapshot 'host=/var/run/postgresql' --max-size 20GiB
      Look at a server for 30 s: how fast would a snapshot grow, and when would it be that large?
  windlass plan --accuracy
      Show how good predictions have been on this machine.";

/// What kind of backup is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlannedKind {
    /// Everything
    Full,
    /// What changed since the newest full backup
    Diff,
    /// What changed since the newest backup of any kind
    Incr,
}

/// `windlass plan`
#[derive(Debug, Args)]
#[command(after_long_help = MODELS)]
pub struct Plan {
    /// Measure this database: its size, and how well a sample of it compresses
    #[arg(conflicts_with = "used_bytes")]
    pub database: Option<String>,
    /// Instead of a database: the bytes in use, which a backup reads
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub used_bytes: Option<u64>,
    /// Bytes of all files, which a restore writes [default: those in use]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub file_bytes: Option<u64>,
    /// Bytes of the database for one stored byte [default: that of the sample, or of TPC-H]
    #[arg(long, value_parser = ratio)]
    pub ratio: Option<f64>,
    /// Storage that the bytes come from: a MODEL. Repeat it for several volumes
    #[arg(long, value_name = "MODEL")]
    pub source: Vec<String>,
    /// Storage that the bytes go to: a MODEL. Repeat it for several devices
    #[arg(long, value_name = "MODEL")]
    pub target: Vec<String>,
    /// The machine, by its vendor's name, for example r5.8xlarge
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
    /// Numbers of files (stripes) to compare, for example 1,4,8
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub files: Vec<u16>,
    /// Codecs to compare: none, lz4, zstd or zstd:LEVEL
    #[arg(
        long,
        value_name = "CODEC",
        value_delimiter = ',',
        default_value = "zstd:1",
        allow_hyphen_values = true
    )]
    pub compress: Vec<String>,
    /// Whether the backups of the database sort the parts of pages by kind, as for `backup`
    #[arg(long, value_name = "HOW", value_parser = ["auto", "off"], env = "WINDLASS_PAGES")]
    pub pages: Option<String>,
    /// Number of cores [default: those of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: Option<u16>,
    /// Plan a restore instead of a backup
    #[arg(long)]
    pub restore: bool,
    /// The sets after a full backup: KIND:SIZE or KIND:SIZExCOUNT, where KIND is diff, incr or log
    #[arg(long, value_name = "SETS", value_delimiter = ',', value_parser = link)]
    pub chain: Vec<Link>,
    /// What kind of backup: a differential or incremental one builds on a set in --in
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value_t = PlannedKind::Full,
          requires_ifs = [("diff", "database"), ("incr", "database")],
          conflicts_with_all = ["restore", "chain", "snapshot"])]
    pub kind: PlannedKind,
    /// With --type: the place of the sets that it would build on. Repeat it for more places
    #[arg(long = "in", value_name = "PLACE", requires = "database")]
    pub places: Vec<String>,
    /// With --type: the set to build on [default: the newest that fits]
    #[arg(long, value_name = "SET", requires = "database")]
    pub base: Option<String>,
    /// It must end within this time, for example 90m or 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub within: Option<f64>,
    /// Show how good predictions have been on this machine
    #[arg(long)]
    pub accuracy: bool,
    /// Instead of a backup: look at the server, and say how fast a snapshot would grow and which
    /// method it would be made by
    #[arg(long, requires = "database", conflicts_with_all = ["accuracy", "restore", "within"])]
    pub snapshot: bool,
    /// With --snapshot: how long to look
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s",
          requires = "snapshot")]
    pub look: f64,
    /// With --snapshot: say when the snapshot would reach this size
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "snapshot")]
    pub max_size: Option<u64>,
    /// Read at most this much per second
    #[arg(long, value_name = "RATE", value_parser = windlass_engine::parse_rate_limit)]
    pub max_rate: Option<u64>,
    /// Write at most this much per second
    #[arg(long, value_name = "RATE", value_parser = windlass_engine::parse_rate_limit)]
    pub max_device_rate: Option<u64>,
    /// Buffers and threads
    #[command(flatten)]
    pub buffers: Buffers,
    /// What only a backup decides
    #[command(flatten)]
    pub layout: Layout,
}

/// `windlass lab`
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Measure what a file system and the cores can do, and keep the result as a profile
    Probe(Probe),
    /// Compare real backups and restores on emulated storage with what `plan` predicts
    Rehearse(Rehearse),
    /// Show what each large relation, or a SQLite database, takes with its pages taken apart and as
    /// they are
    Pages(Pages),
    /// Measure backups or restores under many settings, and show what the settings change
    Sweep(Box<super::sweep::Sweep>),
    /// Measure what snapshots cost and how they grow, on a cluster of its own
    Snapshots(Box<super::lab_snapshots::LabSnapshots>),
}

/// `windlass lab probe`
#[derive(Debug, Args)]
#[command(after_long_help = super::examples::PROBE)]
pub struct Probe {
    /// A directory on the file system to measure, or a place in a bucket. The scratch file or
    /// object is gone afterwards
    #[arg(required_unless_present = "database")]
    pub path: Option<PathBuf>,
    /// Measure the codecs on a sample of this database
    #[arg(long)]
    pub database: Option<String>,
    /// How long it may take
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    pub budget: f64,
    /// Size of the scratch file, or the most that is uploaded to a bucket
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, default_value = "1GiB")]
    pub scratch_bytes: u64,
    /// Show the result and keep nothing
    #[arg(long)]
    pub no_keep: bool,
    /// Replace the kept profile even if this probe found less than it
    #[arg(long, conflicts_with = "no_keep")]
    pub replace: bool,
}

/// A size of something there is.
pub(super) fn size(text: &str) -> Result<u64, String> {
    match parse_size(text).map_err(|error| error.to_string())? {
        0 => Err("a size of nothing".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A time with its unit: 2 alone may be meant as anything.
pub(super) fn time(text: &str) -> Result<f64, String> {
    let text = text.trim();
    if text.parse::<f64>().is_ok() {
        return Err(format!(
            "{text} what? Give a unit, e.g. {text}h, {text}m or {text}s"
        ));
    }
    match parse_seconds(text).map_err(|error| error.to_string())? {
        seconds if seconds > 0.0 => Ok(seconds),
        _ => Err("a time of nothing".to_owned()),
    }
}

/// `diff:20GB`, `log:1GBx24`.
fn link(text: &str) -> Result<Link, String> {
    let fault = || format!("{text:?} is no KIND:SIZExCOUNT, as in diff:20GB or log:1GBx24");
    let (kind, rest) = text.split_once(':').ok_or_else(fault)?;
    let kind = match kind {
        "diff" => LinkKind::Diff,
        "incr" => LinkKind::Incr,
        "log" => LinkKind::Log,
        _ => return Err(fault()),
    };
    let (bytes, count) = rest.split_once('x').unwrap_or((rest, "1"));
    let link = Link {
        kind,
        bytes: size(bytes)?,
        count: count.parse().map_err(|_| fault())?,
    };
    let some = link.bytes > 0 && link.count > 0;
    some.then_some(link).ok_or_else(fault)
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.1..=10_000.0).contains(&ratio) => Ok(ratio),
        _ => Err(format!("{text:?} is no ratio from 0.1 to 10000")),
    }
}

/// `windlass lab pages`
#[derive(Debug, Args)]
#[command(after_long_help = super::examples::PAGES)]
pub struct Pages {
    /// The database
    pub database: String,
    /// PostgreSQL: how many relations, the largest first
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub relations: u16,
}

/// `windlass lab rehearse`
#[derive(Debug, Args)]
#[command(after_long_help = super::examples::REHEARSE)]
pub struct Rehearse {
    /// A directory with room for three times --bytes. What is written there is removed again
    #[arg(default_value = "/dev/shm")]
    pub path: PathBuf,
    /// How much to back up
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "96MiB")]
    pub bytes: u64,
    /// Only set-ups whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Fail if the median error or the worst error is larger, for example 0.10,0.25
    #[arg(long, value_name = "MEDIAN,WORST", value_delimiter = ',')]
    pub at_most: Vec<f64>,
}
