//! PostgreSQL's pages without their rows: headers, line pointers, where rows lie, and stale bytes.
//!
//!   | header | line pointers --> |  hole  | row n | ... | row 2 | row 1 | special space |
//!   0        24                lower    upper                        special
//!
//! A row lies where the one behind it in the page's order ended (rounded up to 8 bytes), and the
//! next line
//! pointer points to it. What differs from that is a number; on most pages all of them are zero.
//!
//! Invariants
//! - A page whose rows overlap, or whose header is not possible, stays as it is.
//! - Bytes that neither header, line pointers nor rows cover are zero, or the page's remains are
//!   kept.

use crate::number::u16_at;

/// Where rows begin at multiples of this.
pub(crate) const ROW_ALIGN: usize = 8;
pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const POINTER_BYTES: usize = 4;
const LOWER_AT: usize = 12;
const UPPER_AT: usize = 14;
const SPECIAL_AT: usize = 16;
/// The state of a line pointer that points to a row.
pub(crate) const NORMAL: u32 = 1;

pub(crate) const RAW: i64 = 0;
pub(crate) const ZERO: i64 = 1;
pub(crate) const PARSED: i64 = 2;
/// Parsed, and bytes that nothing covers are not all zero.
pub(crate) const REMAINS: i64 = 3;

/// In which order the rows of a page are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// From the end of the page: the order in which a heap was filled.
    Place,
    /// By line pointer: the order of keys in a B-tree.
    Slot,
}

/// What all pages of a frame have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) page_bytes: usize,
    pub(crate) special_bytes: usize,
    pub(crate) order: Order,
}

/// A row that a line pointer points to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The page in the frame.
    pub(crate) page: u32,
    /// Where in the frame.
    pub(crate) start: u32,
    pub(crate) bytes: u32,
    /// The number of the line pointer; the first is 1.
    pub(crate) slot: u32,
}

impl Row {
    pub(crate) fn of<'a>(&self, raw: &'a [u8]) -> &'a [u8] {
        &raw[self.start as usize..(self.start + self.bytes) as usize]
    }

    pub(crate) fn end(&self) -> u32 {
        self.start + self.bytes
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) lower: usize,
    pub(crate) upper: usize,
    pub(crate) special: usize,
}

impl Bounds {
    pub(crate) fn of(page: &[u8], shape: Shape) -> Option<Self> {
        let at = |at| usize::from(u16_at(page, at));
        let (lower, upper, special) = (at(LOWER_AT), at(UPPER_AT), at(SPECIAL_AT));
        let ordered = HEADER_BYTES <= lower && lower <= upper && upper <= special;
        let whole = lower % POINTER_BYTES == 0 && special + shape.special_bytes == page.len();
        (ordered && whole).then_some(Self {
            lower,
            upper,
            special,
        })
    }

    pub(crate) fn slots(self) -> usize {
        (self.lower - HEADER_BYTES) / POINTER_BYTES
    }
}

/// The ranges of a page that neither its line pointers nor its rows cover. `places` are in order.
pub(crate) fn uncovered(
    places: &[(u32, u32)],
    page_start: u32,
    bounds: Bounds,
) -> impl Iterator<Item = (usize, usize)> {
    let inside = move |at: u32| (at - page_start) as usize;
    let starts = places.iter().map(move |place| inside(place.0));
    let ends = places.iter().map(move |place| inside(place.1));
    let from = std::iter::once(bounds.lower).chain(ends);
    from.zip(starts.chain(std::iter::once(bounds.special)))
}

/// Puts places of rows in order. They come in the opposite order of rows, so most are in order
/// already; in an index that was built at once, only the first row, the high key, is elsewhere.
/// `false` if they overlap.
pub(crate) fn put_in_order(places: &mut [(u32, u32)]) -> bool {
    let in_order = |places: &[(u32, u32)]| places.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    if in_order(places) {
        return true;
    }
    places.rotate_right(1);
    if in_order(places) {
        return true;
    }
    // Not the unstable one: this one makes use of rows that are in order, which most are.
    places.sort();
    in_order(places)
}
