//! A store's bytes: its header, the entries of its slots, and where these and the pages are.
//!
//!   header  one page:  magic 8 | version 4 | page bytes 4 | identity 32 | zeros 12 | CRC-32C 4
//!   group   one page of entries, then a page for each entry
//!   entry   32 bytes:  file 8 | block 8 | owner 8 | CRC-32C of the page 4 | CRC-32C of the entry 4
//!
//! Why groups: every page stays aligned, a slot's place follows from its number, and the store
//! grows only at its end. Why file and block are in the entry: a page of another block with a right
//! checksum is a wrong answer, too, and without its map a store still says what it holds.

use core::fmt;

use crate::crc::crc32c;
use crate::map::Slot;

/// Bytes of a header that mean something. Zeros follow up to the end of the page.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a slot's entry.
pub const ENTRY_BYTES: usize = 32;
/// The smallest page.
pub const PAGE_BYTES_MIN: u32 = 512;
/// The largest page.
pub const PAGE_BYTES_MAX: u32 = 65_536;

const ENTRY: u32 = 32;
const _: () = assert!(ENTRY as usize == ENTRY_BYTES);

const MAGIC: [u8; 8] = *b"WNDLPAGE";
const VERSION: u32 = 1;

/// What is wrong with bytes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutFault {
    /// The bytes are not those of a store.
    Magic,
    /// Another version wrote the store.
    Version(u32),
    /// No store has pages of this size.
    PageBytes(u32),
    /// Bytes that must be zero are not.
    Reserved,
    /// A checksum is wrong.
    Checksum,
}

impl fmt::Display for LayoutFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => out.write_str("this is not a page store"),
            Self::Version(version) => write!(out, "the page store has version {version}"),
            Self::PageBytes(bytes) => write!(out, "a page cannot have {bytes} bytes"),
            Self::Reserved => out.write_str("reserved bytes are not zero"),
            Self::Checksum => out.write_str("a checksum is wrong"),
        }
    }
}

impl core::error::Error for LayoutFault {}

/// The start of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreHeader {
    /// The size of its pages.
    pub geometry: Geometry,
    /// Whose pages it has, as its maker defines that.
    pub identity: [u8; 32],
}

impl StoreHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.geometry.page_bytes.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.identity);
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, LayoutFault> {
        if bytes[..8] != MAGIC {
            return Err(LayoutFault::Magic);
        }
        if number(bytes, 60) != crc32c(&bytes[..60]) {
            return Err(LayoutFault::Checksum);
        }
        let version = number(bytes, 8);
        if version != VERSION {
            return Err(LayoutFault::Version(version));
        }
        if bytes[48..60] != [0; 12] {
            return Err(LayoutFault::Reserved);
        }
        let mut identity = [0; 32];
        identity.copy_from_slice(&bytes[16..48]);
        Ok(Self {
            geometry: Geometry::new(number(bytes, 12))?,
            identity,
        })
    }
}

/// Where entries and pages are, for one size of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    page_bytes: u32,
}

impl Geometry {
    /// The geometry of a store with such pages: a power of two from [`PAGE_BYTES_MIN`] to
    /// [`PAGE_BYTES_MAX`].
    pub const fn new(page_bytes: u32) -> Result<Self, LayoutFault> {
        let is_size = page_bytes >= PAGE_BYTES_MIN && page_bytes <= PAGE_BYTES_MAX;
        match is_size && page_bytes.is_power_of_two() {
            true => Ok(Self { page_bytes }),
            false => Err(LayoutFault::PageBytes(page_bytes)),
        }
    }

    /// Bytes of a page.
    pub const fn page_bytes(self) -> u32 {
        self.page_bytes
    }

    /// Slots of a group.
    pub const fn group_slots(self) -> u32 {
        self.page_bytes / ENTRY
    }

    /// Where the entries of a slot's group begin, and which of them is the slot's.
    const fn place(self, slot: Slot) -> (u64, u64) {
        let (page, slots) = (self.page_bytes as u64, self.group_slots() as u64);
        let (group, within) = (slot as u64 / slots, slot as u64 % slots);
        (page + group * (slots + 1) * page, within)
    }

