//! Takes PostgreSQL's pages apart: everything but their rows.

use crate::covered::{BLOCK_BYTES, Covered};
use crate::integers::IntegerEncoder;
use crate::number::{align_up, index, is_zero, is_zero_between, low_u8, position, u32_at};
use crate::slotted::{
    Bounds, HEADER_BYTES, NORMAL, Order, PARSED, POINTER_BYTES, RAW, REMAINS, ROW_ALIGN, Row,
    Shape, ZERO, put_in_order, uncovered,
};
use crate::streams::Streams;

/// What the pages of a frame are, and where their rows lie.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    kinds: Vec<i64>,
    rows: Vec<Row>,
    row_counts: Vec<i64>,
    steps: Vec<i64>,
    gaps: Vec<i64>,
    others: Vec<i64>,
    /// Where the rows of one page begin and end, in order.
    places: Vec<(u32, u32)>,
    covered: Covered,
}

impl Survey {
    /// Takes the pages of a frame apart.
    pub(crate) fn pages(&mut self, raw: &[u8], shape: Shape) {
        for list in [
            &mut self.kinds,
            &mut self.row_counts,
            &mut self.steps,
            &mut self.gaps,
            &mut self.others,
        ] {
            list.clear();
        }
        self.rows.clear();
        for (number, page) in raw.chunks_exact(shape.page_bytes).enumerate() {
            let kind = self.page(number, page, shape);
            self.kinds.push(kind);
        }
    }

    /// The rows of all pages, in order.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether any page was taken apart.
    pub(crate) fn found_any(&self) -> bool {
        self.kinds.iter().any(|kind| *kind != RAW)
    }

    fn page(&mut self, number: usize, page: &[u8], shape: Shape) -> i64 {
        let Some(bounds) = Bounds::of(page, shape) else {
            return if is_zero(page) { ZERO } else { RAW };
        };
        let (rows, others) = (self.rows.len(), self.others.len());
        let covers = match self.pointers(number, page, bounds) {
            true => self.covers(rows, page, number, (bounds, shape.order)),
            false => None,
        };
        let Some(covers) = covers else {
            self.rows.truncate(rows);
            self.others.truncate(others);
            return RAW;
        };
        self.row_counts.push((self.rows.len() - rows) as i64);
        self.predict(rows, position(number * page.len()), bounds);
        if covers { PARSED } else { REMAINS }
    }

    /// Finds the rows of a page. `false` if one is outside of where rows may be.
    fn pointers(&mut self, number: usize, page: &[u8], bounds: Bounds) -> bool {
        let start = number * page.len();
        let pointers = page[HEADER_BYTES..bounds.lower].chunks_exact(POINTER_BYTES);
        for (slot, pointer) in (1..).zip(pointers) {
            let pointer = u32_at(pointer, 0);
            let (at, bytes) = ((pointer & 0x7FFF) as usize, (pointer >> 17) as usize);
            if pointer >> 15 & 3 != NORMAL || bytes == 0 {
                self.others.push(i64::from(pointer));
                continue;
            }
            if at < bounds.lower || at + bytes > bounds.special {
                return false;
            }
            self.rows.push(Row {
                page: position(number),
                start: position(start + at),
                bytes: position(bytes),
                slot,
            });
        }
        true
    }

    /// Whether the rows of a page, of which the first is `from`, cover everything that is not zero.
    /// Puts them in the order of their places, if that is theirs. `None` if they overlap.
    fn covers(
        &mut self,
        from: usize,
        page: &[u8],
        number: usize,
        (bounds, order): (Bounds, Order),
    ) -> Option<bool> {
        let start = position(number * page.len());
        let is_aligned = |row: &Row| row.start.is_multiple_of(position(BLOCK_BYTES));
        if order == Order::Slot && self.rows[from..].iter().all(is_aligned) {
            return self.covers_in_any_order(from, page, start, bounds);
        }
        if !self.put_in_order(from, order) {
            return None;
        }
        let mut from = bounds.lower;
        for (begin, end) in &self.places {
            if !is_zero_between(page, from, (begin - start) as usize) {
                return Some(false);
            }
            from = (end - start) as usize;
        }
        Some(is_zero_between(page, from, bounds.special))
    }

    fn covers_in_any_order(
        &mut self,
        from: usize,
        page: &[u8],
        start: u32,
        bounds: Bounds,
    ) -> Option<bool> {
        self.covered.start(page.len());
        let mut ends_are_zero = true;
        for row in &self.rows[from..] {
            let (begin, end) = ((row.start - start) as usize, (row.end() - start) as usize);
            if !self.covered.cover(begin, end) {
                return None;
            }
            let next = align_up(end, BLOCK_BYTES).min(bounds.special);
            ends_are_zero &= is_zero_between(page, end, next);
        }
        let special = bounds.special;
        Some(ends_are_zero && self.covered.others_are_zero(page, bounds.lower, special))
    }

