//! Walking a stripe that has lost its footer: from index block to index block.
//!
//! An index block begins at a multiple of the alignment, at the end of the region that it
//! describes. It names its set and its stripe and has a checksum. So the blocks of a stripe can be
//! found by looking at each multiple of the alignment. If a block does not follow the one before
//! it, everything between them is lost.
//!
//! Nobody knows how many blocks were lost. So a block need not have the next number, but its number
//! must be higher than that of the block before.

use windlass_media::{FileNo, IndexBlock, IndexDirectoryEntry, SetCipher, StripeHeader, fitted};

use crate::storage::ReadAt;

/// How many bytes of the stripe one read takes.
const LOOK_BYTES: usize = 1024 * 1024;
/// What a bad sector costs.
const PART_BYTES: usize = 4096;

/// Finds the index blocks of a stripe. Its data lies between `start` and `end`, as far as these are
/// known. `lost` receives each part (offset, bytes) that no block describes.
pub(super) fn walk(
    file: &dyn ReadAt,
    (header, cipher): (&StripeHeader, Option<&SetCipher>),
    (start, end): (Option<u64>, Option<u64>),
    mut lost: impl FnMut(u64, u64),
) -> Vec<IndexDirectoryEntry> {
    let mut directory: Vec<IndexDirectoryEntry> = Vec::new();
    let length = file.length().unwrap_or(0);
    let until = end.unwrap_or(length).min(length);
    let (mut position, mut look) = (start, start.unwrap_or(0));
    let mut number_min = 0;
    while let Some((offset, bytes, block)) = next_block(file, (header, cipher), look, until) {
        let begin = block.region_offset;
        look = offset + bytes.len() as u64;
        if block.number < number_min || position.is_some_and(|position| begin < position) {
            // It describes nothing that can be trusted, so it is part of what is lost.
            continue;
        }
        match position {
            Some(position) if begin > position => lost(position, begin - position),
            _ => {}
        }
        directory.push(entry(offset, &bytes, &block));
        number_min = block.number.saturating_add(1);
        position = Some(look);
    }
    let position = position.unwrap_or(0);
    // If the end is not known, what follows the last block may be the footer.
    let end = end.or_else(|| directory.is_empty().then_some(length));
    if let Some(end) = end.filter(|end| *end > position) {
        lost(position, end - position);
    }
    directory
}

fn next_block(
    file: &dyn ReadAt,
    (header, cipher): (&StripeHeader, Option<&SetCipher>),
    from: u64,
    end: u64,
) -> Option<(u64, Vec<u8>, IndexBlock)> {
    let step = header.alignment as usize;
    let mut look = vec![0; LOOK_BYTES];
    let mut position = from;
    while position < end {
        let wanted = fitted::<usize, _>(end - position).min(LOOK_BYTES);
        let count = filled(file, position, &mut look[..wanted]);
        for at in (0..count).step_by(step) {
            let offset = position + at as u64;
            let prefix = &look[at..count.min(at + IndexBlock::PREFIX_BYTES)];
            if let Ok(total) = IndexBlock::encoded_bytes_of(prefix)
                && let Some(found) = block_at(file, (header, cipher), offset, total)
            {
                return Some((offset, found.0, found.1));
            }
        }
        position += LOOK_BYTES as u64;
    }
    None
}

/// Reads what can be read. A part that cannot be read holds no block.
fn filled(file: &dyn ReadAt, offset: u64, into: &mut [u8]) -> usize {
    if let Ok(count) = file.read_at(offset, into) {
        return count;
    }
    for (at, part) in (offset..)
        .step_by(PART_BYTES)
        .zip(into.chunks_mut(PART_BYTES))
    {
        if file.read_exact_at(at, part).is_err() {
            part.fill(0);
        }
    }
    into.len()
}

fn block_at(
    file: &dyn ReadAt,
    (header, cipher): (&StripeHeader, Option<&SetCipher>),
    offset: u64,
    total: u32,
) -> Option<(Vec<u8>, IndexBlock)> {
    let mut bytes = vec![0; total as usize];
    file.read_exact_at(offset, &mut bytes).ok()?;
    let block = IndexBlock::decode_with(&bytes, offset, header.alignment, cipher).ok()?;
    let own = block.set_id == header.set_id && block.stripe == header.stripe;
    own.then_some((bytes, block))
}

fn entry(offset: u64, bytes: &[u8], block: &IndexBlock) -> IndexDirectoryEntry {
    let files = || block.pieces.iter().map(|piece| piece.file);
    IndexDirectoryEntry {
        offset,
        bytes: fitted(bytes.len()),
        frame_count: fitted(block.frames.len()),
        region_offset: block.region_offset,
        file_min: files().min().unwrap_or(FileNo(0)),
        file_max: files().max().unwrap_or(FileNo(0)),
        layer_max: block
            .pieces
            .iter()
            .map(|piece| piece.layer)
            .max()
            .unwrap_or(0),
        hash: *blake3::hash(bytes).as_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::FileBytes;
    use std::io::Write;
    use std::sync::Arc;
    use windlass_media::{Codec, FrameEntry, IndexBlockBuilder, PieceEntry, SetId, StripeIndex};

    const ALIGNMENT: u32 = 512;

    /// The numbers of the blocks that a walk takes, and the parts that are lost, of a stripe whose
    /// blocks have these numbers.
    fn walked(numbers: &[u32]) -> (Vec<u64>, Vec<(u64, u64)>) {
        let header = StripeHeader {
            set_id: SetId([7; 16]),
            stripe: StripeIndex(0),
            alignment: ALIGNMENT,
            transfer_bytes: ALIGNMENT,
            frame_bytes: ALIGNMENT,
            created_nanos: 0,
            page_frames: false,
            lock: None,
            locations: vec![b"a".to_vec()],
            parities: vec![],
        };
        let mut file = tempfile::tempfile().unwrap();
        let region = u64::from(ALIGNMENT);
        let mut position = 0;
        for number in numbers {
            let mut builder = IndexBlockBuilder::default();
            let frame = FrameEntry {
                offset: position,
                stored_bytes: ALIGNMENT,
                raw_bytes: ALIGNMENT,
                crc32c: 0,
                codec: Codec::None,
                piece_count: 0,
                page: None,
            };
            let piece = PieceEntry {
                file: FileNo(0),
                bytes: ALIGNMENT,
                offset: position,
                crc32c: 0,
                layer: 0,
            };
            builder.push(frame, &[piece]);
            let mut block = builder.take(header.set_id, StripeIndex(0), *number, position, region);
            let bytes = block.encode(ALIGNMENT).unwrap();
            file.write_all(&[0; ALIGNMENT as usize]).unwrap();
            file.write_all(&bytes).unwrap();
            position += region + bytes.len() as u64;
        }
        let mut lost = Vec::new();
        let found = walk(
            &FileBytes(Arc::new(file)),
            (&header, None),
            (Some(0), Some(position)),
            |offset, bytes| {
                lost.push((offset, bytes));
            },
        );
        (found.iter().map(|entry| entry.offset).collect(), lost)
    }

    #[test]
    fn numbers_may_have_gaps_but_a_block_whose_number_came_before_is_lost() {
        assert_eq!(walked(&[0, 1, 2]), (vec![512, 1536, 2560], vec![]));
        assert_eq!(walked(&[3, 4, 9]), (vec![512, 1536, 2560], vec![]));
        assert_eq!(walked(&[5, 1, 6]), (vec![512, 2560], vec![(1024, 1024)]));
        assert_eq!(walked(&[0, 0]), (vec![512], vec![(1024, 1024)]));
    }
}
