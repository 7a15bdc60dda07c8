//! Puts SQLite's leaves together.

use crate::error::{PagesError, invalid};
use crate::integers;
use crate::leaf::{
    CONTENT_AT, COUNT_AT, FRAGMENTS_AT, FREEBLOCK_AT, Form, HEADER_BYTES, PARSED, POINTER_BYTES,
    RAW, REMAINS, ZERO, is_table,
};
use crate::leaf_survey::Leaf;
use crate::number::{index, low_u8, low_u16};
use crate::opaque::take_bytes;
use crate::records_back::{RecordDecoder, Records};
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
    /// The cells of one page in the order of their keys, and where each ends.
    cells: Vec<u8>,
    ends: Vec<u32>,
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
        let mut left = Left {
            steps: &self.steps,
            gaps: &self.gaps,
            remains: take_bytes(source, remains)?,
        };
        for (number, (leaf, open)) in self.leaves.iter().zip(&self.open).enumerate() {
            let page = &mut raw[open.start..open.start + form.page_bytes];
            let cells = (&mut self.cells, &mut self.ends);
            write_cells(&mut records, number, *leaf, form, cells)?;
            left.put_in_order(leaf.cells as usize, &mut self.order)?;
            left.place(page, form, *open, &self.cells, &self.ends, &self.order)?;
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
                PARSED | REMAINS => {
                    page.fill(0);
                    self.open.push(OpenLeaf {
                        start: number * form.page_bytes,
                        content: 0,
                        has_remains: *kind == REMAINS,
                    });
                }
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

/// Makes the cells of one leaf, which together are not longer than its page.
fn write_cells(
    records: &mut Records<'_>,
    number: usize,
    leaf: Leaf,
    form: Form,
    (cells, ends): (&mut Vec<u8>, &mut Vec<u32>),
) -> Result<(), PagesError> {
    cells.clear();
    ends.clear();
    for _ in 0..leaf.cells {
        records.write(number, leaf.is_table, form.usable, cells)?;
        if cells.len() > form.usable {
            return Err(invalid("a page has more bytes in its cells than room"));
        }
        ends.push(crate::number::position(cells.len()));
    }
    Ok(())
}

impl Left<'_> {
    /// Finds which cell has which place in the next page.
    fn put_in_order(&mut self, count: usize, order: &mut Vec<u32>) -> Result<(), PagesError> {
        let (steps, rest) = self.steps.split_at(count);
        self.steps = rest;
        order.clear();
        order.resize(count, 0);
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

    /// Writes cells, pointers and remains of a page.
    fn place(
        &mut self,
        page: &mut [u8],
        form: Form,
        open: OpenLeaf,
        cells: &[u8],
        ends: &[u32],
        order: &[u32],
    ) -> Result<(), PagesError> {
        let (gaps, rest) = self.gaps.split_at(order.len());
        self.gaps = rest;
        let pointers_end = HEADER_BYTES + POINTER_BYTES * order.len();
        let mut end = form.usable;
        for (number, gap) in order.iter().zip(gaps) {
            let number = *number as usize - 1;
            let from = if number == 0 {
                0
            } else {
                ends[number - 1] as usize
            };
            let cell = &cells[from..ends[number] as usize];
            let gap = index(gap.cast_unsigned());
            let start = end
                .checked_sub(gap)
                .and_then(|at| at.checked_sub(cell.len()));
            let start = start.filter(|start| *start >= pointers_end);
            let start = start.ok_or(invalid("a cell is outside of its page"))?;
            page[start..start + cell.len()].copy_from_slice(cell);
            put_u16(page, HEADER_BYTES + POINTER_BYTES * number, start as i64);
            if open.has_remains {
                self.put_remains(&mut page[end - gap..end])?;
            }
            end = start;
        }
        let lowest = end as i64;
        put_u16(page, CONTENT_AT, open.content.wrapping_add(lowest & 0xFFFF));
        if open.has_remains {
            self.put_remains(&mut page[pointers_end..end])?;
        }
        Ok(())
    }

    fn put_remains(&mut self, range: &mut [u8]) -> Result<(), PagesError> {
        let bytes = self.remains.split_at_checked(range.len());
        let (bytes, rest) = bytes.ok_or(PagesError::Truncated)?;
        self.remains = rest;
        range.copy_from_slice(bytes);
        Ok(())
    }
}
