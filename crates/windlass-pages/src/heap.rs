//! Rows of PostgreSQL's tables: their headers as columns of integers, then what follows each
//! header.
//!
//! | xmin | xmax | cid | ctid | infomask2 | infomask | hoff | null bitmap | zero up to hoff | body
//!   |
//!   0      4      8     12     18          20         22     23                           hoff
//!
//! Invariants
//! - A row whose header is not as PostgreSQL writes it is kept as it is.

use crate::cut::Cutter;
use crate::error::{PagesError, invalid};
use crate::integers::{self, IntegerEncoder};
use crate::join::{Join, Joiner};
use crate::layout::Column;
use crate::number::{align_up, index, is_zero, low_u8, low_u16, low_u32, position, u16_at, u32_at};
use crate::opaque::{self, Opaque};
use crate::places::Places;
use crate::slotted::{ROW_ALIGN, Row};
use crate::streams::{Source, Streams};

const XMAX_AT: usize = 4;
const CID_AT: usize = 8;
const CTID_AT: usize = 12;
const INFOMASK2_AT: usize = 18;
const INFOMASK_AT: usize = 20;
const HOFF_AT: usize = 22;
const BITMAP_AT: usize = 23;
/// The bits of infomask2 that say how many columns a row has.
const NATTS: u16 = 0x07FF;
/// The bit of infomask that says that there is a null bitmap.
const HAS_NULL: u16 = 1;
/// Most bytes of a null bitmap: as many bits as infomask2 can count.
const BITMAP_BYTES_MAX: usize = 256;

/// The header is taken apart, and the body is cut into columns.
const CUT: i64 = 0;
/// The header is taken apart, the body is kept.
const BODY: i64 = 1;
/// The row is kept.
const WHOLE: i64 = 2;

/// What the fields after ctid say.
#[derive(Clone, Copy, Debug)]
struct Flags(u64);

impl Flags {
    fn of(row: &[u8]) -> Self {
        let infomask2 = u64::from(u16_at(row, INFOMASK2_AT));
        let infomask = u64::from(u16_at(row, INFOMASK_AT));
        Self(infomask2 | infomask << 16 | u64::from(row[HOFF_AT]) << 32)
    }

    fn hoff(self) -> usize {
        usize::from(low_u8(self.0 >> 32))
    }

    fn natts(self) -> usize {
        usize::from(low_u16(self.0) & NATTS)
    }

    fn has_null(self) -> bool {
        low_u16(self.0 >> 16) & HAS_NULL != 0
    }

    /// The null bitmap of a row, if it has one.
    fn bitmap(self, row: &[u8]) -> Option<&[u8]> {
        let end = BITMAP_AT + self.bitmap_bytes();
        self.has_null().then(|| &row[BITMAP_AT..end])
    }

    fn bitmap_bytes(self) -> usize {
        let has_null = low_u16(self.0 >> 16) & HAS_NULL != 0;
        if has_null {
            self.natts().div_ceil(8)
        } else {
            0
        }
    }

    /// Whether the header ends where it must.
    fn is_usual(self) -> bool {
        self.hoff() == align_up(BITMAP_AT + self.bitmap_bytes(), ROW_ALIGN)
    }
}

/// The columns of integers that all headers of a frame become.
#[derive(Debug, Default)]
struct Headers {
    flags: Vec<i64>,
    xmin: Vec<i64>,
    xmax: Vec<i64>,
    cid: Vec<i64>,
    /// The block of ctid, less the page's number in the frame.
    block: Vec<i64>,
    /// The line pointer of ctid, less the row's own.
    slot: Vec<i64>,
    /// The first bytes of all null bitmaps, their second bytes, and so on.
    bitmaps: Vec<Vec<i64>>,
}

impl Headers {
    fn clear(&mut self) {
        let fixed = [
            &mut self.flags,
            &mut self.xmin,
            &mut self.xmax,
            &mut self.cid,
            &mut self.block,
            &mut self.slot,
        ];
        for column in fixed.into_iter().chain(&mut self.bitmaps) {
            column.clear();
        }
    }

