//! The footer: this stripe's index directory, and the description of the whole set.
//!
//! The description (stripe table, file table, facts) is the same on every stripe, so the loss of
//! one stripe loses none of it. The set's root hash covers it; the stripe table in it says what
//! each stripe's index must hash to; the index says what each frame must hash to.

mod directory;

use crate::base::Base;
use crate::error::{FormatError, Structure};
use crate::facts::Facts;
use crate::files::FileTable;
use crate::ids::{FileNo, SetId, StripeIndex};
use crate::limits::*;
use crate::memory;
use crate::number::fitted;
use crate::superseded::SupersededFiles;
use crate::wire::{Reader, put_string, round_up};
use directory::{decode_directory, encode_directory};

const MAGIC: &[u8; 8] = b"WNDLFOOT";
const HEAD_BYTES: usize = 40;
const SECTION_BYTES: usize = 24;
pub(crate) const DIRECTORY_ENTRY_BYTES: usize = 80;
pub(crate) const KIND_DIRECTORY: u32 = 1;
const KIND_STRIPES: u32 = 2;
pub(crate) const KIND_FILES: u32 = 3;
pub(crate) const KIND_FACTS: u32 = 4;
/// A set has this section only when a file number is superseded. The other sets look as they did
/// before the section existed.
const KIND_SUPERSEDED: u32 = 5;
/// Only a set that builds on another one has this section. Versions that do not know it refuse the
/// set, because it is critical.
pub(crate) const KIND_BASE: u32 = 6;
/// A reader that does not know a section with this bit must stop.
const CRITICAL: u32 = 1;
/// A section may expand to at most this many times its stored length, plus 64 KiB.
const EXPANSION_MAX: u64 = 200;

/// Where one index block lies, its hash, and which files it describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDirectoryEntry {
    /// Position of the block on the stripe.
    pub offset: u64,
    /// Length of the block, padding included.
    pub bytes: u32,
    /// How many frames it describes.
    pub frame_count: u32,
    /// Where the region it describes begins; it ends at `offset`.
    pub region_offset: u64,
    /// Lowest file number in it.
    pub file_min: FileNo,
    /// Highest file number in it.
    pub file_max: FileNo,
    /// Highest layer in it.
    pub layer_max: u8,
    /// BLAKE3 of the block.
    pub hash: [u8; 32],
}

/// What the set knows about each of its stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeTableEntry {
    /// Where it was written.
    pub location: Vec<u8>,
    /// Where its footer begins. The header, the transfers and the index blocks come before it.
    pub data_bytes: u64,
    /// How many index blocks it has.
    pub index_blocks: u32,
    /// How many frames it has.
    pub frames: u64,
    /// Bytes of files on it, after decoding.
    pub raw_bytes: u64,
    /// Bytes of frames on it, as they are stored.
    pub stored_bytes: u64,
    /// BLAKE3 of its header and of the hashes of its index blocks. The stripe must match it.
    pub hash: [u8; 32],
}

/// What every stripe's footer repeats.
#[derive(Clone, Debug, PartialEq)]
pub struct SetDescription {
    /// One entry for each stripe.
    pub stripes: Vec<StripeTableEntry>,
    /// Every file of the image.
    pub files: FileTable,
    /// Files whose pieces do not count.
    pub superseded: SupersededFiles,
    /// The set that this one builds on; `None` for a set that is whole by itself.
    pub base: Option<Base>,
    /// What the set says about itself, for people and for the database's crate.
    pub facts: Facts,
}

/// A footer, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Footer {
    /// The set.
    pub set_id: SetId,
    /// The stripe.
    pub stripe: StripeIndex,
    /// This stripe's index blocks, in order.
    pub directory: Vec<IndexDirectoryEntry>,
    /// What all stripes repeat.
    pub description: SetDescription,
    /// The set's root hash, computed from the description.
    pub set_root: [u8; 32],
}

impl StripeTableEntry {
    /// The hash of a stripe: BLAKE3 over its header and then the hash of each of its index blocks.
    pub fn hash_of(header: &[u8], directory: &[IndexDirectoryEntry]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(header);
        directory.iter().for_each(|entry| {
            hasher.update(&entry.hash);
        });
        *hasher.finalize().as_bytes()
    }
}

