//! Comparing two images, byte by byte: which files and which of their pages differ.
//!
//! Every byte of every file that both have with the same length is read from both; one thread
//! reads each image, so that neither waits for the other's decoder.

use std::collections::BTreeMap;
use std::ops::Range;

use windlass_engine::Cancel;
use windlass_engine::media::{FileEntry, FileKind};

use crate::error::ImageError;
use crate::image::{Image, read_exact};

/// Ranges kept for one file; beyond them only the bytes are counted.
pub const RANGES_MAX: usize = 65_536;
/// Bytes read from each image at a time.
const GROUP_BYTES: usize = 1024 * 1024;

/// How images are compared.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Ranges that differ are widened to multiples of this; at most 1 MiB, a divisor of it.
    pub page_bytes: u32,
    /// Stops the comparison.
    pub cancel: Cancel,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            page_bytes: 8192,
            cancel: Cancel::new(),
        }
    }
}

/// How two images differ. Empty when they hold the same files with the same bytes; modes and
/// times are not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Paths that only the first image has.
    pub only_first: Vec<Vec<u8>>,
    /// Paths that only the second image has.
    pub only_second: Vec<Vec<u8>>,
    /// Paths that both have and that differ, in the order of paths.
    pub differing: Vec<FileDifference>,
}

/// How one file differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDifference {
    /// The path in both images.
    pub path: Vec<u8>,
    /// What it is, in each. Where both are links, they point to different places.
    pub kinds: (FileKind, FileKind),
    /// Length in each; different lengths make the tail of the longer one a range.
    pub bytes: (u64, u64),
    /// Where the content differs, at most [`RANGES_MAX`] ranges, in order.
    pub ranges: Vec<Range<u64>>,
    /// Length of all ranges, kept or not.
    pub differing_bytes: u64,
}

impl Differences {
    /// True when the images are the same.
    pub fn is_empty(&self) -> bool {
        self.only_first.is_empty() && self.only_second.is_empty() && self.differing.is_empty()
    }
}

/// Compares two images.
pub fn compare(
    first: &dyn Image,
    second: &dyn Image,
    options: &CompareOptions,
) -> Result<Differences, ImageError> {
    let (ours, mut theirs) = (by_path(first), by_path(second));
    let mut differences = Differences::default();
    for (path, our) in ours {
        match theirs.remove(&path) {
            None => differences.only_first.push(path.to_vec()),
            Some(their) => {
                let pair = Pair {
                    images: (first, second),
                    entries: (our, their),
                    options,
                };
                differences.differing.extend(pair.compare()?);
            }
        }
    }
    differences.only_second = theirs.into_keys().map(<[u8]>::to_vec).collect();
    Ok(differences)
}

fn by_path(image: &dyn Image) -> BTreeMap<&[u8], &FileEntry> {
    image
        .files()
        .0
        .iter()
        .map(|entry| (entry.path.as_slice(), entry))
        .collect()
}

/// One path that both images have.
struct Pair<'a> {
    images: (&'a dyn Image, &'a dyn Image),
    entries: (&'a FileEntry, &'a FileEntry),
    options: &'a CompareOptions,
}

impl Pair<'_> {
    fn compare(&self) -> Result<Option<FileDifference>, ImageError> {
        let (first, second) = self.entries;
        let mut difference = FileDifference {
            path: first.path.clone(),
            kinds: (first.kind, second.kind),
            bytes: (first.bytes, second.bytes),
            ranges: Vec::new(),
            differing_bytes: 0,
        };
        if first.kind != second.kind || first.link_target != second.link_target {
            return Ok(Some(difference));
        }
        if first.kind == FileKind::File {
            let common = first.bytes.min(second.bytes);
            self.content(common, &mut difference)?;
            difference.add(common..first.bytes.max(second.bytes));
        }
        Ok((difference.differing_bytes > 0).then_some(difference))
    }

    fn content(&self, bytes: u64, difference: &mut FileDifference) -> Result<(), ImageError> {
        let page = self.options.page_bytes.clamp(1, 1024 * 1024) as usize;
        let group = GROUP_BYTES / page * page;
        let (mut ours, mut theirs) = (vec![0; group], vec![0; group]);
        let mut offset = 0;
        while offset < bytes {
            self.options.cancel.check()?;
            let length = usize::try_from(bytes - offset).map_or(group, |left| left.min(group));
            let (ours, theirs) = (&mut ours[..length], &mut theirs[..length]);
            self.fill(offset, ours, theirs)?;
            if ours != theirs {
                pages(offset, page, ours, theirs, difference);
            }
            offset += length as u64;
        }
        Ok(())
    }

    fn fill(&self, offset: u64, ours: &mut [u8], theirs: &mut [u8]) -> Result<(), ImageError> {
        let ((first, second), (our, their)) = (self.images, self.entries);
        let (left, right) = std::thread::scope(|scope| {
            // A small read is over before a thread has started.
            if ours.len() < GROUP_BYTES / 4 {
                let left = read_exact(first, our, offset, ours);
                return (left, read_exact(second, their, offset, theirs));
            }
            let reader = scope.spawn(|| read_exact(first, our, offset, ours));
            let right = read_exact(second, their, offset, theirs);
            let left = reader.join();
            (
                left.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                right,
            )
        });
        left.and(right)
    }
}

/// Adds the pages that differ.
fn pages(offset: u64, page: usize, ours: &[u8], theirs: &[u8], difference: &mut FileDifference) {
    let mut start = offset;
    for (our, their) in ours.chunks(page).zip(theirs.chunks(page)) {
        let end = start + our.len() as u64;
        if our != their {
            difference.add(start..end);
        }
        start = end;
    }
}

impl FileDifference {
    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.differing_bytes += range.end - range.start;
        let full = self.ranges.len() == RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if full => {}
            _ => self.ranges.push(range),
        }
    }
}
