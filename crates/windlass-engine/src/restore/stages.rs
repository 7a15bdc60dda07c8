//! The stages of a restore: stripe readers, decompressors, target writers.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use hdrhistogram::Histogram;
use windlass_media::{
    Codec, Decoder, FormatError, FrameEntry, IndexBlock, PieceEntry, Structure, crc32c, is_zero,
};

use super::Target;
use super::ledger::Ledger;
use crate::buffer::{Buffer, Role};
use crate::error::EngineError;
use crate::rate::RateLimit;
use crate::read::{DIRECT_ALIGNMENT, ReadDone, ReadQueue, ReadRequest, read_uncached};
use crate::report::latencies;
use crate::set::OpenStripe;
use crate::shared::Shared;
use crate::waits::Cause;

/// Zeros of at least this length, and so aligned, are left as a hole.
const HOLE_BYTES: usize = 64 * 1024;

/// A run of a stripe in a buffer, with the frames that lie in it.
pub(super) struct Stored<'a> {
    buffer: Buffer,
    plan: Plan,
    stripe: &'a OpenStripe,
}

/// Part of a region that is read at once: whole frames and the padding between them.
struct Plan {
    /// Where the read begins: at or before `start`, aligned for direct reads.
    read_offset: u64,
    start: u64,
    end: u64,
    frames: Vec<(FrameEntry, Vec<PieceEntry>)>,
}

/// Decoded bytes in a buffer, and where they belong.
pub(super) struct Decoded {
    buffer: Buffer,
    /// Position in the buffer, piece.
    pieces: Vec<(usize, PieceEntry)>,
}

/// Reads one stripe from its first region to its last.
pub(crate) struct StripeReader<'a> {
    pub(crate) stripe: &'a OpenStripe,
    shared: &'a Shared,
    queue: ReadQueue,
    reading: Vec<(u64, Plan)>,
    token: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) bytes: u64,
    pub(crate) busy_seconds: f64,
}

impl<'a> StripeReader<'a> {
    pub(super) fn new(
        stripe: &'a OpenStripe,
        shared: &'a Shared,
        depth: usize,
        ring: bool,
    ) -> Result<Self, EngineError> {
        let latency = latencies()?;
        let queue = ReadQueue::new(depth, ring);
        let (reading, token, bytes, busy_seconds) = (Vec::new(), 0, 0, 0.0);
        Ok(Self {
            stripe,
            shared,
            queue,
            reading,
            token,
            latency,
            bytes,
            busy_seconds,
        })
    }

    pub(super) fn run(
        mut self,
        stored: &Sender<Stored<'a>>,
        rate: Option<&RateLimit>,
    ) -> Result<Self, EngineError> {
        let capacity = self.shared.pool.buffer_bytes();
        for entry in self.stripe.directory() {
            let block = self.stripe.index_block(entry)?;
            self.bytes += u64::from(entry.bytes);
            for plan in plans(&block, capacity) {
                self.shared.check()?;
                self.one(plan, stored, rate)?;
            }
        }
        while self.queue.in_flight() > 0 {
            self.wait(stored)?;
        }
        Ok(self)
    }

    /// Starts the read of one plan, making room first.
    fn one(
        &mut self,
        plan: Plan,
        stored: &Sender<Stored<'a>>,
        rate: Option<&RateLimit>,
    ) -> Result<(), EngineError> {
        let buffer = loop {
            if !self.queue.is_full() {
                if let Some(buffer) = self.shared.pool.try_take(Role::Input) {
                    break buffer;
                }
                if self.queue.in_flight() == 0 {
                    let pool = &self.shared.pool;
                    let stage = &self.shared.progress.reader;
                    let buffer = stage.wait(Cause::FreeBuffer, || pool.take(Role::Input));
                    break buffer.ok_or(EngineError::Stopped)?;
                }
            }
            self.wait(stored)?;
        };
        let length = usize::try_from(plan.end - plan.read_offset).unwrap_or(usize::MAX);
        if let Some(rate) = rate {
            rate.pass(
                length as u64,
                &self.shared.progress.reader,
                &self.shared.cancel,
            )?;
        }
        self.token += 1;
        let (offset, token) = (plan.read_offset, self.token);
        self.reading.push((token, plan));
        let request = ReadRequest {
            file: &self.stripe.file,
            offset,
            length,
            token,
        };
        let begin = Instant::now();
        let done = self.queue.submit(&request, buffer);
        let done = done.map_err(|source| self.stripe.io(offset, source))?;
        let Some(done) = done else { return Ok(()) };
        if done.waited {
            self.shared
                .progress
                .reader
                .add_wait(Cause::DeviceRead, done.elapsed);
        }
        self.busy_seconds += begin.elapsed().as_secs_f64();
        self.arrived(done, stored)
    }

