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

mod rows;

pub(crate) use rows::BtreeDecoder;

use crate::cut::Cutter;
use crate::integers::IntegerEncoder;
use crate::layout::Column;
use crate::number::{align_up, is_zero, is_zero_between, low_u16, low_u32, u16_at, u32_at};
use crate::opaque::Opaque;
use crate::pointers::{POINTER_BYTES, pointer, put_pointers};
use crate::slotted::{ROW_ALIGN, Row};
use crate::streams::Streams;

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
        integers.encode_low(&heads.bitmaps, 4, streams);
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
            if possible && let Some((info, pointer)) = usual(bytes) {
                let (body, end) = (start + HEAD_BYTES, start + bytes.len());
                if self.cutter.push(body, end, columns.len(), None) {
                    heads.kinds.push(PLAIN);
                    heads.flags.push(i64::from((info & FLAGS) >> 14));
                    heads.pointers.push(pointer);
                    self.candidates.push(*row);
                    continue;
                }
            }
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
        let fits = self.cutter.cut(raw, |number, at, end| {
            let row = &candidates[number];
            if u16_at(raw, row.start as usize + INFO_AT) & (ALTERNATIVE | HAS_NULLS) == 0 {
                return align_up(at, ROW_ALIGN) == end && is_zero_between(raw, at, end);
            }
            candidate(row).is_some_and(|it| it.fits(at))
        });
        if !fits.iter().all(|fits| *fits) {
            take_again(heads, &mut self.opaque, raw, rows, fits);
        }
    }
}

/// Takes the heads again, without those of rows that do not fit.
fn take_again(heads: &mut Heads, opaque: &mut Opaque, raw: &[u8], rows: &[Row], fits: &[bool]) {
    heads.clear_all_but_kinds();
    opaque.clear();
    let mut fits = fits.iter();
    for (row, kind) in rows.iter().zip(&mut heads.kinds) {
        if *kind == WHOLE || fits.next() != Some(&true) {
            *kind = WHOLE;
            opaque.push(row.of(raw));
        }
    }
    let kinds = std::mem::take(&mut heads.kinds);
    let taken = rows.iter().zip(&kinds).filter(|(_, kind)| **kind != WHOLE);
    for row in taken.filter_map(|(row, _)| Candidate::of(row.start as usize, row.of(raw))) {
        heads.push(&row);
    }
    heads.kinds = kinds;
}

/// What is in the head of a row that is no pivot, no posting list, and has no NULL: size and flags,
/// and where it points to. Most rows are such, and one word has all of it.
#[inline]
fn usual(row: &[u8]) -> Option<(u16, i64)> {
    let head = u64::from_le_bytes(*row.first_chunk()?);
    let info = low_u16(head >> 48);
    if info & (ALTERNATIVE | HAS_NULLS) != 0 || usize::from(info & SIZE) != row.len() {
        return None;
    }
    let block = low_u32(head).rotate_left(16);
    let pointer = u64::from(block) << 16 | u64::from(low_u16(head >> 32));
    Some((info, pointer.cast_signed()))
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
