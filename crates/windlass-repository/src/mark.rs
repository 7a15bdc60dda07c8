//! Up to where a growing object is durable, in a small file beside it. An object that has lost its
//! end must not look like one whose writer was cut off.
//!
//!   START-open.wlog    |header|frame|frame|frame|....torn
//!   START-open.until                            ^ everything before is durable
//!
//! Invariants
//! - It is written after the sync of the object, and not synced itself. After a power cut it may
//!   say less than was durable, and never more.
//! - It goes before its object gets another name. A new object begins without one.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_media::{FormatError, LOG_MARK_BYTES, LogMark};

use crate::error::{FormatContext, IoContext, RepositoryError};
use crate::writer::MODE;

const SUFFIX: &str = "until";
/// How often a mark is read again that is being written just now.
const TRIES_MAX: u32 = 4;

/// The mark of an object that somebody writes.
pub(crate) struct DurableMark {
    path: PathBuf,
    file: Option<File>,
}

impl DurableMark {
    /// That of an object. Nothing is written yet.
    pub(crate) fn of(object: &Path) -> Self {
        Self {
            path: mark_path(object),
            file: None,
        }
    }

    /// Says that everything before a position is durable.
    pub(crate) fn set(&mut self, durable: u64) -> Result<(), RepositoryError> {
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
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.doing("remove", &self.path),
        }
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
    /// It is damaged: nobody knows.
    Damaged,
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
            Ok(Some(mark)) => return Ok(Marked::UpTo(mark.durable)),
            Ok(None) => return Ok(Marked::Nothing),
            // A newer version of Windlass wrote it, and may mean something else.
            Err(error @ (FormatError::Version { .. } | FormatError::Feature { .. })) => {
                return Err(error).of(&path);
            }
            Err(_) => return Ok(Marked::Damaged),
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
