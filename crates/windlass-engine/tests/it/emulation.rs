//! Storage that behaves like a model: no run is faster than the model allows, the verdict names
//! what the model makes the limit, and what is written is what would have been without it.

use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{Codec, FileNo};
use windlass_engine::{
    Cancel, DirectoryTarget, EngineError, NulDevice, RestoreOptions, RunReport, Target,
    TargetLayout, restore,
};
use windlass_model::Emulation;

use crate::support::*;

const FILES: usize = 24;
const FILE_BYTES: usize = 512 * 1024;

/// A database of random bytes in files, so that every read goes through the whole path.
fn database() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(7);
    let file = |index| (format!("base/{index}"), random.noise(FILE_BYTES));
    let tree: Tree = (0..FILES).map(file).collect();
    plant(&tree, dir.path());
    (dir, tree)
}

fn emulating(codec: Codec, items: &[&str]) -> Setup {
    Setup {
        codec,
        pacing: Emulation::parse(items.iter().copied()).unwrap().pacing(),
        ..Setup::default()
    }
}

/// A backup to as many `nul` devices as `devices` says, under this emulation.
fn backup(root: &Path, tree: &Tree, codec: Codec, devices: usize, items: &[&str]) -> RunReport {
    let devices = (0..devices).map(|_| Box::new(NulDevice::new(4096)) as _);
    back_up(tree, root, &emulating(codec, items), devices.collect()).unwrap()
}

/// What bounds the run, the highest rate that the model allows, and the options that name the
/// model.
type Case<'a> = (&'a str, f64, usize, Codec, &'a [&'a str]);

#[test]
fn the_verdict_names_what_the_model_makes_the_limit() {
    let (dir, tree) = database();
    let (plain, light) = (Codec::None, Codec::Zstd(1));
    let cases: [Case<'_>; 13] = [
        ("source", 20e6, 1, plain, &["source=rate:20MB/s"]),
        ("source", 20e6, 1, light, &["source=rate:20MB/s"]),
        (
            "source",
            20e6,
            4,
            plain,
            &["source=rate:20MB/s", "target=rate:80MB/s"],
        ),
        // Two readers have one transfer each under way at a time, or a few more.
        (
            "source",
            40e6,
            1,
            plain,
            &["source=rate:4000MB/s,latency=20ms"],
        ),
        ("source", 25e6, 1, plain, &["source=hdd:25MB/s"]),
        (
            "source",
            20e6,
            2,
            plain,
            &["source=s3:2x10MB/s", "target=rate:90MB/s"],
        ),
        ("device", 20e6, 1, plain, &["target=rate:20MB/s"]),
        ("device", 20e6, 1, light, &["target=rate:20MB/s"]),
        (
            "device",
            20e6,
            1,
            plain,
            &["source=rate:80MB/s", "target=rate:20MB/s"],
        ),
        ("device", 10e6, 1, plain, &["target=s3:4x10MB/s"]),
        ("device", 40e6, 4, plain, &["target=s3:4x10MB/s"]),
        ("device", 20e6, 3, plain, &["target=s3:2x10MB/s"]),
        (
            "compressor",
            1e9,
            1,
            Codec::Zstd(19),
            &["source=rate:900MB/s"],
        ),
    ];
    for (stage, most, devices, codec, items) in cases {
        let report = backup(dir.path(), &tree, codec, devices, items);
        let limit = &report.limit;
        assert_eq!(limit.stage.name(), stage, "{items:?}: {}", report.verdict);
        assert!(limit.rate <= most * 1.1, "{items:?}: {}", report.verdict);
    }
}

/// Each file is one transfer, so whichever reader makes it, the disk seeks for it.
#[test]
fn a_disk_that_seeks_is_the_limit_although_it_could_give_more_in_sequence() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(9);
    let file = |index| (format!("base/{index}"), random.noise(64 * 1024));
    let tree: Tree = (0..80).map(file).collect();
    plant(&tree, dir.path());
    let items = ["source=hdd:100MB/s", "target=rate:20MB/s"];
    let report = backup(dir.path(), &tree, Codec::None, 2, &items);
    let limit = &report.limit;
    assert_eq!(limit.stage.name(), "source", "{}", report.verdict);
    assert!(limit.rate <= 6e6, "{}", report.verdict);
}

#[test]
fn a_machine_shares_its_caps() {
    let (dir, tree) = database();
    // Each volume could do a gigabyte per second. The machine allows 81 MB/s for both together.
    let volume = "gp3:1TB,iops=16000,throughput=1000MB/s";
    let (source, target) = (format!("source={volume}"), format!("target={volume}"));
    let items = [source.as_str(), target.as_str(), "instance=r5.large"];
    let report = backup(dir.path(), &tree, Codec::None, 1, &items);
    assert!(
        report.limit.rate <= 81.25e6 / 2.0 * 1.1,
        "{}",
        report.verdict
    );
    assert!(
        ["source", "device"].contains(&report.limit.stage.name()),
        "{}",
        report.verdict
    );
}

#[test]
fn what_went_through_a_model_comes_back_equal() {
    let (dir, tree) = database();
    let place = tempfile::tempdir().unwrap();
    let setup = Setup {
        stripes: 2,
        ..emulating(
            Codec::Lz4,
            &["source=rate:300MB/s", "target=rate:200MB/s,latency=1ms"],
        )
    };
    back_up(
        &tree,
        dir.path(),
        &setup,
        file_devices(place.path(), &setup),
    )
    .unwrap();
    let set = verify(&stripe_paths(place.path(), &setup)).unwrap();
    let into = place.path().join("back");
    bring_back(&set, &into).unwrap();
    assert_same(&tree, &into);
}

/// A directory that is made durable after the run: that takes as long as the disk of this machine
/// needs, of which no model knows.
struct NotYetDurable<'a>(&'a DirectoryTarget);

impl Target for NotYetDurable<'_> {
    fn write(&self, file: FileNo, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.0.write(file, offset, bytes)
    }

    fn hole(&self, file: FileNo, offset: u64, bytes: u64) -> Result<(), EngineError> {
        self.0.hole(file, offset, bytes)
    }

    fn finish(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

#[test]
fn a_restore_is_as_slow_as_the_models_of_its_stripes_and_of_its_target() {
    let (_dir, tree) = database();
    let place = tempfile::tempdir().unwrap();
    let setup = Setup {
        stripes: 2,
        ..emulating(Codec::None, &[])
    };
    let places = make_set(&tree, &place.path().join("set"), &setup);
    let set = open(&places).unwrap();
    for (stage, item) in [
        ("device", "target=s3:2x10MB/s"),
        ("target", "source=rate:20MB/s"),
    ] {
        let layout = TargetLayout {
            root: place.path().join(stage),
            files: set.description().files.clone(),
            ..TargetLayout::default()
        };
        let target = DirectoryTarget::create(layout).unwrap();
        let options = RestoreOptions {
            pacing: Emulation::parse([item]).unwrap().pacing(),
            ..restore_options()
        };
        let options = options.fit(&set).unwrap();
        warm(&places);
        let running = NotYetDurable(&target);
        let report = restore(&set, &running, &options, &Arc::default(), &Cancel::new()).unwrap();
        target.finish().unwrap();
        assert_eq!(report.limit.stage.name(), stage, "{}", report.verdict);
        assert!(report.limit.rate <= 22e6, "{}", report.verdict);
        assert_same(&tree, &place.path().join(stage));
    }
}
