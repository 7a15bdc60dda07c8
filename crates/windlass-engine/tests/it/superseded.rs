//! Files that were copied and then taken out of the set: their bytes are there and do not count.

use std::sync::Arc;

use windlass_engine::media::{Codec, FileEntry, FileFlags, FileNo, FileTable, crc32c};
use windlass_engine::{Cancel, Discard, Progress, restore};

use crate::support::*;

/// A small file and a large one. Each is copied once, and then again under a new number.
fn copied_twice(
    codec: Codec,
    supersede: bool,
) -> (tempfile::TempDir, Vec<(&'static str, Vec<u8>)>) {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(2, codec);
    let mut run = begin(&setup, file_devices(dir.path(), &setup), &Cancel::new()).unwrap();
    for (number, bytes) in [(0, 300), (1, 700_000), (2, 5000)] {
        run.push(bytes_spec(number, &plain(bytes, 1))).unwrap();
    }
    run.drain().unwrap();
    let newer = vec![("small", plain(900, 2)), ("large", plain(500_000, 2))];
    let mut table = vec![FileEntry {
        crc32c: crc32c(&plain(5000, 1)),
        ..entry(2, "kept", 5000)
    }];
    for (number, (path, content)) in (3..).zip(&newer) {
        run.push(bytes_spec(number, content)).unwrap();
        table.push(FileEntry {
            crc32c: crc32c(content),
            ..entry(number, path, content.len())
        });
    }
    for entry in &mut table {
        entry.flags = FileFlags {
            last: false,
            crc_known: true,
        };
    }
    if supersede {
        run.supersede([FileNo(1), FileNo(0)]);
    }
    run.finish(FileTable(table), facts()).unwrap();
    (dir, newer)
}

#[test]
fn what_a_file_held_before_it_was_copied_again_is_not_restored() {
    for codec in [Codec::None, Codec::Zstd(1)] {
        let (dir, newer) = copied_twice(codec, true);
        let set = verify(&[dir.path().to_owned()]).unwrap();
        assert_eq!(set.description().superseded.len(), 2);
        let into = dir.path().join("into");
        bring_back(&set, &into).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(&into)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["kept", "large", "small"]);
        for (path, content) in newer {
            assert!(std::fs::read(into.join(path)).unwrap() == content, "{path}");
        }
    }
}

#[test]
fn the_total_of_a_restore_counts_what_was_copied_twice_from_the_start() {
    let (dir, _) = copied_twice(Codec::Zstd(1), true);
    let set = open(&[dir.path().to_owned()]).unwrap();
    let progress = Arc::<Progress>::default();
    let options = lean_options().fit(&set).unwrap();
    restore(&set, &Discard, &options, &progress, &Cancel::new()).unwrap();
    let whole = 300 + 700_000 + 5000 + 900 + 500_000;
    assert!(whole > set.file_bytes());
    assert_eq!((progress.done(), progress.total()), (whole, whole));
    // A restore that ends before its first frame knows as much.
    let (progress, cancel) = (Arc::<Progress>::default(), Cancel::new());
    cancel.cancel();
    restore(&set, &Discard, &options, &progress, &cancel).unwrap_err();
    assert!(progress.done() < whole && progress.total() == whole);
}

#[test]
fn a_piece_of_a_file_that_is_neither_listed_nor_superseded_is_damage() {
    let (dir, _) = copied_twice(Codec::Zstd(1), false);
    let error = verify(&[dir.path().to_owned()]).err().unwrap();
    let text = error.to_string();
    assert!(
        text.contains("is of a file the set does not list"),
        "{text}"
    );
}
