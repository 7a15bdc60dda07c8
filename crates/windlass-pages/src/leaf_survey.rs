//! Takes SQLite's leaves apart: everything but their cells.

use crate::integers::IntegerEncoder;
use crate::leaf::{
    CONTENT_AT, COUNT_AT, FRAGMENTS_AT, FREEBLOCK_AT, Form, HEADER_BYTES, PARSED, POINTER_BYTES,
    RAW, REMAINS, ZERO, is_table, u16_be, varint,
};
use crate::number::{is_zero, position};
use crate::opaque::put_bytes;
use crate::streams::Streams;

/// A cell of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// Where in the frame.
    pub(crate) start: u32,
    pub(crate) bytes: u32,
    /// Where its record begins in the frame; `None` if the cell must be kept as it is.
    pub(crate) record: Option<u32>,
    pub(crate) rowid: i64,
}

impl Cell {
    pub(crate) fn end(&self) -> u32 {
        self.start + self.bytes
    }
}

/// A leaf with all of its cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) is_table: bool,
    pub(crate) cells: u32,
}

/// What the pages of a frame are, and where their cells lie.
#[derive(Debug, Default)]
pub(crate) struct LeafSurvey {
    kinds: Vec<i64>,
    leaves: Vec<Leaf>,
    cells: Vec<Cell>,
    types: Vec<i64>,
    freeblocks: Vec<i64>,
    counts: Vec<i64>,
    contents: Vec<i64>,
    fragments: Vec<i64>,
    steps: Vec<i64>,
    gaps: Vec<i64>,
    raw: Vec<u8>,
    reserved: Vec<u8>,
    remains: Vec<u8>,
    /// The cells of one page, from the one at its end.
    order: Vec<u32>,
}

impl LeafSurvey {
    fn clear(&mut self) {
        let numbers = [
            &mut self.kinds,
            &mut self.types,
            &mut self.freeblocks,
            &mut self.counts,
            &mut self.contents,
            &mut self.fragments,
            &mut self.steps,
            &mut self.gaps,
        ];
        numbers.into_iter().for_each(Vec::clear);
        let bytes = [&mut self.raw, &mut self.reserved, &mut self.remains];
        bytes.into_iter().for_each(Vec::clear);
        self.leaves.clear();
        self.cells.clear();
    }

    /// Takes the pages of a frame apart.
    pub(crate) fn pages(&mut self, raw: &[u8], form: Form) {
        self.clear();
        for (number, page) in raw.chunks_exact(form.page_bytes).enumerate() {
            let kind = self.page(number * form.page_bytes, page, form);
            if kind == RAW {
                self.raw.extend_from_slice(page);
            }
            self.kinds.push(kind);
        }
    }

    /// All leaves, in order.
    pub(crate) fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// The cells of all leaves, in the order of their keys.
    pub(crate) fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Whether any page was taken apart.
    pub(crate) fn found_any(&self) -> bool {
        self.kinds.iter().any(|kind| *kind != RAW)
    }

    fn page(&mut self, start: usize, page: &[u8], form: Form) -> i64 {
        let Some(is_table) = is_table(page[0]) else {
            return if is_zero(page) { ZERO } else { RAW };
        };
        let first = self.cells.len();
        let pointers_end = self.find(start, page, form, is_table);
        let Some(pointers_end) = pointers_end.filter(|_| self.put_in_order(first)) else {
            self.cells.truncate(first);
            return RAW;
        };
        let cells = &self.cells[first..];
        self.leaves.push(Leaf {
            is_table,
            cells: position(cells.len()),
        });
        let mut end = position(start + form.usable);
        let mut is_covered = true;
        for number in &self.order {
            let cell = &cells[*number as usize];
            let gap = end - cell.end();
            self.gaps.push(gap.into());
            is_covered = is_covered && (gap == 0 || is_zero(between(page, start, cell.end(), end)));
            end = cell.start;
        }
        let lowest = i64::from(end) - start as i64;
        let field = |at| i64::from(u16_be(page, at));
        self.types.push(page[0].into());
        self.freeblocks.push(field(FREEBLOCK_AT));
        self.counts.push(field(COUNT_AT));
        self.contents.push(field(CONTENT_AT) - (lowest & 0xFFFF));
        self.fragments.push(page[FRAGMENTS_AT].into());
        self.reserved.extend_from_slice(&page[form.usable..]);
        let gap_start = position(start + pointers_end);
        if is_covered && is_zero(between(page, start, gap_start, end)) {
            return PARSED;
        }
        self.put_remains(start, page, form, gap_start);
        REMAINS
    }

