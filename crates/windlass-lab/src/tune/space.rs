//! The settings to choose from, and the steps between them.

use serde::Serialize;
use windlass_engine::media::Codec;
use windlass_engine::{BufferRequest, TRANSFER_BYTES_DEFAULT, default_buffer_count};

/// One way to run a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// How frames are compressed.
    pub codec: Codec,
    /// Buffers.
    pub buffers: usize,
    /// Bytes of one.
    pub transfer_bytes: usize,
    /// Readers for each volume.
    pub readers: usize,
    /// Compressors.
    pub threads: usize,
}

impl Settings {
    /// Bytes that its buffers take.
    pub fn memory(&self) -> u64 {
        self.buffers as u64 * self.transfer_bytes as u64
    }

    /// How weak its compression is.
    pub(crate) fn weakness(&self) -> i32 {
        match self.codec {
            Codec::Zstd(level) => -level,
            Codec::Lz4 => 500,
            Codec::None | Codec::Zero => 1000,
        }
    }

    /// The request for the engine: this setting, and everything else as asked for.
    pub fn request(&self, asked: &BufferRequest) -> BufferRequest {
        BufferRequest {
            buffers: Some(self.buffers),
            transfer_bytes: Some(self.transfer_bytes),
            readers: Some(self.readers),
            compressors: Some(self.threads),
            ..asked.clone()
        }
    }
}

/// One step of one knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stronger,
    Weaker,
    MoreBuffers,
    LargerTransfers,
    SmallerTransfers,
    MoreReaders,
    FewerReaders,
}

/// All settings to choose from: every combination of these values that fits into the memory.
#[derive(Clone, Debug)]
pub struct Space {
    /// Codecs; the weakest comes first.
    pub codecs: Vec<Codec>,
    /// Numbers of buffers, ascending.
    pub buffers: Vec<usize>,
    /// Bytes of a buffer, ascending.
    pub transfers: Vec<usize>,
    /// Readers for each volume, ascending.
    pub readers: Vec<usize>,
    /// Compressors.
    pub threads: usize,
    /// The most bytes that buffers may take.
    pub memory: u64,
    first: Settings,
}

impl Space {
    /// The settings for these devices and volumes on this many cores. The default setting is one of
    /// them, as far as it fits into the memory.
    pub fn new(
        mut codecs: Vec<Codec>,
        (devices, volumes): (usize, usize),
        threads: usize,
        memory: u64,
    ) -> Self {
        codecs.sort_by_key(strength);
        codecs.dedup();
        let default = default_buffer_count(devices, volumes);
        let readers = threads.clamp(1, 2);
        let mut space = Self {
            buffers: vec![default, default * 2, default * 4],
            transfers: vec![256 << 10, TRANSFER_BYTES_DEFAULT, 4 << 20],
            readers: vec![1, 2, 4],
            threads,
            memory,
            first: Settings {
                codec: Codec::None,
                buffers: default,
                transfer_bytes: TRANSFER_BYTES_DEFAULT,
                readers,
                threads,
            },
            codecs,
        };
        let usual = space
            .codecs
            .iter()
            .find(|codec| **codec == Codec::Zstd(1))
            .or(space.codecs.first());
        space.first.codec = usual.copied().unwrap_or(Codec::None);
        if space.first.memory() > memory {
            space.first.transfer_bytes = space.transfers[0];
        }
        space
    }

    /// The same space, in which a search begins with the setting in use: every other setting is
    /// compared with that one. Its values become values to choose from.
    pub fn beginning_with(mut self, present: Settings) -> Self {
        add(&mut self.codecs, present.codec, strength);
        add(&mut self.buffers, present.buffers, |value| *value);
        add(&mut self.transfers, present.transfer_bytes, |value| *value);
        add(&mut self.readers, present.readers, |value| *value);
        self.first = present;
        self
    }

    /// The setting with which a search begins.
    pub fn first(&self) -> Settings {
        self.first.clone()
    }

    /// Every setting that fits into the memory.
    pub fn all(&self) -> Vec<Settings> {
        let mut all = Vec::new();
        for codec in &self.codecs {
            for buffers in &self.buffers {
                for transfer_bytes in &self.transfers {
                    for readers in &self.readers {
                        all.push(Settings {
                            codec: *codec,
                            buffers: *buffers,
                            transfer_bytes: *transfer_bytes,
                            readers: *readers,
                            threads: self.threads,
                        });
                    }
                }
            }
        }
        all.retain(|setting| setting.memory() <= self.memory);
        all
    }

    /// The next setting in this direction; `None` if there is none, or if it takes too much memory.
    pub(super) fn step(&self, from: &Settings, step: Step) -> Option<Settings> {
        let mut next = from.clone();
        match step {
            Step::Stronger => next.codec = beside(&self.codecs, from.codec, 1)?,
            Step::Weaker => next.codec = beside(&self.codecs, from.codec, -1)?,
            Step::MoreBuffers => next.buffers = beside(&self.buffers, from.buffers, 1)?,
            Step::LargerTransfers => {
                next.transfer_bytes = beside(&self.transfers, from.transfer_bytes, 1)?;
            }
            Step::SmallerTransfers => {
                next.transfer_bytes = beside(&self.transfers, from.transfer_bytes, -1)?;
            }
            Step::MoreReaders => next.readers = beside(&self.readers, from.readers, 1)?,
            Step::FewerReaders => next.readers = beside(&self.readers, from.readers, -1)?,
        }
        (next.memory() <= self.memory).then_some(next)
    }
}

/// How strong a codec compresses.
fn strength(codec: &Codec) -> i32 {
    match codec {
        Codec::Zstd(level) => *level,
        Codec::Lz4 => -500,
        Codec::None | Codec::Zero => -1000,
    }
}

/// Adds a value if it is missing, and keeps the order.
fn add<T: PartialEq, K: Ord>(values: &mut Vec<T>, value: T, key: fn(&T) -> K) {
    if !values.contains(&value) {
        values.push(value);
        values.sort_by_key(key);
    }
}

fn beside<T: PartialEq + Copy>(values: &[T], value: T, by: isize) -> Option<T> {
    let at = values.iter().position(|one| *one == value)?;
    values.get(at.checked_add_signed(by)?).copied()
}
