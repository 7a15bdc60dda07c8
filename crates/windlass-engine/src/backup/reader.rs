//! The readers of a backup: they fill buffers from the source.
//!
//! A reader keeps several direct reads in flight; what is cached or small it reads at once. While
//! something is in flight it never blocks on anything else: a buffer that has arrived is worth
//! more than a buffer that might.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use windlass_media::fitted;

use super::source::{FileContent, Outcomes, Part, ReadPart, Unit};
use crate::buffer::{Buffer, Role};
use crate::error::EngineError;
use crate::rate::RateLimit;
use crate::read::{ReadDone, ReadQueue, ReadRequest};
use crate::shared::Shared;
use crate::waits::{Cause, Io};

/// Parts whose bytes are in a buffer, one after the other.
pub(crate) struct Filled {
    pub(crate) buffer: Buffer,
    pub(crate) parts: Vec<ReadPart>,
}

/// What a reader thread needs.
pub(crate) struct Reader<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) outcomes: &'a Outcomes,
    pub(crate) rate: Option<&'a RateLimit>,
    pub(crate) units: Receiver<Unit>,
    pub(crate) full: Sender<Filled>,
    pub(crate) queue: ReadQueue,
    /// How many readers there are.
    pub(crate) readers: usize,
    /// A unit that still waits for a buffer.
    pub(crate) next: Option<Unit>,
    /// Units whose reads are in flight, by token.
    pub(crate) reading: Vec<(u64, Unit)>,
    pub(crate) token: u64,
}

