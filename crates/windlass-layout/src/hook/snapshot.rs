//! One snapshot in the shared memory: its state, the index of its files, its map.
//!
//!   index   a hash table of records; record: inode 2 | device | first cell | blocks |
//!           directory of its link | name of its link | is it watched, and when was it met
//!   map     a cell for each block of each file: slot + 1, or 0; and a mark (cell.rs)
//!
//! The controller fills index and map before anybody else can see the snapshot. After that a cell
//! changes once, from 0 to a slot, and loses its mark if it has one. An index never changes, but
//! for the last word of a record: the hook marks there which files it meets when a server starts.

use super::cell::Cell;
use super::memory::{Cause, Memory, Phase, SNAPSHOT_WORDS, SNAPSHOTS_AT, SNAPSHOTS_MAX};
use crate::map::Slot;

/// Words of a record in an index.
pub const FILE_WORDS: usize = 8;

const STATE: usize = 0;
const NUMBER: usize = 1;
const OLDER: usize = 2;
const CAUSE: usize = 3;
const ERRNO: usize = 4;
const INDEX_AT: usize = 5;
const INDEX_RECORDS: usize = 7;
const MAP_AT: usize = 8;
const MAP_CELLS: usize = 10;
const PRESERVED: usize = 11;
const COMPLETE: usize = 12;
const LIMIT_PAGES: usize = 13;
const LIMIT_UNTIL: usize = 14;
const LIMIT_FREE: usize = 15;
const TAG: usize = 16;

const INODE: usize = 0;
const DEVICE: usize = 2;
const FIRST: usize = 3;
const BLOCKS: usize = 4;
const LINK_DIRECTORY: usize = 5;
const LINK_NAME: usize = 6;
const WATCHED: usize = 7;

/// Which file it is, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The device, as the kernel packs it: 12 bits and 20 bits.
    pub device: u32,
    /// The inode; never 0.
    pub inode: u64,
}

impl FileKey {
    /// The key of a file from what statx says.
    pub const fn new(major: u32, minor: u32, inode: u64) -> Self {
        Self {
            device: major << 20 | (minor & 0xF_FFFF),
            inode,
        }
    }

    /// The name of the file with the shared memory of the server whose data directory this is, in
    /// [`CONTROL_DIRECTORY`].
    pub fn control_name(self) -> [u8; CONTROL_NAME_BYTES] {
        let mut name = *b"windlass-00000000-0000000000000000";
        hexadecimal(u64::from(self.device), &mut name[9..17]);
        hexadecimal(self.inode, &mut name[18..]);
        name
    }

    /// A number that spreads files and blocks evenly.
    pub(super) fn mixed(self, block: u64) -> u64 {
        let odd = 0x9E37_79B9_7F4A_7C15_u64;
        let file = self.inode ^ u64::from(self.device).rotate_left(40);
        let mixed =
            file.wrapping_mul(odd) ^ block.wrapping_add(1).wrapping_mul(odd.rotate_left(17));
        mixed ^ mixed >> 29
    }
}

/// Where the files with the memory are: a file system without a disk, which ends with the system.
pub const CONTROL_DIRECTORY: &str = "/dev/shm";
/// Length of the name of such a file.
pub const CONTROL_NAME_BYTES: usize = 34;

pub(super) fn hexadecimal(mut number: u64, into: &mut [u8]) {
    for digit in into.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// A file of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Which file.
    pub key: FileKey,
    /// Its first cell in the map.
    pub first: u32,
    /// How many blocks it had when the snapshot was made; the last one may be a part of one.
    pub blocks: u32,
    /// Its link.
    pub link: FileLink,
    /// Whether only those who take part in the protocol may change it.
    pub is_watched: bool,
}

/// The link that keeps a file: a number in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLink {
    /// Which of the snapshot's directories of links.
    pub directory: u32,
    /// The name there.
    pub name: u32,
}

/// The index has no room for one more file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFull;