    fn push(&mut self, flags: Flags, row: &Row, bytes: &[u8]) {
        let block = u32::from(u16_at(bytes, CTID_AT)) << 16 | u32::from(u16_at(bytes, CTID_AT + 2));
        let slot = u16_at(bytes, CTID_AT + 4);
        self.flags.push(flags.0.cast_signed());
        self.xmin.push(u32_at(bytes, 0).into());
        self.xmax.push(u32_at(bytes, XMAX_AT).into());
        self.cid.push(u32_at(bytes, CID_AT).into());
        self.block.push(i64::from(block) - i64::from(row.page));
        self.slot.push(i64::from(slot) - i64::from(row.slot));
        let count = flags.bitmap_bytes();
        if self.bitmaps.len() < count {
            self.bitmaps.resize_with(count, Vec::new);
        }
        let bitmap = &bytes[BITMAP_AT..BITMAP_AT + count];
        for (column, byte) in self.bitmaps.iter_mut().zip(bitmap) {
            column.push(i64::from(*byte));
        }
    }

    fn put(&self, integers: &mut IntegerEncoder, streams: &mut Streams) {
        integers.encode(&self.flags, 5, streams);
        integers.encode_low(&self.xmin, 4, streams);
        integers.encode_low(&self.xmax, 4, streams);
        integers.encode_low(&self.cid, 4, streams);
        integers.encode(&self.block, 5, streams);
        integers.encode(&self.slot, 3, streams);
        for column in &self.bitmaps {
            integers.encode_low(column, 1, streams);
        }
    }

    fn take(&mut self, source: &mut Source<'_>, count: usize) -> Result<(), PagesError> {
        integers::decode(source, count, &mut self.flags)?;
        integers::decode(source, count, &mut self.xmin)?;
        integers::decode(source, count, &mut self.xmax)?;
        integers::decode(source, count, &mut self.cid)?;
        integers::decode(source, count, &mut self.block)?;
        integers::decode(source, count, &mut self.slot)?;
        let mut counts = [0; BITMAP_BYTES_MAX + 1];
        for flags in &self.flags {
            let flags = Flags(flags.cast_unsigned());
            if !flags.is_usual() {
                return Err(invalid("a row has an impossible header"));
            }
            counts[flags.bitmap_bytes()] += 1;
        }
        // A bitmap of n bytes has a first byte, a second, and so on up to the nth.
        self.bitmaps.resize_with(BITMAP_BYTES_MAX, Vec::new);
        let mut left: usize = counts.iter().sum();
        for (column, shorter) in self.bitmaps.iter_mut().zip(counts) {
            left -= shorter;
            if left == 0 {
                break;
            }
            integers::decode(source, left, column)?;
        }
        Ok(())
    }

    /// How many values the rows that were cut have in each column.
    fn values(&self, kinds: &[i64], columns: usize) -> Result<Vec<usize>, PagesError> {
        let mut counts = vec![0; columns];
        // How many rows have exactly so many columns, and a value in each.
        let mut full = vec![0; columns + 1];
        let mut bitmaps = [0usize; BITMAP_BYTES_MAX];
        let kinds = kinds.iter().filter(|kind| **kind != WHOLE);
        for (kind, flags) in kinds.zip(&self.flags) {
            let flags = Flags(flags.cast_unsigned());
            let (natts, bitmap_bytes) = (flags.natts(), flags.bitmap_bytes());
            if *kind == CUT && natts > columns {
                return Err(invalid("a row has more columns than its table"));
            }
            if *kind == CUT && bitmap_bytes == 0 {
                full[natts] += 1;
            } else if *kind == CUT {
                for (column, count) in counts[..natts].iter_mut().enumerate() {
                    let byte = self.bitmaps[column / 8][bitmaps[column / 8]];
                    *count += usize::from(byte >> (column % 8) & 1 == 1);
                }
            }
            bitmaps[..bitmap_bytes]
                .iter_mut()
                .for_each(|next| *next += 1);
        }
        let mut rows = 0;
        for (count, full) in counts.iter_mut().zip(&full[1..]).rev() {
            rows += full;
            *count += rows;
        }
        Ok(counts)
    }

