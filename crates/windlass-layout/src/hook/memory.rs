//! The shared memory: its words, and where each is.
//!
//!   header | path of the store | processes | readers | locks | snapshots | area: indexes and maps
//!
//! The first words never move, so that a library of another version can say that it was there.

use super::cell::SLOTS_END;
use crate::crc::crc32c;
use crate::sync::{
    AREA_ALIGNED, AtomicU32, HEADER_WORDS, LOCKS, Ordering, PROCESSES, READERS, SNAPSHOTS,
};

/// The first word: the memory is that of a write hook.
pub const MAGIC: u32 = u32::from_le_bytes(*b"WLHK");
/// The version of this layout.
pub const VERSION: u32 = 8;
/// How many snapshots a database can have.
pub const SNAPSHOTS_MAX: u32 = SNAPSHOTS;
/// The length of the memory's file. Only what is in use of it takes memory.
pub const CONTROL_BYTES: u64 = 1 << 36;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 1;
/// Not 0 if a library of another version was loaded: it has a memory of its own.
const FOREIGN_AT: usize = 2;
/// Where that word is, in bytes.
pub const FOREIGN_BYTES_AT: u64 = FOREIGN_AT as u64 * 4;
/// Where the map of changes begins, in pages of memory.
pub(super) const MAP_AT: usize = 3;
pub(super) const MAP_SHAPE_AT: usize = 4;
pub(super) const GENERATION_AT: usize = 5;
/// Two words.
pub(super) const EPOCH_AT: usize = 6;
const PAGE_BYTES_AT: usize = 8;
const STARTS_AT: usize = 9;
const CONTROL_CRC_AT: usize = 10;
/// Two words.
const CLUSTER_AT: usize = 11;
/// Where the identity of the cluster begins, in bytes.
pub const CLUSTER_BYTES_AT: u64 = CLUSTER_AT as u64 * 4;
/// Two words.
pub(super) const LAST_AT: usize = 13;
pub(super) const OUTSIDE_UNTIL_AT: usize = 15;
pub(super) const PAUSE_AT: usize = 16;
pub(super) const BROKEN_AT: usize = 17;
pub(super) const NEWEST_AT: usize = 18;
pub(super) const OUTSIDERS_AT: usize = 19;
const NEXT_SLOT_AT: usize = 20;
const STORE_AT: usize = 21;
const CHANGES_AT: usize = 22;
const NEXT_NUMBER_AT: usize = 23;
/// Two words.
pub(super) const JOURNAL_AT: usize = 24;
pub(super) const JOURNAL_ENTRIES_AT: usize = 26;
pub(super) const JOURNAL_NEXT_AT: usize = 27;
pub(super) const JOURNAL_SPOILED_AT: usize = 28;
const FIRST_PROCESS_AT: usize = 29;
const STORE_IDENTITY_AT: usize = 30;
const PATH_BYTES_AT: usize = 31;
const PATH_AT: usize = 32;
const PATH_WORDS: usize = HEADER_WORDS / 2 - 1;
/// Not 0 if somebody may write whom the map of changes does not see.
pub(super) const BLIND_AT: usize = PATH_AT + PATH_WORDS;
pub(super) const PROCESSES_AT: usize = HEADER_WORDS;
/// A cache line each, because every write of a process changes its words.
pub(super) const PROCESS_WORDS: usize = 16;
pub(super) const READERS_AT: usize = PROCESSES_AT + PROCESSES as usize * PROCESS_WORDS;
pub(super) const READER_WORDS: usize = 2;
pub(super) const LOCKS_AT: usize = READERS_AT + READERS * READER_WORDS;
pub(super) const SNAPSHOTS_AT: usize = LOCKS_AT + LOCKS;
pub(super) const SNAPSHOT_WORDS: usize = 32;
const AREA_AT: usize =
    (SNAPSHOTS_AT + SNAPSHOTS_MAX as usize * SNAPSHOT_WORDS).next_multiple_of(AREA_ALIGNED);
/// Where indexes and maps begin, in bytes. All before it is allocated when the memory is made.
pub const AREA_BYTES_AT: u64 = AREA_AT as u64 * 4;

const _: () = assert!(BLIND_AT < PROCESSES_AT);
const _: () = assert!(AREA_AT.is_multiple_of(AREA_ALIGNED));

/// What a snapshot is for its writers and readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The entry is not in use.
    Free,
    /// The controller fills it. Nobody else looks at it.
    Building,
    /// Writers preserve pages into it.
    Active,
    /// Its pages go to older snapshots. Nothing new comes in.
    Draining,
    /// A page is missing, so nobody may read it.
    Lost,
}

