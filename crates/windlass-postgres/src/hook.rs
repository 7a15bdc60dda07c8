//! Page checksums on the way: every page of a relation is judged as it passes the compressors.
//!
//! The rule is PostgreSQL's own for base backups: only pages older than the backup's start count,
//! since newer ones are repaired by the log; a page that fails is read once more, because the
//! server may have been writing it; then it is counted and reported. Never is a backup refused
//! for a bad page: it may be the last backup there will be.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_engine::{EngineError, PageHook};
use windlass_media::FileNo;

use crate::checksum::{PageState, judge_page};
use crate::facts::{BadFile, ChecksumFacts};
use crate::listing::Listing;
use crate::lsn::Lsn;

/// How many bad blocks of a file are named.
const BLOCKS_NAMED: usize = 5;

/// Judges the pages of a backup.
pub(crate) struct PageCheck {
    listing: Arc<Listing>,
    root: PathBuf,
    start: Lsn,
    block_bytes: usize,
    segment_blocks: u32,
    pages: AtomicU64,
    /// By file; touched for bad pages only.
    bad: Mutex<BTreeMap<FileNo, BadPages>>,
}

#[derive(Default)]
struct BadPages {
    pages: u64,
    blocks: Vec<u32>,
}

impl PageCheck {
    pub(crate) fn new(
        listing: Arc<Listing>,
        root: PathBuf,
        start: Lsn,
        (block_bytes, segment_blocks): (u32, u32),
    ) -> Self {
        Self {
            listing,
            root,
            start,
            block_bytes: block_bytes as usize,
            segment_blocks,
            pages: AtomicU64::new(0),
            bad: Mutex::default(),
        }
    }

    /// What was found; complete when the run is drained.
    pub(crate) fn report(&self) -> ChecksumFacts {
        let bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        let files: Vec<BadFile> = bad
            .iter()
            .map(|(file, bad)| self.bad_file(*file, bad))
            .collect();
        ChecksumFacts {
            enabled: true,
            verified: true,
            pages_checked: self.pages.load(Ordering::Relaxed),
            pages_bad: files.iter().map(|file| file.pages).sum(),
            files,
        }
    }

    fn bad_file(&self, file: FileNo, bad: &BadPages) -> BadFile {
        let path = self
            .listing
            .entry(file)
            .map(|entry| self.listing.path(entry));
        let path = String::from_utf8_lossy(path.unwrap_or_default()).into_owned();
        BadFile {
            path,
            pages: bad.pages,
            blocks: bad.blocks.clone(),
        }
    }

    /// True when a page that failed is no better on a second look at the file.
    fn is_still_bad(&self, file: FileNo, offset: u64, block: u32) -> bool {
        let Some(entry) = self.listing.entry(file) else {
            return false;
        };
        let mut page = vec![0; self.block_bytes];
        let opened = File::open(self.listing.source_path(&self.root, entry));
        match opened.and_then(|opened| opened.read_exact_at(&mut page, offset)) {
            Ok(()) => judge_page(&page, block, self.start) == PageState::Bad,
            // Dropped or truncated meanwhile: the log says so, and nobody will read the page.
            Err(_) => false,
        }
    }

    fn note(&self, file: FileNo, block: u32) {
        let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        let bad = bad.entry(file).or_default();
        bad.pages += 1;
        // Pieces come in any order; the lowest blocks are the ones to name.
        let position = bad.blocks.partition_point(|known| *known < block);
        bad.blocks.insert(position, block);
        bad.blocks.truncate(BLOCKS_NAMED);
    }
}

impl PageHook for PageCheck {
    fn piece(&self, file: FileNo, offset: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        let Some(segment) = self.listing.entry(file).and_then(|entry| entry.segment) else {
            return Ok(());
        };
        let first = offset / self.block_bytes as u64;
        let pages = bytes.chunks_exact(self.block_bytes);
        self.pages.fetch_add(pages.len() as u64, Ordering::Relaxed);
        let base = u64::from(segment) * u64::from(self.segment_blocks) + first;
        for (index, page) in (0_u64..).zip(pages) {
            // Block numbers have 32 bits; a file that goes beyond is no relation's.
            let Ok(block) = u32::try_from(base + index) else {
                return Ok(());
            };
            let bad = judge_page(page, block, self.start) == PageState::Bad;
            let at = offset + index * self.block_bytes as u64;
            if bad && self.is_still_bad(file, at, block) {
                self.note(file, block);
            }
        }
        Ok(())
    }
}