/// How many records an index of so many files has.
pub fn index_records(files: u32) -> Option<u32> {
    files.max(8).checked_mul(2)?.checked_next_power_of_two()
}

/// When a snapshot ends; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// More pages than this were preserved into it and all newer snapshots.
    pub pages: u32,
    /// The moment, in seconds since 1970.
    pub until: u32,
    /// Less than this stays free on the disk of the store, in MiB.
    pub free_mib: u32,
}

/// A snapshot's entry in the table.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    memory: Memory<'a>,
    at: usize,
    index: u32,
}

impl<'a> Snapshot<'a> {
    /// The entry at this place of the table.
    pub fn at(memory: Memory<'a>, index: u32) -> Option<Self> {
        (index < SNAPSHOTS_MAX).then(|| Self {
            memory,
            at: SNAPSHOTS_AT + index as usize * SNAPSHOT_WORDS,
            index,
        })
    }

    /// The entry that a link names; `None` at the end of the list.
    pub(super) fn linked(memory: Memory<'a>, link: u32) -> Option<Self> {
        Self::at(memory, link.checked_sub(1)?)
    }

    /// The snapshot with this number, if it is in the table.
    pub fn numbered(memory: Memory<'a>, number: u32) -> Option<Self> {
        let mut entries = (0..SNAPSHOTS_MAX).filter_map(|index| Self::at(memory, index));
        entries.find(|it| it.state() != Phase::Free && it.number() == number)
    }

    /// Its place in the table.
    pub const fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn link(&self) -> u32 {
        self.index + 1
    }

    /// What it is at the moment.
    pub fn state(&self) -> Phase {
        Phase::of(self.get(STATE))
    }

    pub(super) fn set_state(&self, state: Phase) {
        self.set(STATE, state as u32);
    }

    /// Changes the state; false if it was another one than `old`.
    pub(super) fn change_state(&self, old: Phase, new: Phase) -> bool {
        self.memory.replace(self.at + STATE, old as u32, new as u32)
    }

    /// Its number. A newer snapshot has a greater one.
    pub fn number(&self) -> u32 {
        self.get(NUMBER)
    }

    /// Why it was lost, and the system's error number if there was one.
    pub fn cause(&self) -> (Cause, i32) {
        let errno = i32::from_le_bytes(self.get(ERRNO).to_le_bytes());
        (Cause::of(self.get(CAUSE)), errno)
    }

    pub(super) fn set_cause(&self, cause: Cause, errno: i32) {
        self.set(ERRNO, u32::from_le_bytes(errno.to_le_bytes()));
        self.set(CAUSE, cause as u32);
    }

    /// How many pages were preserved into it.
    pub fn preserved(&self) -> u32 {
        self.get(PRESERVED)
    }

    pub(super) fn note_preserved(&self) {
        self.memory.add(self.at + PRESERVED);
    }

    /// When it ends.
    pub fn limits(&self) -> Limits {
        Limits {
            pages: self.get(LIMIT_PAGES),
            until: self.get(LIMIT_UNTIL),
            free_mib: self.get(LIMIT_FREE),
        }
    }

    /// Sets when it ends.
    pub fn set_limits(&self, limits: &Limits) {
        self.set(LIMIT_PAGES, limits.pages);
        self.set(LIMIT_UNTIL, limits.until);
        self.set(LIMIT_FREE, limits.free_mib);
    }

    /// A number that tells a durable snapshot from every other; 0 if it is not durable.
    pub fn tag(&self) -> u64 {
        self.long(TAG)
    }

    /// Makes it durable. Nobody may see it yet.
    pub fn set_tag(&self, tag: u64) {
        self.set_long(TAG, tag);
    }

    /// Whether it is to outlive a power cut.
    pub fn is_durable(&self) -> bool {
        self.tag() != 0
    }

    /// Whether its creation was completed. If not, and nobody is making it, it must go.
    pub fn is_complete(&self) -> bool {
        self.get(COMPLETE) != 0
    }

