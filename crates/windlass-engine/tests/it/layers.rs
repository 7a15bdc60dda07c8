//! Newer versions of ranges lie in higher layers: what is restored is the newest of every byte.

use std::sync::Arc;

use proptest::prelude::*;
use windlass_engine::media::{Codec, FileEntry, FileFlags, FileNo, FileTable, crc32c};
use windlass_engine::{Cancel, EngineError, FileContent, Mismatch};

use crate::support::*;

const FRAME: usize = 4096;

/// What happens to a file between one copy and the next.
#[derive(Clone, Debug)]
struct Change {
    /// The length of the file at that time.
    bytes: usize,
    /// Frames that are written again: (first, count).
    ranges: Vec<(usize, usize)>,
    seed: u8,
}

fn change() -> impl Strategy<Value = Change> {
    let ranges = proptest::collection::vec((0usize..60, 1usize..12), 0..5);
    (1usize..250_000, ranges, 1u8..255).prop_map(|(bytes, ranges, seed)| Change {
        bytes,
        ranges,
        seed,
    })
}

/// The frames of a change as byte ranges. They do not overlap, lie inside the file, and cover
/// everything by which it grew.
fn byte_ranges(change: &Change, before: usize) -> Vec<(usize, usize)> {
    let frames = change.bytes.div_ceil(FRAME);
    let mut touched = vec![false; frames];
    for (first, count) in &change.ranges {
        (*first..first + count)
            .filter(|frame| *frame < frames)
            .for_each(|f| touched[f] = true);
    }
    (before / FRAME..frames).for_each(|frame| touched[frame] = true);
    // A database that becomes shorter notes that in its first page.
    touched[0] |= !touched.contains(&true);
    let touched = touched.iter().enumerate().filter(|(_, touched)| **touched);
    touched
        .map(|(frame, _)| (frame * FRAME, ((frame + 1) * FRAME).min(change.bytes)))
        .collect()
}

fn layered(base: &[u8], changes: &[Change], codec: Codec) -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::small(2, codec);
    setup.request.frame_bytes = Some(FRAME);
    let mut run = begin(&setup, file_devices(dir.path(), &setup), &Cancel::new()).unwrap();
    // A second file has no layers, so its checksum is still checked.
    let beside = plain(5000, 9);
    run.push(bytes_spec(1, &beside)).unwrap();
    run.push(bytes_spec(0, base)).unwrap();
    run.drain().unwrap();
    let mut now = base.to_vec();
    for (layer, change) in (1u8..).zip(changes) {
        let ranges = byte_ranges(change, now.len());
        now.resize(change.bytes, 0);
        for (start, end) in &ranges {
            now[*start..*end].fill(change.seed);
            now[*start] = layer;
        }
        let content = FileContent::Bytes(Arc::from(now.as_slice()));
        let spec = spec(0, content, now.len());
        for (start, end) in ranges {
            run.push_range(&spec, start as u64, (end - start) as u64, layer)
                .unwrap();
        }
        run.drain().unwrap();
    }
    let known = FileFlags {
        last: false,
        crc_known: true,
    };
    let beside = FileEntry {
        flags: known,
        crc32c: crc32c(&beside),
        ..entry(1, "beside", beside.len())
    };
    let files = FileTable(vec![entry(0, "layered", now.len()), beside]);
    run.finish(files, facts()).unwrap();
    (dir, now)
}

fn assert_newest(base: &[u8], changes: &[Change], codec: Codec) {
    let (dir, expected) = layered(base, changes, codec);
    let set = verify(&[dir.path().to_owned()]).unwrap();
    let into = dir.path().join("into");
    bring_back(&set, &into).unwrap();
    let found = std::fs::read(into.join("layered")).unwrap();
    assert_eq!(found.len(), expected.len());
    let differs = found
        .iter()
        .zip(&expected)
        .position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "first byte that differs");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_newest_of_every_byte_is_restored(
        bytes in 1usize..250_000,
        changes in proptest::collection::vec(change(), 0..4),
        codec in prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd(1))],
    ) {
        assert_newest(&plain(bytes, 77), &changes, codec);
    }
}

#[test]
fn what_a_shrunken_file_still_has_of_its_last_frame_is_restored() {
    // The last frame of the base crosses the final end of the file, and no newer range covers it.
    let change = Change {
        bytes: 3 * FRAME + 100,
        ranges: vec![(0, 1)],
        seed: 5,
    };
    for codec in [Codec::None, Codec::Zstd(1)] {
        assert_newest(
            &plain(10 * FRAME + 7, 3),
            std::slice::from_ref(&change),
            codec,
        );
    }
}

/// How many ranges are copied again, and how far apart they begin.
const RANGES: u64 = 800_000;
const STRIDE: u64 = 96;
const RANGE_BYTES: u64 = 16;

