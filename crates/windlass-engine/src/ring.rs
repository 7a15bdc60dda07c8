//! io_uring with owned buffers: several reads or writes of one thread in flight at once.
//!
//! Invariants
//! - A buffer handed to the kernel belongs to the ring until its completion was reaped; dropping
//!   the ring waits for all of them, so the kernel never writes into memory lent to someone else.
//! - At most `depth` operations are in flight.

#![allow(
    unsafe_code,
    reason = "submission entries carry raw pointers to buffers the ring owns"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use windlass_media::fitted;

use crate::buffer::Buffer;
use crate::waits::{counted_by_caller, may_block};

/// An io_uring of one thread.
pub struct Ring {
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    in_flight: usize,
}

struct Slot {
    buffer: Buffer,
    token: u64,
    begin: Instant,
    /// Keeps the descriptor open until the kernel has finished with it.
    _file: Arc<File>,
}

/// One finished operation.
#[derive(Debug)]
pub struct RingDone {
    /// The buffer, which the kernel has given back.
    pub buffer: Buffer,
    /// The token that the caller gave with it.
    pub token: u64,
    /// Bytes read or written.
    pub result: io::Result<usize>,
    /// From submission to completion.
    pub elapsed: Duration,
}

impl Ring {
    /// Creates a ring. It is an error if the kernel has none or forbids it (containers often do).
    pub fn new(depth: usize) -> io::Result<Self> {
        let entries = fitted(depth.next_power_of_two());
        let ring = IoUring::new(entries)?;
        Ok(Self {
            ring,
            slots: (0..depth).map(|_| None).collect(),
            in_flight: 0,
        })
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// True when no more operations can be started.
    pub fn is_full(&self) -> bool {
        self.in_flight == self.slots.len()
    }

    /// Starts to read `length` bytes at `offset` to `buffer[at..]`.
    pub fn read(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        mut buffer: Buffer,
        (at, length): (usize, usize),
        token: u64,
    ) -> io::Result<()> {
        let space = &mut buffer.space()[at..at + length];
        let bytes = fitted(space.len());
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), space.as_mut_ptr(), bytes);
        self.submit(entry.offset(offset).build(), buffer, token, file)
    }

    /// Starts to write the used bytes of `buffer` at `offset`.
    pub fn write(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        buffer: Buffer,
        token: u64,
    ) -> io::Result<()> {
        let bytes = fitted(buffer.len());
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), buffer.as_ptr(), bytes);
        self.submit(entry.offset(offset).build(), buffer, token, file)
    }

    fn submit(
        &mut self,
        entry: io_uring::squeue::Entry,
        buffer: Buffer,
        token: u64,
        file: &Arc<File>,
    ) -> io::Result<()> {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.ok_or_else(|| io::Error::other("the ring is full"))?;
        let file = Arc::clone(file);
        let slot = Slot {
            buffer,
            token,
            begin: Instant::now(),
            _file: file,
        };
        self.slots[index] = Some(slot);
        let entry = entry.user_data(index as u64);
        // SAFETY: the entry points into the memory of the buffer that is now in `slots[index]`.
        // That memory does not move when the `Buffer` does, and it stays until the completion with
        // this index was reaped (`reap`, `drop`). The same slot keeps the descriptor open.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.slots[index] = None;
            return Err(io::Error::other("the submission queue is full"));
        }
        self.in_flight += 1;
        // The entry is in the queue, so its slot must stay taken, whatever `submit` returns. If a
        // submit was interrupted, the next one submits the entry.
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for one operation to finish; `None` when nothing is in flight.
    pub fn wait(&mut self) -> io::Result<Option<RingDone>> {
        may_block();
        while self.in_flight > 0 {
            if let Some(done) = self.reap() {
                return Ok(Some(done));
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns one finished operation, if there is any.
    pub fn reap(&mut self) -> Option<RingDone> {
        let entry = self.ring.completion().next()?;
        let index: usize = fitted(entry.user_data());
        let slot = self.slots.get_mut(index)?.take()?;
        self.in_flight -= 1;
        let result = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        let (buffer, token) = (slot.buffer, slot.token);
        Some(RingDone {
            buffer,
            token,
            result,
            elapsed: slot.begin.elapsed(),
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            // A stage drops its ring when it has ended or failed, outside of its waits. That time
            // counts for nobody.
            match counted_by_caller(|| self.wait()) {
                Ok(_) => {}
                // The kernel may still write to these buffers. So they are leaked, and never lent
                // again.
                Err(_) => {
                    self.slots
                        .iter_mut()
                        .filter_map(Option::take)
                        .for_each(std::mem::forget);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::buffer::{Pool, Role};
    use crate::waits::Stage;

    /// A stage that fails drops its ring. Nobody waits for it then, so no wait counts the time.
    #[test]
    fn a_stage_may_drop_a_ring_while_a_read_is_in_flight() {
        let Ok(mut ring) = Ring::new(1) else {
            return println!("no io_uring here");
        };
        let pool = Pool::new(2, 1, 64 * 1024).unwrap();
        let buffer = pool.try_take(Role::Input).unwrap();
        let (from, mut to) = io::pipe().unwrap();
        let from = Arc::new(File::from(std::os::fd::OwnedFd::from(from)));
        Stage::default().thread(|| {
            ring.read(&from, 0, buffer, (0, 4096), 1).unwrap();
            to.write_all(b"late").unwrap();
            assert_eq!(ring.in_flight(), 1);
            drop(ring);
        });
        assert_eq!(Arc::strong_count(&from), 1);
        assert!(pool.try_take(Role::Input).is_some());
    }
}
