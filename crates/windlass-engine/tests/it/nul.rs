//! `nul` measures the pipeline and keeps nothing.

use windlass_engine::media::{Codec, FileTable};
use windlass_engine::{Cancel, Device, EngineError, NulDevice, Setting, SettingFault};

use crate::support::*;

fn nul() -> Box<dyn Device> {
    Box::new(NulDevice::new(4096))
}

/// Whether the error is this fault of the devices.
fn is_fault(error: &EngineError, is: impl Fn(&SettingFault) -> bool) -> bool {
    matches!(error, EngineError::Setting { setting: Setting::Devices, fault } if is(fault))
}

#[test]
fn a_run_to_nul_reports_what_it_did_and_makes_no_set() {
    for (count, codec) in [(1, Codec::None), (3, Codec::Zstd(1))] {
        let setup = Setup {
            codec,
            ..Setup::default()
        };
        let devices = (0..count).map(|_| nul()).collect();
        let mut run = begin(&setup, devices, &Cancel::new()).unwrap();
        let bytes = Random::new(1).noise(3_000_000);
        run.push(bytes_spec(0, &bytes)).unwrap();
        let report = run.finish(FileTable::default(), facts()).unwrap();
        assert_eq!(report.bytes_read, 3_000_000);
        assert_eq!(report.devices.len(), count);
        assert!(report.devices.iter().all(|device| device.name == "nul"));
        assert!(
            report
                .devices
                .iter()
                .map(|device| device.bytes)
                .sum::<u64>()
                >= 3_000_000
        );
        assert!(report.limit.rate > 0.0);
        let operations: u64 = report.devices.iter().map(|device| device.operations).sum();
        assert!(operations >= 3_000_000 / (64 * 1024));
    }
}

#[test]
fn nul_beside_a_device_that_keeps_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::default();
    let mut devices = file_devices(dir.path(), &setup);
    devices.push(nul());
    let error = begin(&setup, devices, &Cancel::new()).err().unwrap();
    assert!(
        is_fault(&error, |fault| matches!(fault, SettingFault::DevicesMixed)),
        "{error}"
    );
    assert!(names(dir.path()).is_empty());
}

#[test]
fn no_device_at_all_is_refused() {
    let error = begin(&Setup::default(), Vec::new(), &Cancel::new())
        .err()
        .unwrap();
    assert!(
        is_fault(&error, |fault| matches!(fault, SettingFault::NoDevice)),
        "{error}"
    );
}
