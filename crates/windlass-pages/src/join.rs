//! Columns to rows: writes the values of one row after another behind its header.
//!
//! Rows are written from the last to the first, so each list gives its last value.
//!
//! Invariants
//! - All columns of a frame together have no more values than the frame has bytes, and their texts
//!   no more bytes than the frame, or they are refused before they are made.

use crate::attributes::{
    Attribute, EXTERNAL_BYTES, EXTERNAL_TAG, Form, SHORT_BYTES_MAX, has_value,
};
use crate::error::{PagesError, invalid};
use crate::integers;
use crate::layout::Column;
use crate::number::{align_up, low_u8, low_u32, position};
use crate::opaque::{last, take_bytes};
use crate::places::Places;
use crate::streams::Source;
use crate::texts::Span;
use crate::texts_back::{self, Arena};

/// The lists of one column.
#[derive(Debug, Default)]
pub(crate) struct Values {
    numbers: Vec<i64>,
    spans: Vec<Span>,
    forms: Vec<i64>,
}

/// The memory for the columns of a frame.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    columns: Vec<Values>,
    arena: Arena,
}

/// One column while rows are written.
#[derive(Debug)]
struct View<'a> {
    attribute: Attribute,
    values: &'a mut Values,
    bytes: &'a [u8],
    has_forms: bool,
}

/// The columns while rows are written.
#[derive(Debug)]
pub(crate) struct Join<'a> {
    columns: Vec<View<'a>>,
}

impl Joiner {
    /// Reads the columns; `counts` says how many values each has.
    pub(crate) fn take<'a>(
        &'a mut self,
        source: &mut Source<'a>,
        columns: &[Column],
        counts: &[usize],
        limit: usize,
    ) -> Result<Join<'a>, PagesError> {
        let values: usize = counts.iter().sum();
        if values > limit {
            return Err(invalid("there are more values than the pages have bytes"));
        }
        if self.columns.len() < columns.len() {
            self.columns.resize_with(columns.len(), Values::default);
        }
        self.arena.start(limit);
        let mut places = Vec::with_capacity(columns.len());
        for ((column, count), values) in columns.iter().zip(counts).zip(&mut self.columns) {
            let attribute = Attribute::of(*column);
            places.push(take_column(
                source,
                attribute,
                *count,
                values,
                &mut self.arena,
            )?);
        }
        let arena = self.arena.bytes();
        let columns = columns.iter().zip(places).zip(&mut self.columns);
        let columns = columns.map(|((column, (bytes, has_forms)), values)| View {
            attribute: Attribute::of(*column),
            values,
            bytes: bytes.unwrap_or(arena),
            has_forms,
        });
        Ok(Join {
            columns: columns.collect(),
        })
    }
}

/// Reads one column. Returns where its bytes are, which is the arena if there is nothing, and
/// whether each value has a form.
fn take_column<'a>(
    source: &mut Source<'a>,
    attribute: Attribute,
    count: usize,
    values: &mut Values,
    arena: &mut Arena,
) -> Result<(Option<&'a [u8]>, bool), PagesError> {
    if count == 0 {
        return Ok((Some(&[]), false));
    }
    match attribute {
        Attribute::Number { .. } => {
            integers::decode(source, count, &mut values.numbers)?;
            Ok((Some(&[]), false))
        }
        Attribute::Fixed { bytes, .. } => {
            let bytes = count.checked_mul(bytes).ok_or(PagesError::Truncated)?;
            Ok((Some(take_bytes(source, bytes)?), false))
        }
        Attribute::Variable { .. } => {
            let has_forms = source.byte()? != 0;
            if has_forms {
                integers::decode(source, count, &mut values.forms)?;
            }
            values.spans.clear();
            let bytes = texts_back::append(source, count, &mut values.spans, arena)?;
            Ok((bytes, has_forms))
        }
    }
}

impl Join<'_> {
    /// How many columns there are.
    pub(crate) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Writes the last row that is left, which has the first `count` columns, and returns its
    /// length. What is between its values is zero already.
    pub(crate) fn write(
        &mut self,
        row: &mut [u8],
        count: usize,
        bitmap: Option<&[u8]>,
    ) -> Result<usize, PagesError> {
        let mut at = 0;
        for (number, column) in self.columns.iter_mut().take(count).enumerate() {
            if has_value(bitmap, number) {
                at = column.write(row, at)?;
            }
        }
        Ok(at)
    }
}

