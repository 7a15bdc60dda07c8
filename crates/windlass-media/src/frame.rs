//! The checks of a frame: are its stored bytes those that the index names, and its decoded bytes
//! those that were read from the source?

use crate::codec::{Codec, crc32c, crc32c_zeros_after};
use crate::error::{FormatError, Structure};
use crate::index::{FrameEntry, LAYOUT_PLAIN, PieceEntry};

/// From this average length of the pieces of a frame on, their CRCs are combined. Pages have it.
const PIECE_BYTES_LONG: u64 = 4096;

impl FrameEntry {
    /// Fails if the stored bytes do not match the index. Only checked bytes may reach a decoder.
    pub fn check_stored(&self, stored: &[u8]) -> Result<(), FormatError> {
        same(self.crc32c, crc32c(stored))
    }

    /// Fails if the decoded bytes are not those that were read from the source. Call it after
    /// [`FrameEntry::check_stored`]: an uncompressed frame of one piece needs no second look at its
    /// bytes. For a frame of zeros, `raw` is not looked at.
    pub fn check_pieces(&self, pieces: &[PieceEntry], raw: &[u8]) -> Result<(), FormatError> {
        let whole = match (self.codec, self.page) {
            (Codec::Zero, _) => Some(crc32c_of_zeros(self.raw_bytes)),
            _ if self.is_stored_as_it_is() => Some(self.crc32c),
            (_, Some(page)) if are_long(pieces) => {
                return check_together(pieces, raw, page.raw_crc32c);
            }
            (_, Some(_)) => Some(crc32c(raw)),
            (_, None) => None,
        };
        if let (Some(page), Some(whole)) = (self.page, whole) {
            same(page.raw_crc32c, whole)?;
        }
        match (pieces, whole) {
            _ if self.codec == Codec::Zero => pieces
                .iter()
                .try_for_each(|piece| same(piece.crc32c, crc32c_of_zeros(piece.bytes))),
            ([only], Some(whole)) if only.bytes == self.raw_bytes => same(only.crc32c, whole),
            _ => check_each(pieces, raw),
        }
    }

    /// Whether the stored bytes are the decoded ones, so that nobody needs a decoder.
    pub fn is_stored_as_it_is(&self) -> bool {
        let is_plain = self.page.is_none_or(|page| page.layout == LAYOUT_PLAIN);
        // What is encrypted is longer.
        self.codec == Codec::None && is_plain && self.stored_bytes == self.raw_bytes
    }
}

/// Whether to combine CRCs of so many pieces takes less time than to read their bytes again.
fn are_long(pieces: &[PieceEntry]) -> bool {
    let bytes = pieces.iter().map(|piece| u64::from(piece.bytes));
    pieces.len() > 1 && bytes.sum::<u64>() >= PIECE_BYTES_LONG * pieces.len() as u64
}

/// Checks each piece and all bytes together. Each byte is read once: the CRC of the whole is made
/// of those of its parts.
fn check_together(pieces: &[PieceEntry], raw: &[u8], whole: u32) -> Result<(), FormatError> {
    let (mut rest, mut sum) = (raw, 0);
    let mut add = |bytes: &[u8]| {
        let crc = crc32c(bytes);
        sum = crc32c_zeros_after(sum, bytes.len() as u64) ^ crc;
        crc
    };
    let mut checked = Ok(());
    for piece in pieces {
        let Some((bytes, tail)) = rest.split_at_checked(piece.bytes as usize) else {
            checked = checked.and(Err(TOO_SHORT));
            break;
        };
        checked = checked.and(same(piece.crc32c, add(bytes)));
        rest = tail;
    }
    add(rest);
    same(whole, sum).and(checked)
}

const TOO_SHORT: FormatError = FormatError::Invalid {
    structure: Structure::IndexBlock,
    what: "a frame is shorter than its pieces",
};

fn check_each(pieces: &[PieceEntry], raw: &[u8]) -> Result<(), FormatError> {
    let mut rest = raw;
    for piece in pieces {
        let (bytes, tail) = rest
            .split_at_checked(piece.bytes as usize)
            .ok_or(TOO_SHORT)?;
        same(piece.crc32c, crc32c(bytes))?;
        rest = tail;
    }
    Ok(())
}

/// The CRC-32C of this many zeros, which need not exist anywhere for that. A CRC begins with all
/// bits set and is inverted at the end.
fn crc32c_of_zeros(bytes: u32) -> u32 {
    !crc32c_zeros_after(u32::MAX, bytes.into())
}

