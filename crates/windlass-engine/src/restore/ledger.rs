//! The ledger: which bytes of which file have come, and what they add up to.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use windlass_media::{FileNo, PieceEntry, crc32c_zeros_after};

use crate::error::EngineError;
use crate::set::OpenSet;

/// Bytes seen of every file of a set.
pub(super) struct Ledger {
    set: windlass_media::SetId,
    files: HashMap<FileNo, Mutex<Account>>,
    /// Pieces above layer 0: (start, end, layer), sorted.
    upper: BTreeMap<FileNo, Vec<(u64, u64, u8)>>,
}

struct Account {
    bytes: u64,
    seen: u64,
    crc: u32,
}

impl Ledger {
    pub(super) fn new(set: &OpenSet) -> Result<Self, EngineError> {
        let files = &set.description().files.0;
        let account = |bytes| {
            Mutex::new(Account {
                bytes,
                seen: 0,
                crc: 0,
            })
        };
        Ok(Self {
            set: set.set_id(),
            files: files
                .iter()
                .map(|file| (file.file, account(file.bytes)))
                .collect(),
            upper: set.upper_layers()?,
        })
    }

    /// Enters a piece; gives the ranges of it that count, relative to its start: all of it, less
    /// what a higher layer replaces.
    pub(super) fn enter(&self, piece: &PieceEntry) -> Result<Vec<(usize, usize)>, EngineError> {
        let account = self.files.get(&piece.file);
        let account =
            account.ok_or_else(|| self.fault(piece, "is of a file the set does not list"))?;
        let ranges = self.visible(piece);
        let mut account = account.lock().unwrap_or_else(PoisonError::into_inner);
        let end = piece.offset.saturating_add(u64::from(piece.bytes));
        if end > account.bytes {
            // A file that shrank while it was copied: what lies beyond its final end is void.
            if self.upper.is_empty() {
                return Err(self.fault(piece, "ends beyond its file"));
            }
            return Ok(Vec::new());
        }
        let seen: usize = ranges.iter().map(|(start, end)| end - start).sum();
        account.seen += seen as u64;
        account.crc ^= crc32c_zeros_after(piece.crc32c, account.bytes - end);
        Ok(ranges)
    }

    fn visible(&self, piece: &PieceEntry) -> Vec<(usize, usize)> {
        let length = piece.bytes as usize;
        let Some(upper) = self.upper.get(&piece.file) else {
            return vec![(0, length)];
        };
        let (start, end) = (piece.offset, piece.offset + u64::from(piece.bytes));
        let over = upper
            .iter()
            .filter(|(from, to, layer)| *layer > piece.layer && *from < end && *to > start);
        let mut visible = Vec::new();
        let mut position = start;
        for (from, to, _) in over {
            if *from > position {
                visible.push((position, *from));
            }
            position = position.max(*to);
        }
        if position < end {
            visible.push((position, end));
        }
        let relative = |at: u64| usize::try_from(at - start).unwrap_or(length).min(length);
        visible
            .into_iter()
            .map(|(from, to)| (relative(from), relative(to)))
            .collect()
    }

    /// True when every file has all its bytes, and the CRC its entry states.
    pub(super) fn check(&self, set: &OpenSet) -> Result<(), EngineError> {
        for file in &set.description().files.0 {
            let Some(account) = self.files.get(&file.file) else {
                continue;
            };
            let account = account.lock().unwrap_or_else(PoisonError::into_inner);
            let wrong = |what: String| {
                Err(EngineError::Incomplete {
                    set: self.set,
                    what: format!("file {}: {what}", file.path_lossy()),
                })
            };
            if account.seen != account.bytes {
                return wrong(format!(
                    "{} of {} bytes are there",
                    account.seen, account.bytes
                ));
            }
            let layered = self.upper.contains_key(&file.file);
            if file.flags.crc_known && !layered && account.crc != file.crc32c {
                return wrong(format!(
                    "checksum is {:08x}, not {:08x}",
                    account.crc, file.crc32c
                ));
            }
        }
        Ok(())
    }

    fn fault(&self, piece: &PieceEntry, what: &str) -> EngineError {
        let what = format!("piece at {} of file {} {what}", piece.offset, piece.file);
        EngineError::Incomplete {
            set: self.set,
            what,
        }
    }
}
