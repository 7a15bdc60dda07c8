//! Files that vanish, shrink, grow or cannot be read while they are backed up, and runs that are
//! cancelled: the outcome says so, or the run fails and leaves nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass_engine::media::{Codec, FileNo, FileTable};
use windlass_engine::{
    BackupRun, Cancel, Cause, EngineError, FileContent, FileSpec, Missing, PageHook, Pages,
    StageReport,
};

use crate::support::*;

fn start(dir: &Path, setup: &Setup) -> BackupRun {
    begin(setup, file_devices(dir, setup), &Cancel::new()).unwrap()
}

fn assert_nothing_left(dir: &Path) {
    assert_eq!(
        names(dir),
        Vec::<std::path::PathBuf>::new(),
        "something was left behind"
    );
}

/// Runs a backup of one file that must fail the run. Returns the error.
fn failing(content: FileContent, bytes: usize) -> EngineError {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(2, Codec::Zstd(1));
    let mut run = start(dir.path(), &setup);
    run.push(bytes_spec(0, &plain(100_000, 1))).unwrap();
    let pushed = run.push(spec(1, content, bytes));
    let error = pushed.and_then(|()| run.finish(FileTable::default(), facts()).map(drop));
    assert_nothing_left(dir.path());
    error.unwrap_err()
}

