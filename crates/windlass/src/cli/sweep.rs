//! `windlass lab sweep`: what an experiment may be told.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use windlass_lab::{Experiment, Storage};

use windlass_engine::parse_size;

const EXPERIMENTS: &str = "\
Experiments:
  waits            where does a run wait? (plain and compressed)
  buffers          7 to 256 buffers, up to 1 GiB of memory
  buffer-defaults  how many buffers there are for 1 to 5 devices
  device           what the I/O path at PATH can do, in blocks of 128 KiB and more
  stripes          1 to 8 devices
  blocksize        blocks of 4 and 64 KiB on 1 and 8 devices
  matrix           emulated volumes and machines x compression x 1, 4, 8 devices
  iops-step        an emulated volume with 30,000 and 35,000 operations per second
  nul              transfer sizes x devices, then buffers, with nothing written
  disk             the same to files
  grid             whatever axes you give

Any axis may be chosen: --devices, --transfer-size, --buffers, --block-size, --compress, --emulate.
Every setting runs once a round, in an order that is shuffled each time; rounds are repeated.

Examples:
  windlass lab sweep nul shop.db
      What do reading and the cores give, by transfer size, devices and buffers?
  windlass lab sweep disk shop.db --to /backup --compress none,zstd
      The same on the disk that backups go to, with and without compression.
  windlass lab sweep matrix 'host=/var/run/postgresql' --restore
      Restores on emulated volumes, with the published minutes beside them.
  windlass lab sweep matrix shop.db shop4.db
      The same of two databases, one of them four times as large.
  windlass lab sweep grid shop.db --to /backup --emulate 'source=hdd' --buffers 4,8,16
      Any grid.
  windlass lab sweep --from sweep-nul-20261121T081500Z.json --out /tmp
      Draw a report again.

What stands after -- goes to each backup or restore as it is. Other options of these are at their
defaults: neither the configuration nor WINDLASS_* of the environment reaches them.";

/// `windlass lab sweep`
#[derive(Debug, Args)]
#[command(after_long_help = EXPERIMENTS)]
pub struct Sweep {
    /// Which experiment
    #[arg(required_unless_present = "from", value_parser = experiments())]
    pub experiment: Option<Experiment>,
    /// The database, or several to see what their size changes; of `device`, a directory
    #[arg(required_unless_present = "from", value_name = "DATABASE")]
    pub databases: Vec<String>,
    /// Where stripes go: `nul`, or a directory; repeat it to spread [default: nul, or /var/tmp]
    #[arg(long = "to", value_name = "DEVICE", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Measure restores, not backups
    #[arg(long)]
    pub restore: bool,
    /// Where restored files go, for as long as a run takes [default: beside the first stripe]
    #[arg(long, value_name = "DIRECTORY", requires = "restore")]
    pub into: Option<PathBuf>,
    /// Numbers of devices: 1,2,4
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = devices)]
    pub devices: Vec<usize>,
    /// Transfer sizes: 64KiB,1MiB
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size)]
    pub transfer_size: Vec<u64>,
    /// Numbers of buffers: 7,64; `default` is what there would be
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = buffers)]
    pub buffers: Vec<Buffers>,
    /// Block sizes of devices: 4KiB,64KiB
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size)]
    pub block_size: Vec<u64>,
    /// Codecs: none,lz4,zstd:3
    #[arg(
        long,
        value_name = "CODEC",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub compress: Vec<String>,
    /// Storage to emulate, as [NAME: ]source=MODEL target=MODEL ...; repeat it to compare several
    #[arg(long, value_name = "[NAME: ]WHAT=MODEL ...", value_parser = Storage::parse)]
    pub emulate: Vec<Storage>,
    /// Make emulated storage so many times as fast: a small database then takes as long as a large
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,
    /// Rounds [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub repeat: Option<u16>,
    /// How long one round of `device` may take
    #[arg(long, value_name = "TIME", value_parser = super::lab::time, default_value = "20s")]
    pub budget: f64,
    /// Where the series and the report go [default: sweeps in the state directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// Show a series that was kept, and draw its report again
    #[arg(long, value_name = "FILE", conflicts_with = "experiment")]
    pub from: Option<PathBuf>,
    /// For each backup or restore
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
