//! Compares the content of one file in two images. Spans with equal checksums are skipped. The
//! rest is read from both, with one thread for each image, so that neither waits for the other.
//!
//! A span ends where a piece ends in both images, so frames of different sizes can be compared: the
//! CRC-32C of a span is combined from those of its pieces. If one image has no checksums, its bytes
//! are read to compute them, and the other image need not be decoded.
//!
//! Invariants
//! - A span is skipped only if in each image a checksum covers exactly its bytes.
//! - Each page is compared once and as a whole, wherever spans begin and end.

use std::ops::Range;

use windlass_engine::Cause;
use windlass_engine::media::{FileEntry, crc32c, crc32c_zeros_after, fitted};

use super::{CompareOptions, FileDifference};
use crate::error::ImageError;
use crate::image::{Image, read_exact};

/// How much is read from each image at a time.
const GROUP_BYTES: usize = 1024 * 1024;
/// Pieces of the two images may never end at the same place. They are followed this far at most.
const SPAN_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What comparisons did, added up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Bytes taken for the same because their checksums agree.
    pub(super) believed: u64,
    /// Bytes read from both images.
    pub(super) read: u64,
}

/// A file that both images have.
pub(super) struct Content<'a> {
    images: (&'a dyn Image, &'a dyn Image),
    entries: (&'a FileEntry, &'a FileEntry),
    options: &'a CompareOptions,
    tally: &'a mut Tally,
    believe: bool,
    page: u64,
    /// The comparison has reached this place; pages before it are not read again.
    done: u64,
    buffers: (Vec<u8>, Vec<u8>),
}

/// A run of bytes: where it ends, and whether its checksums say that it is the same in both images.
#[derive(Clone, Copy, Debug)]
struct Span {
    end: u64,
    same: bool,
}

/// The checksum of consecutive pieces of one image, and where they end.
#[derive(Clone, Copy, Debug)]
struct Sum {
    end: u64,
    crc32c: u32,
}

impl<'a> Content<'a> {
    pub(super) fn new(
        images: (&'a dyn Image, &'a dyn Image),
        entries: (&'a FileEntry, &'a FileEntry),
        options: &'a CompareOptions,
        tally: &'a mut Tally,
    ) -> Self {
        Self {
            images,
            entries,
            options,
            tally,
            believe: (options.believe)(&entries.0.path),
            page: u64::from(options.page_bytes.clamp(1, 1024 * 1024)),
            done: 0,
            buffers: (Vec::new(), Vec::new()),
        }
    }

    /// How far the comparison came.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Compares the first `bytes` bytes of the file.
    pub(super) fn compare(
        &mut self,
        bytes: u64,
        difference: &mut FileDifference,
    ) -> Result<(), ImageError> {
        let mut unequal = 0..0;
        while unequal.end < bytes {
            self.options.cancel.check()?;
            let span = self.span(unequal.end, bytes)?;
            if span.same {
                self.read(unequal.clone(), bytes, difference)?;
                self.tally.believed += span.end - unequal.end;
                self.options
                    .progress
                    .compressor
                    .add_work(span.end - unequal.end);
                self.done = self.done.max(span.end / self.page * self.page);
                unequal = span.end..span.end;
                continue;
            }
            unequal.end = span.end;
            if unequal.end - unequal.start >= GROUP_BYTES as u64 {
                self.read(unequal.clone(), bytes, difference)?;
                unequal.start = unequal.end;
            }
        }
        self.read(unequal, bytes, difference)
    }

    /// The next run of bytes that either is the same as a whole or has to be read.
    fn span(&self, offset: u64, bytes: u64) -> Result<Span, ImageError> {
        let unknown = Span {
            end: bytes.min(offset + GROUP_BYTES as u64),
            same: false,
        };
        if !self.believe {
            return Ok(unknown);
        }
        let ((first, second), (our, their)) = (self.images, self.entries);
        let ours = first.checksum(our.file, offset)?;
        let theirs = second.checksum(their.file, offset)?;
        let (reader, entry, known) = match (ours, theirs) {
            (None, None) => return Ok(unknown),
            (Some(ours), Some(theirs)) => {
                let ends = (ours.end.min(bytes), theirs.end.min(bytes));
                let differ = Span {
                    end: ends.0.max(ends.1),
                    same: false,
                };
                let (Some(our_crc), Some(their_crc)) = (ours.crc32c, theirs.crc32c) else {
                    return Ok(differ);
                };
                let sums = [(ours.end, our_crc), (theirs.end, their_crc)]
                    .map(|(end, crc32c)| Sum { end, crc32c });
                return Ok(self.meet(offset, sums, bytes)?.unwrap_or(differ));
            }
            (Some(ours), None) => (second, their, ours),
            (None, Some(theirs)) => (first, our, theirs),
        };
        let end = known.end.min(bytes);
        let expected = known.crc32c.filter(|_| known.end <= bytes);
        let same = match expected {
            None => false,
            Some(expected) => self.sum(reader, entry, offset..end)? == expected,
        };
        Ok(Span { end, same })
    }

