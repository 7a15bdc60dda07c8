//! Group blocks: what the groups before a block are made of.

use std::collections::BTreeMap;

use super::header::ParityHeader;
use crate::error::{FormatError, Structure};
use crate::limits::*;
use crate::number::fitted;
use crate::wire::{Reader, check_crc, round_up, seal_with_crc};

const MAGIC: &[u8; 8] = b"WNDLGRPS";
const STRUCTURE: Structure = Structure::GroupBlock;
const HEAD_BYTES: usize = 64;
const GROUP_BYTES: usize = 24;
const MEMBER_BYTES: usize = 24;

/// One group: where its parity is, and how many members it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEntry {
    /// Where the parity is in this file.
    pub offset: u64,
    /// Its length: that of the longest member.
    pub bytes: u32,
    /// CRC-32C of the parity.
    pub crc32c: u32,
    /// How many members the group has.
    pub members: u16,
}

/// Bytes of a stripe that are in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberEntry {
    /// The stripe.
    pub stripe: u16,
    /// Where they begin on the stripe.
    pub offset: u64,
    /// How many there are. For the parity, zeros follow them up to its length.
    pub bytes: u32,
    /// Their CRC-32C.
    pub crc32c: u32,
}

impl MemberEntry {
    /// Where they end on the stripe.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }
}

/// One group block, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupBlock {
    /// Number of this block in its file, from 0.
    pub number: u32,
    /// Number of its first group.
    pub first_group: u64,
    /// Where the parity of its first group begins. The block itself follows the last one.
    pub region_offset: u64,
    /// The groups, in order.
    pub groups: Vec<GroupEntry>,
    /// Their members: those of the first group, then those of the second, ...
    pub members: Vec<MemberEntry>,
}

/// Gathers the entries of one group block.
#[derive(Debug, Default)]
pub struct GroupBlockBuilder {
    block: GroupBlock,
}

impl GroupBlockBuilder {
    /// Adds a group. Its members are in the order of their stripes.
    pub fn push(&mut self, mut group: GroupEntry, members: &[MemberEntry]) {
        group.members = fitted(members.len());
        self.block.groups.push(group);
        self.block.members.extend_from_slice(members);
    }

    /// Length of the block so far, without padding.
    pub fn content_bytes(&self) -> usize {
        self.block.content_bytes()
    }

    /// True when nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.block.groups.is_empty()
    }

    /// Takes the block, and leaves the builder with the number of the next group.
    pub fn take(&mut self, number: u32, region_offset: u64) -> GroupBlock {
        let first_group = self.block.first_group;
        let next = GroupBlock {
            first_group: first_group + self.block.groups.len() as u64,
            ..GroupBlock::default()
        };
        let block = std::mem::replace(&mut self.block, next);
        GroupBlock {
            number,
            region_offset,
            ..block
        }
    }
}

impl GroupBlock {
    fn content_bytes(&self) -> usize {
        HEAD_BYTES + GROUP_BYTES * self.groups.len() + MEMBER_BYTES * self.members.len() + 4
    }

    /// The block as it stands in the file with this header.
    pub fn encode(&self, header: &ParityHeader) -> Result<Vec<u8>, FormatError> {
        let total = round_up(self.content_bytes() as u64, header.alignment);
        let narrow = u32::try_from(total).ok();
        let narrow = narrow.filter(|total| *total <= INDEX_BLOCK_BYTES_MAX);
        let total = narrow.ok_or(FormatError::Limit {
            structure: STRUCTURE,
            what: "length",
            found: total,
            limit: u64::from(INDEX_BLOCK_BYTES_MAX),
        })?;
        let mut out = Vec::with_capacity(total as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&header.set_id.0);
        out.extend_from_slice(&header.parity.to_le_bytes());
        out.extend_from_slice(&header.stripe_count().to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.first_group.to_le_bytes());
        out.extend_from_slice(&self.region_offset.to_le_bytes());
        let counts = [self.groups.len(), self.members.len(), total as usize, 0];
        for count in counts {
            out.extend_from_slice(&fitted::<u32, _>(count).to_le_bytes());
        }
        for group in &self.groups {
            out.extend_from_slice(&group.offset.to_le_bytes());
            out.extend_from_slice(&group.bytes.to_le_bytes());
            out.extend_from_slice(&group.crc32c.to_le_bytes());
            out.extend_from_slice(&group.members.to_le_bytes());
            out.extend_from_slice(&[0; 6]);
        }
        for member in &self.members {
            out.extend_from_slice(&member.offset.to_le_bytes());
            out.extend_from_slice(&member.bytes.to_le_bytes());
            out.extend_from_slice(&member.crc32c.to_le_bytes());
            out.extend_from_slice(&member.stripe.to_le_bytes());
            out.extend_from_slice(&[0; 6]);
        }
        seal_with_crc(&mut out, total as usize);
        Ok(out)
    }

