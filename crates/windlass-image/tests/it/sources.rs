//! Any image can be backed up: what is restored is what the image shows.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{Codec, FileEntry, FileKind, FileTable};
use windlass_engine::{
    BackupRun, BufferRequest, Cancel, DirectoryTarget, EngineError, RestoreOptions, TargetLayout,
    restore,
};
use windlass_image::{
    Change, CompareOptions, Creation, DirectoryImage, EditedImage, Image, ImageError, ImageSource,
    ImageView, NodeNo, Overlay, Patch, SetImage, View, ViewImage, compare,
};
use windlass_testkit::runs::{self, facts};

use crate::support::*;

const CODECS: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd(1)];

fn tree() -> Tree {
    vec![
        ("base/1/a".into(), text(1_300_000, 1)),
        ("base/1/holes".into(), holes()),
        ("base/empty".into(), vec![]),
        ("one".into(), vec![1]),
        ("pg_control".into(), text(8192, 3)),
    ]
}

/// A megabyte of zeros, a page, and zeros again.
fn holes() -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    bytes.extend(text(8192, 5));
    bytes.resize(3 << 20, 0);
    bytes
}

fn begin(dir: &Path, codec: Codec) -> BackupRun {
    let setup = runs::Setup {
        stripes: 2,
        codec,
        ..runs::Setup::default()
    };
    runs::begin(&setup, runs::file_devices(dir, &setup), &Cancel::new()).unwrap()
}

/// Backs an image up; what is restored from the set must equal the image.
fn assert_comes_back(image: Arc<dyn Image>, codec: Codec) {
    let dir = tempfile::tempdir().unwrap();
    let source = ImageSource::new(Arc::clone(&image));
    let mut run = begin(dir.path(), codec);
    source.push(&mut run).unwrap();
    run.drain().unwrap();
    let files = source.files(&run).unwrap();
    run.finish(files, facts()).unwrap();
    let into = dir.path().join("into");
    let restored = restored(dir.path(), &into);
    for other in [&restored as &dyn Image, &open(dir.path())] {
        let differences = compare(&*image, other, &CompareOptions::default()).unwrap();
        assert!(differences.is_empty(), "{differences:?}");
        assert_eq!(modes(&*image), modes(other));
    }
}

fn modes(image: &dyn Image) -> Vec<(Vec<u8>, u32, i64)> {
    let files = image.files().0.iter();
    let of_file = |entry: &&FileEntry| entry.kind == FileKind::File;
    let mut modes: Vec<_> = files
        .filter(of_file)
        .map(|entry| (entry.path.clone(), entry.mode, entry.mtime_nanos))
        .collect();
    modes.sort_unstable();
    modes
}

fn restored(dir: &Path, into: &Path) -> DirectoryImage {
    let set = open_set(dir);
    let layout = TargetLayout {
        root: into.to_owned(),
        files: set.description().files.clone(),
        ..TargetLayout::default()
    };
    let target = DirectoryTarget::create(layout).unwrap();
    let options = RestoreOptions {
        plan: BufferRequest::default().plan(1, 1).unwrap(),
        device_rate: None,
        ring: true,
        pacing: None,
    };
    let options = options.fit(&set).unwrap();
    restore(&set, &target, &options, &Arc::default(), &Cancel::new()).unwrap();
    DirectoryImage::open(into).unwrap()
}

/// A set whose files have upper layers, and gaps between their numbers.
fn layered() -> (tempfile::TempDir, SetImage) {
    let dir = tempfile::tempdir().unwrap();
    let patches = [
        (0, 65_536, text(100_000, 8), 1),
        (0, 131_072, text(65_536, 9), 2),
    ];
    back_up(&tree(), &patches, dir.path(), &Setup::default());
    let image = open(dir.path());
    (dir, image)
}

#[test]
fn a_set_with_layers_is_backed_up_and_comes_back() {
    for codec in CODECS {
        let (_dir, image) = layered();
        assert_comes_back(Arc::new(image), codec);
    }
}

#[test]
fn a_directory_is_backed_up_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    plant(&tree(), dir.path());
    symlink("base/1/a", dir.path().join("link")).unwrap();
    std::fs::create_dir(dir.path().join("nothing")).unwrap();
    for codec in CODECS {
        let image = DirectoryImage::open(dir.path()).unwrap();
        assert_comes_back(Arc::new(image), codec);
    }
}

#[test]
fn an_edited_image_is_backed_up_with_its_edits() {
    let (_dir, image) = layered();
    let mut files = image.files().clone();
    let file = files.0.iter().position(|entry| entry.path == b"base/1/a");
    let number = files.0[file.unwrap()].file;
    files.0[file.unwrap()].bytes = 1_000_001;
    files.0.retain(|entry| entry.path != b"one");
    let patch = Patch {
        file: number,
        offset: 999_990,
        bytes: vec![0xEE; 100],
    };
    let edited = EditedImage::new(Arc::new(image), files, vec![patch]);
    assert_comes_back(Arc::new(edited), Codec::Zstd(1));
}