    /// Says that its creation is complete.
    pub fn complete(&self) {
        self.set(COMPLETE, 1);
    }

    /// The next older snapshot.
    pub fn older(&self) -> Option<Self> {
        Self::linked(self.memory, self.older_link())
    }

    pub(super) fn older_link(&self) -> u32 {
        self.get(OLDER)
    }

    pub(super) fn set_older(&self, link: u32) {
        self.set(OLDER, link);
    }

    /// Prepares an entry that is being built: where its index and its map are, in words of the
    /// memory. All these words must be zero.
    pub fn prepare(&self, number: u32, index: (u64, u32), map: (u64, u32)) {
        self.set(NUMBER, number);
        self.set(OLDER, 0);
        self.set_cause(Cause::Unknown, 0);
        self.set(PRESERVED, 0);
        self.set(COMPLETE, 0);
        self.set_limits(&Limits::default());
        self.set_tag(0);
        self.set_long(INDEX_AT, index.0);
        self.set(INDEX_RECORDS, index.1);
        self.set_long(MAP_AT, map.0);
        self.set(MAP_CELLS, map.1);
    }

    /// The words of its index, and those of its map: from where, and how many.
    pub fn extents(&self) -> [(u64, u64); 2] {
        let records = u64::from(self.get(INDEX_RECORDS)) * FILE_WORDS as u64;
        [
            (self.long(INDEX_AT), records),
            (self.long(MAP_AT), u64::from(self.get(MAP_CELLS))),
        ]
    }

    /// Adds a file to the index of an entry that is being built.
    pub fn add(&self, record: &FileRecord) -> Result<(), IndexFull> {
        for at in self.places(record.key) {
            if self.record_at(at).is_some() {
                continue;
            }
            self.memory.store(at + DEVICE, record.key.device);
            self.write_record(at, record);
            let [low, high] = halves(record.key.inode);
            self.memory.store(at + INODE + 1, high);
            self.memory.store(at + INODE, low);
            return Ok(());
        }
        Err(IndexFull)
    }

    /// Changes the record of a file in an entry that is being built. False if it has none.
    pub fn change(&self, record: &FileRecord) -> bool {
        for at in self.places(record.key) {
            match self.record_at(at) {
                None => return false,
                Some(found) if found.key == record.key => {
                    self.write_record(at, record);
                    return true;
                }
                Some(_) => {}
            }
        }
        false
    }

    fn write_record(&self, at: usize, record: &FileRecord) {
        self.memory.store(at + FIRST, record.first);
        self.memory.store(at + BLOCKS, record.blocks);
        self.memory
            .store(at + LINK_DIRECTORY, record.link.directory);
        self.memory.store(at + LINK_NAME, record.link.name);
        self.memory
            .store(at + WATCHED, u32::from(record.is_watched));
    }

    /// Marks a file as met in this turn. False if the file is not in the index, or if everybody may
    /// change it.
    pub fn meet(&self, key: FileKey, turn: u32) -> bool {
        for at in self.places(key) {
            match self.record_at(at) {
                None => return false,
                Some(found) if found.key == key => {
                    if found.is_watched {
                        self.memory.store(at + WATCHED, met(turn));
                    }
                    return found.is_watched;
                }
                Some(_) => {}
            }
        }
        false
    }

    /// Whether every watched file was met in this turn.
    pub fn has_met_all(&self, turn: u32) -> bool {
        let [(at, words), _] = self.extents();
        let mut records = 0..words / FILE_WORDS as u64;
        records.all(|record| {
            let word = at.checked_add(record * FILE_WORDS as u64);
            let at = word.and_then(|word| usize::try_from(word).ok());
            at.is_none_or(|at| {
                let mark = self.memory.load(at + WATCHED);
                mark & 1 == 0 || mark == met(turn) || self.record_at(at).is_none()
            })
        })
    }

