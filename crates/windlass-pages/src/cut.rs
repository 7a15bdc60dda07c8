//! Rows to columns: cuts what follows the headers of rows into values, one list for each column.
//!
//! It cuts all rows of a frame column by column. Each step is then the same for a thousand rows,
//! and none of them waits for another.
//!
//! Invariants
//! - A row is cut only if joining its values gives the same bytes: padding is zero, and the last
//!   value ends where its caller accepts. The lists keep nothing of other rows.

mod all;

use all::column_of_all;

use crate::attributes::{Attribute, EXTERNAL_BYTES, EXTERNAL_TAG, Form};
use crate::integers::IntegerEncoder;
use crate::layout::Column;
use crate::number::{align_up, low_u8, position, u16_at, u32_at, u64_at};
use crate::opaque::put_bytes;
use crate::places::Places;
use crate::streams::Streams;
use crate::texts::{Span, TextEncoder};

/// The values of one column; which lists are used follows from its attribute.
#[derive(Debug, Default)]
struct Values {
    numbers: Vec<i64>,
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Values with another form than the usual one.
    forms: Vec<(u32, Form)>,
}

impl Values {
    fn clear(&mut self) {
        self.numbers.clear();
        self.bytes.clear();
        self.spans.clear();
        self.forms.clear();
    }
}

/// A row while it is cut. All places are in the frame.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Where the next value is.
    at: u32,
    end: u32,
    body: u32,
    /// Where the null bitmap is; 0 if there is none.
    bitmap: u32,
    columns: u32,
    fits: bool,
}

impl Open {
    /// One value that begins here, and ends before `end`.
    fn inside(at: usize, end: usize) -> Self {
        Self {
            at: position(at),
            end: position(end),
            body: position(at),
            bitmap: 0,
            columns: 1,
            fits: true,
        }
    }

    #[inline]
    fn has(&self, raw: &[u8], column: usize) -> bool {
        let bitmap = self.bitmap as usize;
        let exists = column < self.columns as usize;
        exists && (bitmap == 0 || raw[bitmap + column / 8] >> (column % 8) & 1 == 1)
    }

    /// Moves to where the next value begins. The row fits only if the bytes before are zero.
    #[inline]
    fn align(&mut self, raw: &[u8], align: usize) -> usize {
        let at = self.at as usize;
        let next = align_up(at, align);
        let padding = if let Some(word) = raw.get(at..at + 8) {
            u64_at(word, 0) & !(u64::MAX << (8 * (next - at)))
        } else {
            let last = raw.get(at..next).unwrap_or_default();
            u64::from(last.iter().any(|byte| *byte != 0))
        };
        self.fits &= padding == 0;
        next
    }

    /// Ends a value. If it is not inside of the row, the row does not fit.
    #[inline]
    fn ends(&mut self, end: usize) -> bool {
        if end > self.end as usize {
            self.fits = false;
            return false;
        }
        self.at = position(end);
        true
    }

    #[inline]
    fn number<const BYTES: usize>(&mut self, raw: &[u8], align: usize) -> i64 {
        let at = self.align(raw, align);
        if !self.ends(at + BYTES) {
            return 0;
        }
        number_at::<BYTES>(raw, at)
    }

    /// A value with a header, and the form of it.
    #[inline]
    fn variable(&mut self, raw: &[u8], align: usize) -> (Span, Form) {
        let at = self.at as usize;
        let first = if at < self.end as usize { raw[at] } else { 1 };
        let (payload, end, form) = if first & 1 == 1 && first != 1 {
            (at + 1, at + usize::from(first >> 1), Form::Short)
        } else {
            self.unusual(raw, first, align)
        };
        if payload > end || !self.ends(end) {
            self.fits = false;
            return (Span::default(), Form::Short);
        }
        let span = Span {
            at: position(payload),
            bytes: position(end - payload),
        };
        (span, form)
    }

