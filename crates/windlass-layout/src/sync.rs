//! The atomics of the hook's protocol, and the sizes of its tables. Here they are those of the core
//! library and of a large server. `tests/schedules` of
//! windlass-interpose has a module of the same name with shuttle's, and compiles the protocol with
//! it.

pub(crate) use core::sync::atomic::{AtomicU32, Ordering};

/// How many processes of a server have a place of their own.
pub(crate) const PROCESSES: u32 = 4096;
/// How many reads of snapshots can be under way at the same time.
pub(crate) const READERS: usize = 256;
/// How many locks the blocks share.
pub(crate) const LOCKS: usize = 4096;
/// The words before the table of processes.
pub(crate) const HEADER_WORDS: usize = 2048;
/// How many snapshots there can be.
pub(crate) const SNAPSHOTS: u32 = 64;
/// Indexes and maps begin at a multiple of so many words: a page of memory.
pub(crate) const AREA_ALIGNED: usize = 1024;