fn same(expected: u32, found: u32) -> Result<(), FormatError> {
    if expected == found {
        return Ok(());
    }
    Err(FormatError::FrameChecksum { expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FileNo;
    use crate::index::PageFrame;
    use proptest::prelude::*;

    fn piece(bytes: &[u8]) -> PieceEntry {
        PieceEntry {
            file: FileNo(1),
            bytes: u32::try_from(bytes.len()).unwrap(),
            offset: 0,
            layer: 0,
            crc32c: crc32c(bytes),
        }
    }

    fn frame(codec: Codec, stored: &[u8]) -> FrameEntry {
        FrameEntry {
            offset: 4096,
            stored_bytes: u32::try_from(stored.len()).unwrap(),
            raw_bytes: 8,
            crc32c: crc32c(stored),
            codec,
            piece_count: 2,
            page: None,
        }
    }

    #[test]
    fn zeros_have_the_checksum_of_zeros() {
        for bytes in [0, 1, 7, 8192, 131_072, 1 << 20] {
            assert_eq!(crc32c_of_zeros(bytes), crc32c(&vec![0; bytes as usize]));
        }
    }

    #[test]
    fn every_changed_byte_is_found_whatever_the_codec() {
        let raw = *b"abcdefgh";
        let pieces = [piece(&raw[..3]), piece(&raw[3..])];
        let entry = frame(Codec::Zstd(1), b"stored");
        entry.check_stored(b"stored").unwrap();
        entry.check_stored(b"stoled").unwrap_err();
        entry.check_pieces(&pieces, &raw).unwrap();
        for at in 0..raw.len() {
            let mut changed = raw;
            changed[at] ^= 1;
            entry.check_pieces(&pieces, &changed).unwrap_err();
        }
        entry.check_pieces(&pieces, &raw[..7]).unwrap_err();
    }

    #[test]
    fn the_piece_of_an_uncompressed_frame_must_have_the_checksum_of_the_frame() {
        let entry = frame(Codec::None, b"abcdefgh");
        entry.check_pieces(&[piece(b"abcdefgh")], &[]).unwrap();
        entry
            .check_pieces(&[piece(b"abcdefgX")], b"abcdefgh")
            .unwrap_err();
    }

    #[test]
    fn the_pieces_of_a_frame_of_zeros_must_be_zeros() {
        let entry = frame(Codec::Zero, b"");
        entry.check_pieces(&[piece(&[0; 8])], &[]).unwrap();
        entry.check_pieces(&[piece(b"12345678")], &[]).unwrap_err();
    }

    /// A page-aware frame of these pieces.
    fn page_frame(raw: &[u8]) -> FrameEntry {
        let bytes = u32::try_from(raw.len()).unwrap();
        FrameEntry {
            raw_bytes: bytes,
            page: Some(PageFrame {
                raw_crc32c: crc32c(raw),
                laid_bytes: bytes,
                layout: LAYOUT_PLAIN,
                kind: 0,
            }),
            ..frame(Codec::Zstd(1), b"stored")
        }
    }

    proptest! {
        #[test]
        fn pieces_and_whole_are_both_checked_whether_their_checksums_are_combined_or_not(
            lengths in proptest::collection::vec(0usize..20_000, 1..6),
            seed: u8,
            at: prop::sample::Index,
            bit in 0u32..32,
        ) {
            let total: usize = lengths.iter().sum();
            let bytes = (0..=250u8).cycle().map(|byte| byte ^ seed);
            let raw: Vec<u8> = bytes.take(total).collect();
            let mut rest = raw.as_slice();
            let mut pieces = Vec::new();
            for length in &lengths {
                let (bytes, tail) = rest.split_at(*length);
                pieces.push(piece(bytes));
                rest = tail;
            }
            let entry = page_frame(&raw);
            prop_assert_eq!(entry.check_pieces(&pieces, &raw), Ok(()));
            let mut other = entry;
            other.page.as_mut().unwrap().raw_crc32c ^= 1 << bit;
            prop_assert!(other.check_pieces(&pieces, &raw).is_err());
            let wrong = at.index(pieces.len());
            pieces[wrong].crc32c ^= 1 << bit;
            prop_assert!(entry.check_pieces(&pieces, &raw).is_err());
            pieces[wrong].crc32c ^= 1 << bit;
            if total > 0 {
                let mut changed = raw.clone();
                changed[at.index(total)] ^= 1 << (bit % 8);
                prop_assert!(entry.check_pieces(&pieces, &changed).is_err());
                prop_assert!(entry.check_pieces(&pieces, &raw[..total - 1]).is_err());
            }
        }
    }
}
