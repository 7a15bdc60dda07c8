//! The capture: keeps every transaction of a database in WAL mode, as it happens.
//!
//!   look:  next pin begins --> index: commits since --> pages, to whoever keeps them
//!                              --> last pin ends --> copy the log into the file, if it is time
//!
//! SQLite removes nothing from its log that a reader may need, and a log begins again from its
//! start only if it was copied into the file completely. A pin is such a reader. Why nothing is
//! lost as long as one pin begins before the last one ends:
//!
//! 1. A pin holds a read mark. While mark 1 to 4 is held, the log does not begin again. What is
//!    behind the mark is not copied into the file.
//! 2. If the whole log is in the file, a pin gets mark 0. While it is held, nothing is copied. The
//!    log may begin again once with frames, because what it had is in the file. Then it cannot be
//!    copied, so it does not begin again. (It may begin again empty, several times.)
//! 3. When a pin gets mark 0, everything that is in the file has been captured: the pin before
//!    kept what was not captured from being copied.
//! 4. So between two looks the log began again at most once with frames, and only if the last look
//!    had all of the generation before. All frames of the new one are there. Until the next pin has
//!    begun and the last one has ended, the file is as it was when the log began again.
//!
//! A commit counts only if the index tells of it. After a crash the log may end with one that the
//! index does not have, and the next writer overwrites it.
//!
//! Invariants
//! - Nothing that was captured is given out twice, and nothing is left out: the checksum of SQLite
//!   runs on from the last captured frame to that in the index, or the look fails.
//! - Writers wait only while the last of the log is copied in their absence, which is done if it
//!   has grown by [`HELD_FRAMES`]. It is measured. What they wait for was captured and copied just
//!   before, except for what came meanwhile. This rest must be durable before they go on: their
//!   next transaction may begin the log again. Whoever keeps it where that takes long makes it
//!   durable behind the look ([`Look::writers_wait`]), and says how much that may be, because it is
//!   in memory until then. If it is killed in between, the log is found to have begun again, and
//!   what was committed in the gap is not passed over in silence.
//! - A pin leaves mark 0 only when no process is inside a checkpoint.
//!
//! Locking: as in `session.rs`. The process has no other connection to the database.

mod checkpoints;
mod frames;
mod watch;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::Cancel;

use crate::database::{Database, check_same_file};
use crate::error::{IoContext, SqliteError};
use crate::facts::JournalMode;
use crate::key::DatabaseKey;
use crate::lock;
use crate::session::Session;
use crate::shm::WalIndex;
use crate::sides::check_side;
use crate::standing::{FileMark, LogPoint, Standing, booted_nanos, now_nanos};
use crate::view::{beside, read_index};
pub use checkpoints::Held;
pub use frames::Commit;
use frames::LogFrames;
pub use watch::Watch;

/// From so many frames on, the capture copies the log into the file, as SQLite does by default.
const COPIED_FRAMES: u32 = 1000;
/// The salts of a log that nobody has written to.
const NO_SALTS: [u8; 8] = [0; 8];

/// A database whose transactions are captured.
pub struct LogCapture {
    database: Database,
    // The sessions are dropped before the file of the index: closing it would drop their locks.
    pins: [Session; 2],
    /// Which of them holds the pin.
    pinned: usize,
    /// Copies the log into the file.
    copier: Session,
    /// Keeps writers away.
    holder: Session,
    shm: Arc<File>,
    frames: LogFrames,
    index: WalIndex,
    /// The last commit that was given out.
    last: LogPoint,
    held: Held,
    /// Whether writers are kept away just now.
    is_holding: bool,
    /// The log could not be copied up to here: somebody reads it, or too much came meanwhile.
    read_up_to: Option<LogPoint>,
    /// Writers do not wait while more bytes of pages than this are kept.
    rest_bytes_max: u64,
    /// Where an earlier capture ended, as long as nothing behind it was given out. The file may
    /// have changed since.
    before: Option<Standing>,
}

/// What a look found.
#[derive(Debug)]
pub struct Look {
    /// The transactions since the last look, oldest first.
    pub commits: Vec<Commit>,
    /// What the next look finds was not there at this moment: nanoseconds since 1970.
    pub looked_nanos: i64,
    /// All of them were there at this moment.
    pub by_nanos: i64,
    /// The commit that the database stands at.
    pub point: LogPoint,
    /// Whether writers wait for the end of this look.
    pub writers_wait: bool,
    /// Whether a pin was held since the last of the transactions before these.
    is_pinned: bool,
}

