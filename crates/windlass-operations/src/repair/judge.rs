//! Which pages of a recovered cluster may take the place of damaged ones.
//!
//! Both clusters have replayed the same log if their pages were last changed by the same records.
//! So every page of a file that is whole is compared with that of the chain by its LSN. Hint bits
//! may differ: they carry no LSN, and any value of them is right.
//!
//! Invariant: whatever cannot be proven is a reason to leave the page as it is.

use std::fs::File;
use std::os::unix::fs::FileExt;

use windlass_engine::Cancel;
use windlass_engine::media::{FileEntry, fitted};
use windlass_image::Image;
use windlass_postgres::{
    Checksums, Control, Lsn, PageAt, StoppedCluster, is_page_whole, lsn_of_page,
};

use super::error::Unsafe;
use crate::error::OperationError;

const READ_BYTES: usize = 1 << 20;

/// A page that may be written.
pub(super) struct SafePage {
    pub(super) page: PageAt,
    /// What is written.
    pub(super) bytes: Vec<u8>,
    pub(super) lsn: Lsn,
}

/// What becomes of a page.
pub(super) enum Taken {
    Safe(SafePage),
    Unsafe(PageAt, Unsafe),
}

/// A stopped cluster, and the same one recovered from its chain.
pub(super) struct Judge<'a> {
    cluster: &'a StoppedCluster,
    image: &'a dyn Image,
}

/// How the pages of a file compare that nobody wants to repair.
#[derive(Default)]
struct Others {
    differ: u64,
    first: u32,
}

impl<'a> Judge<'a> {
    pub(super) fn new(cluster: &'a StoppedCluster, image: &'a dyn Image) -> Self {
        Self { cluster, image }
    }

    /// Judges the damaged pages of one file.
    pub(super) fn file(
        &self,
        path: &str,
        pages: &[PageAt],
        cancel: &Cancel,
    ) -> Result<Vec<Taken>, OperationError> {
        let all = |why: &Unsafe| {
            let each = pages.iter().cloned();
            Ok(each.map(|page| Taken::Unsafe(page, why.clone())).collect())
        };
        let (Some(first), Some(entry)) = (pages.first(), self.entry(path)) else {
            return all(&Unsafe::Absent);
        };
        if first.is_unlogged(self.cluster.data()) {
            return all(&Unsafe::Unlogged);
        }
        let file = match File::open(self.cluster.data().join(path)) {
            Ok(file) => file,
            Err(error) => {
                let what = format!("cannot be opened: {error}");
                return all(&Unsafe::File { what });
            }
        };
        self.image.check_layers(entry.file)?;
        if !first.is_of_free_space() {
            let others = self.others((&file, entry), pages, cancel)?;
            if others.differ > 0 {
                let (count, first) = (others.differ, others.first);
                return all(&Unsafe::FileDiffers { count, first });
            }
        }
        let judged = pages.iter().map(|page| self.page((&file, entry), page));
        judged.collect()
    }

    fn entry(&self, path: &str) -> Option<&FileEntry> {
        let mut files = self.image.files().0.iter();
        files.find(|entry| entry.path == path.as_bytes())
    }

    /// Compares all pages of a file but those to be repaired.
    fn others(
        &self,
        (file, entry): (&File, &FileEntry),
        pages: &[PageAt],
        cancel: &Cancel,
    ) -> Result<Others, OperationError> {
        let control = self.control();
        let page_bytes: usize = fitted(control.block_bytes);
        let first_block = pages.first().map_or(0, |page| page.block);
        let full = control.relation_segment_blocks.max(1);
        let (mut own, mut chain) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
        let mut block = first_block / full * full;
        let (mut offset, mut others) = (0, Others::default());
        loop {
            cancel.check()?;
            let count = fill(file, offset, &mut own);
            let there = self.image.read(entry.file, offset, &mut chain)?;
            own[count..].fill(0);
            chain[there..].fill(0);
            let end = count.max(there);
            if end == 0 {
                return Ok(others);
            }
            let both = own[..end]
                .chunks(page_bytes)
                .zip(chain[..end].chunks(page_bytes));
            for (own, chain) in both {
                let is_wanted = pages.iter().any(|page| page.block == block);
                if !is_wanted && !self.is_same((own, chain), block) {
                    if others.differ == 0 {
                        others.first = block;
                    }
                    others.differ += 1;
                }
                block += 1;
            }
            offset += end as u64;
        }
    }

    /// Whether two pages were last changed by the same record. A page that the recovered server
    /// changed by itself proves nothing.
    fn is_same(&self, (own, chain): (&[u8], &[u8]), block: u32) -> bool {
        let is_damaged = self.has_checksums() && !is_page_whole(own, block);
        // Zeros prove nothing, either: a disk may have lost the page.
        if is_damaged || is_zero(own) {
            return true;
        }
        let (own, chain) = (lsn_of_page(own), lsn_of_page(chain));
        own == chain || chain >= self.cluster.log_end()
    }

    fn page(
        &self,
        (file, entry): (&File, &FileEntry),
        page: &PageAt,
    ) -> Result<Taken, OperationError> {
        let control = self.control();
        let (_, offset) = page.file(control);
        let mut bytes = vec![0; fitted(control.block_bytes)];
        let there = self.image.read(entry.file, offset, &mut bytes)?;
        let mut own = vec![0; bytes.len()];
        let read = fill(file, offset, &mut own);
        let why = match there == bytes.len() {
            false => Some(Unsafe::Absent),
            true => self.fault((&own[..read], &bytes), page),
        };
        Ok(match why {
            Some(why) => Taken::Unsafe(page.clone(), why),
            None => Taken::Safe(SafePage {
                page: page.clone(),
                lsn: lsn_of_page(&bytes),
                bytes,
            }),
        })
    }

    /// Why this page of the chain may not take the place of the damaged one.
    fn fault(&self, (own, chain): (&[u8], &[u8]), page: &PageAt) -> Option<Unsafe> {
        let end = self.cluster.log_end();
        let is_read = own.len() == chain.len();
        if self.has_checksums() {
            let is_lost = is_zero(own) && !is_zero(chain);
            if is_read && !is_lost && is_page_whole(own, page.block) {
                return Some(Unsafe::Whole);
            }
            if !is_page_whole(chain, page.block) {
                return Some(Unsafe::AlsoDamaged);
            }
        }
        if page.is_of_free_space() {
            return None;
        }
        let at = lsn_of_page(chain);
        if at >= end {
            return Some(Unsafe::Newer { at });
        }
        let claimed = is_read.then(|| lsn_of_page(own));
        let later = claimed.filter(|own| *own > at && *own <= end);
        later.map(|own| Unsafe::ChainOlder { own, chain: at })
    }

    fn has_checksums(&self) -> bool {
        self.control().checksums() == Checksums::On
    }

    fn control(&self) -> &Control {
        self.cluster.control()
    }
}

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

/// Reads what can be read. What cannot is behind what is returned.
fn fill(file: &File, offset: u64, into: &mut [u8]) -> usize {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    done
}
