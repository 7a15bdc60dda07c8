//! Sets made by hand, with right checksums around whatever is inside: what an attacker would make.
//!
//!   [header][region: frames][index block][footer: sections][seal]
//!
//! A [`Forge`] as it comes makes a right set of one stripe and one file. Each hook may change one
//! structure before the checksum or hash above it is made.

use std::path::{Path, PathBuf};

use windlass_engine::media::{
    Codec, FileEntry, FileKind, FileNo, FrameEntry, IndexBlockBuilder, IndexDirectoryEntry,
    PieceEntry, Seal, StripeHeader, StripeIndex, StripeTableEntry, crc32c,
};

use crate::support::*;

pub const ALIGNMENT: u32 = 512;
const SECTION_FLAGS: u32 = 1;

/// One section of a footer, as stored.
#[derive(Clone, Debug)]
pub struct Section {
    pub kind: u32,
    pub flags: u32,
    pub raw_bytes: u64,
    pub stored: Vec<u8>,
}

type Hook<T> = Box<dyn Fn(&mut T)>;

/// A set that is to be made, right or wrong.
pub struct Forge {
    pub header: StripeHeader,
    /// Frames with their pieces and stored bytes; offsets are set when the set is made.
    pub frames: Vec<(FrameEntry, Vec<PieceEntry>, Vec<u8>)>,
    pub files: Vec<FileEntry>,
    pub facts: Vec<u8>,
    /// What the stripe table states as the decoded bytes of the frames, if not what they are.
    pub raw_bytes: Option<u64>,
    pub header_bytes: Hook<Vec<u8>>,
    pub region: Hook<Vec<u8>>,
    pub block: Hook<Vec<u8>>,
    pub directory: Hook<Vec<IndexDirectoryEntry>>,
    pub file_table: Hook<Vec<u8>>,
    pub stripe_table: Hook<Vec<u8>>,
    pub sections: Hook<Vec<Section>>,
    pub seal: Hook<Seal>,
}

impl Default for Forge {
    fn default() -> Self {
        let content = plain(3000, 1);
        Self {
            header: StripeHeader {
                set_id: SET,
                stripe: StripeIndex(0),
                alignment: ALIGNMENT,
                transfer_bytes: 64 * 1024,
                frame_bytes: 64 * 1024,
                created_nanos: 1,
                page_frames: false,
                lock: None,
                locations: vec![b"set.windlass".to_vec()],
                parities: vec![],
            },
            frames: vec![frame(&content, vec![piece(0, 0, &content)])],
            files: vec![entry(0, "file", content.len())],
            facts: facts().encode().unwrap(),
            raw_bytes: None,
            header_bytes: nothing(),
            region: nothing(),
            block: nothing(),
            directory: nothing(),
            file_table: nothing(),
            stripe_table: nothing(),
            sections: nothing(),
            seal: nothing(),
        }
    }
}

fn nothing<T>() -> Hook<T> {
    Box::new(|_| {})
}

/// An uncompressed frame.
pub fn frame(raw: &[u8], pieces: Vec<PieceEntry>) -> (FrameEntry, Vec<PieceEntry>, Vec<u8>) {
    packed(Codec::None, raw.len(), raw.to_vec(), pieces)
}

/// A frame whose entry states that it decodes to `raw_bytes`.
pub fn packed(
    codec: Codec,
    raw_bytes: usize,
    stored: Vec<u8>,
    pieces: Vec<PieceEntry>,
) -> (FrameEntry, Vec<PieceEntry>, Vec<u8>) {
    let entry = FrameEntry {
        offset: 0,
        stored_bytes: stored.len() as u32,
        raw_bytes: raw_bytes as u32,
        crc32c: crc32c(&stored),
        codec,
        piece_count: 0,
        page: None,
    };
    (entry, pieces, stored)
}

