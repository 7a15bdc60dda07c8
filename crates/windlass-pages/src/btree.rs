//! Rows of PostgreSQL's B-trees: where they point to as columns of integers, then their keys cut
//! into columns.
//!
//!   | block | slot | size and flags | null bitmap, if any | key | zero up to a multiple of 8 |
//!   0       4      6                8                     8 or 16
//!
//! A posting list has its length in place of the slot, its place in place of the block, and its
//! rows behind the key. Pivots (high keys, and all of inner pages) are kept as they are.
//!
//! Invariants
//! - A row that joining its parts would not give back is kept as it is.

use crate::cut::Cutter;
use crate::error::{PagesError, invalid};
use crate::integers::{self, IntegerEncoder};
use crate::join::{Join, Joiner};
use crate::layout::Column;
use crate::number::{align_up, index, is_zero, low_u16, low_u32, u16_at, u32_at};
use crate::opaque::{self, Opaque};
use crate::pointers::{
    Inverse, POINTER_BYTES, pointer, pointer_bytes, put_pointers, take_pointers,
};
use crate::slotted::{ROW_ALIGN, Row};
use crate::streams::{Source, Streams};

const SLOT_AT: usize = 4;
const INFO_AT: usize = 6;
const HEAD_BYTES: usize = 8;
/// The head with a null bitmap, which has four bytes, and what aligns the key.
const HEAD_WITH_NULLS_BYTES: usize = 16;
const BITMAP_BYTES: usize = 4;
/// Most columns of a key: as many bits as a null bitmap has.
const KEY_COLUMNS_MAX: usize = 32;
const SIZE: u16 = 0x1FFF;
/// The row is a pivot or a posting list.
const ALTERNATIVE: u16 = 0x2000;
const HAS_NULLS: u16 = 0x8000;
/// What is kept of size and flags.
const FLAGS: u16 = 0xC000;
const IS_POSTING: u16 = 0x2000;
const POSTED: u16 = 0x0FFF;

const PLAIN: i64 = 0;
const POSTING: i64 = 1;
const WHOLE: i64 = 2;

/// The columns of integers that the heads of all rows of a frame become.
#[derive(Debug, Default)]
struct Heads {
    kinds: Vec<i64>,
    flags: Vec<i64>,
    bitmaps: Vec<i64>,
    /// Where plain rows point to.
    pointers: Vec<i64>,
    /// How many rows each posting list has.
    counts: Vec<i64>,
    posted: Vec<i64>,
}

/// A row that may be taken apart.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    row: &'a [u8],
    start: usize,
    kind: i64,
    info: u16,
    /// How many rows a posting list has.
    posted: u16,
}

impl<'a> Candidate<'a> {
    #[inline]
    fn of(start: usize, row: &'a [u8]) -> Option<Self> {
        if row.len() < HEAD_BYTES {
            return None;
        }
        let (info, slot) = (u16_at(row, INFO_AT), u16_at(row, SLOT_AT));
        let (kind, posted) = match (info & ALTERNATIVE, slot & IS_POSTING) {
            (0, _) => (PLAIN, 0),
            (_, 0) => return None,
            // PostgreSQL sets no other bits, but damage may.
            _ if slot & !(IS_POSTING | POSTED) != 0 => return None,
            _ => (POSTING, slot & POSTED),
        };
        let candidate = Self {
            row,
            start,
            kind,
            info,
            posted,
        };
        let sized = usize::from(info & SIZE) == row.len();
        (sized && candidate.head_bytes() <= row.len()).then_some(candidate)
    }

    fn has_nulls(&self) -> bool {
        self.info & HAS_NULLS != 0
    }

    fn head_bytes(&self) -> usize {
        head_bytes(self.has_nulls())
    }