impl Phase {
    pub(super) const fn of(word: u32) -> Self {
        match word {
            1 => Self::Building,
            2 => Self::Active,
            3 => Self::Draining,
            4 => Self::Lost,
            _ => Self::Free,
        }
    }
}

/// Why a snapshot was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is no cause, or one of a newer version.
    Unknown,
    /// The store has no room, or no more slots.
    StoreFull,
    /// The store cannot be opened or written.
    Store,
    /// A page of the source cannot be read.
    Source,
    /// A lock did not become free.
    Lock,
    /// Somebody else wrote to the data directory: the server ran without the hook, or with another
    /// version of it.
    Unseen,
    /// The controller gave it up.
    Limit,
    /// It had more pages than it was to have.
    Size,
    /// It became as old as it was to become.
    Age,
    /// The disk of the store had less free space than was to be kept.
    Free,
    /// A file that the server removed could not be kept.
    Name,
    /// Somebody else changed a file while no server ran.
    Changed,
}

impl Cause {
    pub(super) const fn of(word: u32) -> Self {
        match word {
            1 => Self::StoreFull,
            2 => Self::Store,
            3 => Self::Source,
            4 => Self::Lock,
            5 => Self::Unseen,
            6 => Self::Limit,
            7 => Self::Size,
            8 => Self::Age,
            9 => Self::Free,
            10 => Self::Name,
            11 => Self::Changed,
            _ => Self::Unknown,
        }
    }
}

/// What tells the file of a store from every other, also from one that gets the number of its
/// inode: `born` is when it was made, in nanoseconds, and 0 if its file system does not say that.
/// The device is no part of it: a disk may get another number when it is mounted again. Nor is the
/// owner: a file system may show another one than the user who made the file.
pub fn identity_of_store(inode: u64, born: i64) -> u32 {
    let of_inode = crc32c(&inode.to_le_bytes());
    (of_inode ^ crc32c(&born.to_le_bytes()).rotate_left(1)).max(1)
}

/// The words of the shared memory.
///
/// What every write of the server asks is marked `inline`, here and in the modules beside: the
/// hook's library is an rlib, too, and for such a one cargo does not optimise across crates.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    words: &'a [AtomicU32],
}

impl<'a> Memory<'a> {
    /// The memory with these words; `None` if they are too few.
    #[inline]
    pub fn new(words: &'a [AtomicU32]) -> Option<Self> {
        (words.len() >= AREA_AT).then_some(Self { words })
    }

    /// Makes words of zeros the memory of a hook. The magic number comes last.
    pub fn format(&self, page_bytes: u32) {
        self.store(VERSION_AT, VERSION);
        self.store(PAGE_BYTES_AT, page_bytes);
        self.store(MAGIC_AT, MAGIC);
    }

    /// Whether a hook of this version made it.
    pub fn is_of_this_version(&self) -> bool {
        self.load(MAGIC_AT) == MAGIC && self.load(VERSION_AT) == VERSION
    }

    /// Not 0 if a library of another version was loaded. Nobody sees what its server writes.
    pub fn foreign(&self) -> u32 {
        self.load(FOREIGN_AT)
    }

    /// Bytes of a page; 0 until the first snapshot says it.
    #[inline]
    pub fn page_bytes(&self) -> u32 {
        self.load(PAGE_BYTES_AT)
    }

    /// Sets the size of pages. No snapshot may exist.
    pub fn set_page_bytes(&self, bytes: u32) {
        self.store(PAGE_BYTES_AT, bytes);
    }

    /// Notes a start of the server.
    pub fn note_start(&self) {
        self.add(STARTS_AT);
    }

    /// How often a server with the hook has started.
    pub fn starts(&self) -> u32 {
        self.load(STARTS_AT)
    }

    /// The first process of the last server that has begun to see writes.
    pub fn first_process(&self) -> u32 {
        self.load(FIRST_PROCESS_AT)
    }

    /// Says that a server sees writes from now on.
    pub fn set_first_process(&self, pid: u32) {
        self.store(FIRST_PROCESS_AT, pid);
    }

    /// The CRC-32C of pg_control as the hook saw it last.
    pub fn control_crc(&self) -> u32 {
        self.load(CONTROL_CRC_AT)
    }

    /// Sets the CRC-32C of pg_control.
    pub fn set_control_crc(&self, crc: u32) {
        self.store(CONTROL_CRC_AT, crc);
    }

    /// The identity of the cluster; 0 if no server has told it yet.
    pub fn cluster(&self) -> u64 {
        u64::from(self.load(CLUSTER_AT)) | u64::from(self.load(CLUSTER_AT + 1)) << 32
    }

