//! Columns to cells of SQLite: one cell after the other, in the order of their keys, each written
//! from its end to its beginning.
//!
//!   | <-- front --> | ... cell 3 | cell 2 | cell 1 |
//!                                ^ the next cell ends here
//!
//! What stands before a value says how long it is. So who writes backwards knows it when its turn
//! comes, and an integer of any length is one word, of which the next value takes back what was too
//! much.
//!
//! Invariants
//! - Cells are never longer than their room, or they are refused.

use crate::error::{PagesError, invalid};
use crate::leaf::{
    SERIAL_BLOB, SERIAL_REAL, SERIAL_TEXT, VALUES_MAX, header_bytes, integer_bytes, kind,
    put_varint, shortest,
};
use crate::number::{index, low_u8, u64_at};
use crate::records_back::{BLOBS, Group, INTEGERS, LISTS, REALS, TEXTS, kinds_of};
use crate::texts::Span;

/// Cells begin behind so many bytes of their room. A value may be written with what is before it:
/// at most as much as this.
pub(crate) const FRONT: usize = 64;
/// How many bytes of a text are copied at once. Most texts are short, and a copy of a fixed length
/// is much faster.
const STRIDE: usize = 48;
const _: () = assert!(STRIDE <= FRONT);
/// A serial type has at most so many bytes: a text is not longer than its frame.
const SERIAL_BYTES_MAX: usize = 4;
/// How many bytes of the serial types are copied at once.
const TYPES_STRIDE: usize = 32;
const _: () = assert!(TYPES_STRIDE <= FRONT);

/// Memory for the serial types of one record, which are written from the end too.
#[derive(Debug)]
pub(crate) struct TypesRoom(Box<[u8]>);

impl Default for TypesRoom {
    fn default() -> Self {
        Self(vec![0; FRONT + SERIAL_BYTES_MAX * VALUES_MAX].into())
    }
}

/// The records of a frame while cells are written.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    pub(crate) forms: &'a [i64],
    pub(crate) leaf_groups: &'a [i64],
    pub(crate) form_ends: &'a [u32],
    pub(crate) kinds: &'a [u8],
    pub(crate) groups: &'a mut [Group],
    /// Where the next value of each list of each column is among all of its sort.
    pub(crate) next: &'a mut [[u32; LISTS]],
    pub(crate) numbers: &'a [i64],
    pub(crate) spans: &'a [Span],
    /// Where the bytes of the texts and the blobs of each column are.
    pub(crate) bytes: Vec<[&'a [u8]; 2]>,
    pub(crate) lengths: std::slice::Iter<'a, i64>,
    pub(crate) opaque: &'a [u8],
    pub(crate) types: &'a mut TypesRoom,
}

impl Records<'_> {
    /// Writes the next cell, which is in this leaf of the frame, so that it ends at `end` of its
    /// room. Returns where it begins: not before [`FRONT`].
    #[inline]
    pub(crate) fn write(
        &mut self,
        leaf: usize,
        is_table: bool,
        room: &mut [u8],
        end: usize,
    ) -> Result<usize, PagesError> {
        let (form, rest) = self.forms.split_first().ok_or(PagesError::Truncated)?;
        self.forms = rest;
        if *form == 0 {
            return self.write_kept(room, end);
        }
        let mut cell = Cell::new(room, end, &mut self.types.0);
        let group = &mut self.groups[index(self.leaf_groups[leaf].cast_unsigned())];
        let kinds = kinds_of(*form, self.form_ends, self.kinds);
        let columns = group.first..group.first + kinds.len();
        let columns = self.next[columns.clone()]
            .iter_mut()
            .zip(&self.bytes[columns]);
        for (kind, (next, bytes)) in kinds.iter().zip(columns).rev() {
            let mut take = |list: usize| {
                next[list] += 1;
                next[list] as usize - 1
            };
            match *kind {
                kind::NULL => cell.put_type(0),
                kind::INTEGER => cell.put_integer(self.numbers[take(INTEGERS)])?,
                kind::REAL => cell.put_real(self.numbers[take(REALS)])?,
                kind::TEXT => cell.put_text(bytes[0], self.spans[take(TEXTS)], SERIAL_TEXT)?,
                kind::BLOB => cell.put_text(bytes[1], self.spans[take(BLOBS)], SERIAL_BLOB)?,
                long => cell.put_long(self.numbers[take(INTEGERS)], long - kind::LONG)?,
            }
        }
        let rowid = is_table.then(|| {
            group.next_rowid += 1;
            self.numbers[group.next_rowid - 1].cast_unsigned()
        });
        cell.finish(end, rowid)
    }

    /// Writes a cell that was kept whole.
    fn write_kept(&mut self, room: &mut [u8], end: usize) -> Result<usize, PagesError> {
        let length = *self.lengths.next().ok_or(PagesError::Truncated)?;
        let cell = self.opaque.split_at_checked(index(length.cast_unsigned()));
        let (cell, rest) = cell.ok_or(PagesError::Truncated)?;
        self.opaque = rest;
        let start = end.checked_sub(cell.len()).filter(|at| *at >= FRONT);
        let start = start.ok_or(TOO_LONG)?;
        room[start..end].copy_from_slice(cell);
        Ok(start)
    }
}

