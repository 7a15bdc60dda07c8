//! What comes in place of the calls of the server and its modules. Each preserves what it must, and
//! then makes the call.
//!
//! `truncate` to nothing is how the server empties a file that it is about to remove. If a snapshot
//! has the file, an empty file takes its name. So not one page is copied, however large it is.

#![allow(unsafe_code, reason = "these functions have the types of C")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libc::{iovec, mode_t, off64_t, size_t, ssize_t};

use crate::elf::Replacement;
use crate::guard::{Entered, enter};
use crate::module_calls::{
    dlopen, linkat, mkdirat, pwritev2, renameat2, sendfile, splice, symlinkat,
};
use crate::shared;
use crate::system;

/// Standard input, output and error: never files of a database.
const STANDARD_LAST: c_int = 2;
const PATH_BYTES_MAX: usize = 4096;
/// The server and its tools take such names for temporary files.
const EMPTY_NAME: &[u8] = b"pgsql_tmp.windlass.";

macro_rules! by {
    ($function:ident) => {
        || $function as *const c_void
    };
}

/// The calls that change files, as PostgreSQL 14 to 18 and modules import them, and the one that
/// loads a module.
pub(crate) static TABLE: [Replacement; 28] = [
    one(&[c"pwrite", c"pwrite64"], by!(pwrite)),
    one(&[c"pwritev", c"pwritev64"], by!(pwritev)),
    one(&[c"write"], by!(write)),
    one(&[c"writev"], by!(writev)),
    one(&[c"open", c"open64"], by!(open)),
    one(&[c"openat", c"openat64"], by!(openat)),
    one(&[c"creat", c"creat64"], by!(creat)),
    one(&[c"ftruncate", c"ftruncate64"], by!(ftruncate)),
    one(&[c"truncate", c"truncate64"], by!(truncate)),
    one(
        &[c"posix_fallocate", c"posix_fallocate64"],
        by!(posix_fallocate),
    ),
    one(&[c"fallocate", c"fallocate64"], by!(fallocate)),
    one(&[c"copy_file_range"], by!(copy_file_range)),
    one(&[c"unlink"], by!(unlink)),
    one(&[c"rename"], by!(rename)),
    one(&[c"link"], by!(link)),
    one(&[c"symlink"], by!(symlink)),
    one(&[c"mkdir"], by!(mkdir)),
    one(&[c"rmdir"], by!(rmdir)),
    one(&[c"unlinkat"], by!(unlinkat)),
    one(&[c"renameat"], by!(renameat)),
    one(&[c"renameat2"], by!(renameat2)),
    one(&[c"linkat"], by!(linkat)),
    one(&[c"symlinkat"], by!(symlinkat)),
    one(&[c"mkdirat"], by!(mkdirat)),
    one(&[c"pwritev2", c"pwritev64v2"], by!(pwritev2)),
    one(&[c"sendfile", c"sendfile64"], by!(sendfile)),
    one(&[c"splice"], by!(splice)),
    one(&[c"dlopen"], by!(dlopen)),
];

const fn one(names: &'static [&'static CStr], by: fn() -> *const c_void) -> Replacement {
    Replacement { names, by }
}

/// What a call does with a name.
pub(crate) enum Name {
    /// It comes, or a directory goes.
    Made(c_int, *const c_char),
    /// It goes, or leads to another file.
    Lost(c_int, *const c_char),
    /// Its file gets another one.
    Shared(c_int, *const c_char),
}

/// Makes a call that changes names only: nobody makes one while the server is paused.
pub(crate) fn named<T>(names: &[Name], call: impl FnOnce() -> T) -> T {
    let Some(entered) = enter() else {
        return call();
    };
    for name in names {
        let (Name::Made(directory, path)
        | Name::Lost(directory, path)
        | Name::Shared(directory, path)) = *name;
        if path.is_null() {
            continue;
        }
        // SAFETY: the caller's path ends with a zero.
        let path = unsafe { CStr::from_ptr(path) };
        match name {
            Name::Made(..) => entered.before_name(directory, path),
            Name::Lost(..) => entered.before_loss(directory, path),
            Name::Shared(..) => entered.before_arrival(directory, path),
        }
    }
    entered.call(call)
}

