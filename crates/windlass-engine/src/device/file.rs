//! A stripe in a file: written directly, several transfers in flight, preallocated.
//!
//! Direct writes go through io_uring where the kernel lends a ring, one at a time where not; a
//! file system without direct I/O gets buffered ones. The file is preallocated in steps, because
//! ext4 and XFS take an exclusive lock for every direct write that extends a file: without
//! preallocation a queue depth of four is a queue depth of one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use rustix::fs::FallocateFlags;

use super::{Device, WriteDone};
use crate::bounded::open_regular;
use crate::buffer::Buffer;
use crate::durable::{self, Locked, NameError};
use crate::error::{DeviceOperation, EngineError};
use crate::free::free_bytes_beside;
use crate::outputs::{self, OutputKind};
use crate::ring::Ring;
use crate::stripe_name::partial_path;
use crate::waits::may_block;

const PREALLOCATE_BYTES_MIN: u64 = 64 * 1024 * 1024;
const PREALLOCATE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// A step takes at most this part of what is free: the database may be on the same disk.
const PREALLOCATE_SHARE: u64 = 8;
const SCRATCH_BYTES: usize = 64 * 1024;
/// How long to leave a new file to the clean-up that looks at it.
const CLEAN_UP_PAUSE: Duration = Duration::from_millis(1);

/// How a file device writes.
#[derive(Clone, Copy, Debug)]
pub struct FileDeviceOptions {
    /// Block size: what offsets and lengths are multiples of, in bytes.
    pub alignment: u32,
    /// How many writes may be in flight.
    pub depth: usize,
    /// Write past the page cache, where the file system can do that.
    pub direct: bool,
    /// Use io_uring where the kernel has it.
    pub ring: bool,
    /// Replace a stripe that has the name already, once the new set is sealed.
    pub overwrite: bool,
    /// What has the name now is not looked at: the caller moves it away before the device gets it.
    pub moved_away: bool,
    /// So many bytes of the file system stay free, or the write fails: whatever else is on this
    /// disk goes on.
    pub leave_free: u64,
}

impl Default for FileDeviceOptions {
    fn default() -> Self {
        Self {
            alignment: 4096,
            depth: 4,
            direct: true,
            ring: true,
            overwrite: false,
            moved_away: false,
            leave_free: 0,
        }
    }
}

/// A stripe file being written.
pub struct FileDevice {
    location: String,
    path: PathBuf,
    partial: PathBuf,
    // It waits for writes in flight, so it is dropped before the lock ends.
    ring: Option<Ring>,
    file: Locked<Arc<File>>,
    options: FileDeviceOptions,
    scratch: MmapMut,
    allocated: u64,
    preallocate: bool,
    published: bool,
}

impl FileDevice {
    /// Creates `path`.partial and locks it. Refuses a `path` that exists, unless it is a stripe
    /// that may be replaced. Refuses a `path`.partial that is neither a stripe nor empty.
    pub fn create(path: &Path, options: FileDeviceOptions) -> Result<Self, EngineError> {
        let location = path.to_string_lossy().into_owned();
        let fault = |source| device_error(DeviceOperation::Create, &location, 0, source);
        if path.symlink_metadata().is_ok() {
            if !options.overwrite {
                return Err(fault(io::ErrorKind::AlreadyExists.into()));
            }
            if !options.moved_away {
                check_is_stripe(path)?;
            }
        }
        let partial = partial_path(path);
        if partial.symlink_metadata().is_ok() && !holds_nothing(&partial).map_err(fault)? {
            check_is_stripe(&partial)?;
        }
        let file = create_locked(&partial, options.direct).map_err(fault)?;
        file.set_len(0).map_err(fault)?;
        let scratch = MmapMut::map_anon(SCRATCH_BYTES).map_err(fault)?;
        let ring = if options.ring {
            Ring::new(options.depth).ok()
        } else {
            None
        };
        Ok(Self {
            location: location.clone(),
            path: path.to_owned(),
            partial,
            file,
            ring,
            options,
            scratch,
            allocated: 0,
            preallocate: true,
            published: false,
        })
    }

    /// Refuses to go on if the file was moved away or replaced: what has its name now is not what
    /// was written.
    fn check_own(&self) -> Result<(), EngineError> {
        match durable::is_file_at(&self.file, &self.partial) {
            Ok(true) => Ok(()),
            _ => Err(EngineError::StripeTaken {
                path: self.partial.clone(),
            }),
        }
    }

