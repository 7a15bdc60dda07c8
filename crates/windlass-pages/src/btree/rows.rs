//! Rows of PostgreSQL's B-trees, put together.

use super::{
    ALTERNATIVE, BITMAP_BYTES, HAS_NULLS, HEAD_BYTES, Heads, INFO_AT, IS_POSTING, KEY_COLUMNS_MAX,
    PLAIN, POSTING, SIZE, WHOLE, head_bytes,
};
use crate::error::{PagesError, invalid};
use crate::integers;
use crate::join::{Join, Joiner};
use crate::layout::Column;
use crate::number::{align_up, index, low_u16, low_u32, position};
use crate::opaque;
use crate::places::Places;
use crate::pointers::{Inverse, POINTER_BYTES, pointer_bytes, take_pointers};
use crate::slotted::ROW_ALIGN;
use crate::streams::Source;

/// The decoder's half.
#[derive(Debug, Default)]
pub(crate) struct BtreeDecoder {
    heads: Heads,
    lengths: Vec<i64>,
    joiner: Joiner,
    key_lengths: Vec<u32>,
    words: Vec<u64>,
    starts: Vec<u32>,
    places: Places,
}

/// The head of each row, one word for each, if no row is a posting list or has a NULL.
fn put_words(
    heads: &Heads,
    linear: Inverse,
    key_lengths: &[u32],
    words: &mut Vec<u64>,
) -> Result<(), PagesError> {
    let mut all = 0;
    let rows = heads.flags.iter().zip(&heads.pointers).zip(key_lengths);
    words.extend(rows.map(|((flags, pointer), length)| {
        let bytes = align_up(HEAD_BYTES + *length as usize, ROW_ALIGN) as u64;
        all |= bytes;
        let pointer = linear.pointer(*pointer);
        let block = u64::from(low_u32(pointer >> 16).rotate_left(16));
        let info = bytes | (flags.cast_unsigned() << 14 & 0xFFFF);
        block | u64::from(low_u16(pointer)) << 32 | info << 48
    }));
    if all > SIZE.into() {
        return Err(OUTSIDE);
    }
    Ok(())
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
        let all_at_once = nulls == 0;
        if all_at_once {
            join.lengths(plain + postings, &mut self.places, &mut self.key_lengths);
        }
        self.words.clear();
        if all_at_once && postings == 0 {
            put_words(heads, linear, &self.key_lengths, &mut self.words)?;
        }
        self.starts.clear();
        Ok(BtreeRows {
            words: &mut self.words,
            heads,
            linear,
            linear_posted,
            lengths: &mut self.lengths,
            opaque,
            join,
            all_at_once,
            key_lengths: &mut self.key_lengths,
            starts: &mut self.starts,
            places: &mut self.places,
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
    /// Whether no key has a NULL; then keys are written at the end.
    all_at_once: bool,
    key_lengths: &'a mut Vec<u32>,
    /// The heads of all rows that were cut, if each is one word.
    words: &'a mut Vec<u64>,
    /// Where they begin in the frame, from the last to the first.
    starts: &'a mut Vec<u32>,
    places: &'a mut Places,
}

const OUTSIDE: PagesError = PagesError::Invalid {
    what: "a row is outside of its page",
};

impl BtreeRows<'_> {
    /// Writes the last row that is left, and returns its length. The page begins at `page_start` in
    /// the frame.
    #[inline]
    pub(crate) fn write(
        &mut self,
        page: &mut [u8],
        at: usize,
        page_start: usize,
    ) -> Result<usize, PagesError> {
        let row = page.get_mut(at..).ok_or(PagesError::Truncated)?;
        let kind = self.heads.kinds.pop().ok_or(PagesError::Truncated)?;
        if kind == WHOLE {
            return self.write_whole(row);
        }
        if let Some(word) = self.words.pop() {
            let bytes = usize::from(low_u16(word >> 48) & SIZE);
            let start = page_start + at + HEAD_BYTES;
            if bytes > row.len() || !start.is_multiple_of(ROW_ALIGN) {
                return Err(OUTSIDE);
            }
            self.starts.push(position(start));
            row[..HEAD_BYTES].copy_from_slice(&word.to_le_bytes());
            return Ok(bytes);
        }
        let flags = self.heads.flags.pop().ok_or(PagesError::Truncated)?;
        let key_end = if self.all_at_once {
            let start = page_start + at + HEAD_BYTES;
            if !start.is_multiple_of(ROW_ALIGN) {
                return Err(invalid("a row that was cut is not aligned"));
            }
            let length = self.key_lengths.pop().ok_or(PagesError::Truncated)?;
            self.starts.push(position(start));
            HEAD_BYTES + length as usize
        } else {
            self.write_key(row, flags)?
        };
        let end = align_up(key_end, ROW_ALIGN);
        let flags = low_u16(flags.cast_unsigned()) << 14;
        if kind == PLAIN {
            let pointer = self.heads.pointers.pop().ok_or(PagesError::Truncated)?;
            let pointer = pointer_bytes(self.linear.pointer(pointer));
            return put_head(row, pointer, flags, end);
        }
        self.write_list(row, flags, end)
    }

    /// Writes what was left for the end.
    pub(crate) fn finish(&mut self, raw: &mut [u8]) -> Result<(), PagesError> {
        if !self.all_at_once {
            return Ok(());
        }
        self.places.start(self.starts.iter().rev().copied());
        self.join.write_all(raw, self.places)
    }

    fn write_whole(&mut self, row: &mut [u8]) -> Result<usize, PagesError> {
        let length = self.lengths.pop().ok_or(PagesError::Truncated)?;
        let bytes = opaque::last(&mut self.opaque, index(length.cast_unsigned()))?;
        let target = row.get_mut(..bytes.len()).ok_or(OUTSIDE)?;
        target.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Writes the null bitmap, if there is one, and the key, and returns where that ends.
    fn write_key(&mut self, row: &mut [u8], flags: i64) -> Result<usize, PagesError> {
        let head_bytes = head_bytes(has_nulls(flags));
        let (head, key) = row.split_at_mut_checked(head_bytes).ok_or(OUTSIDE)?;
        if has_nulls(flags) {
            let bitmap = self.heads.bitmaps.pop().ok_or(PagesError::Truncated)?;
            let bitmap = low_u32(bitmap.cast_unsigned()).to_le_bytes();
            head[HEAD_BYTES..HEAD_BYTES + BITMAP_BYTES].copy_from_slice(&bitmap);
        }
        let bitmap = has_nulls(flags).then(|| &head[HEAD_BYTES..]);
        let columns = self.join.columns();
        Ok(head_bytes + self.join.write(key, columns, bitmap)?)
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
