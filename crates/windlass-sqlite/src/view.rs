//! The WAL view: which committed state a held read transaction pins, and how to read it raw.
//!
//!   state = database file, overlaid with the newest frame <= M of each page, cut at N pages
//!
//! where M, N and the generation (the salts) come from the WAL-index header, read *after* the
//! transaction took its read mark. Why this is one committed state, and stays readable while
//! writers and checkpoints go on (the rules are those of SQLite's wal.c):
//!
//! 1. SQLite holds a shared lock on one of five read marks for us. A header read later can only
//!    be newer than our snapshot: its M is a commit at or after it, N the size at that commit.
//! 2. A checkpoint copies only frames <= every locked mark 1..4, and none at all while mark 0 is
//!    locked. The log restarts only when *all* its frames are copied and marks 1..4 are free.
//! 3. Say `backfilled < M`. With a mark 1..4 held the log cannot restart. With mark 0 held
//!    nothing is copied, so "all frames are copied" stays false, and it cannot restart either.
//!    Frames 1..M stay where they are. A page that a checkpoint writes while we read it has a
//!    frame <= our mark <= M, so the log's page replaces whatever we read of it, torn or not. A
//!    page without such a frame is not written. The file is cut only by a checkpoint that copied
//!    the log's last commit; that can be no newer than our mark, so its size is N.
//! 4. Say `backfilled = M`. Then the file alone is the state of commit M. With mark 0 nothing is
//!    copied any more. With mark 1..4 our mark is M, and no frame behind it is copied. The log
//!    may restart (mark 0 only), which is why here no frame is read from it.
//!
//! `backfilled` has no checksum, so it is read between two equal headers: a restart, the only
//! thing that lowers it, changes the salts. During a restart it is stale, but M is 0 until it
//! has been reset. Afterwards `check` looks at the index again. The copied frames must be as the
//! lock promises, and so must the salts if frames were read. This is how a lost lock is noticed.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::open_regular;

use crate::database::Database;
use crate::error::{IoContext, SqliteError};
use crate::foreign::KnownHeader;
use crate::header::DatabaseHeader;
use crate::log_pages::LogPages;
use crate::shm::{WAL_INDEX_BYTES, WalIndex};
use crate::standing::LogPoint;
use crate::wal::{self, ReadAt, WalState};

/// How often to read the header again while a writer changes it, with a millisecond in between. A
/// writer needs only microseconds. If it died there, the next reader repairs the header.
const INDEX_TRIES_MAX: u32 = 200;

/// One committed state of a database in WAL mode, pinned by a read transaction.
#[derive(Debug)]
pub(crate) struct WalView {
    database: PathBuf,
    shm_path: PathBuf,
    /// Closing this file would drop the read transaction's lock, so the session keeps it open.
    shm: Arc<File>,
    index: WalIndex,
    log_pages: Option<LogPages>,
    known: KnownHeader,
}

impl WalView {
    /// Takes the view. `None` if the WAL-index was left half-written: begin a new read transaction,
    /// so that SQLite can repair it.
    pub(crate) fn take(
        source: &Database,
        shm: Arc<File>,
        header: &DatabaseHeader,
    ) -> Result<Option<Self>, SqliteError> {
        let database = &source.path;
        let shm_path = beside(database, "-shm");
        let Some(index) = read_index(&shm, &shm_path)? else {
            return Ok(None);
        };
        let log_pages = if index.backfilled >= index.frame_count {
            None
        } else {
            Some(open_log_pages(database, &index, header)?)
        };
        let known = KnownHeader::take(source, log_pages.as_ref(), header.page_bytes)?;
        Ok(Some(Self {
            database: database.clone(),
            shm_path,
            shm,
            index,
            log_pages,
            known,
        }))
    }

    /// Size of the state in bytes, as its last commit gives it. `None` if there is no commit yet:
    /// then the length of the database file counts.
    pub(crate) fn committed_bytes(&self, page_bytes: u32) -> Option<u64> {
        match self.index.page_count {
            0 => None,
            pages => Some(u64::from(pages) * u64::from(page_bytes)),
        }
    }

