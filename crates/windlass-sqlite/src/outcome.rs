//! What a backup read, and what the report, the file table and the facts of its set say about that.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use jiff::Timestamp;
use windlass_engine::{BackupRun, RunReport};
use windlass_media::{BackupType, Facts, FileEntry, FileFlags, FileKind, FileTable};

use crate::database::Database;
use crate::error::{IoContext, SqliteError};
use crate::facts::{DATABASE_FILE, DatabaseFacts};
use crate::page_hashes::SetHashes;
use crate::warning::Warning;

/// The outcome of a backup.
#[derive(Debug)]
pub struct BackupOutcome {
    /// The engine's report.
    pub report: RunReport,
    /// The moment of the committed state that the set holds.
    pub as_of: Timestamp,
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
    /// The hashes of the pages, for the next backup.
    pub(crate) hashes: Option<SetHashes>,
}

pub(crate) fn file_table(
    database: &Database,
    run: &BackupRun,
    copied: &Copied,
) -> Result<FileTable, SqliteError> {
    // Nobody has read the whole of a file with bytes of a base.
    let is_whole = !copied.layered && !left_out(run);
    let outcome = run.outcome(DATABASE_FILE).filter(|_| is_whole);
    file_table_of(database, copied, outcome.map(|outcome| outcome.crc32c))
}

/// Whether a part of the file was left out, because the base has it.
pub(crate) fn left_out(run: &BackupRun) -> bool {
    run.outcome(DATABASE_FILE)
        .is_some_and(|outcome| outcome.dropped_bytes > 0)
}

/// The table of the one file, whose checksum may be known.
pub(crate) fn file_table_of(
    database: &Database,
    copied: &Copied,
    crc32c: Option<u32>,
) -> Result<FileTable, SqliteError> {
    let metadata = database.file.metadata().during("inspect", &database.path)?;
    let name = database.path.file_name().unwrap_or_default();
    Ok(FileTable(vec![FileEntry {
        file: DATABASE_FILE,
        kind: FileKind::File,
        flags: FileFlags {
            last: true,
            crc_known: crc32c.is_some(),
        },
        mode: metadata.mode() & 0o777,
        bytes: copied.bytes,
        mtime_nanos: metadata
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(metadata.mtime_nsec()),
        crc32c: crc32c.unwrap_or(0),
        path: name.as_bytes().to_vec(),
        link_target: Vec::new(),
    }]))
}

pub(crate) fn set_facts(database: &Database, copied: &Copied, started: Timestamp) -> Facts {
    let chain = database.chain.as_ref();
    Facts {
        tool: concat!("windlass ", env!("CARGO_PKG_VERSION")).to_owned(),
        backup_type: chain.map_or(BackupType::Full, |chain| chain.backup_type),
        started: started.to_string(),
        finished: Timestamp::now().to_string(),
        options: database.options.clone(),
        database: copied.facts.to_json(),
        parents: chain.map_or_else(Vec::new, |chain| chain.base.ids()),
    }
}
