//! Comparing sets with directories, and sets with sets.

use std::os::unix::fs::{FileExt, symlink};

use proptest::prelude::*;
use windlass_engine::media::{Codec, FileKind};
use windlass_image::{CompareOptions, Differences, DirectoryImage, Image, ImageError, compare};

use crate::support::*;

fn tree() -> Tree {
    vec![
        ("base/1".into(), text(2_500_000, 1)),
        ("base/2".into(), vec![0; 700_000]),
        ("base/3".into(), vec![]),
        ("pg_control".into(), text(8192, 3)),
    ]
}

#[test]
fn a_set_equals_the_directory_it_was_made_of() {
    let tree = tree();
    let (dir, image) = image_of(&tree, &Setup::default());
    plant(&tree, &dir.path().join("source"));
    let directory = DirectoryImage::open(&dir.path().join("source")).unwrap();
    let differences = compare(&image, &directory, &CompareOptions::default()).unwrap();
    assert!(differences.is_empty(), "{differences:?}");
}

#[test]
fn every_kind_of_difference_is_found() {
    let tree = tree();
    let (dir, image) = image_of(&tree, &Setup::default());
    let root = dir.path().join("source");
    plant(&tree, &root);
    let change = |name: &str, bytes: &[u8], offset: u64| {
        let file = std::fs::File::options()
            .write(true)
            .open(root.join(name))
            .unwrap();
        file.write_all_at(bytes, offset).unwrap();
    };
    // The changes: two neighbouring pages, one byte far behind them, and a file that grew.
    change("base/1", &vec![0xee; 8193], 81_920);
    change("base/1", &[!tree[0].1[2_000_000]], 2_000_000);
    change("base/2", &[0; 100], 700_000);
    std::fs::remove_file(root.join("base/3")).unwrap();
    std::fs::remove_file(root.join("pg_control")).unwrap();
    std::fs::create_dir(root.join("pg_control")).unwrap();
    plant(&vec![("new".into(), text(5, 5))], &root);
    let directory = DirectoryImage::open(&root).unwrap();
    let differences = compare(&image, &directory, &CompareOptions::default()).unwrap();
    assert_eq!(differences.only_first, [b"base/3".to_vec()]);
    assert_eq!(differences.only_second, [b"new".to_vec()]);
    let [one, two, control] = differences.differing.as_slice() else {
        panic!("{differences:?}")
    };
    assert_eq!(one.path, b"base/1");
    assert_eq!(one.ranges, [81_920..98_304, 1_998_848..2_007_040]);
    assert_eq!(one.differing_bytes, 3 * 8192);
    assert_eq!(two.bytes, (700_000, 700_100));
    assert_eq!(two.ranges.len(), 1);
    assert_eq!(two.ranges[0], 700_000..700_100);
    assert_eq!(control.kinds, (FileKind::File, FileKind::Directory));
}

#[test]
fn links_differ_by_where_they_point() {
    let dir = tempfile::tempdir().unwrap();
    let roots = [dir.path().join("a"), dir.path().join("b")];
    for (root, target) in roots.iter().zip(["/one", "/two"]) {
        std::fs::create_dir(root).unwrap();
        symlink(target, root.join("differs")).unwrap();
        symlink("/same", root.join("same")).unwrap();
    }
    let [a, b] = roots.map(|root| DirectoryImage::open(&root).unwrap());
    let differences = compare(&a, &b, &CompareOptions::default()).unwrap();
    assert_eq!(differences.differing.len(), 1);
    assert_eq!(differences.differing[0].path, b"differs");
}

#[test]
fn a_cancelled_comparison_stops() {
    let tree = tree();
    let (dir, image) = image_of(&tree, &Setup::default());
    plant(&tree, &dir.path().join("source"));
    let directory = DirectoryImage::open(&dir.path().join("source")).unwrap();
    let options = CompareOptions::default();
    options.cancel.cancel();
    let error = compare(&image, &directory, &options).unwrap_err();
    assert!(matches!(
        error,
        ImageError::Engine(windlass_engine::EngineError::Cancelled)
    ));
}

fn believing(page_bytes: u32) -> CompareOptions {
    CompareOptions {
        page_bytes,
        believe: |_| true,
        ..CompareOptions::default()
    }
}

