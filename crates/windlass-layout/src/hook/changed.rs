//! The map of changes: in which generation each part of each file was written last.
//!
//!   backup     next generation --grace--> reads files        a later one: which cells are newer?
//!   writers    cell of (file, part) = generation --> call
//!
//! A backup begins a generation before it reads the first file, and remembers its number. What was
//! written later has a cell with this number or a higher one, whoever wrote it and why. So a later
//! backup reads these parts only, and takes the rest from the earlier one.
//!
//! Each generation has a random identity, in a table behind the cells. A machine that is set back
//! together with its memory gives a number a second time, to other content, with another identity.
//!
//!   cell ... cell | identity of 1 | identity of 2 | ...
//!
//! A cell is found by device, inode and part. Several parts may share one. Then more counts as
//! changed than was changed, and never less. So the map has a size that never changes.
//!
//! Invariants
//! - A writer sets the cells before its call, while it is inside. A cell never goes back.
//! - After a grace nobody writes under an older generation.
//! - Whatever a name leads to was marked when it grew, when it was cut off, and when it got that
//!   name.
//! - A server that starts ends the map: nobody saw what was written while none ran.
//! - If somebody may write who is not seen, the map is blind until a server starts: it has ended,
//!   and no map that somebody begins meanwhile counts.

use super::memory::{BLIND_AT, EPOCH_AT, GENERATION_AT, MAP_AT, MAP_SHAPE_AT, Memory};
use super::snapshot::FileKey;
use crate::sync::{AREA_ALIGNED, Ordering};

const UNIT_SHIFT: u32 = 8;
const LOG2_MASK: u32 = 0xFF;
/// More than any memory has.
const LOG2_MAX: u32 = 32;
/// How many generations a map has.
const GENERATIONS_MAX: u32 = 4096;
const IDENTITY_WORDS: u64 = 2;

/// How large a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    /// The logarithm of the number of cells. Each is a word.
    pub cells_log2: u32,
    /// The logarithm of the bytes of a part of a file.
    pub unit_log2: u32,
}

impl MapShape {
    /// How many words a map of this shape has.
    pub const fn words(self) -> u64 {
        (1 << self.cells_log2) + GENERATIONS_MAX as u64 * IDENTITY_WORDS
    }
}

/// A generation of one map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapMark {
    /// Which map; no two have the same number.
    pub epoch: u64,
    /// The generation, from 1 on.
    pub generation: u32,
    /// Tells it from another one with its number.
    pub identity: u64,
}

/// Begins a map in words of zeros, which begin at a multiple of a page of memory. After a grace,
/// every write is marked. Both numbers are random.
pub fn begin_map(
    memory: Memory<'_>,
    at: u64,
    shape: MapShape,
    (epoch, identity): (u64, u64),
) -> Option<MapMark> {
    let at = u32::try_from(at / AREA_ALIGNED as u64).ok()?;
    let [a, b, c, d, rest @ ..] = epoch.to_le_bytes();
    memory.store(MAP_AT, at);
    memory.store(
        MAP_SHAPE_AT,
        shape.cells_log2 | shape.unit_log2 << UNIT_SHIFT,
    );
    memory.store(EPOCH_AT, u32::from_le_bytes([a, b, c, d]));
    memory.store(EPOCH_AT + 1, u32::from_le_bytes(rest));
    set_identity(memory, 1, identity);
    memory.store(GENERATION_AT, 1);
    map_mark(memory)
}

/// Begins the next generation, with a random identity; `None` if there is no map, or if it has no
/// more generations. After a grace, every write is marked with it.
pub fn next_generation(memory: Memory<'_>, identity: u64) -> Option<MapMark> {
    let mark = map_mark(memory)?;
    let next = mark.generation + 1;
    if next > GENERATIONS_MAX {
        return None;
    }
    set_identity(memory, next, identity);
    // A server that starts meanwhile ends the map, and it must stay ended.
    memory
        .replace(GENERATION_AT, mark.generation, next)
        .then_some(MapMark {
            generation: next,
            identity,
            ..mark
        })
}

/// Ends the map for as long as this server runs: somebody may write who is not seen.
pub fn blind_map(memory: Memory<'_>) {
    memory.store(BLIND_AT, 1);
    end_map(memory);
}

/// Whether somebody may write who is not seen.
pub fn is_blind(memory: Memory<'_>) -> bool {
    memory.load(BLIND_AT) != 0
}

/// Says that a server starts of which every write is seen.
pub fn see_again(memory: Memory<'_>) {
    memory.store(BLIND_AT, 0);
}

/// Ends the map. Its words can be freed after a grace.
pub fn end_map(memory: Memory<'_>) {
    memory.store(GENERATION_AT, 0);
}

/// Says that the words of a map that has ended are free.
pub fn forget_map(memory: Memory<'_>) {
    memory.store(MAP_SHAPE_AT, 0);
}

/// The generation that is being marked; `None` if there is no map.
pub fn map_mark(memory: Memory<'_>) -> Option<MapMark> {
    let generation = memory.load(GENERATION_AT);
    Some(MapMark {
        epoch: two_words(memory, EPOCH_AT),
        generation,
        identity: two_words(memory, identity_at(memory, generation)?),
    })
}