#[test]
fn a_file_that_must_be_there_and_is_not_fails_the_run() {
    for bytes in [100, 1_000_000] {
        let error = failing(FileContent::Path("/nonexistent/file".into()), bytes);
        assert!(
            matches!(
                error,
                EngineError::SourceIo {
                    operation: "open",
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn what_is_reported_is_the_cause_and_not_what_followed_from_it() {
    // Several readers fail on the same file, while the run's own thread watches. Chance decides
    // which of them fails first, but the reported error must always be the same.
    for _ in 0..1000 {
        let error = failing(FileContent::Path("/nonexistent/file".into()), 400_000);
        assert!(matches!(error, EngineError::SourceIo { .. }), "{error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_fails_the_run() {
    let dir = tempfile::tempdir().unwrap();
    // The first path is a directory where a file should be. The second is a file whose first page
    // cannot be read.
    for path in [dir.path(), Path::new("/proc/self/mem")] {
        for bytes in [100, 1_000_000] {
            let error = failing(FileContent::Path(path.to_owned()), bytes);
            assert!(
                matches!(
                    error,
                    EngineError::SourceIo {
                        operation: "read",
                        ..
                    }
                ),
                "{error}"
            );
        }
    }
}

#[test]
fn a_file_that_may_vanish_is_left_out_and_its_neighbours_are_not() {
    for codec in [Codec::None, Codec::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::small(2, codec);
        let tree: Tree = vec![
            ("small".into(), plain(500, 1)),
            ("large".into(), plain(300_000, 2)),
            ("other".into(), plain(700, 3)),
        ];
        let mut run = start(dir.path(), &setup);
        for (index, (_, bytes)) in tree.iter().enumerate() {
            run.push(bytes_spec(index, bytes)).unwrap();
            // One of the missing files goes into a bundle, the other has transfers of its own.
            for (gone, bytes) in [(10 + index, 600), (20 + index, 400_000)] {
                let content = FileContent::Path(dir.path().join("gone"));
                let missing = Missing::Skip;
                run.push(FileSpec {
                    missing,
                    ..spec(gone, content, bytes)
                })
                .unwrap();
            }
        }
        run.drain().unwrap();
        for index in 0..tree.len() as u32 {
            assert!(!run.outcome(FileNo(index)).unwrap().vanished);
            assert!(run.outcome(FileNo(10 + index)).unwrap().vanished);
            assert!(run.outcome(FileNo(20 + index)).unwrap().vanished);
        }
        let files = table(&run, &tree);
        run.finish(files, facts()).unwrap();
        let into = tempfile::tempdir().unwrap();
        bring_back(
            &verify(&stripe_paths(dir.path(), &setup)).unwrap(),
            into.path(),
        )
        .unwrap();
        assert_same(&tree, into.path());
    }
}

#[test]
fn a_file_that_shrank_is_padded_and_one_that_grew_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (sets, source) = (dir.path().join("sets"), dir.path().join("source"));
    fs::create_dir(&sets).unwrap();
    let actual: Tree = [0, 300, 5000, 200_000, 1_000_000]
        .into_iter()
        .map(|bytes| (format!("f{bytes}"), plain(bytes, 5)))
        .collect();
    plant(&actual, &source);
    for listed in [1usize, 4096, 150_000, 700_001, 1_500_000] {
        let setup = Setup {
            stripes: 2,
            ..Setup::default()
        };
        let mut run = start(&sets, &setup);
        for (index, (name, _)) in actual.iter().enumerate() {
            run.push(path_spec(index, &source.join(name), listed))
                .unwrap();
        }
        run.drain().unwrap();
        let mut expected = actual.clone();
        for (index, (_, bytes)) in expected.iter_mut().enumerate() {
            let short = listed.saturating_sub(bytes.len()) as u64;
            bytes.resize(listed, 0);
            let outcome = run.outcome(FileNo(index as u32)).unwrap();
            assert_eq!(outcome.short_bytes, short);
            assert_eq!(outcome.crc32c, windlass_engine::media::crc32c(bytes));
        }
        let files = table(&run, &expected);
        run.finish(files, facts()).unwrap();
        let into = tempfile::tempdir().unwrap();
        let places = stripe_paths(&sets, &setup);
        bring_back(&verify(&places).unwrap(), into.path()).unwrap();
        assert_same(&expected, into.path());
        places
            .iter()
            .for_each(|place| fs::remove_file(place).unwrap());
    }
}

struct Refuses;

impl PageHook for Refuses {
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError> {
        if pages.file().0 < 5 {
            Ok(())
        } else {
            Err(EngineError::Source("page 7 is bad".into()))
        }
    }
}

#[test]
fn an_error_of_the_hook_fails_the_run_with_its_own_words() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup {
        stripes: 3,
        ..Setup::default()
    };
    let mut run = start(dir.path(), &setup);
    run.set_hook(Arc::new(Refuses));
    let pushed = (0..10).try_for_each(|index| run.push(bytes_spec(index, &plain(90_000, 1))));
    let error = pushed.and_then(|()| run.finish(FileTable::default(), facts()).map(drop));
    assert_eq!(error.unwrap_err().to_string(), "page 7 is bad");
    assert_nothing_left(dir.path());
}

/// Counts the files of a directory that are open while a buffer of them is compressed.
struct CountsOpen {
    of: PathBuf,
    most: AtomicUsize,
}

impl PageHook for CountsOpen {
    fn pages(&self, _: &mut Pages<'_>) -> Result<(), EngineError> {
        let open = fs::read_dir("/proc/self/fd").unwrap().filter(|one| {
            let link = one.as_ref().map(|one| fs::read_link(one.path()));
            matches!(link, Ok(Ok(path)) if path.starts_with(&self.of))
        });
        self.most.fetch_max(open.count(), Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn small_files_are_closed_when_they_were_read() {
    let dir = tempfile::tempdir().unwrap();
    let (sets, source) = (dir.path().join("sets"), dir.path().join("source"));
    fs::create_dir(&sets).unwrap();
    let tree: Tree = (0..300)
        .map(|number| (format!("f{number:03}"), plain(300, 1)))
        .collect();
    plant(&tree, &source);
    for whole in [true, false] {
        let mut run = start(&sets, &Setup::default());
        let hook = Arc::new(CountsOpen {
            of: source.clone(),
            most: AtomicUsize::new(0),
        });
        run.set_hook(Arc::clone(&hook) as Arc<dyn PageHook>);
        for (index, (name, bytes)) in tree.iter().enumerate() {
            let spec = path_spec(index, &source.join(name), bytes.len());
            match whole {
                true => run.push(spec).unwrap(),
                false => run.push_parts(spec, [0..100, 150..300]).unwrap(),
            }
        }
        run.drain().unwrap();
        let most = hook.most.load(Ordering::Relaxed);
        assert!(most < 20, "{most} of 300 files were open");
    }
}

struct Panics;

impl PageHook for Panics {
    fn pages(&self, _: &mut Pages<'_>) -> Result<(), EngineError> {
        panic!("a bug in a hook")
    }
}

#[test]
fn a_panic_in_a_thread_fails_the_run_with_what_it_said() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::default();
    let mut run = start(dir.path(), &setup);
    run.set_hook(Arc::new(Panics));
    let pushed = (0..10).try_for_each(|index| run.push(bytes_spec(index, &plain(90_000, 1))));
    let result = pushed.and_then(|()| run.finish(FileTable::default(), facts()).map(drop));
    let error = result.unwrap_err();
    let EngineError::ThreadPanicked { message } = &error else {
        panic!("{error}");
    };
    assert_eq!(message, "a bug in a hook");
    assert!(error.hint().is_some_and(|hint| hint.contains("bug")));
    assert_nothing_left(dir.path());
}

#[test]
fn a_run_cancelled_at_any_push_ends_and_leaves_nothing_behind() {
    const PUSHES: usize = 24;
    for cancel_at in 0..=PUSHES {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup {
            stripes: 1 + cancel_at % 3,
            ..Setup::default()
        };
        let cancel = Cancel::new();
        let mut run = begin(&setup, file_devices(dir.path(), &setup), &cancel).unwrap();
        let push = |index: usize| {
            if index == cancel_at {
                cancel.cancel();
            }
            run.push(bytes_spec(index, &Random::new(1).noise(70_000)))
        };
        let pushed = (0..PUSHES).try_for_each(push);
        if cancel_at == PUSHES {
            run.drain().unwrap();
            cancel.cancel();
        }
        let result = pushed.and_then(|()| run.finish(FileTable::default(), facts()).map(drop));
        assert!(
            matches!(result, Err(EngineError::Cancelled)),
            "{cancel_at}: {result:?}"
        );
        assert_nothing_left(dir.path());
    }
}

#[test]
fn a_cancelled_run_does_not_wait_for_its_rate_limit() {
    let dir = tempfile::tempdir().unwrap();
    // At these rates the run would take a day.
    let mut setups = [Setup::default(), Setup::default()];
    setups[0].source_rate = Some(10);
    setups[1].device_rate = Some(10);
    for setup in setups {
        let cancel = Cancel::new();
        let mut run = begin(&setup, file_devices(dir.path(), &setup), &cancel).unwrap();
        let push = |index| run.push(bytes_spec(index, &Random::new(1).noise(90_000)));
        let pushed = (0..10).try_for_each(push);
        // Nothing passes before it is paid for, so the first transfer waits already.
        let limited = |stage: &StageReport| stage.waited(Cause::RateLimit) > 0.0;
        while !run.progress().reports().iter().any(limited) {
            std::thread::sleep(Duration::from_millis(1));
        }
        cancel.cancel();
        let result = pushed.and_then(|()| run.finish(FileTable::default(), facts()).map(drop));
        assert!(matches!(result, Err(EngineError::Cancelled)), "{result:?}");
        assert_nothing_left(dir.path());
    }
}

#[test]
fn a_run_dropped_before_its_end_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    for pushes in [0, 1, 10] {
        for drain in [false, true] {
            let setup = Setup {
                stripes: 3,
                ..Setup::default()
            };
            let mut run = start(dir.path(), &setup);
            let push = |index| run.push(bytes_spec(index, &plain(70_000, 1)));
            (0..pushes).try_for_each(push).unwrap();
            if drain {
                run.drain().unwrap();
            }
            drop(run);
            assert_nothing_left(dir.path());
        }
    }
}

#[test]
fn an_empty_run_makes_a_set_of_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let places = make_set(&Tree::new(), dir.path(), &Setup::small(3, Codec::Zstd(1)));
    assert!(verify(&places).unwrap().description().files.0.is_empty());
}

/// The file is shorter than it must be, in a bundle and with transfers of its own.
#[test]
fn a_file_that_lacks_bytes_that_are_needed_fails_the_run() {
    for (found, listed, needed) in [
        (999, 2000, 1000),
        (0, 10, 1),
        (600_000, 1_500_000, 600_001),
        (0, 700_000, 700_000),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (sets, source) = (dir.path().join("sets"), dir.path().join("source"));
        fs::create_dir(&sets).unwrap();
        plant(&vec![("f".into(), plain(found, 7))], &source);
        let source = source.join("f");
        let mut run = start(&sets, &Setup::small(2, Codec::Lz4));
        let needed_bytes = needed;
        let pushed = run.push(FileSpec {
            needed_bytes,
            ..path_spec(0, &source, listed)
        });
        let error = pushed.and_then(|()| run.drain()).unwrap_err();
        drop(run);
        assert_nothing_left(&sets);
        let EngineError::SourceShort {
            path, found_bytes, ..
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!((path, found_bytes), (source, found as u64));
    }
}

/// At one byte per second, each transfer would have to wait for years.
#[test]
fn nothing_waits_for_a_rate_limit_in_a_hurry() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup {
        source_rate: Some(1),
        device_rate: Some(1),
        ..Setup::small(1, Codec::None)
    };
    let tree: Tree = vec![("a".into(), plain(1_000_000, 8))];
    let mut run = start(dir.path(), &setup);
    run.begin_hurry(None);
    run.push(bytes_spec(0, &tree[0].1)).unwrap();
    run.empty_buffers().unwrap();
    run.end_hurry();
    let files = table(&run, &tree);
    let report = run.finish(files, facts()).unwrap();
    for stage in &report.stages {
        assert_eq!(stage.waited(Cause::RateLimit), 0.0, "{stage:?}");
    }
    verify(&stripe_paths(dir.path(), &setup)).unwrap();
}

#[test]
fn a_hurry_that_ends_fails_the_run_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(1, Codec::None);
    let mut run = start(dir.path(), &setup);
    let over = std::time::Instant::now();
    run.begin_hurry(Some(over));
    let pushed = run.push(bytes_spec(0, &plain(1_000_000, 9)));
    let error = pushed.and_then(|()| run.drain()).unwrap_err();
    assert!(matches!(error, EngineError::HurryEnded), "{error}");
    drop(run);
    assert_nothing_left(dir.path());
}

#[test]
fn opening_the_files_of_a_bundle_is_one_wait_with_reading_them() {
    let (root, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tree: Tree = (0..300)
        .map(|index| (format!("file{index}"), plain(100, 1)))
        .collect();
    plant(&tree, root.path());
    let setup = Setup::small(1, Codec::Lz4);
    let devices = file_devices(dir.path(), &setup);
    let report = back_up(&tree, root.path(), &setup, devices).unwrap();
    let waits = &report.stages[0].waits;
    let reads = waits.iter().find(|wait| wait.cause == Cause::SourceRead);
    assert!(reads.is_some_and(|reads| reads.count < 10), "{waits:?}");
}
