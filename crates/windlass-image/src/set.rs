//! A backup set, with the sets that it builds on, as an image: a page costs one frame.
//!
//!   file, offset --> upper layers? --> index block --> frame --> fetch, check, decode --> copy
//!                    (cached)          (cached)        (cached)
//!
//! Opening reads no index. The first read of a file finds out what lies over its bytes.
//!
//! A byte of a chain comes from the newest set that has it. The image asks one set after the other,
//! below the limits that the newer ones give.
//!
//! Invariants
//! - Memory is bounded, however many sets there are: the two caches, that of the upper layers, and
//!   for each active reader one stored and one decoded frame; up to eight are kept for later
//!   readers.
//! - A damaged frame fails only the reads that need its bytes. A failure is not kept: the next read
//!   tries again.
//!
//! Locking: only that of the caches. No lock is held while a stripe is read, but readers of the
//! same missing frame wait for the one that fetches it.

mod asked;
mod cache;
mod frames;
mod link;
mod locate;
mod seen;
mod sorted;
mod spares;
mod statistics;
mod unlisted;
mod upper;

use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileNo, FileTable, fitted};
use windlass_engine::{EngineError, FoundSet, OpenSet, OpenStripe};

use crate::error::ImageError;
use crate::image::{Checksummed, FileLookup, Image, read_length};
use asked::{AskedRegions, REGION_BYTES};
use cache::{ByteCache, Weighed};
use frames::Frames;
use link::{Link, frame_bytes};
use locate::{BlockPlace, Located};
use sorted::SortedBlock;
use statistics::Counters;
pub use statistics::ImageStatistics;
use upper::Layer;

/// Memory for decoded frames, unless the caller sets it.
pub const FRAME_CACHE_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// Memory for index blocks, unless the caller sets it. It holds the index of about 60 GB in frames
/// of 128 KiB.
pub const INDEX_CACHE_BYTES_DEFAULT: u64 = 32 * 1024 * 1024;
/// About how much memory an index block takes; a hint for the cache.
const BLOCK_BYTES: u64 = 350 * 1024;

/// How much memory an image may use for its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetImageOptions {
    /// Bytes of decoded frames.
    pub frame_cache_bytes: u64,
    /// Bytes of index blocks.
    pub index_cache_bytes: u64,
}

impl Default for SetImageOptions {
    fn default() -> Self {
        Self {
            frame_cache_bytes: FRAME_CACHE_BYTES_DEFAULT,
            index_cache_bytes: INDEX_CACHE_BYTES_DEFAULT,
        }
    }
}

/// A backup set as an image.
pub struct SetImage {
    set: Arc<OpenSet>,
    lookup: FileLookup,
    /// The set, and then those that it builds on.
    links: Vec<Link>,
    blocks: ByteCache<(usize, BlockPlace), SortedBlock>,
    frames: Frames,
    asked: AskedRegions,
    counters: Counters,
}

impl Weighed for SortedBlock {
    fn memory_bytes(&self) -> usize {
        SortedBlock::memory_bytes(self)
    }
}

/// Bytes of a file that follow each other and lie in one frame.
struct Stretch {
    /// The set of the chain: 0 is the newest.
    link: usize,
    located: Located,
    start: usize,
    bytes: u64,
}

impl SetImage {
    /// Makes an image of a set. The index blocks that describe upper layers are read when somebody
    /// reads a file of which they may tell; those of which the footer has spans, when somebody
    /// reads a range that these reach. If one of them is damaged, no page there would be certain,
    /// so the read fails.
    pub fn open(set: Arc<OpenSet>, options: &SetImageOptions) -> Result<Self, ImageError> {
        let uppers = set.asked_layers()?;
        let links = set.links().zip(uppers);
        let frame_bytes_max = set.links().map(frame_bytes).max();
        Ok(Self {
            lookup: FileLookup::new(&set.description().files),
            links: links.map(|(link, upper)| Link::new(link, upper)).collect(),
            blocks: ByteCache::new(options.index_cache_bytes, BLOCK_BYTES),
            frames: Frames::new(options.frame_cache_bytes, frame_bytes_max.unwrap_or(1)),
            asked: AskedRegions::default(),
            counters: Counters::default(),
            set,
        })
    }

    /// The set.
    pub fn set(&self) -> &Arc<OpenSet> {
        &self.set
    }

