//! Files taken out of a set by pattern.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_engine::media::{FileEntry, FileKind, FileNo, FileTable};
use windlass_engine::{Cancel, EngineError};
use windlass_image::{
    DirectoryImage, EXTRACT_FLUSH_BYTES, EXTRACT_GROUP_BYTES, ExtractReport, Image, ImageError,
    extract,
};
use windlass_testkit::plain_names::PlainNames;

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

/// An image of files full of ones, which notes each read and does something at each.
struct Ones<F> {
    files: FileTable,
    reads: AtomicU64,
    at_read: F,
}

impl<F: Fn(u64) + Send + Sync> Ones<F> {
    fn new(count: u32, bytes: u64, at_read: F) -> Self {
        let entry = |number| FileEntry {
            bytes,
            ..entry(number, FileKind::File, &format!("f{number}"), 0)
        };
        Self {
            files: FileTable((0..count).map(entry).collect()),
            reads: AtomicU64::new(0),
            at_read,
        }
    }

    fn cancelled(&self, cancel: &Cancel) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        let error = extract(self, &["**".into()], dir.path(), cancel).unwrap_err();
        let is_cancel = matches!(error, ImageError::Engine(EngineError::Cancelled));
        assert!(is_cancel, "{error}");
        assert_eq!(names(dir.path()), Vec::<String>::new());
        self.reads.load(Ordering::SeqCst)
    }
}

impl<F: Fn(u64) + Send + Sync> Image for Ones<F> {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        (self.at_read)(offset);
        let left = self.files.0[file.0 as usize].bytes - offset;
        let length = into.len().min(left as usize);
        into[..length].fill(1);
        Ok(length)
    }
}

#[test]
fn a_cancelled_extract_takes_no_further_file_and_no_further_group() {
    for (count, bytes) in [(50, 1000), (1, 50 << 20)] {
        let cancel = Cancel::new();
        let image = Ones::new(count, bytes, |_| cancel.cancel());
        assert_eq!(image.cancelled(&cancel), 1, "{count} files");
    }
}

/// Otherwise the last sync would wait for the whole file, and so would whoever cancels.
#[test]
fn what_is_not_durable_yet_is_bounded_while_a_large_file_is_written() {
    let target = PlainNames::mount();
    let bytes = 4 * EXTRACT_FLUSH_BYTES;
    let last = bytes - EXTRACT_GROUP_BYTES as u64;
    let image = Ones::new(1, bytes, |offset| {
        // Three flushes were begun by then, and each begins when the one before it has ended.
        assert!(offset < last || target.syncs() >= 2, "{}", target.syncs());
    });
    let into = target.path("out");
    extract(&image, &["**".into()], &into, &Cancel::new()).unwrap();
    assert_eq!(into.join("f0").metadata().unwrap().len(), bytes);
}

/// So a kill at any moment leaves no file that looks complete.
#[test]
fn a_file_has_its_name_only_when_it_is_complete() {
    for bytes in [1000, 3 << 20] {
        let place = tempfile::tempdir().unwrap();
        let into = place.path().join("out");
        let image = Ones::new(1, bytes, |_| assert!(!into.join("f0").exists()));
        extract(&image, &["**".into()], &into, &Cancel::new()).unwrap();
        let left: Vec<_> = std::fs::read_dir(&into).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(into.join("f0").metadata().unwrap().len(), bytes);
    }
}

#[test]
fn what_a_killed_extract_left_goes_and_nothing_else_does() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let left = [".f0.18f-7-0.windlass-tmp", ".other.18f-7-1.windlass-tmp"];
    let mine = ["f0.windlass-tmp", ".f0.mine.windlass-tmp", "f1"];
    for name in left.iter().chain(&mine) {
        std::fs::write(at(name), "half").unwrap();
    }
    // A file system without hard links reserves the name before that.
    let reserved = "Windlass reserves this name. The content is still in this file: ";
    std::fs::write(at("f0"), format!("{reserved}{}\n", left[0])).unwrap();
    let image = Ones::new(1, 1000, |_| ());
    extract(&image, &["**".into()], place.path(), &Cancel::new()).unwrap();
    assert_eq!(std::fs::read(at("f0")).unwrap(), [1; 1000]);
    assert!(left.iter().all(|name| !at(name).exists()));
    assert!(mine.iter().all(|name| at(name).exists()));
}

/// There are no hard links and no rename that refuses to replace, for example on FAT.
#[test]
fn a_file_gets_its_name_where_no_rename_refuses_to_replace() {
    let target = PlainNames::mount();
    let into = target.path("out");
    let image = Ones::new(2, 1000, |_| ());
    extract(&image, &["**".into()], &into, &Cancel::new()).unwrap();
    assert_eq!(std::fs::read(into.join("f1")).unwrap(), [1; 1000]);
    let again = extract(&image, &["**".into()], &into, &Cancel::new()).unwrap_err();
    assert!(again.to_string().contains("f0"), "{again}");
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 2);
}