    /// Where a value without a short header has its payload, where it ends, and its form.
    fn unusual(&mut self, raw: &[u8], first: u8, align: usize) -> (usize, usize, Form) {
        const NOWHERE: (usize, usize, Form) = (1, 0, Form::Short);
        let (at, end) = (self.at as usize, self.end as usize);
        if first == 1 {
            let is_external = at + 1 < end && raw[at + 1] == EXTERNAL_TAG;
            let external = (at + 2, at + 2 + EXTERNAL_BYTES, Form::External);
            return if is_external { external } else { NOWHERE };
        }
        let at = self.align(raw, align);
        if at + 4 > end {
            return NOWHERE;
        }
        let header = u32_at(raw, at);
        let form = match header & 3 {
            0 => Form::Long,
            2 => Form::Compressed,
            _ => return NOWHERE,
        };
        (at + 4, at + (header >> 2) as usize, form)
    }
}

/// Cuts the rows of a frame.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    attributes: Vec<Attribute>,
    columns: Vec<Values>,
    rows: Vec<Open>,
    /// Whether each of them has a value in each column.
    full: bool,
    fits: Vec<bool>,
    forms: Vec<i64>,
    texts: TextEncoder,
    places: Places,
}

impl Cutter {
    /// Begins a frame.
    pub(crate) fn start(&mut self, columns: &[Column]) {
        self.attributes.clear();
        self.attributes
            .extend(columns.iter().map(|column| Attribute::of(*column)));
        if self.columns.len() < columns.len() {
            self.columns.resize_with(columns.len(), Values::default);
        }
        self.rows.clear();
        self.full = true;
    }

    /// How many columns are known.
    pub(crate) fn columns(&self) -> usize {
        self.attributes.len()
    }

    /// Takes a row that has the first `columns` columns. Its values are in `raw[body..end]`, and
    /// its null bitmap is before them. `false` if it cannot fit, and then it is not taken.
    #[inline]
    pub(crate) fn push(
        &mut self,
        body: usize,
        end: usize,
        columns: usize,
        bitmap: Option<usize>,
    ) -> bool {
        // Values are aligned to the beginning of the body. Here they are aligned to that of the
        // frame.
        if columns > self.columns() || !body.is_multiple_of(8) {
            return false;
        }
        self.full &= bitmap.is_none() && columns == self.columns();
        self.rows.push(Open {
            at: position(body),
            end: position(end),
            body: position(body),
            bitmap: position(bitmap.unwrap_or(0)),
            columns: position(columns),
            fits: true,
        });
        true
    }

    /// Cuts all rows, and returns which of them fit. `accepts` gets the number of a row, where its
    /// last value ends and where the row ends, and says whether that may be.
    pub(crate) fn cut(
        &mut self,
        raw: &[u8],
        accepts: impl Fn(usize, usize, usize) -> bool,
    ) -> &[bool] {
        self.fits.clear();
        if self.full && self.pass_all(raw) {
            let rows = self.rows.iter().zip(self.places.iter()).enumerate();
            let fits = rows.map(|(number, (row, at))| {
                let end = row.end as usize;
                at <= end && accepts(number, at, end)
            });
            self.fits.extend(fits);
        } else {
            self.pass(raw);
            let rows = self.rows.iter().enumerate();
            let fits = rows.map(|(number, row)| {
                row.fits && accepts(number, row.at as usize, row.end as usize)
            });
            self.fits.extend(fits);
        }
        if self.fits.iter().any(|fits| !fits) {
            // Again, without the rows that do not fit.
            let mut fits = self.fits.iter();
            self.rows.retain(|_| fits.next() == Some(&true));
            if !(self.full && self.pass_all(raw)) {
                self.pass(raw);
            }
            debug_assert!(self.rows.iter().all(|row| row.fits), "a row fits twice");
        }
        &self.fits
    }

    /// Looks at each row in each column.
    fn pass(&mut self, raw: &[u8]) {
        for row in &mut self.rows {
            (row.at, row.fits) = (row.body, true);
        }
        let columns = self.columns.iter_mut().zip(&self.attributes);
        for (number, (values, attribute)) in columns.enumerate() {
            values.clear();
            let rows = self.rows.iter_mut();
            let rows = rows.filter(|row| row.has(raw, number));
            column(raw, rows, *attribute, values);
        }
    }

