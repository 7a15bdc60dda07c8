//! The database: the type that a program opens and asks for facts. `backup.rs` backs it up,
//! `pinned.rs` pins a state of it, and `reach.rs` checks its end.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::open_regular;
use windlass_media::PageLayout;

use crate::chain::Chain;
use crate::error::{IoContext, SqliteError};
use crate::facts::DatabaseFacts;
use crate::header::{DATABASE_HEADER_BYTES, DATABASE_MAGIC, DatabaseHeader};
use crate::hook::layout_of;
use crate::lock;
use crate::view::beside;
use crate::wal::ReadAt;
use crate::warning::Warning;

/// How long a backup waits for a lock, unless the caller sets another time.
pub const LOCK_WAIT_DEFAULT: Duration = Duration::from_secs(60);

/// How long a backup may lock writers out, unless the caller sets another limit. Programs usually
/// wait 5 seconds for a lock (Python, Django, Rails), so users notice a lock that lasts longer. But
/// with a limit as low as that, backups of large databases with constant writes would fail.
pub const LOCK_LIMIT_DEFAULT: Duration = Duration::from_secs(60);

/// A SQLite database that was found and can be read. Nothing is locked before `backup`.
#[derive(Debug)]
pub struct Database {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    pub(crate) lock_wait: Duration,
    pub(crate) lock_limit: Option<Duration>,
    pub(crate) options: serde_json::Value,
    pub(crate) label: String,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) chain: Option<Chain>,
    pub(crate) keeps_hashes: bool,
    facts: DatabaseFacts,
    wal_bytes: u64,
}

impl Database {
    /// Adds to the facts of a set what the backup was asked for, and where it ran. A set that
    /// builds on another has read all pages if nothing told which ones to read.
    pub(crate) fn complete(&self, facts: &mut DatabaseFacts) {
        facts.label.clone_from(&self.label);
        facts.host.clone_from(&self.facts.host);
        if self.chain.is_some() && facts.changes_from.is_none() {
            facts.changes_from = Some("pages".to_owned());
        }
    }

    /// Opens the database at `path`. Like SQLite, it follows a symbolic link.
    pub fn open(path: &Path) -> Result<Self, SqliteError> {
        let real = path.canonicalize().during("find", path)?;
        // A directory or a pipe is named for what it is. It is looked at before it is opened.
        if !real.metadata().during("inspect", &real)?.is_file() {
            return Err(SqliteError::NotADatabase {
                path: real,
                what: "it is not a file",
            });
        }
        let file = open_regular(&real).during("open", &real)?;
        let metadata = file.metadata().during("inspect", &real)?;
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
            chain: None,
            keeps_hashes: true,
            facts,
            wal_bytes,
        })
    }

    /// Sets how long a backup waits for a lock. It needs one once in WAL mode and twice in rollback
    /// mode, and may wait this long each time.
    pub fn set_lock_wait(&mut self, wait: Duration) {
        self.lock_wait = wait;
    }

    /// Sets how long a backup in rollback mode may lock writers out. A backup that needs longer
    /// fails. `None` means no limit.
    pub fn set_lock_limit(&mut self, limit: Option<Duration>) {
        self.lock_limit = limit;
    }

    /// Sets the options that the set's facts record.
    pub fn set_options(&mut self, options: serde_json::Value) {
        self.options = options;
    }

    /// Sets the user's label for the backup, for the set's facts.
    pub fn set_label(&mut self, label: &str) {
        label.clone_into(&mut self.label);
    }

    /// Sets the name of the machine, for the set's facts.
    pub fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.facts.host);
    }

    /// Lets a backup build on an earlier set. What is the same there is left out.
    pub fn set_chain(&mut self, chain: Option<Chain>) {
        self.chain = chain;
    }

    /// Sets whether the set has hashes of its pages, which make the next backup of its chain fast.
    pub fn set_keeps_hashes(&mut self, keeps: bool) {
        self.keeps_hashes = keeps;
    }

    /// What the database file says about itself. In WAL mode this lacks commits that are only in
    /// the WAL; `BackupOutcome::facts` includes them.
    pub fn facts(&self) -> &DatabaseFacts {
        &self.facts
    }

    /// How the pages of the file are laid out; `None` if it is empty.
    pub fn page_layout(&self) -> Result<Option<PageLayout>, SqliteError> {
        let header = read_header(&self.file, &self.path)?;
        Ok(header.as_ref().and_then(layout_of))
    }

    /// The facts as a set keeps them.
    pub fn facts_json(&self) -> serde_json::Value {
        self.facts.to_json()
    }

    /// The process that just now keeps everybody else from reading the database; 0 if the system
    /// cannot name it. A backup would wait for it. This asks the system, and locks nothing.
    pub fn locked_by(&self) -> Result<Option<i32>, SqliteError> {
        lock::excluder(&self.file).during("ask for the locks of", &self.path)
    }

    /// What is known already that a backup would warn of.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The most bytes that a backup would read, as the database is now.
    pub fn estimate_bytes(&self) -> u64 {
        self.facts.bytes + self.wal_bytes
    }
}

/// Whether the file at `path` is a SQLite database: its first 16 bytes are SQLite's, or it is
/// empty, which is an empty database.
pub fn is_sqlite(path: &Path) -> Result<bool, SqliteError> {
    if !path.metadata().during("inspect", path)?.is_file() {
        return Ok(false);
    }
    let file = open_regular(path).during("open", path)?;
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

/// Fails if `path` no longer names the file that is open as `file`.
pub(crate) fn check_same_file(path: &Path, file: &File) -> Result<(), SqliteError> {
    let opened = file.metadata().during("inspect", path)?;
    let named = std::fs::metadata(path).ok();
    let same = named.is_some_and(|named| {
        (named.dev(), named.ino()) == (opened.dev(), opened.ino()) && opened.nlink() > 0
    });
    if same {
        Ok(())
    } else {
        Err(SqliteError::SourceReplaced {
            path: path.to_path_buf(),
        })
    }
}

/// Names the cause of an error of a database. If the path names another file by now, that is the
/// cause, whatever the old file and the files beside it look like, and whatever SQLite says. Errors
/// of the engine have other causes: a device, or that the user cancelled the run.
pub(crate) fn replaced_or(path: &Path, file: &File, error: SqliteError) -> SqliteError {
    if matches!(error, SqliteError::Engine(_)) {
        return error;
    }
    match check_same_file(path, file) {
        Err(replaced @ SqliteError::SourceReplaced { .. }) => replaced,
        _ => error,
    }
}

fn path_warnings(asked: &Path, real: &Path, metadata: &std::fs::Metadata) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if asked.symlink_metadata().is_ok_and(|link| link.is_symlink()) {
        warnings.push(Warning::SymbolicLink {
            link: asked.to_owned(),
            target: real.to_owned(),
        });
    }
    if metadata.nlink() > 1 {
        warnings.push(Warning::HardLinks {
            path: real.to_owned(),
            count: metadata.nlink(),
        });
    }
    warnings
}
