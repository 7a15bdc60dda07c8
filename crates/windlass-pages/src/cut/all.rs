//! Cuts rows that have a value in each column: a step moves the places of all rows.

use super::{Open, Values, number_at};
use crate::attributes::{Attribute, Form};
use crate::number::position;
use crate::places::Places;
use crate::texts::Span;

/// Cuts one column out of all rows, each of which has a value in it. `false` if that is not
/// possible: then each row must be looked at.
pub(super) fn column_of_all(
    raw: &[u8],
    places: &mut Places,
    attribute: Attribute,
    values: &mut Values,
) -> bool {
    match attribute {
        Attribute::Number { bytes, align } => {
            let numbers = &mut values.numbers;
            let fits = places.align_over_zeros(raw, align)
                && match bytes {
                    1 => numbers_of_all::<1>(raw, places, numbers),
                    2 => numbers_of_all::<2>(raw, places, numbers),
                    4 => numbers_of_all::<4>(raw, places, numbers),
                    _ => numbers_of_all::<8>(raw, places, numbers),
                };
            places.skip(bytes);
            fits
        }
        Attribute::Fixed { bytes, align } => {
            let fits = places.align_over_zeros(raw, align)
                && places.iter().all(|at| {
                    let value = raw.get(at..at + bytes);
                    values.bytes.extend_from_slice(value.unwrap_or_default());
                    value.is_some()
                });
            places.skip(bytes);
            fits
        }
        Attribute::Variable { align, .. } => {
            let Values { spans, forms, .. } = values;
            spans.reserve(places.iter().len());
            places.go(|at| {
                let first = *raw.get(at)?;
                if first & 1 == 0 || first == 1 {
                    let row = Open::inside(at, raw.len());
                    return unusual_of_all(raw, row, align, spans, forms);
                }
                let end = at + usize::from(first >> 1);
                spans.push(Span {
                    at: position(at + 1),
                    bytes: position(end - at - 1),
                });
                Some(end)
            })
        }
    }
}

/// A value without a short header. Returns where it ends.
fn unusual_of_all(
    raw: &[u8],
    mut row: Open,
    align: usize,
    spans: &mut Vec<Span>,
    forms: &mut Vec<(u32, Form)>,
) -> Option<usize> {
    let (span, form) = row.variable(raw, align);
    if form != Form::usual(span.bytes as usize) {
        forms.push((position(spans.len()), form));
    }
    spans.push(span);
    row.fits.then_some(row.at as usize)
}

#[inline]
fn numbers_of_all<const BYTES: usize>(raw: &[u8], places: &Places, into: &mut Vec<i64>) -> bool {
    let mut inside = true;
    into.extend(places.iter().map(|at| {
        let Some(value) = raw.get(at..at + BYTES) else {
            inside = false;
            return 0;
        };
        number_at::<BYTES>(value, 0)
    }));
    inside
}
