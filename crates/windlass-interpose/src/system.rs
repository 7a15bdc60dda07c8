//! Calls of the system, as this crate needs them.

#![allow(unsafe_code, reason = "every call of the system is one of C")]

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;

use windlass_layout::hook::{FileKey, FileTimes, Moment, Waiter, identity_of_store};

/// How long anybody waits for anybody.
const WAIT_MILLIS_MAX: i64 = 3000;
/// How long anybody waits for somebody who syncs the store of a durable snapshot.
const SYNC_MILLIS_MAX: i64 = 30_000;
/// So often a waiter only lets others run. After that it sleeps between two looks.
const TURNS_AWAKE: u32 = 20;
const SLEEP_NANOS: libc::c_long = 200_000;
/// The slowest clock of file systems has ten milliseconds.
const TICKS_MAX: u32 = 20;
const TICK_NANOS: libc::c_long = 1_000_000;

/// What statx says of a file.
pub(crate) struct Stat {
    pub(crate) key: FileKey,
    pub(crate) is_regular: bool,
    pub(crate) is_directory: bool,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the pointer is this thread's own.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the pointer is this thread's own.
    unsafe { *libc::__errno_location() = value }
}

/// Writes a line to the server log.
pub(crate) fn say(line: &[u8]) {
    // SAFETY: the bytes are there. If nobody reads the log, there is nobody to tell.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Writes a short line to the server log, unless the call would have to wait.
pub(crate) fn say_if_free(line: &[u8]) {
    let mut log = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: the structure is there. The call does not wait.
    if unsafe { libc::poll(&raw mut log, 1, 0) } == 1 {
        say(line);
    }
}

/// The time, in seconds since 1970; `None` if the clock is wrong by decades.
pub(crate) fn now_seconds() -> Option<u32> {
    // SAFETY: without a pointer the call only answers.
    let now = unsafe { libc::time(core::ptr::null_mut()) };
    u32::try_from(now).ok()
}

/// The time by the clock that file systems use; `None` if there is none.
pub(crate) fn now() -> Option<Moment> {
    clock(libc::CLOCK_REALTIME)
}

/// How long ago the system started.
pub(crate) fn up_time() -> Option<Moment> {
    clock(libc::CLOCK_BOOTTIME)
}

/// Waits until a file that is changed from now on is told from one that was changed before: most
/// file systems tell times by a clock that moves some hundred times in a second.
pub(crate) fn wait_for_next_tick(now: Moment) {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: TICK_NANOS,
    };
    for _ in 0..TICKS_MAX {
        if clock(libc::CLOCK_REALTIME_COARSE).is_none_or(|tick| tick > now) {
            return;
        }
        // SAFETY: the structure is there. A signal may end the sleep early.
        unsafe { libc::nanosleep(&raw const pause, core::ptr::null_mut()) };
    }
}

fn clock(which: libc::clockid_t) -> Option<Moment> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is there.
    let answer = unsafe { libc::clock_gettime(which, &raw mut now) };
    let nanos = u32::try_from(now.tv_nsec).ok()?;
    (answer == 0).then(|| Moment::new(now.tv_sec, nanos))
}

