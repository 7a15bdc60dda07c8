//! The write-ahead log: which frame holds which committed version of which page.
//!
//!   wal = [header 32][frame header 24][page][frame header 24][page] ...
//!
//! A frame belongs to the log's current generation if its two salts are the header's and its
//! checksum is right. The checksum runs on from the header through every frame. A frame whose "size
//! after commit" is not zero ends a transaction. See "The Write-Ahead Log" in
//! <https://sqlite.org/fileformat2.html>.
//!
//! Invariants
//! - A scan never reports a frame behind the last commit it saw, or behind the first frame that is
//!   not valid. So its result is a committed state, whatever is cut off or flipped.
//! - The scan never keeps page content. It keeps eight bytes for each distinct page; the rest stays
//!   in the log.

use std::io;

use crate::header::{be32, is_page_size};

/// Length of the log's header in bytes.
pub const WAL_HEADER_BYTES: usize = 32;

/// Length of a frame's header in bytes; the page follows.
pub const FRAME_HEADER_BYTES: usize = 24;

/// Magic number of a log with checksums over little-endian words. Big-endian is one more.
const MAGIC_LITTLE: u32 = 0x377f_0682;

/// The only version of the log's format there is.
const FORMAT_VERSION: u32 = 3_007_000;

/// Bytes read from the log at a time while scanning.
const SCAN_BYTES: usize = 1 << 20;

/// The log's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalHeader {
    /// Page size in bytes.
    pub page_bytes: u32,
    /// The two salts, as they stand in the header and in each valid frame.
    pub salts: [u8; 8],
    /// Checksum of the header; the checksum of the frames continues from it.
    pub checksum: Checksum,
}

impl WalHeader {
    /// Reads a header. `None` if it is not one; SQLite then takes the log for empty.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..WAL_HEADER_BYTES)?;
        let magic = be32(bytes, 0);
        if magic & !1 != MAGIC_LITTLE || be32(bytes, 4) != FORMAT_VERSION {
            return None;
        }
        let page_bytes = be32(bytes, 8);
        let checksum = Checksum::new(magic & 1 != 0).over(&bytes[..24]);
        if !is_page_size(page_bytes) || checksum.sums != [be32(bytes, 24), be32(bytes, 28)] {
            return None;
        }
        let mut salts = [0; 8];
        salts.copy_from_slice(&bytes[16..24]);
        Some(Self {
            page_bytes,
            salts,
            checksum,
        })
    }

    /// Length of a frame in bytes: its header and its page.
    pub fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.page_bytes as usize
    }
}

/// SQLite's running checksum: two sums over pairs of 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    big_endian: bool,
    /// The two sums so far.
    pub sums: [u32; 2],
}

impl Checksum {
    /// A checksum of no bytes yet, over words of the given byte order.
    pub fn new(big_endian: bool) -> Self {
        Self {
            big_endian,
            sums: [0, 0],
        }
    }

    /// A checksum that stands at these sums, over words of the same byte order.
    #[must_use]
    pub(crate) fn with_sums(self, sums: [u32; 2]) -> Self {
        Self { sums, ..self }
    }

    /// The checksum continued over `bytes`, whose length must be a multiple of eight.
    #[must_use]
    pub fn over(self, bytes: &[u8]) -> Self {
        assert!(
            bytes.len().is_multiple_of(8),
            "the checksum is over pairs of words"
        );
        let sums = if self.big_endian {
            run(self.sums, bytes, u32::from_be_bytes)
        } else {
            run(self.sums, bytes, u32::from_le_bytes)
        };
        Self { sums, ..self }
    }
}

fn run([mut first, mut second]: [u32; 2], bytes: &[u8], word: fn([u8; 4]) -> u32) -> [u32; 2] {
    for pair in bytes.as_chunks::<8>().0 {
        let [a, b, c, d, e, f, g, h] = *pair;
        first = first.wrapping_add(word([a, b, c, d])).wrapping_add(second);
        second = second.wrapping_add(word([e, f, g, h])).wrapping_add(first);
    }
    [first, second]
}

/// The header of a frame that belongs to the log's generation and has a right checksum.
pub(crate) struct Frame {
    pub(crate) page: u32,
    /// Pages of the database if the frame ends a transaction, else 0.
    pub(crate) commit_pages: u32,
    pub(crate) checksum: Checksum,
}

/// Reads a frame that follows frames with this checksum. `None` if it is not one of the log.
pub(crate) fn check_frame(header: &WalHeader, before: Checksum, frame: &[u8]) -> Option<Frame> {
    let checksum = before.over(&frame[..8]).over(&frame[FRAME_HEADER_BYTES..]);
    let page = be32(frame, 0);
    let valid = page != 0
        && frame[8..16] == header.salts
        && checksum.sums == [be32(frame, 16), be32(frame, 20)];
    valid.then(|| Frame {
        page,
        commit_pages: be32(frame, 4),
        checksum,
    })
}