    /// Removes the last header, and writes it.
    #[inline]
    fn pop(&mut self, row: &mut [u8], slot: u32, page: usize) -> Result<Flags, PagesError> {
        let next = |column: &mut Vec<i64>| match column.pop() {
            Some(number) => Ok(number.cast_unsigned()),
            None => Err(PagesError::Truncated),
        };
        let flags = Flags(next(&mut self.flags)?);
        let head = row.get_mut(..flags.hoff());
        let head = head.and_then(|head| head.split_first_chunk_mut::<BITMAP_AT>());
        let (fixed, rest) = head.ok_or(invalid("a row is outside of its page"))?;
        let xmin = low_u32(next(&mut self.xmin)?).to_le_bytes();
        let xmax = low_u32(next(&mut self.xmax)?).to_le_bytes();
        let cid = low_u32(next(&mut self.cid)?).to_le_bytes();
        let block = next(&mut self.block)?.wrapping_add(page as u64);
        let block = low_u32(block).rotate_left(16).to_le_bytes();
        let own = low_u16(next(&mut self.slot)?.wrapping_add(slot.into())).to_le_bytes();
        fixed[..XMAX_AT].copy_from_slice(&xmin);
        fixed[XMAX_AT..CID_AT].copy_from_slice(&xmax);
        fixed[CID_AT..CTID_AT].copy_from_slice(&cid);
        fixed[CTID_AT..CTID_AT + 4].copy_from_slice(&block);
        fixed[CTID_AT + 4..INFOMASK2_AT].copy_from_slice(&own);
        fixed[INFOMASK2_AT..].copy_from_slice(&flags.0.to_le_bytes()[..BITMAP_AT - INFOMASK2_AT]);
        for (byte, column) in rest[..flags.bitmap_bytes()]
            .iter_mut()
            .zip(&mut self.bitmaps)
        {
            let popped = column.pop().ok_or(PagesError::Truncated)?;
            *byte = low_u8(popped.cast_unsigned());
        }
        Ok(flags)
    }
}

/// The encoder's half.
#[derive(Debug, Default)]
pub(crate) struct HeapEncoder {
    kinds: Vec<i64>,
    headers: Headers,
    opaque: Opaque,
    cutter: Cutter,
}

impl HeapEncoder {
    /// Appends all rows of a frame.
    pub(crate) fn encode(
        &mut self,
        raw: &[u8],
        rows: &[Row],
        columns: &[Column],
        integers: &mut IntegerEncoder,
        streams: &mut Streams,
    ) {
        self.kinds.clear();
        self.headers.clear();
        self.opaque.clear();
        self.cutter.start(columns);
        for row in rows {
            let kind = self.row(row, row.of(raw));
            self.kinds.push(kind);
        }
        let mut fits = self.cutter.cut(raw, |_, at, end| at == end).iter();
        for (row, kind) in rows.iter().zip(&mut self.kinds) {
            if *kind == CUT && fits.next() != Some(&true) {
                *kind = BODY;
            }
            match *kind {
                WHOLE => self.opaque.push(row.of(raw)),
                BODY => {
                    let bytes = row.of(raw);
                    self.opaque.push(&bytes[Flags::of(bytes).hoff()..]);
                }
                _ => {}
            }
        }
        integers.encode(&self.kinds, 1, streams);
        self.headers.put(integers, streams);
        self.opaque.put(integers, streams);
        self.cutter.put(raw, integers, streams);
    }

    /// Takes the header of a row apart, and returns what the row is if its body fits.
    fn row(&mut self, row: &Row, bytes: &[u8]) -> i64 {
        if !has_usual_header(bytes) {
            return WHOLE;
        }
        let flags = Flags::of(bytes);
        self.headers.push(flags, row, bytes);
        let start = row.start as usize;
        let bitmap = flags.has_null().then_some(start + BITMAP_AT);
        let (body, end) = (start + flags.hoff(), start + bytes.len());
        match self.cutter.push(body, end, flags.natts(), bitmap) {
            true => CUT,
            false => BODY,
        }
    }
}

fn has_usual_header(row: &[u8]) -> bool {
    if row.len() < BITMAP_AT {
        return false;
    }
    let flags = Flags::of(row);
    let ends = flags.is_usual() && flags.hoff() <= row.len();
    ends && is_zero(&row[BITMAP_AT + flags.bitmap_bytes()..flags.hoff()])
}

/// The decoder's half.
#[derive(Debug, Default)]
pub(crate) struct HeapDecoder {
    kinds: Vec<i64>,
    headers: Headers,
    lengths: Vec<i64>,
    joiner: Joiner,
    cut_lengths: Vec<u32>,
    starts: Vec<u32>,
    places: Places,
}

