//! Work on our own mount, in a thread with a table of open files of its own.
//!
//!   this process --> threads that serve --> /dev/fuse  |  apart: reads the mount
//!
//! A process that serves a mount and also reads it can wait for itself for ever. If it is killed
//! during a read, the reading thread waits for the answer, and the kernel gives up the mount only
//! when nobody has /dev/fuse open any more. All threads share one table of open files, so the
//! waiting thread itself keeps it open. With a table of its own the reader keeps nothing, and dies
//! when the threads that serve are gone.
//!
//! Invariants
//! - The work opens every file that it uses, and the work closes it. A file of the caller has
//!   another number there, or none.

#![allow(unsafe_code, reason = "close_range has no safe wrapper")]

use std::io;

/// The first file behind standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Runs `work` in a thread that has only the three standard files open. On a kernel before 5.9,
/// and in a container that forbids it, the thread shares the files of this process. The work is
/// then done as well, but a process that is killed meanwhile may need `umount --force`.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("apart".to_owned());
        let thread = thread.spawn_scoped(scope, || {
            leave_files();
            work()
        })?;
        let done = thread.join();
        Ok(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn leave_files() {
    // SAFETY: With this flag the call gives this thread a new table without these files, or fails
    // and changes nothing. The table of all other threads, which own the files, stays as it is.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        );
    }
}
