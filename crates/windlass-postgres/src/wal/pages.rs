//! Pages of the log: their headers, and the bytes of records between the headers.
//!
//!   segment files --read ahead--> [block of pages] --headers checked--> bytes of records
//!
//! Invariants
//! - No byte is handed out before the header of its page was checked: it must have this position,
//!   this version and this cluster's sizes.
//! - Memory: one block, whatever the log holds.

use windlass_media::fitted;

use super::source::LogSource;
use crate::error::PostgresError;
use crate::lsn::Lsn;

/// Length of a page's header, and of the header of a segment's first page.
const SHORT_HEADER_BYTES: usize = 24;
pub(crate) const LONG_HEADER_BYTES: usize = 40;
/// Flags of xlp_info.
const CONTINUES_RECORD: u16 = 1;
pub(super) const LONG_HEADER: u16 = 2;
const ABANDONS_RECORD: u16 = 8;
/// How many bytes to read at once: a multiple of every page size, and at most a segment.
const BLOCK_BYTES: u64 = 1 << 20;
pub(super) const PAGE_BYTES_MIN: u32 = 1 << 10;
pub(super) const PAGE_BYTES_MAX: u32 = 1 << 16;
/// The magic numbers of pages, by major version.
pub(super) const MAGICS: [(u16, u32); 6] = [
    (0xD10D, 14),
    (0xD110, 15),
    (0xD113, 16),
    (0xD116, 17),
    (0xD118, 18),
    (0xD122, 19),
];

/// Where the first record of a segment begins. `None` if the segment is not there, or has none.
pub(crate) fn first_record(
    source: &mut dyn LogSource,
    segment_bytes: u64,
    segment: u64,
) -> Result<Option<Lsn>, PostgresError> {
    let start = Lsn(segment.saturating_mul(segment_bytes));
    let mut pages = match Pages::open(source, segment_bytes, start) {
        Ok(pages) => pages,
        Err(Halt::End(_)) => return Ok(None),
        Err(Halt::Failed(error)) => return Err(error),
    };
    while pages.position.0 / segment_bytes == segment {
        let page = pages.position;
        let rest_bytes = match pages.enter_page() {
            Ok(found) => u64::from(found.rest_bytes),
            Err(Halt::End(_)) => return Ok(None),
            Err(Halt::Failed(error)) => return Err(error),
        };
        let first = Lsn(pages.position.0 + rest_bytes.next_multiple_of(8));
        let next_page = Lsn(page.0 + pages.page_bytes);
        if first < next_page {
            return Ok(Some(first));
        }
        pages.position = next_page;
    }
    Ok(None)
}

/// Why the log ends, and at which position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The position.
    pub at: Lsn,
    /// What was found there.
    pub what: &'static str,
}

/// Why a read stopped: an error, or the end of the readable log.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The log cannot be read further. If a server is still writing the log, this is its end.
    End(LogEnd),
    /// A file could not be read.
    Failed(PostgresError),
}

impl From<PostgresError> for Halt {
    fn from(error: PostgresError) -> Self {
        Self::Failed(error)
    }
}

/// What the header of a page says about the record that continues on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageStart {
    /// How many bytes of an earlier record are on this page and later ones; 0 for none.
    pub(crate) rest_bytes: u32,
    /// The server never completed the earlier record, and this page begins with another one.
    pub(crate) abandons_record: bool,
}

/// The bytes of a log, from a position on.
pub(crate) struct Pages<'a> {
    source: &'a mut dyn LogSource,
    segment_bytes: u64,
    page_bytes: u64,
    magic: u16,
    major: u32,
    /// The next byte.
    position: Lsn,
    block: Vec<u8>,
    /// Position of the block's first byte; `None` before anything was read.
    block_at: Option<Lsn>,
}

