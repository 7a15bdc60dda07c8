//! The verdict names the stage that was made slow. No test looks at a clock: what is slow is so by
//! a factor that no machine makes up for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::{
    BackupType, Base, Codec, FileNo, FileTable, Inherited, InheritedFiles, SetId,
};
use windlass_engine::{
    Cancel, Device, DeviceLayer, EngineError, LayeredDevice, NulDevice, OpenSet, PageHook, Pages,
    RestoreOptions, RunReport, Target, restore,
};
use windlass_testkit::faulty;
use windlass_testkit::heap::{HEAP_PAGE, HeapHook, heap_pages};

use crate::support::*;

const FILE_BYTES: usize = 128 * 1024;
const MIB: u64 = 1 << 20;

fn nul() -> Box<dyn Device> {
    Box::new(NulDevice::new(4096))
}

fn slow_nul(millis: u64) -> Box<dyn Device> {
    faulty::slow(nul(), Duration::from_millis(millis))
}

/// Backs up `files` files of noise.
fn noise_run(setup: &Setup, devices: Vec<Box<dyn Device>>, files: usize) -> RunReport {
    hooked_run(setup, devices, files, None)
}

fn hooked_run(
    setup: &Setup,
    devices: Vec<Box<dyn Device>>,
    files: usize,
    hook: Option<Arc<dyn PageHook>>,
) -> RunReport {
    let mut run = begin(setup, devices, &Cancel::new()).unwrap();
    hook.into_iter().for_each(|hook| run.set_hook(hook));
    let noise = Random::new(1).noise(FILE_BYTES);
    (0..files).for_each(|index| run.push(bytes_spec(index, &noise)).unwrap());
    run.finish(FileTable::default(), facts()).unwrap()
}

fn uncompressed() -> Setup {
    Setup {
        codec: Codec::None,
        ..Setup::default()
    }
}

fn assert_limit(report: &RunReport, stage: &str) {
    assert_eq!(
        report.limit.stage.name(),
        stage,
        "{}: {:#?}",
        report.verdict,
        report.stages
    );
}

#[test]
fn a_throttled_source_is_named() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd(1)] {
        let setup = Setup {
            codec,
            source_rate: Some(8 * MIB),
            ..Setup::default()
        };
        assert_limit(&noise_run(&setup, vec![nul()], 48), "rate_limit");
    }
}

#[test]
fn a_throttled_device_is_named() {
    for codec in [Codec::None, Codec::Zstd(1)] {
        let setup = Setup {
            codec,
            device_rate: Some(8 * MIB),
            ..Setup::default()
        };
        assert_limit(&noise_run(&setup, vec![nul()], 48), "device_rate_limit");
        assert_limit(
            &noise_run(&setup, vec![nul(), nul()], 48),
            "device_rate_limit",
        );
    }
}

/// Nothing is made durable, neither bytes nor names: that may take the disk of this machine longer
/// than the whole run.
struct NotDurable;

impl DeviceLayer for NotDurable {
    fn sync(&mut self, _: &mut dyn Device) -> Result<(), EngineError> {
        Ok(())
    }

    fn publish(&mut self, _: &mut dyn Device) -> Result<(), EngineError> {
        Ok(())
    }
}

#[test]
fn throttled_files_are_named_as_nul_is() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup {
        device_rate: Some(2 * MIB),
        stripes: 2,
        ..uncompressed()
    };
    let not_durable = |file| Box::new(LayeredDevice::new(NotDurable, file)) as Box<dyn Device>;
    let files = file_devices(dir.path(), &setup).into_iter();
    let report = noise_run(&setup, files.map(not_durable).collect(), 24);
    assert_limit(&report, "device_rate_limit");
}

#[test]
fn of_two_limits_the_lower_is_named() {
    let both = |source, device| {
        let (source_rate, device_rate) = (Some(source * MIB), Some(device * MIB));
        noise_run(
            &Setup {
                source_rate,
                device_rate,
                ..uncompressed()
            },
            vec![nul()],
            48,
        )
    };
    assert_limit(&both(8, 32), "rate_limit");
    assert_limit(&both(32, 8), "device_rate_limit");
}

#[test]
fn a_heavy_codec_is_named() {
    let setup = Setup {
        codec: Codec::Zstd(19),
        ..Setup::default()
    };
    let mut run = begin(&setup, vec![nul()], &Cancel::new()).unwrap();
    let mut random = Random::new(1);
    for index in 0..24 {
        // Words from a small vocabulary. They give a match finder much work.
        let words = (0..FILE_BYTES / 4).flat_map(|_| (random.below(3000) as u32).to_le_bytes());
        run.push(bytes_spec(index, &words.collect::<Vec<_>>()))
            .unwrap();
    }
    let report = run.finish(FileTable::default(), facts()).unwrap();
    assert_limit(&report, "compressor");
    assert!(report.verdict.contains("zstd:19"), "{}", report.verdict);
}

