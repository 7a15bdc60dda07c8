//! Puts PostgreSQL's pages together: everything but their rows, which somebody else writes.

use crate::error::{PagesError, invalid};
use crate::integers;
use crate::number::{align_up, index, low_u16, low_u32, position};
use crate::slotted::{
    Bounds, HEADER_BYTES, NORMAL, PARSED, POINTER_BYTES, RAW, REMAINS, ROW_ALIGN, Shape, ZERO,
    put_in_order, uncovered,
};
use crate::streams::Source;

/// A page whose rows are still missing.
#[derive(Clone, Copy, Debug)]
struct OpenPage {
    number: usize,
    bounds: Bounds,
    rows: usize,
    has_remains: bool,
}

/// The pages of a frame while they are put together.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    numbers: Vec<i64>,
    pages: Vec<OpenPage>,
    slots: Vec<u32>,
    gaps: Vec<i64>,
    used: Vec<bool>,
    places: Vec<(u32, u32)>,
}

impl Rebuild {
    /// Reads what `Survey::put` wrote, and returns how many rows there are.
    pub(crate) fn take(
        &mut self,
        source: &mut Source<'_>,
        shape: Shape,
        raw: &mut [u8],
    ) -> Result<usize, PagesError> {
        self.take_kinds(source, shape, raw)?;
        self.take_headers(source, shape, raw)?;
        let open = self.pages.len();
        integers::decode(source, open, &mut self.numbers)?;
        let (mut rows, mut slots) = (0, 0);
        for (page, count) in self.pages.iter_mut().zip(&self.numbers) {
            page.rows = index(count.cast_unsigned());
            if page.rows > page.bounds.slots() {
                return Err(invalid("a page has more rows than line pointers"));
            }
            rows += page.rows;
            slots += page.bounds.slots();
        }
        integers::decode(source, rows, &mut self.numbers)?;
        let unit = i64::from(source.byte()?);
        integers::decode(source, rows, &mut self.gaps)?;
        let units = self.gaps.iter_mut();
        units.for_each(|gap| *gap = gap.wrapping_mul(unit));
        self.find_slots()?;
        integers::decode(source, slots - rows, &mut self.numbers)?;
        self.put_others(shape, raw);
        Ok(rows)
    }

