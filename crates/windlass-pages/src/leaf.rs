//! Leaves of SQLite's trees: what a page, a cell and a record look like.
//!
//!   | header | cell pointers --> |  gap  | cell n | ... | cell 2 | cell 1 | reserved |
//!   0        8                                                           usable
//!
//!   cell of a table   payload length, rowid, record      (and a page number, if the record goes on
//!   cell of an index  payload length, record              on an overflow page)
//!   record            header length, serial types, values
//!
//! Numbers that SQLite writes as varints are only read if they are as short as they can be, so that
//! writing them gives the same bytes.

use crate::number::{index, low_u8, low_u32, u64_at};

pub(crate) const HEADER_BYTES: usize = 8;
pub(crate) const POINTER_BYTES: usize = 2;
pub(crate) const FREEBLOCK_AT: usize = 1;
pub(crate) const COUNT_AT: usize = 3;
pub(crate) const CONTENT_AT: usize = 5;
pub(crate) const FRAGMENTS_AT: usize = 7;
/// The first byte of a leaf of an index, and of a leaf of a table.
const INDEX: u8 = 10;
const TABLE: u8 = 13;
/// A page has at least so many bytes without the reserved ones: SQLite's limit.
pub(crate) const USABLE_MIN: usize = 480;
/// A record with more values is kept as it is.
pub(crate) const VALUES_MAX: usize = 2000;
/// Most columns of all groups of pages in a frame.
pub(crate) const COLUMNS_MAX: usize = 4096;

pub(crate) const RAW: i64 = 0;
pub(crate) const ZERO: i64 = 1;
pub(crate) const PARSED: i64 = 2;
/// Parsed, and bytes that nothing covers are not all zero.
pub(crate) const REMAINS: i64 = 3;

/// The lengths that all pages of a frame have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) page_bytes: usize,
    /// Without the reserved bytes at the end.
    pub(crate) usable: usize,
}

/// Whether a page with this first byte is a leaf of a table; `None` if it is not a leaf.
pub(crate) fn is_table(first: u8) -> Option<bool> {
    match first {
        TABLE => Some(true),
        INDEX => Some(false),
        _ => None,
    }
}

impl Form {
    /// How many bytes of a payload are in its cell, and whether the others are elsewhere.
    pub(crate) fn local(self, is_table: bool, payload: u64) -> (usize, bool) {
        let usable = self.usable as u64;
        let least = (usable - 12) * 32 / 255 - 23;
        let most = match is_table {
            true => usable - 35,
            false => (usable - 12) * 64 / 255 - 23,
        };
        if payload <= most {
            return (low_u32(payload) as usize, false);
        }
        let rest = least + (payload - least) % (usable - 4);
        let local = if rest <= most { rest } else { least };
        (low_u32(local) as usize, true)
    }
}

/// A varint that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Varint {
    pub(crate) value: u64,
    /// Where it ends.
    pub(crate) end: usize,
    /// Whether it is as short as SQLite writes it.
    pub(crate) is_short: bool,
}

/// Reads a varint.
#[inline]
pub(crate) fn varint(bytes: &[u8], at: usize) -> Option<Varint> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some(Varint {
            value: first.into(),
            end: at + 1,
            is_short: true,
        });
    }
    let mut value = u64::from(first & 0x7F);
    for next in at + 1..at + 8 {
        let byte = *bytes.get(next)?;
        value = value << 7 | u64::from(byte & 0x7F);
        if byte < 0x80 {
            return Some(Varint {
                value,
                end: next + 1,
                is_short: first != 0x80,
            });
        }
    }
    let last = *bytes.get(at + 8)?;
    let value = value << 8 | u64::from(last);
    Some(Varint {
        value,
        end: at + VARINT_BYTES_MAX,
        // Eight bytes have 56 bits.
        is_short: value >> 56 > 0,
    })
}

const VARINT_BYTES_MAX: usize = 9;

/// Writes a varint that ends at `end`, and returns where it begins. There is room for nine bytes,
/// and each of them may be written: a varint is one word, of which the first bytes do not count.
#[inline]
pub(crate) fn put_varint(value: u64, room: &mut [u8], end: usize) -> usize {
    if value < 0x80 {
        room[end - 1] = low_u8(value);
        return end - 1;
    }
    put_long_varint(value, room, end)
}

/// The bit that says of each of eight bytes that others follow.
const MORE: u64 = 0x8080_8080_8080_8080;

