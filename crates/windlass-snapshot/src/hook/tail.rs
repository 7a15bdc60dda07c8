//! The end of the log, which is copied while nobody writes: only what came since a moment before.
//!
//!   [ flushed before the pause: does not change any more ][ written since ][ of an older segment ]
//!     copied before the pause                               copied in it     zeros
//!
//! Invariants
//! - A page of the log is copied before the pause only if a later one was flushed already: a server
//!   writes the page again in which its log ends, and no page before it.
//! - The copy shares no block with the server's segment, which it uses again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_engine::media::{FileNo, fitted};
use windlass_postgres::{Lsn, SegmentHead, SegmentPages};

use super::error::{HookError, HookIo};
use super::record::copied;
use crate::cluster::PRIVATE_MODE;

/// Bytes that are copied at a time: a multiple of every size of pages.
const COPIED_AT_ONCE: usize = 256 * 1024;

/// The copy of a segment that the server still writes.
pub(super) struct Tail {
    pub(super) name: String,
    pub(super) file: FileNo,
    source: (PathBuf, File),
    target: (PathBuf, File),
    pages: SegmentPages,
    /// Bytes of the segment.
    pub(super) bytes: u64,
    copied: u64,
}

impl Tail {
    /// Begins a copy in the directory of a snapshot, with what does not change any more now that
    /// the log was flushed up to a position.
    pub(super) fn begin(
        directory: &Path,
        (name, path): (&str, &Path),
        (file, flushed): (FileNo, Lsn),
    ) -> Result<Self, HookError> {
        let source = File::open(path).doing("open", path)?;
        let mut head = [0; SegmentHead::BYTES];
        source.read_exact_at(&mut head, 0).doing("read", path)?;
        let bytes = source.metadata().doing("examine", path)?.len();
        let invalid = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        let pages = SegmentPages::parse(&head).map_err(invalid);
        let pages = pages.doing("read", path)?;
        let to = copied(directory, file);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let target = options.mode(PRIVATE_MODE).open(&to).doing("create", &to)?;
        let mut tail = Self {
            name: name.to_owned(),
            file,
            source: (path.to_owned(), source),
            target: (to, target),
            pages,
            bytes,
            copied: 0,
        };
        tail.copy_to(pages.begin_of(flushed, bytes))?;
        Ok(tail)
    }

    /// Copies the rest of what the server has written. It must not write meanwhile.
    pub(super) fn end(&mut self) -> Result<(), HookError> {
        self.copy_to(self.bytes)?;
        let (to, target) = &self.target;
        target.set_len(self.bytes).doing("write", to)
    }

    /// Removes the copy.
    pub(super) fn discard(self) -> Result<(), HookError> {
        let (to, _) = self.target;
        std::fs::remove_file(&to).doing("remove", &to)
    }

    /// Copies up to an offset, or to the first page that was not written.
    fn copy_to(&mut self, end: u64) -> Result<(), HookError> {
        let ((from, source), (to, target)) = (&self.source, &self.target);
        let mut buffer = vec![0; COPIED_AT_ONCE];
        while self.copied < end {
            let count = fitted::<usize, u64>(end - self.copied).min(COPIED_AT_ONCE);
            let part = &mut buffer[..count];
            source
                .read_exact_at(part, self.copied)
                .doing("copy", from)?;
            let written = self.pages.written(self.copied, part);
            let kept = target.write_all_at(&part[..written], self.copied);
            kept.doing("write", to)?;
            self.copied += written as u64;
            if written < count {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use windlass_testkit::volume::{Volume, VolumeKind};

    use super::super::record::make_copied;
    use super::*;

    const PAGE: usize = 8192;
    const START: u64 = 0x300_0000;
    const SEGMENT: usize = 1 << 20;
    const NAME: &str = "000000010000000000000003";

    /// A page of the log at an offset of the segment, or of an older one.
    fn page(offset: usize, fill: u8, is_older: bool) -> Vec<u8> {
        let mut page = vec![fill; PAGE];
        let position = START + offset as u64 - u64::from(is_older) * SEGMENT as u64;
        page[8..16].copy_from_slice(&position.to_le_bytes());
        if offset == 0 {
            page[..2].copy_from_slice(&0xD110_u16.to_le_bytes());
            page[2..4].copy_from_slice(&2_u16.to_le_bytes());
            page[32..36].copy_from_slice(&(1_u32 << 20).to_le_bytes());
            page[36..40].copy_from_slice(&8192_u32.to_le_bytes());
        }
        page
    }

    fn write_page(file: &File, number: usize, fill: u8) {
        let bytes = page(number * PAGE, fill, false);
        file.write_all_at(&bytes, (number * PAGE) as u64).unwrap();
    }

    /// The end of the log moves on between the two parts, also beyond what is copied at once.
    #[test]
    fn a_copy_has_what_was_written_up_to_the_pause_and_zeros() {
        let directory = tempfile::tempdir().unwrap();
        make_copied(directory.path()).unwrap();
        let path = directory.path().join(NAME);
        for (before, after) in [(1, 1), (1, 5), (5, 5), (40, 77), (3, 128), (128, 128)] {
            let segment = File::create(&path).unwrap();
            for number in 0..SEGMENT / PAGE {
                let older = page(number * PAGE, 9, true);
                segment
                    .write_all_at(&older, (number * PAGE) as u64)
                    .unwrap();
            }
            (0..before).for_each(|number| write_page(&segment, number, 1));
            let flushed = Lsn(START + (before * PAGE) as u64 - 100);
            let file = FileNo(7);
            let mut tail = Tail::begin(directory.path(), (NAME, &path), (file, flushed)).unwrap();
            assert_eq!(tail.copied, ((before - 1) * PAGE) as u64);
            // The page in which the log ended is written again.
            (before - 1..after).for_each(|number| write_page(&segment, number, 2));
            tail.end().unwrap();
            let copy = std::fs::read(copied(directory.path(), file)).unwrap();
            let original = std::fs::read(&path).unwrap();
            assert_eq!(copy.len(), SEGMENT);
            assert!(copy[..after * PAGE] == original[..after * PAGE]);
            assert!(copy[after * PAGE..].iter().all(|byte| *byte == 0));
            tail.discard().unwrap();
            assert!(!copied(directory.path(), file).exists());
        }
    }

    #[test]
    fn a_copy_shares_no_block_with_the_segment() {
        let volume = Volume::new(VolumeKind::Xfs, 400);
        let directory = volume.at();
        make_copied(directory).unwrap();
        let path = directory.join(NAME);
        let segment = File::create(&path).unwrap();
        segment.set_len(SEGMENT as u64).unwrap();
        (0..SEGMENT / PAGE).for_each(|number| write_page(&segment, number, 1));
        segment.sync_all().unwrap();
        let of = (FileNo(0), Lsn(START + 100_000));
        let mut tail = Tail::begin(directory, (NAME, &path), of).unwrap();
        tail.end().unwrap();
        let other = File::open(copied(directory, FileNo(0))).unwrap();
        let mut shared = windlass_sqlite::SharedExtents::of(&segment, &other).unwrap();
        assert!(!shared.cover(0, 4096));
    }
}
