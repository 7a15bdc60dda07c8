//! The shared memory and this process's place in it.
//!
//! The server's first process makes or finds the memory when it starts. All others inherit it by
//! fork, at the same address. It outlives the server, so that a server that starts again goes on
//! where the last one ended; it does not outlive the system.
//!
//! The file is long and almost all of it is a hole. The controller allocates the parts that are in
//! use, so no access finds that there is no memory.

#![allow(
    unsafe_code,
    reason = "the memory is mapped, and the state is a process's own"
)]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use windlass_layout::hook::{
    AREA_BYTES_AT, CLUSTER_BYTES_AT, CONTROL_BYTES, CONTROL_DIRECTORY, CONTROL_NAME_BYTES,
    CONTROL_TOLD_BYTES, Cause, FOREIGN_BYTES_AT, Fault, FileKey, MAGIC, Memory, Moment, Process,
    Stamp, VERSION, begin_changes, blind_map, end_map, is_durable, lose_all, see_again,
    set_last_change,
};

use crate::system::{self, Patience};
use crate::{recover, saved, untouched};

const WORDS: usize = (CONTROL_BYTES / 4) as usize;
const CONTROL_FILE_BYTES: usize = 8192;
const PRIVATE_MODE: u32 = 0o600;

static WORDS_AT: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// The thread in which the server itself runs. Modules may have others.
static THREAD: AtomicU64 = AtomicU64::new(0);

/// What belongs to this process alone.
pub(crate) struct Own {
    pub(crate) process: Process,
    /// False until the process has its own place. The child of a fork has none.
    pub(crate) joined: bool,
    /// The store, which version of it, and its descriptor.
    pub(crate) store: Option<(u32, c_int)>,
    /// pg_control's file.
    pub(crate) control: Option<FileKey>,
    /// Whether it is the server's first process, the last one to end.
    is_first: bool,
}

struct OneThread(UnsafeCell<Own>);

// SAFETY: only the thread in which the server runs uses it.
unsafe impl Sync for OneThread {}

static OWN: OneThread = OneThread(UnsafeCell::new(Own {
    process: Process::new(),
    joined: false,
    store: None,
    control: None,
    is_first: false,
}));

/// What belongs to this process. Nobody keeps the reference beyond one call of the server.
pub(crate) fn own() -> *mut Own {
    OWN.0.get()
}

/// The memory. Only what replaces the server's calls asks, and nothing is replaced without it.
pub(crate) fn memory() -> Option<Memory<'static>> {
    let words = WORDS_AT.load(Ordering::Relaxed);
    if words.is_null() {
        return None;
    }
    // SAFETY: so many words are mapped, for as long as the process lives.
    Memory::new(unsafe { core::slice::from_raw_parts(words, WORDS) })
}

/// Whether this is the thread in which the server runs.
pub(crate) fn is_own_thread() -> bool {
    THREAD.load(Ordering::Relaxed) == this_thread()
}

fn this_thread() -> libc::pthread_t {
    // SAFETY: the call only answers.
    unsafe { libc::pthread_self() }
}

/// Gives up every snapshot, because a module writes that cannot be seen. What it writes until it
/// ends is not seen either, and nobody knows when that is.
pub(crate) fn cannot_see() {
    system::say(b"windlass: every snapshot is lost: the writes of a module cannot be seen\n");
    if let Some(memory) = memory() {
        blind_map(memory);
        let (cause, errno) = (Cause::Unseen, 0);
        lose_all(memory, Fault { cause, errno }, saved::forget);
    }
}

/// Maps the memory of the server whose data directory is the current one. False if that is
/// impossible.
pub(crate) fn map() -> bool {
    let Some(directory) = system::stat_at(c".") else {
        return false;
    };
    let Some((fd, is_new)) = open(directory.key) else {
        return false;
    };
    let Ok(length) = usize::try_from(CONTROL_BYTES) else {
        return false;
    };
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: a new mapping of a file that is ours.
    let words = unsafe { libc::mmap64(ptr::null_mut(), length, rights, flags, fd, 0) };
    if words == libc::MAP_FAILED {
        system::close(fd);
        return false;
    }
    // SAFETY: the mapping is ours. A core dump shall not contain it.
    unsafe { libc::madvise(words, length, libc::MADV_DONTDUMP) };
    WORDS_AT.store(words.cast(), Ordering::Relaxed);
    let Some(memory) = memory() else { return false };
    if is_new {
        // Nobody else sees the memory before it has its name.
        recover::recover(memory, fd, control_crc());
    }
    system::close(fd);
    if memory.is_of_this_version() && (!is_new || is_named(directory.key)) {
        return true;
    }
    WORDS_AT.store(ptr::null_mut(), Ordering::Relaxed);
    false
}

type Path = [u8; CONTROL_DIRECTORY.len() + CONTROL_NAME_BYTES + 6];