#[test]
fn an_overlay_is_backed_up_with_its_changes() {
    let (dir, image) = layered();
    let overlay = Overlay::create(Arc::new(image), &dir.path().join("overlay")).unwrap();
    let root = NodeNo::ROOT;
    let creation = Creation {
        kind: FileKind::File,
        mode: 0o600,
        owner: (0, 0),
        link_target: b"",
    };
    let new = overlay.create(root, b"new", &creation).unwrap().node;
    overlay.write(new, 20_000, b"far behind a hole").unwrap();
    let one = overlay.lookup(root, b"one").unwrap().node;
    overlay.write(one, 0, b"changed").unwrap();
    overlay.link(one, (root, b"second name")).unwrap();
    let base = overlay.lookup(root, b"base").unwrap().node;
    let nested = overlay.lookup(base, b"1").unwrap().node;
    let cut = Change {
        bytes: Some(70_003),
        ..Change::default()
    };
    let a = overlay.lookup(nested, b"a").unwrap().node;
    overlay.change(a, &cut).unwrap();
    overlay.unlink(root, b"pg_control").unwrap();
    let view = ViewImage::open(Arc::new(overlay)).unwrap();
    assert_comes_back(Arc::new(view), Codec::Lz4);
}

#[test]
fn a_view_lists_what_its_image_lists() {
    let (_dir, image) = layered();
    let image = Arc::new(image);
    let view = ViewImage::open(Arc::new(ImageView::new(Arc::clone(&image) as _))).unwrap();
    let differences = compare(&*image, &view, &CompareOptions::default()).unwrap();
    assert!(differences.is_empty(), "{differences:?}");
}

#[test]
fn a_file_that_is_removed_from_a_view_can_still_be_read() {
    let (dir, image) = layered();
    let place = dir.path().join("overlay");
    let overlay = Arc::new(Overlay::create(Arc::new(image), &place).unwrap());
    let view = ViewImage::open(Arc::clone(&overlay) as Arc<dyn View>).unwrap();
    overlay.unlink(NodeNo::ROOT, b"one").unwrap();
    let files = view.files().0.iter();
    let one = files.clone().find(|entry| entry.path == b"one").unwrap();
    let mut byte = [0];
    assert_eq!(view.read(one.file, 0, &mut byte).unwrap(), 1);
    assert_eq!(byte, [1]);
    let control = files.clone().find(|entry| entry.path == b"pg_control");
    let node = overlay.lookup(NodeNo::ROOT, b"pg_control").unwrap().node;
    let cut = Change {
        bytes: Some(10),
        ..Change::default()
    };
    overlay.change(node, &cut).unwrap();
    let read = view.read(control.unwrap().file, 0, &mut [0; 20]);
    assert!(matches!(
        read,
        Err(ImageError::Shrunk {
            found_bytes: 10,
            ..
        })
    ));
}

/// Zeros of a set are in its index. They are not fetched, and take no room in the new set.
#[test]
fn holes_are_not_fetched_and_not_stored() {
    let tree: Tree = vec![("holes".into(), holes())];
    for codec in CODECS {
        let (_dir, image) = image_of(&tree, &Setup::default());
        let image = Arc::new(image);
        let dir = tempfile::tempdir().unwrap();
        let source = ImageSource::new(Arc::clone(&image) as _);
        let mut run = begin(dir.path(), codec);
        source.push(&mut run).unwrap();
        run.drain().unwrap();
        let files = source.files(&run).unwrap();
        let report = run.finish(files, facts()).unwrap();
        let fetched = image.statistics().decoded_bytes;
        assert!(fetched <= 3 * 64 * 1024, "{fetched} bytes decoded");
        assert!(
            report.bytes_written < 256 * 1024,
            "{}",
            report.bytes_written
        );
    }
}

#[test]
fn a_damaged_image_fails_the_backup_and_names_the_file() {
    let (from, image) = image_of(&tree(), &Setup::default());
    // The first frame of each stripe follows the header.
    flip(&stripe_path(from.path(), 0), 4096 + 100);
    flip(&stripe_path(from.path(), 1), 4096 + 100);
    let dir = tempfile::tempdir().unwrap();
    let source = ImageSource::new(Arc::new(image));
    let mut run = begin(dir.path(), Codec::Lz4);
    let error = source.push(&mut run).and_then(|()| run.drain());
    drop(run);
    let error = error.unwrap_err();
    let EngineError::SourceIo { path, source, .. } = &error else {
        panic!("{error}")
    };
    assert!(tree().iter().any(|(name, _)| Path::new(name) == path));
    let inner = source.get_ref().and_then(|inner| inner.downcast_ref());
    assert!(matches!(inner, Some(ImageError::Read { .. })), "{error}");
    assert!(error.is_damage(), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Every piece of the set passes its own checksum, but the set says something else of the file.
#[test]
fn a_file_whose_parts_do_not_belong_together_fails_the_backup() {
    let (from, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut run = begin(from.path(), Codec::Lz4);
    run.push(runs::bytes_spec(7, &text(10_000, 1))).unwrap();
    let mut entry = entry(7, FileKind::File, "one", 10_000);
    entry.flags.crc_known = true;
    entry.crc32c = 1;
    run.finish(FileTable(vec![entry]), facts()).unwrap();
    let source = ImageSource::new(Arc::new(open(from.path())));
    let mut run = begin(dir.path(), Codec::Lz4);
    source.push(&mut run).unwrap();
    run.drain().unwrap();
    let error = source.files(&run).unwrap_err();
    let wrong =
        matches!(&error, ImageError::FileChecksum { path, expected: 1, .. } if path == "one");
    assert!(wrong, "{error}");
}
