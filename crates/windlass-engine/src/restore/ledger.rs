//! The ledger: it proves that every byte of every file came exactly once.
//!
//! It does not need to remember the ranges. Each range adds `mark(start) - mark(end)` to a sum,
//! where `mark` is a hash with a key of this run. Where one range ends and the next begins, the
//! marks cancel. So for a file that is covered exactly once, the sum is `mark(0) - mark(length)`.
//! Nobody can make a set for which the sum is right by other means, because the key is not known.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use windlass_media::{FileEntry, FileNo, PieceEntry, SupersededFiles, crc32c_zeros_after, fitted};

use crate::error::EngineError;
use crate::mismatch::Mismatch;
use crate::set::{FoundSet, UpperLayers, UpperRange};
use crate::waits::Stage;

/// The bytes of every file of a set that have been seen.
pub(crate) struct Ledger {
    set: windlass_media::SetId,
    files: HashMap<FileNo, Mutex<Account>>,
    upper: UpperLayers,
    superseded: SupersededFiles,
    key: RandomState,
    /// There is no list of files, so nothing can be entered.
    blind: bool,
}

struct Account {
    bytes: u64,
    seen: u64,
    seams: u64,
    crc: u32,
}

impl Ledger {
    pub(super) fn new(set: &FoundSet, upper: UpperLayers) -> Self {
        let files = &set.description().files.0;
        let account = |bytes| {
            Mutex::new(Account {
                bytes,
                seen: 0,
                seams: 0,
                crc: 0,
            })
        };
        Self {
            set: set.set_id(),
            files: files
                .iter()
                .map(|file| (file.file, account(file.bytes)))
                .collect(),
            upper,
            superseded: set.description().superseded.clone(),
            key: RandomState::new(),
            blind: !set.is_described(),
        }
    }

    /// Enters a piece. Returns the ranges of it that count, relative to its start. What a higher
    /// layer replaces does not count, nor what lies beyond the end of a file that shrank while it
    /// was copied. If an index block must be read for that, `stage` waits.
    pub(crate) fn enter(
        &self,
        piece: &PieceEntry,
        stage: &Stage,
    ) -> Result<Vec<(usize, usize)>, EngineError> {
        if self.blind {
            return Ok(vec![(0, piece.bytes as usize)]);
        }
        let Some(account) = self.files.get(&piece.file) else {
            if self.superseded.contains(piece.file) {
                return Ok(Vec::new());
            }
            let (file, offset) = (piece.file, piece.offset);
            return Err(self.incomplete(Mismatch::PieceOfNone { file, offset }));
        };
        let lock = || account.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = lock().bytes;
        // The account is free while this reads.
        let visible = self.visible(piece, bytes, Some(stage))?;
        let mut account = lock();
        if !self.upper.has(piece.file) {
            let end = piece.offset.saturating_add(u64::from(piece.bytes));
            let after = account.bytes.checked_sub(end);
            let after = after.ok_or_else(|| {
                let (file, offset) = (piece.file, piece.offset);
                self.incomplete(Mismatch::PieceBeyond { file, offset })
            })?;
            account.crc ^= crc32c_zeros_after(piece.crc32c, after);
        }
        for (from, to) in &visible {
            account.seen = account.seen.saturating_add(to - from);
            account.seams = account.seams.wrapping_add(self.seams(*from, *to));
        }
        let relative = |at: u64| fitted(at - piece.offset);
        Ok(visible
            .into_iter()
            .map(|(from, to)| (relative(from), relative(to)))
            .collect())
    }

    /// The ranges of a piece that count, as offsets in its file. Does not enter the piece.
    pub(crate) fn counts(&self, piece: &PieceEntry) -> Result<Vec<(u64, u64)>, EngineError> {
        let end = piece.offset.saturating_add(u64::from(piece.bytes));
        if self.blind {
            return Ok(vec![(piece.offset, end)]);
        }
        let account = self.files.get(&piece.file);
        let bytes = account.map(|account| {
            let account = account.lock().unwrap_or_else(PoisonError::into_inner);
            account.bytes
        });
        self.visible(piece, bytes.unwrap_or(0), None)
    }

    fn visible(
        &self,
        piece: &PieceEntry,
        file_bytes: u64,
        stage: Option<&Stage>,
    ) -> Result<Vec<(u64, u64)>, EngineError> {
        let end = piece.offset.saturating_add(u64::from(piece.bytes));
        let end = end.min(file_bytes);
        let upper = self.upper.near_in(piece.file, (piece.offset, end), stage)?;
        Ok(visible(&upper, piece, end))
    }

    fn seams(&self, from: u64, to: u64) -> u64 {
        self.key.hash_one(from).wrapping_sub(self.key.hash_one(to))
    }

    /// How many bytes of a file have not been seen.
    pub(crate) fn missing(&self, file: &FileEntry) -> u64 {
        let account = self.files.get(&file.file);
        account.map_or(0, |account| {
            let account = account.lock().unwrap_or_else(PoisonError::into_inner);
            account.bytes.saturating_sub(account.seen)
        })
    }

    /// Checks that every file has all its bytes, and the CRC that its entry states.
    pub(super) fn check(&self, set: &FoundSet) -> Result<(), EngineError> {
        let files = &set.description().files.0;
        files.iter().try_for_each(|file| self.check_file(file))
    }

    /// Checks that a file has all its bytes, and the CRC that its entry states.
    pub(crate) fn check_file(&self, file: &FileEntry) -> Result<(), EngineError> {
        let Some(account) = self.files.get(&file.file) else {
            return Ok(());
        };
        let account = account.lock().unwrap_or_else(PoisonError::into_inner);
        let path = || file.path_lossy();
        let layered = self.upper.has(file.file);
        let what = if account.seen != account.bytes {
            Mismatch::FileBytes {
                path: path(),
                found_bytes: account.seen,
                file_bytes: account.bytes,
            }
        } else if account.seams != self.seams(0, account.bytes) {
            Mismatch::FileTwice { path: path() }
        } else if file.flags.crc_known && !layered && account.crc != file.crc32c {
            Mismatch::FileChecksum {
                path: path(),
                found: account.crc,
                expected: file.crc32c,
            }
        } else {
            return Ok(());
        };
        Err(self.incomplete(what))
    }

    fn incomplete(&self, what: Mismatch) -> EngineError {
        EngineError::Incomplete {
            set: self.set,
            what,
        }
    }
}

/// The ranges of a piece, up to `end`, that no higher layer replaces. `upper` has the ranges near
/// it in order.
fn visible(upper: &[UpperRange], piece: &PieceEntry, end: u64) -> Vec<(u64, u64)> {
    let mut visible = Vec::new();
    let mut position = piece.offset;
    for range in upper.iter().filter(|range| range.layer > piece.layer) {
        if range.start > position {
            visible.push((position, range.start));
        }
        position = position.max(range.end);
    }
    if position < end {
        visible.push((position, end));
    }
    visible
}
