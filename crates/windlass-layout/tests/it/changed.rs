//! The map of changes: which parts of which files count as changed, and since when.

use std::sync::atomic::{AtomicU32, Ordering};

use windlass_layout::hook::{
    AREA_BYTES_AT, FileKey, MapShape, Memory, begin_map, blind_map, end_map, forget_map, is_blind,
    is_changed, is_mapping, is_of_map, map_extent, map_mark, mark_changed, next_generation,
    see_again,
};

const UNIT: u64 = 8192;
const CELLS_LOG2: u32 = 12;
const SHAPE: MapShape = MapShape {
    cells_log2: CELLS_LOG2,
    unit_log2: 13,
};
const AT: u64 = AREA_BYTES_AT / 4;

fn words() -> Vec<AtomicU32> {
    let count = usize::try_from(AT + SHAPE.words()).unwrap();
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
    let first = begin_map(memory, AT, SHAPE, (0xABCD_0123_4567, 1)).unwrap();
    assert_eq!((first.epoch, first.generation), (0xABCD_0123_4567, 1));
    assert_eq!(changed(memory, 1, file(5)), []);
    // A byte counts for the whole part, and so does one behind a border.
    mark_changed(memory, file(5), 7 * UNIT - 1, 8 * UNIT + 1);
    mark_changed(memory, file(5), 3, 3);
    assert_eq!(changed(memory, 1, file(5)), [6, 7, 8]);
    assert_eq!(changed(memory, 1, file(6)), []);
    let second = next_generation(memory, 2).unwrap();
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
    begin_map(memory, AT, SHAPE, (1, 1));
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
    begin_map(memory, AT, SHAPE, (1, 1));
    end_map(memory);
    mark_changed(memory, file(5), 0, UNIT);
    assert_eq!((map_mark(memory), next_generation(memory, 2)), (None, None));
    assert_eq!(map_extent(memory), Some((AT, SHAPE.words())));
    assert_eq!(changed(memory, 1, file(5)), []);
    forget_map(memory);
    assert_eq!(map_extent(memory), None);
    // Nobody can say that anything is as it was.
    assert_eq!(changed(memory, 1, file(5)).len(), 100);
}

/// A machine is set back to an earlier moment, with its memory.
#[test]
fn a_generation_that_came_again_is_another_one() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    let first = begin_map(memory, AT, SHAPE, (7, 11)).unwrap();
    let kept: Vec<u32> = words
        .iter()
        .map(|word| word.load(Ordering::SeqCst))
        .collect();
    let second = next_generation(memory, 12).unwrap();
    assert!(is_of_map(memory, &first) && is_of_map(memory, &second));
    for (word, kept) in words.iter().zip(kept) {
        word.store(kept, Ordering::SeqCst);
    }
    assert!(is_of_map(memory, &first) && !is_of_map(memory, &second));
    let again = next_generation(memory, 13).unwrap();
    assert_eq!(
        (again.epoch, again.generation),
        (second.epoch, second.generation)
    );
    assert!(is_of_map(memory, &again) && !is_of_map(memory, &second));
}

#[test]
fn a_map_has_a_limited_number_of_generations_and_ends_with_them() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    let mut marks = vec![begin_map(memory, AT, SHAPE, (7, 1)).unwrap()];
    while let Some(mark) = next_generation(memory, marks.len() as u64 * 3) {
        marks.push(mark);
    }
    assert_eq!(marks.len(), 4096);
    assert!(marks.iter().all(|mark| is_of_map(memory, mark)));
}

#[test]
fn a_map_that_is_blind_stays_so_until_a_server_starts() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    begin_map(memory, AT, SHAPE, (7, 1));
    blind_map(memory);
    assert_eq!(next_generation(memory, 2), None);
    let next = begin_map(memory, AT, SHAPE, (8, 1)).unwrap();
    assert!(is_blind(memory) && !is_of_map(memory, &next));
    see_again(memory);
    assert!(!is_blind(memory) && is_of_map(memory, &next));
}
