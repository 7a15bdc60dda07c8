//! The page cache stays the database's: a backup leaves it as it was.
//!
//! Needs a file system that is not in memory, and a kernel that has cachestat (6.5) and
//! RWF_DONTCACHE (6.14).

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use windlass_engine::media::{Codec, FileTable};
use windlass_engine::{Cancel, Device, NulDevice, cached_pages};

use crate::support::*;

const PAGE: usize = 4096;

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of which no page is in the page cache.
fn cold(dir: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = dir.join(name);
    let mut file = File::create(&path).unwrap();
    file.write_all(&Random::new(bytes as u64).noise(bytes))
        .unwrap();
    file.sync_all().unwrap();
    // A page that the kernel itself holds at that moment, to move or reclaim it, stays.
    let began = Instant::now();
    loop {
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        if cached(&path) == 0 {
            return path;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{name} cannot be dropped from the page cache"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn cached(path: &Path) -> u64 {
    pages(path).0
}

/// Pages in the page cache, and pages that the kernel itself has reclaimed from there.
fn pages(path: &Path) -> (u64, u64) {
    let file = File::open(path).unwrap();
    let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
    cached_pages(&file, 0, bytes).expect("a kernel with cachestat")
}

/// Backs a file up. Its pages must stay in the page cache, and no others may be there afterwards.
///
/// A kernel reclaims pages whenever it wants: with DAMON some of a file that was read a moment ago,
/// on a machine with gigabytes of free memory. So the pages that it took meanwhile are counted. If
/// it takes a page before the backup reads it, the backup reads it past the cache, as it should; if
/// that happens between two looks, nobody sees it, so an eighth may be missing. A backup that did
/// not leave the cache alone would drop whole transfers.
fn back_up_and_compare(path: &PathBuf) {
    let (before, reclaimed) = pages(path);
    let ended = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut taken, mut last) = (0, reclaimed);
            loop {
                let is_last = ended.load(Ordering::Acquire);
                let now = pages(path).1;
                taken += now.saturating_sub(last);
                last = now;
                if is_last {
                    return taken;
                }
                std::thread::yield_now();
            }
        });
        back_up_to_nul(std::slice::from_ref(path), &uncompressed(true));
        ended.store(true, Ordering::Release);
        watch.join().unwrap()
    });
    let after = cached(path);
    assert!(
        after <= before && after + taken + before / 8 >= before,
        "{before} pages were cached, {after} are, and the kernel took {taken}"
    );
}

fn uncompressed(ring: bool) -> Setup {
    Setup {
        codec: Codec::None,
        ring,
        ..Setup::default()
    }
}

fn back_up_to_nul(paths: &[PathBuf], setup: &Setup) {
    let device = Box::new(NulDevice::new(4096)) as Box<dyn Device>;
    let mut run = begin(setup, vec![device], &Cancel::new()).unwrap();
    for (index, path) in paths.iter().enumerate() {
        let bytes = usize::try_from(path.metadata().unwrap().len()).unwrap();
        run.push(path_spec(index, path, bytes)).unwrap();
    }
    run.finish(FileTable::default(), facts()).unwrap();
}

#[test]
fn a_cold_file_stays_cold() {
    let dir = place();
    for round in 0..6 {
        let (ring, readers) = (round % 2 == 0, 1 + round % 3);
        let name = |bytes| format!("f{bytes}-{round}");
        let sizes = [5 << 20, 3 << 20, 300_001, 100_000, 8192, 1];
        let paths = sizes.map(|bytes| cold(dir.path(), &name(bytes), bytes));
        let mut setup = uncompressed(ring);
        setup.request.readers = Some(readers);
        back_up_to_nul(&paths, &setup);
        let left = paths.map(|path| cached(&path));
        assert_eq!(left, [0; 6], "ring: {ring}, readers: {readers}");
    }
}

#[test]
fn a_file_cached_in_part_stays_so() {
    let dir = place();
    let path = cold(dir.path(), "half", 4 << 20);
    let file = File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
    let mut page = [0; PAGE];
    // Reads the first half, and every third page of the rest.
    let numbers = (0..512).chain((512..1024).step_by(3));
    numbers.for_each(|number| file.read_exact_at(&mut page, number * PAGE as u64).unwrap());
    let (before, reclaimed) = pages(&path);
    assert_eq!(before + reclaimed, 512 + 171);
    back_up_and_compare(&path);
}

#[test]
fn a_cached_file_stays_cached() {
    let dir = place();
    let path = cold(dir.path(), "warm", 2 << 20);
    assert_eq!(std::fs::read(&path).unwrap().len(), 2 << 20);
    let (before, reclaimed) = pages(&path);
    assert_eq!(before + reclaimed, 512);
    back_up_and_compare(&path);
}

#[test]
fn dirty_pages_stay_cached_and_are_what_is_backed_up() {
    let dir = place();
    let path = cold(dir.path(), "dirty", 2 << 20);
    let file = File::options().write(true).open(&path).unwrap();
    let newer = plain(64 * PAGE, 7);
    file.write_all_at(&newer, 100 * PAGE as u64).unwrap();
    let (before, reclaimed) = pages(&path);
    assert!(before + reclaimed >= 64);
    let content = std::fs::File::open(&path).unwrap();
    back_up_and_compare(&path);
    let (sets, setup) = (dir.path().join("sets"), Setup::default());
    std::fs::create_dir(&sets).unwrap();
    let tree: Tree = vec![("dirty".into(), vec![0; 2 << 20])];
    back_up(&tree, dir.path(), &setup, file_devices(&sets, &setup)).unwrap();
    let into = dir.path().join("into");
    bring_back(&verify(&[sets]).unwrap(), &into).unwrap();
    let mut expected = vec![0; 2 << 20];
    content.read_exact_at(&mut expected, 0).unwrap();
    assert!(std::fs::read(into.join("dirty")).unwrap() == expected);
    assert_eq!(expected[100 * PAGE..164 * PAGE], newer);
}