impl Look {
    /// Where the database stood before a transaction, if its log was empty then. The file is still
    /// as it was, because a pin with mark 0 was held all the time.
    pub fn empty_before(&self, commit: &Commit) -> Option<LogPoint> {
        commit.empty_before().filter(|_| self.is_pinned)
    }
}

impl LogCapture {
    /// Begins to capture what comes from now on.
    pub fn begin(path: &Path, cancel: &Cancel) -> Result<Self, SqliteError> {
        let database = Database::open(path)?;
        if database.facts().journal_mode != JournalMode::Wal {
            let path = database.path.clone();
            return Err(SqliteError::NoLog { path });
        }
        check_same_file(&database.path, &database.file)?;
        let open = || Session::open(&database.path, &database.file);
        let (mut first, second, copier, holder) = (open()?, open()?, open()?, open()?);
        first.begin(database.lock_wait, cancel)?;
        let shm = first.shm()?;
        let index = index_of(&database, &shm)?;
        Ok(Self {
            last: LogPoint::of(&index),
            frames: LogFrames::open(&database.path)?,
            pins: [first, second],
            pinned: 0,
            copier,
            holder,
            shm,
            index,
            database,
            held: Held::default(),
            is_holding: false,
            read_up_to: None,
            rest_bytes_max: u64::MAX,
            before: None,
        })
    }

    /// How long to wait at most for locks of other processes.
    pub fn set_lock_wait(&mut self, wait: Duration) {
        self.database.set_lock_wait(wait);
    }

    /// Writers do not wait while more bytes of pages than this are kept: the log grows instead.
    pub fn set_rest_max(&mut self, bytes: u64) {
        self.rest_bytes_max = bytes;
    }

    /// Sets the name of the machine, which tells databases of the same path apart.
    pub fn set_host(&mut self, host: &str) {
        self.database.set_host(host);
    }

    /// Which database this is.
    pub fn key(&self) -> DatabaseKey {
        self.database.facts().key()
    }

