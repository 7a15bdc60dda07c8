//! `windlass archive-push`, `archive-get` and `receive`: the log of a database, in files and as it
//! comes.

use std::path::PathBuf;

use clap::Args;
use windlass_engine::media::Codec;
use windlass_operations::LOOK_AHEAD_DEFAULT;
use windlass_postgres::Lsn;

use super::Repo;

/// How many segments are fetched ahead. With segments of 16 MiB, that is what a server replays in
/// about a second.
const AHEAD_DEFAULT: usize = 8;

/// `windlass archive-push`
#[derive(Debug, Args)]
pub struct ArchivePush {
    /// The file to archive: `%p` of archive_command
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// The place that keeps the log: a directory that exists, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE")]
    pub to: PathBuf,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Store up to this many segments that the server has marked as ready in one object
    #[arg(long, value_name = "N", default_value_t = LOOK_AHEAD_DEFAULT)]
    pub look_ahead: usize,
    /// Codec: none, lz4, zstd or zstd:LEVEL
    #[arg(long, value_name = "CODEC", default_value = "zstd:1", allow_hyphen_values = true,
          value_parser = codec)]
    pub compress: Codec,
    /// Encrypt the log, so that only this one can read it: age:RECIPIENT, identity-file:PATH,
    /// passphrase-file:PATH, fd:N or command:PROGRAM, which prints one. Repeat it for several.
    /// [default: who can read the sets of this place, by the configuration]
    #[arg(long, value_name = "WHO", env = "WINDLASS_ENCRYPT")]
    pub encrypt: Vec<String>,
    /// Number of threads that compress [default: the cores, at most 4]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Store the next segments ahead, beside the server, and note them in this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub spool: Option<PathBuf>,
    /// Only store ahead.
    #[arg(long, hide = true, requires = "spool")]
    pub fill: bool,
    /// The cluster's system identifier, if the file does not lie in a data directory
    #[arg(long, value_name = "ID")]
    pub system: Option<u64>,
}

/// `windlass archive-get`
#[derive(Debug, Args)]
pub struct ArchiveGet {
    /// The name of the file: `%f` of restore_command
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Where to put it: `%p` of restore_command
    #[arg(value_name = "PATH")]
    pub into: PathBuf,
    /// The place that keeps the log
    #[arg(long, value_name = "PLACE")]
    pub from: PathBuf,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Number of threads [default: the cores, at most 4]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Fetch the next segments ahead into this directory, while the server replays
    #[arg(long, value_name = "DIRECTORY")]
    pub spool: Option<PathBuf>,
    /// How many segments to fetch ahead
    #[arg(long, value_name = "N", default_value_t = AHEAD_DEFAULT, requires = "spool")]
    pub ahead: usize,
    /// Only fetch ahead.
    #[arg(long, hide = true, requires = "spool")]
    pub fill: bool,
    /// Go without log that was durable and is lost from this position on; else that is an error
    #[arg(long, value_name = "LSN", value_parser = super::target::lsn)]
    pub until: Option<Lsn>,
    /// The cluster's system identifier [default: that of the data directory, or the only one]
    #[arg(long, value_name = "ID")]
    pub system: Option<u64>,
}

/// `windlass receive`
#[derive(Debug, Args)]
pub struct Receive {
    /// libpq connection string or URI of a PostgreSQL server, whose role needs REPLICATION. Or the
    /// path of a SQLite database in WAL mode
    pub database: String,
    /// The place that keeps the log: a directory that exists, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE")]
    pub to: PathBuf,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Encrypt the log, so that only this one can read it: age:RECIPIENT, identity-file:PATH,
    /// passphrase-file:PATH, fd:N or command:PROGRAM, which prints one. Repeat it for several.
    /// [default: who can read the sets of this place, by the configuration]
    #[arg(long, value_name = "WHO", env = "WINDLASS_ENCRYPT")]
    pub encrypt: Vec<String>,
    /// PostgreSQL: the slot that keeps log while nobody receives it [default: a temporary one]
    #[arg(long, value_name = "NAME")]
    pub slot: Option<String>,
    /// Make the slot if the server does not have it
    #[arg(long, requires = "slot")]
    pub create_slot: bool,
    /// Make durable what has come after at most this time [default: 0.2s; to a bucket: 1s;
    /// SQLite: 1s]
    #[arg(long, value_name = "TIME", value_parser = super::lab::time)]
    pub interval: Option<f64>,
}

fn codec(text: &str) -> Result<Codec, String> {
    text.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;
    use windlass_operations::{BUCKET_INTERVAL, CLUSTER_INTERVAL, DATABASE_INTERVAL};

    use crate::cli::Cli;

    /// The interval depends on the database and on the place, so it is no default of the option.
    #[test]
    fn the_help_of_receive_says_after_how_long_log_is_durable() {
        let cli = Cli::command();
        let receive = cli.find_subcommand("receive").unwrap();
        let mut options = receive.get_arguments();
        let interval = options.find(|one| one.get_id() == "interval").unwrap();
        assert!(interval.get_default_values().is_empty());
        let help = interval.get_help().unwrap().to_string();
        let seconds = |time: Duration| format!("{}s", time.as_secs_f64());
        let usual = [CLUSTER_INTERVAL, BUCKET_INTERVAL, DATABASE_INTERVAL];
        let [cluster, bucket, database] = usual.map(seconds);
        let says = format!("[default: {cluster}; to a bucket: {bucket}; SQLite: {database}]");
        assert!(help.ends_with(&says), "{help}");
    }
}
