//! Sets made to do harm, with every checksum right: all are refused with an error, in little
//! memory, and nothing is written outside of the target.
//!
//! They are judged in a process of its own that may have 512 MiB of addresses: whoever allocates
//! what a set merely claims to hold dies there.

mod cases;
mod laid;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use windlass_engine::media::{Codec, PieceEntry};
use windlass_engine::{
    Cancel, DirectoryTarget, Discard, EngineError, OpenSet, TargetLayout, restore,
};
use windlass_testkit::heap::{HEAP_PAGE, heap_pages};

use crate::forge::*;
use crate::laid_out::store;
use crate::support::*;
use cases::*;
use laid::laid_frames;

const PLACE: &str = "WINDLASS_TEST_HOSTILE";
const ADDRESS_SPACE: u64 = 512 << 20;
const METADATA_LIMIT: u64 = 64 << 20;

/// Opens, verifies and restores a set. Returns the first error.
fn use_set(dir: &Path) -> Result<(), EngineError> {
    let set = OpenSet::open(&[dir.join("set.windlass")], METADATA_LIMIT)?;
    set.check_index()?;
    let options = lean_options().fit(&set);
    let verified = options
        .and_then(|options| restore(&set, &Discard, &options, &Arc::default(), &Cancel::new()));
    // The set is restored whatever verify says: a user in a hurry does that.
    let files = set.description().files.clone();
    let layout = TargetLayout {
        root: dir.join("target"),
        files,
        ..TargetLayout::default()
    };
    let target = DirectoryTarget::create(layout)?;
    restore(
        &set,
        &target,
        &restore_options().fit(&set)?,
        &Arc::default(),
        &Cancel::new(),
    )?;
    verified.map(drop)
}

/// The work of the child: it asserts that every set in `dir` is refused.
fn judge(dir: &Path) {
    let mut accepted = Vec::new();
    for entry in std::fs::read_dir(dir.join("sets")).unwrap() {
        let path = entry.unwrap().path();
        match use_set(&path) {
            Ok(()) => accepted.push(path),
            Err(error) => println!("{}: {error}", path.file_name().unwrap().display()),
        }
    }
    assert!(accepted.is_empty(), "not refused: {accepted:?}");
}

/// Runs a test of this program again, as a child with limited memory.
fn confined(test: &str, dir: &Path) -> String {
    let limit = format!("--as={ADDRESS_SPACE}");
    let mut child = Command::new("prlimit");
    child
        .arg(limit)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"]);
    // Otherwise the arena of each thread would reserve 64 MiB of addresses.
    child.env(PLACE, dir).env("MALLOC_ARENA_MAX", "1");
    let output = child.output().expect("prlimit, of util-linux");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

#[test]
fn a_forged_set_with_nothing_wrong_restores() {
    let dir = tempfile::tempdir().unwrap();
    Forge::default().write(dir.path());
    use_set(dir.path()).unwrap();
    assert_same(
        &vec![("file".into(), plain(3000, 1))],
        &dir.path().join("target"),
    );
}

#[test]
fn every_hostile_set_is_refused_and_writes_nothing_outside_its_target() {
    if let Some(dir) = std::env::var_os(PLACE) {
        return judge(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("outside")).unwrap();
    let mut cases = all_cases();
    cases.extend(laid_frames());
    for (name, forge) in &cases {
        let place = dir.path().join("sets").join(name);
        std::fs::create_dir_all(&place).unwrap();
        forge.write(&place);
    }
    let outside = |dir: &Path| -> Vec<PathBuf> {
        let inside = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "target");
        names(dir)
            .into_iter()
            .filter(|path| !inside(path))
            .collect()
    };
    let before = outside(dir.path());
    let test = "hostile::every_hostile_set_is_refused_and_writes_nothing_outside_its_target";
    let said = confined(test, dir.path());
    assert_eq!(outside(dir.path()), before);
    assert!(!Path::new("/tmp/windlass-escaped").exists());
    for (name, _) in &cases {
        assert!(
            said.contains(&format!("{name}: ")),
            "{name} was not judged:\n{said}"
        );
    }
}

#[test]
fn frames_that_expand_a_thousandfold_are_restored_in_little_memory() {
    let test = "hostile::frames_that_expand_a_thousandfold_are_restored_in_little_memory";
    const FRAMES: usize = 64;
    const FRAME_BYTES: usize = 4 << 20;
    if let Some(dir) = std::env::var_os(PLACE) {
        return use_set(Path::new(&dir)).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let content = vec![7; FRAME_BYTES];
    let (whole, stored) = (piece(0, 0, &content), zstd(FRAME_BYTES));
    let forge = with(|forge| {
        forge.header.frame_bytes = FRAME_BYTES as u32;
        forge.files[0].bytes = (FRAMES * FRAME_BYTES) as u64;
        let at = |index: usize| PieceEntry {
            offset: (index * FRAME_BYTES) as u64,
            ..whole
        };
        let frame = |index| packed(Codec::Zstd(3), FRAME_BYTES, stored.clone(), vec![at(index)]);
        forge.frames = (0..FRAMES).map(frame).collect();
    });
    let place = forge.write(dir.path());
    assert!(place.metadata().unwrap().len() < 64 * 1024);
    confined(test, dir.path());
    let restored = dir.path().join("target/file").metadata().unwrap().len();
    assert_eq!(restored, (FRAMES * FRAME_BYTES) as u64);
}

#[test]
fn frames_of_4_mib_with_pages_apart_are_restored_in_little_memory() {
    let test = "hostile::frames_of_4_mib_with_pages_apart_are_restored_in_little_memory";
    const FRAMES: usize = 8;
    if let Some(dir) = std::env::var_os(PLACE) {
        return use_set(Path::new(&dir)).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let content = heap_pages(laid::FRAME_BYTES / HEAP_PAGE, 1);
    let (whole, (entry, stored)) = (piece(0, 0, &content), store(&content, Codec::Zstd(1)));
    let forge = with(|forge| {
        forge.header.page_frames = true;
        forge.header.frame_bytes = content.len() as u32;
        forge.files[0].bytes = (FRAMES * content.len()) as u64;
        let at = |index: usize| PieceEntry {
            offset: (index * content.len()) as u64,
            ..whole
        };
        let frame = |index| (entry, vec![at(index)], stored.clone());
        forge.frames = (0..FRAMES).map(frame).collect();
    });
    forge.write(dir.path());
    confined(test, dir.path());
    let restored = std::fs::read(dir.path().join("target/file")).unwrap();
    assert_eq!(restored.len(), FRAMES * content.len());
    assert!(restored.chunks(content.len()).all(|frame| frame == content));
}

#[test]
fn a_location_that_is_no_file_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let forge = with(|forge| {
        let locations = ["set.windlass", fifo.to_str().unwrap()];
        forge.header.locations = locations.map(|name| name.as_bytes().to_vec()).into();
        // The table lists both stripes, and gives the first one's hash to the second.
        forge.stripe_table = Box::new(move |table| {
            let mut second = table[4..].to_vec();
            let name = fifo.to_str().unwrap();
            second.splice(
                ..14,
                [&(name.len() as u16).to_le_bytes(), name.as_bytes()].concat(),
            );
            patch32(table, 0, 2);
            table.extend(second);
        });
    });
    forge.write(dir.path());
    let error = use_set(dir.path()).unwrap_err();
    assert!(
        matches!(error, EngineError::StripeMissing { .. }),
        "{error}"
    );
    let named = open(&[dir.path().join("fifo")]).unwrap_err();
    assert!(matches!(named, EngineError::DeviceIo { .. }), "{named}");
}
