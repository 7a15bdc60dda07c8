//! What `windlass check` looks at in a SQLite database.

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::show_size;
use windlass_sqlite::{Database, JournalMode, LOCK_WAIT_DEFAULT};

use super::Source;
use crate::checks::Checks;
use crate::cli::Backup;
use crate::devices::{self, DeviceName};
use crate::exit::Failure;
use crate::{outputs, words};
use windlass_operations::emptied;

/// Looks at a SQLite database as its backup would, for as long as that needs no lock.
pub(super) fn check(
    checks: &mut Checks,
    path: &Path,
    arguments: &Backup,
) -> Result<Source, Failure> {
    let database = Database::open(path)?;
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
        Ok(()) => locks(checks, &database, arguments)?,
        Err(error) => checks.failure("locks", &error.into()),
    }
    let emptied = emptied::warning(&directories(arguments), facts);
    for warning in database.warnings().iter().chain(&emptied) {
        super::foreseen(
            checks,
            "database",
            (warning.name(), warning.to_string()),
            &arguments.accept,
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
    Ok(Source {
        bytes,
        volumes: 1,
        files,
        places: vec![real],
        outputs: outputs::of_sqlite(path)?,
    })
}

/// The directories in which the backup would make a set.
fn directories(arguments: &Backup) -> Vec<PathBuf> {
    let devices = arguments.to.iter().map(|text| DeviceName::resolve(text));
    devices::directories(&devices.filter_map(Result::ok).collect::<Vec<_>>())
}

/// Checks whether a backup could lock the database, and asks whether somebody else has locked it.
fn locks(checks: &mut Checks, database: &Database, arguments: &Backup) -> Result<(), Failure> {
    let wait = arguments
        .lock_wait
        .map_or(LOCK_WAIT_DEFAULT, Duration::from_secs);
    if let Some(process) = database.locked_by()? {
        let who = match process {
            0 => "another process".to_owned(),
            id => format!("process {id}"),
        };
        checks.warning(
            "locks",
            format!("{who} has locked the database just now"),
            format!(
                "A backup waits for {} at most (--lock-wait), and fails if the lock stays: a long \
                 write transaction, or a connection with locking_mode=EXCLUSIVE. `ps -p PID` shows \
                 the process.",
                words::duration(wait.as_secs_f64())
            ),
        );
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
        checks.warning(
            "side files",
            format!(
                "{} is there: a transaction is under way, or was cut off",
                journal.display()
            ),
            "A backup waits for a transaction (--lock-wait), and plays a cut-off one back as every \
             reader does.",
        );
    } else {
        let (_, wal_bytes) = beside("-wal");
        checks.ok(
            "side files",
            format!("no journal, {} in the WAL", show_size(wal_bytes)),
        );
    }
}
