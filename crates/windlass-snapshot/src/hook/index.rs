//! A snapshot's index and map in the shared memory, built before anybody sees them.

use windlass_image::layout::hook::{
    FILE_WORDS, FileKey, FileLink, FileRecord, Limits, SNAPSHOTS_MAX, Unpublished, claim,
    index_records, release,
};

use super::control::{Extent, Locked};
use super::error::HookError;

/// A file for the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracked {
    pub(crate) key: FileKey,
    pub(crate) blocks: u32,
    pub(crate) link: FileLink,
}

/// Room in the shared memory for an index and a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    records: u32,
    cells: u32,
    index: Extent,
    map: Extent,
}

impl Room {
    /// Allocates room for so many files and blocks.
    pub(crate) fn allocate(
        locked: &Locked<'_>,
        files: u32,
        blocks: u64,
    ) -> Result<Self, HookError> {
        let records = index_records(files).ok_or(HookError::TooLarge)?;
        let cells = u32::try_from(blocks).map_err(|_| HookError::TooLarge)?;
        let index = locked.allocate(u64::from(records) * FILE_WORDS as u64, &[])?;
        let map = locked.allocate(blocks, &[index]);
        let map = map.inspect_err(|_| locked.free(index).unwrap_or_default())?;
        Ok(Self {
            records,
            cells,
            index,
            map,
        })
    }

    /// Gives it back.
    pub(crate) fn free(self, locked: &Locked<'_>) -> Result<(), HookError> {
        locked.free(self.index)?;
        locked.free(self.map)
    }

    /// Fills an entry of the table. The entry owns the room from then on.
    pub(crate) fn fill<'a>(
        self,
        locked: &Locked<'a>,
        (number, tag, limits): (u32, u64, &Limits),
        files: &[Tracked],
    ) -> Result<Unpublished<'a>, HookError> {
        let too_many = HookError::TooMany {
            most: SNAPSHOTS_MAX,
        };
        let built = claim(locked.memory()).ok_or(too_many)?;
        let index = (self.index.at, self.records);
        built.0.prepare(number, index, (self.map.at, self.cells));
        built.0.set_limits(limits);
        built.0.set_tag(tag);
        let added = add_all(&built, files, self.cells);
        match added {
            Ok(()) => Ok(built),
            Err(error) => {
                release(&built.0);
                Err(error)
            }
        }
    }
}

fn add_all(built: &Unpublished<'_>, files: &[Tracked], cells: u32) -> Result<(), HookError> {
    let mut first: u32 = 0;
    for file in files {
        // Two names of one file share its cells.
        if built.0.find(file.key).is_some() {
            continue;
        }
        let record = FileRecord {
            key: file.key,
            first,
            blocks: file.blocks,
            link: file.link,
        };
        built.0.add(&record).map_err(|_| HookError::TooLarge)?;
        let next = first.checked_add(file.blocks);
        first = next
            .filter(|next| *next <= cells)
            .ok_or(HookError::TooLarge)?;
    }
    Ok(())
}
