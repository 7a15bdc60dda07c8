//! The background worker that runs the helper (`ahead.rs`): how the server learns of it, and how it
//! ends.

#![allow(
    unsafe_code,
    reason = "the server calls these functions, and sends the signals"
)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{MaybeUninit, size_of, transmute};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::ahead::Helper;
use crate::buffers::symbol;
use crate::shared;
use crate::system;

/// Longest names in a registration, and those of libraries before and since PostgreSQL 17.
const NAME_BYTES: usize = 96;
const LIBRARY_BYTES_14: usize = 96;
const LIBRARY_BYTES_17: usize = 1024;
const EXTRA_BYTES: usize = 128;
/// The worker uses the server's shared memory.
const FLAGS: c_int = 1;
/// It starts with the server, also while that recovers.
const AT_START: c_int = 0;
const RESTART_SECONDS: c_int = 60;
const NAME: &[u8] = b"windlass copies ahead";
const FUNCTION: &[u8] = b"windlass_copy_ahead";

static IS_ENDED: AtomicBool = AtomicBool::new(false);

/// What the server wants to know of a worker.
#[repr(C)]
struct Registration<const LIBRARY: usize> {
    name: [u8; NAME_BYTES],
    kind: [u8; NAME_BYTES],
    flags: c_int,
    start: c_int,
    restart: c_int,
    library: [u8; LIBRARY],
    function: [u8; NAME_BYTES],
    argument: usize,
    extra: [u8; EXTRA_BYTES],
    notified: libc::pid_t,
}

const _: () = assert!(size_of::<Registration<LIBRARY_BYTES_14>>() == 544);
const _: () = assert!(size_of::<Registration<LIBRARY_BYTES_17>>() == 1472);

/// Asks the server for the worker. A library whose path is too long for the server has none.
pub(crate) fn register() {
    let registered = match system::server_major() {
        Some(14..=16) => registered::<LIBRARY_BYTES_14>(),
        Some(17..=19) => registered::<LIBRARY_BYTES_17>(),
        _ => None,
    };
    registered.unwrap_or_default();
}

fn registered<const LIBRARY: usize>() -> Option<()> {
    let function = symbol(c"RegisterBackgroundWorker")?;
    let mut worker = Registration::<LIBRARY> {
        name: [0; _],
        kind: [0; _],
        flags: FLAGS,
        start: AT_START,
        restart: RESTART_SECONDS,
        library: [0; _],
        function: [0; _],
        argument: 0,
        extra: [0; _],
        notified: 0,
    };
    fill(&mut worker.name, NAME)?;
    fill(&mut worker.kind, NAME)?;
    fill(&mut worker.function, FUNCTION)?;
    fill(&mut worker.library, own_path()?.to_bytes())?;
    // SAFETY: the server has a function of this name and type.
    let register: unsafe extern "C" fn(*mut c_void) = unsafe { transmute(function) };
    // SAFETY: the structure is that of the server's version, and the server copies it.
    unsafe { register((&raw mut worker).cast()) };
    Some(())
}

fn fill(place: &mut [u8], text: &[u8]) -> Option<()> {
    // The last byte stays zero.
    let end = place.len().checked_sub(1)?;
    let begin = place.get_mut(..end)?.get_mut(..text.len())?;
    begin.copy_from_slice(text);
    Some(())
}

/// The file of this library.
fn own_path() -> Option<&'static CStr> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let here = register as fn() as *const c_void;
    // SAFETY: the structure is as large as the call expects.
    if unsafe { libc::dladdr(here, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let name: *const c_char = unsafe { found.assume_init() }.dli_fname;
    // SAFETY: the name ends with a zero, and stays while the library is loaded.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

/// The worker. The server calls it in a process of its own, with its signals blocked.
#[unsafe(no_mangle)]
pub extern "C" fn windlass_copy_ahead(_argument: usize) {
    let Some(memory) = shared::memory().filter(|_| has_signals()) else {
        return;
    };
    let mut helper = Helper::default();
    while is_server_alive() {
        let rest = libc::timespec {
            tv_sec: 0,
            tv_nsec: helper.turn(memory),
        };
        // SAFETY: the structure is there. A signal ends the sleep early.
        unsafe { libc::nanosleep(&raw const rest, ptr::null_mut()) };
    }
}

/// Takes over the signal by which the server ends a worker. It comes also when the server dies.
fn has_signals() -> bool {
    let handler = ended as extern "C" fn(c_int);
    // SAFETY: the structures are as large as the calls expect, and the handler only sets a word.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        (*action.as_mut_ptr()).sa_sigaction = handler as usize;
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigaction(libc::SIGTERM, action.as_ptr(), ptr::null_mut()) == 0
            && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) == 0
            && libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) == 0
    }
}

extern "C" fn ended(_signal: c_int) {
    IS_ENDED.store(true, Ordering::Relaxed);
}

fn is_server_alive() -> bool {
    let Some(first) = symbol(c"PostmasterPid") else {
        return false;
    };
    // SAFETY: the server has such a variable, and the call only answers.
    let is_parent = unsafe { *first.cast::<libc::pid_t>() == libc::getppid() };
    is_parent && !IS_ENDED.load(Ordering::Relaxed)
}
