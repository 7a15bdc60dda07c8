//! The frames of a log that grows: which transactions there are behind a commit, and their pages.

use std::fs::File;
use std::path::{Path, PathBuf};

use windlass_engine::open_regular;

use crate::error::{IoContext, SqliteError};
use crate::shm::WalIndex;
use crate::sides::check_side;
use crate::standing::LogPoint;
use crate::view::beside;
use crate::wal::{
    Checksum, FRAME_HEADER_BYTES, Frame, ReadAt, WAL_HEADER_BYTES, WalHeader, check_frame,
};

/// Bytes of the log that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// A transaction in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its last frame.
    pub point: LogPoint,
    /// How many frames it has.
    pub count: u32,
    /// Pages of the database after it.
    pub page_count: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The checksum before its first frame.
    before: Checksum,
}

impl Commit {
    /// If it is the first of its log: where the database stood before it, with an empty log.
    pub(super) fn empty_before(&self) -> Option<LogPoint> {
        (self.count == self.point.frame).then_some(LogPoint {
            salts: self.point.salts,
            frame: 0,
            sums: [0; 2],
        })
    }
}

/// The file of a log.
pub(super) struct LogFrames {
    path: PathBuf,
    wal: File,
}

impl LogFrames {
    /// That of a database. A transaction has begun, so the log exists.
    pub(super) fn open(database: &Path) -> Result<Self, SqliteError> {
        let path = beside(database, "-wal");
        let wal = open_regular(&path).during("open", &path)?;
        Ok(Self { path, wal })
    }

    /// Fails if somebody removed or replaced it.
    pub(super) fn check_file(&self) -> Result<(), SqliteError> {
        check_side(&self.path, &self.wal)
    }

    /// Whether the log still has this commit, and goes on from there to what the index tells of.
    pub(super) fn have(&self, point: &LogPoint, index: &WalIndex) -> Result<bool, SqliteError> {
        if point.salts != index.salts || point.frame > index.frame_count {
            return Ok(false);
        }
        match self.since(point, index, false) {
            Ok(_) => Ok(true),
            Err(SqliteError::LogLost { .. } | SqliteError::WalDamaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The transactions behind a commit, up to the one that the index tells of. `may_restart` says
    /// that the log could begin again since without a loss.
    pub(super) fn since(
        &self,
        last: &LogPoint,
        index: &WalIndex,
        may_restart: bool,
    ) -> Result<Vec<Commit>, SqliteError> {
        let now = LogPoint::of(index);
        self.check_goes_on(last, &now, may_restart)?;
        if now == *last || now.frame == 0 {
            return Ok(Vec::new());
        }
        let header = self.header(&now)?;
        let (from, sums) = match last.salts == now.salts && last.frame > 0 {
            true => (last.frame, header.checksum.with_sums(last.sums)),
            false => (0, header.checksum),
        };
        let mut commits = Vec::new();
        let mut open = (from, sums);
        let mut checksum = sums;
        self.frames(
            (from, now.frame),
            &header,
            &mut checksum,
            |number, frame, _| {
                if frame.commit_pages != 0 {
                    commits.push(Commit {
                        point: LogPoint {
                            salts: now.salts,
                            frame: number,
                            sums: frame.checksum.sums,
                        },
                        count: number - open.0,
                        page_count: frame.commit_pages,
                        page_bytes: header.page_bytes,
                        before: open.1,
                    });
                    open = (number, frame.checksum);
                }
                Ok::<_, SqliteError>(())
            },
        )?;
        match commits.last().map(|last| last.point) == Some(now) {
            true => Ok(commits),
            false => Err(self.lost("does not lead to the commit that its index tells of")),
        }
    }

    /// Gives each page of a transaction.
    pub(super) fn pages<E: From<SqliteError>>(
        &self,
        commit: &Commit,
        mut page: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let header = self.header(&commit.point)?;
        let (to, mut checksum) = (commit.point.frame, commit.before);
        self.frames(
            (to - commit.count, to),
            &header,
            &mut checksum,
            |_, frame, bytes| page(frame.page, bytes),
        )
    }

    /// Fails if what came behind `last` may have been lost. The salts of a log that began again
    /// prove nothing: mostly the first is one more, but a connection that did not empty the log
    /// itself draws both anew (`walWriteFrames`). The pin proves it.
    fn check_goes_on(
        &self,
        last: &LogPoint,
        now: &LogPoint,
        may_restart: bool,
    ) -> Result<(), SqliteError> {
        if last.salts != now.salts {
            return match may_restart {
                true => Ok(()),
                false => Err(self.lost("is another one")),
            };
        }
        match last.frame > now.frame || last.frame == now.frame && last != now {
            true => Err(self.lost("has other transactions than those that were captured")),
            false => Ok(()),
        }
    }

    fn header(&self, point: &LogPoint) -> Result<WalHeader, SqliteError> {
        let mut bytes = [0; WAL_HEADER_BYTES];
        let found = self.wal.read_full_at(&mut bytes, 0);
        let found = found.during("read", &self.path)?;
        let header = WalHeader::decode(&bytes[..found]);
        let header = header.filter(|header| header.salts == point.salts);
        header.ok_or_else(|| self.lost("is of another generation than its index"))
    }

    /// Gives the frames behind `from` up to `to`, each checked, with its number and its page.
    fn frames<E: From<SqliteError>>(
        &self,
        (from, to): (u32, u32),
        header: &WalHeader,
        checksum: &mut Checksum,
        mut give: impl FnMut(u32, &Frame, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let frame_bytes = header.frame_bytes();
        let mut buffer = vec![0; (READ_BYTES / frame_bytes).max(1) * frame_bytes];
        let mut number = from;
        while number < to {
            let offset = WAL_HEADER_BYTES as u64 + u64::from(number) * frame_bytes as u64;
            let found = self.wal.read_full_at(&mut buffer, offset);
            let found = found.during("read", &self.path)?;
            let mut left = (to - number) as usize;
            for bytes in buffer[..found].chunks_exact(frame_bytes).take(left) {
                let Some(frame) = check_frame(header, *checksum, bytes) else {
                    return Err(self.damaged(number + 1).into());
                };
                (*checksum, number, left) = (frame.checksum, number + 1, left - 1);
                give(number, &frame, &bytes[FRAME_HEADER_BYTES..])?;
            }
            if left > 0 && found < buffer.len() {
                return Err(self.damaged(number + 1).into());
            }
        }
        Ok(())
    }

    fn damaged(&self, frame: u32) -> SqliteError {
        SqliteError::WalDamaged {
            path: self.path.clone(),
            frame,
            what: "has a wrong checksum, though it is committed",
        }
    }

    pub(super) fn lost(&self, what: &'static str) -> SqliteError {
        SqliteError::LogLost {
            path: self.path.clone(),
            what,
        }
    }
}