pub(crate) fn written<T>(
    fd: c_int,
    bytes: size_t,
    offset: Option<off64_t>,
    call: impl FnOnce() -> T,
) -> T {
    let Some(entered) = enter() else {
        return call();
    };
    entered.before_write(fd, bytes, offset);
    entered.call(call)
}

unsafe extern "C" fn pwrite(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the caller's own arguments.
    written(fd, count, Some(offset), || unsafe {
        libc::pwrite64(fd, bytes, count, offset)
    })
}

unsafe extern "C" fn pwritev(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the caller's own arguments.
    written(
        fd,
        unsafe { length(parts, count) },
        Some(offset),
        || unsafe { libc::pwritev64(fd, parts, count, offset) },
    )
}

unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { libc::write(fd, bytes, count) };
    let Some(stat) = regular(fd) else {
        return call();
    };
    if bytes.is_null() || !shared::is_control(stat.key) {
        return written(fd, count, None, call);
    }
    // SAFETY: the caller says that so many bytes are there.
    let bytes = unsafe { core::slice::from_raw_parts(bytes.cast(), count) };
    let errno = system::errno();
    shared::stamp_control(bytes);
    system::set_errno(errno);
    let done = written(fd, count, None, call);
    if usize::try_from(done) == Ok(count) {
        shared::note_control(bytes);
    }
    done
}

unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { libc::writev(fd, parts, count) };
    match regular(fd) {
        // SAFETY: the caller's own arguments.
        Some(_) => written(fd, unsafe { length(parts, count) }, None, call),
        None => call(),
    }
}

/// A regular file behind a descriptor. A call that writes elsewhere may block for as long as it
/// likes.
pub(crate) fn regular(fd: c_int) -> Option<system::Stat> {
    if fd <= STANDARD_LAST {
        return None;
    }
    let errno = system::errno();
    let stat = system::stat_of(fd).filter(|stat| stat.is_regular);
    system::set_errno(errno);
    stat
}

/// How many bytes the parts have together.
pub(crate) unsafe fn length(parts: *const iovec, count: c_int) -> usize {
    let Ok(count) = usize::try_from(count) else {
        return 0;
    };
    if parts.is_null() {
        return 0;
    }
    // SAFETY: the caller says that so many parts are there.
    let parts = unsafe { core::slice::from_raw_parts(parts, count) };
    parts
        .iter()
        .fold(0, |sum: usize, part| sum.saturating_add(part.iov_len))
}

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    // SAFETY: the caller's own arguments.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

unsafe extern "C" fn openat(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's own arguments. A mode that is not needed is not looked at.
    let call = || unsafe { libc::openat64(directory, path, flags, c_uint::from(mode)) };
    if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 || path.is_null() {
        return call();
    }
    let Some(entered) = enter() else {
        return call();
    };
    // SAFETY: the caller's path ends with a zero.
    let name = unsafe { CStr::from_ptr(path) };
    entered.before_name(directory, name);
    if flags & libc::O_TRUNC != 0 && directory == libc::AT_FDCWD {
        entered.before_cut_at(name, 0);
    }
    entered.call(call)
}

unsafe extern "C" fn ftruncate(fd: c_int, length: off64_t) -> c_int {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { libc::ftruncate64(fd, length) };
    let Some(entered) = enter() else {
        return call();
    };
    entered.before_cut(fd, length);
    entered.call(call)
}

unsafe extern "C" fn truncate(path: *const c_char, length: off64_t) -> c_int {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { libc::truncate64(path, length) };
    let Some(entered) = enter().filter(|_| !path.is_null()) else {
        return call();
    };
    // SAFETY: the caller's path ends with a zero.
    let name = unsafe { CStr::from_ptr(path) };
    entered.before_name(libc::AT_FDCWD, name);
    if length == 0 && is_emptied(&entered, name) {
        return entered.call(|| 0);
    }
    entered.before_cut_at(name, length);
    entered.call(call)
}

