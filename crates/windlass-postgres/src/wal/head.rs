//! The first header of a segment: whose log it is, and where it begins.

use super::pages::{LONG_HEADER, LONG_HEADER_BYTES, MAGICS};
use crate::lsn::{Lsn, Segment, Timeline};

/// What the first 40 bytes of a segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// The major version that wrote it.
    pub major: u32,
    /// The timeline of its first page. The first segment of a timeline begins with pages of the
    /// one before.
    pub timeline: Timeline,
    /// Position of its first byte.
    pub start: Lsn,
    /// The cluster.
    pub system: u64,
    /// Bytes of a segment.
    pub segment_bytes: u32,
}

impl SegmentHead {
    /// How many bytes [`SegmentHead::parse`] needs.
    pub const BYTES: usize = LONG_HEADER_BYTES;

    /// Reads the head of a segment. The error says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(bytes) = bytes.get(..LONG_HEADER_BYTES) else {
            return Err("is shorter than the header of a segment");
        };
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|index| bytes[at + index]));
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let Some((_, major)) = MAGICS.iter().find(|(known, _)| *known == u16_at(0)) else {
            return Err("does not begin with a page of a known version's log");
        };
        if u16_at(2) & LONG_HEADER == 0 {
            return Err("does not begin with a segment's first page");
        }
        let head = Self {
            major: *major,
            timeline: Timeline(u32_at(4)),
            start: Lsn(u64_at(8)),
            system: u64_at(24),
            segment_bytes: u32_at(32),
        };
        let size = head.segment_bytes;
        if !size.is_power_of_two() || !((1 << 20)..=(1 << 30)).contains(&size) {
            return Err("states a segment size that PostgreSQL cannot have");
        }
        Ok(head)
    }
}

impl Segment {
    /// The segment that a file's name means, for segments of `segment_bytes`.
    pub fn of_name(name: &str, segment_bytes: u64) -> Option<Self> {
        let (timeline, number) = super::source::segment_of_name(name.as_bytes(), segment_bytes)?;
        let segment = Self {
            timeline: Timeline(timeline),
            number,
        };
        // A number that no segment of this size has would be another segment's.
        (segment.name(segment_bytes) == name).then_some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_back_and_what_is_none_is_refused() {
        let mut bytes = [0; SegmentHead::BYTES];
        bytes[..2].copy_from_slice(&0xD118_u16.to_le_bytes());
        bytes[2] = 2;
        bytes[4] = 3;
        bytes[8..16].copy_from_slice(&0x1_0300_0000_u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&77_u64.to_le_bytes());
        bytes[32..36].copy_from_slice(&(16_u32 << 20).to_le_bytes());
        let expected = SegmentHead {
            major: 18,
            timeline: Timeline(3),
            start: Lsn(0x1_0300_0000),
            system: 77,
            segment_bytes: 16 << 20,
        };
        assert_eq!(SegmentHead::parse(&bytes), Ok(expected));
        assert!(SegmentHead::parse(&bytes[1..]).is_err());
        for (at, value) in [(0, 1), (2, 0), (33, 1)] {
            let mut other = bytes;
            other[at] = value;
            assert!(SegmentHead::parse(&other).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_name_means_its_segment_and_no_other() {
        let name = "000000020000000100000023";
        let segment = Segment::of_name(name, 16 << 20).unwrap();
        assert_eq!((segment.timeline, segment.number), (Timeline(2), 0x123));
        for other in [
            "000000020000000100000123",
            "00000002.history",
            "",
            "00000002000000010000002g",
        ] {
            assert_eq!(Segment::of_name(other, 16 << 20), None, "{other}");
        }
    }
}
