//! One summary file: for each fork of a relation a limit, and the blocks that were changed.
//!
//! | part | |
//! |---|---|
//! | magic | four bytes |
//! | entry | tablespace, database, file number, fork, limit, count of chunks: four bytes each |
//! | behind it | for each chunk how many words it has, two bytes; then these words |
//! | end | 24 bytes of zeros, and the CRC-32C of all bytes before |
//!
//! A chunk is 65,536 blocks. With 4,096 words it is a bitmap, else a list of blocks. The numbers
//! are little-endian. PostgreSQL 17 to 19 write the same (src/common/blkreftable.c).

use std::path::Path;

use windlass_engine::read_regular_at_most;
use windlass_media::crc32c;

use super::blocks::{CHUNK_BLOCKS, ChangedBlocks, RelationKey};
use crate::error::{IoContext, PostgresError};
use crate::wal::effects::DatabaseDirectory;

const MAGIC: u32 = 0x652B_137B;
const BITMAP_WORDS: usize = (CHUNK_BLOCKS / 16) as usize;
/// Chunks of the longest relation.
const CHUNKS_MAX: u32 = 1 << 16;
const FORK_MAIN: u32 = 0;
/// The forks that a summary may name: main, visibility map, init, and the free space map.
const FORK_LAST: u32 = 3;
/// This limit says that the relation was neither made nor cut off.
const NO_LIMIT: u32 = u32::MAX;
/// The longest summary that is read. It would name all blocks of 32 TiB.
const BYTES_MAX: u64 = 1 << 30;

/// Adds what a summary says.
pub(super) fn read(path: &Path, into: &mut ChangedBlocks) -> Result<(), PostgresError> {
    let bytes = read_regular_at_most(path, BYTES_MAX).doing("read", path)?;
    parse(&bytes, into).map_err(|what| PostgresError::Document {
        document: path.display().to_string(),
        what,
    })
}

fn parse(bytes: &[u8], into: &mut ChangedBlocks) -> Result<(), &'static str> {
    const SHORT: &str = "ends too early";
    let (content, crc) = bytes.split_last_chunk::<4>().ok_or(SHORT)?;
    if crc32c(content) != u32::from_le_bytes(*crc) {
        return Err("has no CRC-32C that holds");
    }
    let mut rest = content;
    if number(&mut rest).ok_or(SHORT)? != MAGIC {
        return Err("does not begin as a WAL summary does");
    }
    loop {
        let mut fields = [0; 6];
        for field in &mut fields {
            *field = number(&mut rest).ok_or(SHORT)?;
        }
        if fields == [0; 6] {
            break;
        }
        entry(fields, &mut rest, into)?;
    }
    match rest {
        [] => Ok(()),
        _ => Err("goes on behind its end"),
    }
}

/// Reads what stands behind an entry.
fn entry(
    [tablespace, database, number, fork, limit, chunks]: [u32; 6],
    rest: &mut &[u8],
    into: &mut ChangedBlocks,
) -> Result<(), &'static str> {
    const SHORT: &str = "ends within an entry";
    if fork > FORK_LAST || chunks > CHUNKS_MAX {
        return Err("names a fork that no relation has");
    }
    let directory = DatabaseDirectory {
        database,
        tablespace,
    };
    let usage = rest.split_off(..chunks as usize * 2).ok_or(SHORT)?;
    let counts = words(usage).map(usize::from);
    if number == 0 {
        into.note_directory(directory);
    }
    let key = RelationKey { directory, number };
    let is_kept = fork == FORK_MAIN && number != 0;
    if is_kept && limit != NO_LIMIT {
        into.relation(key).cut(limit);
    }
    for (chunk, count) in (0..=u16::MAX).zip(counts) {
        let blocks = rest.split_off(..count * 2).ok_or(SHORT)?;
        match count {
            _ if !is_kept || count == 0 => {}
            BITMAP_WORDS => into.relation(key).add_bitmap(chunk, blocks),
            count if count > BITMAP_WORDS => return Err("has a chunk that is too long"),
            _ => {
                let changes = into.relation(key);
                words(blocks).for_each(|block| changes.add(chunk, block));
            }
        }
    }
    Ok(())
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    let pairs = bytes.chunks_exact(2);
    pairs.map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, left) = rest.split_first_chunk::<4>()?;
    *rest = left;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: DatabaseDirectory = DatabaseDirectory {
        database: 5,
        tablespace: 1663,
    };

    fn key(number: u32) -> RelationKey {
        RelationKey {
            directory: DIRECTORY,
            number,
        }
    }

    fn summary(entries: &[([u32; 6], &[&[u16]])]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        for (fields, chunks) in entries {
            fields
                .iter()
                .for_each(|field| bytes.extend(field.to_le_bytes()));
            for chunk in *chunks {
                bytes.extend(u16::try_from(chunk.len()).unwrap().to_le_bytes());
            }
            let words = chunks.iter().flat_map(|chunk| chunk.iter());
            words.for_each(|word| bytes.extend(word.to_le_bytes()));
        }
        bytes.extend([0; 24]);
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn parsed(bytes: &[u8]) -> Result<ChangedBlocks, &'static str> {
        let mut changed = ChangedBlocks::default();
        parse(bytes, &mut changed).map(|()| changed)
    }

    #[test]
    fn limits_lists_and_bitmaps_of_main_forks_count() {
        let mut bitmap = [0; BITMAP_WORDS];
        (bitmap[0], bitmap[4095]) = (0b101, 0x8000);
        let bytes = summary(&[
            ([1663, 5, 0, 0, 0, 0], &[]),
            ([1663, 5, 100, 0, NO_LIMIT, 2], &[&[9, 3], &bitmap]),
            ([1663, 5, 100, 2, 0, 1], &[&[1]]),
            ([1663, 5, 101, 0, 70_000, 1], &[&[]]),
        ]);
        let changed = parsed(&bytes).unwrap();
        assert!(changed.has_new(DIRECTORY));
        let found = changed.get(&key(100)).unwrap();
        let expected = [3, 9, 65_536, 65_538, 131_071];
        assert_eq!(found.blocks_in(0..u64::MAX), expected);
        assert_eq!(found.limit(), None);
        assert_eq!(changed.get(&key(101)).unwrap().limit(), Some(70_000));
        assert!(changed.get(&key(102)).is_none());
    }

    #[test]
    fn a_summary_with_a_changed_byte_or_without_its_end_is_refused() {
        let bytes = summary(&[([1663, 5, 100, 0, 8, 1], &[&[1, 2]])]);
        assert!(parsed(&bytes).is_ok());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(parsed(&damaged).is_err(), "{at}");
            assert!(parsed(&bytes[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn a_summary_that_no_server_writes_is_refused() {
        let long = [1; BITMAP_WORDS + 1];
        for entry in [
            ([1663, 5, 100, 4, 0, 0], &[][..]),
            ([1663, 5, 100, 0, 0, 1], &[&long[..]][..]),
            ([1663, 5, 100, 0, 0, CHUNKS_MAX + 1], &[]),
            ([1663, 5, 100, 0, 0, 7], &[]),
        ] {
            assert!(parsed(&summary(&[entry])).is_err());
        }
    }
}