    /// Adds pieces to the sum that ends earlier, until both sums end at the same place. `None` when
    /// they do not meet, or when a piece on the way has no checksum.
    fn meet(&self, offset: u64, sums: [Sum; 2], bytes: u64) -> Result<Option<Span>, ImageError> {
        let [mut ours, mut theirs] = sums;
        while ours.end != theirs.end {
            let (sum, image, entry) = if ours.end < theirs.end {
                (&mut ours, self.images.0, self.entries.0)
            } else {
                (&mut theirs, self.images.1, self.entries.1)
            };
            if sum.end >= bytes || sum.end - offset > SPAN_BYTES_MAX {
                return Ok(None);
            }
            let next = image.checksum(entry.file, sum.end)?;
            let Some((end, crc32c)) = next.and_then(|next| Some((next.end, next.crc32c?))) else {
                return Ok(None);
            };
            let before = crc32c_zeros_after(sum.crc32c, end - sum.end);
            *sum = Sum {
                end,
                crc32c: before ^ crc32c,
            };
        }
        let same = ours.crc32c == theirs.crc32c;
        let end = ours.end;
        Ok((end <= bytes).then_some(Span { end, same }))
    }

    /// The CRC-32C of bytes of an image that keeps no checksums.
    fn sum(
        &self,
        image: &dyn Image,
        entry: &FileEntry,
        range: Range<u64>,
    ) -> Result<u32, ImageError> {
        let length = fitted(range.end - range.start);
        let mut bytes = vec![0; length];
        let progress = &self.options.progress;
        progress.compressor.wait(Cause::FullBuffer, || {
            progress.reader.wait(Cause::DeviceRead, || {
                read_exact(image, entry, range.start, &mut bytes)
            })
        })?;
        Ok(crc32c(&bytes))
    }

    /// Compares the pages that `range` touches, unless they were compared already.
    fn read(
        &mut self,
        range: Range<u64>,
        bytes: u64,
        difference: &mut FileDifference,
    ) -> Result<(), ImageError> {
        if range.is_empty() {
            return Ok(());
        }
        let mut offset = self.done.max(range.start / self.page * self.page);
        let end = range.end.next_multiple_of(self.page).min(bytes);
        let group = GROUP_BYTES as u64 / self.page * self.page;
        let (mut ours, mut theirs) = std::mem::take(&mut self.buffers);
        while offset < end {
            let length = fitted(group.min(end - offset));
            ours.resize(length, 0);
            theirs.resize(length, 0);
            self.fill(offset, &mut ours, &mut theirs)?;
            if ours != theirs {
                self.pages(offset, &ours, &theirs, difference);
            }
            offset += length as u64;
            self.done = offset;
            self.tally.read += length as u64;
            self.options.progress.compressor.add_work(length as u64);
        }
        self.buffers = (ours, theirs);
        Ok(())
    }

    fn fill(&self, offset: u64, ours: &mut [u8], theirs: &mut [u8]) -> Result<(), ImageError> {
        let ((first, second), (our, their)) = (self.images, self.entries);
        let read = || {
            // A small read is finished before a thread would have started.
            if ours.len() < GROUP_BYTES / 4 {
                let left = read_exact(first, our, offset, ours);
                return left.and_then(|()| read_exact(second, their, offset, theirs));
            }
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| read_exact(first, our, offset, ours));
                let right = read_exact(second, their, offset, theirs);
                let left = reader.join();
                left.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    .and(right)
            })
        };
        let progress = &self.options.progress;
        let wait = || progress.reader.wait(Cause::DeviceRead, read);
        progress.compressor.wait(Cause::FullBuffer, wait)
    }

    /// Adds the pages that differ.
    fn pages(&self, offset: u64, ours: &[u8], theirs: &[u8], difference: &mut FileDifference) {
        let page = fitted(self.page);
        let mut start = offset;
        for (our, their) in ours.chunks(page).zip(theirs.chunks(page)) {
            let end = start + our.len() as u64;
            if our != their {
                difference.add(start..end);
            }
            start = end;
        }
    }
}