    /// Whether what is around the key is what joining the parts gives.
    fn fits(&self, key_end: usize) -> bool {
        let (row, head, key_end) = (self.row, self.head_bytes(), key_end - self.start);
        let aligned = align_up(key_end, ROW_ALIGN);
        let list_end = aligned + usize::from(self.posted) * POINTER_BYTES;
        if row.len() != align_up(list_end, ROW_ALIGN) {
            return false;
        }
        let padding = is_zero(&row[key_end..aligned]) && is_zero(&row[list_end..]);
        let head_is_zero = head == HEAD_BYTES || is_zero(&row[HEAD_BYTES + BITMAP_BYTES..head]);
        let list_is_there = self.kind == PLAIN || self.list() == aligned;
        padding && head_is_zero && list_is_there
    }

    /// Where the rows of a posting list are.
    fn list(&self) -> usize {
        low_u32(pointer(self.row) >> 16) as usize
    }
}

/// The encoder's half.
#[derive(Debug, Default)]
pub(crate) struct BtreeEncoder {
    heads: Heads,
    /// Rows that may be taken apart.
    candidates: Vec<Row>,
    opaque: Opaque,
    cutter: Cutter,
}

impl BtreeEncoder {
    /// Appends all rows of a frame.
    pub(crate) fn encode(
        &mut self,
        raw: &[u8],
        rows: &[Row],
        columns: &[Column],
        integers: &mut IntegerEncoder,
        streams: &mut Streams,
    ) {
        self.heads.kinds.clear();
        self.heads.clear_all_but_kinds();
        self.opaque.clear();
        self.take_apart(raw, rows, columns);
        let heads = &mut self.heads;
        integers.encode(&heads.kinds, 1, streams);
        integers.encode(&heads.flags, 1, streams);
        integers.encode(&heads.bitmaps, 4, streams);
        put_pointers(&mut heads.pointers, integers, streams);
        integers.encode(&heads.counts, 2, streams);
        put_pointers(&mut heads.posted, integers, streams);
        self.opaque.put(integers, streams);
        self.cutter.put(raw, integers, streams);
    }

    fn take_apart(&mut self, raw: &[u8], rows: &[Row], columns: &[Column]) {
        self.cutter.start(columns);
        let possible = (1..=KEY_COLUMNS_MAX).contains(&columns.len());
        self.candidates.clear();
        let heads = &mut self.heads;
        for row in rows {
            let (start, bytes) = (row.start as usize, row.of(raw));
            let candidate = Candidate::of(start, bytes).filter(|it| {
                let bitmap = it.has_nulls().then_some(start + HEAD_BYTES);
                let (body, end) = (start + it.head_bytes(), start + bytes.len());
                possible && self.cutter.push(body, end, columns.len(), bitmap)
            });
            match candidate {
                Some(it) => {
                    heads.kinds.push(it.kind);
                    heads.push(&it);
                    self.candidates.push(*row);
                }
                None => {
                    heads.kinds.push(WHOLE);
                    self.opaque.push(bytes);
                }
            }
        }
        let candidate = |row: &Row| Candidate::of(row.start as usize, row.of(raw));
        let candidates = &self.candidates;
        let fits = self.cutter.cut(raw, |number, at, _| {
            candidate(&candidates[number]).is_some_and(|it| it.fits(at))
        });
        if fits.iter().all(|fits| *fits) {
            return;
        }
        // Again, without the rows that do not fit.
        heads.clear_all_but_kinds();
        self.opaque.clear();
        let mut fits = fits.iter();
        for (row, kind) in rows.iter().zip(&mut heads.kinds) {
            if *kind == WHOLE || fits.next() != Some(&true) {
                *kind = WHOLE;
                self.opaque.push(row.of(raw));
            }
        }
        let kinds = std::mem::take(&mut heads.kinds);
        let taken = rows.iter().zip(&kinds).filter(|(_, kind)| **kind != WHOLE);
        for row in taken.filter_map(|(row, _)| candidate(row)) {
            heads.push(&row);
        }
        heads.kinds = kinds;
    }
}