    /// Tells the identity of the cluster.
    pub fn set_cluster(&self, identity: u64) {
        let [a, b, c, d, rest @ ..] = identity.to_le_bytes();
        self.store(CLUSTER_AT, u32::from_le_bytes([a, b, c, d]));
        self.store(CLUSTER_AT + 1, u32::from_le_bytes(rest));
    }

    /// Changes when a snapshot comes or goes.
    pub fn changes(&self) -> u32 {
        self.load(CHANGES_AT)
    }

    pub(super) fn note_change(&self) {
        self.add(CHANGES_AT);
    }

    /// The number for the next snapshot. Numbers are never used twice.
    pub fn take_number(&self) -> u32 {
        self.add(NEXT_NUMBER_AT).wrapping_add(1)
    }

    /// The newest snapshot's place in the table + 1; 0 if there is none.
    #[inline]
    pub fn newest(&self) -> u32 {
        self.load(NEWEST_AT)
    }

    /// The next slot of the store that nobody has used; how long the store is follows from it.
    pub fn next_slot(&self) -> u32 {
        self.load(NEXT_SLOT_AT)
    }

    /// Takes a slot of the store; `None` if it has no more.
    pub(super) fn take_slot(&self) -> Option<u32> {
        let word = self.word(NEXT_SLOT_AT)?;
        let next = |slot: u32| (slot < SLOTS_END).then(|| slot + 1);
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
            .ok()
    }

    /// Which store is in use. It changes with every new store.
    pub fn store_version(&self) -> u32 {
        self.load(STORE_AT)
    }

    /// Says where the pages go from now on, in an empty store. No snapshot may exist. Returns false
    /// if the path is too long.
    pub fn set_store(&self, path: &[u8]) -> bool {
        let Ok(length) = u32::try_from(path.len()) else {
            return false;
        };
        // The last byte stays zero, so that the path ends.
        if path.len() >= PATH_WORDS * 4 {
            return false;
        }
        for (word, four) in (PATH_AT..).zip(path.chunks(4)) {
            let mut bytes = [0; 4];
            bytes[..four.len()].copy_from_slice(four);
            self.store(word, u32::from_le_bytes(bytes));
        }
        self.store(PATH_BYTES_AT, length);
        self.store(STORE_IDENTITY_AT, 0);
        self.store(NEXT_SLOT_AT, 0);
        self.add(STORE_AT);
        true
    }

    /// What tells the file of the store from another one with its name; 0 if nobody has said it.
    pub fn store_identity(&self) -> u32 {
        self.load(STORE_IDENTITY_AT)
    }

    /// Says what tells the file of the store from another one. It follows [`Memory::set_store`].
    pub fn set_store_identity(&self, identity: u32) {
        self.store(STORE_IDENTITY_AT, identity);
    }

    /// Copies the path of the store; returns its length. 0 if there is none or no room for it.
    pub fn store_path(&self, into: &mut [u8]) -> usize {
        let length = self.load(PATH_BYTES_AT) as usize;
        if length >= PATH_WORDS * 4 || length >= into.len() {
            return 0;
        }
        for (word, four) in (PATH_AT..).zip(into[..length].chunks_mut(4)) {
            let bytes = self.load(word).to_le_bytes();
            four.copy_from_slice(&bytes[..four.len()]);
        }
        length
    }

    /// Goes on with the store of snapshots that were found again: the last number that was given
    /// to a snapshot, and how many slots were used.
    pub fn go_on(&self, number: u32, slots: u32) {
        self.store(NEXT_NUMBER_AT, number);
        self.store(NEXT_SLOT_AT, slots);
    }

    #[inline]
    pub(super) fn word(&self, at: usize) -> Option<&'a AtomicU32> {
        self.words.get(at)
    }

    #[inline]
    pub(super) fn load(&self, at: usize) -> u32 {
        self.word(at).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    #[inline]
    pub(super) fn store(&self, at: usize, value: u32) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::SeqCst);
        }
    }

    /// Adds 1 and returns the value before.
    #[inline]
    pub(super) fn add(&self, at: usize) -> u32 {
        self.word(at)
            .map_or(0, |word| word.fetch_add(1, Ordering::SeqCst))
    }

    #[inline]
    pub(super) fn subtract(&self, at: usize) {
        if let Some(word) = self.word(at) {
            word.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Replaces `old` by `new`; false if the word holds something else.
    #[inline]
    pub(super) fn replace(&self, at: usize, old: u32, new: u32) -> bool {
        self.word(at).is_some_and(|word| {
            word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        })
    }
}
