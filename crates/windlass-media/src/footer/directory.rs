//! The index directory: a footer's section that says where its stripe's index blocks are.

use super::{DIRECTORY_ENTRY_BYTES, IndexDirectoryEntry};
use crate::error::{FormatError, Structure};
use crate::ids::FileNo;
use crate::limits::*;
use crate::wire::Reader;

pub(super) fn encode_directory(directory: &[IndexDirectoryEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(directory.len() * DIRECTORY_ENTRY_BYTES);
    for entry in directory {
        out.extend_from_slice(&entry.offset.to_le_bytes());
        out.extend_from_slice(&entry.bytes.to_le_bytes());
        out.extend_from_slice(&entry.frame_count.to_le_bytes());
        out.extend_from_slice(&entry.region_offset.to_le_bytes());
        out.extend_from_slice(&entry.file_min.0.to_le_bytes());
        out.extend_from_slice(&entry.file_max.0.to_le_bytes());
        out.push(entry.layer_max);
        out.extend_from_slice(&[0; 15]);
        out.extend_from_slice(&entry.hash);
    }
    out
}

pub(super) fn decode_directory(raw: &[u8]) -> Result<Vec<IndexDirectoryEntry>, FormatError> {
    let mut reader = Reader::new(raw, Structure::IndexDirectory);
    let count = raw.len() / DIRECTORY_ENTRY_BYTES;
    if count as u64 > u64::from(INDEX_BLOCKS_MAX) {
        return Err(reader.limit("index blocks", count as u64, u64::from(INDEX_BLOCKS_MAX)));
    }
    let mut directory: Vec<IndexDirectoryEntry> = Vec::with_capacity(count);
    for _ in 0..count {
        let entry = read_directory_entry(&mut reader)?;
        let previous = directory
            .last()
            .map_or(0, |last| last.offset + u64::from(last.bytes));
        // Regions and blocks alternate without a gap, so one walk over the stripe visits all of
        // them.
        if entry.offset < entry.region_offset
            || entry.offset > FILE_BYTES_MAX
            || (!directory.is_empty() && entry.region_offset != previous)
        {
            return Err(reader.invalid("index blocks and regions do not follow each other"));
        }
        directory.push(entry);
    }
    reader.end()?;
    Ok(directory)
}

fn read_directory_entry(reader: &mut Reader<'_>) -> Result<IndexDirectoryEntry, FormatError> {
    let (offset, bytes, frame_count) = (reader.u64()?, reader.u32()?, reader.u32()?);
    let region_offset = reader.u64()?;
    let (file_min, file_max) = (FileNo(reader.u32()?), FileNo(reader.u32()?));
    let layer_max = reader.u8()?;
    if reader.bytes(15)? != [0; 15] {
        return Err(reader.invalid("reserved bytes are not zero"));
    }
    if bytes > INDEX_BLOCK_BYTES_MAX {
        let limit = u64::from(INDEX_BLOCK_BYTES_MAX);
        return Err(reader.limit("index block length", u64::from(bytes), limit));
    }
    let hash = reader.array()?;
    Ok(IndexDirectoryEntry {
        offset,
        bytes,
        frame_count,
        region_offset,
        file_min,
        file_max,
        layer_max,
        hash,
    })
}
