//! Page hashes: what a set says of each page, so that the next backup of its chain knows which
//! pages are still the same without reading the base's.
//!
//!   compressors --record--> [file without a name] --once all is read--> a file of the set
//!   the base's file of hashes --same--> pages that are left out
//!
//! The file has a key and then the hash of each whole page, in order. Every set of a chain has the
//! hashes of all pages, also of those that it left out, under the key of the first one.
//!
//! Invariants
//! - A hash is that of the bytes that went into the set last. A page is hashed again with each
//!   version of it.
//! - A page without a hash counts as changed.
//! - If the hashes cannot be kept, the set has none, and the next backup compares pages.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_engine::{BackupRun, EngineError, FileContent, FileSpec, Missing, ReadAt};
use windlass_media::{FileNo, PAGE_HASH_BYTES, PAGE_HASH_KEY_BYTES, PageHasher, fitted, saturated};

use crate::facts::{DatabaseFacts, HashedPages};

/// The number of the file of hashes. It is not in the file table: no restore writes it.
const HASH_FILE: FileNo = FileNo(1);
/// No page has this hash, except one in 2^128.
const UNKNOWN: [u8; PAGE_HASH_BYTES] = [0; PAGE_HASH_BYTES];

/// Bytes of hashes that are copied at a time.
const COPY_BYTES: usize = 1 << 18;

/// The hashes of the base of a backup.
#[derive(Clone, Debug)]
pub(crate) struct BaseHashes {
    hasher: Arc<PageHasher>,
    page_bytes: usize,
    pages: u64,
    content: Arc<dyn ReadAt>,
}

/// The hashes of a backup, while pages go into its set.
#[derive(Debug)]
pub(crate) struct PageHashes {
    hasher: Arc<PageHasher>,
    page_bytes: usize,
    kept: File,
    has_failed: AtomicBool,
}

/// The hashes that a set will have.
#[derive(Clone, Debug)]
pub(crate) enum SetHashes {
    /// Those of the pages that were read.
    Read(Arc<PageHashes>),
    /// Those of the base: no page was read, because none changed.
    Base(BaseHashes),
}

/// The bytes of a file without a name.
#[derive(Debug)]
struct Spool(File);

impl BaseHashes {
    /// Those of a set with these facts. `content` gives the bytes of a file of it, of this length.
    pub(crate) fn of_set(
        facts: &DatabaseFacts,
        content: impl FnOnce(FileNo, u64) -> Option<Arc<dyn ReadAt>>,
    ) -> Option<Self> {
        let file = FileNo(facts.page_hashes?.file);
        let page_bytes: usize = fitted(facts.page_bytes);
        let pages = facts.bytes.checked_div(u64::from(facts.page_bytes))?;
        let content = content(file, place_of(pages))?;
        let mut key = [0; PAGE_HASH_KEY_BYTES];
        content.read_exact_at(0, &mut key).ok()?;
        Some(Self {
            hasher: Arc::new(PageHasher::new(key)),
            page_bytes,
            pages,
            content,
        })
    }

    /// How long its pages are.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The pages from `offset` on whose hashes are these, as ranges of the bytes from there.
    pub(crate) fn same(&self, offset: u64, found: &[u8]) -> io::Result<Vec<Range<usize>>> {
        let first = offset / self.page_bytes as u64;
        let count = self.pages.saturating_sub(first);
        let left = saturated::<usize, _>(count).saturating_mul(PAGE_HASH_BYTES);
        let mut before = vec![0; found.len().min(left)];
        if before.is_empty() {
            return Ok(Vec::new());
        }
        self.content.read_exact_at(place_of(first), &mut before)?;
        let pairs = before
            .chunks_exact(PAGE_HASH_BYTES)
            .zip(found.chunks_exact(PAGE_HASH_BYTES));
        let same = pairs
            .enumerate()
            .filter(|(_, (before, found))| before == found && *found != UNKNOWN);
        let pages = same.map(|(page, _)| page * self.page_bytes..(page + 1) * self.page_bytes);
        Ok(pages.collect())
    }

