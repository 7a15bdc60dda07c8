//! What lies over other bytes: found on the stripes when it is wanted, within bounded memory.
//!
//! That are the ranges above layer 0. In a file that has bytes in the base of the set, it is all
//! ranges, also those of layer 0: they lie over the base.
//!
//!   index blocks with such --once--> [outlines]: from where to where each has such pieces
//!   a range of a file --> outlines --> blocks (cached, or read again) --> pieces
//!
//! A writer takes ranges in the order of a file, so the blocks of a set overlap little, and a range
//! is in few of them. This order is only a hint: in a set without it every answer is the same, and
//! takes longer.
//!
//! Invariants
//! - Memory: `CACHE_BYTES` of pieces for all sets of a chain together, twice `WINDOW_PIECES` pieces
//!   while the set is opened, 56 bytes for each index block with layers, and a number for each file
//!   with layers. It does not grow with the number of ranges.
//! - Every block is checked each time that it is read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_media::{FileNo, IndexDirectoryEntry, InheritedFiles, PieceEntry};

use super::stripe::OpenStripe;
use crate::error::EngineError;
use crate::waits::{Cause, Stage};

/// Memory for pieces of blocks that were read: for about 120 blocks, so that the writers of 64
/// stripes could take their ranges in turn.
const CACHE_BYTES: usize = 16 * 1024 * 1024;
/// How many pieces are put in order at a time.
const WINDOW_PIECES: usize = 256 * 1024;

/// A piece that lies over others, without what its block says for all of its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UpperPiece {
    pub(crate) file: FileNo,
    pub(crate) start: u64,
    pub(crate) layer: u8,
    pub(crate) bytes: u32,
}

impl UpperPiece {
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.bytes)
    }
}

/// A range of a file that such a piece holds, and the index block that describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpperRange {
    /// Where it begins in the file.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Its layer.
    pub layer: u8,
    /// The stripe.
    pub stripe: u16,
    /// The number of the index block on the stripe.
    pub block: u32,
}

/// From where to where an index block has such pieces.
#[derive(Debug)]
struct Outline {
    stripe: u16,
    block: u32,
    first: (FileNo, u64),
    end: (FileNo, u64),
}

/// The pieces of a block, in order.
#[derive(Debug)]
struct Block {
    pieces: Vec<UpperPiece>,
    /// The length of the longest: no piece that begins farther before a position reaches it.
    longest: u64,
}

/// What a set has that lies over other bytes.
#[derive(Debug)]
pub struct UpperLayers {
    stripes: Arc<[OpenStripe]>,
    /// In the order of their first pieces.
    outlines: Vec<Outline>,
    /// The greatest end of each outline and those before it.
    reach: Vec<(FileNo, u64)>,
    files: BTreeSet<FileNo>,
    /// The files of which every layer lies over the base.
    inherited: InheritedFiles,
    /// The set's number in the cache.
    owner: usize,
    cache: Arc<PieceCache>,
}

type Blocks = VecDeque<((usize, usize), Arc<Block>)>;

/// Pieces of blocks, by the number of their set and that of their outline. Those that were used
/// last come first.
#[derive(Debug, Default)]
pub struct PieceCache {
    blocks: Mutex<Blocks>,
    owners: AtomicUsize,
}

impl UpperLayers {
    /// Reads the outlines of all index blocks. It leaves out blocks that cannot be read, if
    /// `passes` accepts the error.
    pub(crate) fn read(
        stripes: &Arc<[OpenStripe]>,
        inherited: InheritedFiles,
        cache: &Arc<PieceCache>,
        passes: impl Fn(&EngineError) -> bool,
    ) -> Result<Self, EngineError> {
        let mut upper = Self {
            stripes: Arc::clone(stripes),
            outlines: Vec::new(),
            reach: Vec::new(),
            files: BTreeSet::new(),
            inherited,
            owner: cache.owners.fetch_add(1, Ordering::Relaxed),
            cache: Arc::clone(cache),
        };
        for (stripe, open) in (0u16..).zip(stripes.iter()) {
            for (block, entry) in (0u32..).zip(open.directory()) {
                if !upper.may_have(entry) {
                    continue;
                }
                let pieces = match upper.load(stripe, block) {
                    Err(error) if passes(&error) => continue,
                    loaded => loaded?.pieces,
                };
                let ends = pieces.iter().map(|piece| (piece.file, piece.end()));
                if let (Some(first), Some(end)) = (pieces.first(), ends.max()) {
                    upper.outlines.push(Outline {
                        stripe,
                        block,
                        first: (first.file, first.start),
                        end,
                    });
                }
                upper.files.extend(pieces.iter().map(|piece| piece.file));
            }
        }
        upper.outlines.sort_unstable_by_key(|outline| outline.first);
        let ends = upper.outlines.iter().map(|outline| outline.end);
        let reach = ends.scan((FileNo(0), 0), |most, end| {
            *most = end.max(*most);
            Some(*most)
        });
        upper.reach = reach.collect();
        Ok(upper)
    }

    /// Whether an index block may have pieces that lie over others.
    fn may_have(&self, entry: &IndexDirectoryEntry) -> bool {
        entry.layer_max > 0 || self.inherited.any_in(entry.file_min, entry.file_max)
    }

    /// Whether anything here lies over other bytes of this file.
    pub fn has(&self, file: FileNo) -> bool {
        self.files.contains(&file)
    }

