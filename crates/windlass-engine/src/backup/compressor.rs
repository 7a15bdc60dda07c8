//! The compressors: they turn full buffers into frames.
//!
//! Uncompressed frames stay where the reader put them: the input buffer is the output. Compressed
//! ones are appended to an output buffer until it is full, so that devices see large writes.

use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender};
use windlass_media::{
    Codec, Encoder, FrameEntry, LAYOUT_PLAIN, LAYOUT_STREAMS, NONCE_BYTES, PageFrame, PieceEntry,
    SEALED_BYTES, SetCipher, crc32c, fitted, is_zero,
};

use super::class::PageClass;
use super::encoding::{Encoded, FrameEncoder};
use super::group::{Group, group};
use super::pages::{KeptBytes, PageHook, Pages};
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
    pub(crate) frames: FrameEncoder,
    /// Chooses the codec, in a run where the waits decide that.
    pub(crate) adaptive: Option<&'a Watch>,
    /// The rung of the watch for which the encoder was made.
    pub(crate) rung: Option<usize>,
    pub(crate) compress: bool,
    pub(crate) page_frames: bool,
    /// Encrypts frames, if the set is encrypted.
    pub(crate) cipher: Option<&'a SetCipher>,
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
    fn runs(&self, filled: &mut Filled) -> Result<Vec<KeptBytes>, EngineError> {
        let (mut from, mut to) = (0, 0);
        let mut runs = Vec::with_capacity(filled.parts.len());
        for part in &filled.parts {
            let bytes = &mut filled.buffer[from..from + part.bytes];
            let pages = Pages::new(part.file, part.offset, bytes);
            let mut pages = pages.in_stage(part.layer, &self.shared.progress.compressor);
            if let Some(hook) = self.hook.get() {
                hook.pages(&mut pages)?;
            }
            let (kept, class) = (pages.kept(), pages.into_class());
            let mut left = part.bytes;
            for (range, kind) in kept {
                let run = KeptBytes {
                    file: part.file,
                    file_bytes: part.file_bytes,
                    offset: part.offset + range.start as u64,
                    bytes: range.len(),
                    layer: part.layer,
                    kind,
                    class: class.clone(),
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
                self.outcomes.dropped(part.file, dropped);
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
            self.frames.set_codec(Encoder::new(codec)?);
            self.rung = Some(rung);
        }
        Ok(())
    }

    /// Without compression, the buffer goes to a device as it is.
    fn pass(
        &mut self,
        buffer: Buffer,
        runs: &[KeptBytes],
        groups: &[Group],
    ) -> Result<(), EngineError> {
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
        runs: &[KeptBytes],
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
            let class = group
                .pieces
                .first()
                .and_then(|it| runs[it.run].class.as_deref());
            let class = class.filter(|_| self.takes_apart());
            if let (Some(_), Some(hook)) = (class, self.hook.get()) {
                self.frames.prepare(|| hook.page_encoder());
            }
            let front = self.cipher.map_or(0, |_| NONCE_BYTES);
            let room = &mut buffer.space()[used + front..];
            let encoded = self.frames.encode(raw, class, room);
            let stored = encoded.stored;
            if let (Some(watch), Some(rung)) = (self.adaptive, self.rung) {
                watch.count(rung, raw.len(), stored);
            }
            self.add_pieces(&mut output, (input, runs), group);
            let whole = match output.pieces.last() {
                Some(only) if group.pieces.len() == 1 => only.crc32c,
                _ if self.page_frames => crc32c(raw),
                _ => 0,
            };
            let page = self.page(group, raw, whole);
            let mut entry = FrameEntry {
                offset: used as u64,
                stored_bytes: fitted(stored),
                raw_bytes: fitted(raw.len()),
                crc32c: 0,
                codec: encoded.codec,
                piece_count: fitted(group.pieces.len()),
                page: page.map(|page| laid_out(page, encoded)),
            };
            self.keep(&mut output, &mut entry)?;
            output.frames.push(entry);
            self.output = output;
        }
        Ok(())
    }

    /// Takes the frame that was made behind the frames of an output into it, encrypted if the set
    /// is. Its pieces are the last ones.
    fn keep(&self, output: &mut Chunk, entry: &mut FrameEntry) -> Result<(), EngineError> {
        let pieces = output.pieces.len() - usize::from(entry.piece_count);
        let Some(buffer) = output.buffer.as_mut() else {
            return Err(EngineError::Stopped);
        };
        let used = buffer.len();
        match self.cipher {
            Some(cipher) if entry.codec != Codec::Zero => {
                let sealed: u32 = fitted(SEALED_BYTES);
                let stored = entry.stored_bytes + sealed;
                buffer.set_len(used + stored as usize);
                cipher.seal_frame(entry, &output.pieces[pieces..], &mut buffer[used..])?;
                entry.stored_bytes = stored;
            }
            _ => buffer.set_len(used + entry.stored_bytes as usize),
        }
        entry.crc32c = crc32c(&buffer[used..]);
        Ok(())
    }

    /// Whether pages that have a class are taken apart now. If the compressors are the limit of a
    /// run that adapts, it comes to codecs which take less time than that.
    fn takes_apart(&self) -> bool {
        let is_fixed = self.adaptive.is_none();
        self.page_frames && (is_fixed || PageClass::is_worth_it_with(self.frames.codec()))
    }

    /// Makes sure that the output has room for a frame of `raw_bytes`.
    fn make_room(&mut self, raw_bytes: usize, pieces: usize) -> Result<(), EngineError> {
        let bound = self.frames.bound(raw_bytes) + self.cipher.map_or(0, |_| SEALED_BYTES);
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
    fn add_pieces(
        &self,
        chunk: &mut Chunk,
        (buffer, runs): (&Buffer, &[KeptBytes]),
        group: &Group,
    ) {
        let mut position = group.start;
        for piece in &group.pieces {
            let bytes = &buffer[position..position + piece.bytes];
            position += piece.bytes;
            let run = &runs[piece.run];
            let crc = crc32c(bytes);
            if run.layer == 0 {
                let end = piece.offset + piece.bytes as u64;
                self.outcomes.add_crc(run.file, crc, end, run.file_bytes);
            }
            chunk.pieces.push(PieceEntry {
                file: run.file,
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

/// The entry of a frame whose pages may have been taken apart.
fn laid_out(page: PageFrame, encoded: Encoded) -> PageFrame {
    match encoded.laid {
        None => page,
        Some(laid) => PageFrame {
            laid_bytes: fitted(laid),
            layout: LAYOUT_STREAMS,
            ..page
        },
    }
}
