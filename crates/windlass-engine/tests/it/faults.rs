//! A device that fails at any of its calls, or a crash at any moment, leaves the older set as it
//! was, and of the new one either nothing that opens, or all of it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use windlass_engine::media::{Codec, SEAL_BYTES, SetId};
use windlass_engine::{Cancel, Device, DeviceOperation, EngineError, PARTIAL_SUFFIX};
use windlass_testkit::faulty::{Call, Effect, Faults};
use windlass_testkit::recording::{Act, Recording, crash_image, crash_name};

use crate::support::*;

const OLDER: SetId = SetId([1; 16]);

fn setup(stripes: usize, codec: Codec, ring: bool) -> Setup {
    Setup {
        ring,
        ..Setup::small(stripes, codec)
    }
}

fn faulty_devices(dir: &Path, setup: &Setup, faults: &Faults) -> Vec<Box<dyn Device>> {
    let wrap = |inner| faults.device(inner);
    file_devices(dir, setup).into_iter().map(wrap).collect()
}

/// Backs up a tree from memory.
fn run(tree: &Tree, setup: &Setup, devices: Vec<Box<dyn Device>>) -> Result<(), EngineError> {
    let mut run = begin(setup, devices, &Cancel::new())?;
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes))?;
    }
    run.drain()?;
    let files = table(&run, tree);
    run.finish(files, facts()).map(drop)
}

/// Name and content of every file of a directory.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    names(dir)
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn restores_to(tree: &Tree, places: &[PathBuf]) {
    let set = verify(places).unwrap();
    let into = tempfile::tempdir().unwrap();
    bring_back(&set, into.path()).unwrap();
    assert_same(tree, into.path());
}

/// For each kind of call, fails the 1st, 2nd, 3rd ... call until a run passes.
fn fail_each_call(setup: &Setup, effect: Effect) {
    let dir = tempfile::tempdir().unwrap();
    let tree = mixed_tree(21);
    let older_tree = mixed_tree(22);
    let made = make_set(
        &older_tree,
        &dir.path().join("o"),
        &Setup {
            set_id: OLDER,
            ..setup.clone()
        },
    );
    let older: Vec<_> = (0..setup.stripes)
        .map(|stripe| dir.path().join(format!("older{stripe}")))
        .collect();
    made.iter()
        .zip(&older)
        .for_each(|(from, to)| rename(from, to));
    fs::remove_dir(dir.path().join("o")).unwrap();
    for call in Call::ALL {
        for number in 1.. {
            assert!(number < 500, "the run never passes");
            if !fail_one(dir.path(), &tree, setup, Faults::at(call, number, effect)) {
                // A writer need not ever wait for its device, so `Reap` may never be called.
                assert!(number > 1 || call == Call::Reap, "{call:?} is never called");
                break;
            }
        }
        restores_to(&tree, &stripe_paths(dir.path(), setup));
        stripe_paths(dir.path(), setup)
            .iter()
            .for_each(|place| fs::remove_file(place).unwrap());
        restores_to(&older_tree, &older);
    }
}

/// Does one run with one fault. Returns false if the run passed because it never reached the fault.
fn fail_one(dir: &Path, tree: &Tree, setup: &Setup, faults: Faults) -> bool {
    let before = content(dir);
    let result = run(tree, setup, faulty_devices(dir, setup, &faults));
    let Some(call) = faults.failed() else {
        result.unwrap();
        return false;
    };
    let error = result.expect_err("a failed call fails the run");
    assert!(
        matches!(error, EngineError::DeviceIo { .. }),
        "{faults:?}: {error}"
    );
    assert_eq!(
        faults.calls_after_failure(),
        0,
        "{faults:?}: the stripe is dead"
    );
    if call == Call::Publish {
        // All seals were durable, so the set exists, whatever names its stripes have.
        let here = content(dir)
            .into_iter()
            .filter(|file| !before.contains(file));
        let places: Vec<_> = here.map(|(path, _)| path).collect();
        assert_eq!(places.len(), setup.stripes, "{faults:?}: {places:?}");
        restores_to(tree, &places);
        restores_to(tree, &places[..1]);
        places
            .iter()
            .for_each(|place| fs::remove_file(place).unwrap());
    }
    assert!(
        content(dir) == before,
        "{faults:?}: something was left behind"
    );
    true
}

#[test]
fn a_failure_of_any_call_on_one_device_leaves_nothing_behind() {
    fail_each_call(&setup(1, Codec::Zstd(1), true), Effect::None);
}

#[test]
fn a_failure_of_any_call_on_three_devices_leaves_nothing_behind() {
    fail_each_call(&setup(3, Codec::None, true), Effect::None);
}

#[test]
fn a_failure_of_any_call_without_a_ring_leaves_nothing_behind() {
    fail_each_call(&setup(2, Codec::Lz4, false), Effect::None);
}

