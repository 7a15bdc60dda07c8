//! `windlass open`, and how a set is opened.

use std::path::PathBuf;

use clap::Args;

use windlass_engine::parse_size;

/// `windlass open`
#[derive(Debug, Args)]
#[command(after_long_help = OPEN_EXAMPLES)]
pub struct Open {
    /// A stripe of the set, or the directory that holds its stripes; several when they are apart
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// Let it be written to: a copy of its own, thrown away at the end
    #[arg(long, short, env = "WINDLASS_WRITABLE")]
    pub writable: bool,
    /// Run this with the database, and end with it. PostgreSQL: PGHOST and the like lead there.
    /// SQLite: `{}` becomes the file's path
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
    /// How it is opened
    #[command(flatten)]
    pub opening: OpenOptions,
}

const OPEN_EXAMPLES: &str = "\
Examples:
  windlass open /disk1/pg -- psql
      Look around in a backup of PostgreSQL.
  windlass open /disk1/pg -- pg_dump -t orders shop | psql -h prod shop
      Bring one table back.
  windlass open --writable /disk1/pg
      A copy to try things on, until Ctrl-C.
  windlass open /backup/shop -- sqlite3 {} .tables
      The same for SQLite.";

/// How a set is opened, by open and by verify.
#[derive(Debug, Args)]
#[command(next_help_heading = "Opening")]
pub struct OpenOptions {
    /// Where the overlay and the server's files are, while it is open [default: the temporary
    /// directory]
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_SCRATCH")]
    pub scratch: Option<PathBuf>,
    /// Memory for decoded frames
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB", env = "WINDLASS_CACHE")]
    pub cache: u64,
    /// PostgreSQL: the directory of the server's programs, of the set's major version
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_BINDIR")]
    pub bindir: Option<PathBuf>,
    /// PostgreSQL: libraries the server must preload, as in shared_preload_libraries
    #[arg(
        long,
        value_name = "LIBRARIES",
        default_value = "",
        hide_default_value = true,
        env = "WINDLASS_PRELOAD"
    )]
    pub preload: String,
    /// PostgreSQL: a setting of the server; repeat it
    #[arg(short = 'c', long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
    /// PostgreSQL: the role to connect as [default: the one that initdb made]
    #[arg(long, value_name = "ROLE", env = "WINDLASS_USER")]
    pub user: Option<String>,
    /// PostgreSQL: whom root has the server run as [default: the owner of the set, or postgres]
    #[arg(long, value_name = "USER", env = "WINDLASS_RUN_AS")]
    pub run_as: Option<String>,
    /// PostgreSQL: listen on this TCP port as well; passwords are those of the cluster
    #[arg(long, value_name = "PORT", env = "WINDLASS_PORT")]
    pub port: Option<u16>,
    /// PostgreSQL: on which addresses
    #[arg(
        long,
        value_name = "ADDRESSES",
        default_value = "localhost",
        requires = "port",
        env = "WINDLASS_LISTEN"
    )]
    pub listen: String,
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write NAME=VALUE".to_owned()),
    }
}