impl<'a> Pages<'a> {
    /// Begins at `position`. The header of its segment shows which version wrote the log.
    pub(crate) fn open(
        source: &'a mut dyn LogSource,
        segment_bytes: u64,
        position: Lsn,
    ) -> Result<Self, Halt> {
        let end = |what| Err(Halt::End(LogEnd { at: position, what }));
        if !segment_bytes.is_power_of_two() || !((1 << 20)..=(1 << 30)).contains(&segment_bytes) {
            return end("the segment size is not one that PostgreSQL knows");
        }
        let mut header = [0; LONG_HEADER_BYTES];
        let segment = position.0 / segment_bytes;
        if !source.read(segment, 0, &mut header)? {
            return end("its segment is not there");
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|index| header[at + index]));
        let magic = u16::from_le_bytes([header[0], header[1]]);
        let Some((_, major)) = MAGICS.iter().find(|(known, _)| *known == magic) else {
            return end("its segment does not begin with a page of a known version's log");
        };
        let (found_segment, page_bytes) = (word(32), word(36));
        if u64::from(found_segment) != segment_bytes {
            return end("its segment states another segment size");
        }
        let known = (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes);
        if !known || !page_bytes.is_power_of_two() {
            return end("its segment states a page size that PostgreSQL does not know");
        }
        Ok(Self {
            source,
            segment_bytes,
            page_bytes: u64::from(page_bytes),
            magic,
            major: *major,
            position,
            block: Vec::new(),
            block_at: None,
        })
    }

    /// The major version that wrote the log.
    pub(crate) fn major(&self) -> u32 {
        self.major
    }

    /// The position of the next byte.
    pub(crate) fn position(&self) -> Lsn {
        self.position
    }

    /// Moves on to the next multiple of 8, where records begin.
    pub(crate) fn align(&mut self) {
        self.position = Lsn(self.position.0.next_multiple_of(8));
    }

    /// Moves to the next segment: a switch leaves the rest of a segment empty.
    pub(crate) fn skip_segment(&mut self) {
        self.position = Lsn(self.position.0.next_multiple_of(self.segment_bytes));
    }

    /// True if the next byte is the first of a page, so that a header stands there.
    pub(crate) fn is_at_page(&self) -> bool {
        self.position.0.is_multiple_of(self.page_bytes)
    }

    /// Reads the header at this position and moves behind it.
    pub(crate) fn enter_page(&mut self) -> Result<PageStart, Halt> {
        let at = self.position;
        let first = at.0.is_multiple_of(self.segment_bytes);
        let header_bytes = if first {
            LONG_HEADER_BYTES
        } else {
            SHORT_HEADER_BYTES
        };
        let (magic, position) = (self.magic, at.0.to_le_bytes());
        let header = self.buffered(header_bytes)?;
        let info = u16::from_le_bytes([header[2], header[3]]);
        let fault = if u16::from_le_bytes([header[0], header[1]]) != magic {
            Some("a page does not begin with its version's magic number")
        } else if header[8..16] != position {
            Some("a page is of another position of the log")
        } else if (info & LONG_HEADER != 0) != first {
            Some("a page has the wrong kind of header")
        } else {
            None
        };
        let rest_bytes = u32::from_le_bytes([header[16], header[17], header[18], header[19]]);
        if let Some(what) = fault {
            return Err(Halt::End(LogEnd { at, what }));
        }
        self.position = Lsn(at.0 + header_bytes as u64);
        Ok(PageStart {
            rest_bytes: if info & CONTINUES_RECORD == 0 {
                0
            } else {
                rest_bytes
            },
            abandons_record: info & ABANDONS_RECORD != 0,
        })
    }

    /// Takes at most `limit` bytes from this position, all on one page, and moves behind them.
    pub(crate) fn take(&mut self, limit: usize) -> Result<&[u8], Halt> {
        let left = self.page_bytes - self.position.0 % self.page_bytes;
        let bytes = usize::try_from(left).map_or(limit, |left| left.min(limit));
        let at = self.position;
        self.position = Lsn(at.0 + bytes as u64);
        self.bytes_at(at, bytes)
    }

    fn buffered(&mut self, bytes: usize) -> Result<&[u8], Halt> {
        self.bytes_at(self.position, bytes)
    }

    /// Bytes of one page; reads the block around them if needed.
    fn bytes_at(&mut self, at: Lsn, bytes: usize) -> Result<&[u8], Halt> {
        let block_bytes = BLOCK_BYTES.min(self.segment_bytes);
        let start = Lsn(at.0 / block_bytes * block_bytes);
        if self.block_at != Some(start) {
            self.block_at = None;
            let length = fitted(block_bytes);
            self.block.resize(length, 0);
            let (segment, offset) = (start.0 / self.segment_bytes, start.0 % self.segment_bytes);
            if !self.source.read(segment, offset, &mut self.block)? {
                let what = "a segment is not there";
                return Err(Halt::End(LogEnd { at, what }));
            }
            self.block_at = Some(start);
        }
        let from: usize = fitted(at.0 - start.0);
        match self.block.get(from..from.saturating_add(bytes)) {
            Some(found) => Ok(found),
            None => Err(Halt::End(LogEnd {
                at,
                what: "a page ends before what it should hold",
            })),
        }
    }
}
