//! Puts SQLite's leaves together.

use crate::cells_back::{FRONT, Records};
use crate::error::{PagesError, invalid};
use crate::integers;
use crate::leaf::{
    CONTENT_AT, COUNT_AT, FRAGMENTS_AT, FREEBLOCK_AT, Form, HEADER_BYTES, PARSED, POINTER_BYTES,
    RAW, REMAINS, ZERO, is_table,
};
use crate::leaf_survey::Leaf;
use crate::number::{index, low_u8, low_u16, position};
use crate::opaque::take_bytes;
use crate::records_back::RecordDecoder;
use crate::streams::Source;

/// A leaf whose cells are still missing.
#[derive(Clone, Copy, Debug)]
struct OpenLeaf {
    /// Where it begins in the frame.
    start: usize,
    content: i64,
    has_remains: bool,
}

/// The leaves of a frame while they are put together.
#[derive(Debug, Default)]
pub(crate) struct LeafRebuild {
    numbers: Vec<i64>,
    open: Vec<OpenLeaf>,
    leaves: Vec<Leaf>,
    steps: Vec<i64>,
    gaps: Vec<i64>,
    records: RecordDecoder,
    /// The cells of one page from its end, in the order of their keys, and where each begins.
    room: Vec<u8>,
    starts: Vec<u32>,
    /// The cell with each place in the page, plus one.
    order: Vec<u32>,
}

/// What is left of the lists that all pages share.
struct Left<'a> {
    steps: &'a [i64],
    gaps: &'a [i64],
    remains: &'a [u8],
}

impl LeafRebuild {
    /// Writes all pages of a frame.
    pub(crate) fn decode(
        &mut self,
        source: &mut Source<'_>,
        form: Form,
        raw: &mut [u8],
    ) -> Result<(), PagesError> {
        self.take_kinds(source, form, raw)?;
        self.take_headers(source, form, raw)?;
        let cells = self.leaves.iter().map(|leaf| leaf.cells as usize).sum();
        integers::decode(source, cells, &mut self.steps)?;
        integers::decode(source, cells, &mut self.gaps)?;
        let mut records = self.records.take(source, &self.leaves, raw.len())?;
        let remains = index(source.number()?);
        if remains > raw.len() {
            return Err(invalid("there are more bytes than the pages have"));
        }
        self.room.resize(FRONT + form.usable, 0);
        let mut left = Left {
            steps: &self.steps,
            gaps: &self.gaps,
            remains: take_bytes(source, remains)?,
        };
        for (number, (leaf, open)) in self.leaves.iter().zip(&self.open).enumerate() {
            let page = &mut raw[open.start..open.start + form.page_bytes];
            let starts = &mut self.starts;
            write_cells(&mut records, (number, *leaf), &mut self.room, starts)?;
            let cells = Cells {
                room: &self.room,
                starts,
            };
            let (steps, gaps) = left.of_leaf(leaf.cells as usize);
            if steps.iter().chain(gaps).all(|number| *number == 0) {
                left.place_as_they_are(page, form, *open, cells)?;
            } else {
                put_in_order(steps, &mut self.order)?;
                left.place(page, form, *open, cells, (gaps, &self.order))?;
            }
        }
        if left.remains.is_empty() {
            return Ok(());
        }
        Err(PagesError::Surplus)
    }

    fn take_kinds(
        &mut self,
        source: &mut Source<'_>,
        form: Form,
        raw: &mut [u8],
    ) -> Result<(), PagesError> {
        self.open.clear();
        integers::decode(source, raw.len() / form.page_bytes, &mut self.numbers)?;
        let kept = self.numbers.iter().filter(|kind| **kind == RAW).count();
        let mut kept = take_bytes(source, kept * form.page_bytes)?;
        let pages = raw.chunks_exact_mut(form.page_bytes);
        for (number, (kind, page)) in self.numbers.iter().zip(pages).enumerate() {
            match *kind {
                RAW => {
                    let (first, rest) = kept.split_at(form.page_bytes);
                    page.copy_from_slice(first);
                    kept = rest;
                }
                ZERO => page.fill(0),
                PARSED | REMAINS => self.open.push(OpenLeaf {
                    start: number * form.page_bytes,
                    content: 0,
                    has_remains: *kind == REMAINS,
                }),
                _ => return Err(invalid("a page is of an unknown kind")),
            }
        }
        Ok(())
    }

