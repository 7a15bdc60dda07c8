//! Index blocks: where each of the frames before them is, what it holds, and its checksum.
//!
//! An index block describes the region between the block before it (or the header) and itself.
//! Its frames are in ascending order. The bytes between them are padding and must be zero.

use crate::cipher::{SEALED_BYTES, SetCipher};
use crate::codec::Codec;
use crate::error::{FormatError, Structure};
use crate::ids::{FileNo, SetId, StripeIndex};
use crate::limits::*;
use crate::number::fitted;
use crate::wire::{Reader, check_crc, round_up, seal_with_crc};

pub(crate) const MAGIC: &[u8; 8] = b"WNDLINDX";
const STRUCTURE: Structure = Structure::IndexBlock;
const HEAD_BYTES: usize = 64;
const FRAME_ENTRY_BYTES: usize = 24;
pub(crate) const PIECE_ENTRY_BYTES: usize = 24;
/// How much longer the entry of a page-aware frame is.
const PAGE_FRAME_BYTES: usize = 16;
/// The flag of a block whose frames are all page-aware.
const PAGE_FRAMES: u32 = 1;
/// The flag of a block whose entries, and whose frames, are encrypted.
const ENCRYPTED: u32 = 2;

/// Where one frame lies and how to decode it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// Position on the stripe, in bytes.
    pub offset: u64,
    /// Length on the stripe, in bytes.
    pub stored_bytes: u32,
    /// Length when decoded, in bytes.
    pub raw_bytes: u32,
    /// CRC-32C of the stored bytes.
    pub crc32c: u32,
    /// How the frame is stored.
    pub codec: Codec,
    /// How many pieces it holds; they follow in the block's list of pieces.
    pub piece_count: u16,
    /// What is known about its pages. All frames of a block have this, or none.
    pub page: Option<PageFrame>,
}

/// What the entry of a page-aware frame says besides.
///
///   stored bytes --codec--> laid out bytes --layout--> decoded bytes
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFrame {
    /// CRC-32C of all decoded bytes.
    pub raw_crc32c: u32,
    /// Length between codec and layout.
    pub laid_bytes: u32,
    /// How the pages are laid out for the codec: [`LAYOUT_PLAIN`] or [`LAYOUT_STREAMS`].
    pub layout: u16,
    /// What the pages are, in the numbers of the database's crate; 0 if that is not known. Nobody
    /// needs it to read them.
    pub kind: u16,
}

/// Pages as they are in their file.
pub const LAYOUT_PLAIN: u16 = 0;
/// The parts of pages, sorted by kind into streams.
pub const LAYOUT_STREAMS: u16 = 1;

/// One run of bytes of one file inside a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceEntry {
    /// The file.
    pub file: FileNo,
    /// Length, in bytes.
    pub bytes: u32,
    /// Position in the file, in bytes.
    pub offset: u64,
    /// CRC-32C of the decoded bytes.
    pub crc32c: u32,
    /// Where pieces overlap, the piece of the highest layer counts.
    pub layer: u8,
}

/// One index block, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexBlock {
    /// The set.
    pub set_id: SetId,
    /// The stripe.
    pub stripe: StripeIndex,
    /// Number of this block on its stripe, from 0.
    pub number: u32,
    /// Where the region it describes begins on the stripe.
    pub region_offset: u64,
    /// How long that region is. The block itself follows it.
    pub region_bytes: u64,
    /// Length of this block, padding included.
    pub encoded_bytes: u32,
    /// The frames in the region, in order.
    pub frames: Vec<FrameEntry>,
    /// Their pieces, in order.
    pub pieces: Vec<PieceEntry>,
}

/// Gathers the entries of one index block.
#[derive(Debug, Default)]
pub struct IndexBlockBuilder {
    frames: Vec<FrameEntry>,
    pieces: Vec<PieceEntry>,
}

impl IndexBlockBuilder {
    /// Adds a frame and its pieces. `frame.piece_count` is set from `pieces`.
    pub fn push(&mut self, mut frame: FrameEntry, pieces: &[PieceEntry]) {
        frame.piece_count = fitted(pieces.len());
        self.frames.push(frame);
        self.pieces.extend_from_slice(pieces);
    }

    /// Length of the block so far, without padding.
    pub fn content_bytes(&self) -> usize {
        content_bytes(&self.frames, self.pieces.len())
    }

    /// How many frames it holds.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// True when nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes the entries and leaves the builder empty.
    pub fn take(
        &mut self,
        set_id: SetId,
        stripe: StripeIndex,
        number: u32,
        region_offset: u64,
        region_bytes: u64,
    ) -> IndexBlock {
        IndexBlock {
            set_id,
            stripe,
            number,
            region_offset,
            region_bytes,
            encoded_bytes: 0,
            frames: std::mem::take(&mut self.frames),
            pieces: std::mem::take(&mut self.pieces),
        }
    }
}