#[inline]
fn put_long_varint(value: u64, room: &mut [u8], end: usize) -> usize {
    if value >> 56 > 0 {
        // Only the last of nine bytes has eight bits of the number, and the others are all there.
        room[end - 1] = low_u8(value);
        let word = spread(value >> 8) | MORE;
        room[end - VARINT_BYTES_MAX..end - 1].copy_from_slice(&word.to_be_bytes());
        return end - VARINT_BYTES_MAX;
    }
    let word = spread(value) | (MORE & !0x80);
    room[end - 8..end].copy_from_slice(&word.to_be_bytes());
    end - (64 - value.leading_zeros()).div_ceil(7) as usize
}

/// The lowest 56 bits of a number, seven in each byte.
#[inline]
fn spread(value: u64) -> u64 {
    let two = (value & 0x0FFF_FFFF) | ((value << 4) & 0x0FFF_FFFF_0000_0000);
    let four = (two & 0x3FFF_0000_3FFF) | ((two << 2) & 0x3FFF_0000_3FFF_0000);
    (four & 0x007F_007F_007F_007F) | ((four << 1) & 0x7F00_7F00_7F00_7F00)
}

/// How long the header of a record is if its serial types have so many bytes.
#[inline]
pub(crate) fn header_bytes(types: usize) -> usize {
    // The length counts its own bytes too. No page has a record with a header of 2^21 bytes.
    match types {
        ..0x7F => types + 1,
        0x7F..0x3FFE => types + 2,
        _ => types + 3,
    }
}

/// What kind of value a column has.
pub(crate) mod kind {
    pub(crate) const NULL: u8 = 0;
    /// An integer whose serial type is the shortest.
    pub(crate) const INTEGER: u8 = 1;
    pub(crate) const REAL: u8 = 2;
    pub(crate) const TEXT: u8 = 3;
    pub(crate) const BLOB: u8 = 4;
    /// And the serial types 1 to 6: integers that are longer than they need to be.
    pub(crate) const LONG: u8 = 4;
    pub(crate) const COUNT: u8 = 11;
    /// No value has this serial type.
    pub(crate) const IMPOSSIBLE: u8 = 0x80;
}

/// What a serial type of one byte says of its value: its kind, if an integer is as short as it can
/// be, and how many bytes it has.
pub(crate) static SERIALS: [(u8, u8); 128] = {
    let mut table = [(kind::IMPOSSIBLE, 0); 128];
    let mut serial = 0;
    while serial < 128 {
        let (kind, bytes) = match serial {
            0 => (kind::NULL, 0),
            SERIAL_REAL => (kind::REAL, 8),
            1..=9 => (kind::INTEGER, INTEGER_BYTES[serial as usize]),
            10 | 11 => (kind::IMPOSSIBLE, 0),
            _ if serial % 2 == 0 => (kind::BLOB, (serial - 12) / 2),
            _ => (kind::TEXT, (serial - 12) / 2),
        };
        table[serial as usize] = (kind, bytes);
        serial += 1;
    }
    table
};

/// The magnitude that an integer has at least if this serial type is the shortest for it.
static LEAST: [u64; 16] = {
    let mut table = [0; 16];
    let mut serial = 2;
    while serial <= 6 {
        table[serial] = 1 << (8 * INTEGER_BYTES[serial - 1] - 1);
        serial += 1;
    }
    table
};

/// Whether SQLite gives an integer this serial type, with which it was read.
#[inline]
pub(crate) fn is_shortest(number: i64, serial: u8) -> bool {
    let magnitude = (number ^ (number >> 63)).cast_unsigned();
    let has_bytes = number.cast_unsigned() > 1 || serial >= SERIAL_ZERO;
    (magnitude >= LEAST[usize::from(serial & 15)]) & has_bytes
}

pub(crate) const SERIAL_REAL: u8 = 7;
/// The serial types of the integers 0 and 1, which have no bytes.
const SERIAL_ZERO: u8 = 8;
/// And twice the length.
pub(crate) const SERIAL_BLOB: u64 = 12;
pub(crate) const SERIAL_TEXT: u64 = 13;

/// How many bytes a text or a blob with this serial type has.
#[inline]
pub(crate) fn text_bytes(serial: u32) -> u32 {
    const FIRST: u32 = 12;
    (serial - FIRST) / 2
}

/// The serial type that SQLite gives an integer.
#[cfg(test)]
pub(crate) fn shortest_type(number: i64) -> u8 {
    shortest(number).0
}

