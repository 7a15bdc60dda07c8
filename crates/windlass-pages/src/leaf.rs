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

use crate::number::{low_u8, low_u32, u64_at};

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

/// Reads a varint: its value, and where it ends.
#[inline]
pub(crate) fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((first.into(), at + 1));
    }
    let mut value = u64::from(first & 0x7F);
    for next in at + 1..at + 8 {
        let byte = *bytes.get(next)?;
        value = value << 7 | u64::from(byte & 0x7F);
        if byte < 0x80 {
            return Some((value, next + 1));
        }
    }
    let last = *bytes.get(at + 8)?;
    Some((value << 8 | u64::from(last), at + 9))
}

/// How long SQLite writes a varint.
#[inline]
pub(crate) fn varint_bytes(value: u64) -> usize {
    let bits = (64 - value.leading_zeros()).max(1) as usize;
    bits.div_ceil(7).min(9)
}

#[inline]
pub(crate) fn put_varint(value: u64, into: &mut Vec<u8>) {
    if value < 0x80 {
        into.push(low_u8(value));
        return;
    }
    put_long_varint(value, into);
}

fn put_long_varint(value: u64, into: &mut Vec<u8>) {
    let bytes = varint_bytes(value);
    if bytes == 9 {
        for group in (0..8).rev() {
            into.push(low_u8(value >> (8 + 7 * group)) | 0x80);
        }
        into.push(low_u8(value));
        return;
    }
    for group in (1..bytes).rev() {
        into.push(low_u8(value >> (7 * group)) | 0x80);
    }
    into.push(low_u8(value) & 0x7F);
}

/// How long the header of a record is if its serial types have so many bytes.
pub(crate) fn header_bytes(types: usize) -> usize {
    let alone = types + varint_bytes(types as u64);
    types + varint_bytes(alone as u64)
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
}

pub(crate) const SERIAL_REAL: u8 = 7;
/// The serial types of the integers 0 and 1, which have no bytes.
const SERIAL_ZERO: u8 = 8;
/// And twice the length.
pub(crate) const SERIAL_BLOB: u64 = 12;
pub(crate) const SERIAL_TEXT: u64 = 13;

/// The serial type that SQLite gives an integer.
#[inline]
pub(crate) fn shortest_type(number: i64) -> u8 {
    if number == 0 || number == 1 {
        return SERIAL_ZERO + low_u8(number.cast_unsigned());
    }
    let bits = 65 - (number ^ (number >> 63)).leading_zeros();
    match bits {
        0..=8 => 1,
        9..=16 => 2,
        17..=24 => 3,
        25..=32 => 4,
        33..=48 => 5,
        _ => 6,
    }
}

/// How many bytes an integer with this serial type has.
#[inline]
pub(crate) fn integer_bytes(serial: u8) -> usize {
    match serial {
        1..=4 => serial.into(),
        5 => 6,
        6 => 8,
        _ => 0,
    }
}

/// The integer at a place, from its highest byte to the lowest, all of which are there.
#[inline]
pub(crate) fn integer(raw: &[u8], at: usize, serial: u8) -> i64 {
    let bytes = integer_bytes(serial);
    if bytes == 0 {
        return i64::from(serial - SERIAL_ZERO);
    }
    let word = match raw.get(at..at + 8) {
        Some(_) => u64_at(raw, at),
        None => {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&raw[at..at + bytes]);
            u64::from_le_bytes(word)
        }
    };
    word.swap_bytes().cast_signed() >> (64 - 8 * bytes)
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
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            prop_assert_eq!(bytes.len(), varint_bytes(value));
            prop_assert_eq!(varint(&bytes, 0), Some((value, bytes.len())));
            prop_assert_eq!(varint(&bytes[..bytes.len() - 1], 0), None);
        }

        #[test]
        fn integers_of_every_type_come_back(number in any::<i64>(), shift in 0u32..64) {
            let number = number >> shift;
            let serial = shortest_type(number);
            let bytes = integer_bytes(serial);
            let mut raw = number.to_be_bytes()[8 - bytes..].to_vec();
            prop_assert_eq!(integer(&raw, 0, serial), number);
            raw.extend([7; 8]);
            prop_assert_eq!(integer(&raw, 0, serial), number);
        }
    }
}
