//! Chains over databases of any size that take no more room than their index: the stripes are
//! written as the engine writes them, without a database and without a pipeline.
//!
//!   the full set      frames of zeros, which are not stored
//!   a newer set       one page of each hundred, at a place that the seed decides
//!   a page            all its bytes are the same, and say which set has it
//!
//! A last file, the label, has a page for each set. Each newer set has its own page of it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_engine::media::{
    BackupType, Base, BlockSpans, Codec, Encoder, Facts, FileEntry, FileNo, FileSpan, FileTable,
    FormatError, FrameEntry, IndexBlockBuilder, IndexDirectoryEntry, Inherited, InheritedFiles,
    PieceEntry, Seal, SetDescription, SetId, StripeHeader, StripeIndex, StripeTableEntry,
    SupersededFiles, crc32c,
};

use crate::runs::{entry, facts};
use crate::sqlite::Random;

/// The name of the last file.
pub const LABEL: &str = "label";
/// The bytes of a page of the label.
pub const LABEL_PAGE_BYTES: u32 = 4096;

/// Of so many pages that follow each other, each newer set has one.
const GROUP_PAGES: u64 = 100;
/// What the pages of a set are filled with differs from frame to frame, in so many ways.
const FILLS: u64 = 7;
/// More sets would need more different bytes than there are.
const SETS_MAX: u64 = 36;
const ALIGNMENT: u32 = 512;
const TRANSFER_BYTES: u32 = 8 << 20;
const WRITE_BYTES: usize = 1 << 20;
const DAY_NANOS: i64 = 86_400_000_000_000;

/// What a chain is like.
#[derive(Clone, Debug)]
pub struct LongChain {
    /// How many sets it has.
    pub sets: u64,
    /// How long the database is. What is left of it behind the last whole page is left out.
    pub bytes: u64,
    /// How long each file of it is; the last one may be shorter. A multiple of a page.
    pub file_bytes: u64,
    /// How long a page is.
    pub page_bytes: u32,
    /// How many pages a frame of a newer set has.
    pub pages_a_frame: u64,
    /// How many frames an index block of a newer set tells of.
    pub frames_a_block: usize,
    /// How long a frame of the full set is.
    pub full_frame_bytes: u32,
    /// How many frames an index block of the full set tells of.
    pub full_frames_a_block: usize,
    /// What decides which pages change.
    pub seed: u64,
}

impl LongChain {
    /// How many pages the database has.
    pub fn pages(&self) -> u64 {
        self.bytes / u64::from(self.page_bytes)
    }

    fn groups(&self) -> u64 {
        self.pages() / GROUP_PAGES
    }

    /// The page of a group that a newer set has.
    fn page_of(&self, set: u64, group: u64) -> u64 {
        let bits = Random(self.seed ^ (set << 48) ^ group).bits();
        group * GROUP_PAGES + bits % GROUP_PAGES
    }

    /// What the page of a group that a newer set has is filled with.
    fn fill_of(&self, set: u64, group: u64) -> u8 {
        (1 + (set - 1) * FILLS + group / self.pages_a_frame % FILLS) as u8
    }

    /// What a page is filled with in the newest set.
    pub fn fill(&self, page: u64) -> u8 {
        let group = page / GROUP_PAGES;
        if group >= self.groups() {
            return 0;
        }
        let mut newest_first = (1..self.sets).rev();
        let set = newest_first.find(|set| self.page_of(*set, group) == page);
        set.map_or(0, |set| self.fill_of(set, group))
    }

    /// What a page of the label is filled with in the newest set.
    pub fn label_fill(&self, page: u64) -> u8 {
        match page {
            0 => 0,
            set => self.fill_of(set, 0),
        }
    }

    /// A page in the middle of the database that only the oldest of the newer sets has, so that a
    /// reader asks every one of them.
    pub fn oldest_change(&self) -> u64 {
        let mut groups = self.groups() / 2..self.groups();
        let is_newest = |group: &u64| {
            let page = self.page_of(1, *group);
            (2..self.sets).all(|set| self.page_of(set, *group) != page)
        };
        let group = groups.find(is_newest);
        self.page_of(1, group.expect("one of so many pages"))
    }

