//! A dictionary of texts: at most 128 different ones.

use crate::number::{index, u64_at};
use crate::texts::Span;

/// Most texts in a dictionary.
pub(crate) const WORDS_MAX: usize = 128;
const SLOTS: usize = 512;

/// The different texts of a column.
#[derive(Debug)]
pub(crate) struct Words {
    entries: Vec<(u64, Span)>,
    /// The code of the text with this hash, plus one; 0 if there is none.
    slots: Vec<u8>,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            entries: Vec::with_capacity(WORDS_MAX),
            slots: vec![0; SLOTS],
        }
    }
}

/// The first eight bytes of a text; those that it does not have are zero.
#[inline]
fn head(raw: &[u8], span: Span) -> u64 {
    let (at, bytes) = (span.at as usize, span.bytes as usize);
    if at + 8 <= raw.len() {
        let word = u64_at(raw, at);
        let unused = 64 - 8 * bytes.min(8);
        // Two steps, because a shift by 64 is none.
        return word << (unused / 2) << (unused - unused / 2);
    }
    let mut word = [0; 8];
    let count = bytes.min(8);
    word[8 - count..].copy_from_slice(&raw[at..at + count]);
    u64::from_le_bytes(word)
}

impl Words {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.slots.fill(0);
    }

    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Where each text is.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> {
        self.entries.iter().map(|(_, span)| *span)
    }

    /// The code of a text, which is new if it was not there; `None` if the dictionary is full.
    #[inline]
    pub(crate) fn code(&mut self, raw: &[u8], span: Span) -> Option<u8> {
        let head = head(raw, span);
        let mixed = (head ^ u64::from(span.bytes)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ tail(raw, span)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut slot = index(mixed >> 55);
        while let Some(code) = self.slots[slot].checked_sub(1) {
            let (other_head, other) = self.entries[usize::from(code)];
            let alike = other_head == head && other.bytes == span.bytes;
            if alike && (span.bytes <= 8 || is_same(other.of(raw), span.of(raw))) {
                return Some(code);
            }
            slot = (slot + 1) % SLOTS;
        }
        if self.entries.len() == WORDS_MAX {
            return None;
        }
        let code = u8::try_from(self.entries.len()).ok()?;
        self.entries.push((head, span));
        self.slots[slot] = code + 1;
        Some(code)
    }
}

/// The last eight bytes of a long text, else zero.
#[inline]
fn tail(raw: &[u8], span: Span) -> u64 {
    if span.bytes <= 8 {
        return 0;
    }
    u64_at(raw, (span.at + span.bytes) as usize - 8)
}

/// Whether two texts of one length are the same. Most are short, and a call for each would take
/// longer than to compare their first and their last bytes, which may overlap.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    match one.len() {
        8..=16 => ends::<8>(one) == ends::<8>(other),
        17..=32 => ends::<16>(one) == ends::<16>(other),
        _ => one == other,
    }
}

#[inline]
fn ends<const BYTES: usize>(text: &[u8]) -> (Option<&[u8; BYTES]>, Option<&[u8; BYTES]>) {
    (text.first_chunk(), text.last_chunk())
}
