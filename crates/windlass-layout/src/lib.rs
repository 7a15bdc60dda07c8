//! The layout of page stores: where each byte is, and whether it is right.
//!
//! A store keeps pages of many files in one file. A program makes it, and a library inside a
//! database's server may write to it, so both need the same numbers. docs/overlay.md describes
//! every byte.
//!
//!   store = [header][group][group] ...           group = [entries][page][page] ...
//!
//! ```
//! use windlass_layout::{Geometry, SlotEntry, crc32c};
//!
//! let geometry = Geometry::new(8192)?;
//! let page = [7; 8192];
//! let entry = SlotEntry { file: 3, block: 12, owner: 0, page_crc: crc32c(&page) };
//! let stored = entry.encode();
//! assert_eq!(geometry.page_offset(0), geometry.entry_offset(0) + 8192);
//! assert_eq!(SlotEntry::decode(&stored)?, Some(entry));
//! # Ok::<_, windlass_layout::LayoutFault>(())
//! ```
//!
//! Invariants
//! - No dependency, no allocation, no panic on any input, and no system call: a library inside a
//!   server can do everything here at any moment.

#![no_std]
#![forbid(unsafe_code)]

mod crc;
pub mod hook;
mod map;
mod store;
mod sync;

pub use crc::{crc32c, crc32c_more};
pub use map::{MapCell, SLOT_LAST, Slot};
pub use store::{
    ENTRY_BYTES, Geometry, HEADER_BYTES, LayoutFault, PAGE_BYTES_MAX, PAGE_BYTES_MIN, SlotEntry,
    StoreHeader,
};
