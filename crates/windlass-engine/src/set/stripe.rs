//! One stripe: its header, seal, footer and index blocks, each checked before it is believed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{
    FileSpan, Footer, FormatError, IndexBlock, IndexDirectoryEntry, Seal, SetCipher, StripeHeader,
    StripeTableEntry, Structure,
};

use super::ends::{Ends, check_same_footer, check_same_stripe};
use super::parity::rebuild::Rebuilder;
use super::spans::StripeSpans;
use super::unlock::cipher_of;
use crate::error::{EngineError, damage, read_error};
use crate::read::ReadFile;
use crate::storage::Storage;
use crate::waits::may_block;

/// One stripe of an open set.
#[derive(Debug)]
pub struct OpenStripe {
    pub(crate) location: PathBuf,
    pub(crate) file: ReadFile,
    pub(crate) header: StripeHeader,
    pub(crate) header_bytes: Vec<u8>,
    pub(crate) seal: Seal,
    pub(crate) directory: Vec<IndexDirectoryEntry>,
    /// What the footer says that each index block has of each file.
    pub(crate) spans: StripeSpans,
    /// The directory was put together from the blocks that a walk found. Blocks before and between
    /// them may be lost, so their places in it say nothing about their numbers.
    pub(crate) is_walked: bool,
    /// What decrypts it, if its set is encrypted.
    pub(crate) cipher: Option<Arc<SetCipher>>,
    /// What rebuilds damaged parts of it, if its set has parity.
    pub(crate) rebuilder: Option<Arc<Rebuilder>>,
}

impl OpenStripe {
    /// Where the stripe was found.
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// Its header.
    pub fn header(&self) -> &StripeHeader {
        &self.header
    }

    /// What decrypts its frames, if its set is encrypted.
    pub fn cipher(&self) -> Option<&SetCipher> {
        self.cipher.as_deref()
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.seal.stripe_bytes
    }

    /// Its index blocks.
    pub fn directory(&self) -> &[IndexDirectoryEntry] {
        &self.directory
    }

    /// What an index block has of each file, if the footer says it.
    pub fn spans(&self, block: usize) -> Option<&[FileSpan]> {
        self.spans.of(block)
    }

    /// Fails once somebody has read an index block that has other spans. What lies over bytes of
    /// any file of the set is unknown then.
    pub(crate) fn check_spans(&self) -> Result<(), EngineError> {
        match self.spans.wrong() {
            None => Ok(()),
            Some(offset) => Err(self.damage(offset, StripeSpans::fault())),
        }
    }

    /// How much memory its list of index blocks takes.
    pub(crate) fn directory_bytes(&self) -> u64 {
        let entries = self.directory.capacity() * size_of::<IndexDirectoryEntry>();
        entries as u64 + self.spans.memory_bytes()
    }

    /// Reads and checks one index block.
    pub fn index_block(&self, entry: &IndexDirectoryEntry) -> Result<IndexBlock, EngineError> {
        let mut bytes = vec![0; entry.bytes as usize];
        let is_right = |bytes: &[u8]| match blake3::hash(bytes).as_bytes() == &entry.hash {
            true => Ok(()),
            false => Err(FormatError::Hash(Structure::IndexBlock)),
        };
        self.read_checked(entry.offset, &mut bytes, is_right)?;
        let (alignment, cipher) = (self.header.alignment, self.cipher());
        let block = IndexBlock::decode_with(&bytes, entry.offset, alignment, cipher);
        let block = block.map_err(|source| self.damage(entry.offset, source))?;
        if block.set_id != self.header.set_id || block.stripe != self.header.stripe {
            let (expected, found) = (self.header.set_id, block.set_id);
            let structure = Structure::IndexBlock;
            let fault = FormatError::Foreign {
                structure,
                expected,
                found,
            };
            return Err(self.damage(entry.offset, fault));
        }
        // Whatever else is wrong, it is remembered.
        let is_spanned = self.is_spanned(&block, entry);
        let what = if !self.is_numbered(&block, entry) {
            Some("it has the number of another index block of this stripe")
        } else if !is_as_listed(&block, entry) {
            Some("it holds other files, layers or frames than the index directory says")
        } else if overlaps(&block) {
            Some("pieces of one layer overlap")
        } else {
            None
        };
        if let Some(what) = what {
            let structure = Structure::IndexBlock;
            let fault = FormatError::Invalid { structure, what };
            return Err(self.damage(entry.offset, fault));
        }
        if !is_spanned {
            return Err(self.damage(entry.offset, StripeSpans::fault()));
        }
        let frame_bytes = self.header.frame_bytes;
        let stored_bytes_max = self.header.stored_bytes_max();
        let too_large = |frame: &windlass_media::FrameEntry| {
            frame.raw_bytes > frame_bytes || frame.stored_bytes > stored_bytes_max
        };
        if block.frames.iter().any(too_large) || block.region_offset != entry.region_offset {
            let what = "a frame is larger, or the region elsewhere, than the stripe says";
            let fault = FormatError::Invalid {
                structure: Structure::IndexBlock,
                what,
            };
            return Err(self.damage(entry.offset, fault));
        }
        Ok(block)
    }