/// All rows at once, column by column, if each has a value in each column: a step is then the same
/// for all rows, and none waits for another.
impl Join<'_> {
    /// How many bytes the values of each row take, in order.
    pub(crate) fn lengths(&self, rows: usize, places: &mut Places, lengths: &mut Vec<u32>) {
        places.start(std::iter::repeat_n(0, rows));
        for column in &self.columns {
            column.pass(places);
        }
        lengths.clear();
        lengths.extend(places.iter().map(position));
    }

    /// Writes all rows; `places` says where in the frame each begins, and is spent.
    pub(crate) fn write_all(
        &mut self,
        raw: &mut [u8],
        places: &mut Places,
    ) -> Result<(), PagesError> {
        for column in &mut self.columns {
            column.write_all(raw, places)?;
        }
        Ok(())
    }
}

const OUTSIDE: PagesError = PagesError::Invalid {
    what: "a value is outside of its page",
};

impl View<'_> {
    /// Passes over the values of all rows.
    fn pass(&self, places: &mut Places) {
        match self.attribute {
            Attribute::Number { bytes, align } | Attribute::Fixed { bytes, align } => {
                places.align(align);
                places.skip(bytes);
            }
            Attribute::Variable { align, .. } if self.has_forms => {
                let mut spans = self.values.spans.iter().enumerate();
                places.go(|at| {
                    let (number, span) = spans.next()?;
                    let payload = span.bytes as usize;
                    Some(end(self.form(number, payload), at, align, payload))
                });
            }
            Attribute::Variable { align, .. } => {
                let mut spans = self.values.spans.iter();
                places.go(|at| {
                    let payload = spans.next()?.bytes as usize;
                    Some(end(Some(Form::usual(payload)), at, align, payload))
                });
            }
        }
    }

    /// The form of a value; `None` if there is no such form.
    #[inline]
    fn form(&self, number: usize, payload: usize) -> Option<Form> {
        if !self.has_forms {
            return Some(Form::usual(payload));
        }
        Form::of(*self.values.forms.get(number)?)
    }

    fn write_all(&mut self, raw: &mut [u8], places: &mut Places) -> Result<(), PagesError> {
        match self.attribute {
            Attribute::Number { bytes, align } => {
                places.align(align);
                match bytes {
                    1 => self.write_numbers::<1>(raw, places)?,
                    2 => self.write_numbers::<2>(raw, places)?,
                    4 => self.write_numbers::<4>(raw, places)?,
                    _ => self.write_numbers::<8>(raw, places)?,
                }
                places.skip(bytes);
                Ok(())
            }
            Attribute::Fixed { bytes, align } => {
                places.align(align);
                for (at, value) in places.iter().zip(self.bytes.chunks_exact(bytes)) {
                    put(raw, at, value)?;
                }
                places.skip(bytes);
                Ok(())
            }
            Attribute::Variable { align, .. } => self.write_variable(raw, places, align),
        }
    }

    fn write_variable(
        &self,
        raw: &mut [u8],
        places: &mut Places,
        align: usize,
    ) -> Result<(), PagesError> {
        let mut spans = self.values.spans.iter().enumerate();
        let mut failed = Ok(());
        places.go(|at| {
            let (number, span) = spans.next()?;
            let short = if self.has_forms {
                None
            } else {
                put_short(raw, at, self.bytes, *span)
            };
            short.or_else(|| {
                let form = self.form(number, span.bytes as usize);
                let put = self.put(raw, at, align, *span, form);
                put.map_err(|error| failed = Err(error)).ok()
            })
        });
        failed
    }

    fn write_numbers<const BYTES: usize>(
        &self,
        raw: &mut [u8],
        places: &Places,
    ) -> Result<(), PagesError> {
        for (at, number) in places.iter().zip(&self.values.numbers) {
            let Some(target) = raw.get_mut(at..at + BYTES) else {
                return Err(OUTSIDE);
            };
            target.copy_from_slice(&number.to_le_bytes()[..BYTES]);
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, row: &mut [u8], at: usize) -> Result<usize, PagesError> {
        match self.attribute {
            Attribute::Number { bytes, align } => {
                let at = align_up(at, align);
                let number = self.values.numbers.pop().ok_or(PagesError::Truncated)?;
                let value = number.to_le_bytes();
                let target = row.get_mut(at..at + bytes).ok_or(OUTSIDE)?;
                match bytes {
                    1 => target.copy_from_slice(&value[..1]),
                    2 => target.copy_from_slice(&value[..2]),
                    4 => target.copy_from_slice(&value[..4]),
                    _ => target.copy_from_slice(&value),
                }
                Ok(at + bytes)
            }
            Attribute::Fixed { bytes, align } => {
                let at = align_up(at, align);
                let value = last(&mut self.bytes, bytes)?;
                put(row, at, value)
            }
            Attribute::Variable { align, .. } => self.variable(row, at, align),
        }
    }

    #[inline]
    fn variable(&mut self, row: &mut [u8], at: usize, align: usize) -> Result<usize, PagesError> {
        let span = self.values.spans.pop().ok_or(PagesError::Truncated)?;
        let number = self.values.spans.len();
        let form = self.form(number, span.bytes as usize);
        self.put(row, at, align, span, form)
    }

    /// Writes a value with its header, and returns where it ends.
    #[inline]
    fn put(
        &self,
        row: &mut [u8],
        at: usize,
        align: usize,
        span: Span,
        form: Option<Form>,
    ) -> Result<usize, PagesError> {
        let from = span.at as usize;
        let payload = self.bytes.get(from..from + span.bytes as usize);
        let payload = payload.ok_or(PagesError::Truncated)?;
        let length = payload.len() as u64;
        let form = form.ok_or(invalid("a value is of an unknown form"))?;
        let at = match form {
            Form::Short => {
                let header = low_u8((length + 1) << 1 | 1);
                put(row, at, &[header])?
            }
            Form::External if payload.len() == EXTERNAL_BYTES => put(row, at, &[1, EXTERNAL_TAG])?,
            Form::External => return Err(invalid("a value in a TOAST table has another length")),
            Form::Long | Form::Compressed => {
                let compressed = u64::from(form == Form::Compressed) << 1;
                let header = low_u32((length + 4) << 2 | compressed);
                put(row, align_up(at, align), &header.to_le_bytes())?
            }
        };
        put(row, at, payload)
    }
}

