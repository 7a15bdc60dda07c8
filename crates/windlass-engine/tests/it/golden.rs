//! Golden media: sets written once by each version of the format, which must restore for ever.
//!
//! `testdata/media/v1/` holds a set for each codec and one to three stripes, and the files that
//! each must restore to. With WINDLASS_WRITE_GOLDEN set, sets that are not there are written: for
//! a new version of the format, never to make this test pass.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use windlass_engine::media::{Codec, FileEntry, FileFlags, FileKind, FileNo, FileTable};
use windlass_engine::{Cancel, Device};
use windlass_testkit::recording::{Recording, crash_image};

use crate::spread::*;
use crate::support::*;

const CODECS: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd(1)];
const LAYERED: usize = 9;
const MODE: u32 = 0o640;
const LINK: (&str, &str) = ("dir/link", "../large0");

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/media/v1")
}

/// The files as they were pushed first.
fn tree() -> Tree {
    let mut random = Random::new(2026);
    let files = [
        ("large0", plain(34_000, 1)),
        ("large1", plain(34_000, 2)),
        ("large2", plain(34_000, 4)),
        ("empty", Vec::new()),
        ("one byte", vec![1]),
        ("dir/page", random.noise(8192)),
        ("dir/odd", random.noise(777)),
        ("dir/deeper/zeros", vec![0; 20_000]),
        ("last", b"appears when all else is durable\n".to_vec()),
        ("layered", plain(12_288, 8)),
    ];
    files.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

/// The bytes of a file that a higher layer replaces.
fn newer() -> Vec<u8> {
    let mut bytes = plain(12_288, 8);
    bytes[4096..8192].fill(b'n');
    bytes
}

fn expected() -> Tree {
    let mut tree = tree();
    tree[LAYERED].1 = newer();
    tree
}

fn entries(tree: &Tree) -> FileTable {
    let plain_entry = |index: usize, name: &str, bytes: usize| FileEntry {
        mode: MODE,
        mtime_nanos: 1_700_000_000_000_000_000 + index as i64,
        ..entry(index, name, bytes)
    };
    let kind = |kind, index, name: &str| FileEntry {
        kind,
        ..plain_entry(index, name, 0)
    };
    let directories = ["dir", "dir/deeper", "dir/nothing"].into_iter().zip(20..);
    let directories = directories.map(|(name, index)| FileEntry {
        mode: 0o750,
        ..kind(FileKind::Directory, index, name)
    });
    let files = tree
        .iter()
        .enumerate()
        .map(|(index, (name, bytes))| FileEntry {
            flags: FileFlags {
                last: name == "last",
                crc_known: index != LAYERED,
            },
            crc32c: if index == LAYERED {
                0
            } else {
                windlass_engine::media::crc32c(bytes)
            },
            ..plain_entry(index, name, bytes.len())
        });
    let link_target = LINK.1.as_bytes().to_vec();
    let link = FileEntry {
        link_target,
        ..kind(FileKind::Symlink, 30, LINK.0)
    };
    FileTable(directories.chain(files).chain([link]).collect())
}

/// Writes one set. Its names reveal nothing about the machine.
fn write_set(dir: &Path, stripes: usize, codec: Codec) {
    let mut setup = Setup::small(stripes, codec);
    setup.page_frames = has_page_frames(dir);
    setup.request.compressors = Some(stripes);
    setup.request.buffers = Some(8);
    let recording = Recording::default();
    let name = |stripe| PathBuf::from(format!("set.{stripe}.windlass"));
    let device = |stripe| Box::new(recording.device(stripe, &name(stripe), 512)) as Box<dyn Device>;
    let devices = in_turn((0..stripes).map(device).collect());
    let mut run = begin(&setup, devices, &Cancel::new()).unwrap();
    run.set_hook(one_each(stripes));
    let tree = tree();
    let push = |(index, (_, bytes)): (usize, &(String, Vec<u8>))| {
        run.push(bytes_spec(index, bytes)).unwrap();
    };
    tree.iter().enumerate().for_each(push);
    run.push_range(&bytes_spec(LAYERED, &newer()), 4096, 4096, 1)
        .unwrap();
    run.drain().unwrap();
    assert!(!run.outcome(FileNo(0)).unwrap().vanished);
    run.finish(entries(&tree), facts()).unwrap();
    std::fs::create_dir_all(dir).unwrap();
    let acts = recording.acts();
    for stripe in 0..stripes {
        let (bytes, _) = crash_image(&acts, acts.len(), stripe, || true);
        write(&dir.join(name(stripe)), &bytes);
    }
}

fn sets() -> impl Iterator<Item = (PathBuf, usize, Codec)> {
    let stripes = |codec: Codec| (1..=3).map(move |count| (codec, count));
    let place = |(codec, count)| {
        let name = format!("{}-{count}", Codec::name(codec));
        (golden().join(name), count, codec)
    };
    let page_frames = (golden().join("zstd-page-frames-2"), 2, Codec::Zstd(1));
    let plain = CODECS.into_iter().flat_map(stripes).map(place);
    plain.chain([page_frames])
}

/// Sets of page-aware frames came later, as a feature of the same version.
fn has_page_frames(dir: &Path) -> bool {
    dir.to_string_lossy().contains("page-frames")
}

fn write_missing() {
    plant(&expected(), &golden().join("expected"));
    for (dir, stripes, codec) in sets().filter(|(dir, ..)| !dir.exists()) {
        write_set(&dir, stripes, codec);
    }
}

fn assert_as_written(restored: &Path) {
    let expected = golden().join("expected");
    for path in names(&expected).into_iter().filter(|path| path.is_file()) {
        let name = path.strip_prefix(&expected).unwrap();
        let found = std::fs::read(restored.join(name)).unwrap();
        assert!(
            found == std::fs::read(&path).unwrap(),
            "{} differs",
            name.display()
        );
        let mode = restored.join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
    }
    let count = |root: &Path| {
        names(root)
            .into_iter()
            .filter(|path| path.is_file() && !path.is_symlink())
            .count()
    };
    assert_eq!(count(restored), count(&expected));
    assert_eq!(
        std::fs::read_link(restored.join(LINK.0)).unwrap(),
        Path::new(LINK.1)
    );
    let nothing = restored.join("dir/nothing").metadata().unwrap();
    assert!(nothing.is_dir() && nothing.permissions().mode() & 0o777 == 0o750);
}

#[test]
fn sets_of_every_version_restore_for_ever() {
    if std::env::var_os("WINDLASS_WRITE_GOLDEN").is_some() {
        write_missing();
    }
    for (dir, stripes, codec) in sets() {
        let set = verify(std::slice::from_ref(&dir)).unwrap();
        assert_eq!(set.stripes().len(), stripes);
        assert_eq!(set.description().facts, facts());
        let used = set.stripes().iter().flat_map(|stripe| {
            stripe
                .directory()
                .iter()
                .map(|entry| stripe.index_block(entry).unwrap())
        });
        let frames: Vec<_> = used.flat_map(|block| block.frames).collect();
        let pages = frames.iter().filter(|frame| frame.page.is_some()).count();
        assert_eq!(pages, usize::from(has_page_frames(&dir)) * frames.len());
        assert!(
            frames
                .iter()
                .any(|frame| frame.codec.number() == codec.number())
        );
        assert!(
            set.stripes()
                .iter()
                .all(|stripe| !stripe.directory().is_empty())
        );
        let into = tempfile::tempdir().unwrap();
        bring_back(&set, into.path()).unwrap();
        assert_as_written(into.path());
    }
}