    fn take_kinds(
        &mut self,
        source: &mut Source<'_>,
        shape: Shape,
        raw: &mut [u8],
    ) -> Result<(), PagesError> {
        self.pages.clear();
        integers::decode(source, raw.len() / shape.page_bytes, &mut self.numbers)?;
        let pages = raw.chunks_exact_mut(shape.page_bytes);
        for (number, (kind, page)) in self.numbers.iter().zip(pages).enumerate() {
            match *kind {
                RAW => page.copy_from_slice(source.main(shape.page_bytes)?),
                ZERO => page.fill(0),
                PARSED | REMAINS => {
                    page.fill(0);
                    self.pages.push(OpenPage {
                        number,
                        bounds: Bounds {
                            lower: 0,
                            upper: 0,
                            special: 0,
                        },
                        rows: 0,
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
        shape: Shape,
        raw: &mut [u8],
    ) -> Result<(), PagesError> {
        let special = shape.page_bytes - shape.special_bytes;
        for at in (0..HEADER_BYTES).chain(special..shape.page_bytes) {
            let differences = source.main(self.pages.len())?;
            let mut before = 0u8;
            for (page, difference) in self.pages.iter().zip(differences) {
                before = before.wrapping_add(*difference);
                raw[page.number * shape.page_bytes + at] = before;
            }
        }
        for page in &mut self.pages {
            let start = page.number * shape.page_bytes;
            let bounds = Bounds::of(&raw[start..start + shape.page_bytes], shape);
            page.bounds = bounds.ok_or(invalid("a page has an impossible header"))?;
        }
        Ok(())
    }

    /// The line pointer of each row, and which line pointers have none.
    fn find_slots(&mut self) -> Result<(), PagesError> {
        self.slots.clear();
        self.used.clear();
        if self.numbers.iter().fold(0, |all, step| all | step) == 0 {
            self.number_slots();
            return Ok(());
        }
        let mut steps = self.numbers.iter();
        for page in &self.pages {
            let first = self.used.len();
            self.used.resize(first + page.bounds.slots(), false);
            let mut expected = 0i64;
            for step in steps.by_ref().take(page.rows) {
                let slot = expected.wrapping_add(*step);
                let used = self.used[first..].get_mut(index(slot.cast_unsigned()));
                match used {
                    Some(used) if !*used => *used = true,
                    _ => return Err(invalid("two rows have one line pointer, or one has none")),
                }
                expected = slot + 1;
                self.slots.push(low_u32(expected.cast_unsigned()));
            }
        }
        Ok(())
    }

    /// The rows of each page have its first line pointers, in order. Most do.
    fn number_slots(&mut self) {
        for page in &self.pages {
            let first = self.used.len();
            self.used.resize(first + page.rows, true);
            self.used.resize(first + page.bounds.slots(), false);
            self.slots.extend(1..=position(page.rows));
        }
    }

    /// Writes the line pointers that point to no row.
    fn put_others(&self, shape: Shape, raw: &mut [u8]) {
        if self.numbers.is_empty() {
            return;
        }
        let (mut used, mut others) = (self.used.iter(), self.numbers.iter());
        for page in &self.pages {
            let start = page.number * shape.page_bytes;
            let pointers = &mut raw[start + HEADER_BYTES..start + page.bounds.lower];
            let pointers = pointers.chunks_exact_mut(POINTER_BYTES);
            for (pointer, _) in pointers.zip(used.by_ref()).filter(|(_, used)| !**used) {
                let other = others.next().map_or(0, |other| other.cast_unsigned());
                pointer.copy_from_slice(&low_u32(other).to_le_bytes());
            }
        }
    }

    /// Places the rows, from the last to the first. `write` gets the page up to its special space,
    /// where the row
    /// begins, its line pointer and the number of the page, and returns the length of the row.
    pub(crate) fn place(
        &mut self,
        source: &mut Source<'_>,
        shape: Shape,
        raw: &mut [u8],
        mut write: impl FnMut(&mut [u8], usize, u32, usize) -> Result<usize, PagesError>,
    ) -> Result<(), PagesError> {
        let mut rows = self.slots.iter().zip(&self.gaps).rev();
        for page in self.pages.iter().rev() {
            let start = page.number * shape.page_bytes;
            let bounds = page.bounds;
            let bytes = &mut raw[start..start + bounds.special];
            let mut expected = bounds.upper;
            self.places.clear();
            for (slot, gap) in rows.by_ref().take(page.rows) {
                let at = index((expected as i64).wrapping_add(*gap).cast_unsigned());
                if at < bounds.lower || at >= bounds.special {
                    return Err(invalid("a row is outside of its page"));
                }
                let row_bytes = write(bytes, at, *slot, page.number)?;
                let pointer = point_to(at, row_bytes)?;
                let pointer_at = HEADER_BYTES + (*slot as usize - 1) * POINTER_BYTES;
                bytes[pointer_at..pointer_at + POINTER_BYTES].copy_from_slice(&pointer);
                expected = at + align_up(row_bytes, ROW_ALIGN);
                if page.has_remains {
                    self.places.push((position(at), position(at + row_bytes)));
                }
            }
            if page.has_remains {
                if !put_in_order(&mut self.places) {
                    return Err(invalid("rows of a page overlap"));
                }
                put_remains(source, &self.places, bounds, bytes)?;
            }
        }
        Ok(())
    }
}

/// The line pointer to a row.
fn point_to(at: usize, bytes: usize) -> Result<[u8; POINTER_BYTES], PagesError> {
    if at > 0x7FFF || bytes > 0x7FFF || bytes == 0 {
        return Err(invalid("no line pointer can point to a row"));
    }
    let (at, bytes) = (
        u32::from(low_u16(at as u64)),
        u32::from(low_u16(bytes as u64)),
    );
    Ok((at | NORMAL << 15 | bytes << 17).to_le_bytes())
}

fn put_remains(
    source: &mut Source<'_>,
    places: &[(u32, u32)],
    bounds: Bounds,
    page: &mut [u8],
) -> Result<(), PagesError> {
    for (from, to) in uncovered(places, 0, bounds) {
        let target = page.get_mut(from..to);
        let target = target.ok_or(invalid("a row is outside of its page"))?;
        if target.is_empty() {
            continue;
        }
        let count = index(source.number()?);
        if count == 0 {
            continue;
        }
        let first = index(source.number()?);
        let bytes = source.main(count)?;
        let target = target.get_mut(first..first.saturating_add(count));
        let target = target.ok_or(invalid("what no row covers is too long"))?;
        target.copy_from_slice(bytes);
    }
    Ok(())
}