/// How many MiB an ordinary user may still write on the file system of a file. `None` if nobody
/// knows, or if it has no limit: then it says that it has no blocks.
pub(crate) fn free_mib(fd: c_int) -> Option<u32> {
    let mut found = MaybeUninit::<libc::statvfs64>::uninit();
    // SAFETY: the structure is as large as the call expects.
    if unsafe { libc::fstatvfs64(fd, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    if found.f_blocks == 0 {
        return None;
    }
    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
    u32::try_from(bytes >> 20).ok()
}

/// What statx says of an open file.
pub(crate) fn stat_of(fd: c_int) -> Option<Stat> {
    stat(fd, c"", libc::AT_EMPTY_PATH)
}

/// What statx says of a path.
pub(crate) fn stat_at(path: &CStr) -> Option<Stat> {
    stat(libc::AT_FDCWD, path, 0)
}

/// What statx says of a name: of a link itself, and not of what it leads to.
pub(crate) fn link_stat_at(path: &CStr) -> Option<Stat> {
    stat_below(libc::AT_FDCWD, path)
}

/// The same of a name below an open directory.
pub(crate) fn stat_below(directory: c_int, path: &CStr) -> Option<Stat> {
    stat(directory, path, libc::AT_SYMLINK_NOFOLLOW)
}

/// Gives a file another name.
pub(crate) fn link(path: &CStr, other: &CStr) -> Result<(), c_int> {
    // SAFETY: both paths end with a zero.
    if unsafe { libc::link(path.as_ptr(), other.as_ptr()) } == 0 {
        return Ok(());
    }
    Err(errno())
}

/// statx and not fstat: asking for the times would make the next write update them.
fn stat(fd: c_int, path: &CStr, flags: c_int) -> Option<Stat> {
    let mut found = MaybeUninit::<libc::statx>::uninit();
    let mask = libc::STATX_INO | libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_SIZE;
    let flags = flags | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path ends with a zero, and the structure is as large as the call expects.
    let answer = unsafe { libc::statx(fd, path.as_ptr(), flags, mask, found.as_mut_ptr()) };
    if answer != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    let mode = u32::from(found.stx_mode);
    Some(Stat {
        key: FileKey::new(found.stx_dev_major, found.stx_dev_minor, found.stx_ino),
        is_regular: mode & libc::S_IFMT == libc::S_IFREG,
        is_directory: mode & libc::S_IFMT == libc::S_IFDIR,
        mode: mode & 0o7777,
        bytes: found.stx_size,
    })
}

/// Which regular file a name leads to below an open directory, and when it was changed. `None` if
/// it leads to none.
pub(crate) fn times_below(directory: c_int, name: &CStr) -> Option<FileTimes> {
    let mut found = MaybeUninit::<libc::statx>::uninit();
    let times = libc::STATX_CTIME | libc::STATX_MTIME;
    let mask = libc::STATX_INO | libc::STATX_TYPE | times;
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name ends with a zero, and the structure is as large as the call expects.
    let answer = unsafe { libc::statx(directory, name.as_ptr(), flags, mask, found.as_mut_ptr()) };
    if answer != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    let is_regular = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFREG;
    is_regular.then(|| FileTimes {
        key: FileKey::new(found.stx_dev_major, found.stx_dev_minor, found.stx_ino),
        changed: Moment::new(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
        modified: Moment::new(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
    })
}

/// What tells an open file from every other; `None` if it is no regular file.
pub(crate) fn identity_of(fd: c_int) -> Option<u32> {
    let mut found = MaybeUninit::<libc::statx>::uninit();
    let mask = libc::STATX_INO | libc::STATX_TYPE | libc::STATX_BTIME;
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: the path ends with a zero, and the structure is as large as the call expects.
    let answer = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, found.as_mut_ptr()) };
    if answer != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    let is_regular = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFREG;
    let has_born = found.stx_mask & libc::STATX_BTIME != 0;
    let nanos = found.stx_btime.tv_sec.saturating_mul(1_000_000_000);
    let born = match has_born {
        true => nanos.saturating_add(i64::from(found.stx_btime.tv_nsec)),
        false => 0,
    };
    is_regular.then(|| identity_of_store(found.stx_ino, born))
}

/// Reads names of a directory. Returns how many bytes; 0 at its end.
pub(crate) fn read_names(directory: c_int, into: &mut [u8]) -> Result<usize, c_int> {
    let (at, bytes) = (into.as_mut_ptr(), into.len());
    // SAFETY: so many bytes can be written there.
    let count = unsafe { libc::syscall(libc::SYS_getdents64, directory, at, bytes) };
    usize::try_from(count).map_err(|_| errno())
}

/// What kind of file system an open file is on.
pub(crate) fn file_system(fd: c_int) -> Option<i64> {
    let mut found = MaybeUninit::<libc::statfs64>::uninit();
    // SAFETY: the structure is as large as the call expects.
    if unsafe { libc::fstatfs64(fd, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    Some(unsafe { found.assume_init() }.f_type)
}

/// Opens a file for this process alone. Nobody that it starts inherits it.
pub(crate) fn open(path: &CStr, flags: c_int, mode: u32) -> Result<c_int, c_int> {
    // SAFETY: the path ends with a zero.
    let fd = unsafe { libc::open64(path.as_ptr(), flags | libc::O_CLOEXEC, mode) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(fd) };
}

/// Reads as much as there is. Returns how many bytes.
pub(crate) fn read_at(fd: c_int, into: &mut [u8], offset: u64) -> Result<usize, c_int> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let at = i64::try_from(offset.wrapping_add(done as u64)).map_err(|_| libc::EFBIG)?;
        // SAFETY: so many bytes can be written there.
        let count = unsafe { libc::pread64(fd, rest.as_mut_ptr().cast(), rest.len(), at) };
        match usize::try_from(count) {
            Ok(0) => break,
            Ok(count) => done = done.saturating_add(count),
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return Err(errno()),
        }
    }
    Ok(done)
}

/// Writes all bytes.
pub(crate) fn write_at(fd: c_int, bytes: &[u8], offset: u64) -> Result<(), c_int> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let at = i64::try_from(offset.wrapping_add(done as u64)).map_err(|_| libc::EFBIG)?;
        // SAFETY: so many bytes are there.
        let count = unsafe { libc::pwrite64(fd, rest.as_ptr().cast(), rest.len(), at) };
        match usize::try_from(count) {
            Ok(0) => return Err(libc::ENOSPC),
            Ok(count) => done = done.saturating_add(count),
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return Err(errno()),
        }
    }
    Ok(())
}