    fn take_headers(
        &mut self,
        source: &mut Source<'_>,
        form: Form,
        raw: &mut [u8],
    ) -> Result<(), PagesError> {
        let count = self.open.len();
        let numbers = &mut self.numbers;
        self.leaves.clear();
        integers::decode(source, count, numbers)?;
        for (open, first) in self.open.iter().zip(&*numbers) {
            let first = low_u8(first.cast_unsigned());
            let is_table = is_table(first).ok_or(invalid("a page is not a leaf"))?;
            raw[open.start] = first;
            self.leaves.push(Leaf { is_table, cells: 0 });
        }
        integers::decode(source, count, numbers)?;
        for (open, freeblock) in self.open.iter().zip(&*numbers) {
            put_u16(&mut raw[open.start..], FREEBLOCK_AT, *freeblock);
        }
        integers::decode(source, count, numbers)?;
        for ((open, leaf), cells) in self.open.iter().zip(&mut self.leaves).zip(&*numbers) {
            leaf.cells = low_u16(cells.cast_unsigned()).into();
            if HEADER_BYTES + POINTER_BYTES * leaf.cells as usize > form.usable {
                return Err(invalid("a page has more cells than room"));
            }
            put_u16(&mut raw[open.start..], COUNT_AT, *cells);
        }
        integers::decode(source, count, numbers)?;
        for (open, content) in self.open.iter_mut().zip(&*numbers) {
            open.content = *content;
        }
        integers::decode(source, count, numbers)?;
        for (open, fragments) in self.open.iter().zip(&*numbers) {
            raw[open.start + FRAGMENTS_AT] = low_u8(fragments.cast_unsigned());
        }
        for open in &self.open {
            let reserved = source.main(form.page_bytes - form.usable)?;
            let page = &mut raw[open.start..open.start + form.page_bytes];
            page[form.usable..].copy_from_slice(reserved);
        }
        Ok(())
    }
}

fn put_u16(page: &mut [u8], at: usize, number: i64) {
    let field = low_u16(number.cast_unsigned());
    page[at..at + 2].copy_from_slice(&field.to_be_bytes());
}

/// The cells of a leaf. Each ends where the one before begins, the first at the end of the room,
/// which has [`FRONT`] bytes before the page.
#[derive(Clone, Copy)]
struct Cells<'a> {
    room: &'a [u8],
    starts: &'a [u32],
}

impl<'a> Cells<'a> {
    fn get(self, number: usize) -> &'a [u8] {
        let end = match number {
            0 => self.room.len(),
            _ => self.starts[number - 1] as usize,
        };
        &self.room[self.starts[number] as usize..end]
    }
}

/// Makes the cells of one leaf, which together are not longer than its page.
fn write_cells(
    records: &mut Records<'_>,
    (number, leaf): (usize, Leaf),
    room: &mut [u8],
    starts: &mut Vec<u32>,
) -> Result<(), PagesError> {
    starts.clear();
    let mut end = room.len();
    for _ in 0..leaf.cells {
        end = records.write(number, leaf.is_table, room, end)?;
        starts.push(position(end));
    }
    Ok(())
}

