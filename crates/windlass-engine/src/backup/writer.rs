//! The writers: one a device. Each lays frames on its stripe and keeps the stripe's index.
//!
//! Chunks come from one queue that all writers share, so a fast device takes more of them: a
//! set's speed is the sum of its devices', not the slowest one's times their number.
//!
//! A writer never waits for frames while it has writes in flight: their buffers must go back.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, TryRecvError};
use hdrhistogram::Histogram;
use windlass_media::{
    FileNo, IndexBlockBuilder, IndexDirectoryEntry, SetCipher, SetId, StripeHeader, StripeIndex,
    fitted,
};

use super::compressor::Chunk;
use crate::device::{Device, WriteDone};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::rate::RateLimit;
use crate::report::{DeviceReport, latencies};
use crate::resource::StageName;
use crate::shared::Shared;
use crate::waits::{Cause, Io, Stage};

/// An index block is written when its entries take this much. That describes about 700 MB of a
/// database.
const INDEX_BLOCK_BYTES: usize = 256 * 1024;

/// A stripe that is being written. Afterwards it says what is known about the stripe.
pub(crate) struct StripeWriter {
    pub(crate) device: Box<dyn Device>,
    pub(crate) set_id: SetId,
    pub(crate) stripe: StripeIndex,
    pub(crate) header: Vec<u8>,
    /// Encrypts index blocks, if the set is encrypted. Frames come encrypted.
    pub(crate) cipher: Option<Arc<SetCipher>>,
    /// Where the next byte goes.
    pub(crate) offset: u64,
    region_offset: u64,
    builder: IndexBlockBuilder,
    pub(crate) directory: Vec<IndexDirectoryEntry>,
    files: Option<(FileNo, FileNo)>,
    layer_max: u8,
    pub(crate) frames: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) operations: u64,
    pub(crate) latency: Histogram<u64>,
    /// The waits of this device alone. The run's stage has the sum over all devices.
    pub(crate) waits: Stage,
}

impl StripeWriter {
    /// Begins a stripe on a device, and writes its header.
    pub(crate) fn begin(
        mut device: Box<dyn Device>,
        header: &StripeHeader,
        cipher: Option<Arc<SetCipher>>,
    ) -> Result<Self, EngineError> {
        let encoded = header.encode()?;
        device.write(0, &encoded)?;
        let offset = encoded.len() as u64;
        let latency = latencies();
        Ok(Self {
            device,
            set_id: header.set_id,
            stripe: header.stripe,
            header: encoded,
            cipher,
            offset,
            region_offset: offset,
            builder: IndexBlockBuilder::default(),
            directory: Vec::new(),
            files: None,
            layer_max: 0,
            frames: 0,
            raw_bytes: 0,
            stored_bytes: 0,
            operations: 0,
            latency,
            waits: Stage::default(),
        })
    }

    /// What its device did in a run in which data moved for `data_seconds`.
    pub(crate) fn report(&self, data_seconds: f64) -> DeviceReport {
        // A device is busy while something is in flight. That is always so, except when its writer
        // waits for frames.
        let idle = self.waits.report(StageName::Writer).waited(Cause::Frames);
        let busy = (data_seconds - idle).max(0.0);
        DeviceReport::new(self.device.location(), self.offset, busy, &self.latency)
    }

    /// Writes chunks until no compressor is left.
    pub(crate) fn run(
        &mut self,
        chunks: &Receiver<Chunk>,
        shared: &Shared,
        rate: Option<&RateLimit>,
    ) -> Result<(), EngineError> {
        Progress::serve(usize::from(self.stripe.0));
        loop {
            shared.check()?;
            let chunk = match chunks.try_recv() {
                Ok(chunk) => chunk,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) if self.device.in_flight() > 0 => {
                    self.reap(shared)?;
                    continue;
                }
                Err(TryRecvError::Empty) => {
                    match self.timed(shared, Cause::Frames, |_| Ok(chunks.recv()))? {
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
        while self.device.in_flight() > 0 {
            self.reap(shared)?;
        }
        if self.builder.is_empty() {
            Ok(())
        } else {
            self.index_block(shared)
        }
    }

    fn chunk(&mut self, chunk: Chunk, shared: &Shared) -> Result<(), EngineError> {
        let mut pieces = chunk.pieces.as_slice();
        for mut frame in chunk.frames {
            frame.offset += self.offset;
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
            buffer.pad(self.device.alignment() as usize);
            let (offset, bytes) = (self.offset, buffer.len() as u64);
            let depth = shared.write_depth(self.device.depth());
            while self.device.in_flight() >= depth.max(1) {
                self.reap(shared)?;
            }
            let done = self.timed(shared, Cause::DeviceWrite, |w| {
                w.device.submit(offset, buffer)
            })?;
            self.offset += bytes;
            self.count(done, shared);
        }
        if self.builder.content_bytes() >= INDEX_BLOCK_BYTES {
            self.index_block(shared)?;
        }
        Ok(())
    }

    fn reap(&mut self, shared: &Shared) -> Result<(), EngineError> {
        let done = self.timed(shared, Cause::DeviceWrite, |writer| writer.device.reap())?;
        self.count(done, shared);
        Ok(())
    }

    fn count(&mut self, done: Option<WriteDone>, shared: &Shared) {
        let Some(done) = done else { return };
        self.operations += 1;
        let micros = fitted(done.elapsed.as_micros());
        self.latency.saturating_record(micros);
        let progress = &shared.progress;
        progress.writer.add_work(done.bytes);
        let io = Io {
            cause: Cause::DeviceWrite,
            bytes: done.bytes,
            elapsed: done.elapsed,
            depth: self.device.in_flight() + 1,
        };
        progress.io(&progress.writer, io);
        shared.grow();
    }

    fn index_block(&mut self, shared: &Shared) -> Result<(), EngineError> {
        let number = fitted(self.directory.len());
        let (offset, region) = (self.offset, self.region_offset);
        let mut block =
            self.builder
                .take(self.set_id, self.stripe, number, region, offset - region);
        let bytes = block.encode_with(self.device.alignment(), self.cipher.as_deref())?;
        let begin = Instant::now();
        self.timed(shared, Cause::DeviceWrite, |writer| {
            writer.device.write(offset, &bytes)
        })?;
        let io = Io {
            cause: Cause::DeviceWrite,
            bytes: bytes.len() as u64,
            elapsed: begin.elapsed(),
            depth: self.device.in_flight() + 1,
        };
        shared.progress.io(&shared.progress.writer, io);
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
        self.offset += bytes.len() as u64;
        self.region_offset = self.offset;
        Ok(())
    }

    /// Runs a blocking call. Its time counts for this device and for the stage.
    pub(crate) fn timed<T>(
        &mut self,
        shared: &Shared,
        cause: Cause,
        call: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let (result, elapsed) = shared.progress.writer.timed(cause, || call(self));
        self.waits.add_wait(cause, elapsed);
        result
    }
}