    /// The file that has a page, and where.
    pub fn place_of(&self, page: u64) -> (FileNo, u64) {
        let page_bytes = u64::from(self.page_bytes);
        let pages = self.file_bytes / page_bytes;
        (FileNo((page / pages) as u32), page % pages * page_bytes)
    }

    /// The name of a file of the database.
    pub fn name(file: FileNo) -> String {
        format!("f{:05}", file.0)
    }

    /// Each file and its length; the label comes last.
    fn lengths(&self) -> Vec<(FileNo, u64)> {
        let bytes = self.pages() * u64::from(self.page_bytes);
        let count = bytes.div_ceil(self.file_bytes);
        let length = |file: u64| self.file_bytes.min(bytes - file * self.file_bytes);
        let files = (0..count).map(|file| (FileNo(file as u32), length(file)));
        let label = self.sets * u64::from(LABEL_PAGE_BYTES);
        let label = (FileNo(count as u32), label);
        files.chain(std::iter::once(label)).collect()
    }

    /// Where a set of a chain in `dir` is. The full one is set 0.
    pub fn stripe(dir: &Path, set: u64) -> PathBuf {
        dir.join(format!("set-{set:02}.windlass"))
    }

    /// Writes the chain to a directory, and returns the stripe of the newest set.
    pub fn write(&self, dir: &Path) -> PathBuf {
        assert!((2..=SETS_MAX).contains(&self.sets), "{} sets", self.sets);
        assert!(self.groups() > 0, "too few pages");
        let page_bytes = u64::from(self.page_bytes);
        assert!(self.file_bytes.is_multiple_of(page_bytes));
        let lengths = self.lengths();
        let mut below: Option<Base> = None;
        let mut parents = Vec::new();
        for set in 0..self.sets {
            let mut stripe = self.begin(&Self::stripe(dir, set), set);
            match set {
                0 => self.put_full(&mut stripe, &lengths),
                _ => self.put_changes(&mut stripe, set, &lengths),
            }
            let inherited = lengths.iter().map(|(file, bytes)| Inherited {
                file: *file,
                base_file: *file,
                bytes: *bytes,
            });
            let base = below.take().map(|base| Base {
                files: InheritedFiles::new(inherited.collect()),
                ..base
            });
            let backup_type = match set {
                0 => BackupType::Full,
                _ => BackupType::Incr,
            };
            let about = Facts {
                backup_type,
                parents: parents.clone(),
                ..facts()
            };
            let done = stripe.finish(entries(&lengths), base, about);
            parents.insert(0, done.set.to_string());
            below = Some(done);
        }
        Self::stripe(dir, self.sets - 1)
    }

    fn begin(&self, path: &Path, set: u64) -> Stripe {
        let newer = self.page_bytes * self.pages_a_frame as u32;
        let (frame_bytes, frames_a_block) = match set {
            0 => (self.full_frame_bytes, self.full_frames_a_block),
            _ => (newer.max(LABEL_PAGE_BYTES), self.frames_a_block),
        };
        let header = StripeHeader {
            set_id: SetId([set as u8 + 1; 16]),
            stripe: StripeIndex(0),
            alignment: ALIGNMENT,
            transfer_bytes: TRANSFER_BYTES,
            frame_bytes,
            created_nanos: (set as i64 + 1) * DAY_NANOS,
            page_frames: false,
            lock: None,
            locations: vec![path.as_os_str().as_bytes().to_vec()],
            parities: vec![],
        };
        Stripe::begin(path, &header, frames_a_block)
    }

    /// Every byte of every file, in frames of zeros.
    fn put_full(&self, stripe: &mut Stripe, lengths: &[(FileNo, u64)]) {
        let mut encoder = Encoder::new(Codec::Zstd(1)).unwrap();
        let frame_bytes = u64::from(self.full_frame_bytes);
        let mut frames: BTreeMap<u64, (Packed, u32)> = BTreeMap::new();
        for (file, length) in lengths {
            for offset in (0..*length).step_by(self.full_frame_bytes as usize) {
                let bytes = frame_bytes.min(length - offset);
                let make = || filled(&mut encoder, 0, (bytes as usize, 1));
                let (packed, crc32c) = frames.entry(bytes).or_insert_with(make);
                let piece = PieceEntry {
                    file: *file,
                    bytes: bytes as u32,
                    offset,
                    crc32c: *crc32c,
                    layer: 0,
                };
                stripe.push(packed, &[piece]);
            }
        }
    }