    /// Puts the rows of a page in order. `false` if they overlap.
    fn put_in_order(&mut self, from: usize, order: Order) -> bool {
        let rows = &mut self.rows[from..];
        self.places.clear();
        let descending = rows.windows(2).all(|pair| pair[1].end() <= pair[0].start);
        if !descending && order == Order::Place {
            rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.start));
        }
        let places = rows.iter().rev().map(|row| (row.start, row.end()));
        self.places.extend(places);
        put_in_order(&mut self.places)
    }

    /// How slots and places differ from what is expected.
    fn predict(&mut self, from: usize, page_start: u32, bounds: Bounds) {
        let rows = &self.rows[from..];
        let mut expected = 1;
        self.steps.extend(rows.iter().map(|row| {
            let step = i64::from(row.slot) - expected;
            expected = i64::from(row.slot) + 1;
            step
        }));
        self.gaps.resize(from + rows.len(), 0);
        let mut expected = page_start as usize + bounds.upper;
        for (gap, row) in self.gaps[from..].iter_mut().zip(rows).rev() {
            *gap = i64::from(row.start) - i64::from(position(expected));
            expected = row.start as usize + align_up(row.bytes as usize, ROW_ALIGN);
        }
    }

    /// Appends everything but rows and remains.
    pub(crate) fn put(
        &mut self,
        raw: &[u8],
        shape: Shape,
        integers: &mut IntegerEncoder,
        streams: &mut Streams,
    ) {
        integers.encode(&self.kinds, 1, streams);
        let pages = || self.kinds.iter().zip(raw.chunks_exact(shape.page_bytes));
        for (_, page) in pages().filter(|(kind, _)| **kind == RAW) {
            streams.main.extend_from_slice(page);
        }
        let special = shape.page_bytes - shape.special_bytes;
        for at in (0..HEADER_BYTES).chain(special..shape.page_bytes) {
            let mut before = 0;
            for (_, page) in pages().filter(|(kind, _)| **kind >= PARSED) {
                streams.byte(page[at].wrapping_sub(before));
                before = page[at];
            }
        }
        integers.encode(&self.row_counts, 2, streams);
        integers.encode(&self.steps, 3, streams);
        self.put_gaps(integers, streams);
        integers.encode_low(&self.others, 4, streams);
    }

    /// Gaps in units of eight bytes, if all of them are whole ones.
    fn put_gaps(&mut self, integers: &mut IntegerEncoder, streams: &mut Streams) {
        let all = self.gaps.iter().fold(0, |all, gap| all | gap);
        let whole = all % ROW_ALIGN as i64 == 0;
        let unit = if whole { ROW_ALIGN } else { 1 };
        if whole {
            // A shift, because a division for each row would take longer than all else here.
            let shift = ROW_ALIGN.trailing_zeros();
            self.gaps.iter_mut().for_each(|gap| *gap >>= shift);
        }
        streams.byte(low_u8(unit as u64));
        integers.encode(&self.gaps, 3, streams);
    }

    /// Appends the bytes that nothing covers, of the pages where they are not all zero, from the
    /// last page to the first.
    pub(crate) fn put_remains(&mut self, raw: &[u8], shape: Shape, streams: &mut Streams) {
        let pages = raw.chunks_exact(shape.page_bytes);
        let mut end = self.rows.len();
        let mut counts = self.row_counts.iter().rev();
        for (number, (kind, page)) in self.kinds.iter().zip(pages).enumerate().rev() {
            if *kind < PARSED {
                continue;
            }
            let count = counts
                .next()
                .map_or(0, |count| index(count.cast_unsigned()));
            let rows = &self.rows[end - count..end];
            end -= count;
            let (REMAINS, Some(bounds)) = (*kind, Bounds::of(page, shape)) else {
                continue;
            };
            self.places.clear();
            let places = rows.iter().rev().map(|row| (row.start, row.end()));
            self.places.extend(places);
            put_in_order(&mut self.places);
            let start = position(number * page.len());
            for (from, to) in uncovered(&self.places, start, bounds) {
                put_range(&page[from..to], streams);
            }
        }
    }
}

/// Appends a range without the zeros at its ends: how many bytes are left, how many zeros are
/// before them, the bytes.
fn put_range(bytes: &[u8], streams: &mut Streams) {
    if bytes.is_empty() {
        return;
    }
    let first = bytes.iter().position(|byte| *byte != 0);
    let last = bytes.iter().rposition(|byte| *byte != 0);
    let (Some(first), Some(last)) = (first, last) else {
        streams.number(0);
        return;
    };
    streams.number((last + 1 - first) as u64);
    streams.number(first as u64);
    streams.main.extend_from_slice(&bytes[first..=last]);
}
