//! What is checked of a SQLite database.

use std::path::{Path, PathBuf};

use windlass_engine::show_size;
use windlass_sqlite::{Database, JournalMode, LOCK_WAIT_DEFAULT};

use super::Source;
use crate::backup::BackupRequest;
use crate::caller::Caller;
use crate::checks::{Checks, Finding};
use crate::devices::{self, DeviceName};
use crate::error::OperationError;
use crate::sampled::Layouts;
use crate::{emptied, outputs};

/// Looks at a SQLite database as its backup would, for as long as that needs no lock.
pub(super) fn check(
    checks: &mut Checks,
    path: &Path,
    (caller, request): (&Caller, &BackupRequest),
) -> Result<Source, OperationError> {
    let mut database = Database::open(path)?;
    database.set_host(&caller.host);
    database.check_end()?;
    let facts = database.facts();
    let real = PathBuf::from(&facts.path);
    let mode = match facts.journal_mode {
        JournalMode::Wal => "WAL mode: writers go on during a backup",
        _ => "rollback mode: writers wait at the end of a backup",
    };
    let bytes = database.estimate_bytes();
    checks.ok(
        "database",
        format!("{} in {}, {mode}", show_size(bytes), real.display()),
    );
    side_files(checks, &real);
    match database.check_access() {
        Ok(()) => locks(checks, &database, request)?,
        Err(error) => checks.failure("locks", error),
    }
    let emptied = emptied::warning(&directories(request), facts);
    for warning in database.warnings().iter().chain(&emptied) {
        super::foreseen(
            checks,
            "database",
            (warning.name(), warning.to_string()),
            &request.accept,
        );
    }
    checks.ok(
        "sqlite",
        match facts.wal_reset_bug {
            // As in a backup this is not a warning: most systems have such a version.
            true => format!(
                "last written by SQLite {}, which can corrupt a database in WAL mode in rare cases",
                facts.sqlite_version
            ),
            false => format!("last written by SQLite {}", facts.sqlite_version),
        },
    );
    let files = vec![real.clone()];
    let mut outputs = outputs::of_sqlite(path)?;
    super::base::of_file(checks, (caller, request), &database, &mut outputs);
    Ok(Source {
        bytes,
        volumes: 1,
        files,
        layouts: layouts(&database, request)?,
        places: vec![real],
        outputs,
        read_bytes: None,
    })
}

/// How the pages are laid out, if the backup would take them apart.
fn layouts(database: &Database, request: &BackupRequest) -> Result<Layouts, OperationError> {
    match request.pages.holds(false, &request.compression) {
        true => Layouts::of_file(database),
        false => Ok(Layouts::File(None)),
    }
}

/// The directories in which the backup would make a set.
fn directories(request: &BackupRequest) -> Vec<PathBuf> {
    let devices = request.to.iter().map(|text| DeviceName::resolve(text));
    devices::directories(&devices.filter_map(Result::ok).collect::<Vec<_>>())
}

/// Checks whether a backup could lock the database, and asks whether somebody else has locked it.
fn locks(
    checks: &mut Checks,
    database: &Database,
    request: &BackupRequest,
) -> Result<(), OperationError> {
    let wait = request.lock_wait.unwrap_or(LOCK_WAIT_DEFAULT);
    if let Some(process) = database.locked_by()? {
        checks.warning("locks", Finding::Locked { process, wait });
    } else {
        checks.ok("locks", "the files for locks can be used");
    }
    Ok(())
}

/// Checks the files that SQLite keeps beside the database.
fn side_files(checks: &mut Checks, real: &Path) {
    let beside = |suffix: &str| {
        let mut name = real.as_os_str().to_owned();
        name.push(suffix);
        let path = PathBuf::from(name);
        let bytes = std::fs::metadata(&path).map_or(0, |data| data.len());
        (path, bytes)
    };
    let (journal, journal_bytes) = beside("-journal");
    if journal_bytes > 0 {
        checks.warning("side files", Finding::Journal { path: journal });
    } else {
        let (_, wal_bytes) = beside("-wal");
        checks.ok(
            "side files",
            format!("no journal, {} in the WAL", show_size(wal_bytes)),
        );
    }
}