    /// The place of an entry in the directory. An entry of no bytes, which is no block, can have
    /// the offset of the next one.
    fn place_of(&self, entry: &IndexDirectoryEntry) -> Option<usize> {
        let key = |one: &IndexDirectoryEntry| (one.offset, one.bytes);
        self.directory.binary_search_by_key(&key(entry), key).ok()
    }

    /// Whether a block has the number of its place in the directory.
    fn is_numbered(&self, block: &IndexBlock, entry: &IndexDirectoryEntry) -> bool {
        match self.place_of(entry) {
            Some(place) if !self.is_walked => u32::try_from(place) == Ok(block.number),
            _ => true,
        }
    }

    /// Whether a block holds what the footer says that it has of each file. Readers of upper layers
    /// skip blocks because of that.
    fn is_spanned(&self, block: &IndexBlock, entry: &IndexDirectoryEntry) -> bool {
        let place = self.place_of(entry);
        place.is_none_or(|place| self.spans.agree((place, block), entry.offset))
    }

    /// Announces that these bytes will be read soon. If the system ignores that, it costs only
    /// time.
    pub fn will_need(&self, offset: u64, bytes: u64) {
        self.file.will_need(offset, bytes);
    }

    /// Reads exactly `into.len()` bytes. A stripe that ends before that is damaged.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), EngineError> {
        may_block();
        self.file
            .bytes()
            .read_exact_at(offset, into)
            .map_err(|source| self.io(offset, source))
    }

    /// Does the same, and checks the bytes. If they cannot be read, or are not right, and the set
    /// has parity, they are rebuilt and checked again.
    pub fn read_checked(
        &self,
        offset: u64,
        into: &mut [u8],
        check: impl Fn(&[u8]) -> Result<(), FormatError>,
    ) -> Result<(), EngineError> {
        let checked = |bytes: &[u8]| check(bytes).map_err(|fault| self.damage(offset, fault));
        let Err(error) = self.read(offset, into).and_then(|()| checked(into)) else {
            return Ok(());
        };
        match self.rebuild(offset, into)? {
            true => checked(into),
            false => Err(error),
        }
    }

    /// Rebuilds bytes of the stripe. False if the set has no parity, or if the stripe has no such
    /// bytes.
    pub(crate) fn rebuild(&self, offset: u64, into: &mut [u8]) -> Result<bool, EngineError> {
        match &self.rebuilder {
            None => Ok(false),
            Some(rebuilder) => {
                let read = rebuilder.read(self.header.stripe.0, offset, into)?;
                Ok(read == into.len())
            }
        }
    }

    /// The error for a fault of the stripe's content.
    pub fn damage(&self, offset: u64, source: FormatError) -> EngineError {
        damage(&self.location, offset, source)
    }

    pub(crate) fn io(&self, offset: u64, source: io::Error) -> EngineError {
        read_error(&self.location, offset, source)
    }

    /// Checks that the stripe is what the set says it is, and that its parts leave no gap.
    pub(crate) fn check(
        &self,
        listed: &StripeTableEntry,
        root: &[u8; 32],
    ) -> Result<(), EngineError> {
        let hash = StripeTableEntry::hash_of(&self.header_bytes, &self.directory);
        if hash != listed.hash || listed.data_bytes != self.seal.footer_offset {
            return Err(self.damage(0, FormatError::Hash(Structure::IndexDirectory)));
        }
        if self.seal.set_root != *root {
            return Err(self.damage(0, FormatError::Hash(Structure::Seal)));
        }
        self.check_counts(listed)?;
        self.check_layout()
    }

    /// Compares the numbers of index blocks and frames with the stripe table. The bytes of the
    /// frames stand only in the blocks: see `tally.rs`.
    fn check_counts(&self, listed: &StripeTableEntry) -> Result<(), EngineError> {
        let frames = self.directory.iter().map(|it| u64::from(it.frame_count));
        let blocks = self.directory.len() as u64;
        if (u64::from(listed.index_blocks), listed.frames) == (blocks, frames.sum()) {
            return Ok(());
        }
        let what = "it states other numbers of index blocks or frames than the stripe has";
        let structure = Structure::StripeTable;
        Err(self.damage(0, FormatError::Invalid { structure, what }))
    }

    /// Checks that header, regions, index blocks and footer follow each other without a gap.
    fn check_layout(&self) -> Result<(), EngineError> {
        let mut position = self.header_bytes.len() as u64;
        for entry in &self.directory {
            let is_aligned = entry
                .offset
                .is_multiple_of(u64::from(self.header.alignment));
            if entry.region_offset != position || !is_aligned {
                break;
            }
            position = entry.offset + u64::from(entry.bytes);
        }
        if position == self.seal.footer_offset
            && position.is_multiple_of(u64::from(self.header.alignment))
        {
            return Ok(());
        }
        let what = "header, regions and index blocks do not fill the stripe up to its footer";
        let fault = FormatError::Invalid {
            structure: Structure::IndexDirectory,
            what,
        };
        Err(self.damage(position, fault))
    }
}