/// The description, encoded once for all stripes.
pub(crate) struct EncodedDescription {
    sections: Vec<Section>,
    root: [u8; 32],
}

struct Section {
    kind: u32,
    raw_bytes: u64,
    compressed: bool,
    stored: Vec<u8>,
}

impl Section {
    fn pack(kind: u32, raw: &[u8]) -> Self {
        let raw_bytes = raw.len() as u64;
        let packed = zstd::bulk::compress(raw, 3).ok().filter(|packed| {
            packed.len() < raw.len() && raw_bytes <= expansion_limit(packed.len() as u64)
        });
        match packed {
            Some(stored) => Self {
                kind,
                raw_bytes,
                compressed: true,
                stored,
            },
            None => Self {
                kind,
                raw_bytes,
                compressed: false,
                stored: raw.to_vec(),
            },
        }
    }
}

fn expansion_limit(stored: u64) -> u64 {
    stored.saturating_mul(EXPANSION_MAX).saturating_add(65_536)
}

impl SetDescription {
    /// Encodes the parts common to all stripes and computes the set's root hash.
    fn encode(&self) -> Result<EncodedDescription, FormatError> {
        let mut raws = vec![
            (KIND_STRIPES, encode_stripes(&self.stripes)?),
            (KIND_FILES, self.files.encode()?),
            (KIND_FACTS, self.facts.encode()?),
        ];
        if !self.superseded.is_empty() {
            raws.push((KIND_SUPERSEDED, self.superseded.encode()?));
        }
        if let Some(base) = &self.base {
            raws.push((KIND_BASE, base.encode(&self.files)?));
        }
        let mut root = blake3::Hasher::new();
        let mut sections = Vec::with_capacity(raws.len());
        for (kind, raw) in raws {
            hash_section(&mut root, kind, &raw);
            sections.push(Section::pack(kind, &raw));
        }
        Ok(EncodedDescription {
            sections,
            root: *root.finalize().as_bytes(),
        })
    }

