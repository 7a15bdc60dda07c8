//! The map of changes: which parts of which files count as changed, and since when.

use std::sync::atomic::AtomicU32;

use windlass_layout::hook::{
    AREA_BYTES_AT, FileKey, MapShape, Memory, begin_map, end_map, forget_map, is_changed,
    is_mapping, map_extent, map_mark, mark_changed, next_generation,
};

const UNIT: u64 = 8192;
const CELLS_LOG2: u32 = 12;
const SHAPE: MapShape = MapShape {
    cells_log2: CELLS_LOG2,
    unit_log2: 13,
};
const AT: u64 = AREA_BYTES_AT / 4;

fn words() -> Vec<AtomicU32> {
    let count = usize::try_from(AT).unwrap() + (1 << CELLS_LOG2);
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

fn file(inode: u64) -> FileKey {
    FileKey::new(8, 1, inode)
}

/// Which of the first hundred parts of a file count as changed.
fn changed(memory: Memory<'_>, since: u32, key: FileKey) -> Vec<u64> {
    let is_new = |part: &u64| is_changed(memory, since, key, (part * UNIT, (part + 1) * UNIT));
    (0..100).filter(is_new).collect()
}

#[test]
fn what_is_written_counts_from_its_generation_on() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    mark_changed(memory, file(5), 0, UNIT);
    assert!(!is_mapping(memory));
    let first = begin_map(memory, AT, SHAPE, 0xABCD_0123_4567).unwrap();
    assert_eq!((first.epoch, first.generation), (0xABCD_0123_4567, 1));
    assert_eq!(changed(memory, 1, file(5)), []);
    // A byte counts for the whole part, and so does one behind a border.
    mark_changed(memory, file(5), 7 * UNIT - 1, 8 * UNIT + 1);
    mark_changed(memory, file(5), 3, 3);
    assert_eq!(changed(memory, 1, file(5)), [6, 7, 8]);
    assert_eq!(changed(memory, 1, file(6)), []);
    let second = next_generation(memory).unwrap();
    assert_eq!((second.epoch, second.generation), (first.epoch, 2));
    mark_changed(memory, file(5), 8 * UNIT, 9 * UNIT);
    assert_eq!(changed(memory, 2, file(5)), [8]);
    assert_eq!(changed(memory, 1, file(5)), [6, 7, 8]);
    assert_eq!(map_mark(memory), Some(second));
}

#[test]
fn more_parts_than_cells_all_count_as_changed() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    begin_map(memory, AT, SHAPE, 1);
    mark_changed(memory, file(5), 0, u64::MAX);
    assert_eq!(changed(memory, 1, file(5)).len(), 100);
    // Whoever shares the cells counts, too.
    assert_eq!(changed(memory, 1, file(6)).len(), 100);
    assert_eq!(changed(memory, 2, file(6)), []);
}

#[test]
fn a_map_that_has_ended_knows_nothing_and_keeps_its_words_until_they_are_freed() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    begin_map(memory, AT, SHAPE, 1);
    end_map(memory);
    mark_changed(memory, file(5), 0, UNIT);
    assert_eq!((map_mark(memory), next_generation(memory)), (None, None));
    assert_eq!(map_extent(memory), Some((AT, 1 << CELLS_LOG2)));
    assert_eq!(changed(memory, 1, file(5)), []);
    forget_map(memory);
    assert_eq!(map_extent(memory), None);
    // Nobody can say that anything is as it was.
    assert_eq!(changed(memory, 1, file(5)).len(), 100);
}