/// As a list, the ranges would take 19 to 26 MB, and ten million changed pages of a database 240 to
/// 320. What is kept of them takes 17 at most.
#[test]
fn a_set_with_very_many_upper_ranges_is_read_within_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup {
        stripes: 3,
        codec: Codec::Lz4,
        ..Setup::default()
    };
    setup.request.transfer_bytes = Some(1 << 20);
    let length = (RANGES * STRIDE) as usize;
    let older: Arc<[u8]> = plain(length, 1).into();
    let newer: Arc<[u8]> = plain(length, 2).into();
    let of = |bytes: &Arc<[u8]>| spec(0, FileContent::Bytes(Arc::clone(bytes)), length);
    let mut run = begin(&setup, file_devices(dir.path(), &setup), &Cancel::new()).unwrap();
    run.push(of(&older)).unwrap();
    run.drain().unwrap();
    for range in 0..RANGES {
        run.push_range(&of(&newer), range * STRIDE, RANGE_BYTES, 1)
            .unwrap();
    }
    run.drain().unwrap();
    // The last layer lies over some of them.
    for range in (0..RANGES).step_by(1000) {
        run.push_range(&of(&older), range * STRIDE, RANGE_BYTES / 2, 2)
            .unwrap();
    }
    run.finish(FileTable(vec![entry(0, "f", length)]), facts())
        .unwrap();
    let mut expected = older.to_vec();
    for range in 0..RANGES {
        let replaced = if range % 1000 == 0 {
            RANGE_BYTES / 2
        } else {
            0
        };
        let bytes = (range * STRIDE + replaced) as usize..(range * STRIDE + RANGE_BYTES) as usize;
        expected[bytes.clone()].copy_from_slice(&newer[bytes]);
    }
    let set = open(&[stripe_path(dir.path(), 0)]).unwrap();
    let upper = &set.upper_layers().unwrap()[0];
    let near = upper
        .near(FileNo(0), 1000 * STRIDE, 1001 * STRIDE + 1)
        .unwrap();
    let near: Vec<_> = near
        .iter()
        .map(|it| (it.start / STRIDE, it.layer))
        .collect();
    assert_eq!(near, [(1000, 2), (1000, 1), (1001, 1)]);
    let into = dir.path().join("into");
    bring_back(&set, &into).unwrap();
    assert!(std::fs::read(into.join("f")).unwrap() == expected);
    // Look at ranges all over, so that the cache is as full as it gets.
    for range in (0..RANGES).step_by(997) {
        let from = range * STRIDE;
        assert!(!upper.near(FileNo(0), from, from + 1).unwrap().is_empty());
    }
    let most = 17 << 20;
    assert!(upper.memory_bytes() < most, "{}", upper.memory_bytes());
    // So does who asks for the file.
    let asked = &set.asked_layers().unwrap()[0];
    for range in (0..RANGES).step_by(997) {
        let from = range * STRIDE;
        let near = asked.near(FileNo(0), from, from + 1).unwrap();
        assert!(!near.unwrap().is_empty());
    }
    assert!(asked.memory_bytes() < most, "{}", asked.memory_bytes());
}

#[test]
fn a_file_that_shrank_and_grew_again_has_its_new_end() {
    let changes = [
        Change {
            bytes: 2 * FRAME + 10,
            ranges: vec![(1, 1)],
            seed: 5,
        },
        Change {
            bytes: 9 * FRAME + 10,
            ranges: vec![],
            seed: 6,
        },
        Change {
            bytes: 4 * FRAME + 1,
            ranges: vec![(4, 1)],
            seed: 7,
        },
    ];
    assert_newest(&plain(6 * FRAME, 3), &changes, Codec::Lz4);
}

/// A set of one file with three frames. `entry` says something else about the file.
fn told_otherwise(entry: FileEntry, layer: Option<u8>) -> EngineError {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(1, Codec::Zstd(1));
    let mut run = begin(&setup, file_devices(dir.path(), &setup), &Cancel::new()).unwrap();
    let file = bytes_spec(0, &plain(3 * FRAME, 1));
    run.push(file.clone()).unwrap();
    if let Some(layer) = layer {
        run.push_range(&file, 0, FRAME as u64, layer).unwrap();
    }
    run.finish(FileTable(vec![entry]), facts()).unwrap();
    verify(&[dir.path().to_owned()]).unwrap_err()
}

/// What does not add up in a set.
fn mismatch(error: EngineError) -> Mismatch {
    match error {
        EngineError::Incomplete { what, .. } => what,
        error => panic!("{error}"),
    }
}

#[test]
fn a_piece_beyond_the_end_of_a_file_without_layers_is_refused() {
    let error = told_otherwise(entry(0, "f", 3 * FRAME - 1), None);
    assert!(matches!(mismatch(error), Mismatch::PieceBeyond { .. }));
}

#[test]
fn bytes_that_never_came_are_missed() {
    for layer in [None, Some(1)] {
        let error = told_otherwise(entry(0, "f", 3 * FRAME + 1), layer);
        let found = mismatch(error);
        let is_missed = matches!(found, Mismatch::TooLong { .. } | Mismatch::FileBytes { .. });
        assert!(is_missed, "{found}");
    }
}

#[test]
fn the_checksum_of_a_file_without_layers_is_compared() {
    let flags = FileFlags {
        last: false,
        crc_known: true,
    };
    let right = FileEntry {
        flags,
        crc32c: crc32c(&plain(3 * FRAME, 1)),
        ..entry(0, "f", 3 * FRAME)
    };
    let wrong = FileEntry {
        crc32c: right.crc32c ^ 1,
        ..right
    };
    let error = told_otherwise(wrong, None);
    assert!(matches!(mismatch(error), Mismatch::FileChecksum { .. }));
}

#[test]
fn the_outcome_is_that_of_the_first_layer() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(1, Codec::Lz4);
    let mut run = begin(&setup, file_devices(dir.path(), &setup), &Cancel::new()).unwrap();
    let base = plain(3 * FRAME, 1);
    run.push(bytes_spec(0, &base)).unwrap();
    run.push_range(&bytes_spec(0, &plain(3 * FRAME, 2)), 0, FRAME as u64, 1)
        .unwrap();
    run.drain().unwrap();
    assert_eq!(run.outcome(FileNo(0)).unwrap().crc32c, crc32c(&base));
    assert_eq!(run.outcome(FileNo(1)), None);
}
