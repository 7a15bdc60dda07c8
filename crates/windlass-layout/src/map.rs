//! A map from blocks to slots: one cell for each block.

/// The number of a slot in a store: the place of one page.
pub type Slot = u32;

/// The greatest number of a slot.
pub const SLOT_LAST: Slot = Slot::MAX - 1;

/// What a map says of one block: slot + 1, or 0 if the block is not in the store. So a map of zeros
/// is an empty one, and one aligned write of four bytes sets a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCell(pub u32);

impl MapCell {
    /// No block is in the store.
    pub const EMPTY: Self = Self(0);

    /// The cell of a block that is in this slot. `None` if no map can name the slot.
    pub const fn of(slot: Slot) -> Option<Self> {
        match slot.checked_add(1) {
            Some(cell) => Some(Self(cell)),
            None => None,
        }
    }

    /// The slot that the block is in.
    pub const fn slot(self) -> Option<Slot> {
        self.0.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_names_every_slot_and_none() {
        for slot in [0, 1, SLOT_LAST] {
            assert_eq!(MapCell::of(slot).and_then(MapCell::slot), Some(slot));
        }
        assert_eq!(MapCell::of(SLOT_LAST + 1), None);
        assert_eq!(MapCell::EMPTY.slot(), None);
    }
}