    fn wait(&mut self, stored: &Sender<Stored<'a>>) -> Result<(), EngineError> {
        let begin = Instant::now();
        let stage = &self.shared.progress.reader;
        let done = stage.wait(Cause::DeviceRead, || self.queue.wait());
        self.busy_seconds += begin.elapsed().as_secs_f64();
        let done = done.map_err(|source| self.stripe.io(0, source))?;
        done.map_or(Ok(()), |done| self.arrived(done, stored))
    }

    fn arrived(&mut self, done: ReadDone, stored: &Sender<Stored<'a>>) -> Result<(), EngineError> {
        let index = self
            .reading
            .iter()
            .position(|(token, _)| *token == done.token);
        let (_, plan) = self.reading.swap_remove(index.ok_or(EngineError::Stopped)?);
        let length = usize::try_from(plan.end - plan.read_offset).unwrap_or(usize::MAX);
        let mut buffer = done.buffer;
        // As in a backup: what a direct read did not deliver is read again through the cache.
        let filled = done.result.unwrap_or(0).min(length);
        if filled < length {
            let at = plan.read_offset + filled as u64;
            let into = &mut buffer.space()[filled..length];
            let more = read_uncached(self.stripe.file.file(), at, into);
            let more = more.map_err(|source| self.stripe.io(at, source))?;
            if more < length - filled {
                let fault = FormatError::Truncated(Structure::IndexBlock);
                return Err(self.stripe.damage(at, fault));
            }
        }
        buffer.set_len(length);
        let micros = u64::try_from(done.elapsed.as_micros()).unwrap_or(u64::MAX);
        self.latency.saturating_record(micros);
        let bytes = plan.end - plan.start;
        self.bytes += bytes;
        self.shared.progress.reader.add_work(bytes);
        let message = Stored {
            buffer,
            plan,
            stripe: self.stripe,
        };
        stored.send(message).map_err(|_| EngineError::Stopped)
    }
}

/// Cuts a region into reads that fit a buffer. Every byte of the region is in exactly one.
fn plans(block: &IndexBlock, capacity: usize) -> Vec<Plan> {
    let limit = (capacity - DIRECT_ALIGNMENT) as u64;
    let region_end = block.region_offset + block.region_bytes;
    let mut plans: Vec<Plan> = Vec::new();
    let mut open: Option<Plan> = None;
    let mut frames = block.iter().peekable();
    while let Some((frame, pieces)) = frames.next() {
        // The padding after a frame goes with it.
        let end = frames.peek().map_or(region_end, |(next, _)| next.offset);
        if let Some(plan) = open.take_if(|plan| end - plan.start > limit) {
            plans.push(plan);
        }
        let start = plans.last().map_or(block.region_offset, |last| last.end);
        let plan = open.get_or_insert_with(|| Plan {
            read_offset: start & !(DIRECT_ALIGNMENT as u64 - 1),
            start,
            end: start,
            frames: Vec::new(),
        });
        plan.end = end;
        plan.frames.push((*frame, pieces.to_vec()));
    }
    plans.extend(open);
    plans
}

/// Checks and decodes frames.
pub(super) struct Decompressor<'a> {
    shared: &'a Shared,
    target: &'a dyn Target,
    ledger: &'a Ledger,
    decoder: Decoder,
    input: Receiver<Stored<'a>>,
    output: Sender<Decoded>,
    open: Option<Decoded>,
}

