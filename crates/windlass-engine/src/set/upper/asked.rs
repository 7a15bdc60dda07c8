//! What lies over other bytes of a file, found out when somebody asks for the file.
//!
//!   a file --> [unread blocks] that may tell of it --> outlines --> no overlaps? --> known
//!
//! The index directories say which files a block can have pieces of. So the first question about a
//! file costs the blocks that may tell of it, and opening a chain costs none, however much its sets
//! hold. Within a file the directories say nothing, but most footers have spans: from where to
//! where a block has bytes of each file. A block with spans costs nothing before somebody wants a
//! range that it has something of. Without them (older sets, blocks of many files), a database of
//! one file costs all its blocks at the first question.
//!
//! A span that leaves out something of a block is believed until the block is read. So who reads
//! whole files asks for [`AskedLayers::check`] first, which believes none; a server that reads some
//! pages of a database does not. A directory that leaves out a file of a block is believed until
//! the block is read for another file. Who restores or verifies a set reads all blocks.
//!
//! Invariants
//! - Nothing is said of a range before every block that may tell of it was read and checked, and
//!   its pieces of one layer do not overlap. Otherwise older bytes could show through. Blocks
//!   without spans may tell of every range of a file.
//! - Nothing is said of any file once a block was read, by anybody, that has other spans.
//! - A failure is not kept: the next question reads again. It says nothing of other files.
//!
//! Locking: `state` alone. It is not held while a stripe is read, so two threads that ask for the
//! same file may read the same blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use windlass_media::{FileNo, FileSpan, InheritedFiles, SetId};

use super::blocks::{BlockPlace, PieceCache, UpperBlocks, UpperRange};
use super::outlines::{Outline, Outlines, check_found, check_overlaps};
use super::spans::SpannedBlocks;
use crate::error::EngineError;
use crate::set::stripe::OpenStripe;

/// How many blocks the storage is told of before they are read.
const BLOCKS_AHEAD: usize = 8;

/// What a set has that lies over other bytes, for a reader of some of its files.
#[derive(Debug)]
pub struct AskedLayers {
    set: SetId,
    blocks: UpperBlocks,
    /// What the footers say of blocks.
    spanned: SpannedBlocks,
    /// What is known of the other blocks.
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the blocks that were read.
    outlines: Outlines,
    /// The other blocks, in the order of their first files.
    unread: Vec<Unread>,
    /// By file that was asked for: whether anything lies over bytes of it.
    known: BTreeMap<FileNo, bool>,
    /// The blocks with spans that a check has read: their spans are right.
    checked: BTreeSet<BlockPlace>,
}

/// What the index directory says of a block.
#[derive(Clone, Copy, Debug)]
struct Unread {
    place: BlockPlace,
    file_min: FileNo,
    file_max: FileNo,
    has_layers: bool,
}

impl AskedLayers {
    /// Reads nothing.
    pub(crate) fn new(
        set: SetId,
        stripes: &Arc<[OpenStripe]>,
        inherited: InheritedFiles,
        cache: &Arc<PieceCache>,
    ) -> Self {
        let blocks = UpperBlocks::new(stripes, inherited, cache);
        let (mut unread, mut spanned) = (Vec::new(), SpannedBlocks::default());
        for (place, entry) in blocks.listed() {
            let Some(spans) = blocks.spans(place) else {
                unread.push(Unread {
                    place,
                    file_min: entry.file_min,
                    file_max: entry.file_max,
                    has_layers: entry.layer_max > 0,
                });
                continue;
            };
            let over = |span: &FileSpan| span.layer_max > 0 || blocks.inherits(span.file);
            spanned.take(place, spans, over);
        }
        spanned.put_in_order();
        unread.sort_unstable_by_key(|one| (one.file_min, one.place));
        let state = State {
            unread,
            ..State::default()
        };
        Self {
            set,
            blocks,
            spanned,
            state: RwLock::new(state),
        }
    }

    /// The first of these files, which must be in order, that has layers. It reads the blocks that
    /// may have layers of one of them.
    pub(crate) fn first_layered(&self, files: &[FileNo]) -> Result<Option<FileNo>, EngineError> {
        let wanted = self.read().unread_layers_of(files);
        self.take_in(&wanted)?;
        self.blocks.check_spans()?;
        let state = self.read();
        let mut files = files.iter().copied();
        Ok(files.find(|file| self.spanned.has(*file) || state.outlines.has(*file)))
    }

    /// Whether anything here lies over other bytes of this file. It reads the blocks without spans
    /// that may tell of the file, if nobody has read them, and checks their pieces of the file.
    pub fn has(&self, file: FileNo) -> Result<bool, EngineError> {
        Ok(self.has_unspanned(file)? || self.spanned.has(file))
    }

    /// Reads every block that may tell of this file by the index directory, so that no span of it
    /// is only believed, and checks its pieces of the file. A block that an earlier check has read
    /// is read again only if it has something of the file.
    pub fn check(&self, file: FileNo) -> Result<(), EngineError> {
        let has_unspanned = self.has_unspanned(file)?;
        let spanned = self.to_check(file);
        if spanned.is_empty() {
            return Ok(());
        }
        let mut places = spanned.clone();
        if has_unspanned {
            places.extend(self.read().places_over(file, 0, u64::MAX));
        }
        places.sort_unstable();
        let outlines = self.outlines_at(&places)?;
        self.write().checked.extend(spanned);
        check_overlaps(self.set, (&self.blocks, outlines.all()), Some(file))
    }

    /// How many blocks with spans a check of this file would read now.
    pub fn blocks_to_check(&self, file: FileNo) -> usize {
        self.to_check(file).len()
    }

