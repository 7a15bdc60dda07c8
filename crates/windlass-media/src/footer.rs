//! The footer: this stripe's index directory, and the description of the whole set.
//!
//! The description (stripe table, file table, facts) is the same on every stripe, so the loss of
//! one stripe loses none of it. The set's root hash covers it; the stripe table in it says what
//! each stripe's index must hash to; the index says what each frame must hash to.

mod directory;
mod sections;
mod spans;

use crate::base::Base;
use crate::cipher::SetCipher;
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
pub(crate) use sections::{KIND_BASE, KIND_DIRECTORY, KIND_FACTS, KIND_FILES, KIND_SPANS};
use sections::{KIND_STRIPES, KIND_SUPERSEDED, Section, read_section_heads, unpack_sections};
pub use spans::{BlockSpans, FileSpan};
use spans::{decode_spans, encode_spans};

pub(crate) const MAGIC: &[u8; 8] = b"WNDLFOOT";
const HEAD_BYTES: usize = 40;
const SECTION_BYTES: usize = 24;
pub(crate) const DIRECTORY_ENTRY_BYTES: usize = 80;

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
    /// What each of them has of each file. Empty if the footer does not say it.
    pub spans: Vec<BlockSpans>,
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

fn root_hasher(cipher: Option<&SetCipher>) -> blake3::Hasher {
    cipher.map_or_else(blake3::Hasher::new, SetCipher::root_hasher)
}