impl<'a> Decompressor<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        target: &'a dyn Target,
        ledger: &'a Ledger,
        decoder: Decoder,
        (input, output): (Receiver<Stored<'a>>, Sender<Decoded>),
    ) -> Self {
        Self {
            shared,
            target,
            ledger,
            decoder,
            input,
            output,
            open: None,
        }
    }

    pub(super) fn run(mut self) -> Result<(), EngineError> {
        loop {
            self.shared.check()?;
            let stage = &self.shared.progress.compressor;
            let stored = match self.input.try_recv() {
                Ok(stored) => Ok(stored),
                Err(_) => stage.wait(Cause::FullBuffer, || self.input.recv()),
            };
            let Ok(stored) = stored else { break };
            self.unit(stored)?;
        }
        self.flush()
    }

    fn unit(&mut self, stored: Stored<'a>) -> Result<(), EngineError> {
        check_padding(&stored)?;
        for (frame, _) in &stored.plan.frames {
            let found = crc32c(stored.frame(frame));
            if found != frame.crc32c {
                let fault = FormatError::FrameChecksum {
                    expected: frame.crc32c,
                    found,
                };
                return Err(stored.stripe.damage(frame.offset, fault));
            }
        }
        let plain = stored
            .plan
            .frames
            .iter()
            .all(|(frame, _)| frame.codec == Codec::None);
        if plain {
            self.pass(stored)
        } else {
            self.decode(&stored)
        }
    }

    /// Uncompressed: the buffer goes to the target as it is.
    fn pass(&mut self, stored: Stored<'a>) -> Result<(), EngineError> {
        let mut pieces = Vec::new();
        for (frame, own) in &stored.plan.frames {
            let mut position = stored.position(frame.offset);
            for piece in own {
                pieces.push((position, *piece));
                position += piece.bytes as usize;
            }
            // One piece has the frame's own checksum, which was right.
            let [only] = own.as_slice() else {
                check_pieces(&stored, frame, own, stored.frame(frame))?;
                continue;
            };
            check_crc(&stored, frame, only, frame.crc32c)?;
        }
        let bytes = pieces.iter().map(|(_, piece)| u64::from(piece.bytes)).sum();
        self.shared.progress.compressor.add_work(bytes);
        self.send(Decoded {
            buffer: stored.buffer,
            pieces,
        })
    }

    fn decode(&mut self, stored: &Stored<'a>) -> Result<(), EngineError> {
        for (frame, pieces) in &stored.plan.frames {
            if frame.codec == Codec::Zero {
                // Never written: the file was made with its length, and a hole reads as zeros.
                self.zeros(stored, frame, pieces)?;
                continue;
            }
            let raw_bytes = frame.raw_bytes as usize;
            self.make_room(raw_bytes)?;
            let Some(open) = self.open.as_mut() else {
                return Err(EngineError::Stopped);
            };
            // At a block boundary, so that the target can take it directly.
            let used = open.buffer.len().next_multiple_of(DIRECT_ALIGNMENT);
            open.buffer.set_len(used + raw_bytes);
            let into = &mut open.buffer[used..];
            self.decoder
                .decode(frame.codec, stored.frame(frame), into)
                .map_err(|source| stored.stripe.damage(frame.offset, source))?;
            check_pieces(stored, frame, pieces, into)?;
            let mut position = used;
            for piece in pieces {
                open.pieces.push((position, *piece));
                position += piece.bytes as usize;
            }
            self.shared
                .progress
                .compressor
                .add_work(u64::from(frame.raw_bytes));
        }
        Ok(())
    }

    fn zeros(
        &self,
        stored: &Stored<'a>,
        frame: &FrameEntry,
        pieces: &[PieceEntry],
    ) -> Result<(), EngineError> {
        for piece in pieces {
            // The checksum of zeros follows from their number: CRC(0^n) by combination.
            let zeros = vec![0; piece.bytes as usize];
            check_crc(stored, frame, piece, crc32c(&zeros))?;
            for (start, end) in self.ledger.enter(piece)? {
                let offset = piece.offset + start as u64;
                self.target.hole(piece.file, offset, (end - start) as u64)?;
            }
        }
        self.shared
            .progress
            .compressor
            .add_work(u64::from(frame.raw_bytes));
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
        self.output.send(decoded).map_err(|_| EngineError::Stopped)
    }
}

impl Stored<'_> {
    fn position(&self, offset: u64) -> usize {
        usize::try_from(offset - self.plan.read_offset).unwrap_or(usize::MAX)
    }

    fn frame(&self, frame: &FrameEntry) -> &[u8] {
        let start = self.position(frame.offset);
        &self.buffer[start..start + frame.stored_bytes as usize]
    }
}

