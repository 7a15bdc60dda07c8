//! What can go wrong between Windlass and a PostgreSQL cluster, by thing and position.

mod connect;
mod hints;
mod server;

use std::path::PathBuf;

use postgres::error::SqlState;
use windlass_engine::EngineError;

pub use server::ServerError;

use crate::facts::EarlierWindow;
use crate::lsn::{Lsn, Timeline};

/// Why a cluster cannot be backed up or a set not be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// A connection string that libpq would not take either.
    #[error("connection string: {what}")]
    Conninfo {
        /// What is wrong and where.
        what: String,
    },
    /// The service named in the connection string or in PGSERVICE is in no service file.
    #[error("service {service:?} is in no service file")]
    Service {
        /// The service's name.
        service: String,
    },
    /// No session with the server.
    #[error("connect to PostgreSQL at {at}: {source}")]
    Connect {
        /// Host and port, or socket, that were tried.
        at: String,
        /// The role that the session was to be of.
        role: String,
        /// The database it was to be in.
        database: String,
        /// Whether it was tried with TLS.
        encrypted: bool,
        /// What the client says.
        #[source]
        source: ServerError,
    },
    /// A certificate, key or list of the connection string that cannot be used.
    #[error("{keyword} {}: {what}", path.display())]
    TlsFile {
        /// libpq's keyword for such a file.
        keyword: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A statement failed, or the session ended.
    #[error("{doing}: {source}")]
    Sql {
        /// What the statement was for.
        doing: &'static str,
        /// What the server or the client says.
        #[source]
        source: ServerError,
    },
    /// The role lacks a right. The message is the server's, where it was asked.
    #[error("{what}")]
    Right {
        /// What was tried, and what was said.
        what: String,
        /// The database that the right is needed in.
        database: String,
        /// The statement that gives it.
        grant: String,
    },
    /// A value the server gave cannot be read.
    #[error("{doing}: the server answered {answer:?}")]
    Answer {
        /// What was asked for.
        doing: &'static str,
        /// The answer.
        answer: String,
    },
    /// A file or directory on this machine.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A server older or newer than this build knows.
    #[error(
        "this windlass does not know the files of PostgreSQL {found}; it knows {oldest} to {newest}"
    )]
    Version {
        /// The server's major version.
        found: u32,
        /// Oldest supported.
        oldest: u32,
        /// Newest supported.
        newest: u32,
    },
    /// wal_level = minimal: what the log leaves out cannot be backed up while the server runs.
    #[error("wal_level is minimal: a running server cannot be backed up")]
    WalLevelMinimal,
    /// The data directory belongs to another user than the one this program runs as.
    #[error("data directory {} belongs to user {owner}, this program runs as user {us}", path.display())]
    Owner {
        /// The data directory.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
        /// Our number.
        us: u32,
    },
    /// The directory is another cluster's than the server's, or of another run of it.
    #[error("{} is not the data directory of the server: {what}", path.display())]
    OtherCluster {
        /// The data directory that the server named.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// pg_control cannot be read: wrong length, no checksum that holds, unknown layout.
    #[error("{}: {what}", path.display())]
    Control {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The server and its pg_control contradict each other.
    #[error("{what}: the server says {server}, pg_control says {control}")]
    Mismatch {
        /// The setting.
        what: &'static str,
        /// The server's value.
        server: String,
        /// pg_control's value.
        control: String,
    },
    /// A symbolic link that the backup's policy refuses.
    #[error("symbolic link {}: {what}", path.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// Why it is refused.
        what: &'static str,
    },
    /// A path that a set may not hold.
    #[error("{}: {what}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file without which no cluster starts went away although its directory is still there.
    #[error("{} vanished during the backup", path.display())]
    Vanished {
        /// The file.
        path: PathBuf,
    },
    /// A label that the server would refuse or that would break backup_label.
    #[error("label: {what}")]
    Label {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The standby became a primary while it was backed up.
    #[error("the standby was promoted during the backup")]
    Promoted,
    /// A WAL segment of the backup's range is not in pg_wal any more.
    #[error("WAL segment {segment} is no longer in {}", directory.display())]
    WalMissing {
        /// The segment's file name.
        segment: String,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// A WAL segment does not hold what its name says.
    #[error("WAL segment {segment}: {what}")]
    WalContent {
        /// The segment's file name.
        segment: String,
        /// What differs.
        what: &'static str,
    },
    /// Replay would create a tablespace at a path outside what is restored or opened.
    #[error(
        "the log of this copy creates tablespace {oid} in {} again: {what}", location.display()
    )]
    ReplaysOutside {
        /// The tablespace's number.
        oid: u32,
        /// The path that the log names.
        location: PathBuf,
        /// Why that cannot be.
        what: &'static str,
    },
    /// Every window of a backup had something in its log that replay would not get right.
    #[error(
        "databases or tablespaces were copied or created in each of {} attempts; the last time, {}",
        earlier.len(), earlier.last().map_or_else(String::new, |last| last.cause.to_string())
    )]
    WindowsEnded {
        /// The windows.
        earlier: Vec<EarlierWindow>,
    },
    /// A standby has not replayed a checkpoint behind a record.
    #[error("the standby has replayed no checkpoint behind {lsn}")]
    StandbyBehind {
        /// The record's position.
        lsn: Lsn,
    },
    /// The log cannot be read where the backup needs it.
    #[error("the log at {at}: {what}")]
    WalRecord {
        /// The position.
        at: Lsn,
        /// What is wrong there.
        what: &'static str,
    },
    /// The timelines of start and stop are not of one history.
    #[error("timeline {stop_timeline} does not pass through {start} on timeline {start_timeline}")]
    Timeline {
        /// Where the backup began.
        start: Lsn,
        /// On which timeline.
        start_timeline: Timeline,
        /// The timeline it ended on.
        stop_timeline: Timeline,
    },
    /// A document the server gave (backup_label, tablespace_map, a history file) is malformed.
    #[error("{document}: {what}")]
    Document {
        /// Which document.
        document: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The set is not one of a PostgreSQL cluster, or not one this build understands.
    #[error("set: {what}")]
    Set {
        /// What is missing or contradictory.
        what: String,
    },
    /// A directory that a restore would write into already holds something.
    #[error("{} is not empty", path.display())]
    TargetNotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A directory that a restore would write into is a running server's.
    #[error("{} is the data directory of a running server (process {process})", path.display())]
    TargetRunning {
        /// The directory.
        path: PathBuf,
        /// The process named in postmaster.pid.
        process: i32,
    },
    /// A restore target or tablespace mapping that cannot be right.
    #[error("{}: {what}", path.display())]
    Target {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// No server program of the major version was found.
    #[error("no programs of PostgreSQL {major} were found: {looked}")]
    Programs {
        /// The version the set needs.
        major: u32,
        /// Where was looked, and what was there.
        looked: String,
    },
    /// The opened server did not start, or ended by itself.
    #[error("the server ended {status}: {log}")]
    ServerEnded {
        /// How its process ended.
        status: String,
        /// What its log says last.
        log: String,
    },
    /// No role and database of the opened server take a connection.
    #[error("connect to the opened server as {roles}: {source}")]
    OpenedConnect {
        /// The roles that were tried.
        roles: String,
        /// What the server said.
        #[source]
        source: ServerError,
    },
    /// amcheck cannot be used in a database of the opened server.
    #[error("install amcheck in database {database}: {source}")]
    Amcheck {
        /// The database.
        database: String,
        /// What the server said.
        #[source]
        source: ServerError,
    },
    /// A scratch directory whose path leaves no room for a socket's name.
    #[error("{} is too long for a socket's path", path.display())]
    SocketPath {
        /// The socket.
        path: PathBuf,
    },
    /// The engine: devices, pool, cancelled.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl PostgresError {
    /// What the server said, or what it came to, without what it was tried for.
    pub(crate) fn words(&self) -> String {
        match self.server_error() {
            Some(error) => error.to_string(),
            None => self.to_string(),
        }
    }

    /// The same as a missing right that this statement gives, if that is what it is.
    pub(crate) fn or_right(self, database: &str, grant: impl FnOnce() -> String) -> Self {
        match &self {
            Self::Sql { source, .. }
                if source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) =>
            {
                Self::Right {
                    what: self.to_string(),
                    database: database.to_owned(),
                    grant: grant(),
                }
            }
            _ => self,
        }
    }

    /// What the server or the client crate said, where a session is behind the error.
    fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Connect { source, .. }
            | Self::Sql { source, .. }
            | Self::OpenedConnect { source, .. }
            | Self::Amcheck { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Turns an I/O result into ours, with what was tried and on which file.
pub(crate) trait IoContext<T> {
    fn doing(
        self,
        doing: &'static str,
        path: impl AsRef<std::path::Path>,
    ) -> Result<T, PostgresError>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(
        self,
        doing: &'static str,
        path: impl AsRef<std::path::Path>,
    ) -> Result<T, PostgresError> {
        self.map_err(|source| PostgresError::Io {
            doing,
            path: path.as_ref().into(),
            source,
        })
    }
}

/// Turns a statement's result into ours, with what it was for.
pub(crate) trait SqlContext<T> {
    fn doing(self, doing: &'static str) -> Result<T, PostgresError>;
}

impl<T> SqlContext<T> for Result<T, postgres::Error> {
    fn doing(self, doing: &'static str) -> Result<T, PostgresError> {
        self.map_err(|source| PostgresError::Sql {
            doing,
            source: source.into(),
        })
    }
}
