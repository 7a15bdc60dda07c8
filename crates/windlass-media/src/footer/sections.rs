//! The sections of a footer: compressed where that makes them shorter, encrypted if their set is.

use crate::cipher::{SEALED_BYTES, SetCipher};
use crate::error::{FormatError, Structure};
use crate::ids::StripeIndex;
use crate::limits::*;
use crate::number::fitted;
use crate::wire::Reader;

pub(crate) const KIND_DIRECTORY: u32 = 1;
pub(super) const KIND_STRIPES: u32 = 2;
pub(crate) const KIND_FILES: u32 = 3;
pub(crate) const KIND_FACTS: u32 = 4;
/// A set has this section only when a file number is superseded. The other sets look as they did
/// before the section existed.
pub(super) const KIND_SUPERSEDED: u32 = 5;
/// Only a set that builds on another one has this section. Versions that do not know it refuse the
/// set, because it is critical.
pub(crate) const KIND_BASE: u32 = 6;
/// Only a set with something over other bytes has this section. It is not critical: versions that
/// do not know it read more index blocks.
pub(crate) const KIND_SPANS: u32 = 7;
/// A reader that does not know a section with this bit must stop.
const CRITICAL: u32 = 1;
/// The section is one Zstandard frame.
const COMPRESSED: u32 = 1 << 8;
/// The section is encrypted, after it was compressed.
const ENCRYPTED: u32 = 1 << 9;
/// A section may expand to at most this many times its stored length, plus 64 KiB.
const EXPANSION_MAX: u64 = 200;

/// A section as it is stored.
pub(super) struct Section {
    kind: u32,
    raw_bytes: u64,
    compressed: bool,
    encrypted: bool,
    pub(super) stored: Vec<u8>,
}

impl Section {
    /// Compresses a section where that makes it shorter, and encrypts it if the set is encrypted.
    /// `stripe` is none for a section that is the same on all stripes.
    pub(super) fn made(
        (kind, raw): (u32, &[u8]),
        stripe: Option<StripeIndex>,
        cipher: Option<&SetCipher>,
    ) -> Result<Self, FormatError> {
        let mut section = Self::pack(kind, raw);
        if let Some(cipher) = cipher {
            section.encrypted = true;
            let head = section.head();
            section.stored = cipher.seal_section(stripe, &head, &section.stored)?;
        }
        Ok(section)
    }

    fn flags(&self) -> u32 {
        let compressed = u32::from(self.compressed) * COMPRESSED;
        let encrypted = u32::from(self.encrypted) * ENCRYPTED;
        let critical = u32::from(self.kind != KIND_SPANS) * CRITICAL;
        critical | compressed | encrypted
    }

    pub(super) fn head(&self) -> [u8; 16] {
        section_head(self.kind, self.flags(), self.raw_bytes)
    }

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
                encrypted: false,
                stored,
            },
            None => Self {
                kind,
                raw_bytes,
                compressed: false,
                encrypted: false,
                stored: raw.to_vec(),
            },
        }
    }
}

/// What a footer says of a section, but for its stored length.
fn section_head(kind: u32, flags: u32, raw_bytes: u64) -> [u8; 16] {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&kind.to_le_bytes());
    head[4..8].copy_from_slice(&flags.to_le_bytes());
    head[8..].copy_from_slice(&raw_bytes.to_le_bytes());
    head
}

fn expansion_limit(stored: u64) -> u64 {
    stored.saturating_mul(EXPANSION_MAX).saturating_add(65_536)
}

fn is_known(kind: u32) -> bool {
    (KIND_DIRECTORY..=KIND_SPANS).contains(&kind)
}

/// What a footer says of a section.
pub(super) struct SectionHead {
    pub(super) kind: u32,
    flags: u32,
    raw_bytes: u64,
    stored_bytes: u64,
}

impl SectionHead {
    fn is_compressed(&self) -> bool {
        self.flags & COMPRESSED != 0
    }

    /// Whether a section of this kind is another one on each stripe.
    fn is_of_stripe(&self) -> bool {
        matches!(self.kind, KIND_DIRECTORY | KIND_SPANS)
    }
}

pub(super) fn read_section_heads(
    reader: &mut Reader<'_>,
    count: u32,
    is_encrypted: bool,
) -> Result<Vec<SectionHead>, FormatError> {
    let mut heads = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (kind, flags) = (reader.u32()?, reader.u32()?);
        let (raw_bytes, stored_bytes) = (reader.u64()?, reader.u64()?);
        let known = is_known(kind);
        let unknown = flags & !(CRITICAL | COMPRESSED | ENCRYPTED);
        if unknown != 0 || (!known && flags & CRITICAL != 0) {
            return Err(FormatError::Feature {
                structure: Structure::Footer,
                found: kind,
            });
        }
        if known && (flags & ENCRYPTED != 0) != is_encrypted {
            return Err(reader.invalid("only the section or only its set is encrypted"));
        }
        let compressed = flags & COMPRESSED != 0;
        if raw_bytes > FILE_TABLE_BYTES_MAX {
            return Err(reader.limit("section length", raw_bytes, FILE_TABLE_BYTES_MAX));
        }
        if kind == KIND_FACTS && raw_bytes > FACTS_BYTES_MAX {
            return Err(reader.limit("facts length", raw_bytes, FACTS_BYTES_MAX));
        }
        let sealed = u64::from(flags & ENCRYPTED != 0) * SEALED_BYTES as u64;
        let packed_bytes = stored_bytes.saturating_sub(sealed);
        let bound = if compressed {
            expansion_limit(packed_bytes)
        } else {
            packed_bytes
        };
        if raw_bytes > bound || (!compressed && raw_bytes != packed_bytes) {
            return Err(reader.limit("section length", raw_bytes, bound));
        }
        heads.push(SectionHead {
            kind,
            flags,
            raw_bytes,
            stored_bytes,
        });
    }
    Ok(heads)
}

pub(super) fn unpack_sections(
    mut reader: Reader<'_>,
    heads: &[SectionHead],
    metadata_limit: u64,
    (stripe, cipher): (StripeIndex, Option<&SetCipher>),
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
        let opened = match cipher {
            Some(cipher) => {
                let about = section_head(head.kind, head.flags, head.raw_bytes);
                let stripe = head.is_of_stripe().then_some(stripe);
                Some(cipher.open_section(stripe, &about, stored)?)
            }
            None => None,
        };
        let stored = opened.as_deref().unwrap_or(stored);
        let raw = match head.is_compressed() {
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
