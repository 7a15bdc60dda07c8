//! Directories that are restored into, beside what the other tests restore.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{Codec, FileNo, FileTable};
use windlass_engine::{
    Cancel, DirectoryTarget, EngineError, FoundSet, OpenSet, RunReport, Target, TargetLayout,
    restore,
};
use windlass_testkit::chains::History;

use crate::support::*;

/// Not every file system of Linux allows longer files than this.
const FILE_BYTES_MAX: u64 = 15 << 40;

#[test]
fn a_file_longer_than_the_disk_has_room_is_restored_with_its_holes() {
    let dir = tempfile::tempdir().unwrap();
    let disk = rustix::fs::statvfs(dir.path()).unwrap();
    let free = disk.f_bavail * disk.f_frsize;
    let bytes = (free + (1 << 30)).min(FILE_BYTES_MAX) / 65536 * 65536;
    let root = dir.path().join("into");
    let target = DirectoryTarget::create(TargetLayout {
        root: root.clone(),
        files: FileTable(vec![entry(0, "sparse", usize::try_from(bytes).unwrap())]),
        ..TargetLayout::default()
    });
    let target = target.unwrap();
    let block = plain(65536, 9);
    let last = bytes - 65536;
    target.write(FileNo(0), 0, &block).unwrap();
    target.hole(FileNo(0), 65536, last - 65536).unwrap();
    target.write(FileNo(0), last, &block).unwrap();
    target.finish().unwrap();
    let file = std::fs::File::open(root.join("sparse")).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), bytes);
    assert!(metadata.blocks() * 512 < 1 << 20, "{}", metadata.blocks());
    for offset in [0, last] {
        let mut found = vec![0; 65536];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, offset).unwrap();
        assert!(found == block, "at {offset}");
    }
}

/// Nobody has permission to write these files. Bytes are appended to two of them.
#[test]
fn what_is_appended_stands_behind_the_bytes_of_the_set() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("into");
    let mut files = vec![
        entry(0, "some", 5),
        entry(1, "empty", 0),
        entry(2, "same", 5),
    ];
    files.iter_mut().for_each(|file| file.mode = 0o400);
    let end = |file: u32| (FileNo(file), b" end".to_vec());
    let target = DirectoryTarget::create(TargetLayout {
        root: root.clone(),
        files: FileTable(files),
        append: vec![end(0), end(1)],
        ..TargetLayout::default()
    });
    let target = target.unwrap();
    target.write(FileNo(0), 0, b"begin").unwrap();
    target.write(FileNo(2), 0, b"begin").unwrap();
    target.finish().unwrap();
    for (name, content) in [("some", "begin end"), ("empty", " end"), ("same", "begin")] {
        let path = root.join(name);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o400);
    }
}

#[test]
fn what_a_target_leaves_out_is_not_read_and_all_else_comes_back() {
    let mut random = Random::new(3);
    let tree: Tree = vec![
        ("first".into(), random.noise(400_000)),
        ("large".into(), random.noise(3_000_000)),
        ("last".into(), random.noise(400_000)),
    ];
    for stripes in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let places = make_set(&tree, dir.path(), &Setup::small(stripes, Codec::None));
        let set = open(&places).unwrap();
        let whole = bring_back(&set, &dir.path().join("whole")).unwrap();
        let mut files = set.description().files.0.iter();
        let large = files.find(|entry| entry.path == b"large");
        let root = dir.path().join("part");
        let part = bring_back_without(&set, &[large.unwrap().file].into(), &root);
        let (part, whole) = (part.bytes_read, whole.bytes_read);
        assert!(part * 3 < whole, "{part} of {whole} bytes were read");
        for (name, bytes) in &tree {
            let found = std::fs::read(root.join(name)).unwrap();
            let is_right = match name.as_str() {
                "large" => found == vec![0; bytes.len()],
                _ => &found == bytes,
            };
            assert!(is_right, "{name}");
        }
    }
}

/// Restores a set, but for these files, as a restore of a part does it.
fn bring_back_without(set: &OpenSet, left_out: &HashSet<FileNo>, root: &Path) -> RunReport {
    let mut files = set.description().files.clone();
    let last = files.0.iter().map(|entry| entry.file.0).max();
    let numbers = last.unwrap_or_default() + 1..;
    for (entry, number) in files.0.iter_mut().zip(numbers) {
        if left_out.contains(&entry.file) {
            entry.file = FileNo(number);
        }
    }
    let target = DirectoryTarget::create(TargetLayout {
        root: root.to_owned(),
        files,
        left_out: left_out.clone(),
        ..TargetLayout::default()
    });
    let (target, options) = (target.unwrap(), restore_options().fit(set).unwrap());
    restore(set, &target, &options, &Arc::default(), &Cancel::new()).unwrap()
}

