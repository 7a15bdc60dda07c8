//! Comparing two images: which files and which of their pages differ.
//!
//!   files by path --> pairs --> content: spans --same checksum--> skipped
//!                                          +----else----> read from both, page by page
//!
//! By default, every byte that both images have is read from both. A CRC is the remainder of a
//! division: data that is followed by its own CRC-32C (pg_control, pg_filenode.map) has the same
//! remainder whatever it contains. So the caller says for which files checksums may be trusted.

mod content;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileKind};
use windlass_engine::{Cancel, Progress};

use crate::error::ImageError;
use crate::image::Image;
use content::{Content, Tally};

/// How many ranges are kept for one file. Beyond them, only the bytes are counted.
pub const RANGES_MAX: usize = 65_536;

/// How images are compared.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Ranges that differ are widened to multiples of this. It divides 1 MiB.
    pub page_bytes: u32,
    /// Chooses by path the files whose checksums are believed. Where an image keeps checksums, and
    /// length and CRC-32C agree, the bytes of such a file count as the same and are not read.
    /// Different bytes pass for the same once in 2^32 times. They always do if they differ only in
    /// something that is followed by its own CRC-32C.
    pub believe: fn(&[u8]) -> bool,
    /// A file that disappears or shrinks during the comparison is a difference, not an error.
    pub live: bool,
    /// Paths, of either image, that are left out.
    pub skip: fn(&[u8]) -> bool,
    /// Counts how many of the bytes that both images have were compared.
    pub progress: Arc<Progress>,
    /// Stops the comparison.
    pub cancel: Cancel,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            page_bytes: 8192,
            believe: |_| false,
            live: false,
            skip: |_| false,
            progress: Arc::default(),
            cancel: Cancel::new(),
        }
    }
}

/// How two images differ. Empty when they hold the same files with the same bytes. The comparison
/// ignores modes and times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Paths that only the first image has.
    pub only_first: Vec<Vec<u8>>,
    /// Paths that only the second image has.
    pub only_second: Vec<Vec<u8>>,
    /// Paths that both have and that differ, in the order of paths.
    pub differing: Vec<FileDifference>,
    /// Bytes that were taken for the same because their checksums agree.
    pub bytes_believed: u64,
    /// Bytes that were read from both.
    pub bytes_read: u64,
}

/// How one file differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDifference {
    /// The path in both images.
    pub path: Vec<u8>,
    /// The kind of the entry in each image. If both are links, they point to different places.
    pub kinds: (FileKind, FileKind),
    /// Length in each image. If the lengths differ, the tail of the longer file is a range.
    pub bytes: (u64, u64),
    /// Where the content differs, at most [`RANGES_MAX`] ranges, in order.
    pub ranges: Vec<Range<u64>>,
    /// Length of all ranges, including those that are not kept.
    pub differing_bytes: u64,
    /// The file disappeared or shrank while it was read. What could not be read counts as a
    /// difference.
    pub unsteady: bool,
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
    let (ours, mut theirs) = (by_path(first, options), by_path(second, options));
    let common = |(path, our): (&&[u8], &&FileEntry)| {
        let their = theirs.get(path)?;
        Some(our.bytes.min(their.bytes))
    };
    options.progress.set_phase("comparing");
    options
        .progress
        .set_total(ours.iter().filter_map(common).sum());
    let mut differences = Differences::default();
    let mut tally = Tally::default();
    for (path, our) in ours {
        match theirs.remove(&path) {
            None => differences.only_first.push(path.to_vec()),
            Some(their) => {
                let pair = Pair {
                    images: (first, second),
                    entries: (our, their),
                    options,
                };
                differences.differing.extend(pair.compare(&mut tally)?);
            }
        }
    }
    differences.only_second = theirs.into_keys().map(<[u8]>::to_vec).collect();
    (differences.bytes_believed, differences.bytes_read) = (tally.believed, tally.read);
    Ok(differences)
}

fn by_path<'a>(
    image: &'a dyn Image,
    options: &CompareOptions,
) -> BTreeMap<&'a [u8], &'a FileEntry> {
    let entries = image.files().0.iter();
    entries
        .map(|entry| (entry.path.as_slice(), entry))
        .filter(|(path, _)| !(options.skip)(path))
        .collect()
}

/// One path that both images have.
struct Pair<'a> {
    images: (&'a dyn Image, &'a dyn Image),
    entries: (&'a FileEntry, &'a FileEntry),
    options: &'a CompareOptions,
}

impl Pair<'_> {
    fn compare(&self, tally: &mut Tally) -> Result<Option<FileDifference>, ImageError> {
        let (first, second) = self.entries;
        let mut difference = FileDifference {
            path: first.path.clone(),
            kinds: (first.kind, second.kind),
            bytes: (first.bytes, second.bytes),
            ranges: Vec::new(),
            differing_bytes: 0,
            unsteady: false,
        };
        if first.kind != second.kind || first.link_target != second.link_target {
            return Ok(Some(difference));
        }
        if first.kind == FileKind::File {
            self.content(&mut difference, tally)?;
        }
        Ok((difference.differing_bytes > 0).then_some(difference))
    }

    fn content(
        &self,
        difference: &mut FileDifference,
        tally: &mut Tally,
    ) -> Result<(), ImageError> {
        let (first, second) = self.entries;
        self.images.0.check_layers(first.file)?;
        self.images.1.check_layers(second.file)?;
        let common = first.bytes.min(second.bytes);
        let longest = first.bytes.max(second.bytes);
        let mut content = Content::new(self.images, self.entries, self.options, tally);
        let compared = content.compare(common, difference);
        let done = content.done();
        match compared {
            Ok(()) => difference.add(common..longest),
            Err(error) if self.options.live && error.is_vanished() => {
                difference.unsteady = true;
                // What was in the lost part is not known, so the rest of the longer file counts as
                // different.
                difference.add(done..longest);
            }
            Err(error) => return Err(error),
        }
        Ok(())
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