    /// The pages that a newer set has, in the order of the files.
    fn put_changes(&self, stripe: &mut Stripe, set: u64, lengths: &[(FileNo, u64)]) {
        let mut encoder = Encoder::new(Codec::Zstd(1)).unwrap();
        let page_bytes = self.page_bytes as usize;
        let mut frames: BTreeMap<(u8, usize), (Packed, u32)> = BTreeMap::new();
        let mut pieces = Vec::new();
        for first in (0..self.groups()).step_by(self.pages_a_frame as usize) {
            let end = self.groups().min(first + self.pages_a_frame);
            let (fill, count) = (self.fill_of(set, first), (end - first) as usize);
            let make = || filled(&mut encoder, fill, (page_bytes, count));
            let (packed, crc32c) = frames.entry((fill, count)).or_insert_with(make);
            pieces.clear();
            pieces.extend((first..end).map(|group| {
                let (file, offset) = self.place_of(self.page_of(set, group));
                PieceEntry {
                    file,
                    bytes: self.page_bytes,
                    offset,
                    crc32c: *crc32c,
                    layer: 0,
                }
            }));
            stripe.push(packed, &pieces);
        }
        let label = lengths.last().map(|(file, _)| *file);
        let one_page = (LABEL_PAGE_BYTES as usize, 1);
        let (packed, crc32c) = filled(&mut encoder, self.label_fill(set), one_page);
        let piece = PieceEntry {
            file: label.unwrap(),
            bytes: LABEL_PAGE_BYTES,
            offset: set * u64::from(LABEL_PAGE_BYTES),
            crc32c,
            layer: 0,
        };
        stripe.push(&packed, &[piece]);
    }
}

fn entries(lengths: &[(FileNo, u64)]) -> Vec<FileEntry> {
    let (label, files) = lengths.split_last().unwrap();
    let of =
        |(file, bytes): &(FileNo, u64), name: &str| entry(file.0 as usize, name, *bytes as usize);
    let files = files.iter().map(|one| of(one, &LongChain::name(one.0)));
    files.chain(std::iter::once(of(label, LABEL))).collect()
}

/// A frame as it is stored.
struct Packed {
    bytes: Vec<u8>,
    raw_bytes: u32,
    crc32c: u32,
    codec: Codec,
}

/// A frame of pieces that are filled with one byte, and the checksum of each of these.
fn filled(encoder: &mut Encoder, fill: u8, (piece, count): (usize, usize)) -> (Packed, u32) {
    let raw = vec![fill; piece * count];
    let mut bytes = vec![0; encoder.bound(raw.len())];
    let (codec, length) = encoder.encode(&raw, &mut bytes).unwrap();
    bytes.truncate(length);
    let packed = Packed {
        raw_bytes: raw.len() as u32,
        crc32c: crc32c(&bytes),
        codec,
        bytes,
    };
    (packed, crc32c(&raw[..piece]))
}