/// Whether a mark is that of a generation of the map that there is.
pub fn is_of_map(memory: Memory<'_>, mark: &MapMark) -> bool {
    let is_known = |now: MapMark| {
        now.epoch == mark.epoch
            && mark.generation <= now.generation
            && identity_at(memory, mark.generation)
                .is_some_and(|at| two_words(memory, at) == mark.identity)
    };
    !is_blind(memory) && map_mark(memory).is_some_and(is_known)
}

/// Where the identity of a generation is; `None` if there is no such one.
fn identity_at(memory: Memory<'_>, generation: u32) -> Option<usize> {
    let map = Map::of(memory)?;
    let number = generation
        .checked_sub(1)
        .filter(|number| *number < GENERATIONS_MAX)?;
    let at = map.at + map.mask + 1 + u64::from(number) * IDENTITY_WORDS;
    usize::try_from(at).ok()
}

fn set_identity(memory: Memory<'_>, generation: u32, identity: u64) {
    let Some(at) = identity_at(memory, generation) else {
        return;
    };
    let [a, b, c, d, rest @ ..] = identity.to_le_bytes();
    memory.store(at, u32::from_le_bytes([a, b, c, d]));
    memory.store(at + 1, u32::from_le_bytes(rest));
}

fn two_words(memory: Memory<'_>, at: usize) -> u64 {
    u64::from(memory.load(at)) | u64::from(memory.load(at + 1)) << 32
}

/// Where the words of a map are, and how many, also of one that has ended; `None` if there are
/// none.
pub fn map_extent(memory: Memory<'_>) -> Option<(u64, u64)> {
    let map = Map::of(memory)?;
    Some((
        map.at,
        map.mask + 1 + u64::from(GENERATIONS_MAX) * IDENTITY_WORDS,
    ))
}

/// Whether writes have to be marked.
#[inline]
pub fn is_mapping(memory: Memory<'_>) -> bool {
    memory.load(GENERATION_AT) != 0
}

/// Marks the bytes of a file from `from` up to `to`. Call it inside, before they change.
pub fn mark_changed(memory: Memory<'_>, key: FileKey, from: u64, to: u64) {
    let generation = memory.load(GENERATION_AT);
    if generation == 0 || from >= to {
        return;
    }
    let Some(map) = Map::of(memory) else {
        return end_map(memory);
    };
    for cell in map.cells(key, from, to) {
        let Some(word) = memory.word(cell) else {
            // What cannot be marked must not look unchanged.
            return end_map(memory);
        };
        // Most parts are written again and again in one generation.
        if word.load(Ordering::SeqCst) < generation {
            let newer = |old: u32| (old < generation).then_some(generation);
            // An error says that somebody has marked it with a newer one.
            word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, newer)
                .unwrap_or_default();
        }
    }
}

/// Whether any byte of a file from `from` up to `to` may have changed in this generation or a later
/// one.
pub fn is_changed(
    memory: Memory<'_>,
    generation: u32,
    key: FileKey,
    (from, to): (u64, u64),
) -> bool {
    let Some(map) = Map::of(memory) else {
        return true;
    };
    let mut cells = map.cells(key, from, to);
    cells.any(|cell| memory.word(cell).is_none() || memory.load(cell) >= generation)
}

/// Where the cells are.
struct Map {
    at: u64,
    /// The number of cells without one.
    mask: u64,
    unit_log2: u32,
}

impl Map {
    fn of(memory: Memory<'_>) -> Option<Self> {
        let shape = memory.load(MAP_SHAPE_AT);
        let (cells_log2, unit_log2) = (shape & LOG2_MASK, shape >> UNIT_SHIFT & LOG2_MASK);
        let is_sane = shape != 0 && cells_log2 <= LOG2_MAX && unit_log2 <= LOG2_MAX;
        is_sane.then(|| Self {
            at: u64::from(memory.load(MAP_AT)) * AREA_ALIGNED as u64,
            mask: (1 << cells_log2) - 1,
            unit_log2,
        })
    }

    /// The words of these bytes. Neighbours in a file have neighbouring words.
    fn cells(&self, key: FileKey, from: u64, to: u64) -> impl Iterator<Item = usize> {
        let (at, mask) = (self.at, self.mask);
        let first = from >> self.unit_log2;
        let last = to.saturating_sub(1).max(from) >> self.unit_log2;
        let count = last.wrapping_sub(first).min(mask);
        let start = mixed(key).wrapping_add(first);
        (0..=count).filter_map(move |step| {
            let cell = start.wrapping_add(step) & mask;
            usize::try_from(at.wrapping_add(cell)).ok()
        })
    }
}

/// A number in which every bit depends on every bit of the inode (the end of splitmix64). A file
/// system may get another device number while the server runs, if it is unmounted and mounted
/// again. Files of one number on two file systems share their marks.
fn mixed(key: FileKey) -> u64 {
    let mut bits = key.inode;
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}
