//! The pieces of index blocks that lie over other bytes: read, checked, and kept in a cache.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_media::{FileNo, FileSpan, IndexDirectoryEntry, InheritedFiles, PieceEntry};

use crate::error::EngineError;
use crate::set::stripe::OpenStripe;
use crate::waits::{Cause, Stage};

/// Memory for pieces of blocks that were read: for about 120 blocks, so that the writers of 64
/// stripes could take their ranges in turn.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// A piece that lies over others, without what its block says for all of its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UpperPiece {
    pub(super) file: FileNo,
    pub(super) start: u64,
    pub(super) layer: u8,
    pub(super) bytes: u32,
}

impl UpperPiece {
    pub(super) fn end(&self) -> u64 {
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

/// One index block of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockPlace {
    pub(super) stripe: u16,
    pub(super) block: u32,
}

/// The pieces of a block, in order.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) pieces: Vec<UpperPiece>,
    /// The length of the longest: no piece that begins farther before a position reaches it.
    longest: u64,
}

impl Block {
    /// The ranges of a file that overlap `from..to`. The block is that at `place`.
    pub(super) fn near(
        &self,
        place: BlockPlace,
        file: FileNo,
        (from, to): (u64, u64),
    ) -> impl Iterator<Item = UpperRange> {
        let least = from.saturating_sub(self.longest);
        let before = |piece: &UpperPiece| (piece.file, piece.start) < (file, least);
        let first = self.pieces.partition_point(before);
        let near = self.pieces[first..].iter();
        let near = near.take_while(move |piece| (piece.file, piece.start) < (file, to));
        let near = near.filter(move |piece| piece.end() > from);
        near.map(move |piece| UpperRange {
            start: piece.start,
            end: piece.end(),
            layer: piece.layer,
            stripe: place.stripe,
            block: place.block,
        })
    }
}

/// Index blocks by the number of their set and their place there.
type Kept = VecDeque<((usize, BlockPlace), Arc<Block>)>;

/// Pieces of blocks, for all sets of a chain together. Those that were used last come first.
#[derive(Debug, Default)]
pub struct PieceCache {
    blocks: Mutex<Kept>,
    owners: AtomicUsize,
}

/// The index blocks of a set, for those who want to know what lies over other bytes.
#[derive(Debug)]
pub(super) struct UpperBlocks {
    stripes: Arc<[OpenStripe]>,
    /// The files of which every layer lies over the base.
    inherited: InheritedFiles,
    /// The set's number in the cache.
    owner: usize,
    cache: Arc<PieceCache>,
}

impl UpperBlocks {
    pub(super) fn new(
        stripes: &Arc<[OpenStripe]>,
        inherited: InheritedFiles,
        cache: &Arc<PieceCache>,
    ) -> Self {
        Self {
            stripes: Arc::clone(stripes),
            inherited,
            owner: cache.owners.fetch_add(1, Ordering::Relaxed),
            cache: Arc::clone(cache),
        }
    }

    /// The blocks that may have pieces that lie over others, with what the directories say of them.
    pub(super) fn listed(&self) -> impl Iterator<Item = (BlockPlace, &IndexDirectoryEntry)> {
        let stripes = (0u16..).zip(self.stripes.iter());
        let all = stripes.flat_map(|(stripe, open)| {
            let blocks = (0u32..).zip(open.directory());
            blocks.map(move |(block, entry)| (BlockPlace { stripe, block }, entry))
        });
        all.filter(move |(_, entry)| {
            entry.layer_max > 0 || self.inherited.any_in(entry.file_min, entry.file_max)
        })
    }

    /// Whether every layer of this file lies over the base.
    pub(super) fn inherits(&self, file: FileNo) -> bool {
        self.inherited.get(file).is_some()
    }

    /// What the footer says that a block has of each file, if it does.
    pub(super) fn spans(&self, place: BlockPlace) -> Option<&[FileSpan]> {
        self.stripes[usize::from(place.stripe)].spans(place.block as usize)
    }

    /// Fails once somebody has seen that one of these spans is wrong.
    pub(super) fn check_spans(&self) -> Result<(), EngineError> {
        self.stripes.iter().try_for_each(OpenStripe::check_spans)
    }

    /// Announces that a block will be read soon.
    pub(super) fn will_need(&self, place: BlockPlace) {
        let open = &self.stripes[usize::from(place.stripe)];
        let entry = &open.directory()[place.block as usize];
        open.will_need(entry.offset, entry.bytes.into());
    }

    /// The pieces of a block, from the cache or its stripe.
    pub(super) fn get(
        &self,
        place: BlockPlace,
        stage: Option<&Stage>,
    ) -> Result<Arc<Block>, EngineError> {
        if let Some(block) = self.cached(place) {
            return Ok(block);
        }
        let load = || self.load(place);
        let loaded = match stage {
            Some(stage) => stage.wait(Cause::DeviceRead, load),
            None => load(),
        };
        let block = Arc::new(loaded?);
        let key = (self.owner, place);
        let cache = self.cache.blocks.lock();
        let mut cache = cache.unwrap_or_else(PoisonError::into_inner);
        cache.retain(|(other, _)| *other != key);
        cache.push_front((key, Arc::clone(&block)));
        while kept_bytes(&cache) > CACHE_BYTES && cache.len() > 1 {
            cache.pop_back();
        }
        Ok(block)
    }

    fn cached(&self, place: BlockPlace) -> Option<Arc<Block>> {
        let cache = self.cache.blocks.lock();
        let mut cache = cache.unwrap_or_else(PoisonError::into_inner);
        let key = (self.owner, place);
        let at = cache.iter().position(|(other, _)| *other == key)?;
        if at > 0 {
            let used = cache.remove(at)?;
            cache.push_front(used);
        }
        cache.front().map(|(_, block)| Arc::clone(block))
    }

    /// Reads and checks a block.
    pub(super) fn load(&self, place: BlockPlace) -> Result<Block, EngineError> {
        let open = &self.stripes[usize::from(place.stripe)];
        let block = open.index_block(&open.directory()[place.block as usize])?;
        // An empty piece holds nothing, so it makes no layer.
        let is_over = |piece: &PieceEntry| piece.layer > 0 || self.inherits(piece.file);
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

    /// How much memory the cache takes now.
    pub(super) fn cached_bytes(&self) -> usize {
        let cache = self.cache.blocks.lock();
        kept_bytes(&cache.unwrap_or_else(PoisonError::into_inner))
    }
}

fn kept_bytes(kept: &Kept) -> usize {
    let pieces = kept.iter().map(|(_, block)| block.pieces.capacity());
    let pieces: usize = pieces.sum();
    pieces * size_of::<UpperPiece>()
}
