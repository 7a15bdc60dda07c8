//! The compressors: they turn full buffers into frames.
//!
//! Uncompressed frames stay where the reader put them: the input buffer is the output. Compressed
//! ones are appended to an output buffer until it is full, so that devices see large writes.

use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender};
use windlass_media::{
    Codec, Encoder, FrameEntry, LAYOUT_PLAIN, PageFrame, PieceEntry, crc32c, fitted, is_zero,
};

use super::pages::{PageHook, Pages, Run};
use super::reader::Filled;
use super::source::Outcomes;
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
    pub(crate) page_frames: bool,
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
        let runs = self.runs(&mut filled)?;
        if runs.is_empty() {
            return Ok(());
        }
        let groups = group(&runs, self.frame_bytes);
        self.adapt()?;
        if self.compress {
            self.compress(&filled.buffer, &runs, &groups)
        } else {
            self.pass(filled.buffer, &runs, &groups)
        }
    }

    /// Shows each part to the hook. Returns what is kept, which lies at the start of the buffer.
    fn runs(&self, filled: &mut Filled) -> Result<Vec<Run>, EngineError> {
        let (mut from, mut to) = (0, 0);
        let mut runs = Vec::with_capacity(filled.unit.parts.len());
        for part in &filled.unit.parts {
            let bytes = &mut filled.buffer[from..from + part.bytes];
            let mut pages = Pages::new(part.file.spec.file, part.offset, bytes);
            if let Some(hook) = self.hook.get() {
                hook.pages(&mut pages)?;
            }
            let mut left = part.bytes;
            for (range, kind) in pages.kept() {
                let run = Run {
                    file: Arc::clone(&part.file),
                    offset: part.offset + range.start as u64,
                    bytes: range.len(),
                    layer: part.layer,
                    kind,
                };
                let start = from + range.start;
                if start > to {
                    filled.buffer.copy_within(start..start + run.bytes, to);
                }
                (to, left) = (to + run.bytes, left - run.bytes);
                runs.push(run);
            }
            if left > 0 {
                let dropped = left as u64;
                self.outcomes.dropped(part.file.spec.file, dropped);
            }
            from += part.bytes;
        }
        filled.buffer.set_len(to);
        Ok(runs)
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
    fn pass(&mut self, buffer: Buffer, runs: &[Run], groups: &[Group]) -> Result<(), EngineError> {
        let mut chunk = Chunk::empty();
        let zero = is_zero(&buffer);
        for group in groups {
            let raw = &buffer[group.start..group.end];
            self.add_pieces(&mut chunk, (&buffer, runs), group);
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
                page: self.page(group, raw, whole),
            });
        }
        chunk.buffer = (!zero).then_some(buffer);
        self.send(chunk)
    }

    fn compress(
        &mut self,
        input: &Buffer,
        runs: &[Run],
        groups: &[Group],
    ) -> Result<(), EngineError> {
        for group in groups {
            let raw = &input[group.start..group.end];
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
            self.add_pieces(&mut output, (input, runs), group);
            let whole = match output.pieces.last() {
                Some(only) if group.pieces.len() == 1 => only.crc32c,
                _ if self.page_frames => crc32c(raw),
                _ => 0,
            };
            output.frames.push(FrameEntry {
                offset: used as u64,
                stored_bytes: fitted(stored),
                raw_bytes: fitted(raw.len()),
                crc32c: crc,
                codec,
                piece_count: fitted(group.pieces.len()),
                page: self.page(group, raw, whole),
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

    /// What the entry of a page-aware frame says, if the set has such. `whole` is the checksum of
    /// the frame's bytes.
    fn page(&self, group: &Group, raw: &[u8], whole: u32) -> Option<PageFrame> {
        self.page_frames.then(|| PageFrame {
            raw_crc32c: whole,
            laid_bytes: fitted(raw.len()),
            layout: LAYOUT_PLAIN,
            kind: group.kind,
        })
    }

    /// Appends the pieces of a group, and adds their CRCs to those of their files.
    fn add_pieces(&self, chunk: &mut Chunk, (buffer, runs): (&Buffer, &[Run]), group: &Group) {
        let mut position = group.start;
        for piece in &group.pieces {
            let bytes = &buffer[position..position + piece.bytes];
            position += piece.bytes;
            let run = &runs[piece.run];
            let spec = &run.file.spec;
            let crc = crc32c(bytes);
            if run.layer == 0 {
                let end = piece.offset + piece.bytes as u64;
                self.outcomes.add_crc(spec.file, crc, end, spec.bytes);
            }
            chunk.pieces.push(PieceEntry {
                file: spec.file,
                bytes: fitted(piece.bytes),
                offset: piece.offset,
                crc32c: crc,
                layer: run.layer,
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
    /// What its pages are.
    kind: u16,
    pieces: Vec<Piece>,
}

/// What will be a piece on the stripe: bytes of one run.
struct Piece {
    run: usize,
    offset: u64,
    bytes: usize,
}

/// Cuts runs into frames of at most `frame_bytes`. A large run is cut at multiples of the frame
/// size, so that a division finds the frame of a page. Small runs share a frame, if their pages are
/// of one kind.
fn group(runs: &[Run], frame_bytes: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut position = 0;
    for (index, run) in runs.iter().enumerate() {
        let mut done = 0;
        while done < run.bytes {
            let bytes = (run.bytes - done).min(frame_bytes);
            let piece = Piece {
                run: index,
                offset: run.offset + done as u64,
                bytes,
            };
            let fits = |last: &Group| {
                last.kind == run.kind && last.end - last.start + bytes <= frame_bytes
            };
            match groups.last_mut() {
                Some(last) if fits(last) => {
                    last.end += bytes;
                    last.pieces.push(piece);
                }
                _ => groups.push(Group {
                    start: position,
                    end: position + bytes,
                    kind: run.kind,
                    pieces: vec![piece],
                }),
            }
            position += bytes;
            done += bytes;
        }
    }
    groups
}