    /// How much memory this takes now, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let outlines = self.outlines.capacity() * size_of::<Outline>();
        let reach = self.reach.capacity() * size_of::<(FileNo, u64)>();
        let files = self.files.len() * 2 * size_of::<FileNo>();
        let cache = self.cache.blocks.lock();
        let cache = cache.unwrap_or_else(PoisonError::into_inner);
        outlines + reach + files + cached_bytes(&cache)
    }

    /// The ranges of a file that overlap `from..to`, in order.
    pub fn near(&self, file: FileNo, from: u64, to: u64) -> Result<Vec<UpperRange>, EngineError> {
        self.near_in(file, (from, to), None)
    }

    /// As [`UpperLayers::near`], in a thread of this stage.
    pub(crate) fn near_in(
        &self,
        file: FileNo,
        (from, to): (u64, u64),
        stage: Option<&Stage>,
    ) -> Result<Vec<UpperRange>, EngineError> {
        let mut found = Vec::new();
        if from >= to || !self.has(file) {
            return Ok(found);
        }
        let after = self
            .outlines
            .partition_point(|outline| outline.first < (file, to));
        for number in (0..after).rev() {
            if self.reach[number] <= (file, from) {
                break;
            }
            let outline = &self.outlines[number];
            if outline.end <= (file, from) {
                continue;
            }
            let block = self.block(number, stage)?;
            let (pieces, least) = (&block.pieces, from.saturating_sub(block.longest));
            let first = pieces.partition_point(|piece| (piece.file, piece.start) < (file, least));
            let near = pieces[first..].iter();
            let near = near.take_while(|piece| (piece.file, piece.start) < (file, to));
            found.extend(
                near.filter(|piece| piece.end() > from)
                    .map(|piece| UpperRange {
                        start: piece.start,
                        end: piece.end(),
                        layer: piece.layer,
                        stripe: outline.stripe,
                        block: outline.block,
                    }),
            );
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Hands over all pieces by file and start, some at a time.
    pub(crate) fn each_in_order(
        &self,
        mut take: impl FnMut(&[UpperPiece]) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let mut window: Vec<UpperPiece> = Vec::new();
        let mut low: Option<UpperPiece> = None;
        loop {
            window.clear();
            // Pieces from here on come in a later window.
            let mut high: Option<UpperPiece> = None;
            for (number, outline) in self.outlines.iter().enumerate() {
                if high.is_some_and(|high| outline.first > (high.file, high.start)) {
                    break;
                }
                if low.is_some_and(|low| outline.end <= (low.file, low.start)) {
                    continue;
                }
                let block = self.block(number, None)?;
                let is_now = |piece: &&UpperPiece| {
                    low.is_none_or(|low| **piece >= low) && high.is_none_or(|high| **piece < high)
                };
                window.extend(block.pieces.iter().filter(is_now));
                if window.len() > 2 * WINDOW_PIECES {
                    window.sort_unstable();
                    let first = window[WINDOW_PIECES];
                    let before = window.partition_point(|piece| *piece < first);
                    if before == 0 {
                        // All of these are the same piece, and nobody takes that.
                        return take(&window[..2]);
                    }
                    high = Some(first);
                    window.truncate(before);
                }
            }
            window.sort_unstable();
            take(&window)?;
            if high.is_none() {
                return Ok(());
            }
            low = high;
        }
    }

    /// The pieces of a block, from the cache or its stripe.
    fn block(&self, number: usize, stage: Option<&Stage>) -> Result<Arc<Block>, EngineError> {
        if let Some(block) = self.cached(number) {
            return Ok(block);
        }
        let outline = &self.outlines[number];
        let load = || self.load(outline.stripe, outline.block);
        let loaded = match stage {
            Some(stage) => stage.wait(Cause::DeviceRead, load),
            None => load(),
        };
        let block = Arc::new(loaded?);
        let key = (self.owner, number);
        let cache = self.cache.blocks.lock();
        let mut cache = cache.unwrap_or_else(PoisonError::into_inner);
        cache.retain(|(other, _)| *other != key);
        cache.push_front((key, Arc::clone(&block)));
        while cached_bytes(&cache) > CACHE_BYTES && cache.len() > 1 {
            cache.pop_back();
        }
        Ok(block)
    }

    fn cached(&self, number: usize) -> Option<Arc<Block>> {
        let cache = self.cache.blocks.lock();
        let mut cache = cache.unwrap_or_else(PoisonError::into_inner);
        let key = (self.owner, number);
        let at = cache.iter().position(|(other, _)| *other == key)?;
        if at > 0 {
            let used = cache.remove(at)?;
            cache.push_front(used);
        }
        cache.front().map(|(_, block)| Arc::clone(block))
    }

    fn load(&self, stripe: u16, block: u32) -> Result<Block, EngineError> {
        let open = &self.stripes[usize::from(stripe)];
        let block = open.index_block(&open.directory()[block as usize])?;
        // An empty piece holds nothing, so it makes no layer.
        let is_over =
            |piece: &PieceEntry| piece.layer > 0 || self.inherited.get(piece.file).is_some();
        let counts = |piece: &&PieceEntry| piece.bytes > 0 && is_over(piece);
        let pieces = block.pieces.iter().filter(counts).map(|piece| UpperPiece {
            file: piece.file,
            start: piece.offset,
            layer: piece.layer,
            bytes: piece.bytes,
        });
        let mut pieces: Vec<_> = pieces.collect();
        pieces.sort_unstable();
        let longest = pieces.iter().map(|piece| u64::from(piece.bytes)).max();
        Ok(Block {
            pieces,
            longest: longest.unwrap_or(0),
        })
    }
}

fn cached_bytes(cache: &Blocks) -> usize {
    let pieces = cache.iter().map(|(_, block)| block.pieces.capacity());
    let pieces: usize = pieces.sum();
    pieces * size_of::<UpperPiece>()
}