/// Compares by checksums, and byte by byte. Asserts that both give the same result, and how much
/// the first one did not read.
fn both_ways(first: &dyn Image, second: &dyn Image, page_bytes: u32) -> Differences {
    let exact = CompareOptions {
        page_bytes,
        ..CompareOptions::default()
    };
    let exact = compare(first, second, &exact).unwrap();
    let quick = compare(first, second, &believing(page_bytes)).unwrap();
    assert_eq!(quick.differing, exact.differing);
    assert_eq!(quick.only_first, exact.only_first);
    assert_eq!(quick.only_second, exact.only_second);
    assert_eq!(exact.bytes_believed, 0);
    quick
}

/// The only range of the only file that differs.
fn only_range(found: &Differences) -> std::ops::Range<u64> {
    assert_eq!(found.differing.len(), 1, "{found:?}");
    assert_eq!(found.differing[0].ranges.len(), 1, "{found:?}");
    found.differing[0].ranges[0].clone()
}

#[test]
fn sets_of_the_same_bytes_are_compared_by_their_indexes_alone() {
    let tree = tree();
    let small = Setup {
        frame_bytes: 16 * 1024,
        codec: Codec::Lz4,
        stripes: 1,
        ..Setup::default()
    };
    let (_one, first) = image_of(&tree, &Setup::default());
    let (_other, second) = image_of(&tree, &small);
    let found = compare(&first, &second, &believing(8192)).unwrap();
    assert!(found.is_empty(), "{found:?}");
    let bytes: usize = tree.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((found.bytes_believed, found.bytes_read), (bytes as u64, 0));
    for image in [&first, &second] {
        assert_eq!(image.statistics().frames_decoded, 0);
    }
}

#[test]
fn a_directory_is_read_and_the_sets_frames_are_not() {
    let tree = tree();
    let (dir, image) = image_of(&tree, &Setup::default());
    let root = dir.path().join("source");
    plant(&tree, &root);
    let file = std::fs::File::options()
        .write(true)
        .open(root.join("base/1"))
        .unwrap();
    file.write_all_at(&[!tree[0].1[1_000_000]], 1_000_000)
        .unwrap();
    let directory = DirectoryImage::open(&root).unwrap();
    let found = both_ways(&image, &directory, 8192);
    assert_eq!(only_range(&found), 999_424..1_007_616);
    let before = image.statistics().decoded_bytes;
    let found = compare(&directory, &image, &believing(8192)).unwrap();
    assert_eq!(only_range(&found), 999_424..1_007_616);
    // Only one frame differs, and it has 64 KiB.
    assert_eq!(image.statistics().decoded_bytes - before, 65_536);
    assert_eq!(found.bytes_read, 65_536);
}