/// The shortest serial type and its bytes, by the leading zeros of a number without its sign (1 to
/// 64). Behind them are those of the numbers 0 and 1. The length is a power of two, so that the
/// compiler sees that every index is inside.
static SHORTEST: [(u8, u8); 128] = {
    let mut table = [(0, 0); 128];
    let mut zeros = 0;
    while zeros <= 64 {
        table[zeros] = match 65 - zeros {
            ..=8 => (1, 1),
            9..=16 => (2, 2),
            17..=24 => (3, 3),
            25..=32 => (4, 4),
            33..=48 => (5, 6),
            _ => (6, 8),
        };
        zeros += 1;
    }
    table[AT_ZERO] = (SERIAL_ZERO, 0);
    table[AT_ZERO + 1] = (SERIAL_ZERO + 1, 0);
    table
};
const AT_ZERO: usize = 65;

/// The serial type that SQLite gives an integer, and how many bytes it then has.
#[inline]
pub(crate) fn shortest(number: i64) -> (u8, u8) {
    let bits = number.cast_unsigned();
    let at = match bits {
        0 | 1 => AT_ZERO + index(bits),
        _ => (number ^ (number >> 63)).leading_zeros() as usize,
    };
    SHORTEST[at & (SHORTEST.len() - 1)]
}

/// How many bytes an integer with each serial type has.
static INTEGER_BYTES: [u8; 16] = [0, 1, 2, 3, 4, 6, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// How many bytes an integer with this serial type has.
#[inline]
pub(crate) fn integer_bytes(serial: u8) -> usize {
    INTEGER_BYTES[usize::from(serial & 15)].into()
}

/// The integer at a place, from its highest byte to the lowest, all of which are there.
#[inline]
pub(crate) fn integer(raw: &[u8], at: usize, serial: u8) -> i64 {
    let bytes = integer_bytes(serial);
    let word = match raw.get(at..at + 8) {
        Some(_) => u64_at(raw, at),
        None => {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&raw[at..at + bytes]);
            u64::from_le_bytes(word)
        }
    };
    let unused = 64 - 8 * bytes;
    // Two steps, because a shift by 64 is none.
    let number = word.swap_bytes().cast_signed() >> (unused / 2) >> (unused - unused / 2);
    match bytes {
        0 => i64::from(serial & 1),
        _ => number,
    }
}

pub(crate) fn u16_be(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_shortest_type_is_that_of_sqlite() {
        let numbers = [
            (0, 8),
            (1, 9),
            (-1, 1),
            (127, 1),
            (128, 2),
            (-32_769, 3),
            (8_388_607, 3),
            (8_388_608, 4),
            (i64::from(i32::MIN), 4),
            (1 << 31, 5),
            ((1 << 47) - 1, 5),
            (1 << 47, 6),
            (i64::MIN, 6),
        ];
        for (number, serial) in numbers {
            assert_eq!(shortest_type(number), serial, "{number}");
        }
    }

    proptest! {
        #[test]
        fn varints_come_back(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut room = [7; 12];
            let start = put_varint(value, &mut room, 11);
            prop_assert!(start >= 2);
            prop_assert_eq!((&room[..2], room[11]), (&[7, 7][..], 7));
            let bytes = &room[start..11];
            let found = Varint { value, end: bytes.len(), is_short: true };
            prop_assert_eq!(varint(bytes, 0), Some(found));
            prop_assert_eq!(varint(&bytes[..bytes.len() - 1], 0), None);
        }

        #[test]
        fn a_varint_is_short_if_it_is_written_like_that(
            bytes in prop::array::uniform9(any::<u8>()),
        ) {
            for start in 0..9 {
                // Zeros before a number make it longer.
                let mut bytes = bytes;
                bytes[..start].fill(0x80);
                let Some(found) = varint(&bytes, 0) else { unreachable!("nine bytes are enough") };
                let mut room = [0; 9];
                let start = put_varint(found.value, &mut room, 9);
                prop_assert_eq!(found.is_short, room[start..] == bytes[..found.end]);
            }
        }

        #[test]
        fn integers_of_every_type_come_back(number in any::<i64>(), shift in 0u32..64) {
            let number = number >> shift;
            let serial = shortest_type(number);
            let bytes = integer_bytes(serial);
            let mut raw = number.to_be_bytes()[8 - bytes..].to_vec();
            prop_assert_eq!(integer(&raw, 0, serial), number);
            for other in serial..=if serial < SERIAL_ZERO { 6 } else { serial } {
                prop_assert_eq!(is_shortest(number, other), other == serial);
            }
            raw.extend([7; 8]);
            prop_assert_eq!(integer(&raw, 0, serial), number);
        }
    }
}