    /// Cuts rows that have a value in each column. `false` if one of them cannot be cut.
    fn pass_all(&mut self, raw: &[u8]) -> bool {
        self.places.start(self.rows.iter().map(|row| row.body));
        for (values, attribute) in self.columns.iter_mut().zip(&self.attributes) {
            values.clear();
            if !column_of_all(raw, &mut self.places, *attribute, values) {
                return false;
            }
        }
        true
    }

    /// Appends all columns.
    pub(crate) fn put(&mut self, raw: &[u8], integers: &mut IntegerEncoder, streams: &mut Streams) {
        for (values, attribute) in self.columns.iter().zip(&self.attributes) {
            match attribute {
                Attribute::Number { bytes, .. } => {
                    integers.encode(&values.numbers, low_u8(*bytes as u64), streams);
                }
                Attribute::Fixed { .. } if values.bytes.is_empty() => {}
                Attribute::Fixed { .. } => put_bytes(&values.bytes, streams),
                Attribute::Variable { .. } if values.spans.is_empty() => {}
                Attribute::Variable { numeric, .. } => {
                    put_forms(values, &mut self.forms, integers, streams);
                    let numeric = *numeric && values.forms.is_empty();
                    self.texts
                        .encode(raw, &values.spans, numeric, integers, streams);
                }
            }
        }
    }
}

/// A number at a place that is inside.
#[inline]
fn number_at<const BYTES: usize>(raw: &[u8], at: usize) -> i64 {
    match BYTES {
        1 => i64::from(raw[at].cast_signed()),
        2 => i64::from(u16_at(raw, at).cast_signed()),
        4 => i64::from(u32_at(raw, at).cast_signed()),
        _ => u64_at(raw, at).cast_signed(),
    }
}

/// Cuts one column out of all rows that have a value in it.
#[inline]
fn column<'a>(
    raw: &[u8],
    rows: impl Iterator<Item = &'a mut Open>,
    attribute: Attribute,
    values: &mut Values,
) {
    let numbers = &mut values.numbers;
    match attribute {
        Attribute::Number { bytes: 1, align } => {
            numbers.extend(rows.map(|row| row.number::<1>(raw, align)));
        }
        Attribute::Number { bytes: 2, align } => {
            numbers.extend(rows.map(|row| row.number::<2>(raw, align)));
        }
        Attribute::Number { bytes: 4, align } => {
            numbers.extend(rows.map(|row| row.number::<4>(raw, align)));
        }
        Attribute::Number { align, .. } => {
            numbers.extend(rows.map(|row| row.number::<8>(raw, align)));
        }
        Attribute::Fixed { bytes, align } => {
            for row in rows {
                let at = row.align(raw, align);
                if row.ends(at + bytes) {
                    values.bytes.extend_from_slice(&raw[at..at + bytes]);
                }
            }
        }
        Attribute::Variable { align, .. } => {
            let forms = &mut values.forms;
            let texts = (0..).zip(rows).map(|(number, row)| {
                let (span, form) = row.variable(raw, align);
                if form != Form::usual(span.bytes as usize) {
                    forms.push((number, form));
                }
                span
            });
            values.spans.extend(texts);
        }
    }
}

/// Appends which form each value has, or a zero if each has the usual one.
fn put_forms(
    values: &Values,
    forms: &mut Vec<i64>,
    integers: &mut IntegerEncoder,
    streams: &mut Streams,
) {
    streams.byte(u8::from(!values.forms.is_empty()));
    if values.forms.is_empty() {
        return;
    }
    forms.clear();
    let usual = |span: &Span| Form::usual(span.bytes as usize).number();
    forms.extend(values.spans.iter().map(usual));
    for (value, form) in &values.forms {
        forms[*value as usize] = form.number();
    }
    integers.encode(forms, 1, streams);
}