    /// What the image has done since it was opened.
    pub fn statistics(&self) -> ImageStatistics {
        self.counters
            .statistics(self.frames.cache_bytes(), self.blocks.bytes())
    }

    /// A stripe of a set of the chain.
    fn stripe(&self, link: usize, stripe: u16) -> Result<&OpenStripe, EngineError> {
        let set: Option<&FoundSet> = self.set.links().nth(link);
        let stripe = set.and_then(|set| set.stripes().get(usize::from(stripe)));
        stripe.ok_or(EngineError::Stopped)
    }

    /// An index block, from the cache or the stripe.
    fn block(&self, link: usize, place: BlockPlace) -> Result<Arc<SortedBlock>, EngineError> {
        let mut missed = false;
        let block = self.blocks.get_or_make((link, place), || {
            missed = true;
            self.counters.index_misses.add(1);
            self.counters.index_nanos.time(|| {
                let stripe = self.stripe(link, place.stripe)?;
                let entry = &stripe.directory()[place.block as usize];
                self.counters.fetched_bytes.add(u64::from(entry.bytes));
                Ok(SortedBlock::new(stripe.index_block(entry)?))
            })
        })?;
        if !missed {
            self.counters.index_hits.add(1);
        }
        Ok(block)
    }

    /// Tells the system to read ahead from a frame of a stripe, in pieces larger than frames.
    fn fetch_ahead(&self, (link, stripe): (usize, u16), offset: u64) {
        let from = offset / REGION_BYTES;
        let Ok(open) = self.stripe(link, stripe) else {
            return;
        };
        for region in [from, from + 1] {
            if self.asked.is_new((link, stripe), region) {
                open.will_need(region * REGION_BYTES, REGION_BYTES);
            }
        }
    }

    /// The frame that holds `offset` of a file, in the newest set that has it, and up to where its
    /// bytes count.
    fn stretch(&self, file: FileNo, offset: u64) -> Result<Option<Stretch>, EngineError> {
        let (mut file_here, mut until) = (file, u64::MAX);
        let mut older = self.set.lineage().ancestors(file).iter();
        for number in 0..self.links.len() {
            if let Some(found) = self.stretch_in(number, file_here, (offset, &mut until))? {
                return Ok(Some(found));
            }
            let Some(ancestor) = older.next().filter(|one| offset < one.bytes) else {
                return Ok(None);
            };
            file_here = ancestor.file;
            until = until.min(ancestor.bytes);
        }
        Ok(None)
    }

    /// The frame of one set that holds `offset` of a file of that set. `until` is where the bytes
    /// stop to count; if the set does not hold them, it is lowered to where that may change.
    fn stretch_in(
        &self,
        number: usize,
        file: FileNo,
        (offset, until): (u64, &mut u64),
    ) -> Result<Option<Stretch>, EngineError> {
        let link = &self.links[number];
        let located = match link.layer(file, offset)? {
            Layer::Upper(range) => {
                *until = range.end.min(*until);
                let place = BlockPlace {
                    stripe: range.stripe,
                    block: range.block,
                };
                let block = self.block(number, place)?;
                let at = block.find((file, offset), range.layer);
                let at =
                    at.unwrap_or_else(|| unreachable!("this block has the piece of the range"));
                Some(Located { block, at, place })
            }
            Layer::Base(end) => {
                *until = end.min(*until);
                if link.inherits(file) {
                    return Ok(None);
                }
                let load = |place| self.block(number, place);
                link.locator.find((file, offset), &load)?
            }
        };
        Ok(located.map(|located| {
            let piece = &located.at.piece;
            let skip = offset - piece.offset;
            let end = (*until).min(piece.offset + u64::from(piece.bytes));
            let start = located.at.start + fitted::<usize, _>(skip);
            Stretch {
                link: number,
                start,
                bytes: end - offset,
                located,
            }
        }))
    }

    /// Like [`Self::stretch`], but it is an error if there are no bytes.
    fn stretch_of(&self, entry: &FileEntry, offset: u64) -> Result<Stretch, ImageError> {
        let stretch = self.stretch(entry.file, offset);
        let stretch = stretch.map_err(|source| read_error(entry, offset, source))?;
        stretch.ok_or_else(|| ImageError::Missing {
            path: entry.path_lossy(),
            offset,
        })
    }

