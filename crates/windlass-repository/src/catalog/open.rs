//! Opens the catalog: makes it, checks that it is one, and moves a damaged one aside.
//!
//! Locking: whoever makes the file, or moves it aside, holds a lock on `history.lock` beside it.
//! Everything else is SQLite's own locking.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::error::{self, CatalogError};
use super::{CATALOG_FILE, row};

/// How long a process waits for others that write.
const WAIT: Duration = Duration::from_secs(10);
/// What the header of the file says: `WLhi`.
const APPLICATION: i64 = 0x574c_6869;
/// The version of the schema.
pub(super) const VERSION: i64 = 1;

/// The file, the connection, and where a damaged file went.
type Opened = (PathBuf, Connection, Option<PathBuf>);

pub(super) fn for_writing(directory: &Path) -> Result<Opened, CatalogError> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(|source| CatalogError::Directory {
        path: directory.to_owned(),
        source,
    })?;
    let path = directory.join(CATALOG_FILE);
    if path.exists() {
        match connect(&path) {
            Ok(Some(connection)) => return Ok((path, connection, None)),
            Ok(None) | Err(CatalogError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let lock = lock(directory)?;
    let opened = make(&path);
    drop(lock);
    let (connection, damaged) = opened?;
    Ok((path, connection, damaged))
}

/// Makes the catalog, unless another process did so meanwhile.
fn make(path: &Path) -> Result<(Connection, Option<PathBuf>), CatalogError> {
    create(path)?;
    let found = connect(path);
    let (found, damaged) = match found {
        Err(CatalogError::Damaged { .. }) => {
            let aside = move_aside(path)?;
            create(path)?;
            (connect(path)?, Some(aside))
        }
        found => (found?, None),
    };
    let connection = match found {
        Some(connection) => connection,
        None => initialise(path).map_err(error::of(path))?,
    };
    Ok((connection, damaged))
}

/// A connection to a catalog; none if the file is empty.
fn connect(path: &Path) -> Result<Option<Connection>, CatalogError> {
    let of = error::of(path);
    let connection = plain(path).map_err(&of)?;
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let application = number("application_id").map_err(&of)?;
    let version = number("user_version").map_err(&of)?;
    let tables = "select count(*) from sqlite_schema";
    let tables = connection.query_row(tables, [], |row| row.get::<_, i64>(0));
    let tables = tables.map_err(&of)?;
    let path = path.to_owned();
    match (application, version) {
        (0, 0) if tables == 0 => Ok(None),
        (APPLICATION, VERSION) => {
            row::check(&connection).map_err(of)?;
            Ok(Some(connection))
        }
        (APPLICATION, version) if version > VERSION => Err(CatalogError::Newer {
            path,
            version,
            known: VERSION,
        }),
        _ => Err(CatalogError::Foreign { path }),
    }
}

fn plain(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(WAIT)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    Ok(connection)
}

fn initialise(path: &Path) -> rusqlite::Result<Connection> {
    let mut connection = plain(path)?;
    // Where the file system has no shared memory, SQLite keeps its other mode. That works, too, as
    // long as the process stays the same user.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    let transaction = connection.transaction()?;
    row::create(&transaction)?;
    let made = jiff::Timestamp::now().as_millisecond().to_string();
    transaction.execute("insert into meta values ('made', ?1)", [made])?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(connection)
}

/// Creates an empty file that only its user can read: it has paths and messages of servers.
fn create(path: &Path) -> Result<(), CatalogError> {
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match created {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io_error(path, error)),
        _ => Ok(()),
    }
}

fn lock(directory: &Path) -> Result<File, CatalogError> {
    let path = directory.join("history.lock");
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(&path);
    let file = file.map_err(|source| io_error(&path, source))?;
    // Nobody holds it for longer than it takes to make a small file.
    flock(&file, FlockOperation::LockExclusive).map_err(|errno| io_error(&path, errno.into()))?;
    Ok(file)
}

/// Moves the files of a damaged catalog aside. One that was there before is replaced.
fn move_aside(path: &Path) -> Result<PathBuf, CatalogError> {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let aside = beside(".damaged");
    for (from, to) in [
        (beside("-wal"), beside(".damaged-wal")),
        (beside("-shm"), beside(".damaged-shm")),
        (path.to_owned(), aside.clone()),
    ] {
        match rustix::fs::rename(&from, &to) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(io_error(&from, errno.into())),
        }
    }
    Ok(aside)
}

fn io_error(path: &Path, source: io::Error) -> CatalogError {
    CatalogError::Io {
        path: path.to_owned(),
        source,
    }
}
