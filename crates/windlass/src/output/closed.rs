//! Whether standard output was closed when the program was started.
//!
//! The standard library opens `/dev/null` in the place of a closed stream before `main` begins, so
//! that no other file gets its number. After that, every result would be written to nothing without
//! an error. So this file looks before the library does.

#![allow(
    unsafe_code,
    reason = "only a function that the loader calls runs before the standard library's own start"
)]

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls this before `main`.
// SAFETY: the section holds pointers to functions that take no arguments, or ignore them, in the C
// convention. This one makes one system call and stores a flag.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: only the number is looked at. If it is closed, the call fails.
    let stdout = unsafe { rustix::fd::BorrowedFd::borrow_raw(1) };
    let is_closed = rustix::io::fcntl_getfd(stdout) == Err(rustix::io::Errno::BADF);
    CLOSED.store(is_closed, Ordering::Relaxed);
}

/// The error of a write to standard output, if it was closed when the program was started.
pub(super) fn error() -> Option<std::io::Error> {
    let is_closed = CLOSED.load(Ordering::Relaxed);
    is_closed.then(|| rustix::io::Errno::BADF.into())
}
