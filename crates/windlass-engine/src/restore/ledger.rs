//! The ledger: it proves that every byte of every file came exactly once.
//!
//!   piece of a set --its file in the newest set--> ranges that nothing newer holds --> account
//!
//! It does not need to remember the ranges. Each range adds `mark(start) - mark(end)` to a sum,
//! where `mark` is a hash with a key of this run. Where one range ends and the next begins, the
//! marks cancel. So for a file that is covered exactly once, the sum is `mark(0) - mark(length)`.
//! Nobody can make a set for which the sum is right by other means, because the key is not known.
//!
//! A chain has one ledger. A byte is entered when it comes from the newest set that has it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_media::{
    FileEntry, FileNo, PieceEntry, SetId, SupersededFiles, crc32c_zeros_after, fitted,
};

use crate::error::EngineError;
use crate::mismatch::Mismatch;
use crate::set::{FoundSet, Lineage, UpperLayers};
use crate::waits::Stage;

/// The bytes of every file of the newest set that have been seen.
pub(crate) struct Ledger {
    links: Vec<Link>,
    lineage: Arc<Lineage>,
    accounts: HashMap<FileNo, Mutex<Account>>,
    key: RandomState,
    /// There is no list of files, so nothing can be entered.
    blind: bool,
}

/// A set of the chain.
struct Link {
    set: SetId,
    /// How long its files are.
    lengths: HashMap<FileNo, u64>,
    upper: UpperLayers,
    superseded: SupersededFiles,
    blind: bool,
}

struct Account {
    bytes: u64,
    seen: u64,
    seams: u64,
    crc: u32,
}

/// The ledger, for pieces of one set of the chain.
#[derive(Clone, Copy)]
pub(crate) struct LinkLedger<'a> {
    ledger: &'a Ledger,
    link: usize,
}

/// A piece, as a part of a file of the newest set.
struct Heir {
    file: FileNo,
    /// Where bytes of this link stop to count.
    end: u64,
}

impl Ledger {
    /// A ledger of a set and those that it builds on. `upper` has one entry for each of these.
    pub(super) fn new(set: &FoundSet, upper: Vec<UpperLayers>) -> Self {
        let link = |(set, upper): (&FoundSet, UpperLayers)| {
            let files = &set.description().files.0;
            Link {
                set: set.set_id(),
                lengths: files.iter().map(|file| (file.file, file.bytes)).collect(),
                upper,
                superseded: set.description().superseded.clone(),
                blind: !set.is_described(),
            }
        };
        let links: Vec<_> = set.links().zip(upper).map(link).collect();
        let account = |bytes| {
            Mutex::new(Account {
                bytes,
                seen: 0,
                seams: 0,
                crc: 0,
            })
        };
        let files = set.description().files.0.iter();
        Self {
            lineage: Arc::clone(set.lineage()),
            accounts: files.map(|file| (file.file, account(file.bytes))).collect(),
            key: RandomState::new(),
            blind: links.iter().any(|link| link.blind),
            links,
        }
    }

    /// The ledger for the pieces of this set: 0 is the newest, 1 its base.
    pub(crate) fn of_link(&self, link: usize) -> LinkLedger<'_> {
        LinkLedger { ledger: self, link }
    }

    /// The ranges of a piece, up to `end`, that neither a higher layer of its own set nor any newer
    /// set replaces.
    fn visible(
        &self,
        (link, heir): (usize, &Heir),
        piece: &PieceEntry,
        stage: Option<&Stage>,
    ) -> Result<Vec<(u64, u64)>, EngineError> {
        let end = piece.offset.saturating_add(u64::from(piece.bytes));
        let around = (piece.offset, end.min(heir.end));
        let own = self.links[link].upper.near_in(piece.file, around, stage)?;
        let own = own.iter().filter(|range| range.layer > piece.layer);
        let mut over: Vec<_> = own.map(|range| (range.start, range.end)).collect();
        for newer in 0..link {
            if let Some(file) = self.file_in(newer, heir.file) {
                let ranges = self.links[newer].upper.near_in(file, around, stage)?;
                over.extend(ranges.iter().map(|range| (range.start, range.end)));
            }
        }
        over.sort_unstable();
        Ok(rest(&over, around))
    }

    /// The file of a link that lies under a file of the newest set, or is it.
    fn file_in(&self, link: usize, file: FileNo) -> Option<FileNo> {
        match link.checked_sub(1) {
            None => Some(file),
            Some(older) => Some(self.lineage.ancestors(file).get(older)?.file),
        }
    }

    /// The file of the newest set to which bytes of a link's file go; `None` if they go nowhere.
    fn heir(&self, link: usize, file: FileNo) -> Option<Heir> {
        let (heir, limit) = self.lineage.heir(link, file)?;
        let account = self.accounts.get(&heir)?;
        let bytes = account.lock().unwrap_or_else(PoisonError::into_inner).bytes;
        Some(Heir {
            file: heir,
            end: bytes.min(limit),
        })
    }

    /// Whether bytes of a file of the newest set may have come in parts, so that its entry has no
    /// checksum.
    fn is_layered(&self, file: FileNo) -> bool {
        self.links.first().is_some_and(|link| link.upper.has(file))
            || !self.lineage.ancestors(file).is_empty()
    }

    fn seams(&self, from: u64, to: u64) -> u64 {
        self.key.hash_one(from).wrapping_sub(self.key.hash_one(to))
    }

    /// How many bytes of a file have not been seen.
    pub(crate) fn missing(&self, file: &FileEntry) -> u64 {
        let account = self.accounts.get(&file.file);
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
        let Some(account) = self.accounts.get(&file.file) else {
            return Ok(());
        };
        let account = account.lock().unwrap_or_else(PoisonError::into_inner);
        let path = || file.path_lossy();
        let layered = self.is_layered(file.file);
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
        Err(self.of_link(0).incomplete(what))
    }
}

