//! The decompressors of a restore: they check each frame, decode it, and check what came out.

use crossbeam_channel::{Receiver, Sender};
use windlass_media::{Codec, FormatError, FrameDecoder, Structure, is_zero};

use super::Target;
use super::faults::Faults;
use super::ledger::LinkLedger;
use super::stages::{Decoded, PlannedFrame, Stored};
use crate::error::EngineError;
use crate::read::DIRECT_ALIGNMENT;
use crate::set::OpenStripe;
use crate::shared::Shared;
use crate::waits::Cause;

/// Checks and decodes frames.
pub(super) struct Decompressor<'a> {
    pub(super) shared: &'a Shared,
    pub(super) target: &'a dyn Target,
    pub(super) ledger: LinkLedger<'a>,
    pub(super) faults: &'a dyn Faults,
    pub(super) decoder: FrameDecoder,
    pub(super) input: Receiver<Stored<'a>>,
    pub(super) output: Sender<Decoded>,
    /// The buffer that is being filled.
    pub(super) open: Option<Decoded>,
}

impl<'a> Decompressor<'a> {
    pub(super) fn run(mut self) -> Result<(), EngineError> {
        loop {
            self.shared.check()?;
            let stage = &self.shared.progress.compressor;
            let Some(stored) = stage.next(Cause::FullBuffer, &self.input) else {
                break;
            };
            self.unit(stored)?;
        }
        self.flush()
    }

    fn unit(&mut self, mut stored: Stored<'a>) -> Result<(), EngineError> {
        self.check_padding(&mut stored)?;
        let mut frames = std::mem::take(&mut stored.plan.frames);
        for frame in frames.iter_mut().filter(|frame| frame.sound) {
            let mut right = frame.entry.check_stored(stored.frame(&frame.entry));
            if right.is_err() && self.is_rebuilt(&mut stored, (frame.entry.offset, frame.end()))? {
                right = frame.entry.check_stored(stored.frame(&frame.entry));
            }
            self.judge(stored.stripe, frame, right)?;
        }
        frames.retain(|frame| frame.sound);
        let as_they_are = frames.iter().all(|frame| frame.entry.is_stored_as_it_is());
        if as_they_are {
            self.pass(stored, frames)
        } else {
            self.decode(&stored, frames)
        }
    }

    /// Either lists damage of a frame, or ends the run.
    fn judge(
        &self,
        stripe: &OpenStripe,
        frame: &mut PlannedFrame,
        result: Result<(), FormatError>,
    ) -> Result<(), EngineError> {
        let Err(fault) = result else { return Ok(()) };
        let error = stripe.damage(frame.entry.offset, fault);
        frame.sound = false;
        // Which bytes count may have to be read.
        let stage = &self.shared.progress.compressor;
        let note = || self.faults.frame(stripe, frame.named(), self.ledger, error);
        stage.wait_off_core(Cause::DeviceRead, note)
    }

    /// Rebuilds damaged bytes in a buffer, if the set has parity. False if that does not help, and
    /// the damage is listed.
    fn is_rebuilt(
        &self,
        stored: &mut Stored<'_>,
        (from, to): (u64, u64),
    ) -> Result<bool, EngineError> {
        let stage = &self.shared.progress.compressor;
        let into = stored.plan.position(from)..stored.plan.position(to);
        let into = &mut stored.buffer[into];
        let stripe = stored.stripe;
        let rebuilt = stage.wait_off_core(Cause::DeviceRead, || stripe.rebuild(from, into));
        match rebuilt {
            Err(error) if self.faults.lists(&error) => Ok(false),
            rebuilt => rebuilt,
        }
    }

    /// Checks that the bytes between frames are zero.
    fn check_padding(&self, stored: &mut Stored<'_>) -> Result<(), EngineError> {
        for gap in stored.plan.gaps() {
            if has_zeros(stored, gap) || (self.is_rebuilt(stored, gap)? && has_zeros(stored, gap)) {
                continue;
            }
            let (from, to) = gap;
            let fault = FormatError::Invalid {
                structure: Structure::IndexBlock,
                what: "padding between frames is not zero",
            };
            let error = stored.stripe.damage(from, fault);
            let stripe = (self.ledger.link(), stored.stripe);
            self.faults.padding(stripe, (from, to - from), error)?;
        }
        Ok(())
    }

