//! What kind of pages a frame has, and the columns of their rows.
//!
//! A layout comes from catalogs that may be older or newer than the pages, and in a set from bytes
//! that
//! nobody vouches for. It decides how well pages compress, never what comes back.

use crate::error::PagesError;
use crate::number::{low_u8, low_u16};
use crate::streams::{Source, Streams};

/// Most columns a layout has: PostgreSQL's limit for a table.
pub const COLUMNS_MAX: usize = 1600;
/// The type `numeric` in pg_type.
const NUMERIC_OID: u32 = 1700;
/// The smallest and the largest page as powers of two: SQLite's limits.
const PAGE_POWERS: std::ops::RangeInclusive<u32> = 9..=16;

const HEAP: u8 = 1;
const BTREE: u8 = 2;
const SQLITE: u8 = 3;

/// The length of a page in bytes: a power of two from 512 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(u32);

impl PageSize {
    /// `None` if no database has such pages.
    pub fn new(bytes: u32) -> Option<Self> {
        let possible = bytes.is_power_of_two() && PAGE_POWERS.contains(&bytes.trailing_zeros());
        possible.then_some(Self(bytes))
    }

    /// The length.
    pub fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// Where a value may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Anywhere.
    One,
    /// At a multiple of 2.
    Two,
    /// At a multiple of 4.
    Four,
    /// At a multiple of 8.
    Eight,
}

impl Align {
    const ALL: [Self; 4] = [Self::One, Self::Two, Self::Four, Self::Eight];

    /// As in bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    fn power(self) -> u8 {
        low_u8(u64::from(self.bytes().trailing_zeros()))
    }
}

/// One column of rows, or of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Every value has as many bytes.
    Fixed {
        /// How many, at least 1.
        bytes: u16,
        /// Where values begin.
        align: Align,
    },
    /// Values with a length of their own (PostgreSQL: varlena).
    Variable {
        /// Where values with a long header begin.
        align: Align,
        /// Whether the values are PostgreSQL's decimal numbers (type numeric).
        numeric: bool,
    },
}

impl Column {
    /// The column as pg_attribute has it: attlen, attalign and atttypid. A dropped column counts;
    /// its
    /// atttypid is 0. `None` for what no row on disk contains (attlen -2); then give no columns at
    /// all.
    pub fn postgres(attlen: i16, attalign: u8, atttypid: u32) -> Option<Self> {
        let align = match attalign {
            b'c' => Align::One,
            b's' => Align::Two,
            b'i' => Align::Four,
            b'd' => Align::Eight,
            _ => return None,
        };
        match attlen {
            -1 => Some(Self::Variable {
                align,
                numeric: atttypid == NUMERIC_OID,
            }),
            1.. => Some(Self::Fixed {
                bytes: attlen.cast_unsigned(),
                align,
            }),
            _ => None,
        }
    }

    fn put(self, streams: &mut Streams) {
        match self {
            Self::Variable { align, numeric } => {
                streams.byte(align.power() | u8::from(numeric) << 2);
            }
            Self::Fixed { bytes, align } => {
                streams.byte(align.power() | 1 << 3);
                streams.number(u64::from(bytes));
            }
        }
    }

    fn take(source: &mut Source<'_>) -> Result<Self, PagesError> {
        let head = source.byte()?;
        let align = Align::ALL[usize::from(head & 3)];
        match head >> 2 {
            kind @ (0 | 1) => Ok(Self::Variable {
                align,
                numeric: kind == 1,
            }),
            2 => {
                let bytes = source.number()?;
                let possible = (1..=i16::MAX.unsigned_abs().into()).contains(&bytes);
                let bytes = low_u16(bytes);
                let what = "a column has an impossible length";
                possible
                    .then_some(Self::Fixed { bytes, align })
                    .ok_or(PagesError::Layout { what })
            }
            _ => Err(PagesError::Layout {
                what: "a column is of an unknown kind",
            }),
        }
    }
}

/// What kind of pages a frame has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Tables of PostgreSQL, also materialized views and TOAST tables.
    PostgresHeap {
        /// The block size.
        page_size: PageSize,
        /// All columns, also dropped ones; none if they are not known.
        columns: Vec<Column>,
    },
    /// B-trees of PostgreSQL.
    PostgresBtree {
        /// The block size.
        page_size: PageSize,
        /// The columns of the keys, also of INCLUDE; none if they are not known.
        columns: Vec<Column>,
    },
    /// Any pages of SQLite, which say themselves what they are.
    Sqlite {
        /// The page size.
        page_size: PageSize,
        /// How many bytes at the end of each page are not SQLite's: byte 20 of the file.
        reserved_bytes: u8,
    },
}

impl Layout {
    /// The length of the pages.
    pub fn page_size(&self) -> PageSize {
        match self {
            Self::PostgresHeap { page_size, .. }
            | Self::PostgresBtree { page_size, .. }
            | Self::Sqlite { page_size, .. } => *page_size,
        }
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        match self {
            Self::PostgresHeap { columns, .. } | Self::PostgresBtree { columns, .. } => columns,
            Self::Sqlite { .. } => &[],
        }
    }

    /// As bytes, which are short: one or two for most columns.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = match self {
            Self::PostgresHeap { .. } => HEAP,
            Self::PostgresBtree { .. } => BTREE,
            Self::Sqlite { .. } => SQLITE,
        };
        let mut streams = Streams::new();
        streams.byte(kind);
        streams.byte(low_u8(self.page_size().0.trailing_zeros().into()));
        if let Self::Sqlite { reserved_bytes, .. } = self {
            streams.byte(*reserved_bytes);
            return streams.main;
        }
        streams.number(self.columns().len() as u64);
        for column in self.columns() {
            column.put(&mut streams);
        }
        streams.main
    }

    /// Out of bytes that may come from anywhere.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PagesError> {
        let wrong = |what| PagesError::Layout { what };
        let streams = [bytes, &[]];
        let mut source = Source::new(&streams)?;
        let kind = source.byte()?;
        let power = u32::from(source.byte()?);
        let page_size = 1u32.checked_shl(power).and_then(PageSize::new);
        let page_size = page_size.ok_or(wrong("no database has pages of this length"))?;
        if kind == SQLITE {
            let reserved_bytes = source.byte()?;
            source.end()?;
            return Ok(Self::Sqlite {
                page_size,
                reserved_bytes,
            });
        }
        let count = source.number()?;
        if count > COLUMNS_MAX as u64 {
            return Err(wrong("there are too many columns"));
        }
        let columns = (0..count).map(|_| Column::take(&mut source));
        let columns = columns.collect::<Result<_, _>>()?;
        source.end()?;
        match kind {
            HEAP => Ok(Self::PostgresHeap { page_size, columns }),
            BTREE => Ok(Self::PostgresBtree { page_size, columns }),
            _ => Err(wrong("the kind of the pages is not known")),
        }
    }
}
