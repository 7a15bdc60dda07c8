//! Which pages of a file are in the store: block to slot, in a map of two levels.
//!
//! A file is written at a few places, or all over: leaves of 64 blocks keep both cheap.

use std::collections::BTreeMap;

use windlass_engine::media::fitted;
use windlass_layout::MapCell;

use crate::store::Slot;

/// How many blocks a leaf covers.
const LEAF_BLOCKS: u64 = 64;

type Leaf = Box<[MapCell; 64]>;

/// Slots by block.
#[derive(Debug, Default)]
pub(crate) struct BlockMap(BTreeMap<u64, Leaf>);

impl BlockMap {
    /// The slot of a block.
    pub(crate) fn get(&self, block: u64) -> Option<Slot> {
        let leaf = self.0.get(&(block / LEAF_BLOCKS))?;
        leaf[place(block)].slot()
    }

    /// Sets the slot of a block, and returns the one it had before.
    pub(crate) fn set(&mut self, block: u64, slot: Slot) -> Option<Slot> {
        let leaf = self.0.entry(block / LEAF_BLOCKS);
        let cell = &mut leaf.or_insert_with(|| Box::new([MapCell::EMPTY; 64]))[place(block)];
        std::mem::replace(cell, MapCell::of(slot).unwrap_or_default()).slot()
    }

    /// Forgets all blocks from `block` on, and returns their slots.
    pub(crate) fn cut(&mut self, block: u64) -> Vec<Slot> {
        let mut gone = self.0.split_off(&block.div_ceil(LEAF_BLOCKS));
        let mut slots: Vec<_> = gone
            .values()
            .flat_map(|leaf| leaf.iter().copied())
            .collect();
        gone.clear();
        if let Some(leaf) = self.0.get_mut(&(block / LEAF_BLOCKS)) {
            for cell in &mut leaf[place(block)..] {
                slots.push(std::mem::take(cell));
            }
        }
        slots.into_iter().filter_map(MapCell::slot).collect()
    }

    /// All blocks that are in the store, with their slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u64, Slot)> {
        let cells = self.0.iter().flat_map(|(leaf, cells)| {
            let first = leaf * LEAF_BLOCKS;
            (first..).zip(cells.iter())
        });
        cells.filter_map(|(block, cell)| Some((block, cell.slot()?)))
    }
}

fn place(block: u64) -> usize {
    fitted(block % LEAF_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in vec((0u64..400, 0u32..1000, any::<bool>()), 0..200)) {
            let mut model = BTreeMap::new();
            let mut map = BlockMap::default();
            for (block, slot, cut) in steps {
                if cut && slot % 8 == 0 {
                    let mut gone: Vec<u32> = model.split_off(&block).into_values().collect();
                    let mut found = map.cut(block);
                    gone.sort_unstable();
                    found.sort_unstable();
                    prop_assert_eq!(gone, found);
                } else {
                    prop_assert_eq!(map.set(block, slot), model.insert(block, slot));
                }
                for block in 0..400 {
                    prop_assert_eq!(map.get(block), model.get(&block).copied());
                }
            }
            let slots: Vec<_> = map.slots().collect();
            let expected: Vec<_> = model.into_iter().collect();
            prop_assert_eq!(slots, expected);
        }
    }
}