    fn error(&self, operation: DeviceOperation, offset: u64, source: io::Error) -> EngineError {
        device_error(operation, &self.location, offset, source)
    }

    /// Allocates the file up to `end`, in steps that grow with the file. Fails if too little would
    /// stay free.
    fn allocate(&mut self, end: u64) -> Result<(), EngineError> {
        let leave = self.options.leave_free;
        if end <= self.allocated || !self.preallocate && leave == 0 {
            return Ok(());
        }
        let from = self.allocated;
        // If nobody can tell, there is enough.
        let free = free_bytes_beside(&*self.file).unwrap_or(u64::MAX);
        let room = free.saturating_sub(leave);
        if leave > 0 && end - from > room {
            let left = format!("{free} bytes are free, and {leave} must stay so");
            let source = io::Error::new(io::ErrorKind::StorageFull, left);
            return Err(self.error(DeviceOperation::Write, from, source));
        }
        let step = from.clamp(PREALLOCATE_BYTES_MIN, PREALLOCATE_BYTES_MAX);
        let share = room / PREALLOCATE_SHARE;
        let step = step.min(share - share % u64::from(self.options.alignment));
        let target = end.max(from + step);
        self.allocated = if self.preallocate { target } else { end };
        if !self.preallocate {
            return Ok(());
        }
        let length = target - from;
        let flags = FallocateFlags::empty();
        if rustix::fs::fallocate(&*self.file, flags, from, length).is_err() {
            // There is no room for the step, or the file system has no fallocate. If it matters, a
            // write will fail and report it. ext4 keeps what it could allocate, so that goes back.
            self.preallocate = false;
            self.allocated = end;
            let cut = self.file.set_len(from);
            cut.map_err(|source| self.error(DeviceOperation::Write, from, source))?;
        }
        Ok(())
    }

    fn finish(&self, done: crate::ring::RingDone) -> Result<WriteDone, EngineError> {
        let offset = done.token;
        let written = done
            .result
            .map_err(|source| self.error(DeviceOperation::Write, offset, source))?;
        if written < done.buffer.len() {
            // A short direct write ends at a block boundary. The rest is written through the page
            // cache.
            let rest = &done.buffer[written..];
            let write = self.file.write_all_at(rest, offset + written as u64);
            write.map_err(|source| self.error(DeviceOperation::Write, offset, source))?;
        }
        Ok(WriteDone {
            bytes: done.buffer.len() as u64,
            elapsed: done.elapsed,
        })
    }
}

/// Whether a file begins as a stripe does. The stripe need not be complete.
pub(crate) fn is_stripe(path: &Path) -> io::Result<bool> {
    Ok((OutputKind::STRIPE.is_own)(&outputs::beginning(path)?))
}

/// Refuses a file that is not a stripe: a stripe never replaces anything else.
fn check_is_stripe(path: &Path) -> Result<(), EngineError> {
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    if is_file && is_stripe(path).unwrap_or(false) {
        return Ok(());
    }
    Err(EngineError::OutputForeign {
        path: path.to_owned(),
        noun: OutputKind::STRIPE.noun,
    })
}

/// Whether a file contains only zeros. A kill or a power failure leaves such a stripe when it comes
/// before the header is written.
pub(crate) fn holds_nothing(path: &Path) -> io::Result<bool> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; SCRATCH_BYTES];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut bytes, offset)?;
        if read == 0 || !windlass_media::is_zero(&bytes[..read]) {
            return Ok(read == 0);
        }
        offset += read as u64;
    }
}

