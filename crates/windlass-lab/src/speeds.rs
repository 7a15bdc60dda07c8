//! What a core can do in a second: compressing, decompressing, checksums.

use serde::{Deserialize, Serialize};
use windlass_engine::media::Codec;

/// One codec on one core, in bytes of the database per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecSpeed {
    /// `none`, `lz4`, `zstd:1`, ...
    pub codec: String,
    /// Reading, compressing, checksums.
    pub compress_bytes_per_second: f64,
    /// Checksums, decompressing.
    pub decompress_bytes_per_second: f64,
    /// Bytes of the database for each stored byte, on the sample that was measured.
    pub ratio: f64,
}

/// Speeds of the codecs that were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speeds {
    /// What they were measured on.
    pub origin: String,
    /// One for each codec.
    pub codecs: Vec<CodecSpeed>,
}

/// What a core does with memory, in bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemorySpeeds {
    /// CRC-32C, the frames' checksum.
    pub crc32c_bytes_per_second: f64,
    /// BLAKE3, the set's root hash.
    pub blake3_bytes_per_second: f64,
    /// Copying.
    pub copy_bytes_per_second: f64,
}

impl Default for Speeds {
    /// The speed of one core of an AMD EPYC on frames of 128 KiB of TPC-H in PostgreSQL
    /// (docs/bench-frames.md, docs/lab.md).
    fn default() -> Self {
        let speed = |codec: &str, compress: f64, decompress: f64, ratio| CodecSpeed {
            codec: codec.to_owned(),
            compress_bytes_per_second: compress * 1e6,
            decompress_bytes_per_second: decompress * 1e6,
            ratio,
        };
        Self {
            origin: "TPC-H on one core of an AMD EPYC, with pages as they are".to_owned(),
            codecs: vec![
                speed("none", 5000.0, 5000.0, 1.0),
                speed("lz4", 678.0, 3829.0, 2.32),
                speed("zstd:1", 474.0, 1414.0, 2.96),
                speed("zstd:3", 230.0, 1300.0, 3.2),
                speed("zstd:9", 60.0, 1300.0, 3.5),
                speed("zstd:19", 5.0, 1200.0, 3.9),
            ],
        }
    }
}

impl Speeds {
    /// The speed of a codec: the measured one, or that of the nearest level that was measured.
    pub fn of(&self, codec: Codec) -> CodecSpeed {
        let name = codec.to_string();
        let same = |speed: &&CodecSpeed| speed.codec == name;
        if let Some(found) = self.codecs.iter().find(same) {
            return found.clone();
        }
        let level = |text: &str| {
            text.strip_prefix("zstd:")
                .and_then(|level| level.parse().ok())
        };
        let wanted: i32 = level(&name).unwrap_or(1);
        let nearest = self
            .codecs
            .iter()
            .filter_map(|speed| Some((level(&speed.codec)?.abs_diff(wanted), speed)))
            .min_by_key(|(distance, _)| *distance);
        let found = nearest.map(|(_, speed)| speed).or(self.codecs.first());
        found.cloned().unwrap_or(CodecSpeed {
            codec: name,
            compress_bytes_per_second: 400e6,
            decompress_bytes_per_second: 1200e6,
            ratio: 1.0,
        })
    }
}
