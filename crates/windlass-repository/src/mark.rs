//! Up to where a growing object is durable, in a small file beside it. An object that has lost its
//! end must not look like one whose writer was cut off.
//!
//!   START-open.wlog    |header|frame|frame|frame|....torn
//!   START-open.until                            ^ everything before is durable
//!
//! Invariants
//! - It is written after the sync of the object, and not synced itself. After a power cut it may
//!   say less than was durable, and never more.
//! - What was durable and is lost stays in it until that has come again: it is synced then, before
//!   the object is cut.
//! - It goes before its object gets another name. A new object begins without one.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_engine::durable;
use windlass_media::{FormatError, LOG_MARK_BYTES, LOG_MARK_UNKNOWN, LogContent, LogMark};

use crate::error::{FormatContext, IoContext, LostEnd, RepositoryError};
use crate::writer::MODE;

const SUFFIX: &str = "until";
/// How often a mark is read again that is being written just now.
const TRIES_MAX: u32 = 4;

/// The mark of an object that somebody writes.
pub(crate) struct DurableMark {
    path: PathBuf,
    file: Option<File>,
    owed: Option<Owed>,
}

/// Log that was durable, is lost, and has not come again.
#[derive(Clone, Copy)]
pub(crate) struct Owed {
    /// Where it ends, if somebody knows.
    up_to: Option<u64>,
    /// Where it ends at the latest, if somebody knows.
    most: Option<u64>,
    /// Whether it has come again when the object is durable up to there. The records of a SQLite
    /// database come again at other positions.
    by_position: bool,
}

impl Owed {
    /// What an object has lost.
    pub(crate) fn of(lost: &LostEnd, content: &LogContent) -> Self {
        Self {
            up_to: lost.durable.map(|durable| durable.0),
            most: lost.limit().map(|limit| limit.0),
            by_position: *content != LogContent::Commits,
        }
    }

    /// What a mark says of an object that is durable up to a position, as long as not all of this
    /// has come again.
    fn said(self, durable: u64) -> Option<u64> {
        let has_come = self.by_position && self.most.is_some_and(|most| most <= durable);
        let known = self.up_to.filter(|up_to| *up_to > durable);
        (!has_come).then(|| known.unwrap_or(LOG_MARK_UNKNOWN))
    }
}

impl DurableMark {
    /// That of an object. Nothing is written yet.
    pub(crate) fn of(object: &Path) -> Self {
        Self {
            path: mark_path(object),
            file: None,
            owed: None,
        }
    }

    /// Says durably what is lost. It goes on to say so until that has come again.
    pub(crate) fn owe(&mut self, owed: Owed) -> Result<(), RepositoryError> {
        self.write(owed.up_to.unwrap_or(LOG_MARK_UNKNOWN))?;
        if let Some(file) = &self.file {
            file.sync_all().doing("sync", &self.path)?;
        }
        durable::sync_parent(&self.path).doing("sync the directory of", &self.path)?;
        self.owed = Some(owed);
        Ok(())
    }

    /// Nothing behind this position was ever durable, so what is lost ends before it.
    pub(crate) fn bound(&mut self, at: u64) {
        if let Some(owed) = self.owed.as_mut().filter(|owed| owed.up_to.is_none()) {
            owed.most = Some(owed.most.map_or(at, |most| most.min(at)));
        }
    }

    /// What has not come again of an object that ends there.
    pub(crate) fn owed_behind(&self, end: u64) -> Option<Owed> {
        self.owed.filter(|owed| owed.said(end).is_some())
    }

    /// Takes what has not come again for gone. True if there was something.
    pub(crate) fn admit(&mut self) -> bool {
        self.owed.take().is_some()
    }

    /// Says that everything before a position is durable, or up to where it was.
    pub(crate) fn set(&mut self, durable: u64) -> Result<(), RepositoryError> {
        let said = self.owed.and_then(|owed| owed.said(durable));
        if said.is_none() {
            self.owed = None;
        }
        self.write(said.unwrap_or(durable))
    }

    fn write(&mut self, durable: u64) -> Result<(), RepositoryError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                let options = options.read(true).write(true).create(true).mode(MODE);
                windlass_engine::open_own(&self.path, options).doing("open", &self.path)?
            }
        };
        let bytes = LogMark { durable }.encode();
        file.write_all_at(&bytes, 0).doing("write", &self.path)?;
        self.file = Some(file);
        Ok(())
    }

    /// Removes it.
    pub(crate) fn remove(&mut self) -> Result<(), RepositoryError> {
        self.file = None;
        let removed = durable::if_there(std::fs::remove_file(&self.path));
        removed.map(|_| ()).doing("remove", &self.path)
    }
}

fn mark_path(object: &Path) -> PathBuf {
    object.with_extension(SUFFIX)
}

/// What the mark of a growing object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// There is none, or a power cut left an empty one.
    Nothing,
    /// Everything before this position was durable.
    UpTo(u64),
    /// Nobody knows: it says so, or is damaged.
    Unknown,
}

impl Marked {
    /// Whether there is one.
    pub(crate) fn is_there(self) -> bool {
        self != Self::Nothing
    }
}

/// Reads the mark of a growing object.
pub(crate) fn read(object: &Path) -> Result<Marked, RepositoryError> {
    let path = mark_path(object);
    let mut tries = 1;
    loop {
        match LogMark::decode(&bytes_of(&path)?) {
            Err(FormatError::Checksum { .. }) if tries < TRIES_MAX => tries += 1,
            Ok(Some(mark)) if mark.durable == LOG_MARK_UNKNOWN => return Ok(Marked::Unknown),
            Ok(Some(mark)) => return Ok(Marked::UpTo(mark.durable)),
            Ok(None) => return Ok(Marked::Nothing),
            // A newer version of Windlass wrote it, and may mean something else.
            Err(error @ (FormatError::Version { .. } | FormatError::Feature { .. })) => {
                return Err(error).of(&path);
            }
            Err(_) => return Ok(Marked::Unknown),
        }
    }
}

/// The bytes of a mark, and one more if the file has more. None if there is no file.
fn bytes_of(path: &Path) -> Result<Vec<u8>, RepositoryError> {
    let file = match windlass_engine::open_regular(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.doing("open", path)?,
    };
    let mut bytes = vec![0; LOG_MARK_BYTES + 1];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).doing("read", path),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
