//! The settings of a run that the engine checks, and what can be wrong with their values.
//!
//! A setting is a value here and not a word: the engine does not know what the user typed. Whoever
//! shows an error gives the setting the name under which the user knows it.

use std::fmt;
use std::io;

use crate::units::{counted, show_size};

/// A setting of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// Where the stripes go.
    Devices,
    /// How many buffers the pool has.
    Buffers,
    /// How many bytes a buffer has.
    TransferSize,
    /// The block size of the devices.
    BlockSize,
    /// The size of the largest frame.
    FrameSize,
    /// How many threads compress or decompress.
    Compressors,
    /// How many threads read each volume.
    Readers,
    /// How much memory the buffers may take.
    MemoryLimit,
    /// How many bytes a second are read from the source.
    SourceRate,
    /// How many bytes a second go to all devices together.
    DeviceRate,
    /// How long the file of events may become.
    EventsLimit,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Devices => "devices",
            Self::Buffers => "number of buffers",
            Self::TransferSize => "transfer size",
            Self::BlockSize => "block size",
            Self::FrameSize => "frame size",
            Self::Compressors => "number of compressors",
            Self::Readers => "number of readers",
            Self::MemoryLimit => "memory limit",
            Self::SourceRate => "rate of the source",
            Self::DeviceRate => "rate of the devices",
            Self::EventsLimit => "limit of the file of events",
        })
    }
}

/// What is wrong with the value of a setting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingFault {
    /// The size is too small, too large, or no multiple of the unit.
    #[error(
        "{asked_bytes} is not a multiple of {} from {} to {}",
        show_size(*unit_bytes), show_size(*unit_bytes), show_size(*most_bytes)
    )]
    NoMultiple {
        /// What was asked for.
        asked_bytes: u64,
        /// The unit, which is also the smallest size.
        unit_bytes: u64,
        /// The largest size.
        most_bytes: u64,
    },
    /// The size is too small, too large, or no power of two.
    #[error(
        "{asked_bytes} is not a power of two from {} to {}",
        show_size(*least_bytes), show_size(*most_bytes)
    )]
    NoPowerOfTwo {
        /// What was asked for.
        asked_bytes: u64,
        /// The smallest size.
        least_bytes: u64,
        /// The largest size.
        most_bytes: u64,
    },
    /// Two of these frames do not fit into a transfer.
    #[error(
        "a frame of {} is more than half a transfer of {}",
        show_size(*asked_bytes), show_size(*transfer_bytes)
    )]
    FrameOfTransfer {
        /// What was asked for.
        asked_bytes: u64,
        /// The transfer size of the run.
        transfer_bytes: u64,
        /// The largest frame for this transfer size.
        most_bytes: u64,
        /// The transfer size that frames of this size need, if there is one.
        needed_bytes: Option<u64>,
    },
    /// The number is too small or too large.
    #[error("{asked} is not a number of threads from 1 to {most}")]
    Threads {
        /// What was asked for.
        asked: usize,
        /// The largest number.
        most: usize,
    },
    /// A stage would wait for a buffer for ever.
    #[error("{asked} is too few: a reader and a writer need one each")]
    BuffersFew {
        /// What was asked for.
        asked: usize,
    },
    /// Devices would gather all of them to a write that never begins.
    #[error("{asked} is too few: parts of uploads and the other stages need {least}")]
    BuffersGathered {
        /// What was asked for.
        asked: usize,
        /// The smallest number.
        least: usize,
    },
    /// The number is larger than anybody means.
    #[error("{asked} is more than {most}")]
    TooMany {
        /// What was asked for.
        asked: usize,
        /// The largest number.
        most: usize,
    },
    /// The system does not give the memory.
    #[error("cannot get {} of {buffer_bytes} bytes: {source}", counted(*count, "buffer"))]
    Memory {
        /// How many buffers.
        count: u64,
        /// Bytes of each.
        buffer_bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The file could not hold what it must hold.
    #[error("{asked_bytes} is below {least_bytes} bytes")]
    TooSmall {
        /// What was asked for.
        asked_bytes: u64,
        /// The smallest size.
        least_bytes: u64,
    },
    /// A backup needs at least one device.
    #[error("there is no device")]
    NoDevice,
    /// Some devices keep what is written to them and others do not.
    #[error("some devices keep nothing, and a set needs all of its stripes")]
    DevicesMixed,
    /// No device is left for data.
    #[error("all of the {asked} devices would have parity, and none is left for data")]
    ParityOfAll {
        /// How many devices there are.
        asked: usize,
    },
    /// The devices keep nothing, so there is nothing to rebuild.
    #[error("a set that nobody keeps needs no parity")]
    ParityOfNothing,
    /// A device has another block size than the set.
    #[error("blocks of {device_bytes} bytes do not fit a set with blocks of {set_bytes}")]
    BlocksOfDevice {
        /// The block size of the device.
        device_bytes: u32,
        /// The block size of the set.
        set_bytes: u32,
    },
}

impl SettingFault {
    /// The values next to the one that was asked for that the setting takes: one or two sizes in
    /// bytes, or none if the fault is not about a size that is slightly wrong.
    pub fn near(&self) -> Vec<u64> {
        let (below, above) = match *self {
            Self::NoMultiple {
                asked_bytes,
                unit_bytes,
                most_bytes,
            } => {
                let below = asked_bytes / unit_bytes * unit_bytes;
                let below = below.clamp(unit_bytes, most_bytes);
                (below, (below + unit_bytes).min(most_bytes))
            }
            Self::NoPowerOfTwo {
                asked_bytes,
                least_bytes,
                most_bytes,
            } => {
                let asked_bytes = asked_bytes.clamp(least_bytes, most_bytes);
                let above = asked_bytes.next_power_of_two();
                match above == asked_bytes {
                    true => (above, above),
                    false => (above / 2, above.min(most_bytes)),
                }
            }
            _ => return Vec::new(),
        };
        let mut near = vec![below, above];
        near.dedup();
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_near_a_wrong_one_are_allowed_ones() {
        let multiple = |asked_bytes| {
            let fault = SettingFault::NoMultiple {
                asked_bytes,
                unit_bytes: 64,
                most_bytes: 256,
            };
            fault.near()
        };
        assert_eq!(multiple(0), [64, 128]);
        assert_eq!(multiple(100), [64, 128]);
        assert_eq!(multiple(255), [192, 256]);
        assert_eq!(multiple(1000), [256]);
        let power = |asked_bytes| {
            let fault = SettingFault::NoPowerOfTwo {
                asked_bytes,
                least_bytes: 512,
                most_bytes: 65536,
            };
            fault.near()
        };
        assert_eq!(power(1), [512]);
        assert_eq!(power(1000), [512, 1024]);
        assert_eq!(power(40_000), [32768, 65536]);
        assert_eq!(power(u64::MAX), [65536]);
        assert!(SettingFault::NoDevice.near().is_empty());
    }
}
