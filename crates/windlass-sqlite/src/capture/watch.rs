//! Whether anybody but SQLite wrote to the file of a database while its log was captured.
//!
//!   look:  index -- file -- index  ....  index -- file -- index  :look
//!            \___________ was anything copied? ____________/
//!
//! While a pin is held, SQLite writes to the file only to copy the log into it. Before that it says
//! in the index how far it will copy, and after that how far it has copied (`walCheckpoint`). So
//! if the file has changed and the index says that nothing was copied, somebody else wrote to it.
//!
//! It does not notice what somebody else writes between two looks in which SQLite copies, too.
//! SQLite forbids such writes while anybody has the database open. There are looks around whatever
//! moves the pin and copies: as long as one pin is held, a log that begins again copied nothing.
//!
//! Invariant: where one number stands twice in a log, nobody else was seen to write in between.
//! A number is given to a mark of the file only if nobody did between the looks around it.

use std::fs::Metadata;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;

use super::{LogCapture, index_of};
use crate::error::{IoContext, SqliteError};
use crate::lock;
use crate::shm::{WAL_INDEX_BYTES, WalIndex};
use crate::standing::{LogPoint, Standing, booted_nanos};
use crate::view::beside;
use crate::wal::ReadAt;

/// A watch over the file of a captured database.
#[derive(Debug, Default)]
pub struct Watch {
    number: Option<u64>,
    seen: Option<Seen>,
}

/// What a look saw.
#[derive(Debug)]
struct Seen {
    copied: Copied,
    file: FileLook,
    /// Somebody was inside a checkpoint, and may have written since.
    is_copying: bool,
}

/// How far the log was copied into the file, as its index says.
#[derive(Debug, PartialEq, Eq)]
struct Copied {
    salts: [u8; 8],
    backfilled: u32,
    attempted: u32,
}

/// What shows a write to a file.
#[derive(Debug, PartialEq, Eq)]
struct FileLook {
    inode: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl FileLook {
    fn of(found: &Metadata) -> Self {
        Self {
            inode: (found.dev(), found.ino()),
            bytes: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl Watch {
    /// Goes on with the watch of a capture that ended there, if nobody wrote to the file since.
    pub fn go_on(
        &mut self,
        capture: &LogCapture,
        end: &Standing,
        number: Option<u64>,
    ) -> Result<(), SqliteError> {
        let is_seen = self.is_kept(capture, may_have_copied)?;
        let now = capture.standing_at(end.point)?;
        let is_proven = end.is_since(booted_nanos()) && now.proves_unchanged_since(end);
        let is_kept = is_seen && is_proven;
        self.number = number.filter(|_| is_kept);
        Ok(())
    }

    /// The number of the watch, if there is one.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Looks at the file. The watch ends if somebody wrote to it.
    pub fn look(&mut self, capture: &LogCapture) -> Result<(), SqliteError> {
        if !self.is_kept(capture, may_have_copied)? {
            self.number = None;
        }
        Ok(())
    }

    /// The same, if the pin was not moved since the last look.
    pub fn look_under_pin(&mut self, capture: &LogCapture) -> Result<(), SqliteError> {
        if !self.is_kept(capture, has_copied_under_pin)? {
            self.number = None;
        }
        Ok(())
    }

    /// Where a state stands, with the number of the watch. If there is none, a new one begins.
    pub fn standing_at(
        &mut self,
        capture: &LogCapture,
        point: LogPoint,
    ) -> Result<(Standing, Option<u64>), SqliteError> {
        self.look(capture)?;
        let number = self
            .number
            .unwrap_or_else(|| RandomState::new().hash_one(()));
        let standing = capture.standing_at(point)?;
        // Nobody watches over a file of which nothing was seen before.
        self.number = self.seen.is_some().then_some(number);
        self.look(capture)?;
        Ok((standing, self.number))
    }

    /// Whether nobody but SQLite can be seen to have written to the file since the last look.
    /// `has_copied` says whether it may have written, by what its index said then and says now. If
    /// a writer left the index half-written, nobody knows; the next reader mends it.
    fn is_kept(
        &mut self,
        capture: &LogCapture,
        has_copied: impl Fn(&Copied, &Copied) -> bool,
    ) -> Result<bool, SqliteError> {
        let (seen, now) = match capture.seen() {
            Err(SqliteError::WalIndex { .. }) => {
                self.seen = None;
                return Ok(false);
            }
            found => found?,
        };
        let is_kept = self.seen.as_ref().is_none_or(|before| {
            before.file == seen.file || before.is_copying || has_copied(&before.copied, &now)
        });
        self.seen = Some(seen);
        Ok(is_kept)
    }
}

/// Whether SQLite may have copied something in between.
fn may_have_copied(before: &Copied, now: &Copied) -> bool {
    before != now
}

/// The same, if one pin was held all the time. If the log began again, the pin holds mark 0, and
/// then nothing is copied.
fn has_copied_under_pin(before: &Copied, now: &Copied) -> bool {
    before.salts == now.salts && before != now
}

impl LogCapture {
    /// What there is to see, and how far the log was copied behind that.
    fn seen(&self) -> Result<(Seen, Copied), SqliteError> {
        let copied = self.copied()?;
        let is_copying = copied.attempted > copied.backfilled && self.is_copied_by_another()?;
        let found = self.database.file.metadata();
        let file = FileLook::of(&found.during("inspect", &self.database.path)?);
        let seen = Seen {
            copied,
            file,
            is_copying,
        };
        Ok((seen, self.copied()?))
    }

    /// How far the log was copied.
    fn copied(&self) -> Result<Copied, SqliteError> {
        let path = beside(&self.database.path, "-shm");
        let index = index_of(&self.database, &self.shm)?;
        let mut bytes = [0; WAL_INDEX_BYTES];
        let found = self.shm.read_full_at(&mut bytes, 0);
        let found = found.during("read", &path)?;
        let attempted = WalIndex::attempted(&bytes[..found]);
        let attempted = attempted.ok_or(SqliteError::WalIndex {
            path,
            what: "its header does not come to rest",
        })?;
        Ok(Copied {
            salts: index.salts,
            backfilled: index.backfilled,
            attempted,
        })
    }

    /// Whether another process is inside a checkpoint.
    fn is_copied_by_another(&self) -> Result<bool, SqliteError> {
        let path = beside(&self.database.path, "-shm");
        lock::is_copying(&self.shm).during("ask for the locks of", &path)
    }
}