    /// Without compression, the buffer goes to the target as it is.
    fn pass(
        &mut self,
        stored: Stored<'a>,
        mut frames: Vec<PlannedFrame>,
    ) -> Result<(), EngineError> {
        let mut pieces = Vec::new();
        for frame in &mut frames {
            let raw = stored.frame(&frame.entry);
            let checked = frame.entry.check_pieces(&frame.pieces, raw);
            self.judge(stored.stripe, frame, checked)?;
            if !frame.sound {
                continue;
            }
            let mut position = stored.plan.position(frame.entry.offset);
            for piece in &frame.pieces {
                pieces.push((position, *piece));
                position += piece.bytes as usize;
            }
        }
        let bytes = pieces.iter().map(|(_, piece)| u64::from(piece.bytes)).sum();
        self.shared.progress.compressor.add_work(bytes);
        self.send(Decoded {
            buffer: stored.buffer,
            pieces,
        })
    }

    fn decode(
        &mut self,
        stored: &Stored<'a>,
        mut frames: Vec<PlannedFrame>,
    ) -> Result<(), EngineError> {
        for frame in &mut frames {
            let decoded = if frame.entry.codec == Codec::Zero {
                // These zeros are not written: the file was created with its length, and a hole
                // reads as zeros.
                frame.entry.check_pieces(&frame.pieces, &[])
            } else {
                self.make_room(frame.entry.raw_bytes as usize)?;
                self.decode_one(stored, frame)?
            };
            self.judge(stored.stripe, frame, decoded)?;
            if frame.sound && frame.entry.codec == Codec::Zero {
                self.hole(frame)?;
            }
            let bytes = u64::from(frame.entry.raw_bytes);
            self.shared.progress.compressor.add_work(bytes);
        }
        Ok(())
    }

    /// Decodes a frame behind what is in the open buffer. Takes it out again if it is not right.
    fn decode_one(
        &mut self,
        stored: &Stored<'a>,
        frame: &PlannedFrame,
    ) -> Result<Result<(), FormatError>, EngineError> {
        let Some(open) = self.open.as_mut() else {
            return Err(EngineError::Stopped);
        };
        let entry = &frame.entry;
        let before = open.buffer.len();
        // It begins at a block boundary, so that the target can write it directly.
        let used = before.next_multiple_of(DIRECT_ALIGNMENT);
        open.buffer.set_len(used + entry.raw_bytes as usize);
        let into = &mut open.buffer[used..];
        let cipher = stored.stripe.cipher();
        let frame_of = (entry, frame.pieces.as_slice());
        let bytes = stored.frame(entry);
        let decoded = self.decoder.decode_with(cipher, frame_of, bytes, into);
        let decoded = decoded.and_then(|()| entry.check_pieces(&frame.pieces, into));
        if decoded.is_err() {
            open.buffer.set_len(before);
            return Ok(decoded);
        }
        let mut position = used;
        for piece in &frame.pieces {
            open.pieces.push((position, *piece));
            position += piece.bytes as usize;
        }
        Ok(Ok(()))
    }

    fn hole(&self, frame: &PlannedFrame) -> Result<(), EngineError> {
        for piece in &frame.pieces {
            let entered = self.ledger.enter(piece, &self.shared.progress.compressor);
            let (file, ranges) = match entered {
                Ok(entered) => entered,
                Err(error) => {
                    self.faults.whole(error)?;
                    continue;
                }
            };
            for (start, end) in ranges {
                let offset = piece.offset + start as u64;
                self.target.hole(file, offset, (end - start) as u64)?;
            }
        }
        Ok(())
    }

    fn make_room(&mut self, raw_bytes: usize) -> Result<(), EngineError> {
        let pool = &self.shared.pool;
        let end = |open: &Decoded| open.buffer.len().next_multiple_of(DIRECT_ALIGNMENT) + raw_bytes;
        let full = |open: &Decoded| end(open) > pool.buffer_bytes();
        if self.open.as_ref().is_some_and(full) {
            self.flush()?;
        }
        if self.open.is_none() {
            let buffer = self.shared.output()?;
            self.open = Some(Decoded {
                buffer,
                pieces: Vec::new(),
            });
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        self.open.take().map_or(Ok(()), |open| self.send(open))
    }

    fn send(&self, decoded: Decoded) -> Result<(), EngineError> {
        self.shared.hand_on(&self.output, decoded)
    }
}

/// Whether the bytes of the stripe from one offset to another are zero.
fn has_zeros(stored: &Stored<'_>, (from, to): (u64, u64)) -> bool {
    is_zero(&stored.buffer[stored.plan.position(from)..stored.plan.position(to)])
}