/// One page and the newest frame that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageFrame {
    /// Page number, from 1.
    pub page: u32,
    /// Frame number, from 1.
    pub frame: u32,
}

/// The state that the committed frames of a log make up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalState {
    /// The log's header.
    pub header: WalHeader,
    /// Number of frames up to and including the last commit.
    pub frame_count: u32,
    /// Size of the database in pages after that commit; 0 when nothing is committed.
    pub page_count: u32,
    /// Checksum after that commit.
    pub checksum: Checksum,
    /// For each page that the log holds, its newest frame, in page order.
    pub frames: Vec<PageFrame>,
}

/// Where a log is read from: a file, or bytes in a test.
pub trait ReadAt {
    /// Fills `into` from `offset`. Returns how many bytes there were; fewer than asked for only at
    /// the end.
    fn read_full_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for std::fs::File {
    fn read_full_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut filled = 0;
        while filled < into.len() {
            match self.read_at(&mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl ReadAt for [u8] {
    fn read_full_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).map_or(self.len(), |offset| offset.min(self.len()));
        let bytes = into.len().min(self.len() - start);
        into[..bytes].copy_from_slice(&self[start..start + bytes]);
        Ok(bytes)
    }
}

/// Reads a log from its start to its last commit within the first `frames_max` frames. `None` if
/// there is no valid header, which means an empty log.
pub fn scan(wal: &(impl ReadAt + ?Sized), frames_max: u32) -> io::Result<Option<WalState>> {
    let mut header = [0; WAL_HEADER_BYTES];
    let found = wal.read_full_at(&mut header, 0)?;
    let Some(header) = WalHeader::decode(&header[..found]) else {
        return Ok(None);
    };
    let mut scan = Scan::new(header);
    let frame_bytes = header.frame_bytes();
    let mut buffer = vec![0; (SCAN_BYTES / frame_bytes).max(1) * frame_bytes];
    let mut offset = WAL_HEADER_BYTES as u64;
    loop {
        let found = wal.read_full_at(&mut buffer, offset)?;
        for frame in buffer[..found].chunks_exact(frame_bytes) {
            if scan.frame_no == frames_max || !scan.push(frame) {
                return Ok(Some(scan.finish()));
            }
        }
        if found < buffer.len() {
            return Ok(Some(scan.finish()));
        }
        offset += found as u64;
    }
}

/// A scan in progress: what is committed, and what the open transaction has added.
struct Scan {
    committed: WalState,
    /// Frames read, committed or not.
    frame_no: u32,
    checksum: Checksum,
    frames: LatestFrames,
}

impl Scan {
    fn new(header: WalHeader) -> Self {
        let checksum = header.checksum;
        let committed = WalState {
            header,
            frame_count: 0,
            page_count: 0,
            checksum,
            frames: Vec::new(),
        };
        Self {
            committed,
            frame_no: 0,
            checksum,
            frames: LatestFrames::default(),
        }
    }

    /// Takes the next frame. Returns `false` if it is not valid; the log then ends before it.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(frame) = check_frame(&self.committed.header, self.checksum, bytes) else {
            return false;
        };
        self.frame_no += 1;
        self.checksum = frame.checksum;
        self.frames.open.push(PageFrame {
            page: frame.page,
            frame: self.frame_no,
        });
        if frame.commit_pages != 0 {
            self.committed.frame_count = self.frame_no;
            self.committed.page_count = frame.commit_pages;
            self.committed.checksum = frame.checksum;
            self.frames.commit();
        }
        true
    }

    fn finish(mut self) -> WalState {
        self.committed.frames = self.frames.finish();
        self.committed
    }
}

/// The newest frame of each page. Sorting now and then keeps the list small: it never has more than
/// twice the number of distinct pages, plus a constant.
#[derive(Default)]
struct LatestFrames {
    committed: Vec<PageFrame>,
    /// Frames of the transaction that has not committed yet.
    open: Vec<PageFrame>,
    distinct: usize,
}

const COMPACT_MIN: usize = 64 * 1024;

impl LatestFrames {
    fn commit(&mut self) {
        self.committed.append(&mut self.open);
        if self.committed.len() > self.distinct * 2 + COMPACT_MIN {
            self.compact();
        }
    }

    /// Leaves one entry, the newest, for each page.
    fn compact(&mut self) {
        // Sort the newest first within a page: dedup keeps the first entry, so it keeps the newest.
        self.committed
            .sort_unstable_by_key(|entry| (entry.page, u32::MAX - entry.frame));
        self.committed.dedup_by_key(|entry| entry.page);
        self.distinct = self.committed.len();
    }

    fn finish(mut self) -> Vec<PageFrame> {
        self.compact();
        self.committed.shrink_to_fit();
        self.committed
    }
}
