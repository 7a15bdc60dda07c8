//! Which blocks of which relations the log has changed.
//!
//! Memory: a relation that changed takes about 100 bytes, and each stretch of 65,536 blocks (512
//! MiB) in which something changed at most 8 KiB.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::wal::effects::DatabaseDirectory;

/// Blocks of a chunk.
pub(super) const CHUNK_BLOCKS: u32 = 1 << 16;
/// A list that would have more blocks than this becomes a bitmap, which takes the same room.
const LISTED_MAX: usize = 4096;
const BITMAP_BYTES: usize = (CHUNK_BLOCKS / 8) as usize;

/// The main fork of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RelationKey {
    pub(crate) directory: DatabaseDirectory,
    /// The relation's file number.
    pub(crate) number: u32,
}

/// What the log has changed.
#[derive(Debug, Default)]
pub(crate) struct ChangedBlocks {
    /// Directories of databases that were made, moved or dropped.
    databases: HashSet<DatabaseDirectory>,
    relations: HashMap<RelationKey, Changes>,
}

/// What the log has changed of a relation.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The lowest length that the relation had, in blocks, if it was made or cut off.
    limit: Option<u32>,
    chunks: BTreeMap<u16, Chunk>,
}

#[derive(Debug)]
enum Chunk {
    /// In any order, and maybe twice.
    Listed(Vec<u16>),
    Bitmap(Box<[u8; BITMAP_BYTES]>),
}

impl ChangedBlocks {
    /// The directory of a database was made, moved or dropped.
    pub(super) fn note_directory(&mut self, directory: DatabaseDirectory) {
        self.databases.insert(directory);
    }

    /// What is known of a relation, to add to it.
    pub(super) fn relation(&mut self, key: RelationKey) -> &mut Changes {
        self.relations.entry(key).or_default()
    }

    /// Whether the files of this directory may be those of another database.
    pub(crate) fn has_new(&self, directory: DatabaseDirectory) -> bool {
        self.databases.contains(&directory)
    }

    /// What was changed of a relation; nothing if the log does not name it.
    pub(crate) fn get(&self, key: &RelationKey) -> Option<&Changes> {
        self.relations.get(key)
    }
}

impl Changes {
    /// The relation had this length. What was known behind it does not matter any more.
    pub(super) fn cut(&mut self, limit: u32) {
        if self.limit.is_some_and(|known| known <= limit) {
            return;
        }
        self.limit = Some(limit);
        let (last, rest) = (limit / CHUNK_BLOCKS, limit % CHUNK_BLOCKS);
        self.chunks.retain(|number, _| u32::from(*number) <= last);
        if let Some(chunk) = u16::try_from(last)
            .ok()
            .and_then(|it| self.chunks.get_mut(&it))
        {
            chunk.cut(rest);
        }
    }

    /// A block was changed.
    pub(super) fn add(&mut self, chunk: u16, block: u16) {
        let chunk = self.chunks.entry(chunk).or_insert_with(Chunk::new);
        chunk.add(block);
    }

    /// Blocks of a bitmap were changed; the lowest bit of each byte comes first.
    pub(super) fn add_bitmap(&mut self, chunk: u16, bitmap: &[u8]) {
        for (byte, bits) in (0_u16..).zip(bitmap) {
            let set = (0..8_u16).filter(|bit| bits >> bit & 1 == 1);
            set.for_each(|bit| self.add(chunk, byte * 8 + bit));
        }
    }

    /// The lowest length that the relation had, in blocks, if it was made or cut off.
    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// The changed blocks in a range, in order, each once.
    pub(crate) fn blocks_in(&self, range: Range<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        for (number, chunk) in &self.chunks {
            let first = u64::from(*number) * u64::from(CHUNK_BLOCKS);
            if first >= range.end || first + u64::from(CHUNK_BLOCKS) <= range.start {
                continue;
            }
            let blocks = chunk.blocks().into_iter();
            let blocks = blocks.map(|block| first + u64::from(block));
            found.extend(blocks.filter(|block| range.contains(block)));
        }
        found
    }
}