impl HeapDecoder {
    /// Reads `count` rows.
    pub(crate) fn take<'a>(
        &'a mut self,
        source: &mut Source<'a>,
        count: usize,
        columns: &[Column],
        limit: usize,
    ) -> Result<HeapRows<'a>, PagesError> {
        integers::decode(source, count, &mut self.kinds)?;
        let (mut whole, mut cut) = (0, 0);
        for kind in &self.kinds {
            match *kind {
                CUT => cut += 1,
                BODY => {}
                WHOLE => whole += 1,
                _ => return Err(invalid("a row is of an unknown kind")),
            }
        }
        self.headers.take(source, count - whole)?;
        let opaque = opaque::take(source, count - cut, limit, &mut self.lengths)?;
        let counts = self.headers.values(&self.kinds, columns.len())?;
        let join = self.joiner.take(source, columns, &counts, limit)?;
        let all_at_once = cut > 0 && counts.iter().all(|count| *count == cut);
        if all_at_once {
            join.lengths(cut, &mut self.places, &mut self.cut_lengths);
        }
        self.starts.clear();
        Ok(HeapRows {
            all_at_once,
            cut_lengths: &mut self.cut_lengths,
            starts: &mut self.starts,
            places: &mut self.places,
            kinds: &mut self.kinds,
            headers: &mut self.headers,
            lengths: &mut self.lengths,
            opaque,
            join,
        })
    }
}

/// Rows that are written from the last to the first.
#[derive(Debug)]
pub(crate) struct HeapRows<'a> {
    kinds: &'a mut Vec<i64>,
    headers: &'a mut Headers,
    lengths: &'a mut Vec<i64>,
    opaque: &'a [u8],
    join: Join<'a>,
    /// Whether each row that was cut has a value in each column; then their bodies are written at
    /// the end.
    all_at_once: bool,
    cut_lengths: &'a mut Vec<u32>,
    /// Where they begin in the frame, from the last to the first.
    starts: &'a mut Vec<u32>,
    places: &'a mut Places,
}

impl HeapRows<'_> {
    /// Writes the last row that is left, and returns its length.
    pub(crate) fn write(
        &mut self,
        page: &mut [u8],
        at: usize,
        slot: u32,
        (number, page_bytes): (usize, usize),
    ) -> Result<usize, PagesError> {
        let row = page.get_mut(at..).ok_or(PagesError::Truncated)?;
        let kind = self.kinds.pop().ok_or(PagesError::Truncated)?;
        if kind == WHOLE {
            return self.write_opaque(row, 0);
        }
        let flags = self.headers.pop(row, slot, number)?;
        if kind == BODY {
            return self.write_opaque(row, flags.hoff());
        }
        let start = at + flags.hoff();
        if !start.is_multiple_of(ROW_ALIGN) {
            return Err(invalid("a row that was cut is not aligned"));
        }
        if self.all_at_once {
            let length = self.cut_lengths.pop().ok_or(PagesError::Truncated)? as usize;
            self.starts.push(position(number * page_bytes + start));
            let inside = start + length <= page.len();
            return inside
                .then_some(flags.hoff() + length)
                .ok_or(invalid("a row is outside of its page"));
        }
        let (head, body) = row.split_at_mut(flags.hoff());
        let written = self.join.write(body, flags.natts(), flags.bitmap(head))?;
        Ok(flags.hoff() + written)
    }

    /// Writes what was left for the end.
    pub(crate) fn finish(&mut self, raw: &mut [u8]) -> Result<(), PagesError> {
        if !self.all_at_once {
            return Ok(());
        }
        self.places.start(self.starts.iter().rev().copied());
        self.join.write_all(raw, self.places)
    }

    fn write_opaque(&mut self, row: &mut [u8], head: usize) -> Result<usize, PagesError> {
        let length = self.lengths.pop().ok_or(PagesError::Truncated)?;
        let body = opaque::last(&mut self.opaque, index(length.cast_unsigned()))?;
        let target = row.get_mut(head..head + body.len());
        let target = target.ok_or(invalid("a row is outside of its page"))?;
        target.copy_from_slice(body);
        Ok(head + body.len())
    }
}
