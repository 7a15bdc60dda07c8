//! The WAL-index header: what is committed in the log now. All connections share it.
//!
//!   -shm = [header copy 48][header copy 48][backfill 4][read marks 5 x 4][locks 8][attempted 4]..
//!
//! Numbers are in the byte order of the machine that runs SQLite; the version field shows which
//! one. A writer changes the second copy first and then the first. So if both copies are equal and
//! the checksum is right, they are the header of one moment. See
//! <https://sqlite.org/walformat.html>.

use crate::wal::Checksum;

/// Bytes of the WAL-index that this reader looks at.
pub const WAL_INDEX_BYTES: usize = 136;

const COPY_BYTES: usize = 48;
const BACKFILL_OFFSET: usize = 2 * COPY_BYTES;
const ATTEMPTED_OFFSET: usize = 128;
pub(crate) const VERSION: u32 = 3_007_000;

/// The WAL-index header of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalIndex {
    /// Page size in bytes; 0 as long as the log is empty.
    pub page_bytes: u32,
    /// Last committed frame, from 1; 0 when the log is empty.
    pub frame_count: u32,
    /// Size of the database in pages; 0 when the file's own size counts.
    pub page_count: u32,
    /// Checksum of the last committed frame.
    pub sums: [u32; 2],
    /// The generation's salts, as they stand in the log.
    pub salts: [u8; 8],
    /// Frames known to be copied into the database file. The checksum does not cover this number:
    /// it is stored separately, and may belong to the previous generation while the log restarts.
    pub backfilled: u32,
}

impl WalIndex {
    /// Reads the header. `None` while a writer is changing it, or if nobody ever set it up.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..WAL_INDEX_BYTES)?;
        let (copy, other) = (&bytes[..COPY_BYTES], &bytes[COPY_BYTES..2 * COPY_BYTES]);
        let order = ByteOrder::of(copy)?;
        let sums = Checksum::new(order == ByteOrder::Big)
            .over(&copy[..40])
            .sums;
        let initialized = copy[12] == 1;
        if copy != other || !initialized || sums != [order.u32(copy, 40), order.u32(copy, 44)] {
            return None;
        }
        let mut salts = [0; 8];
        salts.copy_from_slice(&copy[32..40]);
        Some(Self {
            page_bytes: order.page_bytes(copy),
            frame_count: order.u32(copy, 16),
            page_count: order.u32(copy, 20),
            sums: [order.u32(copy, 24), order.u32(copy, 28)],
            salts,
            backfilled: order.u32(bytes, BACKFILL_OFFSET),
        })
    }

    /// Up to which frame somebody last began to copy the log into the file. `None` if nobody ever
    /// set the index up.
    pub(crate) fn attempted(bytes: &[u8]) -> Option<u32> {
        let bytes = bytes.get(..WAL_INDEX_BYTES)?;
        let order = ByteOrder::of(&bytes[..COPY_BYTES])?;
        Some(order.u32(bytes, ATTEMPTED_OFFSET))
    }

    /// Whether both headers belong to the same generation of the log: it did not restart in
    /// between.
    pub fn same_generation(&self, other: &Self) -> bool {
        self.salts == other.salts
    }
}

/// Byte order of the machine that runs SQLite.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    fn of(copy: &[u8]) -> Option<Self> {
        [Self::Little, Self::Big]
            .into_iter()
            .find(|order| order.u32(copy, 0) == VERSION)
    }

    fn u32(self, bytes: &[u8], offset: usize) -> u32 {
        let mut number = [0; 4];
        number.copy_from_slice(&bytes[offset..offset + 4]);
        match self {
            Self::Little => u32::from_le_bytes(number),
            Self::Big => u32::from_be_bytes(number),
        }
    }

    /// 65536 does not fit into the 16-bit field, so SQLite stores it as 1.
    fn page_bytes(self, copy: &[u8]) -> u32 {
        let number = match self {
            Self::Little => u16::from_le_bytes([copy[14], copy[15]]),
            Self::Big => u16::from_be_bytes([copy[14], copy[15]]),
        };
        if number == 1 {
            65536
        } else {
            u32::from(number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(big: bool) -> Vec<u8> {
        let put = |number: u32| {
            if big {
                number.to_be_bytes()
            } else {
                number.to_le_bytes()
            }
        };
        let mut copy = Vec::new();
        copy.extend_from_slice(&put(VERSION));
        copy.extend_from_slice(&[0; 8]);
        copy.extend_from_slice(&[1, 0]);
        let one: u16 = 1;
        copy.extend_from_slice(&if big {
            one.to_be_bytes()
        } else {
            one.to_le_bytes()
        });
        for number in [7, 5, 0xaabb_ccdd, 0x1122_3344] {
            copy.extend_from_slice(&put(number));
        }
        copy.extend_from_slice(b"saltSALT");
        let sums = Checksum::new(big).over(&copy).sums;
        copy.extend_from_slice(&put(sums[0]));
        copy.extend_from_slice(&put(sums[1]));
        let mut bytes = [copy.as_slice(), copy.as_slice()].concat();
        bytes.extend_from_slice(&put(3));
        bytes.resize(WAL_INDEX_BYTES, 0);
        bytes
    }

    #[test]
    fn both_byte_orders_read_alike() {
        let expected = WalIndex {
            page_bytes: 65536,
            frame_count: 7,
            page_count: 5,
            sums: [0xaabb_ccdd, 0x1122_3344],
            salts: *b"saltSALT",
            backfilled: 3,
        };
        assert_eq!(WalIndex::decode(&sample(false)), Some(expected));
        assert_eq!(WalIndex::decode(&sample(true)), Some(expected));
    }

    #[test]
    fn any_bit_flipped_in_either_copy_is_noticed() {
        let bytes = sample(false);
        for bit in 0..2 * COPY_BYTES * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(WalIndex::decode(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn an_index_cut_short_is_refused_at_every_length() {
        let bytes = sample(false);
        for length in 0..WAL_INDEX_BYTES {
            assert_eq!(WalIndex::decode(&bytes[..length]), None, "length {length}");
        }
    }
}
