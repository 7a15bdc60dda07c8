//! The directory of a file with parity: where its group blocks are, and what they cover.

use super::header::ParityHeader;
use crate::error::{FormatError, Structure};
use crate::limits::*;
use crate::number::fitted;
use crate::wire::{Reader, round_up};

const MAGIC: &[u8; 8] = b"WNDLGDIR";
const STRUCTURE: Structure = Structure::GroupDirectory;
const HEAD_BYTES: usize = 40;
/// An entry without its list of stripes.
const ENTRY_BYTES: usize = 64;

/// Where one group block is, its hash, and where its groups begin on each stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDirectoryEntry {
    /// Position of the block.
    pub offset: u64,
    /// Length of the block, padding included.
    pub bytes: u32,
    /// How many groups it describes.
    pub groups: u32,
    /// Number of its first group.
    pub first_group: u64,
    /// Where the parity of its first group begins; the parities end at `offset`.
    pub region_offset: u64,
    /// BLAKE3 of the block.
    pub hash: [u8; 32],
    /// For each stripe, how many of its bytes the blocks before cover.
    pub starts: Vec<u64>,
}

/// All group blocks of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDirectory {
    /// The length of each stripe.
    pub stripe_bytes: Vec<u64>,
    /// The blocks, in order.
    pub entries: Vec<GroupDirectoryEntry>,
}

impl GroupDirectory {
    /// The directory as it stands in the file with this header.
    pub fn encode(&self, header: &ParityHeader) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&header.set_id.0);
        out.extend_from_slice(&header.parity.to_le_bytes());
        out.extend_from_slice(&header.stripe_count().to_le_bytes());
        out.extend_from_slice(&fitted::<u32, _>(self.entries.len()).to_le_bytes());
        let each = ENTRY_BYTES + 8 * self.stripe_bytes.len();
        let content = HEAD_BYTES + 8 * self.stripe_bytes.len() + each * self.entries.len();
        let total = round_up(content as u64, header.alignment);
        out.extend_from_slice(&total.to_le_bytes());
        put_all(&mut out, &self.stripe_bytes);
        for entry in &self.entries {
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.bytes.to_le_bytes());
            out.extend_from_slice(&entry.groups.to_le_bytes());
            out.extend_from_slice(&entry.first_group.to_le_bytes());
            out.extend_from_slice(&entry.region_offset.to_le_bytes());
            out.extend_from_slice(&entry.hash);
            put_all(&mut out, &entry.starts);
        }
        out.resize(fitted(total), 0);
        out
    }

    /// Reads the directory of the file with this header. The end of the file vouches for its hash.
    /// It takes at most `limit` bytes of memory.
    pub fn decode(bytes: &[u8], header: &ParityHeader, limit: u64) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, STRUCTURE);
        reader.magic(MAGIC)?;
        let own = (header.set_id.0, header.parity, header.stripe_count());
        if (reader.array()?, reader.u16()?, reader.u16()?) != own {
            return Err(reader.invalid("it is of another set or of another parity"));
        }
        let (count, length) = (reader.u32()?, reader.u64()?);
        if length != bytes.len() as u64 {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let stripes = header.stripes.len();
        let each = (ENTRY_BYTES + 8 * stripes) as u64;
        let needed = each.saturating_mul(u64::from(count));
        if count > INDEX_BLOCKS_MAX || needed > reader.remaining() as u64 {
            return Err(reader.limit(
                "group blocks",
                u64::from(count),
                u64::from(INDEX_BLOCKS_MAX),
            ));
        }
        if needed.saturating_mul(2) > limit {
            return Err(reader.limit("memory", needed.saturating_mul(2), limit));
        }
        let stripe_bytes = read_all(&mut reader, stripes)?;
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            entries.push(GroupDirectoryEntry {
                offset: reader.u64()?,
                bytes: reader.u32()?,
                groups: reader.u32()?,
                first_group: reader.u64()?,
                region_offset: reader.u64()?,
                hash: reader.array()?,
                starts: read_all(&mut reader, stripes)?,
            });
        }
        reader.padding()?;
        let directory = Self {
            stripe_bytes,
            entries,
        };
        directory.check()?;
        Ok(directory)
    }

    fn check(&self) -> Result<(), FormatError> {
        let invalid = |what| {
            Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            })
        };
        if self
            .entries
            .iter()
            .any(|entry| entry.bytes > INDEX_BLOCK_BYTES_MAX)
        {
            return invalid("a group block is longer than 4 MiB");
        }
        if self
            .stripe_bytes
            .iter()
            .any(|bytes| *bytes > FILE_BYTES_MAX)
        {
            return invalid("a stripe is longer than 2^62 bytes");
        }
        let follows = |pair: &[GroupDirectoryEntry]| {
            let (one, next) = (&pair[0], &pair[1]);
            let end = one.offset.saturating_add(u64::from(one.bytes));
            let mut starts = one.starts.iter().zip(&next.starts);
            next.region_offset == end
                && next.offset >= end
                && next.first_group == one.first_group.saturating_add(u64::from(one.groups))
                && starts.all(|(one, next)| one <= next)
        };
        match self.entries.windows(2).all(follows) {
            true => Ok(()),
            false => invalid("the group blocks do not follow each other"),
        }
    }

    /// The block whose groups have this byte of a stripe.
    pub fn block_of(&self, stripe: u16, offset: u64) -> Option<usize> {
        let stripe = usize::from(stripe);
        if offset >= *self.stripe_bytes.get(stripe)? {
            return None;
        }
        let after = self
            .entries
            .partition_point(|entry| entry.starts[stripe] <= offset);
        after.checked_sub(1)
    }
}

fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers
        .iter()
        .for_each(|it| out.extend_from_slice(&it.to_le_bytes()));
}

fn read_all(reader: &mut Reader<'_>, count: usize) -> Result<Vec<u64>, FormatError> {
    (0..count).map(|_| reader.u64()).collect()
}