    /// Whether the log holds a page that goes over the file; pages are counted from 0. Call it
    /// before `take_log_pages`.
    pub(crate) fn log_has(&self, page: u64) -> bool {
        let log_pages = self.log_pages.as_ref();
        log_pages.is_some_and(|log_pages| log_pages.has(page))
    }

    /// The commit that the state ends with.
    pub(crate) fn point(&self) -> LogPoint {
        LogPoint::of(&self.index)
    }

    /// Bytes of a page, as the log says. It is not 0 once there is a commit.
    pub(crate) fn page_bytes(&self) -> u32 {
        self.index.page_bytes.max(1)
    }

    /// The pages to put over the file; `None` when the file alone is the state.
    pub(crate) fn take_log_pages(&mut self) -> Option<LogPages> {
        self.log_pages.take()
    }

    /// Fails if the log or the file moved on in a way that the read lock forbids, or if the file
    /// was overwritten past the lock. `has_log_pages` says whether frames were read.
    pub(crate) fn check(&self, has_log_pages: bool) -> Result<(), SqliteError> {
        let lost = || SqliteError::LockLost {
            path: self.database.clone(),
        };
        let index = self.shm.metadata().during("inspect", &self.shm_path)?;
        // Only the last connection removes the index, and this session is still connected.
        if index.nlink() == 0 {
            return Err(SqliteError::SideLost {
                path: self.shm_path.clone(),
                what: "removed",
            });
        }
        // A writer died and left the header half-written. It was not running a checkpoint, so no
        // frames were copied.
        let Some(now) = read_index(&self.shm, &self.shm_path)? else {
            return self.known.check();
        };
        let kept = if now.same_generation(&self.index) {
            now.frame_count >= self.index.frame_count && now.backfilled <= self.index.frame_count
        } else {
            !has_log_pages && (now.frame_count == 0 || now.backfilled == 0)
        };
        if kept {
            self.known.check()
        } else {
            Err(lost())
        }
    }
}

/// The file that SQLite keeps beside a database.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Reads the index of one moment: `backfilled`, between two equal headers.
pub(crate) fn read_index(shm: &File, path: &Path) -> Result<Option<WalIndex>, SqliteError> {
    for _ in 0..INDEX_TRIES_MAX {
        let (first, second) = (read_once(shm, path)?, read_once(shm, path)?);
        if let (Some(first), Some(second)) = (first, second)
            && first
                == (WalIndex {
                    backfilled: first.backfilled,
                    ..second
                })
        {
            return Ok(Some(first));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

fn read_once(shm: &File, path: &Path) -> Result<Option<WalIndex>, SqliteError> {
    let mut bytes = [0; WAL_INDEX_BYTES];
    let found = shm.read_full_at(&mut bytes, 0).during("read", path)?;
    Ok(WalIndex::decode(&bytes[..found]))
}

/// Scans the log up to the index's last commit and checks it against the index.
fn open_log_pages(
    database: &Path,
    index: &WalIndex,
    header: &DatabaseHeader,
) -> Result<LogPages, SqliteError> {
    let path = beside(database, "-wal");
    let wal = open_regular(&path).during("open", &path)?;
    let state = wal::scan(&wal, index.frame_count).during("read", &path)?;
    let damaged = |frame, what| SqliteError::WalDamaged {
        path: path.clone(),
        frame,
        what,
    };
    let state = state.ok_or_else(|| damaged(0, "(the header) is not valid"))?;
    compare(&state, index, header).map_err(|(frame, what)| damaged(frame, what))?;
    Ok(LogPages::new(wal, path, state))
}

fn compare(
    state: &WalState,
    index: &WalIndex,
    header: &DatabaseHeader,
) -> Result<(), (u32, &'static str)> {
    let pages = [state.header.page_bytes, index.page_bytes];
    if state.header.salts != index.salts {
        return Err((0, "(the header) is of another generation than its index"));
    }
    if pages != [header.page_bytes; 2] {
        return Err((0, "(the header) has another page size than the database"));
    }
    if state.frame_count != index.frame_count {
        return Err((
            state.frame_count + 1,
            "has a wrong checksum, though it is committed",
        ));
    }
    if state.checksum.sums != index.sums || state.page_count != index.page_count {
        return Err((
            state.frame_count,
            "is not the commit that the index tells of",
        ));
    }
    Ok(())
}