    /// The blocks with spans that have something of this file, or may have and were not checked.
    fn to_check(&self, file: FileNo) -> Vec<BlockPlace> {
        let mut places: Vec<_> = self.spanned.over(file, 0, u64::MAX).collect();
        let state = self.read();
        if state.checked.len() < self.spanned.count() {
            let listed = self.spanned.that_may_tell_of(file);
            places.extend(listed.filter(|place| !state.checked.contains(place)));
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    fn has_unspanned(&self, file: FileNo) -> Result<bool, EngineError> {
        self.blocks.check_spans()?;
        let known = self.read().known.get(&file).copied();
        if let Some(has) = known {
            return Ok(has);
        }
        let wanted = self.read().unread_of(file, self.blocks.inherits(file));
        self.take_in(&wanted)?;
        let outlines = self.read().outlines_of(file);
        if let Some(outlines) = &outlines {
            check_overlaps(self.set, (&self.blocks, outlines.as_slice()), Some(file))?;
        }
        self.write().known.insert(file, outlines.is_some());
        Ok(outlines.is_some())
    }

    /// The ranges of a file that overlap `from..to`, in order; `None` if nothing here lies over
    /// other bytes of this file.
    pub fn near(
        &self,
        file: FileNo,
        from: u64,
        to: u64,
    ) -> Result<Option<Vec<UpperRange>>, EngineError> {
        let has_unspanned = self.has_unspanned(file)?;
        if !has_unspanned && !self.spanned.has(file) {
            return Ok(None);
        }
        let mut found = Vec::new();
        if from >= to {
            return Ok(Some(found));
        }
        let mut places = match has_unspanned {
            true => self.read().places_over(file, from, to),
            false => Vec::new(),
        };
        places.extend(self.spanned.over(file, from, to));
        for place in places {
            let block = self.blocks.get(place, None)?;
            found.extend(block.near(place, file, (from, to)));
        }
        found.sort_unstable();
        check_found(self.set, file, &found)?;
        Ok(Some(found))
    }

    /// How many blocks without spans that may tell of layers nobody has read.
    pub fn unread_blocks(&self) -> usize {
        self.read().unread.len()
    }

    /// How much memory this takes now, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let state = self.read();
        let unread = state.unread.capacity() * size_of::<Unread>();
        let known = state.known.len() * 2 * size_of::<(FileNo, bool)>();
        let checked = state.checked.len() * 2 * size_of::<BlockPlace>();
        let spanned = self.spanned.memory_bytes() + checked;
        state.outlines.memory_bytes() + unread + known + spanned + self.blocks.cached_bytes()
    }

    fn take_in(&self, wanted: &BTreeSet<BlockPlace>) -> Result<(), EngineError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let places: Vec<_> = wanted.iter().copied().collect();
        let found = self.outlines_at(&places)?;
        self.write().take(wanted, found);
        Ok(())
    }

    /// Reads these blocks, one after the other. The storage is told of those that come next: a
    /// database of one file may need hundreds, and each is far from the one before.
    fn outlines_at(&self, wanted: &[BlockPlace]) -> Result<Outlines, EngineError> {
        let mut found = Outlines::default();
        let mut ahead = wanted.iter();
        for place in ahead.by_ref().take(BLOCKS_AHEAD) {
            self.blocks.will_need(*place);
        }
        for place in wanted {
            if let Some(next) = ahead.next() {
                self.blocks.will_need(*next);
            }
            let block = self.blocks.get(*place, None)?;
            found.take(*place, &block);
        }
        found.put_in_order();
        Ok(found)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The unread blocks that may have layers of one of these files, which are in order.
    fn unread_layers_of(&self, files: &[FileNo]) -> BTreeSet<BlockPlace> {
        let may_tell = |one: &&Unread| {
            let at = files.partition_point(|file| *file < one.file_min);
            one.has_layers && files.get(at).is_some_and(|file| *file <= one.file_max)
        };
        let blocks = self.unread.iter().filter(may_tell);
        blocks.map(|one| one.place).collect()
    }

    /// The unread blocks that may have pieces of a file that lie over others.
    fn unread_of(&self, file: FileNo, inherits: bool) -> BTreeSet<BlockPlace> {
        let after = self.unread.partition_point(|one| one.file_min <= file);
        let may_tell = |one: &&Unread| one.file_max >= file && (one.has_layers || inherits);
        let blocks = self.unread[..after].iter().filter(may_tell);
        blocks.map(|one| one.place).collect()
    }

    /// Takes what was found in these blocks, unless another thread has done so.
    fn take(&mut self, wanted: &BTreeSet<BlockPlace>, found: Outlines) {
        let mut read = BTreeSet::new();
        self.unread.retain(|one| {
            let is_read = wanted.contains(&one.place);
            if is_read {
                read.insert(one.place);
            }
            !is_read
        });
        self.outlines.take_all(found, &read);
        self.outlines.put_in_order();
    }

    /// The outlines that may have pieces of a file, in order; `None` if there is no such piece.
    fn outlines_of(&self, file: FileNo) -> Option<Vec<Outline>> {
        if !self.outlines.has(file) {
            return None;
        }
        let mut outlines: Vec<_> = self.outlines.over(file, 0, u64::MAX).copied().collect();
        outlines.reverse();
        Some(outlines)
    }

    /// The blocks that may have pieces in `from..to` of a file.
    fn places_over(&self, file: FileNo, from: u64, to: u64) -> Vec<BlockPlace> {
        let outlines = self.outlines.over(file, from, to);
        outlines.map(|outline| outline.place).collect()
    }
}