impl Reader<'_> {
    /// Reads until there are no more units.
    pub(crate) fn run(mut self) -> Result<(), EngineError> {
        self.shared.progress.serve_outside();
        loop {
            self.shared.check()?;
            let ended = self.fill()?;
            if self.queue.in_flight() > 0 {
                let stage = &self.shared.progress.reader;
                let done = stage.wait(Cause::SourceRead, || self.queue.wait());
                let done = done.map_err(|source| self.ring_error(source))?;
                done.map_or(Ok(()), |done| self.arrived(done))?;
            } else if ended {
                return Ok(());
            }
        }
    }

    /// Starts reads until the queue is full or something would block. Returns true at the end of
    /// the units.
    fn fill(&mut self) -> Result<bool, EngineError> {
        self.queue.set_depth(self.shared.read_depth(self.readers));
        while !self.queue.is_full() {
            self.shared.check()?;
            let may_block = self.queue.in_flight() == 0;
            if self.next.is_none() {
                match self.next_unit(may_block) {
                    Ok(unit) => self.next = Some(unit),
                    Err(TryRecvError::Empty) => return Ok(false),
                    Err(TryRecvError::Disconnected) => return Ok(true),
                }
            }
            let Some(buffer) = self.next_buffer(may_block) else {
                self.shared.check()?;
                return Ok(false);
            };
            if let Some(unit) = self.next.take() {
                self.start(unit, buffer)?;
            }
        }
        Ok(false)
    }

    fn next_unit(&self, may_block: bool) -> Result<Unit, TryRecvError> {
        match self.units.try_recv() {
            Err(TryRecvError::Empty) if may_block => {
                let stage = &self.shared.progress.reader;
                let unit = stage.wait(Cause::Jobs, || self.units.recv());
                unit.map_err(|_| TryRecvError::Disconnected)
            }
            other => other,
        }
    }

    fn next_buffer(&self, may_block: bool) -> Option<Buffer> {
        let pool = &self.shared.pool;
        let free = pool.try_take(Role::Input);
        if free.is_some() || !may_block {
            return free;
        }
        self.shared
            .progress
            .reader
            .wait(Cause::FreeBuffer, || pool.take(Role::Input))
    }

    fn start(&mut self, unit: Unit, buffer: Buffer) -> Result<(), EngineError> {
        if let Some(rate) = self.rate {
            let bytes: usize = unit.parts.iter().map(|part| part.bytes).sum();
            rate.pass(
                bytes as u64,
                &self.shared.progress.reader,
                &self.shared.cancel,
            )?;
        }
        match unit.parts.as_slice() {
            [part] if !matches!(part.file.spec.content, FileContent::Bytes(_)) => {
                let part = part.clone();
                self.start_single(unit, &part, buffer)
            }
            _ => {
                let progress = Arc::clone(&self.shared.progress);
                let begin = Instant::now();
                let read = || self.read_bundle(unit, buffer);
                let bytes = progress.reader.wait_off_core(Cause::SourceRead, read)?;
                self.count(bytes as u64, begin.elapsed(), 1);
                Ok(())
            }
        }
    }

    fn start_single(&mut self, unit: Unit, part: &Part, buffer: Buffer) -> Result<(), EngineError> {
        let stage = &self.shared.progress.reader;
        let file = match part.file.is_open() {
            true => part.file.open(),
            // Another thread may be opening it now.
            false => stage.wait_off_core(Cause::SourceRead, || part.file.open()),
        };
        let Some(file) = file? else {
            self.outcomes.vanish(part.file.spec.file);
            return self.send(Vec::new(), buffer, 0);
        };
        self.token += 1;
        let (offset, length, token) = (part.offset, part.bytes, self.token);
        self.reading.push((token, unit));
        let request = ReadRequest {
            file,
            number: part.file.spec.file.0 as usize,
            offset,
            length,
            token,
        };
        let done = self
            .queue
            .submit(&request, buffer)
            .map_err(|source| self.ring_error(source))?;
        let Some(done) = done else { return Ok(()) };
        if done.waited {
            self.shared
                .progress
                .reader
                .add_wait(Cause::SourceRead, done.elapsed);
        }
        self.arrived(done)
    }

    /// Handles the finished read of a part: reads what is missing, and passes the unit on.
    fn arrived(&mut self, done: ReadDone) -> Result<(), EngineError> {
        let index = self
            .reading
            .iter()
            .position(|(token, _)| *token == done.token);
        let index = index.ok_or(EngineError::Stopped)?;
        let (_, unit) = self.reading.swap_remove(index);
        let read = done.result.as_ref().map_or(0, |bytes| *bytes as u64);
        self.count(read, done.elapsed, self.queue.in_flight() + 1);
        let mut buffer = done.buffer;
        let mut missing = 0;
        if let [part] = unit.parts.as_slice() {
            // If a direct read fails or stops early, the rest is read through the cache. The file
            // system may not support direct reads here, and a short count may only be the edge of a
            // page.
            let filled = done.result.unwrap_or(0).min(part.bytes);
            if filled < part.bytes {
                let into = &mut buffer.space()[..part.bytes];
                let stage = &self.shared.progress.reader;
                missing = stage.wait(Cause::SourceRead, || self.complete(part, into, filled))?;
            }
            buffer.set_len(part.bytes);
        }
        let parts = unit.parts.into_iter().map(Part::into_read).collect();
        self.send(parts, buffer, missing)
    }

    /// Reads what is missing of a part. Fills it with zeros where the file ends early, if it may.
    /// Returns how many there are.
    fn complete(&self, part: &Part, into: &mut [u8], filled: usize) -> Result<usize, EngineError> {
        let offset = part.offset + filled as u64;
        let Some(file) = part.file.open()? else {
            return Err(EngineError::Stopped);
        };
        let more = file
            .read_uncached(offset, &mut into[filled..])
            .map_err(|source| part.file.error("read", offset, source))?;
        let missing = into.len() - filled - more;
        if missing > 0 {
            part.file.check_end(file, offset + more as u64)?;
            into[filled + more..].fill(0);
            self.outcomes.short(part.file.spec.file, missing as u64);
        }
        Ok(missing)
    }

    /// Counts an I/O with the source.
    fn count(&self, bytes: u64, elapsed: Duration, depth: usize) {
        let io = Io {
            cause: Cause::SourceRead,
            bytes,
            elapsed,
            depth,
        };
        let progress = &self.shared.progress;
        progress.io(&progress.reader, io);
        self.shared.grow();
    }

    /// Reads many small parts into one buffer, and returns how many bytes. A file that has vanished
    /// leaves no gap.
    fn read_bundle(&mut self, mut unit: Unit, mut buffer: Buffer) -> Result<usize, EngineError> {
        let (mut position, mut missing) = (0, 0);
        let mut read = Vec::with_capacity(unit.parts.len());
        for part in unit.parts.drain(..) {
            let into = &mut buffer.space()[position..position + part.bytes];
            if let FileContent::Bytes(bytes) = &part.file.spec.content {
                let from = fitted(part.offset);
                into.copy_from_slice(&bytes[from..from + part.bytes]);
            } else if part.file.open()?.is_some() {
                self.queue
                    .pass(part.file.spec.file.0 as usize, part.offset, part.bytes);
                missing += self.complete(&part, into, 0)?;
            } else {
                self.outcomes.vanish(part.file.spec.file);
                continue;
            }
            position += part.bytes;
            read.push(part.into_read());
        }
        buffer.set_len(position);
        self.send(read, buffer, missing)?;
        Ok(position - missing)
    }

    /// Passes parts on. So many bytes of the buffer are zeros that nobody read.
    fn send(
        &self,
        parts: Vec<ReadPart>,
        buffer: Buffer,
        missing: usize,
    ) -> Result<(), EngineError> {
        let read = buffer.len() - missing;
        self.shared.progress.reader.add_work(read as u64);
        self.full
            .send(Filled { buffer, parts })
            .map_err(|_| EngineError::Stopped)
    }

    fn ring_error(&self, source: std::io::Error) -> EngineError {
        let path = std::path::PathBuf::from("(read queue)");
        EngineError::SourceIo {
            operation: "read",
            path,
            offset: 0,
            source,
        }
    }
}