/// Whether a block holds what its entry says. Some readers skip blocks because of their entries,
/// others read all blocks. Both must get the same result.
fn is_as_listed(block: &IndexBlock, entry: &IndexDirectoryEntry) -> bool {
    let files = || block.pieces.iter().map(|piece| piece.file);
    let listed = (entry.file_min, entry.file_max, entry.layer_max);
    let first = (files().min(), files().max());
    let layer = block.pieces.iter().map(|piece| piece.layer).max();
    let held = |none| {
        (
            first.0.unwrap_or(none),
            first.1.unwrap_or(none),
            layer.unwrap_or(0),
        )
    };
    listed == held(entry.file_min) && block.frames.len() == entry.frame_count as usize
}

/// Whether pieces of one file and layer overlap. If they do, nothing says which of them counts.
fn overlaps(block: &IndexBlock) -> bool {
    let mut pieces: Vec<_> = block.pieces.iter().filter(|it| it.bytes > 0).collect();
    pieces.sort_unstable_by_key(|it| (it.file, it.layer, it.offset));
    pieces.windows(2).any(|pair| {
        let same = (pair[0].file, pair[0].layer) == (pair[1].file, pair[1].layer);
        same && pair[0].offset + u64::from(pair[0].bytes) > pair[1].offset
    })
}

/// The header of the stripe at a location, if there is one.
pub(super) fn peek_header(storage: &dyn Storage, location: &Path) -> Option<StripeHeader> {
    let ends = Ends::open(storage, location).ok()?;
    ends.header().ok().map(|(header, _)| header)
}

/// Opens a stripe, and checks that its parts belong together.
pub(super) fn open_stripe(
    storage: &dyn Storage,
    location: &Path,
    limit: u64,
) -> Result<(OpenStripe, Footer), EngineError> {
    let ends = Ends::open(storage, location)?;
    let (header, header_bytes) = ends.header()?;
    let seal = ends.seal()?;
    check_same_stripe(&header, &seal).map_err(|fault| damage(location, ends.bytes, fault))?;
    let cipher = cipher_of(storage, location, &header)?;
    let mut footer = ends.footer(&seal, limit, cipher.as_deref())?;
    check_same_footer(&seal, &footer)
        .map_err(|fault| damage(location, seal.footer_offset, fault))?;
    let directory = std::mem::take(&mut footer.directory);
    let spans = StripeSpans::new(std::mem::take(&mut footer.spans));
    let stripe = OpenStripe {
        location: location.to_owned(),
        file: ReadFile::of(ends.device),
        header,
        header_bytes,
        seal,
        directory,
        spans,
        is_walked: false,
        cipher,
        rebuilder: None,
    };
    Ok((stripe, footer))
}