    /// Where a slot's entry is.
    pub const fn entry_offset(self, slot: Slot) -> u64 {
        let (group, within) = self.place(slot);
        group + within * ENTRY as u64
    }

    /// Where a slot's page is.
    pub const fn page_offset(self, slot: Slot) -> u64 {
        let (group, within) = self.place(slot);
        group + (within + 1) * self.page_bytes as u64
    }

    /// How many slots from `slot` on have their pages, and their entries, one after the other.
    pub const fn run(self, slot: Slot) -> u32 {
        self.group_slots() - slot % self.group_slots()
    }

    /// The length of a store whose slots from `next` on were never used.
    pub const fn length(self, next: Slot) -> u64 {
        let page = self.page_bytes as u64;
        match next.checked_sub(1) {
            Some(last) => self.page_offset(last) + page,
            None => page,
        }
    }
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEntry {
    /// The number of the file that the page belongs to, as the store's maker counts.
    pub file: u64,
    /// Which of the file's pages it is.
    pub block: u64,
    /// What else says whose page it is: 0 in an overlay; in a store of snapshots the device of the
    /// file (the upper half) and the number of the snapshot.
    pub owner: u64,
    /// The CRC-32C of the page's bytes.
    pub page_crc: u32,
}

impl SlotEntry {
    /// The entry's bytes.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.file.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.block.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.owner.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.page_crc.to_le_bytes());
        let crc = crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads an entry; `None` if its slot was never used.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Option<Self>, LayoutFault> {
        if *bytes == [0; ENTRY_BYTES] {
            return Ok(None);
        }
        if number(bytes, 28) != crc32c(&bytes[..28]) {
            return Err(LayoutFault::Checksum);
        }
        Ok(Some(Self {
            file: long(bytes, 0),
            block: long(bytes, 8),
            owner: long(bytes, 16),
            page_crc: number(bytes, 24),
        }))
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_header_or_an_entry_is_found() {
        let geometry = Geometry::new(8192).unwrap();
        let identity = [9; 32];
        let header = StoreHeader { geometry, identity };
        assert_eq!(StoreHeader::decode(&header.encode()), Ok(header));
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(StoreHeader::decode(&bytes).is_err(), "bit {bit}");
        }
        let entry = SlotEntry {
            file: 5,
            block: u64::MAX,
            owner: 7,
            page_crc: 0,
        };
        assert_eq!(SlotEntry::decode(&entry.encode()), Ok(Some(entry)));
        for bit in 0..ENTRY_BYTES * 8 {
            let mut bytes = entry.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SlotEntry::decode(&bytes).is_err(), "bit {bit}");
        }
        assert_eq!(SlotEntry::decode(&[0; ENTRY_BYTES]), Ok(None));
        // The entry of nothing at the beginning of a file is no empty slot.
        let first = SlotEntry {
            file: 0,
            block: 0,
            owner: 0,
            page_crc: 0,
        };
        assert_eq!(SlotEntry::decode(&first.encode()), Ok(Some(first)));
    }

    #[test]
    fn nothing_of_a_store_overlaps_and_nothing_is_left_out() {
        for page_bytes in [512, 4096, 8192, 65_536] {
            let geometry = Geometry::new(page_bytes).unwrap();
            let (page, slots) = (u64::from(page_bytes), geometry.group_slots());
            let mut end = page;
            for slot in 0..3 * slots {
                if slot % slots == 0 {
                    assert_eq!(geometry.entry_offset(slot), end);
                    end += page;
                }
                assert_eq!(geometry.page_offset(slot), end);
                assert_eq!(geometry.length(slot + 1), end + page);
                assert!(geometry.page_offset(slot).is_multiple_of(page));
                let entry = geometry.page_offset(slot - slot % slots) - page;
                let within = u64::from(slot % slots) * ENTRY_BYTES as u64;
                assert_eq!(geometry.entry_offset(slot), entry + within);
                assert_eq!(geometry.run(slot), slots - slot % slots);
                end += page;
            }
            assert_eq!(geometry.length(0), page);
            assert!(geometry.length(crate::SLOT_LAST) > geometry.page_offset(crate::SLOT_LAST - 1));
        }
        for page_bytes in [0, 256, 8191, 131_072] {
            assert!(Geometry::new(page_bytes).is_err());
        }
    }
}