impl IndexBlock {
    /// How many bytes of a block [`IndexBlock::encoded_bytes_of`] needs.
    pub const PREFIX_BYTES: usize = HEAD_BYTES;

    /// The block as it stands on the stripe of a set without encryption; sets `encoded_bytes`.
    pub fn encode(&mut self, alignment: u32) -> Result<Vec<u8>, FormatError> {
        self.encode_with(alignment, None)
    }

    /// The same, of a set that may be encrypted.
    pub fn encode_with(
        &mut self,
        alignment: u32,
        cipher: Option<&SetCipher>,
    ) -> Result<Vec<u8>, FormatError> {
        let has_pages = has_pages(&self.frames);
        if self
            .frames
            .iter()
            .any(|frame| frame.page.is_some() != has_pages)
        {
            let what = "only some of its frames are page-aware";
            let structure = STRUCTURE;
            return Err(FormatError::Invalid { structure, what });
        }
        let content = content_bytes(&self.frames, self.pieces.len());
        let sealed = cipher.map_or(0, |_| SEALED_BYTES);
        let total = round_up((content + sealed) as u64, alignment);
        let limit = u64::from(INDEX_BLOCK_BYTES_MAX);
        let fault = FormatError::Limit {
            structure: STRUCTURE,
            what: "length",
            found: total,
            limit,
        };
        let narrow = u32::try_from(total).ok();
        let narrow = narrow.filter(|total| *total <= INDEX_BLOCK_BYTES_MAX);
        let total = narrow.ok_or(fault)?;
        self.encoded_bytes = total;
        let mut out = Vec::with_capacity(total as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.set_id.0);
        out.extend_from_slice(&self.stripe.0.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.region_offset.to_le_bytes());
        out.extend_from_slice(&self.region_bytes.to_le_bytes());
        let frame_count: u32 = fitted(self.frames.len());
        let piece_count: u32 = fitted(self.pieces.len());
        out.extend_from_slice(&frame_count.to_le_bytes());
        out.extend_from_slice(&piece_count.to_le_bytes());
        out.extend_from_slice(&total.to_le_bytes());
        let pages = u32::from(has_pages) * PAGE_FRAMES;
        let encrypted = u32::from(cipher.is_some()) * ENCRYPTED;
        out.extend_from_slice(&(pages | encrypted).to_le_bytes());
        self.frames
            .iter()
            .for_each(|frame| put_frame(&mut out, frame));
        self.pieces
            .iter()
            .for_each(|piece| put_piece(&mut out, piece));
        if let Some(cipher) = cipher {
            let entries = out.split_off(HEAD_BYTES);
            let sealed = cipher.seal_block(&out, &entries)?;
            out.extend_from_slice(&sealed);
        }
        seal_with_crc(&mut out, total as usize);
        Ok(out)
    }

    /// Length of the whole block, from its first [`Self::PREFIX_BYTES`] bytes.
    pub fn encoded_bytes_of(prefix: &[u8]) -> Result<u32, FormatError> {
        let mut reader = Reader::new(prefix, STRUCTURE);
        reader.magic(MAGIC)?;
        reader.bytes(HEAD_BYTES - 8 - 8)?;
        let total = reader.u32()?;
        if total > INDEX_BLOCK_BYTES_MAX {
            let limit = u64::from(INDEX_BLOCK_BYTES_MAX);
            return Err(reader.limit("length", u64::from(total), limit));
        }
        Ok(total)
    }

    /// Reads a block of a set without encryption that lies at `offset` of its stripe. It checks
    /// everything that can be checked without the frames: bounds, order, counts, limits.
    pub fn decode(bytes: &[u8], offset: u64, alignment: u32) -> Result<Self, FormatError> {
        Self::decode_with(bytes, offset, alignment, None)
    }

