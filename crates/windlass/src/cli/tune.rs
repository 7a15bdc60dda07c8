//! `windlass tune`.

use clap::Args;
use windlass_engine::{parse_rate, parse_size};

use super::lab::{size, time};

const EXAMPLES: &str = "\
Examples:
  windlass tune shop.db --to /disk1/shop --to /disk2/shop
      Which codec, buffers, transfers and readers make backups of shop.db fastest there?
  windlass tune shop --write
      The same for a database of the configuration, and keep the setting there.

Trials read parts of the database and write to the devices; what they write is removed at once,
and nothing of it is ever a set.";

/// `windlass tune`
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Tune {
    /// SQLite file, libpq connection string or URI, or a configured name
    pub database: String,
    /// Where backups are to go, as for `backup`
    #[arg(
        long = "to",
        value_name = "DEVICE",
        value_delimiter = ',',
        env = "WINDLASS_TO"
    )]
    pub to: Vec<String>,
    /// Codecs to choose from
    #[arg(
        long,
        value_name = "CODEC",
        value_delimiter = ',',
        default_value = "none,lz4,zstd:1,zstd:3",
        allow_hyphen_values = true
    )]
    pub compress: Vec<String>,
    /// How long all trials together may take
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    pub budget: f64,
    /// How much of the database all trials together may read
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "32GiB")]
    pub budget_bytes: u64,
    /// How much a trial reads [default: about half a second's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub trial_bytes: Option<u64>,
    /// Read at most so much per second from the database
    #[arg(long, value_name = "RATE", value_parser = parse_rate, env = "WINDLASS_MAX_RATE")]
    pub max_rate: Option<u64>,
    /// Write at most so much per second to all devices together
    #[arg(long, value_name = "RATE", value_parser = parse_rate, env = "WINDLASS_MAX_DEVICE_RATE")]
    pub max_device_rate: Option<u64>,
    /// Memory that buffers may take [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, env = "WINDLASS_MAX_MEMORY")]
    pub max_memory: Option<u64>,
    /// Cores that a backup may keep busy, as in 1.5 [default: all]
    #[arg(long, value_name = "CORES", value_parser = cores)]
    pub max_cpu: Option<f64>,
    /// Make storage as slow as a model, as for `backup`
    #[arg(
        long,
        value_name = "WHAT=MODEL",
        env = "WINDLASS_EMULATE",
        value_delimiter = ' '
    )]
    pub emulate: Vec<String>,
    /// Write the setting to the configuration, as options of the database
    #[arg(long)]
    pub write: bool,
    /// The database's name there [default: the configured one, or the file's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Try every setting instead of searching: for comparing, and for an hour with nothing to do
    #[arg(long)]
    pub exhaustive: bool,
}

fn cores(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cores) if (0.05..=1024.0).contains(&cores) => Ok(cores),
        _ => Err(format!("{text:?} is no number of cores from 0.05 to 1024")),
    }
}
