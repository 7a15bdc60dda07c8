//! The pages of relations on their way through the compressors: each is checked, and classified by
//! how it is laid out.
//!
//! The rule is PostgreSQL's own for base backups. Only pages older than the backup's start count,
//! because replaying the log repairs newer ones. A page that fails is read once more, because the
//! server may have been writing it. If it fails again, it is counted and reported. Windlass never
//! refuses a backup for a bad page, because this may be the last backup of that cluster.
//!
//! A page can say that it is newer, and be damaged: its position in the log is damaged, too. No
//! page is newer than the log, so at the end a page counts whose position lies behind the backup's
//! stop. Its checksum must be wrong as well. After pg_resetwal whole pages are newer than the log.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use windlass_engine::{EngineError, PageHook, Pages};
use windlass_media::FileNo;

use crate::checksum::{PageState, is_whole, judge_page, page_lsn};
use crate::facts::{BadFile, ChecksumFacts};
use crate::layouts::PageLayouts;
use crate::listing::{Entry, Listing};
use crate::lsn::Lsn;
use crate::windows::WINDOWS_MAX;

/// At most this many bad blocks of a file are named.
const BLOCKS_NAMED: usize = 5;
/// At most this many pages are kept that cannot be judged before the end, in about 1.5 MiB. Those
/// beyond are not counted.
const UNDECIDED_MAX: usize = 1 << 16;

/// Checks the pages of a backup, and classifies them.
pub(crate) struct PageCheck {
    /// Whether pages have checksums to check.
    verifies: bool,
    /// The files of each window.
    windows: [OnceLock<Listed>; WINDOWS_MAX],
    root: PathBuf,
    block_bytes: usize,
    segment_blocks: u32,
    pages: AtomicU64,
    /// The bad pages of each file. Only a bad page touches this.
    bad: Mutex<BTreeMap<FileNo, BadPages>>,
    undecided: Mutex<Vec<Undecided>>,
}

/// A page with a wrong checksum that is newer than the start of the backup, as it says. The log
/// repairs it, unless it says something impossible.
struct Undecided {
    file: FileNo,
    block: u32,
    lsn: Lsn,
}

/// The files of one window; their numbers begin with `first`.
pub(crate) struct Listed {
    pub(crate) first: FileNo,
    pub(crate) listing: Arc<Listing>,
    /// Where the window's log begins.
    pub(crate) start: Lsn,
    /// How pages are laid out, as far as that is known and wanted.
    pub(crate) layouts: PageLayouts,
    /// The pages to leave out, if the set builds on another one.
    pub(crate) older: Option<OlderPages>,
}

/// Pages that the base of the set has.
#[derive(Debug)]
pub(crate) struct OlderPages {
    /// A page is one of them if it was last changed before this position.
    pub(crate) since: Lsn,
    /// By entry of the listing: from this offset on no page is one of them.
    pub(crate) limits: Vec<u64>,
}

impl OlderPages {
    /// The ranges of these bytes that the base has. They were read at `offset` of an entry's file.
    fn ranges(&self, position: usize, offset: u64, bytes: &[u8], page: usize) -> Vec<Range<usize>> {
        let limit = self.limits.get(position).copied().unwrap_or(0);
        let is_older = |at: usize, bytes: &[u8]| {
            let lsn = page_lsn(bytes);
            // Zeros that nobody logged have no position. What was there before must not come back.
            offset + (at + page) as u64 <= limit && lsn != Lsn(0) && lsn < self.since
        };
        let pages = bytes.chunks_exact(page).enumerate();
        let pages = pages.map(|(index, bytes)| (index * page, bytes));
        let older = pages.filter(|(at, bytes)| is_older(*at, bytes));
        older.map(|(at, _)| at..at + page).collect()
    }
}

impl Listed {
    fn entry(&self, file: FileNo) -> Option<&Entry> {
        let position = file.0.checked_sub(self.first.0)?;
        self.listing.entries().get(position as usize)
    }
}

#[derive(Clone, Default)]
struct BadPages {
    pages: u64,
    blocks: Vec<u32>,
}

impl BadPages {
    fn add(&mut self, block: u32) {
        self.pages += 1;
        // Pieces come in any order, but the report names the lowest blocks.
        let position = self.blocks.partition_point(|known| *known < block);
        self.blocks.insert(position, block);
        self.blocks.truncate(BLOCKS_NAMED);
    }
}

impl PageCheck {
    pub(crate) fn new(
        root: PathBuf,
        (block_bytes, segment_blocks): (u32, u32),
        verifies: bool,
    ) -> Self {
        Self {
            verifies,
            windows: Default::default(),
            root,
            block_bytes: block_bytes as usize,
            segment_blocks,
            pages: AtomicU64::new(0),
            bad: Mutex::default(),
            undecided: Mutex::default(),
        }
    }

    /// Takes the files of a window, before the first of them is pushed.
    pub(crate) fn add(&self, listed: Listed) {
        let mut listed = Some(listed);
        for window in &self.windows {
            if listed.is_none() {
                break;
            }
            window.get_or_init(|| listed.take().expect("it was there just now"));
        }
    }

