//! A cell of a snapshot's map: nothing, a slot, or a slot whose page may not be on a disk yet.
//!
//! Whoever copies a page ahead of its writer sets the mark, and takes it away when the page is
//! durable. A writer that meets the mark syncs the store itself, so nobody waits for a helper that
//! may have died.

use crate::map::{MapCell, Slot};

/// The mark of a page that was copied and is not known to be durable.
const UNSYNCED: u32 = 1 << 31;
/// No slot from here on has a cell.
pub(super) const SLOTS_END: Slot = UNSYNCED - 1;

/// What a map of the hook says of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell(pub(super) u32);

impl Cell {
    /// The cell of a block whose page is durable, or does not have to be.
    pub(super) fn of(slot: Slot) -> Self {
        Self(MapCell::of(slot).unwrap_or_default().0)
    }

    /// The same before a sync.
    pub(super) fn unsynced(slot: Slot) -> Self {
        Self(Self::of(slot).0 | UNSYNCED)
    }

    /// Whether the page may not be durable.
    pub(super) const fn is_unsynced(self) -> bool {
        self.0 & UNSYNCED != 0
    }

    /// Where the page is.
    pub(super) const fn slot(self) -> Option<Slot> {
        MapCell(self.0 & !UNSYNCED).slot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_changes_no_slot() {
        for slot in [0, 1, SLOTS_END - 1] {
            assert_eq!(Cell::of(slot).slot(), Some(slot));
            assert_eq!(Cell::unsynced(slot).slot(), Some(slot));
            assert!(Cell::unsynced(slot).is_unsynced());
            assert!(!Cell::of(slot).is_unsynced());
        }
        assert_eq!(Cell(0).slot(), None);
    }
}
