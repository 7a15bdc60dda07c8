//! The journal of what the server changes while a snapshot is being made, as its controller has it.
//!
//! Locking: only the controller that makes a snapshot has one. The next controller removes that of
//! one that was killed.

use std::collections::HashSet;

use windlass_image::layout::hook::{
    FileKey, JOURNAL_ENTRY_WORDS, Noted, begin_journal, end_journal, grace, journal_extent,
    read_journal,
};

use super::control::Patience;
use super::error::HookError;
use super::locked::{Extent, Locked};
use super::remove::waited;

/// So many changes are noted: 4 MiB. If there are more, everything is looked at again.
const ENTRIES: u32 = 32 * 1024;

/// A journal that is being written.
pub(crate) struct Journal<'a, 'l> {
    locked: &'l Locked<'a>,
}

/// What has changed since the journal was begun.
#[derive(Default)]
pub(crate) struct Changes {
    /// These files have another length.
    pub(crate) files: HashSet<FileKey>,
    /// These paths, as the server names them, came, went, or lead to another file.
    pub(crate) paths: HashSet<Vec<u8>>,
}

impl<'a, 'l> Journal<'a, 'l> {
    /// Begins one. Everything that changes after this is noted.
    pub(crate) fn begin(locked: &'l Locked<'a>) -> Result<Self, HookError> {
        let words = u64::from(ENTRIES) * JOURNAL_ENTRY_WORDS as u64;
        let extent = locked.allocate(words, &[])?;
        begin_journal(locked.memory(), extent.at, ENTRIES);
        let journal = Self { locked };
        waited(grace(locked.memory(), &mut Patience::default()))?;
        Ok(journal)
    }

    /// What has changed; `None` if not all of it is known. The server must be paused.
    pub(crate) fn read(&self) -> Option<Changes> {
        let mut changes = Changes::default();
        let is_whole = read_journal(self.locked.memory(), |noted| match noted {
            Noted::File(key) => {
                changes.files.insert(key);
            }
            Noted::Path(bytes, length) => {
                changes.paths.insert(bytes[..length].to_vec());
            }
        });
        is_whole.then_some(changes)
    }
}

impl Drop for Journal<'_, '_> {
    fn drop(&mut self) {
        // What cannot be ended now, the next controller ends.
        finish(self.locked).unwrap_or_default();
    }
}

/// Ends the journal, if there is one, and frees its memory.
pub(crate) fn finish(locked: &Locked<'_>) -> Result<(), HookError> {
    let memory = locked.memory();
    let Some((at, words)) = journal_extent(memory) else {
        return Ok(());
    };
    end_journal(memory);
    if let Err(busy) = waited(grace(memory, &mut Patience::default())) {
        // Somebody may still write there.
        let entries = words / JOURNAL_ENTRY_WORDS as u64;
        begin_journal(
            memory,
            at,
            u32::try_from(entries).map_err(|_| HookError::TooLarge)?,
        );
        return Err(busy);
    }
    locked.free(Extent { at, words })
}
