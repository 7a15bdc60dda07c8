//! The journal: a list of records. Each change appends one.
//!
//! Invariants
//! - If a record cannot be written as a whole, it is cut off again. If that fails as well, the
//!   journal accepts no more records.
//! - After a failed sync nobody knows what is durable. The journal, and so the overlay, accepts no
//!   more changes until it is opened again.
//!
//! Locking: one mutex while records are appended. Callers also hold the lock of the thing that they
//! change, so the records of one node are in the order of its changes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::FallocateFlags;

use super::record::Record;

/// Space that is reserved behind the end, so that files can be removed when the disk is full.
const ROOM_BYTES: u64 = 256 * 1024;

/// The journal of an open overlay.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    state: Mutex<JournalTail>,
}

#[derive(Debug)]
struct JournalTail {
    end: u64,
    sequence: u64,
    /// The file has blocks allocated up to here.
    room: u64,
    dead: bool,
}

/// Where a journal's records end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    pub(crate) bytes: u64,
    pub(crate) sequence: u64,
    /// The pages of the records before this are durable. If the process was killed, it may have
    /// been writing to one of the others.
    pub(crate) synced_bytes: u64,
}

impl Journal {
    /// Continues behind `end`. What lies behind it is cut off.
    pub(crate) fn new(file: File, end: JournalEnd) -> io::Result<Self> {
        // If nothing lies there, there must be no cut: it would give back the reserved space.
        if file.metadata()?.len() > end.bytes {
            file.set_len(end.bytes)?;
        }
        let state = JournalTail {
            end: end.bytes,
            sequence: end.sequence,
            room: end.bytes,
            dead: false,
        };
        Ok(Self {
            file,
            state: Mutex::new(state),
        })
    }

    /// Appends all of the records, or none.
    pub(crate) fn append(&self, records: &[Record]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        if state.dead {
            return Err(dead());
        }
        let mut bytes = Vec::with_capacity(records.len() * 64);
        for record in records {
            record.encode(state.sequence, &mut bytes);
            state.sequence += 1;
        }
        self.make_room(&mut state, bytes.len() as u64);
        let written = self.file.write_all_at(&bytes, state.end);
        match written {
            Ok(()) => state.end += bytes.len() as u64,
            Err(_) => state.dead = self.file.set_len(state.end).is_err(),
        }
        written
    }

    /// Makes the records durable. The pages of the records before `covered_bytes` must be durable
    /// already.
    pub(crate) fn sync(&self, covered_bytes: u64, durable_bytes: u64) -> io::Result<()> {
        let synced = Record::Synced {
            covered_bytes,
            durable_bytes,
        };
        self.append(&[synced])?;
        self.sync_file()
    }

    /// Makes what was appended durable.
    pub(crate) fn sync_file(&self) -> io::Result<()> {
        let synced = self.file.sync_data();
        if synced.is_err() {
            self.kill();
        }
        synced
    }

    /// From now on the journal takes no records.
    pub(crate) fn kill(&self) {
        self.lock().dead = true;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.lock().dead
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lock().end
    }

    /// Reserves blocks behind the end. If the file system cannot do that, the journal works
    /// without.
    fn make_room(&self, state: &mut JournalTail, bytes: u64) {
        let wanted = state.end + bytes + ROOM_BYTES;
        if wanted > state.room {
            let flags = FallocateFlags::KEEP_SIZE;
            let length = wanted + 3 * ROOM_BYTES - state.room;
            if rustix::fs::fallocate(&self.file, flags, state.room, length).is_ok() {
                state.room += length;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, JournalTail> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn dead() -> io::Error {
    io::Error::other("an earlier write failed; open the overlay again")
}