/// A piece that holds `bytes`.
pub fn piece(file: u32, offset: u64, bytes: &[u8]) -> PieceEntry {
    PieceEntry {
        file: FileNo(file),
        bytes: bytes.len() as u32,
        offset,
        crc32c: crc32c(bytes),
        layer: 0,
    }
}

/// A file table, without the checks that a normal writer makes.
pub fn encode_files(files: &[FileEntry]) -> Vec<u8> {
    let mut out = (files.len() as u32).to_le_bytes().to_vec();
    for file in files {
        out.extend(file.file.0.to_le_bytes());
        out.push(match file.kind {
            FileKind::File => 0,
            FileKind::Directory => 1,
            FileKind::Symlink => 2,
        });
        out.push(u8::from(file.flags.last) | u8::from(file.flags.crc_known) << 1);
        out.extend(file.mode.to_le_bytes());
        out.extend(file.bytes.to_le_bytes());
        out.extend(file.mtime_nanos.to_le_bytes());
        out.extend(file.crc32c.to_le_bytes());
        for text in [&file.path, &file.link_target] {
            out.extend((text.len() as u16).to_le_bytes());
            out.extend(text);
        }
    }
    out
}

/// Corrects the CRC-32C in the last four bytes.
pub fn reseal(bytes: &mut [u8]) {
    let (content, crc) = bytes.split_at_mut(bytes.len() - 4);
    crc.copy_from_slice(&crc32c(content).to_le_bytes());
}

impl Forge {
    /// Writes the set into a directory, and returns the path of its stripe.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let place = dir.join("set.windlass");
        write(&place, &self.stripe());
        place
    }

    fn stripe(&self) -> Vec<u8> {
        let mut header = self.header.encode().unwrap();
        (self.header_bytes)(&mut header);
        reseal(&mut header);
        let mut stripe = header.clone();
        let (directory, region_and_block) = self.data(header.len() as u64);
        stripe.extend(region_and_block);
        let footer_offset = stripe.len() as u64;
        let (footer, set_root) = self.footer(&header, directory, footer_offset);
        stripe.extend(&footer);
        let mut seal = Seal {
            set_id: self.header.set_id,
            stripe: StripeIndex(0),
            stripe_count: self.header.stripe_count(),
            footer_offset,
            footer_bytes: footer.len() as u64,
            footer_hash: *blake3::hash(&footer).as_bytes(),
            set_root,
            stripe_bytes: stripe.len() as u64 + u64::from(ALIGNMENT),
            alignment: ALIGNMENT,
        };
        (self.seal)(&mut seal);
        stripe.extend(seal.encode());
        stripe
    }

    fn data(&self, region_offset: u64) -> (Vec<IndexDirectoryEntry>, Vec<u8>) {
        let mut region = Vec::new();
        let mut builder = IndexBlockBuilder::default();
        let mut layer_max = 0;
        for (entry, pieces, stored) in &self.frames {
            let offset = region_offset + region.len() as u64;
            builder.push(FrameEntry { offset, ..*entry }, pieces);
            region.extend(stored);
            layer_max = pieces
                .iter()
                .map(|piece| piece.layer)
                .fold(layer_max, u8::max);
        }
        region.resize(region.len().next_multiple_of(ALIGNMENT as usize), 0);
        (self.region)(&mut region);
        let bytes = region.len() as u64;
        let mut block = builder.take(self.header.set_id, StripeIndex(0), 0, region_offset, bytes);
        let frame_count = block.frames.len() as u32;
        let mut encoded = block.encode(ALIGNMENT).unwrap();
        (self.block)(&mut encoded);
        reseal(&mut encoded);
        let files = || {
            let pieces = self.frames.iter().flat_map(|(_, pieces, _)| pieces);
            pieces.map(|piece| piece.file)
        };
        let mut directory = vec![IndexDirectoryEntry {
            offset: region_offset + bytes,
            bytes: encoded.len() as u32,
            frame_count,
            region_offset,
            file_min: files().min().unwrap_or(FileNo(0)),
            file_max: files().max().unwrap_or(FileNo(0)),
            layer_max,
            hash: *blake3::hash(&encoded).as_bytes(),
        }];
        (self.directory)(&mut directory);
        region.extend(encoded);
        (directory, region)
    }

    fn footer(
        &self,
        header: &[u8],
        directory: Vec<IndexDirectoryEntry>,
        data_bytes: u64,
    ) -> (Vec<u8>, [u8; 32]) {
        let hash = StripeTableEntry::hash_of(header, &directory);
        let mut stripes = self.encode_stripe_table(data_bytes, directory.len(), hash);
        (self.stripe_table)(&mut stripes);
        let mut files = encode_files(&self.files);
        (self.file_table)(&mut files);
        let raws = [(1, encode_directory(&directory)), (2, stripes), (3, files)];
        let raws = raws.into_iter().chain([(4, self.facts.clone())]);
        let section = |(kind, stored): (u32, Vec<u8>)| {
            let (flags, raw_bytes) = (SECTION_FLAGS, stored.len() as u64);
            Section {
                kind,
                flags,
                raw_bytes,
                stored,
            }
        };
        let mut sections: Vec<_> = raws.map(section).collect();
        let mut root = blake3::Hasher::new();
        for section in &sections[1..] {
            root.update(&section.kind.to_le_bytes());
            root.update(&section.raw_bytes.to_le_bytes());
            root.update(&section.stored);
        }
        (self.sections)(&mut sections);
        (
            encode_footer(&self.header, &sections),
            *root.finalize().as_bytes(),
        )
    }

    fn encode_stripe_table(&self, data_bytes: u64, blocks: usize, hash: [u8; 32]) -> Vec<u8> {
        let sum = |bytes: fn(&FrameEntry) -> u32| -> u64 {
            let frames = self.frames.iter();
            frames.map(|(frame, ..)| u64::from(bytes(frame))).sum()
        };
        let raw_bytes = self
            .raw_bytes
            .unwrap_or_else(|| sum(|frame| frame.raw_bytes));
        let location = &self.header.locations[0];
        let mut out = 1u32.to_le_bytes().to_vec();
        out.extend((location.len() as u16).to_le_bytes());
        out.extend(location);
        out.extend(data_bytes.to_le_bytes());
        out.extend((blocks as u32).to_le_bytes());
        out.extend((self.frames.len() as u64).to_le_bytes());
        out.extend(raw_bytes.to_le_bytes());
        out.extend(sum(|frame| frame.stored_bytes).to_le_bytes());
        out.extend(hash);
        out
    }
}