    /// The window that read a file, and the file's entry in it.
    fn find(&self, file: FileNo) -> Option<(&Listed, &Entry)> {
        let windows = self.windows.iter().filter_map(OnceLock::get);
        windows
            .filter_map(|window| Some((window, window.entry(file)?)))
            .next()
    }

    /// What was found in the files for which `counts` is true. No page is newer than `stop`, where
    /// the log of the backup ends. Complete once the run is drained.
    pub(crate) fn report(&self, counts: impl Fn(FileNo) -> bool, stop: Lsn) -> ChecksumFacts {
        let mut bad = locked(&self.bad).clone();
        let undecided = locked(&self.undecided);
        for page in undecided.iter().filter(|page| page.lsn > stop) {
            bad.entry(page.file).or_default().add(page.block);
        }
        let files: Vec<BadFile> = bad
            .iter()
            .filter(|(file, _)| counts(**file))
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
        let found = self.find(file);
        let path = found.map(|(window, entry)| window.listing.path(entry));
        let path = String::from_utf8_lossy(path.unwrap_or_default()).into_owned();
        BadFile {
            path,
            pages: bad.pages,
            blocks: bad.blocks.clone(),
        }
    }

    /// Reads a page that failed again from the file, and notes it if it still fails.
    fn judge_again(&self, file: FileNo, offset: u64, block: u32) {
        let Some((window, entry)) = self.find(file) else {
            return;
        };
        let mut page = vec![0; self.block_bytes];
        let opened = File::open(window.listing.source_path(&self.root, entry));
        let read = opened.and_then(|opened| opened.read_exact_at(&mut page, offset));
        // If it fails, the relation was dropped or truncated meanwhile. The log says so, and nobody
        // will read the page.
        if read.is_ok() {
            match judged(&page, block, window.start) {
                Judged::Good => {}
                Judged::Bad => locked(&self.bad).entry(file).or_default().add(block),
                Judged::Undecided(lsn) => {
                    let mut undecided = locked(&self.undecided);
                    if undecided.len() < UNDECIDED_MAX {
                        undecided.push(Undecided { file, block, lsn });
                    }
                }
            }
        }
    }
}

/// What is known of a page before the backup has stopped.
#[derive(PartialEq, Eq)]
enum Judged {
    Good,
    Bad,
    /// It names this position, and its checksum is wrong.
    Undecided(Lsn),
}