#[test]
fn a_call_that_was_made_and_then_failed_leaves_nothing_behind() {
    fail_each_call(&setup(2, Codec::Zstd(1), true), Effect::Done);
}

#[test]
fn a_sealed_set_whose_names_are_taken_opens_under_the_partial_ones() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(3, Codec::Zstd(1), true);
    let tree = mixed_tree(5);
    let devices = file_devices(dir.path(), &setup);
    // After the device was created, a directory takes the name of the second stripe.
    fs::create_dir_all(stripe_path(dir.path(), 1).join("in the way")).unwrap();
    let error = run(&tree, &setup, devices).unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::DeviceIo {
                operation: DeviceOperation::Publish,
                ..
            }
        ),
        "{error}"
    );
    let partial = format!("{}{PARTIAL_SUFFIX}", stripe_path(dir.path(), 1).display());
    restores_to(&tree, &[stripe_path(dir.path(), 0)]);
    restores_to(&tree, &[partial.into()]);
}

#[test]
fn a_stripe_that_is_there_already_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(1, Codec::None, true);
    make_set(&mixed_tree(1), dir.path(), &setup);
    let before = content(dir.path());
    let created = windlass_engine::FileDevice::create(
        &stripe_path(dir.path(), 0),
        windlass_engine::FileDeviceOptions::default(),
    );
    assert!(matches!(
        created.err(),
        Some(EngineError::DeviceIo {
            operation: DeviceOperation::Create,
            ..
        })
    ));
    assert!(content(dir.path()) == before);
}

/// Where in a recording each stripe's seal was written.
fn seals(acts: &[(usize, Act)], stripes: usize) -> Vec<usize> {
    let last_write = |stripe| {
        acts.iter()
            .rposition(|(device, act)| *device == stripe && matches!(act, Act::Write(..)))
    };
    (0..stripes)
        .map(|stripe| last_write(stripe).unwrap())
        .collect()
}

fn lay_out(
    dir: &Path,
    acts: &[(usize, Act)],
    moment: usize,
    stripes: usize,
    keep: &mut dyn FnMut() -> bool,
) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for stripe in 0..stripes {
        let (bytes, published) = crash_image(acts, moment, stripe, &mut *keep);
        let name = crash_name(&format!("set.{stripe}.windlass"), published);
        places.push(dir.join(name));
        write(places.last().unwrap(), &bytes);
    }
    places
}

fn crash_everywhere(codec: Codec, stripes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(stripes, codec, true);
    let tree = mixed_tree(31);
    let recording = Recording::default();
    let device = |index| {
        let location = stripe_path(dir.path(), index);
        Box::new(recording.device(index, &location, 512)) as Box<dyn Device>
    };
    run(&tree, &setup, (0..stripes).map(device).collect()).unwrap();
    let acts = recording.acts();
    let sealed = seals(&acts, stripes).into_iter().max().unwrap();
    let all_synced = acts
        .iter()
        .rposition(|(_, act)| matches!(act, Act::Sync))
        .unwrap();
    let mut random = Random::new(17);
    let (mut opened, mut refused) = (0, 0);
    for moment in 0..=acts.len() {
        for subset in 0..6u64 {
            // Keeps none of the bytes that were not synced, or all of them, or some.
            let mut keep = || match subset {
                0 => false,
                1 => true,
                share => random.below(share) > 0,
            };
            let crashed = tempfile::tempdir_in(dir.path()).unwrap();
            let places = lay_out(crashed.path(), &acts, moment, stripes, &mut keep);
            let moved = open(&places);
            if moment <= sealed {
                assert!(
                    moved.is_err(),
                    "moment {moment}: opens before its last seal"
                );
            }
            if moment > all_synced {
                assert!(moved.is_ok(), "moment {moment}: sealed, and does not open");
            }
            match moved {
                Ok(_) => restores_to(&tree, &places),
                Err(_) => refused += 1,
            }
            opened += u32::from(moment > sealed);
        }
    }
    assert!(opened > 0 && refused > 0);
}

#[test]
fn a_crash_at_any_moment_leaves_no_set_or_a_whole_one() {
    crash_everywhere(Codec::Zstd(1), 1);
    crash_everywhere(Codec::None, 2);
    crash_everywhere(Codec::Lz4, 3);
}

#[test]
fn an_unsealed_stripe_says_that_its_run_did_not_finish() {
    let dir = tempfile::tempdir().unwrap();
    let place = make_set(&mixed_tree(1), dir.path(), &setup(1, Codec::Zstd(1), true)).remove(0);
    let partial = PathBuf::from(format!("{}{PARTIAL_SUFFIX}", place.display()));
    rename(&place, &partial);
    let file = fs::File::options().write(true).open(&partial).unwrap();
    let seal = file.metadata().unwrap().len() - SEAL_BYTES as u64;
    file.write_all_at(&[0; SEAL_BYTES], seal).unwrap();
    let error = open(&[partial]).unwrap_err();
    assert!(matches!(error, EngineError::NotSealed { .. }), "{error}");
}