    /// Reads bytes that the file has.
    fn read_entry(
        &self,
        entry: &FileEntry,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ImageError> {
        let mut done = 0;
        while done < into.len() {
            done += self.read_run(entry, offset + done as u64, &mut into[done..])?;
        }
        self.counters.reads.add(1);
        self.counters.read_bytes.add(into.len() as u64);
        Ok(())
    }

    /// Reads from one frame, and returns how many bytes it has read.
    fn read_run(
        &self,
        entry: &FileEntry,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, ImageError> {
        let stretch = self.stretch_of(entry, offset)?;
        let count =
            usize::try_from(stretch.bytes).map_or(into.len(), |bytes| bytes.min(into.len()));
        let Located { place, block, at } = &stretch.located;
        let stripe = self.stripe(stretch.link, place.stripe)?;
        self.frames
            .copy(
                stripe,
                block,
                at.frame,
                stretch.start,
                &mut into[..count],
                &self.counters,
            )
            .map_err(|source| read_error(entry, offset, source))?;
        Ok(count)
    }
}

fn read_error(entry: &FileEntry, offset: u64, source: EngineError) -> ImageError {
    ImageError::Read {
        path: entry.path_lossy(),
        offset,
        source,
    }
}

impl Image for SetImage {
    fn files(&self) -> &FileTable {
        &self.set.description().files
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        let files = self.files();
        let entry = &files.0[self.lookup.index(files, file)?];
        let length = read_length(entry, offset, into.len());
        self.read_entry(entry, offset, &mut into[..length])?;
        Ok(length)
    }

    fn checksum(&self, file: FileNo, offset: u64) -> Result<Option<Checksummed>, ImageError> {
        let files = self.files();
        let entry = &files.0[self.lookup.index(files, file)?];
        if offset >= entry.bytes {
            return Ok(None);
        }
        let stretch = self.stretch_of(entry, offset)?;
        let piece = &stretch.located.at.piece;
        // The checksum of the piece is valid for the image only if no byte of it is replaced or cut
        // off.
        let whole = piece.offset == offset && u64::from(piece.bytes) == stretch.bytes;
        let end = offset + stretch.bytes;
        Ok(Some(Checksummed {
            end: end.min(entry.bytes),
            crc32c: (whole && end <= entry.bytes).then_some(piece.crc32c),
        }))
    }

    fn file_checksum(&self, entry: &FileEntry) -> Option<u32> {
        // A set in which a file with layers states one was not opened.
        entry.flags.crc_known.then_some(entry.crc32c)
    }

    /// Reads all index blocks, in every set of the chain, that may tell of what lies over bytes of
    /// the file. So damage of them, and a span that hides something, is known before somebody
    /// relies on the file.
    fn check_layers(&self, file: FileNo) -> Result<(), ImageError> {
        let ancestors = self.set.lineage().ancestors(file).iter();
        let files = std::iter::once(file).chain(ancestors.map(|older| older.file));
        let mut links = self.links.iter().zip(files);
        let checked = links.try_for_each(|(link, file)| link.check(file));
        let files = self.files();
        checked.map_err(|source| match self.lookup.index(files, file) {
            Ok(index) => read_error(&files.0[index], 0, source),
            Err(_) => ImageError::Engine(source),
        })
    }

    fn will_need(&self, file: FileNo, offset: u64) {
        // If something here is damaged or missing, the later read reports it.
        if let Ok(Some(stretch)) = self.stretch(file, offset) {
            let Located { place, block, at } = &stretch.located;
            self.fetch_ahead((stretch.link, place.stripe), block.frame(at.frame).offset);
        }
    }

    fn prefetch(&self, file: FileNo, offset: u64, bytes: u64) {
        let files = self.files();
        let Ok(index) = self.lookup.index(files, file) else {
            return;
        };
        let end = files.0[index].bytes.min(offset.saturating_add(bytes));
        let mut from = offset;
        while from < end {
            let Ok(Some(stretch)) = self.stretch(file, from) else {
                return;
            };
            let Located { place, block, at } = &stretch.located;
            let Ok(stripe) = self.stripe(stretch.link, place.stripe) else {
                return;
            };
            let counters = &self.counters;
            if !self.frames.prefetch(stripe, block, at.frame, counters) {
                return;
            }
            from += stretch.bytes;
        }
    }

    fn identity(&self) -> Option<[u8; 32]> {
        Some(self.set.root())
    }
}
