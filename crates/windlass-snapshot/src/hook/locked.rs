//! The right to change which snapshots a server has, and the memory that they need.
//!
//! Whoever has it changes the names of files that snapshots have: it makes and removes links. It
//! tells the hook, which would take that for the work of somebody else.
//!
//! Locking: one controller at a time has it, until it is dropped.

use std::fs::{File, OpenOptions};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use windlass_image::layout::hook::{
    AREA_BYTES_AT, CONTROL_BYTES, Cause, Change, Fault, Memory, Phase, Process, SNAPSHOTS_MAX,
    Snapshot, is_durable, journal_extent, lose_all, map_extent,
};

use super::control::{Control, Patience};
use super::error::{HookError, HookIo};
use super::{durable, untouched};

const WORD_BYTES: u64 = 4;
/// What is allocated at once, in words: a page of memory.
const PAGE_WORDS: u64 = 1024;

/// The right to change which snapshots there are, and so the names of the files that they have.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    control: &'a Control,
    process: Process,
    _lock: File,
}

/// A range of words of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) at: u64,
    pub(crate) words: u64,
}

impl Control {
    /// Keeps other controllers out; `None` if one is at work. It is for what changes no name and no
    /// file of the database.
    pub(super) fn lock_if_free(&self) -> Option<File> {
        let lock = File::open(self.path()).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(lock)
    }

    /// Waits for other controllers, and keeps them out.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, HookError> {
        // A descriptor of its own, so that two threads of this process exclude each other.
        let lock = OpenOptions::new().read(true).open(self.path());
        let lock = lock.doing("open", self.path())?;
        let locked = flock(&lock, FlockOperation::LockExclusive);
        locked
            .map_err(std::io::Error::from)
            .doing("lock", self.path())?;
        // What is done now hides what was done before.
        if untouched::changed(self).is_some() {
            let (cause, errno) = (Cause::Changed, 0);
            durable::forget_all(self.data(), self.memory())?;
            let forget = |index| durable::forget(self.data(), index);
            lose_all(self.memory(), Fault { cause, errno }, forget);
        }
        let mut process = Process::new();
        let memory = self.memory();
        process.join(memory, std::process::id(), &mut Patience::default());
        process.note_change(memory, Change::Names, untouched::now());
        Ok(Locked {
            control: self,
            process,
            _lock: lock,
        })
    }
}

impl<'a> Locked<'a> {
    pub(crate) fn control(&self) -> &'a Control {
        self.control
    }

    pub(crate) fn memory(&self) -> Memory<'a> {
        self.control.memory()
    }

    /// All entries of the table that are in use.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = Snapshot<'a>> {
        let memory = self.memory();
        let entries = (0..SNAPSHOTS_MAX).filter_map(move |index| Snapshot::at(memory, index));
        entries.filter(|snapshot| snapshot.state() != Phase::Free)
    }

    /// Allocates words of zeros that nobody uses.
    pub(crate) fn allocate(&self, words: u64, besides: &[Extent]) -> Result<Extent, HookError> {
        let used = self.snapshots().flat_map(|snapshot| {
            let extents = snapshot.extents();
            extents.map(|(at, words)| Extent { at, words })
        });
        let journal = journal_extent(self.memory()).map(|(at, words)| Extent { at, words });
        let map = map_extent(self.memory()).map(|(at, words)| Extent { at, words });
        let used = used.chain(journal).chain(map);
        let mut used: Vec<_> = used.chain(besides.iter().copied()).collect();
        used.retain(|extent| extent.words > 0);
        used.sort_unstable_by_key(|extent| extent.at);
        let words = words.next_multiple_of(PAGE_WORDS);
        let mut at = AREA_BYTES_AT / WORD_BYTES;
        for extent in used {
            if extent.at >= at + words {
                break;
            }
            at = at.max((extent.at + extent.words).next_multiple_of(PAGE_WORDS));
        }
        let bytes = words * WORD_BYTES;
        let full = |source| HookError::Memory {
            path: self.control.path().to_owned(),
            bytes,
            source,
        };
        if (at + words) * WORD_BYTES > CONTROL_BYTES {
            return Err(full(std::io::ErrorKind::StorageFull.into()));
        }
        let extent = Extent { at, words };
        self.free(extent)?;
        let file = &self.control.file;
        let allocated = fallocate(file, FallocateFlags::empty(), at * WORD_BYTES, bytes);
        match allocated {
            Ok(()) => Ok(extent),
            Err(errno) => {
                self.free(extent)?;
                Err(full(errno.into()))
            }
        }
    }

    /// Gives words back to the system. They read as zeros from then on.
    pub(crate) fn free(&self, extent: Extent) -> Result<(), HookError> {
        if extent.words == 0 {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (at, bytes) = (extent.at * WORD_BYTES, extent.words * WORD_BYTES);
        let freed = fallocate(&self.control.file, hole, at, bytes);
        let freed = freed.map_err(std::io::Error::from);
        freed.doing("free memory of", self.control.path())
    }
}

/// Tells that everything is done that this process changed.
pub(super) fn note_done(control: &Control, process: &mut Process) {
    let memory = control.memory();
    let has_changed = process.is_at_change();
    process.note_done(memory, untouched::now());
    process.quit(memory);
    if has_changed && is_durable(memory) && !control.serves() {
        // If that is impossible, the next start of the system takes them for lost.
        durable::move_stamp(control.data()).unwrap_or_default();
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        note_done(self.control, &mut self.process);
    }
}