    /// Finds the cells of a page, and returns where their pointers end. `None` if a cell is outside
    /// of where cells may be.
    fn find(&mut self, start: usize, page: &[u8], form: Form, is_table: bool) -> Option<usize> {
        let count = usize::from(u16_be(page, COUNT_AT));
        let pointers_end = HEADER_BYTES + POINTER_BYTES * count;
        let usable = &page[..form.usable];
        for pointer in usable
            .get(HEADER_BYTES..pointers_end)?
            .chunks_exact(POINTER_BYTES)
        {
            let at = usize::from(u16_be(pointer, 0));
            if at < pointers_end {
                return None;
            }
            self.cells.push(cell(start, usable, at, form, is_table)?);
        }
        Some(pointers_end)
    }

    /// Finds the order in which the cells of a page lie, and how each differs from what is
    /// expected. `false` if they overlap.
    fn put_in_order(&mut self, first: usize) -> bool {
        let cells = &self.cells[first..];
        self.order.clear();
        self.order.extend(0..position(cells.len()));
        let steps = self.steps.len();
        self.steps.resize(steps + cells.len(), 0);
        if cells.windows(2).all(|pair| pair[1].end() <= pair[0].start) {
            return true;
        }
        let place = |number: &u32| std::cmp::Reverse(cells[*number as usize].start);
        self.order.sort_unstable_by_key(place);
        let pairs = self.order.windows(2);
        let mut pairs = pairs.map(|pair| (cells[pair[0] as usize], cells[pair[1] as usize]));
        if !pairs.all(|(upper, lower)| lower.end() <= upper.start) {
            self.steps.truncate(steps);
            return false;
        }
        let steps = &mut self.steps[steps..];
        for (rank, number) in (0..).zip(&self.order) {
            steps[*number as usize] = rank;
        }
        let mut expected = 0;
        for step in steps {
            let rank = *step;
            *step = rank - expected;
            expected = rank + 1;
        }
        true
    }

    /// Keeps the bytes of a page that nothing covers, from its end to its beginning.
    fn put_remains(&mut self, start: usize, page: &[u8], form: Form, gap_start: u32) {
        let cells = &self.cells[self.cells.len() - self.order.len()..];
        let mut end = position(start + form.usable);
        for number in &self.order {
            let cell = &cells[*number as usize];
            self.remains
                .extend_from_slice(between(page, start, cell.end(), end));
            end = cell.start;
        }
        self.remains
            .extend_from_slice(between(page, start, gap_start, end));
    }

    /// Appends everything but cells and remains.
    pub(crate) fn put(&self, integers: &mut IntegerEncoder, streams: &mut Streams) {
        integers.encode(&self.kinds, 1, streams);
        put_bytes(&self.raw, streams);
        integers.encode(&self.types, 1, streams);
        integers.encode(&self.freeblocks, 3, streams);
        integers.encode(&self.counts, 3, streams);
        integers.encode(&self.contents, 3, streams);
        integers.encode(&self.fragments, 2, streams);
        streams.main.extend_from_slice(&self.reserved);
        integers.encode(&self.steps, 3, streams);
        integers.encode(&self.gaps, 3, streams);
    }

    /// Appends the bytes that nothing covers, of the pages where they are not all zero.
    pub(crate) fn put_remains_of_all(&self, streams: &mut Streams) {
        streams.number(self.remains.len() as u64);
        put_bytes(&self.remains, streams);
    }
}

/// A range of a page, by its places in the frame.
fn between(page: &[u8], start: usize, from: u32, to: u32) -> &[u8] {
    &page[from as usize - start..to as usize - start]
}

/// The cell at a place of a page. `None` if it ends outside.
#[inline]
fn cell(start: usize, usable: &[u8], at: usize, form: Form, is_table: bool) -> Option<Cell> {
    let payload = varint(usable, at)?;
    let (mut is_short, mut record) = (payload.is_short, payload.end);
    let mut rowid = 0;
    if is_table {
        let found = varint(usable, record)?;
        is_short = is_short && found.is_short;
        (rowid, record) = (found.value, found.end);
    }
    let payload = payload.value;
    let (local, goes_on) = form.local(is_table, payload);
    let end = record + local + if goes_on { 4 } else { 0 };
    if end > usable.len() {
        return None;
    }
    Some(Cell {
        start: position(start + at),
        bytes: position(end - at),
        record: (is_short && !goes_on).then_some(position(start + record)),
        rowid: rowid.cast_signed(),
    })
}
