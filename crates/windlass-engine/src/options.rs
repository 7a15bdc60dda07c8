//! How a run uses memory, cores and devices; printed before it starts.

mod buffers;
mod parity;

use serde::Serialize;
use std::sync::Arc;

use windlass_media::{ALIGNMENT_MAX, ALIGNMENT_MIN, Codec, Lock, SetCipher, saturated};

use crate::adaptive::CodecRange;
use crate::error::EngineError;
use crate::pace::Pacing;
use crate::setting::{Setting, SettingFault};

pub use buffers::target_writers;
pub(crate) use parity::{GROUPS_OPEN, PARITY_BUFFERS};

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

/// A run that chooses the number of its buffers itself may have this many times those with which it
/// begins: 42 of 1 MiB for one device and one volume. A fast disk needs about 32 reads in flight.
const GROWTH_MAX: usize = 6;

/// Most threads of one kind that a user can ask for. A larger number is a mistake, and the system
/// would refuse the threads halfway.
const THREADS_MAX: usize = 1024;

/// Default number of buffers: devices x depth + devices + 2 x source volumes.
pub fn default_buffer_count(devices: usize, volumes: usize) -> usize {
    devices * DEVICE_DEPTH + devices + 2 * volumes.max(1)
}

/// The buffer configuration of a run, as a value that can be printed before the run starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BufferPlan {
    /// How many buffers, at the beginning if `grows`.
    pub buffers: usize,
    /// Whether the run may take more while that makes it faster.
    #[serde(skip)]
    pub grows: bool,
    /// Bytes of one: the largest transfer.
    pub transfer_bytes: usize,
    /// The memory that the pool takes at the beginning.
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
    /// How many of the buffers devices may keep while they gather them to larger writes.
    #[serde(skip)]
    pub gathered: usize,
    /// How many of the buffers are for the threads that write restored files.
    #[serde(skip)]
    pub behind: usize,
}

/// What a user may set. `None` means the default.
#[derive(Clone, Debug, Default)]
pub struct BufferRequest {
    /// How many buffers. If it is not set, the run begins with the default number, and changes it.
    pub buffers: Option<usize>,
    /// Bytes of a buffer: the largest transfer.
    pub transfer_bytes: Option<usize>,
    /// Block size of the devices.
    pub alignment: Option<u32>,
    /// Largest frame, decompressed.
    pub frame_bytes: Option<usize>,
    /// How many threads compress or decompress.
    pub compressors: Option<usize>,
    /// How many readers for each volume.
    pub readers: Option<usize>,
    /// How much memory the buffers may take, in bytes.
    pub memory_limit: Option<u64>,
    /// Bytes of buffers that all devices together keep while they gather them to larger writes.
    pub gathered_bytes: u64,
    /// Whether threads write restored files. They hold the buffers that they write, so the default
    /// number is larger by these.
    pub restores: bool,
}

impl BufferRequest {
    /// Checks the request and fills in the defaults.
    pub fn plan(&self, devices: usize, volumes: usize) -> Result<BufferPlan, EngineError> {
        let transfer_bytes = self.transfer_bytes()?;
        let alignment = self.alignment()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let gathered = buffers::gathered(self.gathered_bytes, transfer_bytes)?;
        let default = default_buffer_count(devices, volumes) + gathered;
        let limit_bytes = self.memory_limit.unwrap_or(MEMORY_LIMIT_DEFAULT);
        let behind = match self.restores && self.buffers.is_none() {
            true => buffers::behind(default, limit_bytes, transfer_bytes),
            false => 0,
        };
        let buffers = self.buffers.unwrap_or(default + behind);
        buffers::check(buffers)?;
        let rest = buffers::beside(buffers, gathered)?;
        self.check_threads()?;
        // Each compressor holds an input and an output. One more buffer is left for a reader.
        let compressors = self
            .compressors
            .unwrap_or(cores)
            .clamp(1, (rest / 2).max(1));
        let frame_bytes = self.frame_bytes(transfer_bytes)?;
        let plan = BufferPlan {
            buffers,
            grows: self.buffers.is_none() && gathered == 0,
            transfer_bytes,
            buffer_bytes: buffers as u64 * transfer_bytes as u64,
            frame_bytes,
            devices,
            volumes: volumes.max(1),
            alignment,
            readers: self.readers.unwrap_or(cores.min(2)) * volumes.max(1),
            compressors,
            writers: devices,
            limit_bytes,
            gathered,
            behind,
        };
        plan.check_memory()?;
        Ok(plan)
    }
}

impl BufferRequest {
    fn transfer_bytes(&self) -> Result<usize, EngineError> {
        let transfer_bytes = self.transfer_bytes.unwrap_or(TRANSFER_BYTES_DEFAULT);
        let in_range = (TRANSFER_BYTES_MIN..=TRANSFER_BYTES_MAX).contains(&transfer_bytes);
        match in_range && transfer_bytes.is_multiple_of(TRANSFER_BYTES_MIN) {
            true => Ok(transfer_bytes),
            false => Err(Setting::TransferSize.refused(SettingFault::NoMultiple {
                asked_bytes: transfer_bytes as u64,
                unit_bytes: TRANSFER_BYTES_MIN as u64,
                most_bytes: TRANSFER_BYTES_MAX as u64,
            })),
        }
    }

