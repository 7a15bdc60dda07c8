//! `windlass lab snapshots`: what an experiment may be told.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use windlass_lab::snapshots::SnapshotExperiment;
use windlass_operations::experimenting::SECONDS_MIN;

use super::SnapshotMethod;

const EXPERIMENTS: &str = "\
Experiments, and about how long each takes:
  load        4 min  how long making a snapshot takes, idle and under 1 to 8 clients
  steps       4 min  where that time goes, and the time of the first open
  chain       6 min  how long the first to the fifth take, at two loads
  timeline    2 min  transactions, pages of checkpoints and bytes to each device while one is made
  throughput  6 min  transactions per second with 0, 1, 3, 5 snapshots, at two loads
  latency     6 min  the time of each of five types of transaction with 0, 1, 3, 5 snapshots
  index       3 min  CREATE INDEX and CLUSTER with a snapshot made beside them
  rebuild     2 min  REINDEX and VACUUM FULL with 0, 1, 2 snapshots, and what these grow by
  as-of       2 min  which rows a snapshot has that is made while rows are inserted
  revert      3 min  how long going back takes after 1 to 100 % of the pages have changed
  growth      3 min  how large a snapshot becomes after 30 and 80 % of the pages have changed

DATABASE is a server that runs on this machine. Windlass asks it for its version and settings, and
does nothing else to it: the experiment runs on a cluster of its own, which it makes in --into with
the same version and settings, and removes at the end. That cluster loads this machine's disks and
cores like any other.

Examples:
  windlass lab snapshots load 'host=/var/run/postgresql'
      How long would it take to make a snapshot on this machine?
  windlass lab snapshots throughput 'host=/var/run/postgresql' --into /srv/pg --clients 8,64
      What would snapshots cost, on the disk of the database, at these two loads?
  windlass lab snapshots revert 'host=/var/run/postgresql' --scale 100
      How long would it take to go back, with ten times the usual size?
  windlass lab snapshots --from snapshots-load-20261125T231500Z.json --out /tmp
      Draw a report again from its series.";

/// `windlass lab snapshots`
#[derive(Debug, Args)]
#[command(after_long_help = EXPERIMENTS)]
pub struct LabSnapshots {
    /// The experiment
    #[arg(required_unless_present = "from", value_parser = experiments(),
          hide_possible_values = true)]
    pub experiment: Option<SnapshotExperiment>,
    /// A PostgreSQL server, whose version and settings the experiment's own cluster has
    #[arg(required_unless_present = "from")]
    pub database: Option<String>,
    /// The directory for the experiment's cluster, which is removed at the end [default: /var/tmp]
    #[arg(long, value_name = "DIRECTORY")]
    pub into: Option<PathBuf>,
    /// The directory for the snapshots, for example on another disk [default: beside the cluster]
    #[arg(long, value_name = "DIRECTORY")]
    pub to: Option<PathBuf>,
    /// How the snapshots are made
    #[arg(long, value_enum, default_value = "hook", hide_possible_values = true)]
    pub method: SnapshotMethod,
    /// The library with the hook, or its directory [default: beside windlass, or where packages put
    /// libraries]
    #[arg(long, value_name = "PATH", env = "WINDLASS_SNAPSHOT_LIBRARY")]
    pub library: Option<PathBuf>,
    /// The directory of the server's programs [default: on the PATH, or where packages put them]
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_BINDIR")]
    pub bindir: Option<PathBuf>,
    /// How large the tables are: about 25 MB for each
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub scale: u32,
    /// How long a load runs before something is measured, and while it is measured
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub seconds: f64,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub repeat: u16,
    /// Loads to compare: numbers of clients, the lowest first, for example 2,8. 0 is an idle server
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clients)]
    pub clients: Vec<usize>,
    /// A setting of the experiment's server: NAME=VALUE. Repeat it
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,
    /// Where to write the series and the report [default: sweeps in the state directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// Show a recorded series, and draw its report again
    #[arg(long, value_name = "FILE", conflicts_with = "experiment")]
    pub from: Option<PathBuf>,
}

fn experiments() -> impl TypedValueParser<Value = SnapshotExperiment> {
    PossibleValuesParser::new(SnapshotExperiment::ALL.map(SnapshotExperiment::name)).map(|name| {
        let named = |one: &SnapshotExperiment| one.name() == name;
        let found = SnapshotExperiment::ALL.into_iter().find(named);
        found.unwrap_or(SnapshotExperiment::Load)
    })
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (SECONDS_MIN..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "{text:?} is no number of seconds from {SECONDS_MIN} to 86400"
        )),
    }
}

fn clients(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=1000) => Ok(count),
        _ => Err(format!("{text:?} is no number from 0 to 1000")),
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.';
    match !name.trim().is_empty() && name.trim().chars().all(is_name) {
        true => Ok((name.trim().to_owned(), value.trim().to_owned())),
        false => Err(format!(
            "{text:?} is no NAME=VALUE, as in shared_buffers=1GB"
        )),
    }
}
