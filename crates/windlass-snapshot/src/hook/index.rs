//! A snapshot's index and map in the shared memory, built before anybody sees them.

use windlass_image::layout::hook::{
    FILE_WORDS, FileKey, FileLink, FileRecord, Limits, SNAPSHOTS_MAX, Unpublished, claim,
    index_records, release,
};

use super::error::HookError;
use super::links::Linked;
use super::locked::{Extent, Locked};

/// Files and blocks that may come between the listing and the pause.
const FILES_SPARE: u32 = 1000;
const BLOCKS_SPARE: u64 = 64 * 1024;

/// A file for the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracked {
    pub(crate) key: FileKey,
    pub(crate) blocks: u32,
    pub(crate) link: FileLink,
    /// Whether only the server changes it.
    pub(crate) is_watched: bool,
}

impl Tracked {
    pub(crate) fn of(
        linked: &Linked,
        page_bytes: u32,
        is_watched: bool,
    ) -> Result<Self, HookError> {
        let blocks = linked.bytes.div_ceil(u64::from(page_bytes));
        Ok(Self {
            key: linked.key,
            blocks: u32::try_from(blocks).map_err(|_| HookError::TooLarge)?,
            link: linked.link()?,
            is_watched: is_watched && blocks > 0,
        })
    }
}

/// Room in the shared memory for an index and a map.
#[derive(Clone, Copy, Debug)]
struct Room {
    records: u32,
    cells: u32,
    index: Extent,
    map: Extent,
}

impl Room {
    /// Allocates room for so many files and blocks.
    fn allocate(locked: &Locked<'_>, files: u32, blocks: u64) -> Result<Self, HookError> {
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
    fn free(self, locked: &Locked<'_>) -> Result<(), HookError> {
        locked.free(self.index)?;
        locked.free(self.map)
    }

    /// Fills an entry of the table. The entry owns the room from then on.
    fn fill<'a>(
        self,
        locked: &Locked<'a>,
        (number, tag, limits): (u32, u64, &Limits),
        files: &[Tracked],
    ) -> Result<Filled<'a>, HookError> {
        let too_many = HookError::TooMany {
            most: SNAPSHOTS_MAX,
        };
        let built = claim(locked.memory()).ok_or(too_many)?;
        let index = (self.index.at, self.records);
        built.0.prepare(number, index, (self.map.at, self.cells));
        built.0.set_limits(limits);
        built.0.set_tag(tag);
        let mut filled = Filled {
            built,
            next: 0,
            room: self,
        };
        match filled.add_all(files) {
            Ok(()) => Ok(filled),
            Err(error) => {
                release(&filled.built.0);
                Err(error)
            }
        }
    }
}

/// An entry with its index. Nobody sees it yet.
pub(crate) struct Filled<'a> {
    built: Unpublished<'a>,
    /// The next cell that no file has.
    next: u32,
    room: Room,
}

/// Whether an index has room for what may come before it is published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HasSpare(pub(crate) bool);

impl<'a> Filled<'a> {
    /// Of these files: its number, its tag, its limits.
    pub(crate) fn of(
        locked: &Locked<'a>,
        of: (u32, u64, &Limits),
        tracked: &[Tracked],
        HasSpare(has_spare): HasSpare,
    ) -> Result<Self, HookError> {
        let mut files = u32::try_from(tracked.len()).map_err(|_| HookError::TooLarge)?;
        let mut blocks: u64 = tracked.iter().map(|file| u64::from(file.blocks)).sum();
        if has_spare {
            files = files.saturating_add(files / 8 + FILES_SPARE);
            blocks = blocks.saturating_add(blocks / 8 + BLOCKS_SPARE);
        }
        let room = Room::allocate(locked, files, blocks)?;
        let filled = room.fill(locked, of, tracked);
        filled.inspect_err(|_| room.free(locked).unwrap_or_default())
    }

    /// The entry, to be published.
    pub(crate) fn built(&self) -> Unpublished<'a> {
        Unpublished(self.built.0)
    }

    fn add_all(&mut self, files: &[Tracked]) -> Result<(), HookError> {
        for file in files {
            // Two names of one file share its cells.
            if self.built.0.find(file.key).is_none() {
                self.add(file)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, file: &Tracked) -> Result<(), HookError> {
        let first = self.cells(file.blocks)?;
        let record = record(file, first);
        self.built.0.add(&record).map_err(|_| HookError::TooLarge)
    }

    /// Takes cells for so many blocks.
    fn cells(&mut self, blocks: u32) -> Result<u32, HookError> {
        let first = self.next;
        let next = first.checked_add(blocks);
        let next = next.filter(|next| *next <= self.room.cells);
        self.next = next.ok_or(HookError::TooLarge)?;
        Ok(first)
    }

    /// Brings it up to date with files that are new, or have another length.
    pub(crate) fn amend(&mut self, files: &[Tracked]) -> Result<(), HookError> {
        for file in files {
            match self.built.0.find(file.key) {
                None => self.add(file)?,
                Some(known) => {
                    let first = match file.blocks <= known.blocks {
                        true => known.first,
                        false => self.cells(file.blocks)?,
                    };
                    self.built.0.change(&record(file, first));
                }
            }
        }
        Ok(())
    }

    /// Begins again with these files.
    pub(crate) fn refill(&mut self, files: &[Tracked]) -> Result<(), HookError> {
        for word in 0..u64::from(self.room.records) * FILE_WORDS as u64 {
            self.built.0.set_index_word(word, 0);
        }
        self.next = 0;
        self.add_all(files)
    }
}

fn record(file: &Tracked, first: u32) -> FileRecord {
    FileRecord {
        key: file.key,
        first,
        blocks: file.blocks,
        link: file.link,
        is_watched: file.is_watched,
    }
}