    fn alignment(&self) -> Result<u32, EngineError> {
        let alignment = self.alignment.unwrap_or(4096);
        let in_range = (ALIGNMENT_MIN..=ALIGNMENT_MAX).contains(&alignment);
        match in_range && alignment.is_power_of_two() {
            true => Ok(alignment),
            false => Err(Setting::BlockSize.refused(SettingFault::NoPowerOfTwo {
                asked_bytes: alignment.into(),
                least_bytes: ALIGNMENT_MIN.into(),
                most_bytes: ALIGNMENT_MAX.into(),
            })),
        }
    }

    /// The largest frame. Two frames fit into a transfer; with any codec, at least one compressed
    /// frame does.
    fn frame_bytes(&self, transfer_bytes: usize) -> Result<usize, EngineError> {
        let most = 1 << (transfer_bytes / 2).ilog2();
        let Some(frame_bytes) = self.frame_bytes else {
            return Ok(FRAME_BYTES_DEFAULT.min(most));
        };
        let most_ever = TRANSFER_BYTES_MAX / 2;
        let asked_bytes = frame_bytes as u64;
        let fault = if !frame_bytes.is_power_of_two() || frame_bytes < FRAME_BYTES_MIN {
            SettingFault::NoPowerOfTwo {
                asked_bytes,
                least_bytes: FRAME_BYTES_MIN as u64,
                most_bytes: most_ever as u64,
            }
        } else if frame_bytes > most {
            SettingFault::FrameOfTransfer {
                asked_bytes,
                transfer_bytes: transfer_bytes as u64,
                most_bytes: most as u64,
                needed_bytes: (frame_bytes <= most_ever).then_some(asked_bytes * 2),
            }
        } else {
            return Ok(frame_bytes);
        };
        Err(Setting::FrameSize.refused(fault))
    }