    /// Reads a block of the file with this header. `offset` is where it stands.
    pub fn decode(bytes: &[u8], offset: u64, header: &ParityHeader) -> Result<Self, FormatError> {
        Reader::new(bytes, STRUCTURE).magic(MAGIC)?;
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        reader.magic(MAGIC)?;
        let own = (header.set_id.0, header.parity, header.stripe_count());
        if (reader.array()?, reader.u16()?, reader.u16()?) != own {
            return Err(reader.invalid("it is of another set or of another parity"));
        }
        let (number, first_group) = (reader.u32()?, reader.u64()?);
        let region_offset = reader.u64()?;
        let (groups, members) = (reader.u32()? as usize, reader.u32()? as usize);
        if (reader.u32()? as usize, reader.u32()?) != (bytes.len(), 0) {
            return Err(reader.invalid("its length or its reserved bytes are wrong"));
        }
        let needed = groups as u64 * GROUP_BYTES as u64 + members as u64 * MEMBER_BYTES as u64;
        if needed > reader.remaining() as u64 {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let block = Self {
            number,
            first_group,
            region_offset,
            groups: (0..groups)
                .map(|_| read_group(&mut reader))
                .collect::<Result<_, _>>()?,
            members: (0..members)
                .map(|_| read_member(&mut reader))
                .collect::<Result<_, _>>()?,
        };
        reader.padding()?;
        block.check(offset, header)?;
        Ok(block)
    }

    /// The groups with their members.
    pub fn iter(&self) -> impl Iterator<Item = (&GroupEntry, &[MemberEntry])> {
        let mut rest = self.members.as_slice();
        self.groups.iter().map(move |group| {
            let (own, others) = rest.split_at(usize::from(group.members).min(rest.len()));
            rest = others;
            (group, own)
        })
    }

    /// Checks that parities and members follow each other without a gap, and fit each other.
    fn check(&self, offset: u64, header: &ParityHeader) -> Result<(), FormatError> {
        let invalid = |what| {
            Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            })
        };
        let counted: usize = self.groups.iter().map(|it| usize::from(it.members)).sum();
        if counted != self.members.len()
            || self
                .first_group
                .checked_add(self.groups.len() as u64)
                .is_none()
        {
            return invalid("the groups have other numbers of members than the block");
        }
        let mut position = self.region_offset;
        let mut ends: BTreeMap<u16, u64> = BTreeMap::new();
        for (group, members) in self.iter() {
            let longest = members.iter().map(|it| it.bytes).max().unwrap_or(0);
            if group.offset != position || group.bytes != longest || longest > header.member_bytes {
                return invalid("a parity is not where, or not as long as, it has to be");
            }
            position = position.saturating_add(u64::from(group.bytes));
            if members
                .windows(2)
                .any(|pair| pair[0].stripe >= pair[1].stripe)
            {
                return invalid("the members of a group are not in order");
            }
            for member in members {
                let follows = ends
                    .get(&member.stripe)
                    .is_none_or(|end| *end == member.offset);
                let is_there = member.stripe < header.stripe_count() && member.bytes > 0;
                if !follows || !is_there || member.offset > FILE_BYTES_MAX {
                    return invalid("the members of a stripe do not follow each other");
                }
                ends.insert(member.stripe, member.end());
            }
        }
        if position != offset {
            return invalid("the parities do not end where the block begins");
        }
        Ok(())
    }
}

fn read_group(reader: &mut Reader<'_>) -> Result<GroupEntry, FormatError> {
    let (offset, bytes, crc32c) = (reader.u64()?, reader.u32()?, reader.u32()?);
    let members = reader.u16()?;
    reserved(reader)?;
    Ok(GroupEntry {
        offset,
        bytes,
        crc32c,
        members,
    })
}

fn read_member(reader: &mut Reader<'_>) -> Result<MemberEntry, FormatError> {
    let (offset, bytes, crc32c) = (reader.u64()?, reader.u32()?, reader.u32()?);
    let stripe = reader.u16()?;
    reserved(reader)?;
    Ok(MemberEntry {
        stripe,
        offset,
        bytes,
        crc32c,
    })
}

fn reserved(reader: &mut Reader<'_>) -> Result<(), FormatError> {
    match reader.bytes(6)? == [0; 6] {
        true => Ok(()),
        false => Err(reader.invalid("reserved bytes are not zero")),
    }
}