    /// The file, and how long it is.
    pub(crate) fn content(&self) -> (&dyn ReadAt, u64) {
        (self.content.as_ref(), place_of(self.pages))
    }

    /// What people call the file.
    pub(crate) fn name(&self) -> std::path::PathBuf {
        self.content.name().unwrap_or_default()
    }
}

impl PageHashes {
    /// Begins to keep hashes of pages of this length, comparable with those of the base.
    pub(crate) fn begin(page_bytes: usize, base: Option<&BaseHashes>) -> Option<Arc<Self>> {
        let hasher = match base {
            Some(base) => Arc::clone(&base.hasher),
            None => Arc::new(PageHasher::random().ok()?),
        };
        let kept = tempfile::tempfile().ok()?;
        kept.write_all_at(hasher.key(), 0).ok()?;
        Some(Arc::new(Self {
            hasher,
            page_bytes,
            kept,
            has_failed: AtomicBool::new(false),
        }))
    }

    /// Begins with the hashes of the base: those of the pages that nobody will read.
    pub(crate) fn inherit(&self, base: &BaseHashes) {
        if self.copy(base).is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
    }

    fn copy(&self, base: &BaseHashes) -> io::Result<()> {
        let (mut at, end) = (place_of(0), place_of(base.pages));
        let mut part = vec![0; COPY_BYTES];
        while at < end {
            let length = saturated::<usize, _>(end - at).min(COPY_BYTES);
            base.content.read_exact_at(at, &mut part[..length])?;
            self.kept.write_all_at(&part[..length], at)?;
            at += length as u64;
        }
        Ok(())
    }

    /// Keeps the hashes of the whole pages of a run that goes into the set, and returns them.
    pub(crate) fn record(&self, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let pages = bytes.chunks_exact(self.page_bytes);
        let hashes: Vec<u8> = pages.flat_map(|page| self.hasher.hash(page)).collect();
        let place = place_of(offset / self.page_bytes as u64);
        if self.kept.write_all_at(&hashes, place).is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        hashes
    }

    /// The hashes of a database with these facts, if they are those of all its pages.
    fn content(&self, facts: &DatabaseFacts) -> Option<(Arc<dyn ReadAt>, u64)> {
        let is_other = fitted::<usize, _>(facts.page_bytes) != self.page_bytes;
        if is_other || self.has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let bytes = place_of(facts.bytes / u64::from(facts.page_bytes));
        self.kept.set_len(bytes).ok()?;
        let kept = self.kept.try_clone().ok()?;
        Some((Arc::new(Spool(kept)), bytes))
    }
}

impl SetHashes {
    /// Puts them into the set of a run that has read everything else. Returns what the facts say.
    pub(crate) fn keep(
        &self,
        facts: &DatabaseFacts,
        run: &mut BackupRun,
    ) -> Result<Option<HashedPages>, EngineError> {
        let content = match self {
            Self::Read(hashes) => hashes.content(facts),
            Self::Base(base) => Some((Arc::clone(&base.content), place_of(base.pages))),
        };
        let Some((content, bytes)) = content else {
            return Ok(None);
        };
        // Otherwise whole transfers of pages would be written behind them.
        run.empty_buffers()?;
        let progress = Arc::clone(run.progress());
        progress.set_total(progress.total() + bytes);
        run.push_beside(FileSpec {
            file: HASH_FILE,
            content: FileContent::At(content),
            bytes,
            needed_bytes: bytes,
            missing: Missing::Fail,
        })?;
        run.drain()?;
        Ok(Some(HashedPages { file: HASH_FILE.0 }))
    }
}

impl ReadAt for Spool {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        crate::wal::ReadAt::read_full_at(&self.0, into, offset)
    }
}

