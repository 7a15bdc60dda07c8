//! How a run uses memory, cores and devices; printed before it starts.

use serde::Serialize;
use std::sync::Arc;

use windlass_media::{ALIGNMENT_MAX, ALIGNMENT_MIN, Codec};

use crate::adaptive::CodecRange;
use crate::error::EngineError;
use crate::pace::Pacing;

/// Smallest transfer, in bytes. All transfers are multiples of it.
pub const TRANSFER_BYTES_MIN: usize = 64 * 1024;
/// Largest transfer, in bytes.
pub const TRANSFER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Transfer size, unless the user sets it (SQL Server's for disks).
pub const TRANSFER_BYTES_DEFAULT: usize = 1024 * 1024;
/// Depth of a device's I/O that the default buffer count assumes.
pub const DEVICE_DEPTH: usize = 4;
/// Largest frame that a backup makes, unless the transfer size asks for smaller ones. It was
/// measured in docs/bench-frames.md.
pub const FRAME_BYTES_DEFAULT: usize = 128 * 1024;
/// Smallest frame that the user can ask for: a page of most databases is not larger.
const FRAME_BYTES_MIN: usize = 4096;
/// Memory that buffers may take, unless the user sets it.
pub const MEMORY_LIMIT_DEFAULT: u64 = 1024 * 1024 * 1024;

/// Most threads of one kind, and most buffers, that a user can ask for. A larger number is a
/// mistake, and the system would refuse the threads or the memory halfway.
const THREADS_MAX: usize = 1024;
const BUFFERS_MAX: usize = 1 << 20;

/// The two powers of two next to a number that is none, or the number itself.
fn near_powers(bytes: usize, most: usize) -> String {
    let above = bytes.next_power_of_two();
    match above == bytes {
        true => word(bytes),
        false => near(above / 2, above.min(most)),
    }
}

/// Two values of which the user may mean one.
fn near(below: usize, above: usize) -> String {
    match below == above {
        true => word(below),
        false => format!("{} or {}", word(below), word(above)),
    }
}

/// A size as it is typed on the command line: `512KiB`.
fn word(bytes: usize) -> String {
    match bytes {
        bytes if bytes < 4096 => bytes.to_string(),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        bytes => format!("{}KiB", bytes >> 10),
    }
}

/// Default number of buffers: devices x depth + devices + 2 x source volumes.
pub fn default_buffer_count(devices: usize, volumes: usize) -> usize {
    devices * DEVICE_DEPTH + devices + 2 * volumes.max(1)
}

/// The buffer configuration of a run, as a value that can be printed before the run starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BufferPlan {
    /// How many buffers.
    pub buffers: usize,
    /// Bytes of one: the largest transfer.
    pub transfer_bytes: usize,
    /// Their product: the memory that the pool takes.
    pub buffer_bytes: u64,
    /// Largest frame, decompressed.
    pub frame_bytes: usize,
    /// How many devices are written to or read from.
    pub devices: usize,
    /// How many volumes the source lies on.
    pub volumes: usize,
    /// Block size of the devices.
    pub alignment: u32,
    /// How many threads read.
    pub readers: usize,
    /// How many threads compress or decompress.
    pub compressors: usize,
    /// How many threads write.
    pub writers: usize,
    /// How much memory the buffers may take, in bytes.
    #[serde(skip)]
    pub limit_bytes: u64,
}

/// What a user may set. `None` means the default.
#[derive(Clone, Debug, Default)]
pub struct BufferRequest {
    /// `--buffers`.
    pub buffers: Option<usize>,
    /// `--transfer-size`.
    pub transfer_bytes: Option<usize>,
    /// `--block-size`.
    pub alignment: Option<u32>,
    /// `--frame-size`.
    pub frame_bytes: Option<usize>,
    /// `--threads`: compressors.
    pub compressors: Option<usize>,
    /// `--readers`: how many readers for each volume.
    pub readers: Option<usize>,
    /// `--max-memory`.
    pub memory_limit: Option<u64>,
}

