//! The writers of a restore: they give decoded bytes to the target, leaving out what is zero.

use std::time::Duration;

use crossbeam_channel::Receiver;
use windlass_media::{PieceEntry, is_zero};

use super::faults::Faults;
use super::ledger::LinkLedger;
use super::stages::Decoded;
use crate::error::EngineError;
use crate::shared::Shared;
use crate::target::Target;
use crate::waits::{Cause, Io};

/// Zeros that have at least this length and alignment are left as a hole.
const HOLE_BYTES: usize = 64 * 1024;

/// Hands decoded bytes to the target.
pub(super) struct TargetWriter<'a> {
    pub(super) shared: &'a Shared,
    pub(super) target: &'a dyn Target,
    pub(super) ledger: LinkLedger<'a>,
    pub(super) faults: &'a dyn Faults,
    pub(super) input: Receiver<Decoded>,
}

impl TargetWriter<'_> {
    pub(super) fn run(self) -> Result<(), EngineError> {
        let stage = &self.shared.progress.writer;
        loop {
            self.shared.check()?;
            let Some(decoded) = stage.next(Cause::Frames, &self.input) else {
                return Ok(());
            };
            for (position, piece, length) in self.runs(&decoded)? {
                let bytes = &decoded.buffer[position..position + length];
                if self.target.keeps() {
                    let write = || self.write(&piece, bytes);
                    let (written, elapsed) = stage.timed(Cause::TargetWrite, write);
                    written?;
                    self.count(length as u64, elapsed);
                }
                stage.add_work(length as u64);
            }
        }
    }

    /// Counts an I/O with the target.
    fn count(&self, bytes: u64, elapsed: Duration) {
        let io = Io {
            cause: Cause::TargetWrite,
            bytes,
            elapsed,
            depth: 1,
        };
        let progress = &self.shared.progress;
        progress.io(&progress.writer, io);
    }

    /// The runs of a buffer that count, in files of the newest set. Runs that are neighbours in the
    /// buffer and in the file are joined.
    fn runs(&self, decoded: &Decoded) -> Result<Vec<(usize, PieceEntry, usize)>, EngineError> {
        let mut runs: Vec<(usize, PieceEntry, usize)> = Vec::new();
        for (position, piece) in &decoded.pieces {
            let entered = self.ledger.enter(piece, &self.shared.progress.writer);
            let (file, ranges) = match entered {
                Ok(entered) => entered,
                Err(error) => {
                    self.faults.whole(error)?;
                    continue;
                }
            };
            for (start, end) in ranges {
                let offset = piece.offset + start as u64;
                let (at, length) = (position + start, end - start);
                match runs.last_mut() {
                    Some((from, last, bytes))
                        if last.file == file
                            && *from + *bytes == at
                            && last.offset + *bytes as u64 == offset =>
                    {
                        *bytes += length;
                    }
                    _ => {
                        let piece = PieceEntry {
                            file,
                            offset,
                            ..*piece
                        };
                        runs.push((at, piece, length));
                    }
                }
            }
        }
        Ok(runs)
    }

    /// Writes a run, except for its zeros: the file has holes there.
    fn write(&self, piece: &PieceEntry, bytes: &[u8]) -> Result<(), EngineError> {
        let (file, mut offset) = (piece.file, piece.offset);
        let mut rest = bytes;
        while !rest.is_empty() {
            let data = data_bytes(rest);
            if data > 0 {
                self.target.write(file, offset, &rest[..data])?;
            }
            let hole = hole_bytes(&rest[data..]);
            if hole > 0 {
                self.target.hole(file, offset + data as u64, hole as u64)?;
            }
            offset += (data + hole) as u64;
            rest = &rest[data + hole..];
        }
        Ok(())
    }
}

/// How many bytes come before the first block of zeros.
fn data_bytes(bytes: &[u8]) -> usize {
    let mut blocks = bytes.chunks_exact(HOLE_BYTES);
    blocks
        .position(is_zero)
        .map_or(bytes.len(), |index| index * HOLE_BYTES)
}

/// How many bytes the blocks of zeros at the start have.
fn hole_bytes(bytes: &[u8]) -> usize {
    let mut blocks = bytes.chunks_exact(HOLE_BYTES);
    let whole = bytes.len() / HOLE_BYTES;
    blocks.position(|block| !is_zero(block)).unwrap_or(whole) * HOLE_BYTES
}
