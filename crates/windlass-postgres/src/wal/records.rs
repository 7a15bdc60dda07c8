//! Records of the log, one after the other. Each is complete and checked before it is handed out.
//!
//! A record is 24 bytes of header and a body, together up to 1 GiB, over any number of pages and
//! segments. The CRC covers the body, then the header up to the CRC itself. The reader keeps the
//! body only for the resource managers that the caller named, because nobody needs the others.
//!
//! Invariants
//! - A record is handed out only if its CRC matches and it names the record before it.
//! - Memory: one block of the log, and one body of at most [`BODY_BYTES_MAX`].
//! - Nothing in the log can make the reader panic or read for ever: every step moves forward.

use windlass_media::{crc32c, crc32c_zeros_after, fitted};

use super::pages::{Halt, LogEnd, Pages};
use super::source::LogSource;
use crate::error::PostgresError;
use crate::lsn::Lsn;

const HEADER_BYTES: usize = 24;
/// Where the header's own CRC stands.
const CRC_AT: usize = 20;
/// The longest record that any version writes.
const RECORD_BYTES_MAX: u32 = 1 << 30;
/// The longest body that is kept. Records about files hold only a few numbers and one path.
pub(crate) const BODY_BYTES_MAX: u32 = 1 << 16;
/// Resource manager of the log itself, and its record that ends a segment early.
const MANAGER_LOG: u8 = 0;
const SWITCH: u8 = 0x40;
/// The half of the info byte that belongs to the resource manager.
const INFO_MASK: u8 = 0xF0;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Position of its first byte.
    pub start: Lsn,
    /// Position of the first byte behind it.
    pub end: Lsn,
    /// Length of header and body.
    pub bytes: u32,
    /// The resource manager that replays it.
    pub manager: u8,
    /// Which of the manager's records it is.
    pub info: u8,
    /// The transaction that wrote it; 0 for none.
    pub transaction: u32,
    /// The body; empty for managers that the caller did not name.
    pub body: Vec<u8>,
}

/// Reads records from a position on.
pub struct Records<'a> {
    pages: Pages<'a>,
    wanted: &'a [u8],
    /// Whether the beginning of a long body is kept, instead of ending there.
    beginnings: bool,
    /// Where the last record began; not known at first.
    previous: Option<Lsn>,
    /// Behind the last record, if that ended its segment.
    switched: Option<Lsn>,
    end: Option<LogEnd>,
}

/// The body of a record, while it is read page by page.
struct Body {
    left: u32,
    crc: u32,
    kept: Option<Vec<u8>>,
}

impl<'a> Records<'a> {
    /// Reads from `start`, where a record begins. Keeps the bodies of the managers in `wanted`.
    pub fn open(
        source: &'a mut dyn LogSource,
        segment_bytes: u64,
        start: Lsn,
        wanted: &'a [u8],
    ) -> Result<Self, PostgresError> {
        let pages = Pages::open(source, segment_bytes, start).map_err(|halt| match halt {
            Halt::Failed(error) => error,
            Halt::End(LogEnd { at, what }) => PostgresError::WalRecord { at, what },
        })?;
        Ok(Self {
            pages,
            wanted,
            beginnings: false,
            previous: None,
            switched: None,
            end: None,
        })
    }

    /// Keeps only the beginning of a body that is longer than [`BODY_BYTES_MAX`].
    pub fn with_beginnings(self) -> Self {
        Self {
            beginnings: true,
            ..self
        }
    }

    /// The major version that wrote the log.
    pub fn major(&self) -> u32 {
        self.pages.major()
    }

    /// Where and why the reading ended; known once `read_next` has returned `None`.
    pub fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// The end of the last record, if the server ended its segment with it. What follows there are
    /// zeros, and nobody reads them.
    pub(crate) fn switched(&self) -> Option<Lsn> {
        self.switched
    }

    /// The next record; `None` at the end of the readable log.
    pub fn read_next(&mut self) -> Result<Option<Record>, PostgresError> {
        while self.end.is_none() {
            match self.read() {
                Ok(Some(record)) => return Ok(Some(record)),
                // The server never completed this record; another one follows on the same page.
                Ok(None) => {}
                Err(Halt::Failed(error)) => return Err(error),
                Err(Halt::End(end)) => self.end = Some(end),
            }
        }
        Ok(None)
    }

