//! The buffer pool: all of a run's transfer memory, taken once.
//!
//! Invariants
//! - A buffer has exactly one owner and goes back to the pool when dropped.
//! - With N buffers at most N transfers are in flight: the pool is the pipeline's back-pressure.
//! - A reader leaves `reserve` buffers alone, so that a compressor that holds a full input can
//!   always get an output: readers hold at most N - reserve, each of the `reserve` compressors
//!   holds at most one output, so one is free or on its way back from a device.
//!
//! Locking: one mutex around the list of free buffers; nothing else is taken while it is held.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

use crate::error::EngineError;

/// The buffers of a run.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Free>,
    returned: Condvar,
    count: usize,
    buffer_bytes: usize,
}

#[derive(Debug)]
struct Free {
    buffers: Vec<MmapMut>,
    closed: bool,
}

impl Pool {
    /// A pool of `count` buffers of `buffer_bytes` each, page-aligned for direct I/O.
    pub fn new(count: usize, buffer_bytes: usize) -> Result<Arc<Self>, EngineError> {
        let map = || MmapMut::map_anon(buffer_bytes);
        let buffers = (0..count).map(|_| map()).collect::<Result<Vec<_>, _>>();
        let buffers = buffers.map_err(|source| EngineError::Option {
            option: "--buffers",
            what: format!("cannot get {count} buffers of {buffer_bytes} bytes: {source}"),
        })?;
        let free = Mutex::new(Free { buffers, closed: false });
        Ok(Arc::new(Self { free, returned: Condvar::new(), count, buffer_bytes }))
    }

    /// How many buffers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of one buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// A buffer if more than `reserve` are free right now.
    pub fn try_take(self: &Arc<Self>, reserve: usize) -> Option<Buffer> {
        let mut free = self.lock();
        if free.closed || free.buffers.len() <= reserve {
            return None;
        }
        free.buffers.pop().map(|memory| self.lend(memory))
    }

    /// A buffer as soon as more than `reserve` are free; `None` once the pool is closed.
    pub fn take(self: &Arc<Self>, reserve: usize) -> Option<Buffer> {
        let mut free = self.lock();
        while !free.closed && free.buffers.len() <= reserve {
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        if free.closed {
            return None;
        }
        free.buffers.pop().map(|memory| self.lend(memory))
    }

    /// Ends every present and future wait for a buffer: the run has failed.
    pub fn close(&self) {
        self.lock().closed = true;
        self.returned.notify_all();
    }

    /// How many buffers are free right now.
    pub fn free_count(&self) -> usize {
        self.lock().buffers.len()
    }

    fn lend(self: &Arc<Self>, memory: MmapMut) -> Buffer {
        Buffer { memory: Some(memory), length: 0, pool: Arc::clone(self) }
    }

    fn give_back(&self, memory: MmapMut) {
        self.lock().buffers.push(memory);
        // All waiters: a reader that must leave the reserve alone may be the one woken, and
        // would go back to sleep while a compressor could have gone on.
        self.returned.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One transfer's memory, lent by the pool. Derefs to the bytes in use (`len`).
#[derive(Debug)]
pub struct Buffer {
    memory: Option<MmapMut>,
    length: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    /// All of the buffer, in use or not.
    pub fn space(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }

    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.pool.buffer_bytes
    }

    /// Says how many bytes are in use.
    pub fn set_len(&mut self, length: usize) {
        assert!(length <= self.capacity(), "a buffer holds no more than its capacity");
        self.length = length;
    }

    /// Extends the bytes in use with zeros to a multiple of `alignment`.
    pub fn pad(&mut self, alignment: usize) {
        let padded = self.length.next_multiple_of(alignment);
        let length = self.length;
        self.space()[length..padded].fill(0);
        self.set_len(padded);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_deref().map_or(&[], |memory| &memory[..self.length])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        &mut self.space()[..length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_lent_again() {
        let pool = Pool::new(1, 4096).unwrap();
        let buffer = pool.take(0).unwrap();
        assert!(pool.try_take(0).is_none());
        drop(buffer);
        assert!(pool.try_take(0).is_some());
    }

    #[test]
    fn the_reserve_is_left_alone() {
        let pool = Pool::new(3, 4096).unwrap();
        let _first = pool.take(2).unwrap();
        assert!(pool.try_take(2).is_none());
        let _second = pool.try_take(0).unwrap();
        assert!(pool.try_take(0).is_some());
    }

    #[test]
    fn closing_wakes_who_waits() {
        let pool = Pool::new(1, 4096).unwrap();
        let held = pool.take(0).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take(0).is_none());
            pool.close();
            assert!(waiter.join().unwrap());
        });
        drop(held);
    }

    #[test]
    fn padding_is_zero_even_in_a_used_buffer() {
        let pool = Pool::new(1, 4096).unwrap();
        let mut buffer = pool.take(0).unwrap();
        buffer.space().fill(0xff);
        buffer.set_len(513);
        buffer.pad(512);
        assert_eq!(buffer.len(), 1024);
        assert!(buffer[513..].iter().all(|byte| *byte == 0));
    }
}