/// The codec is as heavy, but it is not all that the cores do.
#[test]
fn cores_that_take_pages_apart_are_said_to_do_so() {
    let setup = Setup {
        codec: Codec::Zstd(19),
        page_frames: true,
        ..Setup::default()
    };
    // Made before the run begins: the cores wait for nobody.
    let pages = heap_pages(4 * FILE_BYTES / HEAP_PAGE, 1);
    let files: Vec<u32> = (0..24).collect();
    let mut run = begin(&setup, vec![nul()], &Cancel::new()).unwrap();
    run.set_hook(Arc::new(HeapHook::new(&files)));
    for index in 0..files.len() {
        run.push(bytes_spec(index, &pages)).unwrap();
    }
    let report = run.finish(FileTable::default(), facts()).unwrap();
    assert_limit(&report, "compressor");
    let words = "the cores (zstd:19 with pages apart on ";
    assert!(report.verdict.contains(words), "{}", report.verdict);
}

#[test]
fn a_slow_device_is_named() {
    let report = noise_run(&uncompressed(), vec![slow_nul(15)], 32);
    assert_limit(&report, "device");
    assert_eq!(report.limit.device.as_deref(), Some("nul"));
}

#[test]
fn a_device_slow_to_sync_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let setup = uncompressed();
    let file = file_devices(dir.path(), &setup).remove(0);
    let device = faulty::slow_to_sync(file, Duration::from_millis(1000));
    assert_limit(&noise_run(&setup, vec![device], 16), "device");
}

#[test]
fn two_slow_devices_are_named() {
    let report = noise_run(&uncompressed(), vec![slow_nul(20), slow_nul(20)], 48);
    assert_limit(&report, "device");
}

#[test]
fn beside_a_slow_device_the_fast_one_takes_the_frames_and_neither_is_the_limit() {
    let setup = Setup {
        source_rate: Some(16 * MIB),
        ..uncompressed()
    };
    let report = noise_run(&setup, vec![slow_nul(100), nul()], 64);
    let [slow, fast] = report.devices.as_slice() else {
        panic!("two devices")
    };
    assert!(
        fast.bytes > 4 * slow.bytes,
        "{} and {}",
        fast.bytes,
        slow.bytes
    );
    assert_limit(&report, "rate_limit");
}

struct SlowHook;

impl PageHook for SlowHook {
    fn pages(&self, _: &mut Pages<'_>) -> Result<(), EngineError> {
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }
}

#[test]
fn a_hook_that_waits_is_the_compressors_business() {
    for codec in [Codec::None, Codec::Zstd(1)] {
        let setup = Setup {
            codec,
            ..Setup::default()
        };
        let report = hooked_run(&setup, vec![nul()], 48, Some(Arc::new(SlowHook)));
        assert_limit(&report, "compressor");
    }
}

#[test]
fn a_database_that_is_not_ready_is_named() {
    let mut run = begin(&uncompressed(), vec![nul()], &Cancel::new()).unwrap();
    let noise = Random::new(1).noise(FILE_BYTES);
    for index in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        run.push(bytes_spec(index, &noise)).unwrap();
    }
    assert_limit(
        &run.finish(FileTable::default(), facts()).unwrap(),
        "database",
    );
}

struct SlowTarget;

impl Target for SlowTarget {
    fn write(&self, _: FileNo, _: u64, _: &[u8]) -> Result<(), EngineError> {
        std::thread::sleep(Duration::from_millis(15));
        Ok(())
    }

    fn hole(&self, _: FileNo, _: u64, _: u64) -> Result<(), EngineError> {
        Ok(())
    }