impl Chunk {
    fn new() -> Self {
        Self::Listed(Vec::new())
    }

    fn add(&mut self, block: u16) {
        match self {
            Self::Listed(blocks) if blocks.len() < LISTED_MAX => blocks.push(block),
            Self::Listed(blocks) => {
                let mut bitmap = Box::new([0; BITMAP_BYTES]);
                blocks.iter().for_each(|block| set(&mut bitmap, *block));
                set(&mut bitmap, block);
                *self = Self::Bitmap(bitmap);
            }
            Self::Bitmap(bitmap) => set(bitmap, block),
        }
    }

    /// Forgets the blocks from `limit` on.
    fn cut(&mut self, limit: u32) {
        let is_below = |block: u16| u32::from(block) < limit;
        match self {
            Self::Listed(blocks) => blocks.retain(|block| is_below(*block)),
            Self::Bitmap(bitmap) => {
                let blocks = (0..=u16::MAX).filter(|block| !is_below(*block));
                blocks.for_each(|block| bitmap[usize::from(block / 8)] &= !(1 << (block % 8)));
            }
        }
    }

    /// Its blocks, in order, each once.
    fn blocks(&self) -> Vec<u16> {
        match self {
            Self::Listed(blocks) => {
                let mut blocks = blocks.clone();
                blocks.sort_unstable();
                blocks.dedup();
                blocks
            }
            Self::Bitmap(bitmap) => {
                let is_set = |block: &u16| bitmap[usize::from(block / 8)] >> (block % 8) & 1 == 1;
                (0..=u16::MAX).filter(is_set).collect()
            }
        }
    }
}

fn set(bitmap: &mut [u8; BITMAP_BYTES], block: u16) {
    bitmap[usize::from(block / 8)] |= 1 << (block % 8);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lower_limit_forgets_what_was_known_behind_it_and_a_higher_one_nothing() {
        let mut changes = Changes::default();
        for block in [3, 7, 9] {
            changes.add(1, block);
        }
        changes.add(2, 0);
        changes.cut(CHUNK_BLOCKS + 8);
        let first = u64::from(CHUNK_BLOCKS);
        assert_eq!(changes.blocks_in(0..u64::MAX), [first + 3, first + 7]);
        changes.add(1, 60);
        changes.cut(CHUNK_BLOCKS + 20);
        assert_eq!(changes.limit(), Some(CHUNK_BLOCKS + 8));
        assert_eq!(
            changes.blocks_in(first + 4..first + 61),
            [first + 7, first + 60]
        );
        changes.cut(0);
        assert!(changes.blocks_in(0..u64::MAX).is_empty());
    }

    proptest! {
        /// A list that becomes a bitmap, and bitmaps that are added, against a plain set.
        #[test]
        fn blocks_come_back_in_order_and_once(
            steps in vec((0..3_u16, any::<u16>(), 1..3000_u16, any::<bool>()), 1..12),
            limit in proptest::option::of(0..3 * CHUNK_BLOCKS),
        ) {
            let (mut changes, mut model) = (Changes::default(), BTreeSet::new());
            for (chunk, first, count, as_bitmap) in steps {
                let blocks = (0..count).map(|index| first.wrapping_add(index.wrapping_mul(7)));
                let mut bitmap = Box::new([0; BITMAP_BYTES]);
                for block in blocks {
                    model.insert(u64::from(chunk) << 16 | u64::from(block));
                    match as_bitmap {
                        true => set(&mut bitmap, block),
                        false => changes.add(chunk, block),
                    }
                }
                changes.add_bitmap(chunk, &bitmap[..]);
            }
            if let Some(limit) = limit {
                changes.cut(limit);
                model.retain(|block| *block < u64::from(limit));
            }
            let model: Vec<u64> = model.into_iter().collect();
            prop_assert_eq!(changes.blocks_in(0..u64::MAX), model);
        }
    }
}
