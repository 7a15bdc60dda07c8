//! `windlass open`, and how a set is opened.

use std::path::PathBuf;

use clap::Args;

use super::{At, Choice, Repo};
use windlass_engine::parse_amount;

/// `windlass open`
#[derive(Debug, Args)]
#[command(after_long_help = OPEN_EXAMPLES)]
pub struct Open {
    /// A directory of sets, a stripe of a set, or the name of a configured database. Name several
    /// places if the stripes are not together
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Allow writing. All changes are thrown away at the end; the set is never changed
    #[arg(long, short, env = "WINDLASS_WRITABLE")]
    pub writable: bool,
    /// Leave it open in the background under this name, until `windlass close NAME`, or until the
    /// snapshot that was opened is dropped. The socket of a server, or the file, is found under
    /// this name in the directory of --scratch
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pub keep: Option<String>,
    /// What `open` gives to its own process in the background
    #[arg(long, hide = true, requires = "keep")]
    pub detached: bool,
    /// Run this command, and close the database when it ends. PostgreSQL: PGHOST, PGPORT and so on
    /// lead to the opened server. SQLite: `{}` stands for the path of the file
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
    /// At a moment
    #[command(flatten)]
    pub at: At,
    /// How it is opened
    #[command(flatten)]
    pub opening: OpenOptions,
}

/// `windlass close`
#[derive(Debug, Args)]
pub struct Close {
    /// The name that was given to `open --keep`
    pub name: String,
}

const OPEN_EXAMPLES: &str = "\
Examples:
  windlass open /disk1/pg -- psql
      Look around in a backup of a PostgreSQL cluster.
  windlass open /disk1/pg -- pg_dump -t orders shop | psql -h prod shop
      Bring one table back into production.
  windlass open --writable /disk1/pg
      Open a copy to try things on, until Ctrl-C.
  windlass open /disk1/pg --at 2026-11-23T09:59:00+01:00 -- psql
      Look around as of a moment, with the log that is archived beside the sets.
  windlass open shop@yesterday --keep yesterday
      Leave a snapshot open beside the live database, for applications.
  windlass open /backup/shop -- sqlite3 {} .tables
      Ask a backup of a SQLite database.";

/// How a set is opened, by open and by verify.
#[derive(Debug, Args)]
#[command(next_help_heading = "Opening")]
pub struct OpenOptions {
    /// Directory for the changes and the server's files while the set is open [default: the
    /// temporary directory]
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_SCRATCH")]
    pub scratch: Option<PathBuf>,
    /// Memory for decoded frames
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, default_value = "64MiB", env = "WINDLASS_CACHE")]
    pub cache: u64,
    /// PostgreSQL: the directory of the server's programs. They must have the set's major version
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_BINDIR")]
    pub bindir: Option<PathBuf>,
    /// PostgreSQL: libraries that the server must preload, as in shared_preload_libraries
    #[arg(
        long,
        value_name = "LIBRARIES",
        default_value = "",
        hide_default_value = true,
        env = "WINDLASS_PRELOAD"
    )]
    pub preload: String,
    /// PostgreSQL: a setting of the server. Repeat it for more
    #[arg(short = 'c', long = "setting", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
    /// PostgreSQL: the role to connect as [default: the one that initdb created]
    #[arg(long, value_name = "ROLE", env = "WINDLASS_USER")]
    pub user: Option<String>,
    /// PostgreSQL: if root opens the set, run the server as this user [default: the owner of the
    /// set, or postgres]
    #[arg(long, value_name = "USER", env = "WINDLASS_RUN_AS")]
    pub run_as: Option<String>,
    /// PostgreSQL: also listen on this TCP port. The passwords are those of the cluster
    #[arg(long, value_name = "PORT", env = "WINDLASS_PORT",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// PostgreSQL: the addresses for --port
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
    let parts = text.split_once('=');
    let parts = parts.map(|(name, value)| (name.trim(), value.trim()));
    let Some((name, value)) = parts.filter(|(name, _)| !name.is_empty()) else {
        return Err("write NAME=VALUE".to_owned());
    };
    // Windlass would not find its own server. The server takes both names in any case.
    match name.to_ascii_lowercase().as_str() {
        "port" => Err("name the port with --port PORT".to_owned()),
        "unix_socket_directories" => Err(
            "the socket is in the directory of --scratch, and Windlass connects there".to_owned(),
        ),
        _ => Ok((name.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_by_which_windlass_finds_its_server_are_refused() {
        let setting = |text| parse_setting(text).ok();
        let parsed = ("work_mem".to_owned(), "1 MB".to_owned());
        assert_eq!(setting(" work_mem = 1 MB"), Some(parsed));
        for text in [
            "port=1",
            "PORT = 1",
            "unix_socket_directories=/tmp",
            "=1",
            "x",
        ] {
            assert_eq!(setting(text), None, "{text}");
        }
    }
}