/// Where the hash of a page stands. Those of so many pages end there.
fn place_of(page: u64) -> u64 {
    PAGE_HASH_KEY_BYTES as u64 + page * PAGE_HASH_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(bytes: u64) -> DatabaseFacts {
        DatabaseFacts {
            page_bytes: 512,
            bytes,
            page_hashes: Some(HashedPages { file: 1 }),
            ..DatabaseFacts::new(std::path::Path::new("/shop.db"), bytes, None)
        }
    }

    fn base(content: &[u8]) -> BaseHashes {
        let hashes = PageHashes::begin(512, None).unwrap();
        hashes.record(0, content);
        let facts = facts(content.len() as u64);
        let (kept, bytes) = hashes.content(&facts).unwrap();
        let given = |file: FileNo, asked: u64| {
            assert_eq!((file, asked), (FileNo(1), bytes));
            Some(kept)
        };
        BaseHashes::of_set(&facts, given).unwrap()
    }

    #[test]
    fn only_whole_pages_with_the_same_hash_are_the_same() {
        let before: Vec<u8> = (0..10).flat_map(|page| [page; 512]).collect();
        let base = base(&before[..9 * 512 + 7]);
        let mut now = before.clone();
        now[5 * 512 + 3] ^= 1;
        now.extend([77; 1024]);
        let hashes = PageHashes::begin(512, Some(&base)).unwrap();
        // What is behind the base's last whole page is no page of it.
        let (first, rest) = now.split_at(4 * 512);
        let found = hashes.record(0, first);
        let all: Vec<_> = (0..4).map(|page| page * 512..(page + 1) * 512).collect();
        assert_eq!(base.same(0, &found).unwrap(), all);
        let found = hashes.record(4 * 512, rest);
        let expected = [0..512, 1024..1536, 1536..2048, 2048..2560];
        assert_eq!(base.same(4 * 512, &found).unwrap(), expected);
        let found = hashes.record(20 * 512, first);
        assert_eq!(base.same(20 * 512, &found).unwrap(), []);
    }

    #[test]
    fn a_page_that_was_never_hashed_counts_as_changed() {
        let hashes = PageHashes::begin(512, None).unwrap();
        hashes.record(1024, &[1; 512]);
        let (kept, _) = hashes.content(&facts(2048)).unwrap();
        let base = BaseHashes::of_set(&facts(2048), |_, _| Some(kept)).unwrap();
        let unknown = [UNKNOWN; 4].concat();
        assert_eq!(base.same(0, &unknown).unwrap(), []);
        let again = PageHashes::begin(512, Some(&base)).unwrap();
        let found = again.record(0, &[[0; 512], [0; 512], [1; 512]].concat());
        assert!(base.same(0, &found).unwrap().iter().eq([&(1024..1536)]));
    }

    #[test]
    fn pages_that_nobody_reads_have_the_hashes_of_the_base() {
        let before: Vec<u8> = (0..9).flat_map(|page| [page; 512]).collect();
        let base = base(&before);
        let mut now = before.clone();
        now[2 * 512..3 * 512].fill(77);
        now.extend([78; 512]);
        // One page less, as many, and one more than the base has.
        for pages in [8, 9, 10] {
            let hashes = PageHashes::begin(512, Some(&base)).unwrap();
            hashes.inherit(&base);
            hashes.record(2 * 512, &[77; 512]);
            hashes.record(9 * 512, &[78; 512]);
            let facts = facts(pages * 512);
            let (kept, _) = hashes.content(&facts).unwrap();
            let inherited = BaseHashes::of_set(&facts, |_, _| Some(kept)).unwrap();
            let again = PageHashes::begin(512, Some(&inherited)).unwrap();
            let found = again.record(0, &now);
            let same = inherited.same(0, &found).unwrap();
            assert_eq!(same.len() as u64, pages);
        }
    }

    #[test]
    fn hashes_of_pages_of_another_length_are_not_kept() {
        let hashes = PageHashes::begin(1024, None).unwrap();
        hashes.record(0, &[1; 4096]);
        assert!(hashes.content(&facts(4096)).is_none());
        let empty = DatabaseFacts::new(std::path::Path::new("/shop.db"), 0, None);
        assert!(hashes.content(&empty).is_none());
    }
}
