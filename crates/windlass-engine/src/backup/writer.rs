//! The writers: one a device. Each lays frames on its stripe and keeps the stripe's index.
//!
//! Chunks come from one queue that all writers share, so a fast device takes more of them: a
//! set's speed is the sum of its devices', not the slowest one's times their number.
//!
//! A writer never waits for frames while it has writes in flight: their buffers must go back.

use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError};
use windlass_media::{
    BlockSpans, FileNo, FileSpan, IndexBlockBuilder, IndexDirectoryEntry, SetCipher, SetId,
    StripeHeader, StripeIndex, fitted,
};

use super::compressor::Chunk;
use super::output::Output;
use super::parity::{Groups, ROLE};
use crate::buffer::Pool;
use crate::device::Device;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::rate::RateLimit;
use crate::shared::Shared;
use crate::waits::Cause;

/// An index block is written when its entries take this much. That describes about 700 MB of a
/// database.
const INDEX_BLOCK_BYTES: usize = 256 * 1024;

/// A stripe that is being written. Afterwards it says what is known about the stripe.
pub(crate) struct StripeWriter {
    pub(crate) output: Output,
    pub(crate) set_id: SetId,
    pub(crate) stripe: StripeIndex,
    pub(crate) header: Vec<u8>,
    /// Encrypts index blocks, if the set is encrypted. Frames come encrypted.
    pub(crate) cipher: Option<Arc<SetCipher>>,
    /// The groups of the set's parity, if it has parity.
    pub(crate) groups: Option<Arc<Groups>>,
    region_offset: u64,
    builder: IndexBlockBuilder,
    pub(crate) directory: Vec<IndexDirectoryEntry>,
    /// What each index block has of each file.
    pub(crate) spans: Vec<BlockSpans>,
    files: Option<(FileNo, FileNo)>,
    layer_max: u8,
    pub(crate) frames: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) stored_bytes: u64,
}

impl StripeWriter {
    /// Begins a stripe on a device, and writes its header.
    pub(crate) fn begin(
        device: Box<dyn Device>,
        header: &StripeHeader,
        cipher: Option<Arc<SetCipher>>,
        groups: Option<Arc<Groups>>,
    ) -> Result<Self, EngineError> {
        let encoded = header.encode()?;
        let mut output = Output::new(device);
        output.device.write(0, &encoded)?;
        let offset = encoded.len() as u64;
        output.offset = offset;
        Ok(Self {
            output,
            set_id: header.set_id,
            stripe: header.stripe,
            header: encoded,
            cipher,
            groups,
            region_offset: offset,
            builder: IndexBlockBuilder::default(),
            directory: Vec::new(),
            spans: Vec::new(),
            files: None,
            layer_max: 0,
            frames: 0,
            raw_bytes: 0,
            stored_bytes: 0,
        })
    }

    /// Writes chunks until no compressor is left.
    pub(crate) fn run(
        &mut self,
        chunks: &Receiver<Chunk>,
        shared: &Shared,
        rate: Option<&RateLimit>,
    ) -> Result<(), EngineError> {
        Progress::serve(usize::from(self.stripe.0));
        let header = std::mem::take(&mut self.header);
        let protected = self.protect(0, &header, shared);
        self.header = header;
        protected?;
        loop {
            shared.check()?;
            let chunk = match chunks.try_recv() {
                Ok(chunk) => chunk,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) if self.output.device.in_flight() > 0 => {
                    self.output.reap(shared)?;
                    continue;
                }
                Err(TryRecvError::Empty) => {
                    match self
                        .output
                        .timed(shared, Cause::Frames, |_| Ok(chunks.recv()))?
                    {
                        Ok(chunk) => chunk,
                        Err(_) => break,
                    }
                }
            };
            if let (Some(rate), Some(buffer)) = (rate, &chunk.buffer) {
                rate.pass(buffer.len() as u64, &shared.progress.writer, &shared.cancel)?;
            }
            self.chunk(chunk, shared)?;
        }
        self.output.drain(shared)?;
        if self.builder.is_empty() {
            Ok(())
        } else {
            self.index_block(shared)
        }
    }

    fn chunk(&mut self, chunk: Chunk, shared: &Shared) -> Result<(), EngineError> {
        let mut pieces = chunk.pieces.as_slice();
        for mut frame in chunk.frames {
            frame.offset += self.output.offset;
            let (own, rest) = pieces.split_at(usize::from(frame.piece_count).min(pieces.len()));
            pieces = rest;
            for piece in own {
                let (low, high) = self.files.unwrap_or((piece.file, piece.file));
                self.files = Some((low.min(piece.file), high.max(piece.file)));
                self.layer_max = self.layer_max.max(piece.layer);
            }
            self.frames += 1;
            self.raw_bytes += u64::from(frame.raw_bytes);
            self.stored_bytes += u64::from(frame.stored_bytes);
            self.builder.push(frame, own);
        }
        if let Some(mut buffer) = chunk.buffer.filter(|buffer| !buffer.is_empty()) {
            buffer.pad(self.output.device.alignment() as usize);
            self.protect(self.output.offset, &buffer, shared)?;
            self.output.submit(buffer, shared)?;
        }
        if self.builder.content_bytes() >= INDEX_BLOCK_BYTES {
            self.index_block(shared)?;
        }
        Ok(())
    }

    fn index_block(&mut self, shared: &Shared) -> Result<(), EngineError> {
        let number = fitted(self.directory.len());
        let (offset, region) = (self.output.offset, self.region_offset);
        let mut block =
            self.builder
                .take(self.set_id, self.stripe, number, region, offset - region);
        let alignment = self.output.device.alignment();
        let bytes = block.encode_with(alignment, self.cipher.as_deref())?;
        self.protect(offset, &bytes, shared)?;
        self.output.write(&bytes, shared)?;
        let (file_min, file_max) = self.files.take().unwrap_or_default();
        self.directory.push(IndexDirectoryEntry {
            offset,
            bytes: block.encoded_bytes,
            frame_count: fitted(block.frames.len()),
            region_offset: region,
            file_min,
            file_max,
            layer_max: std::mem::take(&mut self.layer_max),
            hash: *blake3::hash(&bytes).as_bytes(),
        });
        self.spans.push(FileSpan::of(&block.pieces));
        self.region_offset = self.output.offset;
        Ok(())
    }

    /// Adds bytes to the parity of the set, if it has parity.
    pub(crate) fn protect(
        &mut self,
        offset: u64,
        bytes: &[u8],
        shared: &Shared,
    ) -> Result<(), EngineError> {
        let Some(groups) = self.groups.as_ref().map(Arc::clone) else {
            return Ok(());
        };
        let output = &mut self.output;
        let mut take = |pool: &Arc<Pool>| {
            let free = pool.try_take(ROLE);
            free.or_else(|| output.wait_for_other(shared, || pool.take(ROLE)))
        };
        groups.add((self.stripe.0, offset), bytes, &mut take)
    }
}
