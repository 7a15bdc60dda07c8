//! Writes the pages in which a database differs from its target, and keeps those in which it
//! differs from the snapshot.
//!
//!   now --+
//!   base -+--[page by page]--> undo.pending, transaction
//!   over -+
//!
//! Never does: read what the database still shares with the snapshot, if the file system says so.

use std::path::Path;

use windlass_engine::Cancel;
use windlass_engine::media::fitted;
use windlass_sqlite::{Overwrite, SharedExtents, comparable_first_page, is_lock_page};

use super::State;
use crate::error::SnapshotError;
use crate::overwritten;
use crate::undo::{UndoReader, UndoWriter};

/// Bytes that are compared at a time: a multiple of every page size.
const BLOCK_BYTES: u32 = 1 << 20;

/// Writes what differs, page by page.
pub(super) struct Writing<'a> {
    base: &'a State,
    over: Option<UndoReader>,
    shared: Option<SharedExtents<'a>>,
    overwrite: &'a Overwrite,
    pub(super) undo: UndoWriter,
    pub(super) now_pages: u32,
    pub(super) target_pages: u32,
    written: u32,
    pub(super) compared: u32,
}

impl<'a> Writing<'a> {
    pub(super) fn new(
        (base, over, shared): (&'a State, Option<UndoReader>, Option<SharedExtents<'a>>),
        overwrite: &'a Overwrite,
        directory: &Path,
    ) -> Result<Self, SnapshotError> {
        let target_pages = over
            .as_ref()
            .map_or(base.page_count, |over| over.record().page_count);
        let now_pages = overwrite.reader().bytes() / u64::from(base.page_bytes);
        overwritten::note_undo(directory, over.is_some())?;
        Ok(Self {
            base,
            over,
            shared,
            overwrite,
            undo: UndoWriter::create(directory)?,
            now_pages: fitted(now_pages),
            target_pages,
            written: 0,
            compared: 0,
        })
    }

    /// Compares all pages. Returns how many were written, and the first page, which is not put yet.
    pub(super) fn run(&mut self, cancel: &Cancel) -> Result<(u32, Vec<u8>), SnapshotError> {
        let page_bytes = self.base.page_bytes as usize;
        let block_pages = BLOCK_BYTES / self.base.page_bytes;
        let last = self.now_pages.max(self.target_pages);
        let mut first_page = Vec::new();
        let block = || vec![0; BLOCK_BYTES as usize];
        let (mut now, mut base, mut target) = (block(), block(), block());
        let mut first = 1;
        while first <= last {
            cancel.check()?;
            let count = block_pages.min(last - first + 1);
            if first > 1 && self.is_same(first, count) {
                first += count;
                continue;
            }
            self.compared += count;
            let bytes = count as usize * page_bytes;
            self.read(
                first,
                &mut now[..bytes],
                &mut base[..bytes],
                &mut target[..bytes],
            )?;
            if first == 1 {
                first_page = target[..page_bytes].to_vec();
            }
            let pages = now[..bytes].chunks_exact(page_bytes);
            let pages = pages.zip(base[..bytes].chunks_exact(page_bytes));
            let pages = pages.zip(target[..bytes].chunks_exact(page_bytes));
            for (page, ((now, base), target)) in (first..).zip(pages) {
                self.page(page, now, base, target)?;
            }
            first += count;
        }
        Ok((self.written, first_page))
    }

    /// Whether these pages are known to be the same now, in the snapshot and in the target. Blocks
    /// that a revert wrote may be shared again, if somebody merges equal blocks.
    fn is_same(&mut self, first: u32, count: u32) -> bool {
        let pages = first..first + count;
        let all = [self.now_pages, self.base.page_count, self.target_pages];
        let is_there = all.iter().all(|last| pages.end - 1 <= *last);
        let has_over = self
            .over
            .as_ref()
            .is_some_and(|over| over.has_below(pages.end));
        if !is_there || has_over || self.overwrite.is_logged(pages.clone()) {
            return false;
        }
        let offset = |page: u32| u64::from(page - 1) * u64::from(self.base.page_bytes);
        let shared = self.shared.as_mut();
        shared.is_some_and(|shared| shared.cover(offset(pages.start), offset(pages.end)))
    }

    fn read(
        &mut self,
        first: u32,
        now: &mut [u8],
        base: &mut [u8],
        target: &mut [u8],
    ) -> Result<(), SnapshotError> {
        let offset = u64::from(first - 1) * u64::from(self.base.page_bytes);
        let found = self.overwrite.reader().read(offset, now)?;
        now[found..].fill(0);
        self.base.read(first, base)?;
        target.copy_from_slice(base);
        match &mut self.over {
            Some(over) => over.lay_over(first, target),
            None => Ok(()),
        }
    }

    fn page(
        &mut self,
        page: u32,
        now: &[u8],
        base: &[u8],
        target: &[u8],
    ) -> Result<(), SnapshotError> {
        if is_lock_page(page, self.base.page_bytes) {
            return Ok(());
        }
        let is_now = page <= self.now_pages;
        // The first page is always kept: the state may be written back only because of others.
        // Behind the end of the snapshot its pages are zeros.
        if is_now && (page == 1 || now != base) {
            self.undo.keep(page, now)?;
        }
        let is_target = page <= self.target_pages;
        let differs = match page {
            1 => comparable_first_page(now) != comparable_first_page(target),
            _ => is_now != is_target || now != target,
        };
        if differs {
            self.written += 1;
        }
        match differs && is_target && page > 1 {
            true => Ok(self.overwrite.put(page, target)?),
            false => Ok(()),
        }
    }
}
