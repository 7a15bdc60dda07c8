//! Frames: each is compressed by itself and has a CRC-32C.
//!
//! A frame carries its codec's number in its index entry, so one set may mix codecs: a frame that
//! does not shrink is stored as it is, a frame of zeros is not stored at all.

use std::str::FromStr;

use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{CodecText, FormatError};
use crate::number::fitted;

/// CRC-32C (Castagnoli), the checksum PostgreSQL's manifests use too.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // CRC-32/ISCSI is the catalogue's name for CRC-32C; the value always fits 32 bits.
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// What a piece with the CRC `crc` contributes to the CRC of the whole, if `bytes_after` more bytes
/// follow the piece.
///
/// CRC(A || B) = crc32c_zeros_after(CRC(A), len(B)) ^ CRC(B). So the pieces of a file can be read
/// in any order, and the XOR of their contributions is the CRC of the file.
///
/// A zero byte multiplies the CRC's polynomial by x^8, so n of them multiply it by x^(8n). That is
/// a product of factors from a table, one factor for each bit that is set in n. The library's own
/// function for this builds a matrix at each call: that took 30 % of the CPU time of an
/// uncompressed backup.
pub fn crc32c_zeros_after(crc: u32, bytes_after: u64) -> u32 {
    let mut product = crc;
    let mut left = bytes_after;
    while left != 0 && product != 0 {
        product = multiply(product, ZERO_BYTES[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
    product
}

/// The Castagnoli polynomial, with the lowest bit first, as CRCs use it.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^(8 * 2^k) for each k: the factor for 2^k zero bytes.
const ZERO_BYTES: [u32; 64] = {
    let mut table = [0; 64];
    // Bit 31 is x^0, so x^8 is bit 23.
    let mut power = 1 << 23;
    let mut index = 0;
    while index < 64 {
        table[index] = power;
        power = multiply(power, power);
        index += 1;
    }
    table
};

/// The product of two polynomials modulo the polynomial of the CRC; all bits are reflected.
const fn multiply(one: u32, other: u32) -> u32 {
    let (mut one, mut product, mut bit) = (one, 0, 1 << 31);
    while bit != 0 {
        // The mask is all ones where the bit is set. There is no branch, since the bits are as good
        // as random.
        product ^= one & 0u32.wrapping_sub((other & bit != 0) as u32);
        one = (one >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(one & 1));
        bit >>= 1;
    }
    product
}

fn narrow(crc: u64) -> u32 {
    fitted(crc & 0xffff_ffff)
}

/// True when every byte is zero. The function looks at 1 KiB at a time: that is wide enough for
/// vector instructions, and short enough to return at the first page of data.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(1024)
        .all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0)
}

/// How a frame is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    None,
    /// LZ4 block.
    Lz4,
    /// One zstd frame, made at this level.
    Zstd(i32),
    /// All bytes are zero; nothing is stored.
    Zero,
}

impl Codec {
    /// The number in a frame entry. The level is not stored, because only the writer needs it.
    pub fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd(_) => 2,
            Self::Zero => 3,
        }
    }

    /// The codec of a number in a frame entry.
    pub fn from_number(number: u8) -> Result<Self, FormatError> {
        match number {
            0 => Ok(Self::None),
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Zstd(0)),
            3 => Ok(Self::Zero),
            other => Err(FormatError::Codec(other)),
        }
    }

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd(_) => "zstd",
            Self::Zero => "zero",
        }
    }
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Zstd(level) => write!(f, "zstd:{level}"),
            other => f.write_str(other.name()),
        }
    }
}

/// `none`, `lz4`, `zstd` (which is `zstd:1`), or `zstd:LEVEL`. A text never names `zero`: nobody
/// chooses it, a frame of zeros has it.
impl FromStr for Codec {
    type Err = CodecText;

    fn from_str(text: &str) -> Result<Self, CodecText> {
        let fault = || CodecText(text.to_owned());
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        match (name, level) {
            ("none", None) => Ok(Self::None),
            ("lz4", None) => Ok(Self::Lz4),
            ("zstd", None) => Ok(Self::Zstd(1)),
            ("zstd", Some(level)) => {
                let level: i32 = level.parse().map_err(|_| fault())?;
                let known = (1..=19).contains(&level) || (-7..=-1).contains(&level);
                known.then_some(Self::Zstd(level)).ok_or_else(fault)
            }
            _ => Err(fault()),
        }
    }
}

/// As it is shown.
impl Serialize for Codec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Codec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Compresses frames; holds the codec's working memory. One per thread.
pub struct Encoder {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    lz4: Option<lz4_flex::block::CompressTable>,
}

impl Encoder {
    /// An encoder for `codec`. Fails on a zstd level the library does not have.
    pub fn new(codec: Codec) -> Result<Self, FormatError> {
        let unusable = |_| FormatError::FrameContent {
            codec: "zstd",
            expected_bytes: 0,
        };
        let zstd = match codec {
            Codec::Zstd(level) => Some(zstd::bulk::Compressor::new(level).map_err(unusable)?),
            _ => None,
        };
        let lz4 = (codec == Codec::Lz4).then(lz4_flex::block::CompressTable::default);
        Ok(Self { codec, zstd, lz4 })
    }

