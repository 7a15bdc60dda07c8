//! Adaptive compression: the codec follows the waits while a backup runs.
//!
//!   waits of the compressors --watch--> Observation --Controller--> codec of the next frames
//!
//! If compressors wait for a free buffer, the devices are too slow. Fewer bytes help, so they
//! compress harder. If compressors are always busy, they are too slow, so they compress less. If
//! the source is too slow, nothing changes, because that would cost CPU time and gain nothing.
//!
//! `watch` makes observations from counters and the time. `controller` decides; it has no clock.
//! Each frame names its codec, so a set may mix codecs.

mod controller;
mod watch;

use serde::{Deserialize, Serialize};
use windlass_media::Codec;

pub use controller::{CodecChange, Controller, Observation};
pub(crate) use watch::Watch;

/// Codecs and levels from which a run may choose, weakest first.
const LADDER: [Codec; 9] = [
    Codec::None,
    Codec::Lz4,
    Codec::Zstd(1),
    Codec::Zstd(3),
    Codec::Zstd(6),
    Codec::Zstd(9),
    Codec::Zstd(12),
    Codec::Zstd(15),
    Codec::Zstd(19),
];

/// The weakest and the strongest codec that a run may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodecRange {
    weakest: Codec,
    strongest: Codec,
}

impl Default for CodecRange {
    /// Stronger codecs than these cost more time than they save on any storage.
    fn default() -> Self {
        Self {
            weakest: Codec::Lz4,
            strongest: Codec::Zstd(9),
        }
    }
}

impl CodecRange {
    /// The range between two codecs; `None` unless the first is weaker than the second.
    pub fn new(weakest: Codec, strongest: Codec) -> Option<Self> {
        (strength(weakest) < strength(strongest)).then_some(Self { weakest, strongest })
    }

    /// The codecs to choose from, weakest first: both ends of the range, and the steps between
    /// them.
    pub fn rungs(&self) -> Vec<Codec> {
        let between = |codec: &Codec| {
            strength(self.weakest) < strength(*codec) && strength(*codec) < strength(self.strongest)
        };
        let mut rungs = vec![self.weakest];
        rungs.extend(LADDER.into_iter().filter(between));
        rungs.push(self.strongest);
        rungs
    }

    /// The codec with which a run begins, unless the user chose one: zstd:1, or the nearest in the
    /// range.
    pub fn start(&self) -> Codec {
        let usual = strength(Codec::Zstd(1));
        let near = |codec: &Codec| (strength(*codec) - usual).abs();
        self.rungs()
            .into_iter()
            .min_by_key(near)
            .unwrap_or(self.weakest)
    }
}

impl std::fmt::Display for CodecRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.weakest, self.strongest)
    }
}

/// Puts codecs in the order of how much they compress.
fn strength(codec: Codec) -> i32 {
    match codec {
        Codec::None | Codec::Zero => -1000,
        Codec::Lz4 => -500,
        Codec::Zstd(level) => level,
    }
}

/// What an adaptive run used, and the reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompressionReport {
    /// The range it chose from.
    pub range: String,
    /// How much went through each codec, the most used codec first.
    pub used: Vec<CodecUse>,
    /// The changes of the codec. A long list is cut off at its end.
    pub changes: Vec<CodecChange>,
    /// The same information as a sentence.
    pub words: String,
}

/// How much went through one codec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecUse {
    /// The codec.
    pub codec: Codec,
    /// Bytes of the database.
    pub raw_bytes: u64,
    /// Bytes of their frames.
    pub stored_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_ends_and_the_steps_between() {
        let range = CodecRange::new(Codec::Zstd(-3), Codec::Zstd(7)).unwrap();
        let steps = [-3, 1, 3, 6, 7].map(Codec::Zstd);
        assert_eq!(range.rungs(), steps);
        assert_eq!(range.start(), Codec::Zstd(1));
        assert_eq!(CodecRange::default().to_string(), "lz4..zstd:9");
        let weak = CodecRange::new(Codec::None, Codec::Lz4).unwrap();
        assert_eq!(weak.rungs(), [Codec::None, Codec::Lz4]);
        assert_eq!(weak.start(), Codec::Lz4);
        let hard = CodecRange::new(Codec::Zstd(6), Codec::Zstd(19)).unwrap();
        assert_eq!(hard.start(), Codec::Zstd(6));
    }

    #[test]
    fn a_range_that_goes_nowhere_is_none() {
        assert_eq!(CodecRange::new(Codec::Lz4, Codec::Lz4), None);
        assert_eq!(CodecRange::new(Codec::Zstd(3), Codec::Zstd(1)), None);
    }
}