/// The path of the memory's file, with something behind it.
fn path(key: FileKey, suffix: &[u8]) -> Path {
    let mut path: Path = [0; _];
    let name = key.control_name();
    let parts = [CONTROL_DIRECTORY.as_bytes(), b"/", &name, suffix];
    let bytes = parts.into_iter().flatten();
    path.iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    path
}

/// Opens the memory's file, or makes it, and says which of the two.
fn open(key: FileKey) -> Option<(c_int, bool)> {
    let path = path(key, b"");
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let flags = libc::O_RDWR | libc::O_NOFOLLOW;
    match system::open(path, flags, 0) {
        // The controller removes a memory that nobody has open. Whoever opens it meanwhile waits.
        Ok(fd) if found(fd).is_some_and(|found| found.st_nlink == 0) => {
            system::close(fd);
            Some((make(key)?, true))
        }
        Ok(fd) if !is_private(fd) => {
            system::close(fd);
            None
        }
        Ok(fd) if is_of_another_version(fd) || is_of_another_cluster(fd) => {
            // The snapshots of another version cannot be served. Whoever reads them sees that. Or
            // the data directory was made anew, and has the number of the old one.
            let is_noted = system::write_at(fd, &1u32.to_le_bytes(), FOREIGN_BYTES_AT);
            system::close(fd);
            if is_noted.is_err() {
                return None;
            }
            // SAFETY: the path ends with a zero.
            unsafe { libc::unlink(path.as_ptr()) };
            Some((make(key)?, true))
        }
        Ok(fd) => Some((fd, false)),
        Err(libc::ENOENT) => Some((make(key)?, true)),
        Err(_) => None,
    }
}

/// Whether a library of another version made a memory.
fn is_of_another_version(fd: c_int) -> bool {
    let mut header = [0; 8];
    let is_read = system::read_at(fd, &mut header, 0) == Ok(8);
    is_read && header != header_bytes()
}

/// Whether a memory belongs to a cluster with another identity.
fn is_of_another_cluster(fd: c_int) -> bool {
    let mut known = [0; 8];
    let is_read = system::read_at(fd, &mut known, CLUSTER_BYTES_AT) == Ok(8);
    let known = u64::from_le_bytes(known);
    let own = identity();
    is_read && known != 0 && own != 0 && known != own
}

/// The identity of the cluster whose data directory is the current one; 0 if it cannot be read.
fn identity() -> u64 {
    let Ok(fd) = system::open(c"global/pg_control", libc::O_RDONLY, 0) else {
        return 0;
    };
    let mut bytes = [0; 8];
    let read = system::read_at(fd, &mut bytes, 0);
    system::close(fd);
    match read {
        Ok(8) => u64::from_le_bytes(bytes),
        _ => 0,
    }
}

/// Whether the file is this user's alone. Everybody can make files beside it.
fn is_private(fd: c_int) -> bool {
    let Some(found) = found(fd) else {
        return false;
    };
    // SAFETY: the call only answers.
    let own = found.st_uid == unsafe { libc::geteuid() };
    own && found.st_mode & (libc::S_IFMT | 0o777) == libc::S_IFREG | PRIVATE_MODE
}

