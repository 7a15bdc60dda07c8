//! Comparing sets with directories, and sets with sets.

use std::os::unix::fs::{FileExt, symlink};

use windlass_engine::media::FileKind;
use windlass_image::{CompareOptions, DirectoryImage, ImageError, compare};

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
    // Two neighbouring pages, and one byte far behind them; a file that grew.
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