/// Puts an empty file in the place of one that a snapshot has. False if there is none, or if that
/// is impossible.
fn is_emptied(entered: &Entered, path: &CStr) -> bool {
    let Some((_, mode)) = entered.tracked_at(path) else {
        return false;
    };
    let mut beside = [0; PATH_BYTES_MAX];
    let Some(empty) = name_beside(path, &mut beside) else {
        return false;
    };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let made = match system::open(empty, flags, mode) {
        Err(libc::EEXIST) => {
            // A process with this number was killed in the middle.
            // SAFETY: the path ends with a zero.
            unsafe { libc::unlink(empty.as_ptr()) };
            system::open(empty, flags, mode)
        }
        made => made,
    };
    let Ok(fd) = made else { return false };
    entered.before_loss(libc::AT_FDCWD, path);
    // SAFETY: the descriptor is ours, and both paths end with a zero.
    let done =
        unsafe { libc::fchmod(fd, mode) == 0 && libc::rename(empty.as_ptr(), path.as_ptr()) == 0 };
    system::close(fd);
    if !done {
        // SAFETY: the path ends with a zero.
        unsafe { libc::unlink(empty.as_ptr()) };
    }
    done
}

/// A name in the same directory, which only this process uses.
fn name_beside<'a>(path: &CStr, into: &'a mut [u8; PATH_BYTES_MAX]) -> Option<&'a CStr> {
    let path = path.to_bytes();
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let directory = path.get(..slash.map_or(0, |slash| slash.saturating_add(1)))?;
    let mut digits = [b'0'; 10];
    let mut pid = system::own_pid();
    for digit in digits.iter_mut().rev() {
        let [last, ..] = (pid % 10).to_le_bytes();
        *digit = b'0'.wrapping_add(last);
        pid /= 10;
    }
    let length = directory.len().checked_add(EMPTY_NAME.len() + 11)?;
    let place = into.get_mut(..length)?;
    let bytes = directory.iter().chain(EMPTY_NAME).chain(&digits);
    place
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    CStr::from_bytes_until_nul(into).ok()
}

unsafe extern "C" fn posix_fallocate(fd: c_int, offset: off64_t, bytes: off64_t) -> c_int {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { libc::posix_fallocate64(fd, offset, bytes) };
    let Some(entered) = enter() else {
        return call();
    };
    // What is there stays as it is.
    entered.before_growth(fd, offset, bytes);
    entered.call(call)
}

unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off64_t, bytes: off64_t) -> c_int {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { libc::fallocate64(fd, mode, offset, bytes) };
    let Some(entered) = enter() else {
        return call();
    };
    // Some modes move everything behind the range.
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => entered.before_growth(fd, offset, bytes),
        _ => {
            entered.before_cut(fd, offset);
            entered.before_growth(fd, offset, bytes);
        }
    }
    entered.call(call)
}

unsafe extern "C" fn copy_file_range(
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
    written(to, bytes, offset, || unsafe {
        libc::copy_file_range(from, from_offset, to, to_offset, bytes, flags)
    })
}

unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's own argument.
    named(&[Name::Lost(libc::AT_FDCWD, path)], || unsafe {
        libc::unlink(path)
    })
}

unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's own arguments.
    named(&[Name::Lost(directory, path)], || unsafe {
        libc::unlinkat(directory, path, flags)
    })
}

unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let names = [
        Name::Shared(libc::AT_FDCWD, from),
        Name::Lost(libc::AT_FDCWD, from),
        Name::Lost(libc::AT_FDCWD, to),
    ];
    // SAFETY: the caller's own arguments.
    named(&names, || unsafe { libc::rename(from, to) })
}

unsafe extern "C" fn renameat(
    from_directory: c_int,
    from: *const c_char,
    to_directory: c_int,
    to: *const c_char,
) -> c_int {
    let names = [
        Name::Shared(from_directory, from),
        Name::Lost(from_directory, from),
        Name::Lost(to_directory, to),
    ];
    // SAFETY: the caller's own arguments.
    named(&names, || unsafe {
        libc::renameat(from_directory, from, to_directory, to)
    })
}

unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    let names = [
        Name::Shared(libc::AT_FDCWD, from),
        Name::Made(libc::AT_FDCWD, to),
    ];
    // SAFETY: the caller's own arguments.
    named(&names, || unsafe { libc::link(from, to) })
}

unsafe extern "C" fn symlink(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's own arguments.
    named(&[Name::Made(libc::AT_FDCWD, to)], || unsafe {
        libc::symlink(from, to)
    })
}

unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's own arguments.
    named(&[Name::Made(libc::AT_FDCWD, path)], || unsafe {
        libc::mkdir(path, mode)
    })
}

unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's own argument.
    named(&[Name::Made(libc::AT_FDCWD, path)], || unsafe {
        libc::rmdir(path)
    })
}
