//! The models with names: what vendors publish of their storage, with its source.
//!
//! docs/lab.md lists every number with the page it is from. Units matter: AWS states MiB/s for
//! volumes, MB/s and Mb/s for instances; disks are sold in MB/s.

use std::ops::RangeInclusive;

use super::{Attachment, Burst, Limits, Model};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const TIB: f64 = 1024.0 * GIB;
const MIB: f64 = 1024.0 * 1024.0;

/// Sizes in which gp2, gp3 and st1 volumes are sold.
pub(super) const GP2_BYTES: RangeInclusive<f64> = GIB..=16.0 * TIB;
pub(super) const GP3_BYTES: RangeInclusive<f64> = GIB..=64.0 * TIB;
pub(super) const ST1_BYTES: RangeInclusive<f64> = 125.0 * GIB..=16.0 * TIB;
/// Operations per second with which volumes are sold.
pub(super) const GP3_OPERATIONS: RangeInclusive<f64> = 3000.0..=80_000.0;
pub(super) const IO1_OPERATIONS: RangeInclusive<f64> = 100.0..=64_000.0;
pub(super) const IO2_OPERATIONS: RangeInclusive<f64> = 100.0..=256_000.0;
/// Bytes per second with which gp3 volumes are sold, and how many for each operation per second.
pub(super) const GP3_RATES: RangeInclusive<f64> = 125.0 * MIB..=2000.0 * MIB;
pub(super) const GP3_BYTES_PER_OPERATION: f64 = 0.25 * MIB;

/// What one request to S3 gives, in bytes per second: "85-90 MB/s" in S3's performance guidelines.
pub const S3_STREAM_BYTES_PER_SECOND: f64 = 90e6;

/// General Purpose SSD: 3 operations per second for each GiB (100 to 16,000), with bursts to 3,000
/// from 5.4 million credits. The throughput is 250 MiB/s from 334 GiB on, 128 MiB/s up to 170 GiB.
pub(super) fn gp2(bytes: f64) -> Model {
    let gib = bytes / GIB;
    let operations = (3.0 * gib).clamp(100.0, 16_000.0);
    let burst = (operations < 3000.0).then_some(Burst {
        operations_per_second: 3000.0,
        credits: 5.4e6,
        credits_max: 5.4e6,
    });
    let megabytes = if gib <= 170.0 { 128.0 } else { 250.0 };
    block(
        "gp2",
        256,
        0.001,
        limits(megabytes * MIB, operations, burst),
    )
}

/// General Purpose SSD, whose performance does not depend on its size: 3,000 operations per second
/// and 125 MiB/s unless more is paid for, at most 0.25 MiB/s for each operation per second.
pub(super) fn gp3(operations: Option<f64>, rate: Option<f64>) -> Model {
    let operations = operations.unwrap_or(*GP3_OPERATIONS.start());
    let most = (operations * GP3_BYTES_PER_OPERATION).min(*GP3_RATES.end());
    let rate = rate.unwrap_or(125.0 * MIB).min(most);
    block("gp3", 256, 0.001, limits(rate, operations, None))
}

/// Provisioned IOPS SSD: 256 KiB for each operation, up to 500 MiB/s. Above 32,000 operations per
/// second it is 16 KiB for each, up to 1,000 MiB/s.
pub(super) fn io1(operations: f64) -> Model {
    let rate = if operations <= 32_000.0 {
        (operations * 256.0 * 1024.0).min(500.0 * MIB)
    } else {
        operations * 16.0 * 1024.0
    };
    block(
        "io1",
        256,
        0.001,
        limits(rate.min(1000.0 * MIB), operations, None),
    )
}

/// Provisioned IOPS SSD on Block Express: up to 256,000 operations per second, and 0.256 MiB/s for
/// each, up to 4,000 MiB/s. The latency is under half a millisecond.
pub(super) fn io2(operations: f64) -> Model {
    let rate = (operations * 0.256 * MIB).min(4000.0 * MIB);
    block("io2", 256, 0.0005, limits(rate, operations, None))
}

