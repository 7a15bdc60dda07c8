//! The buffer pool: all of a run's transfer memory.
//!
//! Invariants
//! - A buffer has exactly one owner and goes back to the pool when dropped.
//! - With N buffers at most N transfers are in flight: the pool is the pipeline's back-pressure.
//! - N never exceeds the bound that the pool was made with. `growth` changes it in a run.
//! - Of N buffers at most N - C are inputs, where C compressors need outputs beside their inputs,
//!   and at most half of that.
//!   So whoever waits for a buffer gets one: if none is free, at most N - C are inputs and at most
//!   C - 1 are outputs of other compressors (or C, and one input less, for a reader), so at least
//!   one is with a device and on its way back.
//! - This holds for the buffers that exist. So a pool that shrinks gives up a buffer that comes
//!   back only if the inputs that are out are as few as the smaller number allows.
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
    /// Never given out as inputs.
    outputs: usize,
    buffer_bytes: usize,
    most: usize,
}

#[derive(Debug)]
struct Free {
    buffers: Vec<MmapMut>,
    inputs: usize,
    /// How many buffers there should be.
    wanted: usize,
    /// How many there are. They are more than wanted for a while after the pool was made smaller.
    count: usize,
    /// The most that there were.
    peak: usize,
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
        Self::growing(count, count, outputs, buffer_bytes)
    }

    /// The same, with a pool that [`Pool::resize`] may give up to `most` buffers.
    pub fn growing(
        count: usize,
        most: usize,
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
            wanted: count,
            count,
            peak: count,
            closed: false,
        });
        let returned = Condvar::new();
        Ok(Arc::new(Self {
            free,
            returned,
            outputs,
            buffer_bytes,
            most: most.max(count),
        }))
    }

    /// How many buffers there are.
    pub fn count(&self) -> usize {
        self.lock().count
    }

    /// The most buffers that there were.
    pub fn peak(&self) -> usize {
        self.lock().peak
    }

    /// The most buffers that there may be.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Makes the pool larger or smaller, and returns how many buffers it wants now. A larger pool
    /// has its buffers at once, or fewer if there is no memory. A smaller one gives up buffers that
    /// are free, and then those that come back.
    pub fn resize(&self, wanted: usize) -> usize {
        let mut free = self.lock();
        free.wanted = wanted.clamp(self.outputs + 1, self.most);
        while free.count < free.wanted {
            let Ok(memory) = MmapMut::map_anon(self.buffer_bytes) else {
                free.wanted = free.count;
                break;
            };
            free.buffers.push(memory);
            free.count += 1;
        }
        free.peak = free.peak.max(free.count);
        while !free.buffers.is_empty() && self.gives_up(&free) {
            free.buffers.pop();
            free.count -= 1;
        }
        let wanted = free.wanted;
        drop(free);
        self.returned.notify_all();
        wanted
    }

    /// Whether a buffer that is free is one too many, and everybody still gets one without it.
    fn gives_up(&self, free: &Free) -> bool {
        free.count > free.wanted && free.inputs <= inputs_max(free.count - 1, self.outputs)
    }

    /// Bytes of one buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// How many buffers may be inputs at once.
    pub fn inputs_max(&self) -> usize {
        inputs_max(self.lock().wanted, self.outputs)
    }

    /// Who has the buffers right now.
    pub fn occupancy(&self) -> Occupancy {
        let free = self.lock();
        let (unused, inputs) = (free.buffers.len(), free.inputs);
        Occupancy {
            free: unused,
            inputs,
            outputs: free.count - unused - inputs,
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
        let inputs_full = || free.inputs >= inputs_max(free.wanted, self.outputs);
        if free.closed || (role == Role::Input && inputs_full()) {
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
        free.inputs -= usize::from(role == Role::Input);
        if self.gives_up(&free) {
            free.count -= 1;
        } else {
            free.buffers.push(memory);
        }
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
    fn a_pool_grows_up_to_its_bound_and_shrinks_as_buffers_come_back() {
        each_schedule(|| {
            let pool = Pool::growing(4, 8, 2, 4096).unwrap();
            assert_eq!((pool.inputs_max(), pool.most()), (1, 8));
            assert_eq!(pool.resize(100), 8);
            assert_eq!((pool.count(), pool.inputs_max()), (8, 3));
            let inputs: Vec<_> = (0..3).map(|_| pool.take(Role::Input).unwrap()).collect();
            let outputs: Vec<_> = (0..5).map(|_| pool.take(Role::Output).unwrap()).collect();
            assert_eq!(pool.resize(4), 4);
            // Eight are out. If all five outputs were given up as they come back, only inputs would
            // be left, and nobody could compress them.
            drop(outputs);
            assert_eq!(pool.count(), 7, "with three inputs, seven are needed");
            assert!(pool.try_take(Role::Input).is_none());
            let output = pool.try_take(Role::Output).unwrap();
            drop(inputs);
            drop(output);
            assert_eq!((pool.count(), pool.peak()), (4, 8));
            let free = pool.occupancy().free;
            assert_eq!(free, 4, "each is back, once");
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