    /// How much room [`Encoder::encode`] needs in `into` for a frame of `raw_bytes`.
    pub fn bound(&self, raw_bytes: usize) -> usize {
        match self.codec {
            Codec::Zstd(_) => zstd::zstd_safe::compress_bound(raw_bytes),
            Codec::Lz4 => lz4_flex::block::get_maximum_output_size(raw_bytes),
            Codec::None | Codec::Zero => raw_bytes,
        }
    }

    /// Compresses `raw` to the start of `into`, which has room for [`Encoder::bound`] bytes.
    ///
    /// Returns the codec that was used and the number of bytes written. Returns `None` when the
    /// result would not be smaller than `raw`, or does not fit into `into`; the caller then stores
    /// the frame uncompressed.
    pub fn encode(&mut self, raw: &[u8], into: &mut [u8]) -> Option<(Codec, usize)> {
        if is_zero(raw) {
            return Some((Codec::Zero, 0));
        }
        self.shrink(raw, into).map(|stored| (self.codec, stored))
    }

    /// Compresses `raw` to the start of `into`. Returns the number of bytes written, or `None`
    /// when they would not be fewer, or do not fit.
    pub(crate) fn shrink(&mut self, raw: &[u8], into: &mut [u8]) -> Option<usize> {
        let stored = match self.codec {
            Codec::Zstd(_) => self.zstd.as_mut()?.compress_to_buffer(raw, into).ok()?,
            Codec::Lz4 => {
                let table = self.lz4.as_mut()?;
                lz4_flex::block::compress_into_with_table(raw, into, table).ok()?
            }
            Codec::None | Codec::Zero => return None,
        };
        (stored < raw.len()).then_some(stored)
    }

    /// The codec that it was made for.
    pub fn codec(&self) -> Codec {
        self.codec
    }
}

/// Decompresses frames; holds the codec's working memory. One per thread.
pub struct Decoder {
    zstd: zstd::bulk::Decompressor<'static>,
}

impl Decoder {
    /// A decoder for every codec this build knows.
    pub fn new() -> Result<Self, FormatError> {
        let zstd = zstd::bulk::Decompressor::new().map_err(|_| FormatError::FrameContent {
            codec: "zstd",
            expected_bytes: 0,
        })?;
        Ok(Self { zstd })
    }

    /// Decompresses `stored`, which must fill `into` exactly: the index states that length.
    ///
    /// The caller checks the checksum of `stored` before, with [`crc32c`].
    pub fn decode(
        &mut self,
        codec: Codec,
        stored: &[u8],
        into: &mut [u8],
    ) -> Result<(), FormatError> {
        let expected_bytes = fitted(into.len());
        let fault = || FormatError::FrameContent {
            codec: codec.name(),
            expected_bytes,
        };
        let count = match codec {
            Codec::Zero => {
                into.fill(0);
                if stored.is_empty() { into.len() } else { 0 }
            }
            Codec::None => {
                into.get_mut(..stored.len())
                    .ok_or_else(fault)?
                    .copy_from_slice(stored);
                stored.len()
            }
            Codec::Lz4 => lz4_flex::block::decompress_into(stored, into).map_err(|_| fault())?,
            Codec::Zstd(_) => self
                .zstd
                .decompress_to_buffer(stored, into)
                .map_err(|_| fault())?,
        };
        if count == into.len() {
            Ok(())
        } else {
            Err(fault())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn crc_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn crc_of_pieces_adds_up(
            bytes in proptest::collection::vec(any::<u8>(), 0..5000),
            cut in 0usize..5000,
        ) {
            let cut = cut.min(bytes.len());
            let (head, tail) = bytes.split_at(cut);
            let sum = crc32c_zeros_after(crc32c(head), tail.len() as u64) ^ crc32c(tail);
            prop_assert_eq!(sum, crc32c(&bytes));
        }

        #[test]
        fn shares_are_those_of_the_library(crc: u32, shift in 0u32..62, more: u16) {
            let bytes = (1u64 << shift) + u64::from(more);
            let kind = CrcAlgorithm::Crc32Iscsi;
            let library = crc_fast::checksum_combine(kind, crc.into(), 0, bytes);
            prop_assert_eq!(u64::from(crc32c_zeros_after(crc, bytes)), library);
        }

        #[test]
        fn every_codec_round_trips(bytes in proptest::collection::vec(0u8..4, 1..20_000)) {
            for codec in [Codec::Lz4, Codec::Zstd(1), Codec::Zstd(19)] {
                let mut encoder = Encoder::new(codec).unwrap();
                let mut stored = vec![0; bytes.len() + 1000];
                let Some((used, count)) = encoder.encode(&bytes, &mut stored) else { continue };
                let mut back = vec![0xee; bytes.len()];
                Decoder::new().unwrap().decode(used, &stored[..count], &mut back).unwrap();
                prop_assert_eq!(&back, &bytes);
            }
        }
    }

    #[test]
    fn a_frame_longer_than_stated_is_refused() {
        let raw = vec![7; 100_000];
        let mut stored = vec![0; 120_000];
        for codec in [Codec::Lz4, Codec::Zstd(1)] {
            let (used, count) = Encoder::new(codec)
                .unwrap()
                .encode(&raw, &mut stored)
                .unwrap();
            let mut decoder = Decoder::new().unwrap();
            for wrong in [0, 99_999, 100_001] {
                let mut into = vec![0; wrong];
                assert!(decoder.decode(used, &stored[..count], &mut into).is_err());
            }
        }
    }
}