/// Finds which cell has which place in a page.
fn put_in_order(steps: &[i64], order: &mut Vec<u32>) -> Result<(), PagesError> {
    order.clear();
    order.resize(steps.len(), 0);
    let mut expected = 0i64;
    for (number, step) in (1u32..).zip(steps) {
        let rank = expected.wrapping_add(*step);
        let place = order.get_mut(index(rank.cast_unsigned()));
        let place = place.ok_or(invalid("a cell has an impossible place"))?;
        if std::mem::replace(place, number) != 0 {
            return Err(invalid("two cells have the same place"));
        }
        expected = rank + 1;
    }
    Ok(())
}

const OUTSIDE: PagesError = invalid("a cell is outside of its page");

impl<'a> Left<'a> {
    /// The steps and the gaps of the next leaf.
    fn of_leaf(&mut self, cells: usize) -> (&'a [i64], &'a [i64]) {
        let (steps, gaps);
        (steps, self.steps) = self.steps.split_at(cells);
        (gaps, self.gaps) = self.gaps.split_at(cells);
        (steps, gaps)
    }

    /// Writes cells, pointers and remains of a page whose cells lie without gaps, in the order of
    /// their keys. Most pages are such, and their room is as it will be in the page.
    fn place_as_they_are(
        &mut self,
        page: &mut [u8],
        form: Form,
        open: OpenLeaf,
        cells: Cells<'_>,
    ) -> Result<(), PagesError> {
        let lowest = cells
            .starts
            .last()
            .map_or(form.usable, |start| *start as usize - FRONT);
        let pointers_end = HEADER_BYTES + POINTER_BYTES * cells.starts.len();
        if lowest < pointers_end {
            return Err(OUTSIDE);
        }
        page[lowest..form.usable].copy_from_slice(&cells.room[FRONT + lowest..]);
        let pointers = page[HEADER_BYTES..pointers_end].chunks_exact_mut(POINTER_BYTES);
        for (pointer, start) in pointers.zip(cells.starts) {
            let field = low_u16(u64::from(*start) - FRONT as u64);
            pointer.copy_from_slice(&field.to_be_bytes());
        }
        self.end_page(page, open, pointers_end, lowest)
    }

    /// Writes cells, pointers and remains of a page.
    fn place(
        &mut self,
        page: &mut [u8],
        form: Form,
        open: OpenLeaf,
        cells: Cells<'_>,
        (gaps, order): (&[i64], &[u32]),
    ) -> Result<(), PagesError> {
        let pointers_end = HEADER_BYTES + POINTER_BYTES * order.len();
        let mut end = form.usable;
        for (number, gap) in order.iter().zip(gaps) {
            let number = *number as usize - 1;
            let cell = cells.get(number);
            let gap = index(gap.cast_unsigned());
            let start = end
                .checked_sub(gap)
                .and_then(|at| at.checked_sub(cell.len()));
            let start = start.filter(|start| *start >= pointers_end);
            let start = start.ok_or(OUTSIDE)?;
            page[start..start + cell.len()].copy_from_slice(cell);
            put_u16(page, HEADER_BYTES + POINTER_BYTES * number, start as i64);
            self.put_remains(&mut page[end - gap..end], open)?;
            end = start;
        }
        self.end_page(page, open, pointers_end, end)
    }

    /// Writes what is left of a page when the place of its lowest cell is known.
    fn end_page(
        &mut self,
        page: &mut [u8],
        open: OpenLeaf,
        pointers_end: usize,
        lowest: usize,
    ) -> Result<(), PagesError> {
        let content = open.content.wrapping_add(lowest as i64 & 0xFFFF);
        put_u16(page, CONTENT_AT, content);
        self.put_remains(&mut page[pointers_end..lowest], open)
    }

    /// Writes the next bytes that nothing covers.
    fn put_remains(&mut self, range: &mut [u8], open: OpenLeaf) -> Result<(), PagesError> {
        if !open.has_remains {
            range.fill(0);
            return Ok(());
        }
        let bytes = self.remains.split_at_checked(range.len());
        let (bytes, rest) = bytes.ok_or(PagesError::Truncated)?;
        self.remains = rest;
        range.copy_from_slice(bytes);
        Ok(())
    }
}