impl BufferRequest {
    /// Checks the request and fills in the defaults.
    pub fn plan(&self, devices: usize, volumes: usize) -> Result<BufferPlan, EngineError> {
        let option = |option, what: String| Err(EngineError::Option { option, what });
        let transfer_bytes = self.transfer_bytes.unwrap_or(TRANSFER_BYTES_DEFAULT);
        let transfers = TRANSFER_BYTES_MIN..=TRANSFER_BYTES_MAX;
        if !transfers.contains(&transfer_bytes)
            || !transfer_bytes.is_multiple_of(TRANSFER_BYTES_MIN)
        {
            let unit = TRANSFER_BYTES_MIN;
            let below = (transfer_bytes / unit * unit).clamp(unit, TRANSFER_BYTES_MAX);
            let near = near(below, (below + unit).min(TRANSFER_BYTES_MAX));
            let what = format!(
                "{transfer_bytes} is not a multiple of 64 KiB from 64 KiB to 4 MiB: write {near}"
            );
            return option("--transfer-size", what);
        }
        let alignment = self.alignment.unwrap_or(4096);
        if !alignment.is_power_of_two() || !(ALIGNMENT_MIN..=ALIGNMENT_MAX).contains(&alignment) {
            let (least, most) = (ALIGNMENT_MIN as usize, ALIGNMENT_MAX as usize);
            let near = near_powers((alignment as usize).clamp(least, most), most);
            let what = format!("{alignment} is not a power of two from 512 to 65536: write {near}");
            return option("--block-size", what);
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let buffers = self
            .buffers
            .unwrap_or_else(|| default_buffer_count(devices, volumes));
        if buffers < 2 {
            return option(
                "--buffers",
                format!("{buffers} is too few: a reader and a writer need one each"),
            );
        }
        if buffers > BUFFERS_MAX {
            return option("--buffers", format!("{buffers} is more than {BUFFERS_MAX}"));
        }
        self.check_threads()?;
        // Each compressor holds an input and an output. One more buffer is left for a reader.
        let compressors = self
            .compressors
            .unwrap_or(cores)
            .clamp(1, (buffers / 2).max(1));
        let frame_bytes = self.frame_bytes(transfer_bytes)?;
        let plan = BufferPlan {
            buffers,
            transfer_bytes,
            buffer_bytes: buffers as u64 * transfer_bytes as u64,
            frame_bytes,
            devices,
            volumes: volumes.max(1),
            alignment,
            readers: self.readers.unwrap_or(cores.min(2)) * volumes.max(1),
            compressors,
            writers: devices,
            limit_bytes: self.memory_limit.unwrap_or(MEMORY_LIMIT_DEFAULT),
        };
        plan.check_memory()?;
        Ok(plan)
    }
}

impl BufferRequest {
    /// The largest frame. Two frames fit into a transfer; with any codec, at least one compressed
    /// frame does.
    fn frame_bytes(&self, transfer_bytes: usize) -> Result<usize, EngineError> {
        let most = 1 << (transfer_bytes / 2).ilog2();
        let Some(frame_bytes) = self.frame_bytes else {
            return Ok(FRAME_BYTES_DEFAULT.min(most));
        };
        let most_ever = TRANSFER_BYTES_MAX / 2;
        let what = if !frame_bytes.is_power_of_two() || frame_bytes < FRAME_BYTES_MIN {
            let near = near_powers(frame_bytes.clamp(FRAME_BYTES_MIN, most_ever), most_ever);
            format!("{frame_bytes} is not a power of two of at least 4 KiB: write {near}")
        } else if frame_bytes > most {
            let (frame, most) = (word(frame_bytes), word(most));
            let needed = match frame_bytes > most_ever {
                true => String::new(),
                false => format!(", or --transfer-size {}", word(frame_bytes * 2)),
            };
            let transfer = word(transfer_bytes);
            format!(
                "a frame of {frame} is more than half a transfer of {transfer}: write {most} at \
                 most{needed}"
            )
        } else {
            return Ok(frame_bytes);
        };
        let option = "--frame-size";
        Err(EngineError::Option { option, what })
    }

    fn check_threads(&self) -> Result<(), EngineError> {
        for (option, threads) in [("--threads", self.compressors), ("--readers", self.readers)] {
            if let Some(threads) = threads.filter(|threads| !(1..=THREADS_MAX).contains(threads)) {
                let what = format!("{threads} is not a number of threads from 1 to {THREADS_MAX}");
                return Err(EngineError::Option { option, what });
            }
        }
        Ok(())
    }
}

impl BufferPlan {
    fn check_memory(&self) -> Result<(), EngineError> {
        let limit_bytes = self.limit_bytes;
        if self.buffer_bytes <= limit_bytes {
            return Ok(());
        }
        Err(EngineError::MemoryLimit {
            buffers: self.buffers,
            transfer_bytes: self.transfer_bytes,
            needed_bytes: self.buffer_bytes,
            limit_bytes,
        })
    }
}

impl BufferPlan {
    /// Makes each buffer hold at least `bytes`, which frames of `frame_bytes` need. It is an error
    /// if the buffers would then exceed the limit.
    pub(crate) fn grow(&mut self, bytes: usize, frame_bytes: u32) -> Result<(), EngineError> {
        let bytes = bytes.next_multiple_of(TRANSFER_BYTES_MIN);
        if bytes <= self.transfer_bytes {
            return Ok(());
        }
        self.transfer_bytes = bytes;
        self.buffer_bytes = self.buffers as u64 * bytes as u64;
        if self.buffer_bytes <= self.limit_bytes {
            return Ok(());
        }
        Err(EngineError::FramesTooLarge {
            frame_bytes,
            buffers: self.buffers,
            transfer_bytes: bytes,
            needed_bytes: self.buffer_bytes,
            limit_bytes: self.limit_bytes,
        })
    }
}

/// How a backup runs.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// Buffers and threads.
    pub plan: BufferPlan,
    /// How frames are compressed. If there is a range, only at the beginning.
    pub codec: Codec,
    /// The range from which the waits choose the codec, if they may.
    pub range: Option<CodecRange>,
    /// The most bytes per second that are read from the source.
    pub source_rate: Option<u64>,
    /// The most bytes per second that go to all devices together.
    pub device_rate: Option<u64>,
    /// Use io_uring where the kernel has it.
    pub ring: bool,
    /// How fast the storage is, if not as fast as it can.
    pub pacing: Option<Arc<dyn Pacing>>,
}

