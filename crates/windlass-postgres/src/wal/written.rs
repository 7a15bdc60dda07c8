//! How far a server has written a segment of its log.

use windlass_media::fitted;

use super::head::SegmentHead;
use super::pages::{PAGE_BYTES_MAX, PAGE_BYTES_MIN};
use crate::lsn::Lsn;

/// The pages of a segment. Each begins with its position in the log, and a server takes used files
/// for new segments, so a page with another position was not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPages {
    start: Lsn,
    page_bytes: u32,
}

impl SegmentPages {
    /// Reads the head of a segment. The error says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let head = SegmentHead::parse(bytes)?;
        let page_bytes = [36, 37, 38, 39].map(|at| bytes[at]);
        let page_bytes = u32::from_le_bytes(page_bytes);
        if !page_bytes.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes)
        {
            return Err("states a page size that PostgreSQL cannot have");
        }
        Ok(Self {
            start: head.start,
            page_bytes,
        })
    }

    /// Where the page begins that has this position. What is before it does not change any more
    /// when the log up to this position was flushed. 0 if the segment does not have the position.
    pub fn begin_of(&self, position: Lsn, segment_bytes: u64) -> u64 {
        let offset = position.0.saturating_sub(self.start.0);
        match offset < segment_bytes {
            true => offset - offset % u64::from(self.page_bytes),
            false => 0,
        }
    }

    /// How many of these bytes the server has written: whole pages. They begin at the offset of a
    /// page in the segment.
    pub fn written(&self, offset: u64, bytes: &[u8]) -> usize {
        let page_bytes: usize = fitted(self.page_bytes);
        let positions = (self.start.0 + offset..).step_by(page_bytes);
        let pages = bytes.chunks(page_bytes).zip(positions);
        let written = pages.take_while(|(page, position)| {
            let stated = page.get(8..16);
            stated == Some(&position.to_le_bytes())
        });
        written.map(|(page, _)| page.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 8192;
    const START: u64 = 0x1_0300_0000;

    /// So many pages of a segment, as far as their headers go.
    fn pages(count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count * PAGE];
        for (page, position) in bytes.chunks_mut(PAGE).zip((START..).step_by(PAGE)) {
            page[8..16].copy_from_slice(&position.to_le_bytes());
        }
        bytes[..2].copy_from_slice(&0xD110_u16.to_le_bytes());
        bytes[2] = 2;
        bytes[32..36].copy_from_slice(&(16_u32 << 20).to_le_bytes());
        bytes[36..40].copy_from_slice(&8192_u32.to_le_bytes());
        bytes
    }

    #[test]
    fn what_was_written_ends_before_the_first_page_of_another_position() {
        let mut bytes = pages(5);
        let of = SegmentPages::parse(&bytes).unwrap();
        assert_eq!(of.written(0, &bytes), 5 * PAGE);
        assert_eq!(of.written(0, &bytes[..2 * PAGE + 15]), 2 * PAGE);
        bytes[3 * PAGE + 9] += 1;
        assert_eq!(of.written(0, &bytes), 3 * PAGE);
        assert_eq!(of.written(2 * PAGE as u64, &bytes[2 * PAGE..]), PAGE);
        assert_eq!(of.written(3 * PAGE as u64, &bytes[3 * PAGE..]), 0);
        assert_eq!(of.written(PAGE as u64, &bytes), 0);
        bytes[36] = 1;
        assert!(SegmentPages::parse(&bytes).is_err());
    }

    #[test]
    fn a_position_is_in_the_page_that_begins_before_it() {
        let of = SegmentPages::parse(&pages(1)).unwrap();
        let begin = |offset: u64| of.begin_of(Lsn(START + offset), 16 << 20);
        assert_eq!([0, 1, 8191].map(begin), [0, 0, 0]);
        assert_eq!([8192, 8193, 20_000].map(begin), [8192, 8192, 16_384]);
        assert_eq!(begin(16 << 20), 0);
        assert_eq!(of.begin_of(Lsn(START - 1), 16 << 20), 0);
    }
}
