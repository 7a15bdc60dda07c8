//! The buffer pool: all of a run's transfer memory, taken once.
//!
//! Invariants
//! - A buffer has exactly one owner and goes back to the pool when dropped.
//! - With N buffers at most N transfers are in flight: the pool is the pipeline's back-pressure.
//! - Of N buffers at most N - C are inputs, where C compressors need outputs beside their inputs,
//!   and at most half of that.
//!   So whoever waits for a buffer gets one: if none is free, at most N - C are inputs and at most
//!   C - 1 are outputs of other compressors (or C, and one input less, for a reader), so at least
//!   one is with a device and on its way back.
//!
//! Locking: one mutex around the list of free buffers; nothing else is taken while it is held.
//! What waits is tried under many schedules in `tests/schedules`, which compiles this file anew.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

use memmap2::MmapMut;

use crate::error::EngineError;
use crate::setting::{Setting, SettingFault};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The most reads that one stream keeps in flight.
const READ_DEPTH_MAX: usize = 32;

/// How many of `buffers` may be inputs at once, when compressors hold `outputs` of them.
///
/// Readers are usually the fastest stage. If they could have all other buffers, they would fill
/// them with inputs that wait, and a compressor would get an output only when a device returns a
/// buffer. With half of the others, compressors and devices are busy at the same time. Without
/// this, a compressed backup lost a fifth of its time.
pub fn inputs_max(buffers: usize, outputs: usize) -> usize {
    let rest = buffers.saturating_sub(outputs);
    let most = if outputs == 0 { rest } else { rest.div_ceil(2) };
    most.max(1)
}

/// How many reads each of so many streams keeps in flight, when so many buffers may be inputs.
pub fn read_depth(inputs_max: usize, streams: usize) -> usize {
    inputs_max.div_ceil(streams.max(1)).clamp(1, READ_DEPTH_MAX)
}

/// The buffers of a run.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Free>,
    returned: Condvar,
    count: usize,
    inputs_max: usize,
    buffer_bytes: usize,
}

#[derive(Debug)]
struct Free {
    buffers: Vec<MmapMut>,
    inputs: usize,
    closed: bool,
}

/// Who has the buffers at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Occupancy {
    /// In the pool.
    pub free: usize,
    /// Read into, waiting for a compressor, or (uncompressed) being written.
    pub inputs: usize,
    /// Compressed or decompressed into, or being written.
    pub outputs: usize,
}

/// What a buffer is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To be read into.
    Input,
    /// To be compressed or decompressed into.
    Output,
}

impl Pool {
    /// A pool of `count` buffers of `buffer_bytes` each, page-aligned for direct I/O. `outputs`
    /// buffers are never given out as inputs: one for each thread that holds an output while it
    /// waits.
    pub fn new(
        count: usize,
        outputs: usize,
        buffer_bytes: usize,
    ) -> Result<Arc<Self>, EngineError> {
        let map = || MmapMut::map_anon(buffer_bytes);
        let buffers = (0..count).map(|_| map()).collect::<Result<Vec<_>, _>>();
        let buffers = buffers.map_err(|source| EngineError::Setting {
            setting: Setting::Buffers,
            fault: SettingFault::Memory {
                count: count as u64,
                buffer_bytes,
                source,
            },
        })?;
        let free = Mutex::new(Free {
            buffers,
            inputs: 0,
            closed: false,
        });
        let inputs_max = inputs_max(count, outputs);
        let returned = Condvar::new();
        Ok(Arc::new(Self {
            free,
            returned,
            count,
            inputs_max,
            buffer_bytes,
        }))
    }

    /// How many buffers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of one buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// How many buffers may be inputs at once.
    pub fn inputs_max(&self) -> usize {
        self.inputs_max
    }

    /// Who has the buffers right now.
    pub fn occupancy(&self) -> Occupancy {
        let free = self.lock();
        let (unused, inputs) = (free.buffers.len(), free.inputs);
        Occupancy {
            free: unused,
            inputs,
            outputs: self.count - unused - inputs,
        }
    }

    /// Takes a buffer, if there is one for this role right now.
    pub fn try_take(self: &Arc<Self>, role: Role) -> Option<Buffer> {
        self.lend(&mut self.lock(), role)
    }

