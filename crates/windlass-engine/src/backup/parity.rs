//! Parity of a set that is being written: groups of members, summed up as the members come.
//!
//!   stripe writers --members--> [open groups] --groups--> parity writers --> devices
//!                                     |                        |
//!                                     +------ their pools <----+
//!
//! Each stripe writer adds what it writes to the sums of the first open group that has nothing of
//! its stripe yet. A group is closed when every stripe has added a member. Writers advance on their
//! own: if one is further ahead than the open groups reach, the oldest of them is closed without
//! the others. So memory is bounded, and nobody waits for a slower device.
//!
//! Invariants
//! - A group has at most one member of each stripe, and its groups are closed in order.
//! - Nobody waits for a buffer while he holds a lock. Buffers of several parities are taken in the
//!   order of the parities, and each parity has a pool of its own, so everybody gets them.
//!
//! Locking: that of the list of groups, or that of one group's sums; the first may be held while
//! the second is taken, never the other way round.

mod writer;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use windlass_media::{MemberEntry, add_product, coefficient, crc32c, fitted};

use crate::buffer::{Buffer, Pool, Role};
use crate::error::EngineError;
use crate::options::{BackupOptions, GROUPS_OPEN, PARITY_BUFFERS};
use crate::shared::{Shared, panicked};
pub(crate) use writer::ParityWriter;

/// The groups of a set that is being written.
pub(crate) struct Groups {
    list: Mutex<List>,
    /// One for each parity.
    pools: Vec<Arc<Pool>>,
    stripes: usize,
}

struct List {
    /// The open groups, in order.
    open: VecDeque<Arc<Group>>,
    /// The number of the first of them.
    first: u64,
    /// For each stripe, the number of the first group that has nothing of it.
    next: Vec<u64>,
    /// One for each parity; none once all groups are closed.
    queues: Vec<Sender<Closed>>,
}

#[derive(Default)]
struct Group(Mutex<Sums>);

/// The sums of one group.
#[derive(Default)]
struct Sums {
    /// One for each parity. None when the group is closed.
    buffers: Vec<Buffer>,
    /// How many bytes of them count: those of the longest member.
    bytes: usize,
    members: Vec<MemberEntry>,
    is_closed: bool,
}

/// A closed group, for the writer of one parity.
pub(crate) struct Closed {
    buffer: Buffer,
    members: Arc<[MemberEntry]>,
}

/// The groups of a run, and the queue of each parity.
type Queued = (Arc<Groups>, Vec<Receiver<Closed>>);

/// Takes a buffer, and waits for it if there is none.
type Take<'a> = &'a mut dyn FnMut(&Arc<Pool>) -> Option<Buffer>;

impl Groups {
    /// The groups of a run to so many devices, and the queue of each parity. None without parity.
    pub(crate) fn of(
        options: &BackupOptions,
        devices: usize,
    ) -> Result<Option<Queued>, EngineError> {
        let parities = usize::from(options.parities);
        let new = || Self::new(devices - parities, parities, options.plan.transfer_bytes);
        (parities > 0).then(new).transpose()
    }

    /// Groups of so many stripes, and the queue of each parity.
    pub(crate) fn new(
        stripes: usize,
        parities: usize,
        member_bytes: usize,
    ) -> Result<Queued, EngineError> {
        let pool = |_| Pool::new(PARITY_BUFFERS, 0, member_bytes);
        let pools = (0..parities).map(pool).collect::<Result<Vec<_>, _>>()?;
        // The pools bound these queues: every message holds a buffer.
        let (queues, ends) = (0..parities).map(|_| unbounded()).unzip();
        let list = List {
            open: VecDeque::new(),
            first: 0,
            next: vec![0; stripes],
            queues,
        };
        let groups = Self {
            list: Mutex::new(list),
            pools,
            stripes,
        };
        Ok((Arc::new(groups), ends))
    }

    /// The pools. Whoever ends the run closes them.
    pub(crate) fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// Adds bytes of a stripe. Those of each stripe come in order, without a gap.
    pub(crate) fn add(
        &self,
        (stripe, mut offset): (u16, u64),
        bytes: &[u8],
        take: Take<'_>,
    ) -> Result<(), EngineError> {
        let member_bytes = self
            .pools
            .first()
            .map_or(usize::MAX, |pool| pool.buffer_bytes());
        for bytes in bytes.chunks(member_bytes) {
            let member = MemberEntry {
                stripe,
                offset,
                bytes: fitted(bytes.len()),
                crc32c: crc32c(bytes),
            };
            while !self.group_of(stripe, take)?.add(member, bytes) {}
            self.close_full();
            offset = member.end();
        }
        Ok(())
    }

