//! The scan's later reads: each directory is read again until a read finds nothing new.
//!
//! A file system should name every file that was there during the whole read. Some do not: on
//! network file systems a read may end early without an error, or leave names out. A backup without
//! these files looks as if the server had removed them. So what any read names counts.
//!
//! There is another reason. The walk may have seen the main fork of a new unlogged relation before
//! its `_init` existed. For most relations a later read finds it. A long build ends after all
//! reads: then the survey of the log (`backup/survey.rs`) sees the `_init` being made, and calls
//! for another window.
//!
//! What no read names, `scan/unlisted.rs` looks for.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use windlass_engine::durable;

use super::{Scanner, joined};
use crate::error::{IoContext, PostgresError};

/// How often a directory is read again at most. While sessions create relations, each read finds
/// new ones, and the log has those.
const READS_MAX: u32 = 5;

/// A directory that the walk has listed.
pub(super) struct Listed {
    path: Vec<u8>,
    /// What the first read found, sorted by path.
    entries: Range<usize>,
}

impl Listed {
    pub(super) fn new(path: &[u8], entries: Range<usize>) -> Self {
        let path = path.to_vec();
        Self { path, entries }
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }
}

impl Scanner<'_> {
    /// Reads every directory again, also those that only a later read finds.
    pub(super) fn read_again(&mut self) -> Result<(), PostgresError> {
        while self.read_again < self.listed.len() {
            for _ in 0..READS_MAX {
                if !self.read_once_more(self.read_again)? {
                    break;
                }
            }
            self.walk_pending()?;
            self.read_again += 1;
        }
        Ok(())
    }

    /// Returns true if the read found something new.
    fn read_once_more(&mut self, at: usize) -> Result<bool, PostgresError> {
        let directory = std::mem::take(&mut self.listed[at].path);
        let range = self.listed[at].entries.clone();
        let before = self.listing.len();
        let path = self.path_of(&directory);
        let entries = durable::if_there(std::fs::read_dir(&path)).doing("list", &path)?;
        for entry in entries.into_iter().flatten() {
            let entry = entry.doing("list", &path)?;
            let found = joined(&directory, entry.file_name().as_bytes());
            if self.listing.holds(range.clone(), &found) || self.later.contains(&found) {
                continue;
            }
            let listed = self.listing.len();
            self.list_entry(&directory, entry.file_name().as_bytes(), || {
                entry.metadata()
            })?;
            if self.listing.len() > listed {
                self.later.insert(found);
            }
        }
        self.listed[at].path = directory;
        Ok(self.listing.len() > before)
    }
}
