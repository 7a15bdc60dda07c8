//! A run takes more buffers while a device gains from them, unless somebody chose their number.

use std::sync::Arc;

use windlass_engine::media::Codec;
use windlass_engine::{BufferRequest, Cancel, Discard, RestoreOptions, RunReport, restore};
use windlass_model::Emulation;

use crate::support::*;

const FILES: usize = 24;
const FILE_BYTES: usize = 1 << 20;

fn tree() -> Tree {
    let mut random = Random::new(11);
    let file = |index| (format!("base/{index}"), random.noise(FILE_BYTES));
    (0..FILES).map(file).collect()
}

/// A device that answers after 10 ms, and then at once: more transfers in flight are all it needs.
fn setup(late: &str, buffers: Option<usize>) -> Setup {
    let item = format!("{late}=rate:4000MB/s,latency=10ms");
    Setup {
        codec: Codec::None,
        pacing: Emulation::parse([item.as_str()]).unwrap().pacing(),
        request: BufferRequest {
            buffers,
            transfer_bytes: Some(64 * 1024),
            ..BufferRequest::default()
        },
        ..Setup::default()
    }
}

fn restoring(setup: &Setup) -> RestoreOptions {
    RestoreOptions {
        plan: setup.request.plan(1, 1).unwrap(),
        device_rate: None,
        ring: true,
        pacing: setup.pacing.clone(),
    }
}

/// Backs up, restores, and compares. Returns the report of the backup.
fn there_and_back(setup: &Setup) -> RunReport {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    plant(&tree, dir.path());
    let devices = file_devices(dir.path(), setup);
    let report = back_up(&tree, dir.path(), setup, devices).unwrap();
    let into = dir.path().join("into");
    bring_back(&open(&stripe_paths(dir.path(), setup)).unwrap(), &into).unwrap();
    assert_same(&tree, &into);
    report
}

#[test]
fn a_backup_takes_more_buffers_while_a_late_source_gains_from_them() {
    let report = there_and_back(&setup("source", None));
    assert_eq!(report.buffers, 7);
    let peak = report.buffers_peak;
    assert!((14..=42).contains(&peak), "{peak}: {}", report.verdict);
}

#[test]
fn a_restore_takes_more_buffers_while_a_late_target_has_them() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    let quick = Setup {
        codec: Codec::Lz4,
        ..Setup::default()
    };
    let set = open(&make_set(&tree, dir.path(), &quick)).unwrap();
    let mut late = setup("source", None);
    (late.request.readers, late.request.restores) = (Some(1), true);
    late.request.compressors = Some(2);
    let into = dir.path().join("into");
    let report = bring_back_with(&set, &into, restoring(&late)).unwrap();
    assert_eq!(report.buffers, 15);
    assert!(report.buffers_peak > 15, "{}", report.verdict);
    assert_same(&tree, &into);
}

#[test]
fn a_number_that_somebody_chose_stays() {
    let report = there_and_back(&setup("source", Some(7)));
    assert_eq!((report.buffers, report.buffers_peak), (7, 7));
}

#[test]
fn the_limit_of_memory_holds_for_buffers_that_come_later() {
    let mut setup = setup("source", None);
    setup.request.memory_limit = Some(9 * 64 * 1024);
    let report = there_and_back(&setup);
    assert!(report.buffers_peak <= 9, "{}", report.buffers_peak);
}

#[test]
fn a_verification_takes_more_buffers_while_a_late_device_gains_from_them() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    let quick = Setup {
        codec: Codec::None,
        ..Setup::default()
    };
    let set = open(&make_set(&tree, dir.path(), &quick)).unwrap();
    let mut late = setup("target", None);
    // As a restore has it: one reader for each stripe.
    late.request.readers = Some(1);
    let options = restoring(&late).fit(&set).unwrap();
    let report = restore(&set, &Discard, &options, &Arc::default(), &Cancel::new()).unwrap();
    assert!(report.buffers_peak > report.buffers, "{}", report.verdict);
}