/// Makes the data of a file durable.
pub(crate) fn sync(fd: c_int) -> Result<(), c_int> {
    // SAFETY: the call only takes a descriptor.
    if unsafe { libc::fdatasync(fd) } == 0 {
        return Ok(());
    }
    Err(errno())
}

/// Allocates a part of a file.
pub(crate) fn allocate(fd: c_int, offset: u64, bytes: u64) -> Option<()> {
    let (offset, bytes) = (i64::try_from(offset).ok()?, i64::try_from(bytes).ok()?);
    // SAFETY: the call only takes numbers.
    (unsafe { libc::fallocate64(fd, 0, offset, bytes) } == 0).then_some(())
}

/// The server's major version, from the file in its data directory, where it is at its start.
pub(crate) fn server_major() -> Option<c_int> {
    let fd = open(c"PG_VERSION", libc::O_RDONLY, 0).ok()?;
    let mut text = [0; 8];
    let read = read_at(fd, &mut text, 0);
    close(fd);
    let digits = text.get(..read.ok()?)?.iter();
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0_i32, |number, digit| {
        number
            .wrapping_mul(10)
            .wrapping_add(i32::from(digit.wrapping_sub(b'0')))
    });
    (number > 0).then_some(number)
}

pub(crate) fn own_pid() -> u32 {
    // SAFETY: the call only answers.
    u32::try_from(unsafe { libc::getpid() }).unwrap_or_default()
}

/// Waits by looking again, for a limited time.
pub(crate) struct Patience {
    began_millis: i64,
    most_millis: i64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            began_millis: 0,
            most_millis: WAIT_MILLIS_MAX,
        }
    }
}

impl Patience {
    /// For whoever has something else to do.
    pub(crate) fn none() -> Self {
        Self {
            most_millis: -1,
            ..Self::default()
        }
    }

    /// For whoever waits while another process may sync the store.
    pub(crate) fn for_sync() -> Self {
        Self {
            most_millis: SYNC_MILLIS_MAX,
            ..Self::default()
        }
    }
}

impl Waiter for Patience {
    fn is_alive(&mut self, pid: u32) -> bool {
        let Ok(pid) = libc::pid_t::try_from(pid) else {
            return false;
        };
        // SAFETY: signal 0 asks and does nothing.
        pid > 0 && (unsafe { libc::kill(pid, 0) == 0 } || errno() != libc::ESRCH)
    }

    fn wait(&mut self, turn: u32) -> bool {
        let now = now_millis();
        if turn == 0 {
            self.began_millis = now;
        }
        if now.wrapping_sub(self.began_millis) > self.most_millis {
            return false;
        }
        if turn < TURNS_AWAKE {
            // SAFETY: the call has no arguments.
            unsafe { libc::sched_yield() };
            return true;
        }
        let pause = libc::timespec {
            tv_sec: 0,
            tv_nsec: SLEEP_NANOS,
        };
        // SAFETY: the structure is there. A signal may end the sleep early.
        unsafe { libc::nanosleep(&raw const pause, core::ptr::null_mut()) };
        true
    }
}

fn now_millis() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec
        .wrapping_mul(1000)
        .wrapping_add(now.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// A snapshot with a limit on the free space of such a disk would end at once.
    #[test]
    fn a_file_system_without_a_limit_is_never_too_full() {
        let endless = std::fs::File::open("/proc/version").unwrap();
        assert_eq!(free_mib(endless.as_raw_fd()), None);
    }
}
