//! The database: what one opens, asks and backs up.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::{BackupRun, RunReport};

use crate::backup;
use crate::error::{IoContext, SqliteError};
use crate::facts::DatabaseFacts;
use crate::header::{DATABASE_HEADER_BYTES, DATABASE_MAGIC, DatabaseHeader};
use crate::view::beside;
use crate::wal::ReadAt;

/// How long a lock is waited for, unless told otherwise.
pub const LOCK_WAIT_DEFAULT: Duration = Duration::from_secs(60);

/// How long writers may be locked out, unless told otherwise. Programs wait for a lock for 5
/// seconds as a rule (Python, Django, Rails), so a longer lock is felt already; but a limit as low
/// would fail backups of large databases that are written to all the time.
pub const LOCK_LIMIT_DEFAULT: Duration = Duration::from_secs(60);

/// A SQLite database, found and readable. Nothing is locked before `backup`.
#[derive(Debug)]
pub struct Database {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    pub(crate) lock_wait: Duration,
    pub(crate) lock_limit: Option<Duration>,
    pub(crate) options: serde_json::Value,
    pub(crate) label: String,
    pub(crate) warnings: Vec<String>,
    facts: DatabaseFacts,
    wal_bytes: u64,
}

/// What a backup came to.
#[derive(Debug)]
pub struct BackupOutcome {
    /// The engine's report.
    pub report: RunReport,
    /// What the database was at the moment that was backed up.
    pub facts: DatabaseFacts,
    /// How long a lock was held that others notice: in rollback mode writers could not commit for
    /// that long; in WAL mode they could, but a checkpoint could not pass the backup's moment.
    pub lock_held: Duration,
    /// Bytes that were read again while writers were locked out; in WAL mode none.
    pub lock_bytes: u64,
    /// What a person should know, each a sentence.
    pub warnings: Vec<String>,
}

impl Database {
    /// Opens the database at `path`; a symbolic link is followed, as SQLite does.
    pub fn open(path: &Path) -> Result<Self, SqliteError> {
        let real = path.canonicalize().during("find", path)?;
        let file = File::open(&real).during("open", &real)?;
        let metadata = file.metadata().during("inspect", &real)?;
        if !metadata.is_file() {
            return Err(SqliteError::NotADatabase {
                path: real,
                what: "it is not a file",
            });
        }
        let header = read_header(&file, &real)?;
        let facts = DatabaseFacts::new(&real, metadata.len(), header.as_ref());
        let wal_bytes = std::fs::metadata(beside(&real, "-wal")).map_or(0, |wal| wal.len());
        Ok(Self {
            warnings: path_warnings(path, &real, &metadata),
            path: real,
            file: Arc::new(file),
            lock_wait: LOCK_WAIT_DEFAULT,
            lock_limit: Some(LOCK_LIMIT_DEFAULT),
            options: serde_json::Value::Null,
            label: String::new(),
            facts,
            wal_bytes,
        })
    }

    /// Waits at most this long for a lock, each time one is needed (once in WAL mode, twice in
    /// rollback mode).
    pub fn set_lock_wait(&mut self, wait: Duration) {
        self.lock_wait = wait;
    }

    /// In rollback mode, locks writers out for at most this long, and fails if that does not do;
    /// `None` is without end.
    pub fn set_lock_limit(&mut self, limit: Option<Duration>) {
        self.lock_limit = limit;
    }

    /// The options that the set's facts will tell.
    pub fn set_options(&mut self, options: serde_json::Value) {
        self.options = options;
    }

    /// What the user calls the backup, for the set's facts.
    pub fn set_label(&mut self, label: &str) {
        label.clone_into(&mut self.label);
    }

    /// What the database file says about itself. In WAL mode a commit that is in the WAL only is
    /// not in it yet; `BackupOutcome::facts` has that too.
    pub fn facts(&self) -> &DatabaseFacts {
        &self.facts
    }

    /// The facts as a set keeps them.
    pub fn facts_json(&self) -> serde_json::Value {
        self.facts.to_json()
    }

    /// Bytes that a backup will read, at most, as things stand.
    pub fn estimate_bytes(&self) -> u64 {
        self.facts.bytes + self.wal_bytes
    }

    /// Backs the database up: exactly one committed state, of a moment during the call.
    ///
    /// The process must have no other connection to the database meanwhile: closing one would
    /// drop this one's locks, and the other way round.
    pub fn backup(&mut self, run: BackupRun) -> Result<BackupOutcome, SqliteError> {
        backup::backup(self, run)
    }
}

/// Whether the file at `path` is a SQLite database: its first 16 bytes are SQLite's, or it is
/// empty, which is an empty database.
pub fn is_sqlite(path: &Path) -> Result<bool, SqliteError> {
    let file = File::open(path).during("open", path)?;
    if !file.metadata().during("inspect", path)?.is_file() {
        return Ok(false);
    }
    let mut magic = [0; DATABASE_MAGIC.len()];
    let found = file.read_full_at(&mut magic, 0).during("read", path)?;
    Ok(found == 0 || magic == *DATABASE_MAGIC)
}

/// The header of a database file; `None` when it is empty.
pub(crate) fn read_header(file: &File, path: &Path) -> Result<Option<DatabaseHeader>, SqliteError> {
    let mut bytes = [0; DATABASE_HEADER_BYTES];
    let found = file.read_full_at(&mut bytes, 0).during("read", path)?;
    if found == 0 {
        return Ok(None);
    }
    DatabaseHeader::decode(&bytes[..found])
        .map(Some)
        .map_err(|what| SqliteError::NotADatabase {
            path: path.to_path_buf(),
            what,
        })
}

fn path_warnings(asked: &Path, real: &Path, metadata: &std::fs::Metadata) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut warnings = Vec::new();
    if asked.symlink_metadata().is_ok_and(|link| link.is_symlink()) {
        warnings.push(format!(
            "{} is a symbolic link; {} is backed up.",
            asked.display(),
            real.display()
        ));
    }
    if metadata.nlink() > 1 {
        warnings.push(format!(
            "{} has {} hard links: processes that use different names do not share a journal, \
             which SQLite warns can corrupt the database.",
            real.display(),
            metadata.nlink()
        ));
    }
    warnings
}