impl Heads {
    fn clear_all_but_kinds(&mut self) {
        let lists = [
            &mut self.flags,
            &mut self.bitmaps,
            &mut self.pointers,
            &mut self.counts,
            &mut self.posted,
        ];
        lists.into_iter().for_each(Vec::clear);
    }

    #[inline]
    fn push(&mut self, row: &Candidate<'_>) {
        self.flags.push(i64::from((row.info & FLAGS) >> 14));
        if row.has_nulls() {
            self.bitmaps.push(u32_at(row.row, HEAD_BYTES).into());
        }
        if row.kind == PLAIN {
            self.pointers.push(pointer(row.row).cast_signed());
            return;
        }
        self.counts.push(row.posted.into());
        let list = row.row.get(row.list()..).unwrap_or_default();
        let list = list.chunks_exact(POINTER_BYTES).take(row.posted.into());
        self.posted.extend(list.map(|it| pointer(it).cast_signed()));
    }
}

fn head_bytes(has_nulls: bool) -> usize {
    if has_nulls {
        HEAD_WITH_NULLS_BYTES
    } else {
        HEAD_BYTES
    }
}

/// The decoder's half.
#[derive(Debug, Default)]
pub(crate) struct BtreeDecoder {
    heads: Heads,
    lengths: Vec<i64>,
    joiner: Joiner,
}

impl BtreeDecoder {
    /// Reads `count` rows.
    pub(crate) fn take<'a>(
        &'a mut self,
        source: &mut Source<'a>,
        count: usize,
        columns: &[Column],
        limit: usize,
    ) -> Result<BtreeRows<'a>, PagesError> {
        let heads = &mut self.heads;
        integers::decode(source, count, &mut heads.kinds)?;
        let of = |kind| heads.kinds.iter().filter(|it| **it == kind).count();
        let (plain, postings, whole) = (of(PLAIN), of(POSTING), of(WHOLE));
        if plain + postings + whole != count {
            return Err(invalid("a row is of an unknown kind"));
        }
        if plain + postings > 0 && columns.len() > KEY_COLUMNS_MAX {
            return Err(invalid("a key has too many columns"));
        }
        integers::decode(source, plain + postings, &mut heads.flags)?;
        let nulls = heads.flags.iter().filter(|flags| has_nulls(**flags));
        let nulls = nulls.count();
        integers::decode(source, nulls, &mut heads.bitmaps)?;
        let linear = take_pointers(source, plain, &mut heads.pointers)?;
        integers::decode(source, postings, &mut heads.counts)?;
        let mut posted = 0usize;
        for count in &heads.counts {
            posted = posted.saturating_add(index(count.cast_unsigned()));
        }
        if posted > limit / POINTER_BYTES {
            return Err(invalid("posting lists are longer than the pages"));
        }
        let linear_posted = take_pointers(source, posted, &mut heads.posted)?;
        let opaque = opaque::take(source, whole, limit, &mut self.lengths)?;
        let values = values(plain + postings - nulls, &heads.bitmaps, columns.len());
        let join = self.joiner.take(source, columns, &values, limit)?;
        Ok(BtreeRows {
            heads,
            linear,
            linear_posted,
            lengths: &mut self.lengths,
            opaque,
            join,
        })
    }
}

fn has_nulls(flags: i64) -> bool {
    flags.cast_unsigned() & u64::from(HAS_NULLS >> 14) != 0
}

/// How many values each column has, if so many rows have one in each.
fn values(full: usize, bitmaps: &[i64], columns: usize) -> Vec<usize> {
    let mut counts = vec![full; columns];
    for bitmap in bitmaps {
        for (column, count) in counts.iter_mut().enumerate() {
            *count += usize::from(bitmap >> column & 1 == 1);
        }
    }
    counts
}

