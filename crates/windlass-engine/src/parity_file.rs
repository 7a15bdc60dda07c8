//! How a file with parity is laid out, whoever writes it: a backup, or a repair.
//!
//! It knows no device: it is told of each parity, and says which blocks go behind it.

use windlass_media::{
    GroupBlockBuilder, GroupDirectory, GroupDirectoryEntry, GroupEntry, MemberEntry, ParityEnd,
    ParityHeader, fitted,
};

use crate::error::EngineError;

/// A group block is written when its entries take this much.
const GROUP_BLOCK_BYTES: usize = 256 * 1024;

/// The layout of a file that is being written.
pub(crate) struct ParityLayout {
    header: ParityHeader,
    /// Where the next byte goes.
    offset: u64,
    region_offset: u64,
    builder: GroupBlockBuilder,
    directory: GroupDirectory,
    /// How many bytes of each stripe the blocks before cover.
    starts: Vec<u64>,
    groups: u64,
}

impl ParityLayout {
    /// Begins a file. Returns the bytes of its header, too.
    pub(crate) fn begin(header: ParityHeader) -> Result<(Self, Vec<u8>), EngineError> {
        let encoded = header.encode()?;
        let nothing = vec![0; header.stripes.len()];
        let layout = Self {
            header,
            offset: encoded.len() as u64,
            region_offset: encoded.len() as u64,
            builder: GroupBlockBuilder::default(),
            directory: GroupDirectory {
                stripe_bytes: nothing.clone(),
                entries: Vec::new(),
            },
            starts: nothing,
            groups: 0,
        };
        Ok((layout, encoded))
    }

    /// The header.
    pub(crate) fn header(&self) -> &ParityHeader {
        &self.header
    }

    /// Takes note of a parity, which is written next: its length and its checksum.
    pub(crate) fn push(&mut self, (bytes, crc32c): (usize, u32), members: &[MemberEntry]) {
        let entry = GroupEntry {
            offset: self.offset,
            bytes: fitted(bytes),
            crc32c,
            members: 0,
        };
        self.builder.push(entry, members);
        self.offset += bytes as u64;
        self.groups += 1;
        for member in members {
            self.directory.stripe_bytes[usize::from(member.stripe)] = member.end();
        }
    }

    /// The block that has to be written next, if there is one.
    pub(crate) fn block_when_due(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        match self.builder.content_bytes() >= GROUP_BLOCK_BYTES {
            true => self.end_block().map(Some),
            false => Ok(None),
        }
    }

    /// The block of the groups since the last one.
    pub(crate) fn end_block(&mut self) -> Result<Vec<u8>, EngineError> {
        let number = fitted(self.directory.entries.len());
        let block = self.builder.take(number, self.region_offset);
        let bytes = block.encode(&self.header)?;
        self.directory.entries.push(GroupDirectoryEntry {
            offset: self.offset,
            bytes: fitted(bytes.len()),
            groups: fitted(block.groups.len()),
            first_group: block.first_group,
            region_offset: block.region_offset,
            hash: *blake3::hash(&bytes).as_bytes(),
            starts: std::mem::replace(&mut self.starts, self.directory.stripe_bytes.clone()),
        });
        self.offset += bytes.len() as u64;
        self.region_offset = self.offset;
        Ok(bytes)
    }

    /// What is written behind the last parity, and the end, which is written when that is durable.
    pub(crate) fn finish(
        &mut self,
        root: [u8; 32],
    ) -> Result<(Vec<Vec<u8>>, ParityEnd), EngineError> {
        let mut blocks = Vec::new();
        if !self.builder.is_empty() {
            blocks.push(self.end_block()?);
        }
        let directory = self.directory.encode(&self.header);
        let end = ParityEnd {
            set_id: self.header.set_id,
            parity: self.header.parity,
            alignment: self.header.alignment,
            directory_offset: self.offset,
            directory_bytes: directory.len() as u64,
            directory_hash: *blake3::hash(&directory).as_bytes(),
            file_bytes: self.offset + directory.len() as u64 + u64::from(self.header.alignment),
            groups: self.groups,
            set_root: root,
        };
        self.offset = end.file_bytes - u64::from(self.header.alignment);
        blocks.push(directory);
        Ok((blocks, end))
    }
}