    /// The group that gets the next member of a stripe. It is opened if it has to be.
    fn group_of(&self, stripe: u16, take: Take<'_>) -> Result<Arc<Group>, EngineError> {
        let mut buffers = Vec::new();
        loop {
            let mut list = self.lock();
            if let Some(group) = list.group_of(stripe) {
                return Ok(group);
            }
            while list.open.len() >= GROUPS_OPEN {
                list.close_first();
            }
            if buffers.len() == self.pools.len() {
                let group = Group::default();
                lock(&group.0).buffers = buffers;
                list.open.push_back(Arc::new(group));
                return list.group_of(stripe).ok_or(EngineError::Stopped);
            }
            drop(list);
            for pool in &self.pools {
                buffers.push(take(pool).ok_or(EngineError::Stopped)?);
            }
        }
    }

    /// Closes the first groups as long as they have a member of each stripe.
    fn close_full(&self) {
        let mut list = self.lock();
        let is_full = |group: &Arc<Group>| lock(&group.0).members.len() == self.stripes;
        while list.open.front().is_some_and(is_full) {
            list.close_first();
        }
    }

    /// Closes all groups. Nothing is added any more.
    pub(crate) fn end(&self) {
        let mut list = self.lock();
        while !list.open.is_empty() {
            list.close_first();
        }
        list.queues.clear();
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        lock(&self.list)
    }
}

impl List {
    /// The open group that gets the next member of a stripe, if there is one.
    fn group_of(&mut self, stripe: u16) -> Option<Arc<Group>> {
        let next = &mut self.next[usize::from(stripe)];
        let number = self.first.max(*next);
        let place = usize::try_from(number - self.first).ok()?;
        let group = self.open.get(place).map(Arc::clone)?;
        *next = number + 1;
        Some(group)
    }

    /// Closes the oldest group, and hands it to the writers of the parities.
    fn close_first(&mut self) {
        let Some(group) = self.open.pop_front() else {
            return;
        };
        self.first += 1;
        let mut sums = lock(&group.0);
        sums.is_closed = true;
        let mut members = std::mem::take(&mut sums.members);
        members.sort_unstable_by_key(|member| member.stripe);
        // Somebody was about to add the first member, and takes the next group instead.
        if members.is_empty() {
            return;
        }
        let members: Arc<[_]> = members.into();
        let bytes = sums.bytes;
        for (queue, mut buffer) in self.queues.iter().zip(sums.buffers.drain(..)) {
            buffer.set_len(bytes);
            let members = Arc::clone(&members);
            // A writer that has ended has stopped the run.
            drop(queue.send(Closed { buffer, members }));
        }
    }
}

impl Group {
    /// Adds a member to the sums. False if the group is closed.
    fn add(&self, member: MemberEntry, bytes: &[u8]) -> bool {
        let mut sums = lock(&self.0);
        if sums.is_closed {
            return false;
        }
        let before = sums.bytes.min(bytes.len());
        for (parity, buffer) in (0..).zip(&mut sums.buffers) {
            let factor = coefficient(parity, member.stripe);
            let (over, behind) = buffer.space()[..bytes.len()].split_at_mut(before);
            add_product(factor, &bytes[..before], over);
            if factor == 1 {
                behind.copy_from_slice(&bytes[before..]);
            } else {
                behind.fill(0);
                add_product(factor, &bytes[before..], behind);
            }
        }
        sums.bytes = sums.bytes.max(bytes.len());
        sums.members.push(member);
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parity of a run: its groups, and the threads that write them.
pub(crate) struct Parity {
    pub(crate) groups: Arc<Groups>,
    pub(crate) writers: Vec<JoinHandle<Option<ParityWriter>>>,
}

impl Parity {
    /// No thread is started yet.
    pub(crate) fn new(groups: Arc<Groups>) -> Self {
        let writers = Vec::new();
        Self { groups, writers }
    }

    /// Ends the threads, after everything was added.
    pub(crate) fn end(self, shared: &Shared) -> Result<Vec<ParityWriter>, EngineError> {
        self.groups.end();
        let ended = self.writers.into_iter();
        let ended: Vec<_> = ended
            .filter_map(|writer| match writer.join() {
                Ok(writer) => writer,
                Err(panic) => {
                    shared.fail(panicked(&*panic));
                    None
                }
            })
            .collect();
        match shared.take_error() {
            Some(error) => Err(error),
            None => Ok(ended),
        }
    }
}

/// A role for buffers of parities: nothing else is in their pools.
pub(crate) const ROLE: Role = Role::Output;

#[cfg(test)]
mod tests;
