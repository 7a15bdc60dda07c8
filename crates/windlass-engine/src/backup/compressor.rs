//! The compressors: they turn full buffers into frames.
//!
//! Uncompressed frames stay where the reader put them: the input buffer is the output. Compressed
//! ones are appended to an output buffer until it is full, so that devices see large writes.

use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender};
use windlass_media::{Codec, Encoder, FrameEntry, PieceEntry, crc32c, fitted, is_zero};

use super::reader::Filled;
use super::source::{Outcomes, PageHook, Part};
use crate::adaptive::Watch;
use crate::buffer::Buffer;
use crate::error::EngineError;
use crate::shared::Shared;
use crate::waits::Cause;

/// How many pieces a chunk may have. Frames of zeros take no room, so the room of the buffer does
/// not bound their number.
const CHUNK_PIECES_MAX: usize = 8192;

/// Frames in a buffer. Any stripe may take them, so their offsets are relative to the buffer.
pub(crate) struct Chunk {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) frames: Vec<FrameEntry>,
    pub(crate) pieces: Vec<PieceEntry>,
}

/// What a compressor thread needs.
pub(crate) struct Compressor<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) outcomes: &'a Outcomes,
    pub(crate) hook: &'a OnceLock<Arc<dyn PageHook>>,
    pub(crate) full: Receiver<Filled>,
    pub(crate) chunks: Sender<Chunk>,
    pub(crate) encoder: Encoder,
    /// Chooses the codec, in a run where the waits decide that.
    pub(crate) adaptive: Option<&'a Watch>,
    /// The rung of the watch for which the encoder was made.
    pub(crate) rung: Option<usize>,
    pub(crate) compress: bool,
    pub(crate) frame_bytes: usize,
    pub(crate) output: Chunk,
}

impl Chunk {
    pub(crate) fn empty() -> Self {
        Self {
            buffer: None,
            frames: Vec::new(),
            pieces: Vec::new(),
        }
    }

    fn used(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }
}