impl LinkLedger<'_> {
    /// Enters a piece. Returns its file in the newest set, and the ranges of the piece that count,
    /// relative to its start. What a higher layer or a newer set replaces does not count, nor what
    /// lies beyond the end of a file that shrank. If an index block must be read for that, `stage`
    /// waits.
    pub(crate) fn enter(
        &self,
        piece: &PieceEntry,
        stage: &Stage,
    ) -> Result<(FileNo, Vec<(usize, usize)>), EngineError> {
        let ledger = self.ledger;
        if ledger.blind {
            return Ok((piece.file, vec![(0, piece.bytes as usize)]));
        }
        self.check_piece(piece)?;
        let Some(heir) = ledger.heir(self.link, piece.file) else {
            return Ok((piece.file, Vec::new()));
        };
        // The account is free while this reads.
        let visible = ledger.visible((self.link, &heir), piece, Some(stage))?;
        if let Some(account) = ledger.accounts.get(&heir.file) {
            let mut account = account.lock().unwrap_or_else(PoisonError::into_inner);
            if !ledger.is_layered(heir.file) {
                let end = piece.offset.saturating_add(u64::from(piece.bytes));
                let after = account.bytes.saturating_sub(end);
                account.crc ^= crc32c_zeros_after(piece.crc32c, after);
            }
            for (from, to) in &visible {
                account.seen = account.seen.saturating_add(to - from);
                account.seams = account.seams.wrapping_add(ledger.seams(*from, *to));
            }
        }
        let relative = |at: u64| fitted(at - piece.offset);
        let ranges = visible.into_iter();
        let ranges = ranges.map(|(from, to)| (relative(from), relative(to)));
        Ok((heir.file, ranges.collect()))
    }

    /// The file of the newest set that a piece is of, and the ranges that count, as offsets in the
    /// file. Does not enter the piece.
    pub(crate) fn counts(
        &self,
        piece: &PieceEntry,
    ) -> Result<(FileNo, Vec<(u64, u64)>), EngineError> {
        let ledger = self.ledger;
        if ledger.blind {
            let end = piece.offset.saturating_add(u64::from(piece.bytes));
            return Ok((piece.file, vec![(piece.offset, end)]));
        }
        let Some(heir) = ledger.heir(self.link, piece.file) else {
            return Ok((piece.file, Vec::new()));
        };
        let visible = ledger.visible((self.link, &heir), piece, None)?;
        Ok((heir.file, visible))
    }

    /// The file of the newest set to which the bytes of a file go, if they go anywhere.
    pub(super) fn heir(&self, file: FileNo) -> Option<FileNo> {
        let heir = self.ledger.heir(self.link, file)?;
        Some(heir.file)
    }

    /// Refuses a piece that no writer of its own set makes.
    fn check_piece(&self, piece: &PieceEntry) -> Result<(), EngineError> {
        let link = &self.ledger.links[self.link];
        let (file, offset) = (piece.file, piece.offset);
        let end = offset.saturating_add(u64::from(piece.bytes));
        match link.lengths.get(&file) {
            Some(bytes) if end > *bytes && !link.upper.has(file) => {
                Err(self.incomplete(Mismatch::PieceBeyond { file, offset }))
            }
            Some(_) => Ok(()),
            None if link.superseded.contains(file) => Ok(()),
            None => Err(self.incomplete(Mismatch::PieceOfNone { file, offset })),
        }
    }

    fn incomplete(&self, what: Mismatch) -> EngineError {
        EngineError::Incomplete {
            set: self.ledger.links[self.link].set,
            what,
        }
    }

    /// The number of the set: 0 is the newest, 1 its base.
    pub(crate) fn link(&self) -> usize {
        self.link
    }
}

/// What is left of a range without those in `over`, which begin in order.
fn rest(over: &[(u64, u64)], (from, to): (u64, u64)) -> Vec<(u64, u64)> {
    let mut visible = Vec::new();
    let mut position = from;
    for (start, end) in over {
        if *start > position {
            visible.push((position, (*start).min(to)));
        }
        position = position.max(*end);
    }
    if position < to {
        visible.push((position, to));
    }
    visible
}