    fn check_threads(&self) -> Result<(), EngineError> {
        let counts = [
            (Setting::Compressors, self.compressors),
            (Setting::Readers, self.readers),
        ];
        for (setting, threads) in counts {
            let wrong = threads.filter(|threads| !(1..=THREADS_MAX).contains(threads));
            if let Some(asked) = wrong {
                let most = THREADS_MAX;
                return Err(setting.refused(SettingFault::Threads { asked, most }));
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
    /// The most writes that may be in flight to a device: more as the run has more buffers.
    pub fn write_depth_max(&self) -> usize {
        DEVICE_DEPTH * if self.grows { GROWTH_MAX } else { 1 }
    }

    /// The most buffers that the run may have, when it needs `beside` bytes for other things.
    pub fn buffers_max(&self, beside: u64) -> usize {
        let room = self.limit_bytes.saturating_sub(beside) / (self.transfer_bytes as u64).max(1);
        let most = if self.grows { GROWTH_MAX } else { 1 };
        let most = (self.buffers - self.behind) * most + self.behind;
        let most = most.min(saturated(room));
        most.max(self.buffers)
    }

    /// About how much memory the compressors need to take pages apart, besides the buffers.
    pub fn pages_bytes(&self) -> u64 {
        self.compressors as u64 * self.frame_bytes as u64 * PAGES_BYTES_FOR_EACH
    }

    /// Whether there is memory to take pages apart. It is an error if that and the buffers would
    /// exceed the limit.
    pub fn check_pages(&self) -> Result<(), EngineError> {
        let limit_bytes = self.limit_bytes;
        let needed_bytes = self.buffer_bytes.saturating_add(self.pages_bytes());
        if needed_bytes <= limit_bytes {
            return Ok(());
        }
        Err(EngineError::PagesMemory {
            needed_bytes,
            limit_bytes,
        })
    }

    /// Makes each buffer hold at least `bytes`, which frames of `frame_bytes` need. It is an error
    /// if the buffers would then exceed the limit.
    pub(crate) fn grow(&mut self, bytes: usize, frame_bytes: u32) -> Result<(), EngineError> {
        let bytes = bytes.next_multiple_of(TRANSFER_BYTES_MIN);
        if bytes <= self.transfer_bytes {
            return Ok(());
        }
        self.transfer_bytes = bytes;
        let behind = buffers::behind(self.buffers - self.behind, self.limit_bytes, bytes);
        let fewer = self.behind.min(behind);
        self.buffers -= self.behind - fewer;
        self.behind = fewer;
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
    /// Write page-aware frames: each has a checksum of its decoded bytes, and what its hook says
    /// about its pages. Versions before these refuse such a set.
    pub page_frames: bool,
    /// Put pages that were taken apart together again before they are stored, and compare them.
    /// Without that, only readers notice a mistake of the encoder, by the checksum of the frame.
    pub frame_proof: bool,
    /// How the set is encrypted, if it is.
    pub encryption: Option<Encryption>,
    /// How many of the devices, the last ones, have parity.
    pub parities: u16,
}

/// The encryption of one set.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// Who can read the set. It stands in each header.
    pub lock: Lock,
    /// Encrypts. It was made for the id of the set.
    pub cipher: Arc<SetCipher>,
}

/// How many bytes a compressor needs for each byte of a frame to take pages apart: most of them are
/// numbers of 64 bits, of which several come out of eight bytes of a row.
const PAGES_BYTES_FOR_EACH: u64 = 32;

impl BackupOptions {
    /// About how much memory the compressors need to take pages apart, besides the buffers.
    pub fn pages_bytes(&self) -> u64 {
        let apart = self.page_frames && self.compresses();
        u64::from(apart) * self.plan.pages_bytes()
    }

    /// How many buffers compressors hold as outputs beside their inputs. Without compression and
    /// encryption, the input is the output.
    pub(crate) fn outputs(&self) -> usize {
        if self.has_outputs() {
            self.plan.compressors
        } else {
            0
        }
    }

    /// Whether there is a codec.
    pub(crate) fn compresses(&self) -> bool {
        self.codec != Codec::None || self.range.is_some()
    }

    /// Whether frames are made in buffers of their own. If not, the input is also the output.
    pub(crate) fn has_outputs(&self) -> bool {
        self.compresses() || self.encryption.is_some()
    }

    /// What encrypts.
    pub(crate) fn cipher(&self) -> Option<&Arc<SetCipher>> {
        self.encryption.as_ref().map(|it| &it.cipher)
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
    fn the_memory_for_pages_counts_towards_the_limit() {
        let plan = |limit: u64| {
            let request = BufferRequest {
                compressors: Some(2),
                memory_limit: Some(limit << 20),
                ..Default::default()
            };
            request.plan(1, 1).unwrap()
        };
        assert_eq!(plan(15).pages_bytes(), 8 << 20, "beside 7 MiB of buffers");
        assert!(plan(15).check_pages().is_ok());
        assert!(matches!(
            plan(14).check_pages(),
            Err(EngineError::PagesMemory { needed_bytes, .. }) if needed_bytes == 15 << 20
        ));
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

    /// The setting that is refused, and why.
    fn refused(request: BufferRequest) -> (Setting, SettingFault) {
        match request.plan(1, 1) {
            Err(EngineError::Setting { setting, fault }) => (setting, fault),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_frame_size_that_does_not_fit_is_refused_with_those_that_do() {
        let frame = |bytes| BufferRequest {
            frame_bytes: Some(bytes),
            ..Default::default()
        };
        let near = |bytes| refused(frame(bytes)).1.near();
        assert_eq!(near(300_000), [256 << 10, 512 << 10]);
        assert_eq!(near(700_000), [512 << 10, 1 << 20]);
        assert_eq!(near(3 << 20), [2 << 20]);
        assert_eq!(near(100), [4096]);
        // Half a transfer is the most. The user decides which of both changes.
        let needed = |bytes| match refused(frame(bytes)) {
            (
                Setting::FrameSize,
                SettingFault::FrameOfTransfer {
                    most_bytes,
                    needed_bytes,
                    ..
                },
            ) => (most_bytes, needed_bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!(needed(1 << 20), (512 << 10, Some(2 << 20)));
        assert_eq!(needed(8 << 20), (512 << 10, None));
        let plan = frame(512 << 10).plan(1, 1).unwrap();
        assert_eq!(plan.frame_bytes, 512 << 10);
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_its_setting_and_in_words() {
        let says = |request: BufferRequest| request.plan(1, 1).unwrap_err().to_string();
        let transfer = |bytes| BufferRequest {
            transfer_bytes: Some(bytes),
            ..Default::default()
        };
        let words = "transfer size: 65535 is not a multiple of 64 KiB from 64 KiB to 4 MiB";
        assert_eq!(says(transfer(65_535)), words);
        assert_eq!(refused(transfer(8 << 20)).1.near(), [4 << 20]);
        let block = BufferRequest {
            alignment: Some(1000),
            ..Default::default()
        };
        let words = "block size: 1000 is not a power of two from 512 B to 64 KiB";
        assert_eq!(says(block), words);
        let buffers = |count| BufferRequest {
            buffers: Some(count),
            ..Default::default()
        };
        let words = "number of buffers: 1 is too few: a reader and a writer need one each";
        assert_eq!(says(buffers(1)), words);
        let (setting, fault) = refused(buffers(super::buffers::BUFFERS_MAX + 1));
        assert_eq!(setting, Setting::Buffers);
        assert!(matches!(fault, SettingFault::TooMany { .. }), "{fault}");
        let threads = BufferRequest {
            compressors: Some(0),
            ..Default::default()
        };
        let words = "number of compressors: 0 is not a number of threads from 1 to 1024";
        assert_eq!(says(threads), words);
    }
}
