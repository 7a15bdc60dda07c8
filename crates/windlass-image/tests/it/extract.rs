//! Files taken out of a set by pattern.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use windlass_engine::Cancel;
use windlass_image::{DirectoryImage, ExtractReport, Image, ImageError, extract};

use crate::support::*;

fn tree() -> Tree {
    vec![
        ("PG_VERSION".into(), b"17\n".to_vec()),
        ("base/1/1259".into(), text(1_000, 1)),
        ("base/5/16384".into(), text(5_300_000, 2)),
        ("base/5/16384.1".into(), text(400_000, 3)),
        ("base/5/16385".into(), vec![0; 3_000_000]),
        ("global/1260".into(), vec![]),
    ]
}

fn take(image: &dyn Image, patterns: &[&str], into: &Path) -> Result<ExtractReport, ImageError> {
    let patterns: Vec<_> = patterns
        .iter()
        .map(|pattern| (*pattern).to_owned())
        .collect();
    extract(image, &patterns, into, &Cancel::new())
}

fn names(root: &Path) -> Vec<String> {
    let image = DirectoryImage::open(root).unwrap();
    let files = image
        .files()
        .0
        .iter()
        .filter(|entry| entry.bytes > 0 || entry.mode & 0o100 == 0);
    files.map(|entry| entry.path_lossy()).collect()
}

#[test]
fn what_matches_is_written_and_nothing_else() {
    let tree = tree();
    let (dir, image) = image_of(&tree, &Setup::default());
    let into = dir.path().join("out/here");
    let report = take(&image, &["base/5/16384*", "nothing/*"], &into).unwrap();
    assert_eq!((report.files, report.bytes), (2, 5_700_000));
    assert_eq!(report.unmatched, ["nothing/*"]);
    assert_eq!(names(&into), ["base/5/16384", "base/5/16384.1"]);
    for (name, bytes) in &tree[2..4] {
        let path = into.join(name);
        assert!(&std::fs::read(&path).unwrap() == bytes);
        let metadata = path.metadata().unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o600, 1));
    }
    // Each frame is read once, and nothing else is read.
    let statistics = image.statistics();
    let most = 5_300_000u64.div_ceil(65_536) + 400_000u64.div_ceil(65_536) + 2;
    assert!(statistics.frames_decoded <= most, "{statistics:?}");
}

#[test]
fn stars_stay_within_a_name_and_directories_take_what_they_hold() {
    let (dir, image) = image_of(&tree(), &Setup::default());
    for (number, (pattern, expected)) in [
        ("*", 6),
        ("*VERSION", 1),
        ("base/*", 4),
        ("base/5/", 3),
        ("./base/1", 1),
        ("**/1260", 1),
        ("base/5/16384", 1),
        ("1259", 0),
        ("base/5/1638[45]", 2),
    ]
    .into_iter()
    .enumerate()
    {
        let into = dir.path().join(format!("out{number}"));
        let report = take(&image, &[pattern], &into).unwrap();
        assert_eq!(report.files, expected, "{pattern}");
        assert_eq!(report.unmatched.is_empty(), expected > 0, "{pattern}");
    }
}

#[test]
fn zeros_become_holes() {
    let (dir, image) = image_of(&tree(), &Setup::default());
    let into = dir.path().join("out");
    take(&image, &["base/5/16385"], &into).unwrap();
    let metadata = into.join("base/5/16385").metadata().unwrap();
    assert_eq!((metadata.len(), metadata.blocks()), (3_000_000, 0));
}

#[test]
fn nothing_is_overwritten_and_no_link_followed() {
    let (dir, image) = image_of(&tree(), &Setup::default());
    let (into, elsewhere) = (dir.path().join("out"), dir.path().join("elsewhere"));
    plant(&vec![("PG_VERSION".into(), b"mine".to_vec())], &into);
    let error = take(&image, &["PG_VERSION"], &into).unwrap_err();
    assert!(
        matches!(
            &error,
            ImageError::Extract {
                operation: "create",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("overwrites no files"));
    assert_eq!(std::fs::read(into.join("PG_VERSION")).unwrap(), b"mine");

    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, into.join("base")).unwrap();
    assert!(take(&image, &["base/1/*"], &into).is_err());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_is_not_left_behind() {
    let tree = tree();
    let dir = tempfile::tempdir().unwrap();
    back_up(&tree, &[], dir.path(), &Setup::default());
    let image = open(dir.path());
    let blocks = index_blocks(image.set());
    // Finds the frame of a piece near the end of the large file.
    let frame = |(stripe, block): &(usize, windlass_engine::media::IndexBlock)| {
        let late = |pieces: &[windlass_engine::media::PieceEntry]| {
            pieces
                .iter()
                .any(|piece| piece.file.0 == 2 && piece.offset > 4_000_000)
        };
        block
            .iter()
            .find(|(_, pieces)| late(pieces))
            .map(|(frame, _)| (*stripe, frame.offset))
    };
    let (stripe, offset) = blocks.iter().find_map(frame).unwrap();
    flip(&stripe_path(dir.path(), stripe), offset);
    let into = dir.path().join("out");
    let error = take(&image, &["base/5/16384"], &into).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert!(names(&into).is_empty());
}

#[test]
fn links_are_counted_not_made_and_bad_patterns_named() {
    let dir = tempfile::tempdir().unwrap();
    let (root, into) = (dir.path().join("root"), dir.path().join("out"));
    plant(&vec![("a".into(), text(10, 1))], &root);
    symlink("/etc", root.join("b")).unwrap();
    let image = DirectoryImage::open(&root).unwrap();
    let report = take(&image, &["*"], &into).unwrap();
    assert_eq!((report.files, report.links_skipped), (1, 1));
    assert_eq!(names(&into), ["a"]);
    let error = take(&image, &["a[", "b"], &into).unwrap_err();
    assert!(error.to_string().starts_with("pattern a[:"), "{error}");
}