    /// Reads one record; `None` if the server abandoned it.
    fn read(&mut self) -> Result<Option<Record>, Halt> {
        self.pages.align();
        if self.pages.is_at_page() && self.pages.enter_page()?.rest_bytes != 0 {
            return Err(self.halt("a page continues a record where one begins"));
        }
        let start = self.pages.position();
        let fault = |what| Halt::End(LogEnd { at: start, what });
        // A record begins at a multiple of 8, so its length never crosses a page boundary.
        let first = self.pages.take(4)?;
        let bytes = u32::from_le_bytes([first[0], first[1], first[2], first[3]]);
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(first);
        if bytes == 0 {
            return Err(fault("no record begins here"));
        }
        if !(24..=RECORD_BYTES_MAX).contains(&bytes) {
            return Err(fault("a record's length is impossible"));
        }
        let mut body = Body {
            left: bytes - 4,
            crc: 0,
            kept: None,
        };
        if !self.fill(&mut header[4..], &mut body)? {
            return Ok(None);
        }
        self.check_header(&header, start)?;
        let (info, manager) = (header[16] & INFO_MASK, header[17]);
        let transaction = u32::from_le_bytes([4, 5, 6, 7].map(|at: usize| header[at]));
        if self.wanted.contains(&manager) {
            if bytes > BODY_BYTES_MAX && !self.beginnings {
                return Err(fault("a record is longer than its kind can be"));
            }
            body.kept = Some(Vec::with_capacity(body.left.min(BODY_BYTES_MAX) as usize));
        }
        if !self.read_body(&mut body)? {
            return Ok(None);
        }
        let crc = crc32c_zeros_after(body.crc, CRC_AT as u64) ^ crc32c(&header[..CRC_AT]);
        if header[CRC_AT..] != crc.to_le_bytes() {
            return Err(fault("a record's checksum does not hold"));
        }
        self.previous = Some(start);
        let end = self.pages.position();
        let is_switch = manager == MANAGER_LOG && info == SWITCH;
        self.switched = is_switch.then_some(end);
        if is_switch {
            self.pages.skip_segment();
        }
        Ok(Some(Record {
            start,
            end,
            bytes,
            manager,
            info,
            transaction,
            body: body.kept.unwrap_or_default(),
        }))
    }

    fn check_header(&self, header: &[u8; HEADER_BYTES], start: Lsn) -> Result<(), Halt> {
        let mut previous = [0; 8];
        previous.copy_from_slice(&header[8..16]);
        let found = Lsn(u64::from_le_bytes(previous));
        let what = match self.previous {
            Some(expected) if found != expected => "a record does not follow the one before it",
            None if found >= start => "a record follows a later one",
            _ => return Ok(()),
        };
        Err(Halt::End(LogEnd { at: start, what }))
    }

    /// Fills `into` with bytes of a record. Returns false if the server abandoned the record.
    fn fill(&mut self, into: &mut [u8], body: &mut Body) -> Result<bool, Halt> {
        let mut filled = 0;
        while filled < into.len() {
            if !self.cross_page(body.left)? {
                return Ok(false);
            }
            let part = self.pages.take(into.len() - filled)?;
            into[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
            body.left -= fitted::<u32, _>(part.len());
        }
        Ok(true)
    }

    /// Reads the rest of a record. Returns false if the server abandoned the record.
    fn read_body(&mut self, body: &mut Body) -> Result<bool, Halt> {
        while body.left > 0 {
            if !self.cross_page(body.left)? {
                return Ok(false);
            }
            let part = self.pages.take(body.left as usize)?;
            body.crc = crc32c_zeros_after(body.crc, part.len() as u64) ^ crc32c(part);
            if let Some(kept) = &mut body.kept {
                let room = (BODY_BYTES_MAX as usize).saturating_sub(kept.len());
                kept.extend_from_slice(&part[..part.len().min(room)]);
            }
            body.left -= fitted::<u32, _>(part.len());
        }
        Ok(true)
    }

    /// Enters the next page, on which a record continues. Returns false if that page abandons the
    /// record.
    fn cross_page(&mut self, left: u32) -> Result<bool, Halt> {
        if !self.pages.is_at_page() {
            return Ok(true);
        }
        let at = self.pages.position();
        let page = self.pages.enter_page()?;
        if page.abandons_record {
            return Ok(false);
        }
        if page.rest_bytes != left {
            let what = "a page does not continue the record before it";
            return Err(Halt::End(LogEnd { at, what }));
        }
        Ok(true)
    }

    fn halt(&self, what: &'static str) -> Halt {
        let at = self.pages.position();
        Halt::End(LogEnd { at, what })
    }
}
