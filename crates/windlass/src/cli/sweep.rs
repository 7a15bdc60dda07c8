//! `windlass lab sweep`: what an experiment may be told.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use windlass_lab::{Experiment, Storage};

use windlass_engine::parse_size;

const EXPERIMENTS: &str = "\
Experiments:
  waits            where a run waits, uncompressed and compressed
  buffers          what 7 to 256 buffers give, up to 1 GiB of memory
  buffer-defaults  how many buffers there are by default for 1 to 5 devices
  device           what the file system at PATH can do, in blocks of 128 KiB and more
  stripes          what 1 to 8 devices give
  blocksize        blocks of 4 and 64 KiB on 1 and 8 devices
  matrix           emulated volumes and machines, with and without compression, 1, 4, 8 devices
  iops-step        an emulated volume with 30,000 and 35,000 operations per second
  nul              transfer sizes, devices and buffers, with nothing written
  disk             the same, written to files
  grid             the settings that you give

You can replace the settings of an experiment with --devices, --transfer-size, --buffers,
--block-size, --compress, --pages and --emulate. Every setting runs once in each round, in shuffled
order.

Examples:
  windlass lab sweep nul shop.db
      What can reading and the cores do, with different transfer sizes, devices and buffers?
  windlass lab sweep disk shop.db --to /backup --compress none,zstd
      The same with the disk that backups go to, with and without compression.
  windlass lab sweep matrix 'host=/var/run/postgresql' --restore
      Measure restores on emulated volumes.
  windlass lab sweep matrix shop.db shop4.db
      Measure backups of two databases of different sizes.
  windlass lab sweep grid shop.db --to /backup --emulate 'source=hdd' --buffers 4,8,16
      Measure three numbers of buffers on an emulated disk.
  windlass lab sweep --from sweep-nul-20261121T081500Z.json --out /tmp
      Draw a report again from its series.

Arguments after -- go to each backup or restore. All other options have their defaults: neither
the configuration nor WINDLASS_* of the environment reaches a run.";

/// `windlass lab sweep`
#[derive(Debug, Args)]
#[command(after_long_help = EXPERIMENTS)]
pub struct Sweep {
    /// The experiment
    #[arg(required_unless_present = "from", value_parser = experiments())]
    pub experiment: Option<Experiment>,
    /// A database, or several to compare their sizes; for `device`, a directory
    #[arg(required_unless_present = "from", value_name = "DATABASE")]
    pub databases: Vec<String>,
    /// Where to write the stripes: `nul` or a directory. Repeat it to use several [default: nul, or
    /// /var/tmp]
    #[arg(long = "to", value_name = "DEVICE", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Measure restores instead of backups
    #[arg(long)]
    pub restore: bool,
    /// Where to put restored files during a run [default: beside the first stripe]
    #[arg(long, value_name = "DIRECTORY", requires = "restore")]
    pub into: Option<PathBuf>,
    /// Numbers of devices, for example 1,2,4
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = devices)]
    pub devices: Vec<usize>,
    /// Transfer sizes, for example 64KiB,1MiB
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size)]
    pub transfer_size: Vec<u64>,
    /// Numbers of buffers, for example 7,64; `default` is the number there would be otherwise
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = buffers)]
    pub buffers: Vec<Buffers>,
    /// Block sizes of the devices, for example 4KiB,64KiB
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size)]
    pub block_size: Vec<u64>,
    /// Codecs, for example none,lz4,zstd:3
    #[arg(
        long,
        value_name = "CODEC",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub compress: Vec<String>,
    /// Whether backups sort the parts of pages by kind: auto,off compares both
    #[arg(long, value_name = "HOW", value_delimiter = ',', value_parser = ["auto", "off"])]
    pub pages: Vec<String>,
    /// Storage to emulate: [NAME: ]source=MODEL target=MODEL ... Repeat it to compare several
    #[arg(long, value_name = "[NAME: ]WHAT=MODEL ...", value_parser = Storage::parse)]
    pub emulate: Vec<Storage>,
    /// Make emulated storage this many times as fast, so that a small database acts like a large
    /// one
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,
    /// Number of rounds [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub repeat: Option<u16>,
    /// How long one round of `device` may take
    #[arg(long, value_name = "TIME", value_parser = super::lab::time, default_value = "20s")]
    pub budget: f64,
    /// Where to write the series and the report [default: sweeps in the state directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// Show a recorded series, and draw its report again
    #[arg(long, value_name = "FILE", conflicts_with = "experiment")]
    pub from: Option<PathBuf>,
    /// Arguments for each backup or restore
    #[arg(last = true, value_name = "OPTION")]
    pub arguments: Vec<String>,
}

/// A number of buffers, or the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers(pub Option<usize>);

fn experiments() -> impl TypedValueParser<Value = Experiment> {
    PossibleValuesParser::new(Experiment::ALL.map(Experiment::name)).map(|name| {
        let named = |one: &Experiment| one.name() == name;
        let found = Experiment::ALL.into_iter().find(named);
        found.unwrap_or(Experiment::Grid)
    })
}

fn devices(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=64) => Ok(count),
        _ => Err(format!("{text:?} is no number from 1 to 64")),
    }
}

fn buffers(text: &str) -> Result<Buffers, String> {
    match text.parse() {
        _ if text == "default" => Ok(Buffers(None)),
        Ok(count) => Ok(Buffers(Some(count))),
        Err(_) => Err(format!("{text:?} is neither a number nor `default`")),
    }
}
