//! Positions in the write-ahead log, timelines, and the names of WAL segments.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A position in the write-ahead log, in bytes; displayed as PostgreSQL does (`16/B374D848`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Lsn(pub u64);

/// A timeline; the first is 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timeline(pub u32);

/// A WAL segment: timeline, number and size give its file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The timeline in the name.
    pub timeline: Timeline,
    /// Position of its first byte divided by the segment size.
    pub number: u64,
}

impl Lsn {
    /// Reads `X/Y`, both hexadecimal.
    pub fn parse(text: &str) -> Option<Self> {
        let (high, low) = text.split_once('/')?;
        let word = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            digits.then(|| u32::from_str_radix(text, 16).ok()).flatten()
        };
        Some(Self(u64::from(word(high)?) << 32 | u64::from(word(low)?)))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for Lsn {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no LSN"))
    }
}

impl From<Lsn> for String {
    fn from(lsn: Lsn) -> Self {
        lsn.to_string()
    }
}

impl Timeline {
    /// The name of this timeline's history file.
    pub fn history_name(self) -> String {
        format!("{:08X}.history", self.0)
    }
}

impl Segment {
    /// The segment's file name, for segments of `segment_bytes`.
    pub fn name(self, segment_bytes: u64) -> String {
        let per_id = 0x1_0000_0000 / segment_bytes;
        format!(
            "{:08X}{:08X}{:08X}",
            self.timeline.0,
            self.number / per_id,
            self.number % per_id
        )
    }

    /// Position of the segment's first byte.
    pub fn start(self, segment_bytes: u64) -> Lsn {
        Lsn(self.number * segment_bytes)
    }
}

/// The segment that holds the byte at `lsn`.
pub fn segment_of(lsn: Lsn, segment_bytes: u64) -> u64 {
    lsn.0 / segment_bytes
}

/// The segment that holds the last byte before `lsn`. A backup that ends at `lsn` needs no later
/// one.
pub fn segment_before(lsn: Lsn, segment_bytes: u64) -> u64 {
    lsn.0.saturating_sub(1) / segment_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;

    #[test]
    fn an_lsn_reads_back_as_it_is_shown() {
        for text in ["0/0", "0/1", "16/B374D848", "FFFFFFFF/FFFFFFFF"] {
            assert_eq!(Lsn::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "/",
            "1",
            "1/",
            "/1",
            "1/+2",
            "1/123456789",
            "g/1",
            "1/2/3",
        ] {
            assert_eq!(Lsn::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn segment_names_are_postgresqls() {
        let segment = Segment {
            timeline: Timeline(2),
            number: segment_of(Lsn(0x1_2345_6789), SEGMENT),
        };
        assert_eq!(segment.name(SEGMENT), "000000020000000100000023");
        let large = Segment {
            timeline: Timeline(1),
            number: segment_of(Lsn(0x1_4000_0000), 1 << 30),
        };
        assert_eq!(large.name(1 << 30), "000000010000000100000001");
    }

    #[test]
    fn a_backup_that_ends_on_a_boundary_does_not_need_the_segment_behind_it() {
        assert_eq!(segment_before(Lsn(SEGMENT), SEGMENT), 0);
        assert_eq!(segment_before(Lsn(SEGMENT + 1), SEGMENT), 1);
    }
}