/// Throughput Optimized HDD: 40 MiB/s for each TiB, and bursts to 250 MiB/s for each TiB, but at
/// most 500 MiB/s. There is one TiB of credit for each TiB. All is counted in operations of one
/// MiB; a small random I/O takes a whole one.
pub(super) fn st1(bytes: f64) -> Model {
    let tib = bytes / TIB;
    let (base, high) = ((40.0 * tib).min(500.0), (250.0 * tib).min(500.0));
    let burst = (base < high).then_some(Burst {
        operations_per_second: high,
        credits: tib * TIB / MIB,
        credits_max: tib * TIB / MIB,
    });
    block("st1", 1024, 0.005, limits(500.0 * MIB, base, burst))
}

/// Streams to an object store. Each has its own cap, and their number is limited.
pub(super) fn s3(streams: Option<f64>, rate: f64) -> Model {
    let mut model = Model::unlimited("s3");
    model.attachment = Attachment::Network;
    model.stream.bytes_per_second = Some(rate);
    model.whole.bytes_per_second = streams.map(|streams| streams * rate);
    model
}

/// A spinning disk of 7,200 revolutions per minute: 4.16 ms for half a turn and 8 ms for a seek. So
/// it does one thing at a time.
pub(super) fn hdd(rate: Option<f64>) -> Model {
    let mut model = Model::unlimited("hdd");
    model.whole.bytes_per_second = Some(rate.unwrap_or(200e6));
    model.seek_seconds = 0.008 + 0.00416;
    model
}

fn limits(bytes: f64, operations: f64, burst: Option<Burst>) -> Limits {
    Limits {
        bytes_per_second: Some(bytes),
        operations_per_second: Some(operations),
        burst,
    }
}

fn block(name: &str, io_kib: u64, latency_seconds: f64, whole: Limits) -> Model {
    Model {
        io_bytes: io_kib * 1024,
        latency_seconds,
        whole,
        attachment: Attachment::Storage,
        ..Model::unlimited(name)
    }
}

/// A machine, with the caps that all its storage shares.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Instance {
    /// The vendor's name for it.
    pub name: String,
    /// Virtual cores.
    pub cores: usize,
    /// Bytes per second to block storage.
    pub storage_bytes_per_second: f64,
    /// Operations per second to block storage.
    pub storage_operations_per_second: f64,
    /// Bytes per second over the network, each way.
    pub network_bytes_per_second: f64,
}

/// Name, cores, Mb/s to block storage, operations per second to block storage, Gb/s of network.
/// Sizes that may burst are listed with what they can sustain.
const INSTANCES: [(&str, usize, f64, f64, f64); 10] = [
    ("m5.xlarge", 4, 1150.0, 6_000.0, 1.25),
    ("m5.4xlarge", 16, 4750.0, 18_750.0, 5.0),
    ("r5.large", 2, 650.0, 3_600.0, 0.75),
    ("r5.2xlarge", 8, 2300.0, 12_000.0, 2.5),
    ("r5.4xlarge", 16, 4750.0, 18_750.0, 5.0),
    ("r5.8xlarge", 32, 6800.0, 30_000.0, 10.0),
    ("r5.12xlarge", 48, 9500.0, 40_000.0, 12.0),
    ("r5.24xlarge", 96, 19_000.0, 80_000.0, 25.0),
    ("r5b.8xlarge", 32, 20_000.0, 86_667.0, 10.0),
    ("r5b.24xlarge", 96, 60_000.0, 260_000.0, 25.0),
];

impl Instance {
    /// The machine with this name. The name may have the `db.` of a managed machine in front.
    pub fn named(name: &str) -> Option<Self> {
        let plain = name.strip_prefix("db.").unwrap_or(name);
        let found = INSTANCES.iter().find(|known| known.0 == plain)?;
        let (_, cores, storage_megabits, operations, network_gigabits) = *found;
        Some(Self {
            name: plain.to_owned(),
            cores,
            storage_bytes_per_second: storage_megabits * 1e6 / 8.0,
            storage_operations_per_second: operations,
            network_bytes_per_second: network_gigabits * 1e9 / 8.0,
        })
    }

    /// Makes its storage and network `factor` times as fast. The number of cores stays.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.storage_bytes_per_second *= factor;
        self.storage_operations_per_second *= factor;
        self.network_bytes_per_second *= factor;
    }

    /// The names of all known machines.
    pub fn names() -> impl Iterator<Item = &'static str> {
        INSTANCES.iter().map(|known| known.0)
    }
}