const TOO_LONG: PagesError = invalid("a page has more bytes in its cells than room");

/// A cell that is being written: its values, and apart from them their serial types.
struct Cell<'a> {
    room: &'a mut [u8],
    /// Where the value that was written last begins.
    at: usize,
    types: &'a mut [u8],
    types_at: usize,
}

impl<'a> Cell<'a> {
    #[inline]
    fn new(room: &'a mut [u8], end: usize, types: &'a mut [u8]) -> Self {
        let types_at = types.len();
        Self {
            room,
            at: end,
            types,
            types_at,
        }
    }

    #[inline]
    fn put_type(&mut self, serial: u8) {
        self.types_at -= 1;
        self.types[self.types_at] = serial;
    }

    /// Writes a word, of which only the last bytes count.
    #[inline]
    fn put_word(&mut self, word: [u8; 8], bytes: usize) -> Result<(), PagesError> {
        if self.at < FRONT {
            return Err(TOO_LONG);
        }
        self.room[self.at - 8..self.at].copy_from_slice(&word);
        self.at -= bytes;
        Ok(())
    }

    #[inline]
    fn put_integer(&mut self, number: i64) -> Result<(), PagesError> {
        let (serial, bytes) = shortest(number);
        self.put_type(serial);
        self.put_word(number.to_be_bytes(), bytes.into())
    }

    #[inline]
    fn put_long(&mut self, number: i64, serial: u8) -> Result<(), PagesError> {
        self.put_type(serial);
        self.put_word(number.to_be_bytes(), integer_bytes(serial))
    }

    #[inline]
    fn put_real(&mut self, bits: i64) -> Result<(), PagesError> {
        self.put_type(SERIAL_REAL);
        self.put_word(bits.to_be_bytes(), 8)
    }

    #[inline]
    fn put_text(&mut self, bytes: &[u8], text: Span, serial: u64) -> Result<(), PagesError> {
        let (from, count) = (text.at as usize, text.bytes as usize);
        let serial = serial + 2 * u64::from(text.bytes);
        match serial {
            ..0x80 => self.put_type(low_u8(serial)),
            _ => self.types_at = put_varint(serial, self.types, self.types_at),
        }
        if count <= 8
            && let Some(word) = bytes.get(from..from + 8)
        {
            let unused = 64 - 8 * count;
            // Two steps, because a shift by 64 is none.
            let word = u64_at(word, 0) << (unused / 2) << (unused - unused / 2);
            return self.put_word(word.to_le_bytes(), count);
        }
        let stride = bytes.get(..from + count);
        let stride = stride.and_then(|bytes| bytes.last_chunk::<STRIDE>());
        if let Some(stride) = stride.filter(|_| count <= STRIDE) {
            if self.at < FRONT {
                return Err(TOO_LONG);
            }
            self.room[self.at - STRIDE..self.at].copy_from_slice(stride);
            self.at -= count;
            return Ok(());
        }
        self.put_bytes(bytes.get(from..from + count).ok_or(PagesError::Truncated)?)
    }

    /// Writes bytes, no more than that.
    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), PagesError> {
        let start = self.at.checked_sub(bytes.len()).ok_or(TOO_LONG)?;
        self.room[start..self.at].copy_from_slice(bytes);
        self.at = start;
        Ok(())
    }

    /// Writes what stands before the values, and returns where the cell begins.
    #[inline]
    fn finish(mut self, end: usize, rowid: Option<u64>) -> Result<usize, PagesError> {
        let body = end - self.at;
        let types = self.types.len() - self.types_at;
        let header = header_bytes(types);
        if self.at < FRONT + types {
            return Err(TOO_LONG);
        }
        match self.types.last_chunk::<TYPES_STRIDE>() {
            Some(last) if types <= TYPES_STRIDE => {
                self.room[self.at - TYPES_STRIDE..self.at].copy_from_slice(last);
            }
            _ => {
                let types = &self.types[self.types_at..];
                self.room[self.at - types.len()..self.at].copy_from_slice(types);
            }
        }
        self.at = put_varint(header as u64, self.room, self.at - types);
        if let Some(rowid) = rowid {
            self.at = put_varint(rowid, self.room, self.at);
        }
        self.at = put_varint((header + body) as u64, self.room, self.at);
        match self.at {
            FRONT.. => Ok(self.at),
            _ => Err(TOO_LONG),
        }
    }
}