/// What is between frames must be zero.
fn check_padding(stored: &Stored<'_>) -> Result<(), EngineError> {
    let mut position = stored.plan.start;
    let check = |from: u64, to: u64| {
        if is_zero(&stored.buffer[stored.position(from)..stored.position(to)]) {
            return Ok(());
        }
        let what = "padding between frames is not zero";
        let fault = FormatError::Invalid {
            structure: Structure::IndexBlock,
            what,
        };
        Err(stored.stripe.damage(from, fault))
    };
    for (frame, _) in &stored.plan.frames {
        check(position, frame.offset)?;
        position = frame.offset + u64::from(frame.stored_bytes);
    }
    check(position, stored.plan.end)
}

fn check_pieces(
    stored: &Stored<'_>,
    frame: &FrameEntry,
    pieces: &[PieceEntry],
    raw: &[u8],
) -> Result<(), EngineError> {
    let mut rest = raw;
    for piece in pieces {
        let (bytes, tail) = rest.split_at(piece.bytes as usize);
        check_crc(stored, frame, piece, crc32c(bytes))?;
        rest = tail;
    }
    Ok(())
}

fn check_crc(
    stored: &Stored<'_>,
    frame: &FrameEntry,
    piece: &PieceEntry,
    found: u32,
) -> Result<(), EngineError> {
    if piece.crc32c == found {
        return Ok(());
    }
    let fault = FormatError::FrameChecksum {
        expected: piece.crc32c,
        found,
    };
    Err(stored.stripe.damage(frame.offset, fault))
}

/// Gives decoded bytes to the target.
pub(super) struct TargetWriter<'a> {
    pub(super) shared: &'a Shared,
    pub(super) target: &'a dyn Target,
    pub(super) ledger: &'a Ledger,
    pub(super) input: Receiver<Decoded>,
}

impl TargetWriter<'_> {
    pub(super) fn run(self) -> Result<(), EngineError> {
        let stage = &self.shared.progress.writer;
        loop {
            self.shared.check()?;
            let decoded = match self.input.try_recv() {
                Ok(decoded) => Ok(decoded),
                Err(_) => stage.wait(Cause::Frames, || self.input.recv()),
            };
            let Ok(decoded) = decoded else { return Ok(()) };
            for (position, piece, length) in self.runs(&decoded)? {
                let bytes = &decoded.buffer[position..position + length];
                if self.target.keeps() {
                    stage.wait(Cause::TargetWrite, || self.write(&piece, bytes))?;
                }
                stage.add_work(length as u64);
            }
        }
    }

    /// The runs of a buffer that count, neighbours in buffer and file joined.
    fn runs(&self, decoded: &Decoded) -> Result<Vec<(usize, PieceEntry, usize)>, EngineError> {
        let mut runs: Vec<(usize, PieceEntry, usize)> = Vec::new();
        for (position, piece) in &decoded.pieces {
            for (start, end) in self.ledger.enter(piece)? {
                let offset = piece.offset + start as u64;
                let (at, length) = (position + start, end - start);
                match runs.last_mut() {
                    Some((from, last, bytes))
                        if last.file == piece.file
                            && *from + *bytes == at
                            && last.offset + *bytes as u64 == offset =>
                    {
                        *bytes += length;
                    }
                    _ => runs.push((at, PieceEntry { offset, ..*piece }, length)),
                }
            }
        }
        Ok(runs)
    }

    /// Writes a run, leaving out what is zero: the file has holes there.
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

/// Bytes up to the first block of zeros.
fn data_bytes(bytes: &[u8]) -> usize {
    let mut blocks = bytes.chunks_exact(HOLE_BYTES);
    blocks
        .position(is_zero)
        .map_or(bytes.len(), |index| index * HOLE_BYTES)
}

/// Bytes of the blocks of zeros that come first.
fn hole_bytes(bytes: &[u8]) -> usize {
    let mut blocks = bytes.chunks_exact(HOLE_BYTES);
    let whole = bytes.len() / HOLE_BYTES;
    blocks.position(|block| !is_zero(block)).unwrap_or(whole) * HOLE_BYTES
}