    /// Makes the footers of all stripes and hands each to `each`, as (stripe, footer, root).
    ///
    /// It makes one footer at a time, so that the footers of many stripes are never in memory
    /// together.
    pub fn footers<E: From<FormatError>>(
        &self,
        set_id: SetId,
        alignment: u32,
        directories: &[Vec<IndexDirectoryEntry>],
        mut each: impl FnMut(StripeIndex, Vec<u8>, [u8; 32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let common = self.encode()?;
        for (number, directory) in directories.iter().enumerate() {
            let stripe = StripeIndex(fitted(number));
            let footer = encode_footer(set_id, stripe, directory, &common, alignment)?;
            each(stripe, footer, common.root)?;
        }
        Ok(())
    }
}

fn encode_footer(
    set_id: SetId,
    stripe: StripeIndex,
    directory: &[IndexDirectoryEntry],
    common: &EncodedDescription,
    alignment: u32,
) -> Result<Vec<u8>, FormatError> {
    let own = Section::pack(KIND_DIRECTORY, &encode_directory(directory));
    let sections: Vec<&Section> = std::iter::once(&own).chain(&common.sections).collect();
    let stored: usize = sections.iter().map(|section| section.stored.len()).sum();
    let content = HEAD_BYTES + sections.len() * SECTION_BYTES + stored;
    let total = round_up(content as u64, alignment);
    if total > FOOTER_BYTES_MAX {
        let (structure, what) = (Structure::Footer, "length");
        let limit = FOOTER_BYTES_MAX;
        return Err(FormatError::Limit {
            structure,
            what,
            found: total,
            limit,
        });
    }
    let mut out = Vec::with_capacity(fitted(total));
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&stripe.0.to_le_bytes());
    out.extend_from_slice(&fitted::<u32, _>(sections.len()).to_le_bytes());
    out.extend_from_slice(&set_id.0);
    out.extend_from_slice(&total.to_le_bytes());
    for section in &sections {
        out.extend_from_slice(&section.kind.to_le_bytes());
        out.extend_from_slice(&(CRITICAL | u32::from(section.compressed) << 8).to_le_bytes());
        out.extend_from_slice(&section.raw_bytes.to_le_bytes());
        out.extend_from_slice(&(section.stored.len() as u64).to_le_bytes());
    }
    sections
        .iter()
        .for_each(|section| out.extend_from_slice(&section.stored));
    out.resize(fitted(total), 0);
    Ok(out)
}

impl Footer {
    /// Reads a footer. The seal vouches for its hash. `metadata_limit` bounds, in bytes, the
    /// decompressed sections and what is made of them in memory, together.
    pub fn decode(bytes: &[u8], metadata_limit: u64) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, Structure::Footer);
        reader.magic(MAGIC)?;
        let version = reader.u16()?;
        if version != FORMAT_VERSION {
            let (structure, supported) = (Structure::Footer, FORMAT_VERSION);
            return Err(FormatError::Version {
                structure,
                found: version,
                supported,
            });
        }
        let stripe = StripeIndex(reader.u16()?);
        let section_count = reader.u32()?;
        let set_id = SetId(reader.array()?);
        if reader.u64()? != bytes.len() as u64 {
            return Err(FormatError::Truncated(Structure::Footer));
        }
        if section_count > SECTIONS_MAX {
            let (found, most) = (u64::from(section_count), u64::from(SECTIONS_MAX));
            return Err(reader.limit("section count", found, most));
        }
        let heads = read_section_heads(&mut reader, section_count)?;
        let raws = unpack_sections(reader, &heads, metadata_limit)?;
        memory::check(&raws, metadata_limit)?;
        Self::assemble(set_id, stripe, &raws)
    }

    fn assemble(
        set_id: SetId,
        stripe: StripeIndex,
        raws: &[(u32, Vec<u8>)],
    ) -> Result<Self, FormatError> {
        let find = |kind, structure| {
            let mut found = raws.iter().filter(|(of, _)| *of == kind);
            match (found.next(), found.next()) {
                (Some((_, raw)), None) => Ok(raw.as_slice()),
                _ => Err(FormatError::Invalid {
                    structure,
                    what: "is not there exactly once",
                }),
            }
        };
        let mut root = blake3::Hasher::new();
        let stripes = find(KIND_STRIPES, Structure::StripeTable)?;
        let files = find(KIND_FILES, Structure::FileTable)?;
        let facts = find(KIND_FACTS, Structure::Facts)?;
        for (kind, raw) in [
            (KIND_STRIPES, stripes),
            (KIND_FILES, files),
            (KIND_FACTS, facts),
        ] {
            hash_section(&mut root, kind, raw);
        }
        let files = FileTable::decode(files)?;
        let is_there = |kind| raws.iter().any(|(of, _)| *of == kind);
        let superseded = match is_there(KIND_SUPERSEDED) {
            true => {
                let raw = find(KIND_SUPERSEDED, Structure::Superseded)?;
                hash_section(&mut root, KIND_SUPERSEDED, raw);
                SupersededFiles::decode(raw, &files)?
            }
            false => SupersededFiles::default(),
        };
        let base = match is_there(KIND_BASE) {
            true => {
                let raw = find(KIND_BASE, Structure::Base)?;
                hash_section(&mut root, KIND_BASE, raw);
                Some(Base::decode(raw, &files)?)
            }
            false => None,
        };
        Ok(Self {
            set_id,
            stripe,
            directory: decode_directory(find(KIND_DIRECTORY, Structure::IndexDirectory)?)?,
            description: SetDescription {
                stripes: decode_stripes(stripes)?,
                files,
                superseded,
                base,
                facts: Facts::decode(facts)?,
            },
            set_root: *root.finalize().as_bytes(),
        })
    }
}

fn hash_section(hasher: &mut blake3::Hasher, kind: u32, raw: &[u8]) {
    hasher.update(&kind.to_le_bytes());
    hasher.update(&(raw.len() as u64).to_le_bytes());
    hasher.update(raw);
}

fn is_known(kind: u32) -> bool {
    (KIND_DIRECTORY..=KIND_BASE).contains(&kind)
}

struct SectionHead {
    kind: u32,
    compressed: bool,
    raw_bytes: u64,
    stored_bytes: u64,
}

