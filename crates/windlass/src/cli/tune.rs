//! `windlass tune`.

use std::collections::BTreeMap;

use clap::Args;
use windlass_engine::parse_amount;

use super::buffers::{Bounds, Rates};
use super::lab::time;

const EXAMPLES: &str = "\
Examples:
  windlass tune shop.db --to /disk1/shop --to /disk2/shop
      Find the codec, buffers, transfer size and readers that make backups to these disks fastest.
  windlass tune shop --write
      The same for a database of the configuration. Write the result into the configuration.

A trial reads parts of the database and writes to the devices. What it writes is removed at once
and never becomes a set.";

/// `windlass tune`
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Tune {
    /// SQLite file, libpq connection string or URI, or a name from the configuration
    pub database: String,
    /// Where the backups will go, as for `backup`. Repeat it for several devices
    #[arg(
        long = "to",
        value_name = "DEVICE",
        value_delimiter = ',',
        env = "WINDLASS_TO"
    )]
    pub to: Vec<String>,
    /// The codecs to choose from
    #[arg(
        long,
        value_name = "CODEC",
        value_delimiter = ',',
        default_value = "none,lz4,zstd:1,zstd:3",
        allow_hyphen_values = true
    )]
    pub compress: Vec<String>,
    /// Whether the backups will sort the parts of pages by kind, as for `backup`
    #[arg(long, value_name = "HOW", value_parser = ["auto", "off"], env = "WINDLASS_PAGES")]
    pub pages: Option<String>,
    /// How long all trials together may take
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    pub budget: f64,
    /// How much of the database all trials together may read
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, default_value = "32GiB")]
    pub budget_bytes: u64,
    /// How much one trial reads [default: about what half a second can read]
    #[arg(long, value_name = "SIZE", value_parser = parse_amount)]
    pub trial_bytes: Option<u64>,
    /// Limits of speed
    #[command(flatten)]
    pub rates: Rates,
    /// Memory and storage
    #[command(flatten)]
    pub bounds: Bounds,
    /// How many cores a backup may keep busy, for example 1.5 [default: all]
    #[arg(long, value_name = "CORES", value_parser = cores)]
    pub max_cpu: Option<f64>,
    /// Write compress, buffers, transfer-size, readers and threads into the configuration, as
    /// options of the database, and --pages if it is given. A database that is new there also gets
    /// its source, and the devices of --to unless one is `nul`
    #[arg(long)]
    pub write: bool,
    /// The name of the database there [default: its configured name, or that of the file]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Try every setting instead of searching
    #[arg(long)]
    pub exhaustive: bool,
    /// What the configuration says now about the options that are to be tuned, by their names.
    #[arg(skip)]
    pub present: BTreeMap<String, String>,
}

fn cores(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cores) if (0.05..=1024.0).contains(&cores) => Ok(cores),
        _ => Err(format!("{text:?} is no number of cores from 0.05 to 1024")),
    }
}
