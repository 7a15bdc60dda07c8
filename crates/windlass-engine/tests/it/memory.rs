//! Memory is bounded: buffers x transfer size and 64 MiB, for a file of any size and for any number
//! of files up to 50,000.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_engine::media::Codec;
use windlass_engine::{
    BufferRequest, Cancel, DirectoryTarget, EngineError, PageHook, Pages, RestoreOptions,
    TargetLayout, restore,
};

use crate::support::*;

const FILES: usize = 50_000;
const FILE_BYTES: usize = 300;
const BUFFERS: usize = 7;
const TRANSFER: usize = 1 << 20;
/// A file of this length has four million units. It is one large hole.
const HUGE_BYTES: usize = 1 << 42;
/// Once this many pieces of it were read, the rest would show nothing new.
const HUGE_PIECES: usize = 2_000;
/// Tells a child where to work. The test runs itself again in a child, to measure only itself.
const PLACE: &str = "WINDLASS_TEST_MEMORY";

fn request() -> BufferRequest {
    BufferRequest {
        buffers: Some(BUFFERS),
        transfer_bytes: Some(TRANSFER),
        ..BufferRequest::default()
    }
}

fn file(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("source/{}/file-{index}", index % 100))
}

fn plant_many(dir: &Path) {
    (0..100).for_each(|at| std::fs::create_dir_all(dir.join(format!("source/{at}"))).unwrap());
    (0..FILES).for_each(|index| write(&file(dir, index), &plain(FILE_BYTES, index as u8)));
}

fn back_up_many(dir: &Path) {
    let setup = Setup {
        codec: Codec::Zstd(1),
        request: request(),
        ..Setup::default()
    };
    let mut run = begin(&setup, file_devices(dir, &setup), &Cancel::new()).unwrap();
    for index in 0..FILES {
        run.push(path_spec(index, &file(dir, index), FILE_BYTES))
            .unwrap();
    }
    run.drain().unwrap();
    let name = |index| format!("{}/file-{index}", index % 100);
    let entries = (0..FILES)
        .map(|index| entry(index, &name(index), FILE_BYTES))
        .collect();
    run.finish(windlass_engine::media::FileTable(entries), facts())
        .unwrap();
}

fn bring_back_many(dir: &Path) {
    let set = open(&[stripe_path(dir, 0)]).unwrap();
    let files = set.description().files.clone();
    let layout = TargetLayout {
        root: dir.join("into"),
        files,
        ..TargetLayout::default()
    };
    let target = DirectoryTarget::create(layout).unwrap();
    let plan = request().plan(1, 1).unwrap();
    let options = RestoreOptions {
        plan,
        device_rate: None,
        ring: true,
        pacing: None,
    };
    let options = options.fit(&set).unwrap();
    restore(&set, &target, &options, &Arc::default(), &Cancel::new()).unwrap();
}

fn plant_huge(dir: &Path) {
    let file = std::fs::File::create(dir.join("huge")).unwrap();
    file.set_len(HUGE_BYTES as u64).unwrap();
}

/// Ends a run when it has read enough.
struct Enough {
    seen: AtomicUsize,
    cancel: Cancel,
}

impl PageHook for Enough {
    fn pages(&self, _: &mut Pages<'_>) -> Result<(), EngineError> {
        if self.seen.fetch_add(1, Ordering::Relaxed) >= HUGE_PIECES {
            self.cancel.cancel();
        }
        Ok(())
    }
}

fn back_up_huge(dir: &Path) {
    let setup = Setup {
        request: request(),
        ..Setup::default()
    };
    let cancel = Cancel::new();
    let mut run = begin(&setup, file_devices(dir, &setup), &cancel).unwrap();
    let seen = AtomicUsize::new(0);
    run.set_hook(Arc::new(Enough { seen, cancel }));
    let error = run.push(path_spec(0, &dir.join("huge"), HUGE_BYTES));
    assert!(matches!(error, Err(EngineError::Cancelled)), "{error:?}");
}

/// The most memory that this process ever had resident.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<usize>()
        .unwrap()
        * 1024
}

/// Runs `work` in a process of its own, and asserts that its memory stayed within bounds.
fn bounded(test: &str, work: fn(&Path), prepare: impl FnOnce(&Path), judge: impl FnOnce(&Path)) {
    if let Some(place) = std::env::var_os(PLACE) {
        work(Path::new(&place));
        println!("peak {}", peak_bytes());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", test, "--nocapture"])
        .env(PLACE, dir.path());
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let peak = said
        .lines()
        .find_map(|line| line.split("peak ").nth(1))
        .unwrap();
    let (peak, bound) = (
        peak.trim().parse::<usize>().unwrap(),
        BUFFERS * TRANSFER + (64 << 20),
    );
    assert!(peak < bound, "{peak} bytes resident, of {bound}");
    judge(dir.path());
}

#[test]
fn a_backup_of_fifty_thousand_files_stays_within_its_memory() {
    let test = "memory::a_backup_of_fifty_thousand_files_stays_within_its_memory";
    bounded(test, back_up_many, plant_many, |dir| {
        drop(verify(&[stripe_path(dir, 0)]).unwrap())
    });
}

#[test]
fn a_backup_of_a_file_of_any_size_stays_within_its_memory() {
    let test = "memory::a_backup_of_a_file_of_any_size_stays_within_its_memory";
    bounded(test, back_up_huge, plant_huge, |dir| {
        assert!(!stripe_path(dir, 0).exists());
    });
}

#[test]
fn a_restore_of_fifty_thousand_files_stays_within_its_memory() {
    let prepare = |dir: &Path| {
        plant_many(dir);
        back_up_many(dir);
    };
    let judge = |dir: &Path| {
        for index in (0..FILES).step_by(997) {
            let name = format!("into/{}/file-{index}", index % 100);
            assert_eq!(
                std::fs::read(dir.join(name)).unwrap(),
                plain(FILE_BYTES, index as u8)
            );
        }
    };
    let test = "memory::a_restore_of_fifty_thousand_files_stays_within_its_memory";
    bounded(test, bring_back_many, prepare, judge);
}