/// Rows that are written from the last to the first.
#[derive(Debug)]
pub(crate) struct BtreeRows<'a> {
    heads: &'a mut Heads,
    linear: Inverse,
    linear_posted: Inverse,
    lengths: &'a mut Vec<i64>,
    opaque: &'a [u8],
    join: Join<'a>,
}

const OUTSIDE: PagesError = PagesError::Invalid {
    what: "a row is outside of its page",
};

impl BtreeRows<'_> {
    /// Writes the last row that is left, and returns its length.
    pub(crate) fn write(&mut self, page: &mut [u8], at: usize) -> Result<usize, PagesError> {
        let row = page.get_mut(at..).ok_or(PagesError::Truncated)?;
        let kind = self.heads.kinds.pop().ok_or(PagesError::Truncated)?;
        if kind == WHOLE {
            let length = self.lengths.pop().ok_or(PagesError::Truncated)?;
            let bytes = opaque::last(&mut self.opaque, index(length.cast_unsigned()))?;
            row.get_mut(..bytes.len())
                .ok_or(OUTSIDE)?
                .copy_from_slice(bytes);
            return Ok(bytes.len());
        }
        let flags = self.heads.flags.pop().ok_or(PagesError::Truncated)?;
        let head_bytes = head_bytes(has_nulls(flags));
        let (head, key) = row.split_at_mut_checked(head_bytes).ok_or(OUTSIDE)?;
        if has_nulls(flags) {
            let bitmap = self.heads.bitmaps.pop().ok_or(PagesError::Truncated)?;
            let bitmap = low_u32(bitmap.cast_unsigned()).to_le_bytes();
            head[HEAD_BYTES..HEAD_BYTES + BITMAP_BYTES].copy_from_slice(&bitmap);
        }
        let bitmap = has_nulls(flags).then(|| &head[HEAD_BYTES..]);
        let columns = self.join.columns();
        let key_end = head_bytes + self.join.write(key, columns, bitmap)?;
        let end = align_up(key_end, ROW_ALIGN);
        let flags = low_u16(flags.cast_unsigned()) << 14;
        if kind == PLAIN {
            let pointer = self.heads.pointers.pop().ok_or(PagesError::Truncated)?;
            let pointer = pointer_bytes(self.linear.pointer(pointer));
            return put_head(row, pointer, flags, end);
        }
        self.write_list(row, flags, end)
    }

    fn write_list(&mut self, row: &mut [u8], flags: u16, at: usize) -> Result<usize, PagesError> {
        let count = self.heads.counts.pop().ok_or(PagesError::Truncated)?;
        let count = index(count.cast_unsigned());
        let posted = &mut self.heads.posted;
        let first = posted.len().checked_sub(count);
        let first = first.ok_or(PagesError::Truncated)?;
        let end = at + count * POINTER_BYTES;
        let list = row.get_mut(at..end).ok_or(OUTSIDE)?;
        for (into, number) in list.chunks_exact_mut(POINTER_BYTES).zip(&posted[first..]) {
            into.copy_from_slice(&pointer_bytes(self.linear_posted.pointer(*number)));
        }
        posted.truncate(first);
        let pointer = (at as u64) << 16 | count as u64 | u64::from(IS_POSTING);
        let end = align_up(end, ROW_ALIGN);
        put_head(row, pointer_bytes(pointer), flags | ALTERNATIVE, end)
    }
}

/// Writes what every row begins with, and returns its length.
fn put_head(
    row: &mut [u8],
    pointer: [u8; POINTER_BYTES],
    flags: u16,
    bytes: usize,
) -> Result<usize, PagesError> {
    if bytes > usize::from(SIZE) || bytes > row.len() {
        return Err(OUTSIDE);
    }
    row[..INFO_AT].copy_from_slice(&pointer);
    let info = low_u16(bytes as u64) | flags;
    row[INFO_AT..HEAD_BYTES].copy_from_slice(&info.to_le_bytes());
    Ok(bytes)
}
