//! What all methods for PostgreSQL say of a cluster and its files.

use std::path::Path;

use windlass_engine::media::{BackupType, Facts, FileEntry, FileFlags, FileKind, FileNo, fitted};
use windlass_postgres::{BackupRequest, DatabaseFacts};

use crate::error::SnapshotError;

pub(crate) const CONTROL_PATH: &str = "global/pg_control";
/// The name that it has while a revert is under way. Its words are for whoever finds it.
pub(crate) const CONTROL_ASIDE: &str = "global/pg_control.windlass-revert-under-way";
pub(crate) const PRIVATE_MODE: u32 = 0o600;
/// No cluster, or no database, starts without these.
const ESSENTIAL: [&[u8]; 2] = [b"PG_VERSION", b"pg_filenode.map"];

/// The facts of a snapshot that is no set.
pub(crate) fn facts(
    request: &BackupRequest,
    found: &DatabaseFacts,
) -> Result<Facts, SnapshotError> {
    Ok(Facts {
        tool: request.tool.clone(),
        backup_type: BackupType::Full,
        started: found.start_time.clone(),
        finished: jiff::Timestamp::now().to_string(),
        options: request.options.clone(),
        database: found.to_json()?,
        parents: Vec::new(),
    })
}

/// The names of warnings, and their words.
pub(crate) fn warnings(found: &DatabaseFacts) -> Vec<(String, String)> {
    let warnings = found.warnings.iter();
    let named = warnings.map(|one| (one.name().to_owned(), one.to_string()));
    named.collect()
}

/// The server's clock as a moment. The server is on this machine, so its clock is ours.
pub(crate) fn server_time(text: &str) -> jiff::Timestamp {
    text.parse().unwrap_or_else(|_| jiff::Timestamp::now())
}

/// A file that the source does not have like this: of the log, or made for the snapshot.
pub(crate) fn own_file(file: FileNo, path: String, bytes: u64) -> FileEntry {
    FileEntry {
        file,
        kind: FileKind::File,
        flags: FileFlags::default(),
        mode: PRIVATE_MODE,
        bytes,
        mtime_nanos: fitted(jiff::Timestamp::now().as_nanosecond()),
        crc32c: 0,
        path: path.into_bytes(),
        link_target: Vec::new(),
    }
}

/// Whether a file that is gone is missed: no server starts without it, and its database is still
/// there.
pub(crate) fn is_needed(path: &[u8], source: &Path) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next();
    let is_essential = name.is_some_and(|name| ESSENTIAL.contains(&name));
    let parent = source.parent();
    is_essential && parent.is_some_and(|parent| parent.join("PG_VERSION").exists())
}