fn encode_directory(directory: &[IndexDirectoryEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in directory {
        out.extend(entry.offset.to_le_bytes());
        out.extend(entry.bytes.to_le_bytes());
        out.extend(entry.frame_count.to_le_bytes());
        out.extend(entry.region_offset.to_le_bytes());
        out.extend(entry.file_min.0.to_le_bytes());
        out.extend(entry.file_max.0.to_le_bytes());
        out.push(entry.layer_max);
        out.extend([0; 15]);
        out.extend(entry.hash);
    }
    out
}

fn encode_footer(header: &StripeHeader, sections: &[Section]) -> Vec<u8> {
    let stored: usize = sections.iter().map(|section| section.stored.len()).sum();
    let total = (40 + 24 * sections.len() + stored).next_multiple_of(ALIGNMENT as usize);
    let mut out = b"WNDLFOOT".to_vec();
    out.extend(1u16.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out.extend((sections.len() as u32).to_le_bytes());
    out.extend(header.set_id.0);
    out.extend((total as u64).to_le_bytes());
    for section in sections {
        out.extend(section.kind.to_le_bytes());
        out.extend(section.flags.to_le_bytes());
        out.extend(section.raw_bytes.to_le_bytes());
        out.extend((section.stored.len() as u64).to_le_bytes());
    }
    sections
        .iter()
        .for_each(|section| out.extend(&section.stored));
    out.resize(total, 0);
    out
}
