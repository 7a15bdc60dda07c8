//! The map of changes: in which generation each part of each file was written last.
//!
//!   backup     next generation --grace--> reads files        a later one: which cells are newer?
//!   writers    cell of (file, part) = generation --> call
//!
//! A backup begins a generation before it reads the first file, and remembers its number. What was
//! written later has a cell with this number or a higher one, whoever wrote it and why. So a later
//! backup reads these parts only, and takes the rest from the earlier one.
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

use super::memory::{EPOCH_AT, GENERATION_AT, MAP_AT, MAP_SHAPE_AT, Memory};
use super::snapshot::FileKey;
use crate::sync::{AREA_ALIGNED, Ordering};

const UNIT_SHIFT: u32 = 8;
const LOG2_MASK: u32 = 0xFF;
/// More than any memory has.
const LOG2_MAX: u32 = 32;

/// How large a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    /// The logarithm of the number of cells. Each is a word.
    pub cells_log2: u32,
    /// The logarithm of the bytes of a part of a file.
    pub unit_log2: u32,
}

/// A generation of one map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapMark {
    /// Which map; no two have the same number.
    pub epoch: u64,
    /// The generation, from 1 on.
    pub generation: u32,
}

/// Begins a map in words of zeros, which begin at a multiple of a page of memory. After a grace,
/// every write is marked.
pub fn begin_map(memory: Memory<'_>, at: u64, shape: MapShape, epoch: u64) -> Option<MapMark> {
    let at = u32::try_from(at / AREA_ALIGNED as u64).ok()?;
    let [a, b, c, d, rest @ ..] = epoch.to_le_bytes();
    memory.store(MAP_AT, at);
    memory.store(
        MAP_SHAPE_AT,
        shape.cells_log2 | shape.unit_log2 << UNIT_SHIFT,
    );
    memory.store(EPOCH_AT, u32::from_le_bytes([a, b, c, d]));
    memory.store(EPOCH_AT + 1, u32::from_le_bytes(rest));
    memory.store(GENERATION_AT, 1);
    map_mark(memory)
}

/// Begins the next generation; `None` if there is no map. After a grace, every write is marked with
/// it.
pub fn next_generation(memory: Memory<'_>) -> Option<MapMark> {
    let mark = map_mark(memory)?;
    // A server that starts meanwhile ends the map, and it must stay ended.
    let next = mark.generation.checked_add(1)?;
    memory
        .replace(GENERATION_AT, mark.generation, next)
        .then_some(MapMark {
            generation: next,
            ..mark
        })
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
    (generation != 0).then(|| MapMark {
        epoch: u64::from(memory.load(EPOCH_AT)) | u64::from(memory.load(EPOCH_AT + 1)) << 32,
        generation,
    })
}

/// Where the words of a map are, and how many, also of one that has ended; `None` if there are
/// none.
pub fn map_extent(memory: Memory<'_>) -> Option<(u64, u64)> {
    let map = Map::of(memory)?;
    Some((map.at, map.mask + 1))
}

/// Whether writes have to be marked.
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
