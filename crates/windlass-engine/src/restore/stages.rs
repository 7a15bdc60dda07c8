//! What the stages of a restore hand to each other.

use windlass_media::{FrameEntry, PieceEntry, fitted};

use crate::buffer::Buffer;
use crate::set::OpenStripe;

/// A run of a stripe in a buffer, with the frames in it.
pub(super) struct Stored<'a> {
    pub(super) buffer: Buffer,
    pub(super) plan: Plan,
    pub(super) stripe: &'a OpenStripe,
}

/// The part of a region that one read takes: whole frames, and the padding between them.
pub(super) struct Plan {
    /// Where the read begins: at or before `start`, aligned for direct reads.
    pub(super) read_offset: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) frames: Vec<PlannedFrame>,
}

/// A frame that is to be read and decoded.
pub(super) struct PlannedFrame {
    pub(super) entry: FrameEntry,
    pub(super) pieces: Vec<PieceEntry>,
    /// False when this frame was already listed as damaged.
    pub(super) sound: bool,
}

impl PlannedFrame {
    /// Where it ends on the stripe.
    pub(super) fn end(&self) -> u64 {
        self.entry.offset + u64::from(self.entry.stored_bytes)
    }

    /// The frame and its pieces, as the list of damage takes them.
    pub(super) fn named(&self) -> (&FrameEntry, &[PieceEntry]) {
        (&self.entry, &self.pieces)
    }
}

/// Decoded bytes in a buffer, and where they belong.
pub(super) struct Decoded {
    pub(super) buffer: Buffer,
    /// Each piece, with its position in the buffer.
    pub(super) pieces: Vec<(usize, PieceEntry)>,
}

impl Plan {
    /// The position in the buffer of a byte of the stripe.
    pub(super) fn position(&self, offset: u64) -> usize {
        fitted(offset - self.read_offset)
    }

    /// The padding before, between and after the frames, as (from, to).
    pub(super) fn gaps(&self) -> Vec<(u64, u64)> {
        let mut position = self.start;
        let mut gaps = Vec::with_capacity(self.frames.len() + 1);
        for frame in &self.frames {
            gaps.push((position, frame.entry.offset));
            position = frame.end();
        }
        gaps.push((position, self.end));
        gaps.retain(|(from, to)| from < to);
        gaps
    }
}

impl Stored<'_> {
    /// The stored bytes of a frame.
    pub(super) fn frame(&self, frame: &FrameEntry) -> &[u8] {
        let start = self.plan.position(frame.offset);
        &self.buffer[start..start + frame.stored_bytes as usize]
    }
}