fn read_section_heads(
    reader: &mut Reader<'_>,
    count: u32,
) -> Result<Vec<SectionHead>, FormatError> {
    let mut heads = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (kind, flags) = (reader.u32()?, reader.u32()?);
        let (raw_bytes, stored_bytes) = (reader.u64()?, reader.u64()?);
        let known = is_known(kind);
        if flags & !(CRITICAL | 1 << 8) != 0 || (!known && flags & CRITICAL != 0) {
            return Err(FormatError::Feature {
                structure: Structure::Footer,
                found: kind,
            });
        }
        let compressed = flags >> 8 == 1;
        if raw_bytes > FILE_TABLE_BYTES_MAX {
            return Err(reader.limit("section length", raw_bytes, FILE_TABLE_BYTES_MAX));
        }
        if kind == KIND_FACTS && raw_bytes > FACTS_BYTES_MAX {
            return Err(reader.limit("facts length", raw_bytes, FACTS_BYTES_MAX));
        }
        let bound = if compressed {
            expansion_limit(stored_bytes)
        } else {
            stored_bytes
        };
        if raw_bytes > bound || (!compressed && raw_bytes != stored_bytes) {
            return Err(reader.limit("section length", raw_bytes, bound));
        }
        heads.push(SectionHead {
            kind,
            compressed,
            raw_bytes,
            stored_bytes,
        });
    }
    Ok(heads)
}

fn unpack_sections(
    mut reader: Reader<'_>,
    heads: &[SectionHead],
    metadata_limit: u64,
) -> Result<Vec<(u32, Vec<u8>)>, FormatError> {
    let total = heads
        .iter()
        .filter(|head| is_known(head.kind))
        .fold(0u64, |sum, head| sum.saturating_add(head.raw_bytes));
    if total > metadata_limit {
        return Err(reader.limit("metadata", total, metadata_limit));
    }
    let mut raws = Vec::with_capacity(heads.len());
    for head in heads {
        let stored = fitted(head.stored_bytes);
        let stored = reader.bytes(stored)?;
        // A section that this version does not know stays compressed.
        if !is_known(head.kind) {
            continue;
        }
        let raw_bytes = fitted(head.raw_bytes);
        let raw = match head.compressed {
            false => stored.to_vec(),
            true => zstd::bulk::decompress(stored, raw_bytes)
                .map_err(|_| reader.invalid("a section cannot be decompressed"))?,
        };
        if raw.len() != raw_bytes {
            return Err(reader.invalid("a section is not as long as stated"));
        }
        raws.push((head.kind, raw));
    }
    reader.padding()?;
    Ok(raws)
}

fn encode_stripes(stripes: &[StripeTableEntry]) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::new();
    out.extend_from_slice(&fitted::<u32, _>(stripes.len()).to_le_bytes());
    for entry in stripes {
        put_string(&mut out, &entry.location)?;
        out.extend_from_slice(&entry.data_bytes.to_le_bytes());
        out.extend_from_slice(&entry.index_blocks.to_le_bytes());
        out.extend_from_slice(&entry.frames.to_le_bytes());
        out.extend_from_slice(&entry.raw_bytes.to_le_bytes());
        out.extend_from_slice(&entry.stored_bytes.to_le_bytes());
        out.extend_from_slice(&entry.hash);
    }
    Ok(out)
}

fn decode_stripes(raw: &[u8]) -> Result<Vec<StripeTableEntry>, FormatError> {
    let mut reader = Reader::new(raw, Structure::StripeTable);
    let count = reader.u32()?;
    if !(1..=u32::from(STRIPES_MAX)).contains(&count) {
        return Err(reader.limit("stripe count", u64::from(count), u64::from(STRIPES_MAX)));
    }
    let mut stripes = Vec::with_capacity(count as usize);
    for _ in 0..count {
        stripes.push(StripeTableEntry {
            location: reader.string("location length", PATH_BYTES_MAX)?.to_vec(),
            data_bytes: reader.u64()?,
            index_blocks: reader.u32()?,
            frames: reader.u64()?,
            raw_bytes: reader.u64()?,
            stored_bytes: reader.u64()?,
            hash: reader.array()?,
        });
    }
    reader.end()?;
    Ok(stripes)
}