impl Compressor<'_> {
    /// Works until there are no readers left.
    pub(crate) fn run(mut self) -> Result<(), EngineError> {
        loop {
            self.shared.check()?;
            let stage = &self.shared.progress.compressor;
            let Some(filled) = stage.next(Cause::FullBuffer, &self.full) else {
                break;
            };
            stage.add_work(filled.buffer.len() as u64);
            self.unit(filled)?;
            self.shared.end_unit();
        }
        self.flush()
    }

    fn unit(&mut self, mut filled: Filled) -> Result<(), EngineError> {
        if let Some(hook) = self.hook.get() {
            let mut rest = &mut filled.buffer[..];
            for part in &filled.unit.parts {
                let (bytes, tail) = rest.split_at_mut(part.bytes);
                hook.piece(part.file.spec.file, part.offset, bytes)?;
                rest = tail;
            }
        }
        let groups = group(&filled.unit.parts, self.frame_bytes);
        self.adapt()?;
        if self.compress {
            self.compress(&filled, &groups)
        } else {
            self.pass(filled, &groups)
        }
    }

    /// Changes to the codec that the waits call for.
    fn adapt(&mut self) -> Result<(), EngineError> {
        let Some(watch) = self.adaptive else {
            return Ok(());
        };
        let (rung, codec) = watch.look(&self.shared.progress.compressor);
        if self.rung != Some(rung) {
            self.encoder = Encoder::new(codec)?;
            self.rung = Some(rung);
        }
        Ok(())
    }

    /// Without compression, the buffer goes to a device as it is.
    fn pass(&mut self, filled: Filled, groups: &[Group]) -> Result<(), EngineError> {
        let mut chunk = Chunk::empty();
        let zero = is_zero(&filled.buffer);
        for group in groups {
            let raw = &filled.buffer[group.start..group.end];
            self.add_pieces(&mut chunk, &filled, group);
            let whole = match chunk.pieces.last() {
                Some(only) if group.pieces.len() == 1 => only.crc32c,
                _ => crc32c(raw),
            };
            chunk.frames.push(FrameEntry {
                offset: if zero { 0 } else { group.start as u64 },
                stored_bytes: if zero { 0 } else { fitted(raw.len()) },
                raw_bytes: fitted(raw.len()),
                crc32c: if zero { 0 } else { whole },
                codec: if zero { Codec::Zero } else { Codec::None },
                piece_count: fitted(group.pieces.len()),
            });
        }
        chunk.buffer = (!zero).then_some(filled.buffer);
        self.send(chunk)
    }

    fn compress(&mut self, filled: &Filled, groups: &[Group]) -> Result<(), EngineError> {
        for group in groups {
            let raw = &filled.buffer[group.start..group.end];
            self.make_room(raw.len(), group.pieces.len())?;
            let mut output = std::mem::replace(&mut self.output, Chunk::empty());
            let used = output.used();
            let Some(buffer) = output.buffer.as_mut() else {
                return Err(EngineError::Stopped);
            };
            let (codec, stored) = match self.encoder.encode(raw, &mut buffer.space()[used..]) {
                Some(encoded) => encoded,
                None => {
                    buffer.space()[used..used + raw.len()].copy_from_slice(raw);
                    (Codec::None, raw.len())
                }
            };
            if let (Some(watch), Some(rung)) = (self.adaptive, self.rung) {
                watch.count(rung, raw.len(), stored);
            }
            buffer.set_len(used + stored);
            let crc = crc32c(&buffer[used..]);
            self.add_pieces(&mut output, filled, group);
            output.frames.push(FrameEntry {
                offset: used as u64,
                stored_bytes: fitted(stored),
                raw_bytes: fitted(raw.len()),
                crc32c: crc,
                codec,
                piece_count: fitted(group.pieces.len()),
            });
            self.output = output;
        }
        Ok(())
    }

    /// Makes sure that the output has room for a frame of `raw_bytes`.
    fn make_room(&mut self, raw_bytes: usize, pieces: usize) -> Result<(), EngineError> {
        let bound = self.encoder.bound(raw_bytes).max(raw_bytes);
        let full = self.output.pieces.len() + pieces > CHUNK_PIECES_MAX;
        let pool = &self.shared.pool;
        if full || self.output.used() + bound > pool.buffer_bytes() {
            self.flush()?;
        }
        if self.output.buffer.is_none() {
            self.output.buffer = Some(self.shared.output()?);
        }
        Ok(())
    }

    /// Appends the pieces of a group, and adds their CRCs to those of their files.
    fn add_pieces(&self, chunk: &mut Chunk, filled: &Filled, group: &Group) {
        let mut position = group.start;
        for piece in &group.pieces {
            let bytes = &filled.buffer[position..position + piece.bytes];
            position += piece.bytes;
            let part = &filled.unit.parts[piece.part];
            let spec = &part.file.spec;
            let crc = crc32c(bytes);
            if part.layer == 0 {
                let end = piece.offset + piece.bytes as u64;
                self.outcomes.add_crc(spec.file, crc, end, spec.bytes);
            }
            chunk.pieces.push(PieceEntry {
                file: spec.file,
                bytes: fitted(piece.bytes),
                offset: piece.offset,
                crc32c: crc,
                layer: part.layer,
            });
        }
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        let chunk = std::mem::replace(&mut self.output, Chunk::empty());
        if chunk.frames.is_empty() {
            Ok(())
        } else {
            self.send(chunk)
        }
    }

    fn send(&self, chunk: Chunk) -> Result<(), EngineError> {
        self.shared.hand_on(&self.chunks, chunk)
    }
}

/// A frame that is to be made: a range of the buffer, and the pieces of files in it.
struct Group {
    start: usize,
    end: usize,
    pieces: Vec<Piece>,
}

/// What will be a piece on the stripe: bytes of one part of the unit.
struct Piece {
    part: usize,
    offset: u64,
    bytes: usize,
}

/// Cuts the parts of a unit into frames of at most `frame_bytes`. A large part is cut at multiples
/// of the frame size, so that a division finds the frame of a page. Small parts share a frame.
fn group(parts: &[Part], frame_bytes: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut position = 0;
    for (index, part) in parts.iter().enumerate() {
        let mut done = 0;
        while done < part.bytes {
            let bytes = (part.bytes - done).min(frame_bytes);
            let piece = Piece {
                part: index,
                offset: part.offset + done as u64,
                bytes,
            };
            match groups.last_mut() {
                Some(last) if last.end - last.start + bytes <= frame_bytes => {
                    last.end += bytes;
                    last.pieces.push(piece);
                }
                _ => groups.push(Group {
                    start: position,
                    end: position + bytes,
                    pieces: vec![piece],
                }),
            }
            position += bytes;
            done += bytes;
        }
    }
    groups
}
