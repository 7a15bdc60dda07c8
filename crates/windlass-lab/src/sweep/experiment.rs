//! The experiments: what each varies, and why.

use serde::{Deserialize, Serialize};

use super::axes::{Axes, BLOCK_BYTES_DEFAULT, Storage, TRANSFER_DEFAULT};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// The default codec of `windlass backup`.
const CODEC_DEFAULT: &str = "zstd:1";
/// The speed of emulated volumes compared with real ones. It is so low that two cores can compress
/// for the fastest of them, and so high that a small database takes only seconds.
const SCALE: f64 = 0.25;

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Where does a backup wait?
    Waits,
    /// What do more buffers give, and cost?
    Buffers,
    /// How many buffers are there by default?
    BufferDefaults,
    /// What can this I/O path do?
    Device,
    /// How much of the I/O path's speed does a backup use?
    Stripes,
    /// What does the block size of the devices change?
    Blocksize,
    /// Which configuration is best on which storage?
    Matrix,
    /// Do more provisioned operations help?
    IopsStep,
    /// What can the source and the cores do, with nothing written?
    Nul,
    /// How fast is it with devices?
    Disk,
    /// Any grid.
    Grid,
}

impl Experiment {
    /// Every experiment.
    pub const ALL: [Self; 11] = [
        Self::Waits,
        Self::Buffers,
        Self::BufferDefaults,
        Self::Device,
        Self::Stripes,
        Self::Blocksize,
        Self::Matrix,
        Self::IopsStep,
        Self::Nul,
        Self::Disk,
        Self::Grid,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Buffers => "buffers",
            Self::BufferDefaults => "buffer-defaults",
            Self::Device => "device",
            Self::Stripes => "stripes",
            Self::Blocksize => "blocksize",
            Self::Matrix => "matrix",
            Self::IopsStep => "iops-step",
            Self::Nul => "nul",
            Self::Disk => "disk",
            Self::Grid => "grid",
        }
    }

    /// The question it answers.
    pub fn question(self) -> &'static str {
        match self {
            Self::Waits => "Where does a run wait?",
            Self::Buffers => "What do more buffers give, and what do they cost?",
            Self::BufferDefaults => "How many buffers are there unless told otherwise?",
            Self::Device => "What can this I/O path do?",
            Self::Stripes => "What do more devices give?",
            Self::Blocksize => "What does the block size of the devices change?",
            Self::Matrix => "Which configuration is best on which storage?",
            Self::IopsStep => "Do more provisioned operations help?",
            Self::Nul => {
                "What do transfer size, devices and buffers change when nothing is written?"
            }
            Self::Disk => "What do transfer size, devices and buffers change on real devices?",
            Self::Grid => "What do these settings change?",
        }
    }

    /// Whether it writes nothing by default.
    pub fn is_to_nul(self) -> bool {
        matches!(self, Self::BufferDefaults | Self::Nul | Self::Grid)
    }

    /// The default number of rounds.
    pub fn repeat(self) -> usize {
        match self {
            Self::BufferDefaults => 1,
            _ => 3,
        }
    }

    /// What it varies: all cases of these grids. `restore` asks for the grids of a restore.
    pub fn grids(self, restore: bool) -> Vec<Axes> {
        match self {
            Self::Waits => vec![Axes {
                codecs: strings(&["none", CODEC_DEFAULT]),
                ..Axes::default()
            }],
            Self::Buffers => buffers(),
            Self::BufferDefaults => vec![Axes {
                devices: vec![1, 2, 3, 4, 5],
                ..Axes::default()
            }],
            Self::Device => Vec::new(),
            Self::Stripes => vec![Axes {
                devices: vec![1, 2, 4, 8],
                ..Axes::default()
            }],
            Self::Blocksize => vec![Axes {
                devices: vec![1, 8],
                block_bytes: vec![BLOCK_BYTES_DEFAULT, 64 * KIB],
                ..Axes::default()
            }],
            Self::Matrix => vec![Axes {
                set_ups: volumes(restore),
                codecs: strings(&["none", CODEC_DEFAULT]),
                devices: vec![1, 4, 8],
                ..Axes::default()
            }],
            Self::IopsStep => vec![Axes {
                set_ups: steps(restore),
                codecs: strings(&["none", CODEC_DEFAULT]),
                devices: vec![8],
                ..Axes::default()
            }],
            Self::Nul | Self::Disk => transfers_and_buffers(),
            Self::Grid => vec![Axes::default()],
        }
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Seven runs: six buffer counts at 1 MiB, and the largest count at 4 MiB, which takes 1 GiB of
/// memory.
fn buffers() -> Vec<Axes> {
    let at = |counts: &[usize], transfer_bytes| Axes {
        buffers: counts.iter().map(|count| Some(*count)).collect(),
        transfer_bytes: vec![transfer_bytes],
        ..Axes::default()
    };
    vec![at(&[7, 16, 32, 64, 128, 256], MIB), at(&[256], 4 * MIB)]
}

/// Transfer sizes combined with numbers of devices; then numbers of buffers, at 1 and 4 MiB.
fn transfers_and_buffers() -> Vec<Axes> {
    let sizes = [
        64 * KIB,
        128 * KIB,
        256 * KIB,
        512 * KIB,
        MIB,
        2 * MIB,
        4 * MIB,
    ];
    let counts = [7, 12, 17, 22, 27, 32, 37, 42, 47];
    vec![
        Axes {
            transfer_bytes: sizes.to_vec(),
            devices: vec![1, 2, 3, 4, 5],
            ..Axes::default()
        },
        Axes {
            transfer_bytes: vec![TRANSFER_DEFAULT, 4 * MIB],
            buffers: counts.map(Some).to_vec(),
            ..Axes::default()
        },
    ]
}

/// What the object store gives to each stream and to all together, for each direction. The numbers
/// are fitted to published minutes (docs/lab.md).
fn store(restore: bool) -> &'static str {
    match restore {
        false => "s3:97.2MB/s,throughput=324.5MB/s",
        true => "s3:73.9MB/s,throughput=415.7MB/s",
    }
}

fn set_up(name: String, source: &str, instance: &str, restore: bool) -> Storage {
    let emulate = [
        format!("source={source}"),
        format!("target={}", store(restore)),
        format!("instance={instance}"),
        format!("scale={SCALE}"),
    ];
    Storage {
        name,
        emulate: emulate.to_vec(),
    }
}

/// The volumes and machines of the published comparison.
fn volumes(restore: bool) -> Vec<Storage> {
    let mut set_ups = Vec::new();
    for instance in ["r5.8xlarge", "r5.24xlarge"] {
        for (name, source) in [("gp2", "gp2:1.5TB"), ("io1-9000", "io1:9000")] {
            let name = format!("{name}, {instance}");
            set_ups.push(set_up(name, source, instance, restore));
        }
    }
    set_ups
}

/// One volume, with a growing number of provisioned operations.
fn steps(restore: bool) -> Vec<Storage> {
    let step = |iops: u32| {
        let source = format!("io1:{iops}");
        set_up(format!("io1-{iops}"), &source, "r5.24xlarge", restore)
    };
    [30_000, 35_000].map(step).to_vec()
}