/// Where a value of a form ends.
#[inline]
fn end(form: Option<Form>, at: usize, align: usize, payload: usize) -> usize {
    let head = match form {
        Some(Form::Short) => at + 1,
        Some(Form::External) => at + 2,
        _ => align_up(at, align) + 4,
    };
    head + payload
}

/// Writes a value with a short header, and returns where it ends. `None` if that is not possible.
#[inline]
fn put_short(raw: &mut [u8], at: usize, bytes: &[u8], span: Span) -> Option<usize> {
    let (from, count) = (span.at as usize, span.bytes as usize);
    if count > SHORT_BYTES_MAX {
        return None;
    }
    let head = low_u8((u64::from(span.bytes) + 1) << 1 | 1);
    let next = at + 1 + count;
    let payload = bytes.get(from..from + count)?;
    let [into, target @ ..] = raw.get_mut(at..next)? else {
        return None;
    };
    *into = head;
    copy(target, payload);
    Some(next)
}

#[inline]
fn put(row: &mut [u8], at: usize, bytes: &[u8]) -> Result<usize, PagesError> {
    let end = at + bytes.len();
    let target = row.get_mut(at..end).ok_or(OUTSIDE)?;
    copy(target, bytes);
    Ok(end)
}

/// Copies a text. Most are short, and a call for each would take longer than the copy.
#[inline]
fn copy(target: &mut [u8], bytes: &[u8]) {
    let count = bytes.len();
    match count {
        0..4 => {
            for (into, byte) in target.iter_mut().zip(bytes) {
                *into = *byte;
            }
        }
        4..8 => ends::<4>(target, bytes),
        8..=16 => ends::<8>(target, bytes),
        17..=32 => ends::<16>(target, bytes),
        33..=64 => ends::<32>(target, bytes),
        _ => target.copy_from_slice(bytes),
    }
}

/// Copies the first and the last bytes of a text that is at most twice as long.
#[inline]
fn ends<const BYTES: usize>(target: &mut [u8], bytes: &[u8]) {
    if let (Some(into), Some(from)) = (target.first_chunk_mut::<BYTES>(), bytes.first_chunk()) {
        *into = *from;
    }
    if let (Some(into), Some(from)) = (target.last_chunk_mut::<BYTES>(), bytes.last_chunk()) {
        *into = *from;
    }
}
