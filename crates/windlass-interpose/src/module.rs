//! What PostgreSQL expects of a module: the magic block, and a function that it calls first.
//!
//! The block has three layouts: 14; 15 to 17; 18 and newer. Which one is wanted follows from
//! PG_VERSION, because the server is in its data directory when it loads libraries at its start.

#![allow(
    unsafe_code,
    reason = "the server calls these functions through pointers"
)]

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

use crate::{calls, elf, shared, system, worker};

/// The numbers of a server that was built in the usual way.
const ARGUMENTS_MAX: c_int = 100;
const INDEX_KEYS_MAX: c_int = 32;
const NAME_BYTES: c_int = 64;
const FLOAT8_BY_VALUE: c_int = 1;
const EXTRA: [u8; 32] = *b"PostgreSQL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const MAJOR_WITH_EXTRA: c_int = 15;
const MAJOR_WITH_NAME: c_int = 18;

/// The bytes of a block in the newest layout; the older ones begin alike and are shorter.
#[repr(C)]
pub struct Magic {
    length: c_int,
    version: c_int,
    arguments_max: c_int,
    index_keys_max: c_int,
    name_bytes: c_int,
    float8_by_value: c_int,
    extra: [u8; 32],
    name: *const c_char,
    module_version: *const c_char,
}

const LENGTH_14: c_int = 24;
const LENGTH_15: c_int = 56;
const LENGTH_18: c_int = 72;
const _: () = assert!(size_of::<Magic>() == 72);

static mut MAGIC: Magic = Magic {
    length: 0,
    version: 0,
    arguments_max: ARGUMENTS_MAX,
    index_keys_max: INDEX_KEYS_MAX,
    name_bytes: NAME_BYTES,
    float8_by_value: FLOAT8_BY_VALUE,
    extra: EXTRA,
    name: ptr::null(),
    module_version: ptr::null(),
};

/// Tells the server for which version this module was made: for its own.
#[unsafe(no_mangle)]
pub extern "C" fn Pg_magic_func() -> *const Magic {
    let major = system::server_major().unwrap_or(MAJOR_WITH_EXTRA);
    let length = match major {
        ..MAJOR_WITH_EXTRA => LENGTH_14,
        MAJOR_WITH_EXTRA..MAJOR_WITH_NAME => LENGTH_15,
        _ => LENGTH_18,
    };
    let magic = &raw mut MAGIC;
    // SAFETY: the server has one thread, and it reads the block only after this call.
    unsafe {
        (*magic).length = length;
        (*magic).version = major.wrapping_mul(100);
        (*magic).name = c"windlass".as_ptr();
        (*magic).module_version = c"1".as_ptr();
    }
    magic.cast_const()
}

/// Begins to see the server's writes, if the server loads the module at its start.
#[unsafe(no_mangle)]
pub extern "C" fn _PG_init() {
    if !is_server_start() {
        return;
    }
    if !shared::map() {
        system::say(b"windlass: the write hook is not active: no shared memory\n");
        return;
    }
    shared::arrive();
    // SAFETY: the handlers only reset words of this process.
    let watched = unsafe { libc::pthread_atfork(None, None, Some(shared::forked)) == 0 };
    // SAFETY: the handler only writes one word of the shared memory.
    let watched = watched && unsafe { libc::atexit(shared::ended) == 0 };
    if !watched || !elf::replace(&calls::TABLE) {
        system::say(b"windlass: the write hook is not active: the program cannot be changed\n");
        return;
    }
    shared::begin();
    worker::register();
}

/// Whether the server's first process loads libraries now. A session that loads the module later
/// would see only its own writes.
fn is_server_start() -> bool {
    let name = c"process_shared_preload_libraries_in_progress";
    // SAFETY: the name is a string that ends.
    let flag: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: the server defines this symbol as a bool.
    !flag.is_null() && unsafe { *flag.cast::<bool>() }
}