impl SetDescription {
    /// Encodes the parts common to all stripes and computes the set's root hash.
    fn encode(&self, cipher: Option<&SetCipher>) -> Result<EncodedDescription, FormatError> {
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
        let mut root = root_hasher(cipher);
        let mut sections = Vec::with_capacity(raws.len());
        for (kind, raw) in raws {
            hash_section(&mut root, kind, &raw);
            sections.push(Section::made((kind, &raw), None, cipher)?);
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
        each: impl FnMut(StripeIndex, Vec<u8>, [u8; 32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.footers_with((set_id, None), alignment, directories, each)
    }

    /// The same, of a set that may be encrypted.
    pub fn footers_with<E: From<FormatError>>(
        &self,
        set: (SetId, Option<&SetCipher>),
        alignment: u32,
        directories: &[Vec<IndexDirectoryEntry>],
        each: impl FnMut(StripeIndex, Vec<u8>, [u8; 32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.footers_spanned(set, alignment, (directories, &[]), each)
    }

    /// The same, with the spans of the index blocks of each stripe. They are left out of a set in
    /// which nothing lies over other bytes: such a set looks as it did before there were spans.
    /// They are also left out where they would be longer than a section may be.
    pub fn footers_spanned<E: From<FormatError>>(
        &self,
        (set_id, cipher): (SetId, Option<&SetCipher>),
        alignment: u32,
        (directories, spans): (&[Vec<IndexDirectoryEntry>], &[Vec<BlockSpans>]),
        mut each: impl FnMut(StripeIndex, Vec<u8>, [u8; 32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let common = self.encode(cipher)?;
        let mut entries = directories.iter().flatten();
        let is_over = self.base.is_some() || entries.any(|entry| entry.layer_max > 0);
        for (number, directory) in directories.iter().enumerate() {
            let stripe = StripeIndex(fitted(number));
            let raw = encode_directory(directory);
            let mut own = vec![Section::made((KIND_DIRECTORY, &raw), Some(stripe), cipher)?];
            let spans = spans.get(number).filter(|_| is_over);
            let raw = spans.map(Vec::as_slice).map(encode_spans);
            if let Some(raw) = raw.filter(|raw| raw.len() as u64 <= FILE_TABLE_BYTES_MAX) {
                own.push(Section::made((KIND_SPANS, &raw), Some(stripe), cipher)?);
            }
            let footer = encode_footer(set_id, stripe, &own, &common, alignment)?;
            each(stripe, footer, common.root)?;
        }
        Ok(())
    }
}

fn encode_footer(
    set_id: SetId,
    stripe: StripeIndex,
    own: &[Section],
    common: &EncodedDescription,
    alignment: u32,
) -> Result<Vec<u8>, FormatError> {
    let sections: Vec<&Section> = own.iter().chain(&common.sections).collect();
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
        out.extend_from_slice(&section.head());
        out.extend_from_slice(&(section.stored.len() as u64).to_le_bytes());
    }
    sections
        .iter()
        .for_each(|section| out.extend_from_slice(&section.stored));
    out.resize(fitted(total), 0);
    Ok(out)
}

impl Footer {
    /// Reads a footer of a set without encryption. The seal vouches for its hash. `metadata_limit`
    /// bounds, in bytes, the decompressed sections and what is made of them in memory, together.
    pub fn decode(bytes: &[u8], metadata_limit: u64) -> Result<Self, FormatError> {
        Self::decode_with(bytes, metadata_limit, None)
    }

    /// The same, of a set that may be encrypted. A section that is not as its set is, is refused.
    pub fn decode_with(
        bytes: &[u8],
        metadata_limit: u64,
        cipher: Option<&SetCipher>,
    ) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, Structure::Footer);
        let (set_id, stripe, sections) = read_head(&mut reader, bytes.len())?;
        let heads = read_section_heads(&mut reader, sections, cipher.is_some())?;
        let raws = unpack_sections(reader, &heads, metadata_limit, (stripe, cipher))?;
        memory::check(&raws, metadata_limit)?;
        Self::assemble((set_id, stripe), &raws, root_hasher(cipher))
    }

    /// Whether a footer is of an encrypted set that builds on another one. That needs no key.
    pub fn locked_has_base(bytes: &[u8]) -> Result<bool, FormatError> {
        let mut reader = Reader::new(bytes, Structure::Footer);
        let (_, _, sections) = read_head(&mut reader, bytes.len())?;
        let heads = read_section_heads(&mut reader, sections, true)?;
        Ok(heads.iter().any(|head| head.kind == KIND_BASE))
    }

    fn assemble(
        (set_id, stripe): (SetId, StripeIndex),
        raws: &[(u32, Vec<u8>)],
        mut root: blake3::Hasher,
    ) -> Result<Self, FormatError> {
        let find = |kind, structure| only(raws, kind, structure);
        let optional = |kind, structure| at_most_one(raws, kind, structure);
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
        let superseded = match optional(KIND_SUPERSEDED, Structure::Superseded)? {
            Some(raw) => {
                hash_section(&mut root, KIND_SUPERSEDED, raw);
                SupersededFiles::decode(raw, &files)?
            }
            None => SupersededFiles::default(),
        };
        let base = match optional(KIND_BASE, Structure::Base)? {
            Some(raw) => {
                hash_section(&mut root, KIND_BASE, raw);
                Some(Base::decode(raw, &files)?)
            }
            None => None,
        };
        let directory = decode_directory(find(KIND_DIRECTORY, Structure::IndexDirectory)?)?;
        let spans = match optional(KIND_SPANS, Structure::IndexSpans)? {
            Some(raw) => {
                let listed = directory.iter();
                let listed = listed.map(|it| (it.file_min, it.file_max, it.layer_max));
                decode_spans(raw, listed)?
            }
            None => Vec::new(),
        };
        Ok(Self {
            set_id,
            stripe,
            directory,
            spans,
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

/// The section of a kind that must be there once.
fn only(raws: &[(u32, Vec<u8>)], kind: u32, structure: Structure) -> Result<&[u8], FormatError> {
    let what = "is not there exactly once";
    let fault = FormatError::Invalid { structure, what };
    at_most_one(raws, kind, structure)?.ok_or(fault)
}

/// The section of a kind that need not be there.
fn at_most_one(
    raws: &[(u32, Vec<u8>)],
    kind: u32,
    structure: Structure,
) -> Result<Option<&[u8]>, FormatError> {
    let mut found = raws.iter().filter(|(of, _)| *of == kind);
    let first = found.next().map(|(_, raw)| raw.as_slice());
    match found.next() {
        None => Ok(first),
        Some(_) => Err(FormatError::Invalid {
            structure,
            what: "is not there exactly once",
        }),
    }
}

/// What stands before the heads of the sections: the set, the stripe, and how many sections follow.
fn read_head(
    reader: &mut Reader<'_>,
    length: usize,
) -> Result<(SetId, StripeIndex, u32), FormatError> {
    reader.magic(MAGIC)?;
    reader.version(FORMAT_VERSION)?;
    let stripe = StripeIndex(reader.u16()?);
    let section_count = reader.u32()?;
    let set_id = SetId(reader.array()?);
    if reader.u64()? != length as u64 {
        return Err(FormatError::Truncated(Structure::Footer));
    }
    if section_count > SECTIONS_MAX {
        let (found, most) = (u64::from(section_count), u64::from(SECTIONS_MAX));
        return Err(reader.limit("section count", found, most));
    }
    Ok((set_id, stripe, section_count))
}

fn hash_section(hasher: &mut blake3::Hasher, kind: u32, raw: &[u8]) {
    hasher.update(&kind.to_le_bytes());
    hasher.update(&(raw.len() as u64).to_le_bytes());
    hasher.update(raw);
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
