//! The storage that rehearsals run on. There is one set-up for each kind of bottleneck, scaled down
//! so that a run takes a second or two.

use windlass_engine::media::Codec;
use windlass_model::{Emulation, ModelError};

/// Emulated storage, and how a backup is made on it.
#[derive(Clone, Copy, Debug)]
pub struct SetUp {
    /// What is special about it.
    pub name: &'static str,
    /// What is emulated, as a text that `Emulation::parse` reads. If it is empty, the machine's own
    /// storage is used.
    pub emulate: &'static [&'static str],
    /// Stripes.
    pub files: usize,
    /// How frames are compressed.
    pub codec: Codec,
    /// The number of buffers, if it is not the default.
    pub buffers: Option<usize>,
    /// The number of readers for each volume, if it is not the default.
    pub readers: Option<usize>,
}

const PLAIN: SetUp = SetUp {
    name: "",
    emulate: &[],
    files: 1,
    codec: Codec::None,
    buffers: None,
    readers: None,
};

/// All of them.
pub const SETUPS: [SetUp; 14] = [
    SetUp {
        name: "slow volume",
        emulate: &["source=rate:40MB/s", "target=rate:200MB/s"],
        ..PLAIN
    },
    SetUp {
        name: "slow volume, 4 files, zstd",
        emulate: &["source=rate:40MB/s", "target=rate:80MB/s"],
        files: 4,
        codec: Codec::Zstd(1),
        ..PLAIN
    },
    SetUp {
        name: "slow device",
        emulate: &["source=rate:160MB/s", "target=rate:40MB/s"],
        ..PLAIN
    },
    SetUp {
        name: "slow device, zstd",
        emulate: &["source=rate:160MB/s", "target=rate:30MB/s"],
        codec: Codec::Zstd(1),
        ..PLAIN
    },
    SetUp {
        name: "slow device, lz4",
        emulate: &["source=rate:160MB/s", "target=rate:30MB/s"],
        codec: Codec::Lz4,
        ..PLAIN
    },
    SetUp {
        name: "one stream to an object store",
        emulate: &["source=gp3:1TB", "target=s3:4x20MB/s"],
        ..PLAIN
    },
    SetUp {
        name: "two streams",
        emulate: &["source=gp3:1TB", "target=s3:4x20MB/s"],
        files: 2,
        ..PLAIN
    },
    SetUp {
        name: "eight streams share four's",
        emulate: &["source=gp3:1TB", "target=s3:4x15MB/s"],
        files: 8,
        ..PLAIN
    },
    SetUp {
        name: "deep latency, few buffers",
        emulate: &["source=rate:1GB/s,latency=40ms", "target=rate:1GB/s"],
        buffers: Some(4),
        ..PLAIN
    },
    SetUp {
        name: "deep latency, many buffers",
        emulate: &["source=rate:60MB/s,latency=40ms", "target=rate:1GB/s"],
        buffers: Some(24),
        ..PLAIN
    },
    SetUp {
        name: "latency of the device",
        emulate: &["source=rate:1GB/s", "target=rate:1GB/s,latency=60ms"],
        ..PLAIN
    },
    SetUp {
        name: "burst credit spent",
        emulate: &["source=gp2:60GiB,credits=100", "target=rate:400MB/s"],
        ..PLAIN
    },
    SetUp {
        name: "a machine shared by both ends",
        emulate: &[
            "source=gp3:1TB,iops=16000,throughput=1000MB/s",
            "target=gp3:1TB,iops=16000,throughput=1000MB/s",
            "instance=r5.large",
        ],
        ..PLAIN
    },
    SetUp {
        name: "cores, zstd:12",
        emulate: &["source=rate:800MB/s", "target=rate:60MB/s"],
        codec: Codec::Zstd(12),
        files: 2,
        ..PLAIN
    },
];

impl SetUp {
    /// What is emulated.
    pub fn emulation(&self) -> Result<Emulation, ModelError> {
        Emulation::parse(self.emulate.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_up_can_be_read_and_has_a_name_of_its_own() {
        for (index, setup) in SETUPS.iter().enumerate() {
            assert!(setup.emulation().is_ok(), "{}", setup.name);
            let same = |other: &SetUp| other.name == setup.name;
            assert!(!SETUPS[..index].iter().any(same), "{}", setup.name);
        }
    }
}