    /// Takes a buffer as soon as there is one for this role; `None` once the pool is closed.
    pub fn take(self: &Arc<Self>, role: Role) -> Option<Buffer> {
        let mut free = self.lock();
        loop {
            if free.closed {
                return None;
            }
            if let Some(buffer) = self.lend(&mut free, role) {
                return Some(buffer);
            }
            free = self
                .returned
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends every present and future wait for a buffer, because the run has failed.
    pub fn close(&self) {
        self.lock().closed = true;
        self.returned.notify_all();
    }

    fn lend(self: &Arc<Self>, free: &mut Free, role: Role) -> Option<Buffer> {
        if free.closed || (role == Role::Input && free.inputs == self.inputs_max) {
            return None;
        }
        let memory = free.buffers.pop()?;
        free.inputs += usize::from(role == Role::Input);
        Some(Buffer {
            memory: Some(memory),
            length: 0,
            role,
            pool: Arc::clone(self),
        })
    }

    fn give_back(&self, memory: MmapMut, role: Role) {
        let mut free = self.lock();
        free.buffers.push(memory);
        free.inputs -= usize::from(role == Role::Input);
        drop(free);
        // Wakes all waiters. A single one might be a reader that may not have this buffer. It would
        // go back to sleep, although a compressor could have gone on.
        self.returned.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of one transfer, lent by the pool. It derefs to the bytes in use (`len`).
#[derive(Debug)]
pub struct Buffer {
    memory: Option<MmapMut>,
    length: usize,
    role: Role,
    pool: Arc<Pool>,
}

impl Buffer {
    /// The whole buffer, in use or not.
    pub fn space(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }

    /// How many bytes the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.pool.buffer_bytes
    }

    /// Sets how many bytes are in use.
    pub fn set_len(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "a buffer holds no more than its capacity"
        );
        self.length = length;
    }

    /// Appends zeros to the bytes in use, up to a multiple of `alignment`.
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
        self.memory
            .as_deref()
            .map_or(&[], |memory| &memory[..self.length])
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
            self.pool.give_back(memory, self.role);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{each_schedule, thread};

    #[test]
    fn a_dropped_buffer_is_lent_again() {
        each_schedule(|| {
            let pool = Pool::new(1, 0, 4096).unwrap();
            let buffer = pool.take(Role::Input).unwrap();
            assert!(pool.try_take(Role::Output).is_none());
            drop(buffer);
            assert!(pool.try_take(Role::Input).is_some());
        });
    }

    #[test]
    fn inputs_leave_room_for_outputs_held_or_not() {
        each_schedule(|| {
            let pool = Pool::new(4, 2, 4096).unwrap();
            let held: Vec<_> = (0..2).map(|_| pool.take(Role::Output).unwrap()).collect();
            let first = pool.try_take(Role::Input).unwrap();
            let (free, inputs, outputs) = (1, 1, 2);
            let expected = Occupancy {
                free,
                inputs,
                outputs,
            };
            assert_eq!(pool.occupancy(), expected);
            assert!(pool.try_take(Role::Input).is_none());
            let third = pool.try_take(Role::Output).unwrap();
            drop((held, first));
            assert!(pool.try_take(Role::Input).is_some());
            drop(third);
        });
    }

    #[test]
    fn closing_wakes_who_waits() {
        each_schedule(|| {
            let pool = Pool::new(1, 0, 4096).unwrap();
            let held = pool.take(Role::Input).unwrap();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| pool.take(Role::Output).is_none());
                pool.close();
                assert!(waiter.join().unwrap());
            });
            drop(held);
        });
    }

    #[test]
    fn padding_is_zero_even_in_a_used_buffer() {
        each_schedule(|| {
            let pool = Pool::new(1, 0, 4096).unwrap();
            let mut buffer = pool.take(Role::Output).unwrap();
            buffer.space().fill(0xff);
            buffer.set_len(513);
            buffer.pad(512);
            assert_eq!(buffer.len(), 1024);
            assert!(buffer[513..].iter().all(|byte| *byte == 0));
        });
    }
}
