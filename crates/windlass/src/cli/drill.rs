//! Options of `windlass drill`.

use std::path::PathBuf;

use clap::Args;
use windlass_operations::RecoveryRequest;
use windlass_postgres::RecoveryPoint;

use super::target::Targets;
use super::{Buffers, Choice, OpenOptions, Repo};

/// `windlass drill`
#[derive(Debug, Args)]
pub struct Drill {
    /// The name of a configured database, a directory of sets, or a stripe of a set
    #[arg(required = true, value_name = "DATABASE")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Open this moment instead of the newest one: a time with its zone
    #[arg(long, value_name = "TIME", value_parser = super::target::time, conflicts_with = "which")]
    pub at: Option<jiff::Timestamp>,
    /// Draw one of the sets. What is drawn depends on --seed alone
    #[arg(long, conflicts_with_all = ["at", "which"])]
    pub random: bool,
    /// The number by which a set is drawn [default: another one each time; it is printed]
    #[arg(long, value_name = "NUMBER", requires = "random")]
    pub seed: Option<u64>,
    /// Ask the opened database this. Repeat it for several questions
    #[arg(long, value_name = "SQL")]
    pub query: Vec<String>,
    /// The answer that the query of the same place must give, as psql -At prints it: columns
    /// separated by |. Repeat it, once for each query
    #[arg(
        long,
        value_name = "TEXT",
        requires = "query",
        allow_hyphen_values = true
    )]
    pub expect: Vec<String>,
    /// PostgreSQL: the database to ask [default: postgres]
    #[arg(long, value_name = "NAME", requires = "query")]
    pub dbname: Option<String>,
    /// Then restore all of it, measure the time, and remove it again
    #[arg(long, requires = "into")]
    pub restore: bool,
    /// With --restore: the directory to restore into. What is restored needs as much room as the
    /// database
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_DRILL_INTO")]
    pub into: Option<PathBuf>,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
    /// How it is opened
    #[command(flatten)]
    pub opening: OpenOptions,
    /// Buffers and threads of the restore
    #[command(flatten)]
    pub buffers: Buffers,
    /// Write metrics to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE", env = "WINDLASS_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,
}

impl Drill {
    /// The moment, as a restore names it.
    pub fn moment(&self) -> RecoveryRequest {
        let latest = Targets::default().request();
        match self.at {
            None => latest,
            Some(time) => RecoveryRequest {
                point: RecoveryPoint::Time(time),
                needs_log: true,
                ..latest
            },
        }
    }
}
