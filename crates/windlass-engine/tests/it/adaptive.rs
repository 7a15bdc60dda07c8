//! Adaptive compression: what waits make the codec, and that sets of mixed codecs come back equal.
//!
//! Judged by what was chosen, never by how long it took.

use std::collections::BTreeSet;

use windlass_engine::media::Codec;
use windlass_engine::{CodecChange, CodecRange, CompressionReport, NulDevice, RunReport};
use windlass_model::Emulation;

use crate::support::*;

const FILE_BYTES: usize = 1 << 20;

/// Files that every codec makes smaller than the codec before it does.
fn database(files: usize) -> Tree {
    let words: Vec<Vec<u8>> = (0..64).map(|seed| Random::new(seed).noise(11)).collect();
    let mut random = Random::new(11);
    let mut file = || {
        let mut bytes = Vec::with_capacity(FILE_BYTES + 64);
        while bytes.len() < FILE_BYTES {
            bytes.extend_from_slice(&words[random.below(64) as usize]);
            let noise = random.below(9) as usize;
            bytes.extend_from_slice(&random.noise(noise));
        }
        bytes.truncate(FILE_BYTES);
        bytes
    };
    (0..files)
        .map(|index| (format!("base/{index}"), file()))
        .collect()
}

fn setup(start: Codec, items: &[&str]) -> Setup {
    Setup {
        codec: start,
        range: CodecRange::new(Codec::Lz4, Codec::Zstd(9)),
        pacing: Emulation::parse(items.iter().copied()).unwrap().pacing(),
        ..Setup::default()
    }
}

fn compression(tree: &Tree, setup: &Setup) -> CompressionReport {
    run(tree, setup).compression.unwrap()
}

fn run(tree: &Tree, setup: &Setup) -> RunReport {
    let dir = tempfile::tempdir().unwrap();
    plant(tree, dir.path());
    let device = Box::new(NulDevice::new(4096)) as _;
    back_up(tree, dir.path(), setup, vec![device]).unwrap()
}

#[test]
fn a_report_is_read_back_as_it_was_to_the_last_bit() {
    let report = run(
        &database(16),
        &setup(Codec::Zstd(1), &["target=rate:6MB/s"]),
    );
    assert!(!report.stages[0].waits.is_empty());
    assert!(!report.compression.as_ref().unwrap().changes.is_empty());
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<RunReport>(&text).unwrap(), report);
}

#[test]
fn a_slow_device_makes_it_compress_harder() {
    let setup = setup(Codec::Zstd(1), &["target=rate:6MB/s"]);
    let found = compression(&database(16), &setup);
    let first = found.changes.first().unwrap();
    assert_eq!((first.from, first.to), (Codec::Zstd(1), Codec::Zstd(3)));
    assert!(first.held_up > 0.25, "{first:?}");
    assert!(found.used.iter().all(|one| one.codec != Codec::Lz4));
    // The words are about the last change: on a busy machine the cores may have held that one.
    let up = |one: &&CodecChange| (one.from, one.to) == (first.from, first.to);
    assert!(
        found
            .changes
            .iter()
            .filter(up)
            .all(|one| one.held_up > 0.25)
    );
}

#[test]
fn a_fast_device_makes_it_compress_less() {
    let found = compression(&database(48), &setup(Codec::Zstd(9), &[]));
    let first = found.changes.first().unwrap();
    assert_eq!((first.from, first.to), (Codec::Zstd(9), Codec::Zstd(6)));
    assert!(first.held_up < 0.25, "{first:?}");
    // Later changes, and the words about the last one, depend on whom a busy machine lets wait.
    let down = |one: &&CodecChange| (one.from, one.to) == (first.from, first.to);
    let mut downs = found.changes.iter().filter(down);
    assert!(downs.all(|one| one.held_up < 0.25));
    let last = found.changes.last().unwrap();
    let by_cores = found.words.contains("the cores held");
    assert!(by_cores || last.held_up >= 0.25, "{}", found.words);
}

#[test]
fn a_slow_source_leaves_it_as_it_is() {
    let found = compression(
        &database(8),
        &setup(Codec::Zstd(1), &["source=rate:16MB/s"]),
    );
    assert_eq!(found.changes, []);
    assert_eq!(found.used.len(), 1);
    assert_eq!(found.used[0].codec, Codec::Zstd(1));
}

#[test]
fn a_set_of_mixed_codecs_comes_back_equal() {
    let tree = database(12);
    let place = tempfile::tempdir().unwrap();
    plant(&tree, &place.path().join("source"));
    let setup = Setup {
        stripes: 2,
        range: CodecRange::new(Codec::None, Codec::Zstd(9)),
        ..setup(Codec::None, &["target=rate:12MB/s"])
    };
    let devices = file_devices(place.path(), &setup);
    let report = back_up(&tree, &place.path().join("source"), &setup, devices).unwrap();
    let used = report.compression.unwrap().used;
    assert!(used.len() > 1, "{used:?}");
    let set = verify(&stripe_paths(place.path(), &setup)).unwrap();
    let mut codecs = BTreeSet::new();
    for stripe in set.stripes() {
        for entry in stripe.directory() {
            let block = stripe.index_block(entry).unwrap();
            codecs.extend(block.frames.iter().map(|frame| frame.codec.number()));
        }
    }
    assert!(codecs.len() > 1, "{codecs:?}");
    let into = place.path().join("back");
    bring_back(&set, &into).unwrap();
    assert_same(&tree, &into);
}