/// Files share frames, have layers, and lie in several sets. Some that older sets have are gone by
/// now: nothing of these is read either.
#[test]
fn of_a_chain_all_comes_back_but_what_is_left_out() {
    for seed in 0..16 {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::new(seed);
        let mut newest = None;
        for number in 0..4usize {
            history.live();
            let setup = Setup::small(1 + history.below(3), Codec::Lz4);
            let place = dir.path().join(number.to_string());
            newest = Some(history.back_up(&place, newest, &setup));
        }
        let newest = newest.unwrap();
        let set = open(history.stripes(newest)).unwrap();
        let files = &set.description().files.0;
        let numbers = || files.iter().map(|entry| entry.file);
        let all: HashSet<_> = numbers().collect();
        let nothing = bring_back_without(&set, &all, &dir.path().join("nothing"));
        let stripes = set.links().flat_map(FoundSet::stripes);
        let blocks = stripes.flat_map(|stripe| stripe.directory());
        let index: u64 = blocks.map(|block| u64::from(block.bytes)).sum();
        assert_eq!(nothing.bytes_read, index, "seed {seed}");
        let left_out: HashSet<_> = numbers().filter(|_| history.below(2) == 0).collect();
        let root = dir.path().join("part");
        bring_back_without(&set, &left_out, &root);
        for (name, bytes) in history.content(newest) {
            let entry = files.iter().find(|entry| entry.path == name.as_bytes());
            let expected = match left_out.contains(&entry.unwrap().file) {
                true => vec![0; bytes.len()],
                false => bytes,
            };
            let found = std::fs::read(root.join(&name)).unwrap();
            assert!(found == expected, "seed {seed}: {name}");
        }
    }
}

fn restore_last(root: &Path, names: &[&str]) -> Result<(), EngineError> {
    restore_last_while(root, names, || ())
}

/// Writes one byte into each of these files, of which the first must appear last. Calls `meanwhile`
/// before it does.
fn restore_last_while(
    root: &Path,
    names: &[&str],
    meanwhile: impl FnOnce(),
) -> Result<(), EngineError> {
    let mut files: Vec<_> = (0..)
        .zip(names)
        .map(|(number, name)| entry(number, name, 1))
        .collect();
    files[0].flags.last = true;
    let target = DirectoryTarget::create(TargetLayout {
        root: root.to_owned(),
        files: FileTable(files),
        ..TargetLayout::default()
    })?;
    (0..)
        .zip(names)
        .try_for_each(|(number, _)| target.write(FileNo(number), 0, b"x"))?;
    assert!(!root.join(names[0]).exists(), "it appears at the end");
    meanwhile();
    target.finish()
}

#[test]
fn a_file_that_took_the_last_name_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("new");
    let taken = root.join("global/pg_control");
    let meanwhile = || write(&taken, b"precious");
    let files = ["global/pg_control", "global/1260"];
    let error = restore_last_while(&root, &files, meanwhile).unwrap_err();
    assert!(error.to_string().contains("global/pg_control"), "{error}");
    assert_eq!(std::fs::read(&taken).unwrap(), b"precious");
}

#[test]
fn the_last_file_gets_its_name_where_no_rename_refuses_to_replace() {
    let plain = windlass_testkit::plain_names::PlainNames::mount();
    let files = ["pg_control", "1260"];
    restore_last(&plain.path("new"), &files).unwrap();
    assert_eq!(restored_files(&plain.path("new")), ["1260", "pg_control"]);
}

#[test]
fn a_file_that_appears_last_may_have_any_name_and_any_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    let long = "n".repeat(255);
    let left = [".windlass-last-0", ".windlass-last-1"];
    let sets = [
        vec!["pg_control", "pg_control.windlass-last", left[0], left[1]],
        vec![
            "global/pg_control",
            "global/.windlass-last-0/below",
            "global/.windlass-last-2",
        ],
        vec![long.as_str()],
        vec![left[0], left[1]],
    ];
    for (number, names) in sets.iter().enumerate() {
        let root = dir.path().join(number.to_string());
        restore_last(&root, names).unwrap();
        let mut expected: Vec<_> = names.iter().map(|name| name.to_string()).collect();
        expected.sort();
        assert_eq!(restored_files(&root), expected);
    }
}

/// The paths of all files below a directory.
fn restored_files(root: &std::path::Path) -> Vec<String> {
    let relative = |path: &std::path::PathBuf| {
        let path = path.strip_prefix(root).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut found: Vec<_> = names(root)
        .iter()
        .filter(|path| path.is_file())
        .map(relative)
        .collect();
    found.sort();
    found
}