    /// The database's file, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.database.path
    }

    /// Bytes of a page, and pages of the state that the last look led to.
    pub fn shape(&self) -> (u32, u32) {
        let page_bytes = match self.index.page_bytes {
            0 => self.database.facts().page_bytes,
            bytes => bytes,
        };
        (page_bytes, self.index.page_count)
    }

    /// Where the state stands with which the capture began, or which the last look led to.
    pub fn standing(&self) -> Result<Standing, SqliteError> {
        if let Some(before) = self.before {
            return Ok(before);
        }
        self.standing_at(self.last)
    }

    /// The same, for a point whose log is empty. Under the pin of a look the file is as it was when
    /// the log began again.
    pub fn standing_at(&self, point: LogPoint) -> Result<Standing, SqliteError> {
        let file = FileMark::take(&self.database.file, &self.database.path)?;
        Ok(Standing { point, file })
    }

    /// The commit with which the capture began, or which the last look led to.
    pub fn point(&self) -> LogPoint {
        self.last
    }

    /// Whether it goes on from an earlier capture, and has not looked yet at what came since.
    pub fn is_behind(&self) -> bool {
        self.before.is_some()
    }

    /// Whether a mark of the file that is taken now proves more than this one.
    pub fn proves_more_than(&self, mark: &FileMark) -> Result<bool, SqliteError> {
        mark.proves_less_than(&self.database.file, &self.database.path)
    }

    /// Goes on from a commit that was captured before this capture began. False if something may
    /// have been lost since.
    pub fn go_on_from(&mut self, before: &Standing) -> Result<bool, SqliteError> {
        let now = self.standing()?;
        // A power cut may take back the change time of the file. But if SQLite has removed the log
        // since the last write, that is there, too: a file system keeps the order of the two.
        let is_sure = before.is_since(booted_nanos()) || self.pins[0].made_wal();
        let is_unchanged = is_sure && now.is_same_file_as(before);
        let goes_on = match before.point.salts {
            _ if !now.file.is_same_file(&before.file) => false,
            _ if is_unchanged => true,
            // There was no log yet, and what came later may have come and gone.
            NO_SALTS => false,
            _ => self.frames.have(&before.point, &self.index)?,
        };
        if goes_on {
            self.last = before.point;
            // The same file needs no earlier mark.
            self.before = (!is_unchanged).then_some(*before);
        }
        Ok(goes_on)
    }

    /// Finds the transactions since the last look, and gives them to `keep`, which can read their
    /// pages. Keeps the log from growing.
    pub fn look<E: From<SqliteError>>(
        &mut self,
        cancel: &Cancel,
        mut keep: impl FnMut(&Self, &Look) -> Result<(), E>,
    ) -> Result<(), E> {
        self.move_pin(cancel, &mut keep)?;
        let length = self.index.frame_count;
        if length < COPIED_FRAMES || self.index.backfilled >= length {
            return Ok(());
        }
        let mut is_copied = self.copies_all()?;
        if !is_copied && length >= self.held_from() {
            // What came meanwhile is kept and copied before writers wait for the rest.
            self.move_pin(cancel, &mut keep)?;
            is_copied = self.copies_all()?;
            if !is_copied {
                return self.hold(cancel, &mut keep);
            }
        }
        match is_copied {
            true => self.move_pin(cancel, &mut keep),
            false => Ok(()),
        }
    }

    /// Gives each page of a transaction of a look, with its number.
    pub fn pages<E: From<SqliteError>>(
        &self,
        commit: &Commit,
        page: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.frames.pages(commit, page)
    }

    /// Whether a process waits for the pin: it writes and copies at the same time, as a checkpoint
    /// does that makes the log begin again.
    pub fn is_waited_for(&self) -> Result<bool, SqliteError> {
        let path = beside(&self.database.path, "-shm");
        lock::is_restarting(&self.shm).during("ask for the locks of", &path)
    }

    /// How often writers had to wait.
    pub fn held(&self) -> Held {
        self.held
    }

    /// Ends the capture.
    pub fn end(self) -> Result<(), SqliteError> {
        let Self {
            pins,
            copier,
            holder,
            shm,
            ..
        } = self;
        let [first, second] = pins;
        for session in [holder, copier, second, first] {
            session.close()?;
        }
        drop(shm);
        Ok(())
    }

    /// Begins the next pin, gives out what came since, and ends the last pin.
    fn move_pin<E: From<SqliteError>>(
        &mut self,
        cancel: &Cancel,
        keep: &mut impl FnMut(&Self, &Look) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_files()?;
        self.wait_for_copiers(cancel)?;
        let next = 1 - self.pinned;
        self.pins[next].begin(self.database.lock_wait, cancel)?;
        let looked_nanos = now_nanos();
        let index = index_of(&self.database, &self.shm)?;
        // Going on from an earlier capture, there is more to read than what came under this pin.
        let is_read = self.index.frame_count == 0 || self.last == LogPoint::of(&self.index);
        if !index.same_generation(&self.index) && !is_read {
            return Err(self.frames.lost("began again before it was read").into());
        }
        // Otherwise the last pin keeps the log from beginning again.
        let may_restart = self.index.backfilled >= self.index.frame_count;
        let commits = self.frames.since(&self.last, &index, may_restart)?;
        let look = Look {
            commits,
            looked_nanos,
            by_nanos: now_nanos(),
            point: LogPoint::of(&index),
            writers_wait: self.is_holding,
            is_pinned: self.before.is_none(),
        };
        self.index = index;
        keep(self, &look)?;
        self.pins[self.pinned].end()?;
        self.pinned = next;
        self.last = look.point;
        self.before = None;
        Ok(())
    }

    /// Fails if somebody replaced or removed one of the files.
    fn check_files(&self) -> Result<(), SqliteError> {
        check_same_file(&self.database.path, &self.database.file)?;
        let shm = beside(&self.database.path, "-shm");
        check_side(&shm, &self.shm)?;
        self.frames.check_file()
    }
}

fn index_of(database: &Database, shm: &File) -> Result<WalIndex, SqliteError> {
    let path = beside(&database.path, "-shm");
    read_index(shm, &path)?.ok_or(SqliteError::WalIndex {
        path,
        what: "its header does not come to rest",
    })
}