    /// The same, of a set that may be encrypted. A block that is not as its set is, is refused.
    pub fn decode_with(
        bytes: &[u8],
        offset: u64,
        alignment: u32,
        cipher: Option<&SetCipher>,
    ) -> Result<Self, FormatError> {
        let content = check_crc(bytes, STRUCTURE)?;
        let mut reader = Reader::new(content, STRUCTURE);
        reader.magic(MAGIC)?;
        let set_id = SetId(reader.array()?);
        let stripe = StripeIndex(reader.u16()?);
        let reserved = reader.u16()?;
        let number = reader.u32()?;
        let (region_offset, region_bytes) = (reader.u64()?, reader.u64()?);
        let (frame_count, piece_count) = (reader.u32()? as usize, reader.u32()? as usize);
        let encoded_bytes = reader.u32()?;
        if u64::from(encoded_bytes) != bytes.len() as u64 {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let flags = reader.u32()?;
        if reserved != 0 || flags & !(PAGE_FRAMES | ENCRYPTED) != 0 {
            return Err(reader.invalid("reserved bytes are not zero"));
        }
        if (flags & ENCRYPTED != 0) != cipher.is_some() {
            return Err(reader.invalid("only the block or only its set is encrypted"));
        }
        let has_pages = flags & PAGE_FRAMES != 0;
        let needed = frame_count * frame_entry_bytes(has_pages) + piece_count * PIECE_ENTRY_BYTES;
        let sealed = cipher.map_or(0, |_| SEALED_BYTES);
        if needed + sealed > reader.remaining() {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let stored = reader.bytes(needed + sealed)?;
        reader.padding()?;
        let head = &content[..HEAD_BYTES];
        let opened = cipher.map(|cipher| cipher.open_block(head, stored));
        let opened = opened.transpose()?;
        let (frames, pieces) = read_entries(
            opened.as_deref().unwrap_or(stored),
            (frame_count, piece_count),
            has_pages,
        )?;
        let block = Self {
            set_id,
            stripe,
            number,
            region_offset,
            region_bytes,
            encoded_bytes,
            frames,
            pieces,
        };
        block.check(offset, alignment, fitted(sealed))?;
        Ok(block)
    }

    /// The frames with their pieces.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameEntry, &[PieceEntry])> {
        let mut rest = self.pieces.as_slice();
        self.frames.iter().map(move |frame| {
            let (pieces, tail) = rest.split_at(usize::from(frame.piece_count).min(rest.len()));
            rest = tail;
            (frame, pieces)
        })
    }

    /// `sealed` is by how much a frame is longer because it is encrypted.
    fn check(&self, offset: u64, alignment: u32, sealed: u32) -> Result<(), FormatError> {
        let invalid = |what| {
            Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            })
        };
        if self.region_offset.checked_add(self.region_bytes) != Some(offset) {
            return invalid("the region does not end where the block begins");
        }
        let mut position = self.region_offset;
        for (frame, pieces) in self.iter() {
            let end = frame.offset.checked_add(u64::from(frame.stored_bytes));
            let Some(end) = end.filter(|end| *end <= offset) else {
                return invalid("a frame ends beyond its region");
            };
            if frame.offset < position || frame.offset - position >= u64::from(alignment) {
                return invalid("frames overlap, are out of order, or leave a gap");
            }
            if frame.raw_bytes > FRAME_BYTES_MAX || frame.stored_bytes > FRAME_BYTES_MAX + sealed {
                return invalid("a frame is larger than 4 MiB");
            }
            check_pieces(frame, pieces, sealed)?;
            position = end;
        }
        if offset - position >= u64::from(alignment) {
            return invalid("the region ends with a gap");
        }
        let counts = self.frames.iter().map(|it| usize::from(it.piece_count));
        if counts.sum::<usize>() != self.pieces.len() {
            return invalid("piece counts do not add up");
        }
        Ok(())
    }
}

fn check_pieces(frame: &FrameEntry, pieces: &[PieceEntry], sealed: u32) -> Result<(), FormatError> {
    let invalid = |what| {
        Err(FormatError::Invalid {
            structure: STRUCTURE,
            what,
        })
    };
    let total: u64 = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
    if total != u64::from(frame.raw_bytes) {
        return invalid("a frame's pieces are not as long as the frame");
    }
    if pieces.iter().any(|piece| piece.offset > FILE_BYTES_MAX) {
        return invalid("a piece lies beyond the largest file");
    }
    let is_laid_out = match frame.page {
        None => false,
        Some(page) if page.layout == LAYOUT_PLAIN => {
            if page.laid_bytes != frame.raw_bytes {
                return invalid("plain pages have two lengths");
            }
            false
        }
        Some(page) if page.layout == LAYOUT_STREAMS => {
            if page.laid_bytes > frame.raw_bytes {
                return invalid("laid out pages are longer than the pages");
            }
            true
        }
        Some(page) => return Err(FormatError::PageLayout(page.layout)),
    };
    match frame.codec {
        Codec::None if !is_laid_out && frame.stored_bytes != frame.raw_bytes + sealed => {
            invalid("an uncompressed frame's lengths differ")
        }
        Codec::Zero if is_laid_out => invalid("a frame of zeros is laid out"),
        Codec::Zero if frame.stored_bytes != 0 => invalid("a frame of zeros is stored"),
        // The CRC of no bytes is 0.
        Codec::Zero if frame.crc32c != 0 => invalid("a frame of zeros has a stored CRC"),
        Codec::Zero => Ok(()),
        _ if frame.stored_bytes < sealed => invalid("a frame is too short to be encrypted"),
        _ => Ok(()),
    }
}