/// Creates a file, or opens the one that is there, and locks it. The lock shows that this run is
/// alive, so the clean-up of another run leaves the file alone.
fn create_locked(partial: &Path, direct: bool) -> io::Result<Locked<Arc<File>>> {
    let mut was_made = false;
    loop {
        let (file, is_new) = open_partial(partial, direct)?;
        was_made |= is_new;
        match Locked::take(Arc::new(file)) {
            Ok(file) if durable::is_file_at(&file, partial).unwrap_or(false) => return Ok(file),
            // A clean-up removed it before it was locked.
            Ok(_) => {}
            // A clean-up looks at what this run has made just now.
            Err(error)
                if was_made
                    && error.kind() == io::ErrorKind::WouldBlock
                    && holds_nothing(partial).unwrap_or(true) =>
            {
                std::thread::sleep(CLEAN_UP_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Opens a file, and says whether it is new.
fn open_partial(path: &Path, direct: bool) -> io::Result<(File, bool)> {
    let open = |flags, is_new| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(is_new)
            .mode(0o600);
        let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        options.custom_flags(flags).open(path)
    };
    let either = |flags| {
        loop {
            match open(flags, true) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return opened.map(|file| (file, true)),
            }
            match open(flags, false) {
                // A clean-up removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened.map(|file| (file, false)),
            }
        }
    };
    match either(if direct { libc::O_DIRECT } else { 0 }) {
        // This file system has no direct I/O (older tmpfs, some network file systems).
        Err(error) if direct && error.raw_os_error() == Some(libc::EINVAL) => {
            // Some leave the file behind that they refused to open.
            either(0).map(|(file, _)| (file, true))
        }
        other => other,
    }
}

fn device_error(
    operation: DeviceOperation,
    location: &str,
    offset: u64,
    source: io::Error,
) -> EngineError {
    EngineError::DeviceIo {
        operation,
        device: location.to_owned(),
        offset,
        source,
    }
}

impl Device for FileDevice {
    fn location(&self) -> &str {
        &self.location
    }

    fn alignment(&self) -> u32 {
        self.options.alignment
    }

    fn depth(&self) -> usize {
        if self.ring.is_some() {
            self.options.depth
        } else {
            1
        }
    }

    fn in_flight(&self) -> usize {
        self.ring.as_ref().map_or(0, Ring::in_flight)
    }

    fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError> {
        may_block();
        self.allocate(offset + buffer.len() as u64)?;
        let Some(ring) = self.ring.as_mut() else {
            let begin = Instant::now();
            let write = self.file.write_all_at(&buffer, offset);
            write.map_err(|source| self.error(DeviceOperation::Write, offset, source))?;
            let bytes = buffer.len() as u64;
            return Ok(Some(WriteDone {
                bytes,
                elapsed: begin.elapsed(),
            }));
        };
        let finished = if ring.is_full() {
            ring.wait()
        } else {
            Ok(ring.reap())
        };
        let submitted = ring.write(&self.file, offset, buffer, offset);
        submitted.map_err(|source| self.error(DeviceOperation::Write, offset, source))?;
        let finished =
            finished.map_err(|source| self.error(DeviceOperation::Write, offset, source))?;
        finished.map(|done| self.finish(done)).transpose()
    }

    fn reap(&mut self) -> Result<Option<WriteDone>, EngineError> {
        let Some(ring) = self.ring.as_mut() else {
            return Ok(None);
        };
        let done = ring
            .wait()
            .map_err(|source| self.error(DeviceOperation::Write, 0, source))?;
        done.map(|done| self.finish(done)).transpose()
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        may_block();
        self.allocate(offset + bytes.len() as u64)?;
        let mut at = offset;
        // The bytes go through memory that is aligned for direct writes. Each chunk is a multiple
        // of the block.
        for chunk in bytes.chunks(SCRATCH_BYTES) {
            self.scratch[..chunk.len()].copy_from_slice(chunk);
            let write = self.file.write_all_at(&self.scratch[..chunk.len()], at);
            write.map_err(|source| self.error(DeviceOperation::Write, at, source))?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> Result<(), EngineError> {
        may_block();
        self.preallocate = false;
        // Before the seal: a stripe that nobody can find must not become part of a set.
        self.check_own()?;
        self.file
            .set_len(bytes)
            .map_err(|source| self.error(DeviceOperation::Truncate, bytes, source))
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        may_block();
        self.file
            .sync_all()
            .map_err(|source| self.error(DeviceOperation::Sync, 0, source))
    }

    fn publish(&mut self) -> Result<(), EngineError> {
        may_block();
        // The set is sealed. Whatever happens now, this stripe belongs to it and must stay.
        self.published = true;
        self.check_own()?;
        let (file, partial, path) = (&self.file, &self.partial, &self.path);
        let named = match durable::name_new(file, partial, path) {
            Err(NameError::Taken) if self.options.overwrite => {
                // It was looked at when the run began. Another file may have the name now.
                check_is_stripe(path)?;
                durable::name_over(file, partial, path)
            }
            named => named,
        };
        let operation = match &named {
            Err(NameError::Unfinished(_)) => DeviceOperation::Settle,
            _ => DeviceOperation::Publish,
        };
        named.map_err(|source| self.error(operation, 0, source.into()))
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        if !self.published && self.check_own().is_ok() {
            // If the file cannot be removed now, the clean-up of the next run removes it.
            drop(std::fs::remove_file(&self.partial));
        }
    }
}