    /// The file's record, if the snapshot has the file.
    pub fn find(&self, key: FileKey) -> Option<FileRecord> {
        for at in self.places(key) {
            let record = self.record_at(at)?;
            if record.key == key {
                return Some(record);
            }
        }
        None
    }

    /// All files, in no order.
    pub fn files(&self) -> impl Iterator<Item = FileRecord> + use<'a> {
        let [(at, words), _] = self.extents();
        let records = words / FILE_WORDS as u64;
        let this = *self;
        (0..records).filter_map(move |record| {
            let at = at.checked_add(record * FILE_WORDS as u64)?;
            this.record_at(usize::try_from(at).ok()?)
        })
    }

    /// A word of its index, counted from the first one.
    pub fn index_word(&self, word: u64) -> u32 {
        self.index_at(word).map_or(0, |at| self.memory.load(at))
    }

    /// Sets a word of its index. Nobody may see the snapshot yet.
    pub fn set_index_word(&self, word: u64, value: u32) {
        if let Some(at) = self.index_at(word) {
            self.memory.store(at, value);
        }
    }

    fn index_at(&self, word: u64) -> Option<usize> {
        usize::try_from(self.long(INDEX_AT).checked_add(word)?).ok()
    }

    /// Where the record of a file may be, in the order of the search.
    fn places(&self, key: FileKey) -> impl Iterator<Item = usize> + use<> {
        let records = self.get(INDEX_RECORDS);
        let mask = u64::from(records.saturating_sub(1));
        let (start, first) = (self.long(INDEX_AT), key.mixed(0));
        (0..u64::from(records)).filter_map(move |step| {
            let record = first.wrapping_add(step) & mask;
            usize::try_from(start.checked_add(record * FILE_WORDS as u64)?).ok()
        })
    }

    fn record_at(&self, at: usize) -> Option<FileRecord> {
        let word = |field: usize| self.memory.load(at + field);
        let inode = whole(word(INODE), word(INODE + 1));
        (inode != 0).then(|| FileRecord {
            key: FileKey {
                device: word(DEVICE),
                inode,
            },
            first: word(FIRST),
            blocks: word(BLOCKS),
            link: FileLink {
                directory: word(LINK_DIRECTORY),
                name: word(LINK_NAME),
            },
            is_watched: word(WATCHED) & 1 != 0,
        })
    }

    /// Where the cell of a block is; `None` if the snapshot does not have the block.
    pub(super) fn cell_at(&self, record: &FileRecord, block: u64) -> Option<usize> {
        if block >= u64::from(record.blocks) {
            return None;
        }
        let cell = u64::from(record.first) + block;
        if cell >= u64::from(self.get(MAP_CELLS)) {
            return None;
        }
        usize::try_from(self.long(MAP_AT).checked_add(cell)?).ok()
    }

    /// Where the cell of a block of this file is; `None` if the snapshot does not have the block.
    pub(super) fn cell_of(&self, key: FileKey, block: u64) -> Option<usize> {
        self.cell_at(&self.find(key)?, block)
    }

    /// The cell of a block; `None` if the snapshot does not have the block.
    pub(super) fn cell(&self, record: &FileRecord, block: u64) -> Option<Cell> {
        Some(Cell(self.memory.load(self.cell_at(record, block)?)))
    }

    /// The slot of a block in this snapshot alone.
    pub fn slot(&self, record: &FileRecord, block: u64) -> Option<Slot> {
        self.cell(record, block)?.slot()
    }

    fn get(&self, field: usize) -> u32 {
        self.memory.load(self.at + field)
    }

    fn set(&self, field: usize, value: u32) {
        self.memory.store(self.at + field, value);
    }

    fn long(&self, field: usize) -> u64 {
        whole(self.get(field), self.get(field + 1))
    }

    fn set_long(&self, field: usize, value: u64) {
        let [low, high] = halves(value);
        self.set(field, low);
        self.set(field + 1, high);
    }
}

/// The mark of a watched file that was met.
fn met(turn: u32) -> u32 {
    turn << 1 | 1
}

fn whole(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}