/// The stripe of a set that is being written.
struct Stripe {
    out: BufWriter<File>,
    set_id: SetId,
    location: Vec<u8>,
    header: Vec<u8>,
    frames_a_block: usize,
    offset: u64,
    region_offset: u64,
    builder: IndexBlockBuilder,
    directory: Vec<IndexDirectoryEntry>,
    spans: Vec<BlockSpans>,
    frames: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

impl Stripe {
    fn begin(path: &Path, header: &StripeHeader, frames_a_block: usize) -> Self {
        let encoded = header.encode().unwrap();
        let mut out = BufWriter::with_capacity(WRITE_BYTES, File::create_new(path).unwrap());
        out.write_all(&encoded).unwrap();
        let offset = encoded.len() as u64;
        Self {
            out,
            set_id: header.set_id,
            location: header.locations[0].clone(),
            header: encoded,
            frames_a_block,
            offset,
            region_offset: offset,
            builder: IndexBlockBuilder::default(),
            directory: Vec::new(),
            spans: Vec::new(),
            frames: 0,
            raw_bytes: 0,
            stored_bytes: 0,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out.write_all(bytes).unwrap();
        self.offset += bytes.len() as u64;
    }

    fn push(&mut self, packed: &Packed, pieces: &[PieceEntry]) {
        let frame = FrameEntry {
            offset: self.offset,
            stored_bytes: packed.bytes.len() as u32,
            raw_bytes: packed.raw_bytes,
            crc32c: packed.crc32c,
            codec: packed.codec,
            piece_count: 0,
            page: None,
        };
        self.put(&packed.bytes);
        self.builder.push(frame, pieces);
        self.frames += 1;
        self.raw_bytes += u64::from(packed.raw_bytes);
        self.stored_bytes += packed.bytes.len() as u64;
        if self.builder.frame_count() >= self.frames_a_block {
            self.index_block();
        }
    }

    fn index_block(&mut self) {
        if self.builder.is_empty() {
            return;
        }
        let end = self.offset.next_multiple_of(u64::from(ALIGNMENT));
        self.put(&vec![0; (end - self.offset) as usize]);
        let (number, region) = (self.directory.len() as u32, self.region_offset);
        let (set_id, bytes) = (self.set_id, end - region);
        let mut block = self
            .builder
            .take(set_id, StripeIndex(0), number, region, bytes);
        let encoded = block.encode(ALIGNMENT).unwrap();
        self.put(&encoded);
        let files = || block.pieces.iter().map(|piece| piece.file);
        self.directory.push(IndexDirectoryEntry {
            offset: end,
            bytes: block.encoded_bytes,
            frame_count: block.frames.len() as u32,
            region_offset: region,
            file_min: files().min().unwrap(),
            file_max: files().max().unwrap(),
            layer_max: 0,
            hash: *blake3::hash(&encoded).as_bytes(),
        });
        self.spans.push(FileSpan::of(&block.pieces));
        self.region_offset = self.offset;
    }

    /// Writes footer and seal. Returns what a set says that builds on this one, without files.
    fn finish(mut self, files: Vec<FileEntry>, base: Option<Base>, about: Facts) -> Base {
        self.index_block();
        let (set_id, data_bytes) = (self.set_id, self.offset);
        let stripe = StripeTableEntry {
            location: self.location.clone(),
            data_bytes,
            index_blocks: self.directory.len() as u32,
            frames: self.frames,
            raw_bytes: self.raw_bytes,
            stored_bytes: self.stored_bytes,
            hash: StripeTableEntry::hash_of(&self.header, &self.directory),
        };
        let description = SetDescription {
            stripes: vec![stripe],
            files: FileTable(files),
            superseded: SupersededFiles::default(),
            base,
            facts: about,
        };
        let mut out = self.out;
        let mut root = [0; 32];
        let end = |stripe: StripeIndex, footer: Vec<u8>, set_root: [u8; 32]| {
            let footer_bytes = footer.len() as u64;
            let seal = Seal {
                set_id,
                stripe,
                stripe_count: 1,
                footer_offset: data_bytes,
                footer_bytes,
                footer_hash: *blake3::hash(&footer).as_bytes(),
                set_root,
                stripe_bytes: data_bytes + footer_bytes + u64::from(ALIGNMENT),
                alignment: ALIGNMENT,
            };
            out.write_all(&footer).unwrap();
            out.write_all(&seal.encode()).unwrap();
            root = set_root;
            Ok::<_, FormatError>(())
        };
        let (directories, spans) = ([self.directory], [self.spans]);
        let own = (directories.as_slice(), spans.as_slice());
        let ended = description.footers_spanned((set_id, None), ALIGNMENT, own, end);
        ended.unwrap();
        out.flush().unwrap();
        Base {
            set: set_id,
            root,
            locations: vec![self.location],
            files: InheritedFiles::default(),
        }
    }
}