fn judged(page: &[u8], block: u32, start: Lsn) -> Judged {
    match judge_page(page, block, start) {
        PageState::Good => Judged::Good,
        PageState::Bad => Judged::Bad,
        PageState::Newer if is_whole(page, block) => Judged::Good,
        PageState::Newer => Judged::Undecided(page_lsn(page)),
    }
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PageHook for PageCheck {
    fn pages(&self, run: &mut Pages<'_>) -> Result<(), EngineError> {
        let (file, offset) = (run.file(), run.offset());
        let Some((window, entry)) = self.find(file) else {
            return Ok(());
        };
        let Some(segment) = entry.segment else {
            return Ok(());
        };
        if let Some(class) = window.layouts.class(window.listing.path(entry)) {
            run.classify(class);
        }
        if self.verifies {
            self.verify(window, (file, segment), run);
        }
        if let Some(older) = &window.older {
            let position = file.0.saturating_sub(window.first.0) as usize;
            let ranges = older.ranges(position, offset, run.bytes(), self.block_bytes);
            ranges.into_iter().for_each(|range| run.drop_range(range));
        }
        Ok(())
    }
}

impl PageCheck {
    /// Checks the pages of a run.
    fn verify(&self, window: &Listed, (file, segment): (FileNo, u32), run: &Pages<'_>) {
        let offset = run.offset();
        let first = offset / self.block_bytes as u64;
        let pages = run.bytes().chunks_exact(self.block_bytes);
        self.pages.fetch_add(pages.len() as u64, Ordering::Relaxed);
        let base = u64::from(segment) * u64::from(self.segment_blocks) + first;
        for (index, page) in (0_u64..).zip(pages) {
            // Block numbers have 32 bits, so a longer file belongs to no relation.
            let Ok(block) = u32::try_from(base + index) else {
                return;
            };
            if judged(page, block, window.start) != Judged::Good {
                let at = offset + index * self.block_bytes as u64;
                self.judge_again(file, at, block);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests {
    use windlass_media::FileKind;

    use super::*;
    use crate::checksum::page_checksum;
    use crate::listing::Attributes;

    const PAGE: usize = 8192;
    const SEGMENT_BLOCKS: u32 = 131_072;
    const START: Lsn = Lsn(1000);
    const STOP: Lsn = Lsn(2000);

    /// A page whose last change lies before the start of the backup.
    fn page(block: u32) -> Vec<u8> {
        let mut page = vec![9; PAGE];
        page[..8].copy_from_slice(&(START.0 - 1).rotate_left(32).to_le_bytes());
        let checksum = page_checksum(&page, block);
        page[8..10].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    /// A check of one file with this `content`, which is the second segment of a relation.
    fn check(place: &tempfile::TempDir, content: Option<&[u8]>) -> PageCheck {
        if let Some(content) = content {
            std::fs::write(place.path().join("1.1"), content).unwrap();
        }
        let mut listing = Listing::default();
        let attributes = Attributes {
            kind: FileKind::File,
            mode: 0o600,
            bytes: 0,
            mtime_nanos: 0,
            ctime_nanos: 0,
            device: 0,
            inode: 0,
        };
        listing.add(b"1.1", b"", attributes, Some(1)).unwrap();
        listing.add(b"no_relation", b"", attributes, None).unwrap();
        let root = place.path().to_path_buf();
        let check = PageCheck::new(root, (8192, SEGMENT_BLOCKS), true);
        check.add(Listed {
            first: FileNo(0),
            listing: Arc::new(listing),
            start: START,
            layouts: PageLayouts::default(),
            older: None,
        });
        check
    }

    fn run(check: &PageCheck, file: FileNo, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        check.pages(&mut Pages::new(file, at, bytes))
    }

    #[test]
    fn a_page_that_was_torn_only_while_it_was_read_is_no_damage() {
        let place = tempfile::tempdir().unwrap();
        let good = [page(SEGMENT_BLOCKS), page(SEGMENT_BLOCKS + 1)].concat();
        let mut torn = good.clone();
        torn[PAGE + 4000] ^= 1;
        let check = check(&place, Some(&good));
        run(&check, FileNo(0), 0, &mut torn).unwrap();
        let report = check.report(|_| true, STOP);
        assert_eq!((report.pages_checked, report.pages_bad), (2, 0));
    }

    #[test]
    fn damage_is_counted_and_its_first_blocks_named_as_the_relation_counts_them() {
        let place = tempfile::tempdir().unwrap();
        let mut content: Vec<u8> = (0..16).flat_map(|n| page(SEGMENT_BLOCKS + n)).collect();
        (8..16).for_each(|n| content[n * PAGE + 4000] ^= 1);
        let check = check(&place, Some(&content));
        let (first, second) = content.split_at_mut(8 * PAGE);
        run(&check, FileNo(0), 8 * PAGE as u64, second).unwrap();
        run(&check, FileNo(0), 0, first).unwrap();
        let report = check.report(|_| true, STOP);
        let expected: Vec<u32> = (8..13).map(|n| SEGMENT_BLOCKS + n).collect();
        assert_eq!((report.pages_bad, &report.files[0].blocks), (8, &expected));
    }

    #[test]
    fn a_damaged_page_counts_if_it_is_newer_than_the_log_and_else_the_log_repairs_it() {
        let place = tempfile::tempdir().unwrap();
        let newer = |number: u32, lsn: Lsn| {
            let mut page = page(SEGMENT_BLOCKS + number);
            page[..8].copy_from_slice(&lsn.0.rotate_left(32).to_le_bytes());
            page
        };
        let mut whole = newer(2, Lsn(STOP.0 + 1));
        let checksum = page_checksum(&whole, SEGMENT_BLOCKS + 2);
        whole[8..10].copy_from_slice(&checksum.to_le_bytes());
        let damaged = [newer(0, STOP), newer(1, Lsn(STOP.0 + 1))];
        let mut content = [damaged.concat(), whole].concat();
        let check = check(&place, Some(&content));
        run(&check, FileNo(0), 0, &mut content).unwrap();
        let report = check.report(|_| true, STOP);
        assert_eq!(
            (report.pages_bad, &report.files[0].blocks),
            (1, &vec![SEGMENT_BLOCKS + 1])
        );
    }

    #[test]
    fn files_that_vanished_and_files_of_no_relation_are_no_damage() {
        let place = tempfile::tempdir().unwrap();
        let check = check(&place, None);
        let mut torn = page(7);
        run(&check, FileNo(0), 0, &mut torn).unwrap();
        run(&check, FileNo(1), 0, &mut torn).unwrap();
        run(&check, FileNo(2), 0, &mut torn).unwrap();
        assert_eq!(
            (
                check.report(|_| true, STOP).pages_checked,
                check.report(|_| true, STOP).pages_bad
            ),
            (1, 0)
        );
    }

    #[test]
    fn a_page_is_left_out_if_it_says_that_the_base_has_it() {
        let with_lsn = |lsn: u64| {
            let mut page = page(0);
            page[..8].copy_from_slice(&lsn.rotate_left(32).to_le_bytes());
            page
        };
        let lsns = [500, 499, 0, 600, 10, 20, 30];
        let mut bytes = lsns.map(with_lsn).concat();
        bytes.extend([0; PAGE]);
        let older = OlderPages {
            since: Lsn(500),
            limits: vec![0, (3 + 6) * PAGE as u64],
        };
        let offset = 3 * PAGE as u64;
        let found = older.ranges(1, offset, &bytes, PAGE);
        let pages: Vec<_> = found.iter().map(|range| range.start / PAGE).collect();
        assert_eq!(pages, [1, 4, 5]);
        assert!(older.ranges(0, 0, &bytes, PAGE).is_empty());
        assert!(older.ranges(7, 0, &bytes, PAGE).is_empty());
    }
}
