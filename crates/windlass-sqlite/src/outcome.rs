//! What a backup read, and what the report, the file table and the facts of its set say about that.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use jiff::Timestamp;
use windlass_engine::{BackupRun, RunReport};
use windlass_media::{BackupType, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable};

use crate::database::Database;
use crate::error::{IoContext, SqliteError};
use crate::facts::DatabaseFacts;
use crate::warning::Warning;

/// The number of the database file, which is the only file of a set.
pub(crate) const DATABASE_FILE: FileNo = FileNo(0);

/// The outcome of a backup.
#[derive(Debug)]
pub struct BackupOutcome {
    /// The engine's report.
    pub report: RunReport,
    /// What the database was at the moment of the backup.
    pub facts: DatabaseFacts,
    /// How long the backup held a lock that other processes notice. In rollback mode writers could
    /// not commit for that long. In WAL mode they could, but no checkpoint could go beyond the
    /// backup's moment.
    pub lock_held: Duration,
    /// Bytes that were read again while writers were locked out; 0 in WAL mode.
    pub lock_bytes: u64,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

/// What the backup read, and what the database was.
pub(crate) struct Copied {
    pub(crate) bytes: u64,
    pub(crate) facts: DatabaseFacts,
    pub(crate) lock_held: Duration,
    /// Bytes that were read again while writers were locked out.
    pub(crate) lock_bytes: u64,
    /// More than one layer was written, so the engine's checksum of the first layer is not the
    /// file's.
    pub(crate) layered: bool,
}

pub(crate) fn file_table(
    database: &Database,
    run: &BackupRun,
    copied: &Copied,
) -> Result<FileTable, SqliteError> {
    let metadata = database.file.metadata().during("inspect", &database.path)?;
    let outcome = run.outcome(DATABASE_FILE).filter(|_| !copied.layered);
    let name = database.path.file_name().unwrap_or_default();
    Ok(FileTable(vec![FileEntry {
        file: DATABASE_FILE,
        kind: FileKind::File,
        flags: FileFlags {
            last: true,
            crc_known: outcome.is_some(),
        },
        mode: metadata.mode() & 0o777,
        bytes: copied.bytes,
        mtime_nanos: metadata
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(metadata.mtime_nsec()),
        crc32c: outcome.map_or(0, |outcome| outcome.crc32c),
        path: name.as_bytes().to_vec(),
        link_target: Vec::new(),
    }]))
}

pub(crate) fn set_facts(database: &Database, copied: &Copied, started: Timestamp) -> Facts {
    Facts {
        tool: concat!("windlass ", env!("CARGO_PKG_VERSION")).to_owned(),
        backup_type: BackupType::Full,
        started: started.to_string(),
        finished: Timestamp::now().to_string(),
        options: database.options.clone(),
        database: copied.facts.to_json(),
        parents: Vec::new(),
    }
}
