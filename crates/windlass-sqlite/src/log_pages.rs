//! The pages of the log: the newest committed version of each page, from the WAL, is put over the
//! bytes that were read from the database file.
//!
//! Invariants
//! - A page comes from the frame that the scan found. This code compares the frame's header again
//!   when it reads the page. If the log has moved on, it reports an error and never returns another
//!   page.
//! - Threads share the pages without a lock, because all reads are at given positions.

use std::fs::File;
use std::io::IoSliceMut;
use std::path::PathBuf;

use crate::error::{IoContext, SqliteError};
use crate::header::be32;
use crate::wal::{FRAME_HEADER_BYTES, PageFrame, ReadAt, WAL_HEADER_BYTES, WalState};

/// The pages of a WAL that lie over a database file.
#[derive(Debug)]
pub(crate) struct LogPages {
    wal: File,
    path: PathBuf,
    state: WalState,
}

impl LogPages {
    /// The pages of `state`, which a scan of `wal` found.
    pub(crate) fn new(wal: File, path: PathBuf, state: WalState) -> Self {
        Self { wal, path, state }
    }

    /// Whether the log has a version of the page; pages are counted from 0.
    pub(crate) fn has(&self, page: u64) -> bool {
        let frames = &self.state.frames;
        let found = frames.binary_search_by_key(&(page + 1), |entry| u64::from(entry.page));
        found.is_ok()
    }

    /// The pages of which the log has a version behind this frame, counted from 1, in order.
    pub(crate) fn pages_behind(&self, frame: u32) -> Vec<u32> {
        let frames = self.state.frames.iter();
        let behind = frames.filter(|entry| entry.frame > frame);
        behind.map(|entry| entry.page).collect()
    }

    /// The checksum of a frame, counted from 1, with all before it.
    pub(crate) fn sums_of(&self, frame: u32) -> Result<Option<[u32; 2]>, SqliteError> {
        let frame_bytes = self.state.header.frame_bytes() as u64;
        let offset = WAL_HEADER_BYTES as u64 + u64::from(frame - 1) * frame_bytes;
        let mut header = [0; FRAME_HEADER_BYTES];
        let found = self.wal.read_full_at(&mut header, offset);
        let is_there = found.during("read", &self.path)? == header.len()
            && frame <= self.state.frame_count
            && header[8..16] == self.state.header.salts;
        Ok(is_there.then(|| [be32(&header, 16), be32(&header, 20)]))
    }

    /// Replaces pages in `bytes` by newer ones from the log. `bytes` were read at `offset`, which
    /// must be a page boundary.
    pub(crate) fn apply(&self, offset: u64, bytes: &mut [u8]) -> Result<(), SqliteError> {
        let page_bytes = u64::from(self.state.header.page_bytes);
        assert!(
            offset.is_multiple_of(page_bytes),
            "pieces start at a page boundary"
        );
        let first = offset / page_bytes + 1;
        let start = self
            .state
            .frames
            .partition_point(|entry| u64::from(entry.page) < first);
        for entry in &self.state.frames[start..] {
            // If the page does not lie in `bytes`, the loop ends here; so both conversions are
            // safe.
            let from = (u64::from(entry.page) - first).saturating_mul(page_bytes);
            let Some(page) = usize::try_from(from)
                .ok()
                .and_then(|from| bytes.get_mut(from..))
            else {
                break;
            };
            if page.is_empty() {
                break;
            }
            let length = page.len().min(self.state.header.page_bytes as usize);
            self.read_page(*entry, &mut page[..length])?;
        }
        Ok(())
    }

    /// How many bytes the pages have that lie below `bytes`.
    pub(crate) fn bytes_below(&self, bytes: u64) -> u64 {
        let page_bytes = u64::from(self.state.header.page_bytes);
        let is_below = |entry: &PageFrame| u64::from(entry.page - 1) * page_bytes < bytes;
        let count = self.state.frames.partition_point(is_below);
        count as u64 * page_bytes
    }

    /// Gives each page that lies below `bytes` to `write`, with its offset in the database.
    pub(crate) fn write_below(
        &self,
        bytes: u64,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), SqliteError>,
    ) -> Result<(), SqliteError> {
        let mut page = vec![0; self.state.header.page_bytes as usize];
        for entry in &self.state.frames {
            let offset = u64::from(entry.page - 1) * u64::from(self.state.header.page_bytes);
            // A later transaction may have made the database shorter.
            if offset >= bytes {
                break;
            }
            self.read_page(*entry, &mut page)?;
            write(offset, &page)?;
        }
        Ok(())
    }

    fn read_page(&self, entry: PageFrame, page: &mut [u8]) -> Result<(), SqliteError> {
        let frame_bytes = self.state.header.frame_bytes() as u64;
        let offset = WAL_HEADER_BYTES as u64 + u64::from(entry.frame - 1) * frame_bytes;
        let mut header = [0; FRAME_HEADER_BYTES];
        let expected = header.len() + page.len();
        let found = loop {
            let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(&mut page[..])];
            match rustix::io::preadv(&self.wal, parts, offset) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other.during("read", &self.path)?,
            }
        };
        let damaged = |what| {
            Err(SqliteError::WalDamaged {
                path: self.path.clone(),
                frame: entry.frame,
                what,
            })
        };
        if found != expected {
            return damaged("was cut off during the backup");
        }
        if be32(&header, 0) != entry.page || header[8..16] != self.state.header.salts {
            return damaged("was overwritten during the backup");
        }
        Ok(())
    }
}
