//! Files with parity, taken apart and laid out in another way.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::ops::Range;

use windlass_engine::media::{
    GroupBlock, GroupBlockBuilder, GroupDirectory, GroupDirectoryEntry, GroupEntry, MemberEntry,
    ParityEnd, ParityHeader, SEAL_BYTES,
};

/// A file with parity, taken apart.
pub struct ParityParts {
    header: ParityHeader,
    end: ParityEnd,
    /// Its group blocks, each with its offset.
    pub blocks: Vec<(u64, GroupBlock)>,
}

fn at(offset: u64, bytes: u64) -> Range<usize> {
    offset as usize..(offset + bytes) as usize
}

impl ParityParts {
    /// Takes a file apart.
    pub fn of(bytes: &[u8]) -> Self {
        let length = ParityHeader::encoded_bytes(&bytes[..64]).unwrap() as usize;
        let header = ParityHeader::decode(&bytes[..length]).unwrap();
        let record = &bytes[bytes.len() - SEAL_BYTES..];
        let end = ParityEnd::decode(record, bytes.len() as u64, &header).unwrap();
        let directory = &bytes[at(end.directory_offset, end.directory_bytes)];
        let directory = GroupDirectory::decode(directory, &header, 1 << 20).unwrap();
        let block = |entry: &GroupDirectoryEntry| {
            let block = &bytes[at(entry.offset, entry.bytes.into())];
            let block = GroupBlock::decode(block, entry.offset, &header).unwrap();
            (entry.offset, block)
        };
        let blocks = directory.entries.iter().map(block).collect();
        Self {
            header,
            end,
            blocks,
        }
    }

    /// The members that a block describes.
    pub fn members(&self, block: usize) -> &[MemberEntry] {
        &self.blocks[block].1.members
    }
}

/// The same parity with so many groups in a block, as in a file of a large set.
pub fn with_short_blocks(bytes: &[u8], groups_in_block: usize) -> Vec<u8> {
    let old = ParityParts::of(bytes);
    let groups = old.blocks.iter().flat_map(|(_, block)| block.iter());
    let groups: Vec<_> = groups.collect();
    let mut out = old.header.encode().unwrap();
    let mut builder = GroupBlockBuilder::default();
    let mut directory = GroupDirectory {
        stripe_bytes: vec![0; old.header.stripes.len()],
        entries: Vec::new(),
    };
    for (number, some) in (0..).zip(groups.chunks(groups_in_block)) {
        let (region, starts) = (out.len() as u64, directory.stripe_bytes.clone());
        for (group, members) in some {
            let offset = out.len() as u64;
            out.extend_from_slice(&bytes[at(group.offset, group.bytes.into())]);
            builder.push(GroupEntry { offset, ..**group }, members);
            members.iter().for_each(|member| {
                directory.stripe_bytes[usize::from(member.stripe)] = member.end();
            });
        }
        let block = builder.take(number, region);
        let encoded = block.encode(&old.header).unwrap();
        directory.entries.push(GroupDirectoryEntry {
            offset: out.len() as u64,
            bytes: encoded.len() as u32,
            groups: block.groups.len() as u32,
            first_group: block.first_group,
            region_offset: region,
            hash: *blake3::hash(&encoded).as_bytes(),
            starts,
        });
        out.extend_from_slice(&encoded);
    }
    let encoded = directory.encode(&old.header);
    let end = ParityEnd {
        directory_offset: out.len() as u64,
        directory_bytes: encoded.len() as u64,
        directory_hash: *blake3::hash(&encoded).as_bytes(),
        file_bytes: (out.len() + encoded.len()) as u64 + u64::from(old.header.alignment),
        ..old.end
    };
    out.extend_from_slice(&encoded);
    out.extend_from_slice(&end.encode());
    out
}
