//! What the columns of a layout are to those who cut rows and join them.

use crate::layout::{Align, Column};

/// Longest payload that PostgreSQL stores with a header of one byte.
pub(crate) const SHORT_BYTES_MAX: usize = 126;
/// The tag of a value in a TOAST table, and the bytes that say where it is there.
pub(crate) const EXTERNAL_TAG: u8 = 18;
pub(crate) const EXTERNAL_BYTES: usize = 16;

/// A column, by how its values are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    /// A value of 1, 2, 4 or 8 bytes: a number.
    Number { bytes: usize, align: usize },
    /// A value of another fixed length.
    Fixed { bytes: usize, align: usize },
    /// A value with a header that says how long it is.
    Variable { align: usize, numeric: bool },
}

impl Attribute {
    pub(crate) fn of(column: Column) -> Self {
        match column {
            Column::Fixed { bytes, align } => {
                let (bytes, align) = (usize::from(bytes), align.bytes());
                match bytes {
                    1 | 2 | 4 | 8 => Self::Number { bytes, align },
                    _ => Self::Fixed { bytes, align },
                }
            }
            Column::Variable { align, numeric } => Self::Variable {
                align: Align::bytes(align),
                numeric,
            },
        }
    }
}

/// The header of a value without a fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One byte, at any place.
    Short,
    /// Four bytes.
    Long,
    /// Four bytes, and the payload is compressed.
    Compressed,
    /// Two bytes, and the payload says where the value is.
    External,
}

impl Form {
    /// What PostgreSQL chooses for most values.
    pub(crate) fn usual(payload_bytes: usize) -> Self {
        if payload_bytes <= SHORT_BYTES_MAX {
            Self::Short
        } else {
            Self::Long
        }
    }

    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Short => 0,
            Self::Long => 1,
            Self::Compressed => 2,
            Self::External => 3,
        }
    }

    pub(crate) fn of(number: i64) -> Option<Self> {
        let all = [Self::Short, Self::Long, Self::Compressed, Self::External];
        all.into_iter().find(|form| form.number() == number)
    }
}

/// Whether a row has a value in a column: a bit of its null bitmap.
#[inline]
pub(crate) fn has_value(bitmap: Option<&[u8]>, column: usize) -> bool {
    bitmap.is_none_or(|bitmap| bitmap[column / 8] >> (column % 8) & 1 == 1)
}