fn put_frame(out: &mut Vec<u8>, frame: &FrameEntry) {
    out.extend_from_slice(&frame.offset.to_le_bytes());
    out.extend_from_slice(&frame.stored_bytes.to_le_bytes());
    out.extend_from_slice(&frame.raw_bytes.to_le_bytes());
    out.extend_from_slice(&frame.crc32c.to_le_bytes());
    out.push(frame.codec.number());
    out.push(0);
    out.extend_from_slice(&frame.piece_count.to_le_bytes());
    if let Some(page) = &frame.page {
        out.extend_from_slice(&page.raw_crc32c.to_le_bytes());
        out.extend_from_slice(&page.laid_bytes.to_le_bytes());
        out.extend_from_slice(&page.layout.to_le_bytes());
        out.extend_from_slice(&page.kind.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }
}

fn read_page(reader: &mut Reader<'_>) -> Result<PageFrame, FormatError> {
    let page = PageFrame {
        raw_crc32c: reader.u32()?,
        laid_bytes: reader.u32()?,
        layout: reader.u16()?,
        kind: reader.u16()?,
    };
    match reader.u32()? {
        0 => Ok(page),
        _ => Err(reader.invalid("reserved bytes are not zero")),
    }
}

/// The entries of a block's frames and pieces.
fn read_entries(
    bytes: &[u8],
    (frame_count, piece_count): (usize, usize),
    has_pages: bool,
) -> Result<(Vec<FrameEntry>, Vec<PieceEntry>), FormatError> {
    let mut reader = Reader::new(bytes, STRUCTURE);
    let mut frames = Vec::with_capacity(frame_count);
    for _ in 0..frame_count {
        frames.push(read_frame(&mut reader, has_pages)?);
    }
    let mut pieces = Vec::with_capacity(piece_count);
    for _ in 0..piece_count {
        pieces.push(read_piece(&mut reader)?);
    }
    reader.end()?;
    Ok((frames, pieces))
}

fn has_pages(frames: &[FrameEntry]) -> bool {
    frames.first().is_some_and(|frame| frame.page.is_some())
}

fn frame_entry_bytes(has_pages: bool) -> usize {
    FRAME_ENTRY_BYTES + usize::from(has_pages) * PAGE_FRAME_BYTES
}

/// Length of a block without padding.
fn content_bytes(frames: &[FrameEntry], pieces: usize) -> usize {
    let frame = frame_entry_bytes(has_pages(frames));
    HEAD_BYTES + frames.len() * frame + pieces * PIECE_ENTRY_BYTES + 4
}

fn read_frame(reader: &mut Reader<'_>, has_pages: bool) -> Result<FrameEntry, FormatError> {
    let (offset, stored_bytes, raw_bytes) = (reader.u64()?, reader.u32()?, reader.u32()?);
    let (crc32c, codec, flags) = (reader.u32()?, reader.u8()?, reader.u8()?);
    if flags != 0 {
        return Err(FormatError::Feature {
            structure: STRUCTURE,
            found: u32::from(flags),
        });
    }
    let codec = Codec::from_number(codec)?;
    Ok(FrameEntry {
        offset,
        stored_bytes,
        raw_bytes,
        crc32c,
        codec,
        piece_count: reader.u16()?,
        page: has_pages.then(|| read_page(reader)).transpose()?,
    })
}

pub(crate) fn put_piece(out: &mut Vec<u8>, piece: &PieceEntry) {
    out.extend_from_slice(&piece.file.0.to_le_bytes());
    out.extend_from_slice(&piece.bytes.to_le_bytes());
    out.extend_from_slice(&piece.offset.to_le_bytes());
    out.extend_from_slice(&piece.crc32c.to_le_bytes());
    out.push(piece.layer);
    out.extend_from_slice(&[0; 3]);
}

fn read_piece(reader: &mut Reader<'_>) -> Result<PieceEntry, FormatError> {
    let (file, bytes, offset) = (FileNo(reader.u32()?), reader.u32()?, reader.u64()?);
    let (crc32c, layer) = (reader.u32()?, reader.u8()?);
    if reader.bytes(3)? != [0; 3] {
        return Err(reader.invalid("reserved bytes are not zero"));
    }
    Ok(PieceEntry {
        file,
        bytes,
        offset,
        crc32c,
        layer,
    })
}