/// What the system says of an open file.
fn found(fd: c_int) -> Option<libc::stat64> {
    let mut found = core::mem::MaybeUninit::<libc::stat64>::uninit();
    // SAFETY: the structure is as large as the call expects.
    if unsafe { libc::fstat64(fd, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    Some(unsafe { found.assume_init() })
}

/// Makes the file under another name. It gets its own when it is complete.
fn make(key: FileKey) -> Option<c_int> {
    let unnamed = path(key, b".new");
    let unnamed = CStr::from_bytes_until_nul(&unnamed).ok()?;
    // SAFETY: the path ends with a zero. Only an earlier start of this server can have made it.
    unsafe { libc::unlink(unnamed.as_ptr()) };
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let fd = system::open(unnamed, flags, PRIVATE_MODE).ok()?;
    if is_made(fd) {
        return Some(fd);
    }
    // SAFETY: the path ends with a zero.
    unsafe { libc::unlink(unnamed.as_ptr()) };
    system::close(fd);
    None
}

/// Gives the new file its name.
fn is_named(key: FileKey) -> bool {
    let (from, to) = (path(key, b".new"), path(key, b""));
    let (Ok(from), Ok(to)) = (
        CStr::from_bytes_until_nul(&from),
        CStr::from_bytes_until_nul(&to),
    ) else {
        return false;
    };
    // SAFETY: both paths end with a zero.
    unsafe { libc::rename(from.as_ptr(), to.as_ptr()) == 0 }
}

fn is_made(fd: c_int) -> bool {
    let (Ok(used), Ok(length)) = (i64::try_from(AREA_BYTES_AT), i64::try_from(CONTROL_BYTES))
    else {
        return false;
    };
    // SAFETY: the descriptor is ours.
    let sized = unsafe {
        libc::fallocate64(fd, 0, 0, used) == 0
            && libc::ftruncate64(fd, length) == 0
            && libc::fchmod(fd, PRIVATE_MODE) == 0
    };
    sized && system::write_at(fd, &header_bytes(), 0).is_ok()
}

/// The first words of a memory without snapshots.
fn header_bytes() -> [u8; 8] {
    let mut header = [0; 8];
    let words = [MAGIC, VERSION];
    for (to, from) in header.chunks_mut(4).zip(words) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    header
}

/// Says that a server starts, and that nobody sees what it writes until [`begin`] says that.
pub(crate) fn arrive() {
    let Some(memory) = memory() else { return };
    // Its first process may have the number of the last server's.
    memory.set_first_process(0);
    blind_map(memory);
}

/// Begins to see the server's writes. If somebody else wrote since the last server with the hook,
/// every snapshot is lost. The map of changes is, in any case.
pub(crate) fn begin() {
    let Some(memory) = memory() else { return };
    end_map(memory);
    see_again(memory);
    memory.note_start();
    THREAD.store(this_thread(), Ordering::Relaxed);
    // SAFETY: the server has one thread, and no call of it is under way.
    let own = unsafe { &mut *own() };
    own.control = system::stat_at(c"global/pg_control").map(|stat| stat.key);
    own.is_first = true;
    let crc = control_crc();
    let was = memory.control_crc();
    let cause = match memory.foreign() != 0 || (was != 0 && was != crc) {
        true => Some(Cause::Unseen),
        false if untouched::is_untouched(memory) => None,
        false => Some(Cause::Changed),
    };
    if let Some(cause) = cause {
        let errno = 0;
        lose_all(memory, Fault { cause, errno }, saved::forget);
    }
    memory.set_control_crc(crc);
    memory.set_cluster(identity());
    match system::now() {
        Some(now) => begin_changes(memory, now, &mut Patience::default()),
        None => set_last_change(memory, Moment::NEVER),
    }
    stamp(memory, (crc, crc), false);
    memory.set_first_process(system::own_pid());
}

/// Says on disk what pg_control is, what it is about to become, and whether that was all, if a
/// snapshot is to outlive a power cut.
fn stamp(memory: Memory<'_>, (before, after): (u32, u32), is_last: bool) {
    if !is_durable(memory) {
        return;
    }
    saved::stamp(Stamp {
        before,
        after,
        at: system::now().unwrap_or(Moment::NEVER),
        is_last,
    });
}

/// The checksum of pg_control as it is; 0 if it cannot be read.
fn control_crc() -> u32 {
    let Ok(fd) = system::open(c"global/pg_control", libc::O_RDONLY, 0) else {
        return 0;
    };
    let mut bytes = [0; CONTROL_TOLD_BYTES];
    let read = system::read_at(fd, &mut bytes, 0);
    system::close(fd);
    match read {
        Ok(CONTROL_TOLD_BYTES) => crate::checksum::crc32c(&bytes),
        _ => 0,
    }
}

/// Whether a file is pg_control.
pub(crate) fn is_control(key: FileKey) -> bool {
    // SAFETY: the server has one thread.
    unsafe { (*own()).control == Some(key) }
}

/// The checksum of what is written to pg_control.
fn told(bytes: &[u8]) -> Option<u32> {
    let told = bytes.get(..CONTROL_TOLD_BYTES)?;
    (bytes.len() == CONTROL_FILE_BYTES).then(|| crate::checksum::crc32c(told))
}

/// Says on disk what pg_control is about to become, if a snapshot is to outlive a power cut.
pub(crate) fn stamp_control(bytes: &[u8]) {
    if let (Some(memory), Some(after)) = (memory(), told(bytes)) {
        stamp(memory, (memory.control_crc(), after), false);
    }
}

/// Notes what was written to pg_control.
pub(crate) fn note_control(bytes: &[u8]) {
    if let (Some(memory), Some(crc)) = (memory(), told(bytes)) {
        memory.set_control_crc(crc);
    }
}

/// Takes a place for this process, if it has none.
pub(crate) fn join(memory: Memory<'_>, own: &mut Own) {
    own.joined = true;
    own.process
        .join(memory, system::own_pid(), &mut Patience::default());
}

/// The child of a fork has no place yet. The store's descriptor is shared and stays.
pub(crate) unsafe extern "C" fn forked() {
    THREAD.store(this_thread(), Ordering::Relaxed);
    // SAFETY: the child has one thread.
    let own = unsafe { &mut *own() };
    own.process = Process::new();
    own.joined = false;
    own.is_first = false;
}

/// A process that ends gives its place back. After the first one nobody is left: what is changed
/// later was changed by somebody else.
pub(crate) extern "C" fn ended() {
    // SAFETY: the process has one thread.
    let own = unsafe { &mut *own() };
    if let Some(memory) = memory().filter(|memory| own.is_first && memory.newest() != 0) {
        let crc = memory.control_crc();
        if let Some(now) = system::now() {
            system::wait_for_next_tick(now);
        }
        stamp(memory, (crc, crc), true);
    }
    if let Some(memory) = memory().filter(|_| own.joined) {
        own.process.quit(memory);
        own.joined = false;
    }
}
