//! What comes in place of calls that no server of PostgreSQL makes itself, but a module of it may
//! make: the rarer ways to change a file, and the call that loads a module.

#![allow(unsafe_code, reason = "these functions have the types of C")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use libc::{iovec, mode_t, off64_t, size_t, ssize_t};

use crate::calls::{Name, TABLE, length, named, regular, written};
use crate::elf;
use crate::shared;

pub(crate) unsafe extern "C" fn renameat2(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let names = [
        // One of the flags makes both change places.
        Name::Shared(from_directory, from),
        Name::Shared(to_directory, to),
        Name::Lost(from_directory, from),
        Name::Lost(to_directory, to),
    ];
    // SAFETY: the caller's own arguments.
    named(&names, || unsafe {
        libc::renameat2(from_directory, from, to_directory, to, flags)
    })
}

pub(crate) unsafe extern "C" fn linkat(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    let names = [
        Name::Shared(from_directory, from),
        Name::Made(to_directory, to),
    ];
    // SAFETY: the caller's own arguments.
    named(&names, || unsafe {
        libc::linkat(from_directory, from, to_directory, to, flags)
    })
}

pub(crate) unsafe extern "C" fn symlinkat(
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's own arguments.
    named(&[Name::Made(to_directory, to)], || unsafe {
        libc::symlinkat(from, to_directory, to)
    })
}

pub(crate) unsafe extern "C" fn mkdirat(
    directory: c_int,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's own arguments.
    named(&[Name::Made(directory, path)], || unsafe {
        libc::mkdirat(directory, path, mode)
    })
}

pub(crate) unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's own arguments.
    let bytes = unsafe { length(parts, count) };
    // Without an offset it writes at the position of the descriptor.
    let at = (offset >= 0).then_some(offset);
    // SAFETY: the caller's own arguments.
    written(fd, bytes, at, || unsafe {
        libc::pwritev2(fd, parts, count, offset, flags)
    })
}

pub(crate) unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    from_offset: *mut off64_t,
    bytes: size_t,
) -> ssize_t {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { libc::sendfile64(to, from, from_offset, bytes) };
    match regular(to) {
        Some(_) => written(to, bytes, None, call),
        None => call(),
    }
}

pub(crate) unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    bytes: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller's own argument.
    let offset = unsafe { to_offset.as_ref() }.copied();
    // SAFETY: the caller's own arguments.
    let call = || unsafe { libc::splice(from, from_offset, to, to_offset, bytes, flags) };
    match regular(to) {
        Some(_) => written(to, bytes, offset, call),
        None => call(),
    }
}

/// A process loads a module, whose writes are to be seen as well.
pub(crate) unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's own arguments.
    let handle = unsafe { libc::dlopen(path, flags) };
    if !handle.is_null() && !elf::replace_in_modules(&TABLE) {
        shared::cannot_see();
    }
    handle
}