#[test]
fn what_a_newer_layer_replaced_is_not_believed() {
    let tree = tree();
    let (newer, place) = (text(20_000, 9), 300_000);
    let mut patched = tree.clone();
    patched[0].1[place..place + newer.len()].copy_from_slice(&newer);
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let patches = vec![(0, place as u64, newer, 1)];
    back_up(&tree, &[], dirs[0].path(), &Setup::default());
    back_up(&tree, &patches, dirs[1].path(), &Setup::default());
    back_up(&patched, &[], dirs[2].path(), &Setup::default());
    let [old, layered, new] = [0, 1, 2].map(|index| open(dirs[index].path()));
    // The pieces below the layer are those of the old set. They no longer say anything about the
    // file.
    let found = both_ways(&old, &layered, 8192);
    assert_eq!(only_range(&found), 294_912..327_680);
    assert!(both_ways(&layered, &new, 8192).is_empty());
    assert!(both_ways(&new, &layered, 8192).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn checksums_say_what_the_bytes_say(
        lengths in (1usize..400_000, 1usize..400_000),
        changes in proptest::collection::vec((0usize..400_000, any::<u8>()), 0..6),
        patches in proptest::collection::vec((0u64..6, 1usize..70_000), 0..4),
        frames in (12u32..18, 12u32..18),
        page in prop_oneof![Just(512u32), Just(4096), Just(8192), Just(65_536)],
    ) {
        let mut first: Tree = vec![("a".into(), text(lengths.0, 1)), ("same".into(), text(90_000, 4))];
        let mut second: Tree = vec![("a".into(), text(lengths.1, 1)), ("same".into(), text(90_000, 4))];
        for (at, byte) in changes {
            let at = at % second[0].1.len();
            second[0].1[at] = byte;
        }
        let mut layers: Vec<Patch> = patches
            .into_iter()
            .enumerate()
            .map(|(layer, (slot, bytes))| {
                let offset = (slot * 65_536).min(lengths.0 as u64 - 1);
                let bytes = text(bytes.min(lengths.0 - offset as usize), layer as u64 + 7);
                (0, offset, bytes, layer as u8 + 1)
            })
            .collect();
        layers.truncate(3);
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let setup = |frame: u32| Setup { frame_bytes: 1 << frame, ..Setup::default() };
        back_up(&first, &layers, dirs[0].path(), &setup(frames.0));
        back_up(&second, &[], dirs[1].path(), &setup(frames.1));
        let images = [open(dirs[0].path()), open(dirs[1].path())];
        both_ways(&images[0], &images[1], page);
        both_ways(&images[1], &images[0], page);
        for (_, offset, bytes, _) in &layers {
            let start = *offset as usize;
            first[0].1[start..start + bytes.len()].copy_from_slice(bytes);
        }
        plant(&first, &dirs[0].path().join("source"));
        let directory = DirectoryImage::open(&dirs[0].path().join("source")).unwrap();
        prop_assert!(both_ways(&images[0], &directory, page).is_empty());
        both_ways(&directory, &images[1], page);
    }
}

#[test]
fn a_file_that_goes_meanwhile_is_an_error_unless_the_image_is_live() {
    let tree = tree();
    let (dir, image) = image_of(&tree, &Setup::default());
    let root = dir.path().join("source");
    plant(&tree, &root);
    let directory = DirectoryImage::open(&root).unwrap();
    std::fs::remove_file(root.join("base/2")).unwrap();
    let short = std::fs::File::options()
        .write(true)
        .open(root.join("base/1"))
        .unwrap();
    short.set_len(1_500_000).unwrap();
    let error = compare(&image, &directory, &CompareOptions::default()).unwrap_err();
    assert!(error.is_vanished(), "{error}");
    let all: fn(&[u8]) -> bool = |_| true;
    for believe in [CompareOptions::default().believe, all] {
        let options = CompareOptions {
            live: true,
            believe,
            ..CompareOptions::default()
        };
        let found = compare(&image, &directory, &options).unwrap();
        assert_eq!(found.differing.len(), 2);
        let [shorter, gone] = [0, 1].map(|index| &found.differing[index]);
        assert!(shorter.unsteady && gone.unsteady);
        assert!(shorter.ranges[0].start <= 1_500_000 && shorter.ranges[0].end == 2_500_000);
        assert_eq!(gone.ranges.len(), 1);
        assert_eq!(gone.ranges[0], 0..700_000);
    }
}

#[test]
fn paths_to_be_skipped_are_in_no_list() {
    let (_one, first) = image_of(&tree(), &Setup::default());
    let mut other = tree();
    other[0].1[0] ^= 1;
    other.remove(3);
    other.push(("base/9".into(), text(10, 1)));
    let (_other, second) = image_of(&other, &Setup::default());
    let options = CompareOptions {
        skip: |path| path.starts_with(b"base/") || path == b"pg_control",
        ..CompareOptions::default()
    };
    assert!(compare(&first, &second, &options).unwrap().is_empty());
}

/// This is the trap for anyone who believes checksums: whatever such a file contains, its checksum
/// is the same.
#[test]
fn what_carries_its_own_checksum_behind_it_is_believed_only_where_told() {
    let sealed = |seed| {
        let mut bytes = text(508, seed);
        bytes.extend_from_slice(&windlass_engine::media::crc32c(&bytes).to_le_bytes());
        bytes
    };
    let tree = |seed| {
        vec![
            ("map".to_owned(), sealed(seed)),
            ("data".to_owned(), text(512, seed)),
        ]
    };
    let ((_one, first), (_other, second)) = (
        image_of(&tree(1), &Setup::default()),
        image_of(&tree(2), &Setup::default()),
    );
    let found = |believe: fn(&[u8]) -> bool| {
        let options = CompareOptions {
            believe,
            ..CompareOptions::default()
        };
        let found = compare(&first, &second, &options).unwrap();
        found
            .differing
            .into_iter()
            .map(|one| one.path)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found(|_| true),
        [b"data".to_vec()],
        "the map passes for the same"
    );
    assert_eq!(
        found(|path| path == b"data"),
        [b"data".to_vec(), b"map".to_vec()]
    );
}
