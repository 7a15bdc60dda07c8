//! The errors between Windlass and a PostgreSQL cluster; each names the thing and the position.

mod connect;
mod context;
mod ended;
mod hints;
mod over;
mod server;

use std::path::PathBuf;

use postgres::error::SqlState;
use windlass_engine::EngineError;

pub(crate) use context::{IoContext, SqlContext};
pub use ended::ServerEnd;
pub use over::OverFault;
pub use server::ServerError;

use crate::chain::fault::ChainFault;
use crate::lsn::{Lsn, Timeline};
use crate::users::user_shown;
use crate::windows::EarlierWindow;

/// Why a cluster cannot be backed up, or a set cannot be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// A connection string that libpq would refuse too.
    #[error("connection string: {what}")]
    Conninfo {
        /// What is wrong and where.
        what: String,
    },
    /// No service file has the service that the connection string or PGSERVICE names.
    #[error("service {service:?} is in no service file")]
    Service {
        /// The service's name.
        service: String,
    },
    /// The session with the server could not be opened.
    #[error("connect to PostgreSQL at {at}: {source}")]
    Connect {
        /// The host and port, or the socket, that the client tried.
        at: String,
        /// The role of the attempted session.
        role: String,
        /// The database of the attempted session.
        database: String,
        /// Whether the client tried it with TLS.
        encrypted: bool,
        /// What to do if the password is missing or wrong, in sentences.
        password_hint: String,
        /// What the client says.
        #[source]
        source: ServerError,
    },
    /// A certificate, key or revocation list of the connection string that cannot be used.
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
    /// A connection for replication broke, or could not be opened.
    #[error("{doing}: {source}")]
    Stream {
        /// What was tried.
        doing: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server refused something in a session for replication.
    #[error("{doing}: {message}")]
    Refused {
        /// What was tried.
        doing: &'static str,
        /// What the server says.
        message: String,
        /// Its code for that.
        code: String,
    },
    /// The role lacks a right. If the server was asked, the message is the server's.
    #[error("{what}")]
    Right {
        /// What was tried, and what the server said.
        what: String,
        /// The database in which the right is needed.
        database: String,
        /// The statement that grants it.
        grant: String,
    },
    /// The server gave a value that cannot be read.
    #[error("{doing}: the server answered {answer:?}")]
    Answer {
        /// What was asked for.
        doing: &'static str,
        /// The answer.
        answer: String,
    },
    /// An error of a file or directory on this machine.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
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
    /// wal_level = minimal: the log leaves changes out, so a running server cannot be backed up.
    #[error("wal_level is minimal: a running server cannot be backed up")]
    WalLevelMinimal,
    /// The data directory belongs to another user than the one this program runs as.
    #[error("data directory {} belongs to {}, this program runs as {}", path.display(), user_shown(*owner), user_shown(*us))]
    Owner {
        /// The data directory.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
        /// Our number.
        us: u32,
    },
    /// The directory belongs to another cluster than the server's, or to another run of it.
    #[error("{} is not the data directory of the server: {what}", path.display())]
    OtherCluster {
        /// The data directory that the server named.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// pg_control cannot be read: it has the wrong length, no matching checksum, or an unknown
    /// layout.
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
    /// A file without which no cluster starts vanished, although its directory still exists.
    #[error("{} vanished during the backup", path.display())]
    Vanished {
        /// The file.
        path: PathBuf,
    },
    /// A file is there that the list of its directory leaves out.
    #[error("{} is there, but the list of its directory leaves it out", path.display())]
    Unlisted {
        /// The file or directory.
        path: PathBuf,
    },
    /// The whole data directory is away, so none of its files can be read.
    #[error("data directory {} is not there any more", path.display())]
    DataDirectoryGone {
        /// The data directory.
        path: PathBuf,
    },
    /// What was copied is not a whole cluster, so a restore would refuse it or a server would not
    /// start on it.
    #[error("the copy is not a whole cluster: {what}")]
    Incomplete {
        /// What is missing.
        what: String,
    },
    /// A label that the server would refuse, or that would break backup_label.
    #[error("label: {what}")]
    Label {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The standby became a primary during the backup.
    #[error("the standby was promoted during the backup")]
    Promoted,
    /// A WAL segment of the backup's range is not in pg_wal any more.
    #[error(
        "the server has removed WAL segment {segment} from {}, and the backup needs it",
        directory.display()
    )]
    WalMissing {
        /// The segment's file name.
        segment: String,
        /// The directory that was searched.
        directory: PathBuf,
        /// The server's max_slot_wal_keep_size, if it has a limit.
        slot_limit: Option<String>,
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
    /// In every window of a backup the log held something that replay would not get right.
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
    /// The timelines of start and stop do not belong to one history.
    #[error("timeline {stop_timeline} does not pass through {start} on timeline {start_timeline}")]
    Timeline {
        /// Where the backup began.
        start: Lsn,
        /// The timeline on which the backup began.
        start_timeline: Timeline,
        /// The timeline on which it ended.
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
    /// The set is not one of a PostgreSQL cluster, or this build does not understand it.
    #[error("the set cannot be restored: {what}")]
    Set {
        /// What is missing or contradictory.
        what: String,
    },
    /// The set does not have what is asked for.
    #[error("the set has no {what} {name:?}; it has {there}")]
    NotInSet {
        /// Of which kind it is.
        what: &'static str,
        /// Its name.
        name: String,
        /// What the set has of that kind.
        there: String,
    },
    /// A directory that a restore would write into already holds something.
    #[error("{} is not empty", path.display())]
    TargetNotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A restore may not go over what is in a directory.
    #[error("{path} {why}", path = .0.display(), why = .1)]
    TargetKept(PathBuf, OverFault),
    /// A directory that a restore would write into belongs to a running server.
    #[error("{} is the data directory of a running server (process {process})", path.display())]
    TargetRunning {
        /// The directory.
        path: PathBuf,
        /// The process named in postmaster.pid.
        process: i32,
    },
    /// A cluster cannot be restored into something that is not a directory.
    #[error("{} is not a directory", path.display())]
    TargetNotDirectory {
        /// What was named.
        path: PathBuf,
    },
    /// A recovery target that a server could not reach from the set.
    #[error("recovery target: {target} {what}")]
    RecoveryTarget {
        /// The target.
        target: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A restore target or tablespace mapping that cannot be right.
    #[error("{} {what}", path.display())]
    Target {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A set holds a tablespace that its facts do not list.
    #[error(
        "the set holds tablespace {oid}, which its facts do not list: its directory {} may belong \
         to a running server", path.display()
    )]
    TablespaceUnlisted {
        /// Its number.
        oid: u32,
        /// Its directory in the source.
        path: PathBuf,
    },
    /// No server program of the major version was found.
    #[error("no programs of PostgreSQL {major} were found: {looked}")]
    Programs {
        /// The version the set needs.
        major: u32,
        /// Which places were searched, and what was there.
        looked: String,
    },
    /// A server cannot be started on its directory as it was started before.
    #[error("the server on {} cannot be started again as it was: {said}", path.display())]
    NotStartable {
        /// The data directory.
        path: PathBuf,
        /// What is wrong, or what PostgreSQL says.
        said: String,
    },
    /// The opened server did not start, or ended on its own.
    #[error("the server ended {status}: {log}")]
    ServerEnded {
        /// How its process ended.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// The opened server accepts no connection for any of the roles and databases.
    #[error("connect to the opened server as {roles}: {source}")]
    OpenedConnect {
        /// The roles that were tried.
        roles: String,
        /// What the server said.
        #[source]
        source: ServerError,
    },
    /// The files of the cluster are damaged, so that no server can use them.
    #[error("the cluster is damaged: {what}")]
    ClusterDamaged {
        /// Which files, and what is wrong with them.
        what: String,
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
    /// The path of a scratch directory is so long that a socket's name does not fit behind it.
    #[error("{} is too long for a socket's path", path.display())]
    SocketPath {
        /// The socket.
        path: PathBuf,
    },
    /// The backup cannot build on its base.
    #[error("{0}")]
    Chain(ChainFault),
    /// An error of the engine: devices, the pool, or cancelled.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl PostgresError {
    /// Only the server's words, without what was tried; the whole error if there are none.
    pub(crate) fn words(&self) -> String {
        match self.server_error() {
            Some(error) => error.to_string(),
            None => self.to_string(),
        }
    }

    /// Whether the error says that a set, or the cluster in an opened set, is damaged.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Set { .. } | Self::ClusterDamaged { .. } => true,
            Self::ServerEnded { .. } => self.server_end().is_some_and(ServerEnd::is_damage),
            Self::OpenedConnect { source, .. } | Self::Amcheck { source, .. } => source.is_damage(),
            _ => false,
        }
    }

    /// The same error of an opened server, or the damage of its cluster if that is the cause.
    pub(crate) fn of_opened(self) -> Self {
        match &self {
            Self::Sql { source, .. } if source.is_damage() => Self::ClusterDamaged {
                what: self.to_string(),
            },
            _ => self,
        }
    }

    /// Turns the error into a missing right, if it is one; `grant` gives the statement for it.
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

    /// The same error. If log is missing, it gets the limit on the log that slots keep.
    pub(crate) fn or_limited(mut self, ask: impl FnOnce() -> Option<String>) -> Self {
        if let Self::WalMissing { slot_limit, .. } = &mut self {
            *slot_limit = ask();
        }
        self
    }

    /// What the server or the client crate said, if the error comes from a session.
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