impl BackupOptions {
    /// Whether frames are made in buffers of their own. If not, the input is also the output.
    pub(crate) fn compresses(&self) -> bool {
        self.codec != Codec::None || self.range.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_counts_are_those_of_the_native_system() {
        let counts: Vec<_> = (1..=5)
            .map(|devices| default_buffer_count(devices, 1))
            .collect();
        assert_eq!(counts, [7, 12, 17, 22, 27]);
        assert_eq!(default_buffer_count(4, 4), 28);
    }

    #[test]
    fn memory_beyond_the_limit_is_refused() {
        let request = BufferRequest {
            memory_limit: Some(7 << 20),
            ..Default::default()
        };
        assert!(request.plan(1, 1).is_ok());
        assert!(matches!(
            request.plan(2, 1),
            Err(EngineError::MemoryLimit { buffers: 12, .. })
        ));
    }

    #[test]
    fn every_transfer_size_has_a_frame_size() {
        for units in 1..=64 {
            let transfer_bytes = Some(units * TRANSFER_BYTES_MIN);
            let request = BufferRequest {
                transfer_bytes,
                ..Default::default()
            };
            assert!(request.plan(1, 1).unwrap().frame_bytes.is_power_of_two());
        }
    }

    #[test]
    fn a_size_that_does_not_fit_is_refused_with_those_that_do() {
        let says = |request: BufferRequest| request.plan(1, 1).unwrap_err().to_string();
        let frame = |bytes| BufferRequest {
            frame_bytes: Some(bytes),
            ..Default::default()
        };
        let near = says(frame(300_000));
        assert!(near.ends_with("write 256KiB or 512KiB"), "{near}");
        let near = says(frame(700_000));
        assert!(near.ends_with("write 512KiB or 1MiB"), "{near}");
        assert!(says(frame(3 << 20)).ends_with("write 2MiB"));
        assert!(says(frame(100)).ends_with("write 4KiB"));
        // Half a transfer is the most. The user decides which of both changes.
        let large = says(frame(1 << 20));
        let ends = "write 512KiB at most, or --transfer-size 2MiB";
        assert!(large.ends_with(ends), "{large}");
        assert!(says(frame(8 << 20)).ends_with("write 512KiB at most"));
        let plan = frame(512 << 10).plan(1, 1).unwrap();
        assert_eq!(plan.frame_bytes, 512 << 10);
        let transfer = says(BufferRequest {
            transfer_bytes: Some(100_000),
            ..Default::default()
        });
        assert!(transfer.ends_with("write 64KiB or 128KiB"), "{transfer}");
        let block = says(BufferRequest {
            alignment: Some(1000),
            ..Default::default()
        });
        assert!(block.ends_with("write 512 or 1024"), "{block}");
    }

    #[test]
    fn odd_sizes_are_refused_by_name() {
        for (request, option) in [
            (
                BufferRequest {
                    transfer_bytes: Some(65_535),
                    ..Default::default()
                },
                "--transfer-size",
            ),
            (
                BufferRequest {
                    transfer_bytes: Some(8 << 20),
                    ..Default::default()
                },
                "--transfer-size",
            ),
            (
                BufferRequest {
                    alignment: Some(1000),
                    ..Default::default()
                },
                "--block-size",
            ),
            (
                BufferRequest {
                    buffers: Some(1),
                    ..Default::default()
                },
                "--buffers",
            ),
        ] {
            let error = request.plan(1, 1).unwrap_err();
            assert!(error.to_string().starts_with(option), "{error}");
        }
    }
}