    fn finish(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

struct SlowSync;

impl Target for SlowSync {
    fn write(&self, _: FileNo, _: u64, _: &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn hole(&self, _: FileNo, _: u64, _: u64) -> Result<(), EngineError> {
        Ok(())
    }

    fn finish(&self) -> Result<(), EngineError> {
        std::thread::sleep(Duration::from_millis(1500));
        Ok(())
    }
}

fn restored(target: &dyn Target, device_rate: Option<u64>) -> RunReport {
    let dir = tempfile::tempdir().unwrap();
    let tree: Tree = (0..32)
        .map(|index| (format!("f{index}"), Random::new(index).noise(FILE_BYTES)))
        .collect();
    for codec in [Codec::None, Codec::Lz4] {
        let setup = Setup {
            stripes: 2,
            codec,
            ..Setup::default()
        };
        warm(&make_set(&tree, &dir.path().join(codec.name()), &setup));
    }
    let set = open(&[dir.path().join("lz4")]).unwrap();
    restored_set(&set, target, device_rate)
}

fn restored_set(set: &OpenSet, target: &dyn Target, device_rate: Option<u64>) -> RunReport {
    let options = RestoreOptions {
        device_rate,
        ..restore_options()
    };
    let options = options.fit(set).unwrap();
    restore(set, target, &options, &Arc::default(), &Cancel::new()).unwrap()
}

/// How many sets a chain has. Each but the first, which has all, has another part of each file.
const LINKS: usize = 4;
const LINK_FILES: u32 = 8;

/// The newest set of a chain.
fn chain(dir: &Path) -> OpenSet {
    let bytes = LINKS * FILE_BYTES;
    let files = (0..LINK_FILES).map(|file| Random::new(file.into()).noise(bytes));
    let files: Vec<_> = files.collect();
    let mut newest: Option<OpenSet> = None;
    for link in 0..LINKS {
        let setup = Setup {
            codec: Codec::Lz4,
            set_id: SetId([link as u8 + 1; 16]),
            ..Setup::default()
        };
        let place = dir.join(link.to_string());
        std::fs::create_dir(&place).unwrap();
        let mut run = begin(&setup, file_devices(&place, &setup), &Cancel::new()).unwrap();
        let mut about = facts();
        let part = (link * FILE_BYTES) as u64..((link + 1) * FILE_BYTES) as u64;
        for (file, content) in files.iter().enumerate() {
            let mut spec = bytes_spec(file, content);
            spec.needed_bytes = spec.bytes;
            match link {
                0 => run.push(spec).unwrap(),
                _ => run.push_parts(spec, std::iter::once(part.clone())).unwrap(),
            }
        }
        run.drain().unwrap();
        if let Some(base) = &newest {
            let inherited = (0..LINK_FILES).map(|file| Inherited {
                file: FileNo(file),
                base_file: FileNo(file),
                bytes: bytes as u64,
            });
            about.backup_type = BackupType::Incr;
            about.parents = base.links().map(|one| one.set_id().to_string()).collect();
            run.build_on(Base {
                files: InheritedFiles::new(inherited.collect()),
                ..base.as_base()
            });
        }
        let entries = (0..LINK_FILES).map(|file| entry(file as usize, &format!("f{file}"), bytes));
        run.finish(FileTable(entries.collect()), about).unwrap();
        let stripes = stripe_paths(&place, &setup);
        warm(&stripes);
        newest = Some(open(&stripes).unwrap());
    }
    newest.unwrap()
}

/// The sets of a chain are read one after the other, each by threads of its own. What holds all of
/// them up is named as for one set.
#[test]
fn what_holds_a_chain_up_is_named_as_for_one_set() {
    let dir = tempfile::tempdir().unwrap();
    let set = chain(dir.path());
    assert_eq!(set.links().count(), LINKS);
    let slow = restored_set(&set, &SlowTarget, None);
    assert_limit(&slow, "target");
    assert_eq!(slow.stages[0].threads, 1, "a set has one stripe");
    assert_eq!(slow.devices.len(), LINKS);
    let throttled = restored_set(&set, &windlass_engine::Discard, Some(2 * MIB));
    assert_limit(&throttled, "rate_limit");
}

#[test]
fn a_slow_target_is_named() {
    assert_limit(&restored(&SlowTarget, None), "target");
}

#[test]
fn a_target_slow_to_sync_is_named() {
    assert_limit(&restored(&SlowSync, None), "target");
}

#[test]
fn throttled_stripes_are_named() {
    let report = restored(&windlass_engine::Discard, Some(8 * MIB));
    assert_limit(&report, "rate_limit");
    let words = "the rate limit of 8 MiB/s on reading the stripes";
    assert!(report.verdict.contains(words), "{}", report.verdict);
}

#[test]
fn no_limit_is_named_that_nobody_measured() {
    // With a strong codec a device that keeps nothing, and a source in memory, are nearly idle.
    let setup = Setup {
        codec: Codec::Zstd(19),
        ..Setup::default()
    };
    for source_rate in [None, Some(4 * MIB)] {
        let setup = Setup {
            source_rate,
            ..setup.clone()
        };
        let report = noise_run(&setup, vec![nul()], 32);
        let rate = report.limit.rate;
        if let Some(next) = report.limit.next {
            assert!(next.rate <= 10.0 * rate, "{}", report.verdict);
        }
    }
}
