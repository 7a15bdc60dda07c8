//! Replaces functions that the executable and the server's modules import: the words from which
//! they take their addresses.
//!
//!   objects of the process --> executable, or defines Pg_magic_func? --> its relocations --> words
//!
//! PostgreSQL's programs bind all of them at the start, and the linker makes the words read-only
//! after that. So each is made writable for the moment of the change.
//!
//! Never does: change this library, or one that is no module of the server.

#![allow(unsafe_code, reason = "the dynamic section is a web of pointers")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use libc::{Elf64_Addr, Elf64_Phdr, Elf64_Rela, Elf64_Sym, Elf64_Xword, dl_phdr_info};

/// A function that is replaced: its names, and the address of what comes in its place.
pub(crate) struct Replacement {
    pub(crate) names: &'static [&'static CStr],
    pub(crate) by: fn() -> *const c_void,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: Elf64_Xword,
}

const DT_PLTRELSZ: i64 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// Every module of the server defines this, and nobody else does.
const MODULE: &CStr = c"Pg_magic_func";

/// Calls that have files written later, for somebody who only asked for it: nobody can follow them.
const UNSEEN: [&CStr; 8] = [
    c"aio_write",
    c"aio_write64",
    c"lio_listio",
    c"lio_listio64",
    c"io_submit",
    c"io_uring_enter",
    c"io_uring_submit",
    c"io_uring_submit_and_wait",
];

#[cfg(target_arch = "x86_64")]
mod kinds {
    pub(super) const ABSOLUTE: u64 = 1;
    pub(super) const DATA: u64 = 6;
    pub(super) const JUMP: u64 = 7;
}
#[cfg(target_arch = "aarch64")]
mod kinds {
    pub(super) const ABSOLUTE: u64 = 257;
    pub(super) const DATA: u64 = 1025;
    pub(super) const JUMP: u64 = 1026;
}

/// The tables of an object that matter here.
#[derive(Default)]
struct Tables {
    base: u64,
    strings: u64,
    symbols: u64,
    /// By which the linker finds a symbol: the table that is made today, and the older one.
    gnu_hash: u64,
    old_hash: u64,
    relocations: [(u64, u64); 2],
    /// What the linker made read-only: from where, up to where.
    read_only: (u64, u64),
    is_own: bool,
}

/// What a walk over all objects does and has found.
struct Walk<'a> {
    table: &'a [Replacement],
    /// Whether the executable is to be changed, too. It is the first object.
    with_executable: bool,
    is_first: bool,
    /// How many words of the executable were changed.
    changed: usize,
    /// Whether every word could be changed.
    is_whole: bool,
    /// Whether a module imports a call that nobody can follow.
    is_unseen: bool,
}

/// Replaces the functions in the executable and in all modules. False if a word could not be
/// changed, or if the executable has none.
pub(crate) fn replace(table: &[Replacement]) -> bool {
    let walk = walk(table, true);
    walk.is_whole && walk.changed > 0
}

/// The same in the modules that are loaded by now. False if a word could not be changed, or if one
/// of them has files written in a way that nobody can follow.
pub(crate) fn replace_in_modules(table: &[Replacement]) -> bool {
    let walk = walk(table, false);
    walk.is_whole && !walk.is_unseen
}

fn walk(table: &[Replacement], with_executable: bool) -> Walk<'_> {
    let mut walk = Walk {
        table,
        with_executable,
        is_first: true,
        changed: 0,
        is_whole: true,
        is_unseen: false,
    };
    // SAFETY: `each_object` takes the pointer as what it is, and only during the call.
    unsafe { libc::dl_iterate_phdr(Some(each_object), (&raw mut walk).cast()) };
    walk
}

unsafe extern "C" fn each_object(
    info: *mut dl_phdr_info,
    _bytes: usize,
    walk: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes its own structure, and `walk` passes its `Walk`.
    let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk<'_>>()) };
    let is_executable = core::mem::take(&mut walk.is_first);
    let tables = tables_of(info);
    if tables.strings == 0 || tables.symbols == 0 || tables.is_own {
        return 0;
    }
    let is_wanted = match is_executable {
        true => walk.with_executable,
        false => defines(&tables, MODULE),
    };
    if is_wanted {
        walk.is_unseen |= !is_executable && imports_unseen(&tables);
        match replaced(&tables, walk.table) {
            Some(count) if is_executable => walk.changed = count,
            Some(_) => {}
            None => walk.is_whole = false,
        }
    }
    0
}

/// Replaces the functions in one object. Returns how many words have them; `None` if one of them
/// could not be changed.
fn replaced(tables: &Tables, table: &[Replacement]) -> Option<usize> {
    let mut count: usize = 0;
    for entry in entries(tables) {
        let Some(by) = wanted(tables, &entry, table) else {
            continue;
        };
        if !set(tables, tables.base.wrapping_add(entry.r_offset), by) {
            return None;
        }
        count = count.saturating_add(1);
    }
    Some(count)
}

/// Whether an object imports a call that nobody can follow.
fn imports_unseen(tables: &Tables) -> bool {
    entries(tables).any(|entry| {
        let found = symbol(tables, entry.r_info >> 32);
        found.is_some_and(|(name, is_defined)| !is_defined && UNSEEN.contains(&name))
    })
}

/// The relocations of an object.
fn entries(tables: &Tables) -> impl Iterator<Item = Elf64_Rela> {
    const BYTES: u64 = size_of::<Elf64_Rela>() as u64;
    let tables = tables.relocations.into_iter();
    tables.flat_map(|(at, bytes)| {
        (0..bytes / BYTES).map(move |index| {
            let entry = at.wrapping_add(index * BYTES);
            // SAFETY: the dynamic section says that so many entries are there.
            unsafe { ptr::read_unaligned(entry as *const Elf64_Rela) }
        })
    })
}

/// The replacement of the function that a relocation is about.
fn wanted(
    tables: &Tables,
    entry: &Elf64_Rela,
    table: &[Replacement],
) -> Option<fn() -> *const c_void> {
    let kind = entry.r_info & 0xFFFF_FFFF;
    if ![kinds::ABSOLUTE, kinds::DATA, kinds::JUMP].contains(&kind) || entry.r_addend != 0 {
        return None;
    }
    let (name, is_defined) = symbol(tables, entry.r_info >> 32)?;
    if is_defined {
        return None;
    }
    let found = table.iter().find(|it| it.names.contains(&name));
    found.map(|replacement| replacement.by)
}

/// The name of a symbol, and whether the object itself defines it.
fn symbol(tables: &Tables, index: u64) -> Option<(&'static CStr, bool)> {
    let at = index.wrapping_mul(size_of::<Elf64_Sym>() as u64);
    let at = tables.symbols.wrapping_add(at) as *const Elf64_Sym;
    // SAFETY: relocations and the hash table name symbols of the object's own table.
    let symbol = unsafe { ptr::read_unaligned(at) };
    if symbol.st_name == 0 {
        return None;
    }
    let name = tables.strings.wrapping_add(u64::from(symbol.st_name));
    // SAFETY: the names of symbols end with a zero.
    let name = unsafe { CStr::from_ptr(name as *const _) };
    Some((name, symbol.st_shndx != 0))
}

/// Whether an object defines a symbol that the linker can find. Without a table it finds none, and
/// the server has the linker look for what makes a module.
fn defines(tables: &Tables, name: &CStr) -> bool {
    match (tables.gnu_hash, tables.old_hash) {
        (0, 0) => false,
        (0, at) => defines_by_old(tables, at, name),
        (at, _) => defines_by_gnu(tables, at, name),
    }
}

/// A word of a hash table.
fn word(at: u64) -> u32 {
    // SAFETY: the table has this word, as far as its own numbers say.
    unsafe { ptr::read_unaligned(at as *const u32) }
}

///   buckets 4 | first symbol 4 | words of the filter 4 | shift 4 | filter 8 each |
///   buckets 4 each | chain 4 for each symbol from the first one on; the last of a bucket is odd
fn defines_by_gnu(tables: &Tables, table: u64, name: &CStr) -> bool {
    let (buckets, first, filters) = (
        word(table),
        word(table.wrapping_add(4)),
        word(table.wrapping_add(8)),
    );
    let Some(bucket) = gnu_hash_of(name).checked_rem(buckets) else {
        return false;
    };
    let at = table.wrapping_add(16 + u64::from(filters) * 8);
    let chain = at.wrapping_add(u64::from(buckets) * 4);
    let mut index = word(at.wrapping_add(u64::from(bucket) * 4));
    while index >= first && index != 0 {
        if symbol(tables, u64::from(index)) == Some((name, true)) {
            return true;
        }
        if word(chain.wrapping_add(u64::from(index.wrapping_sub(first)) * 4)) & 1 != 0 {
            break;
        }
        index = index.wrapping_add(1);
    }
    false
}

///   buckets 4 | symbols 4 | buckets 4 each | chain 4 for each symbol: the next one, 0 at the end
fn defines_by_old(tables: &Tables, table: u64, name: &CStr) -> bool {
    let (buckets, symbols) = (word(table), word(table.wrapping_add(4)));
    let Some(bucket) = old_hash_of(name).checked_rem(buckets) else {
        return false;
    };
    let at = table.wrapping_add(8);
    let chain = at.wrapping_add(u64::from(buckets) * 4);
    let mut index = word(at.wrapping_add(u64::from(bucket) * 4));
    // A chain that has a circle ends, too.
    for _ in 0..symbols {
        if index == 0 || index >= symbols {
            return false;
        }
        if symbol(tables, u64::from(index)) == Some((name, true)) {
            return true;
        }
        index = word(chain.wrapping_add(u64::from(index) * 4));
    }
    false
}

fn gnu_hash_of(name: &CStr) -> u32 {
    let bytes = name.to_bytes().iter();
    bytes.fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
    })
}

fn old_hash_of(name: &CStr) -> u32 {
    const HIGH: u32 = 0xF000_0000;
    let bytes = name.to_bytes().iter();
    bytes.fold(0, |hash: u32, byte| {
        let hash = hash.wrapping_shl(4).wrapping_add(u32::from(*byte));
        (hash ^ ((hash & HIGH) >> 24)) & !HIGH
    })
}

/// Writes an address into a word that may be read-only.
fn set(tables: &Tables, at: u64, by: fn() -> *const c_void) -> bool {
    // SAFETY: the word holds the address of a function, and can be read.
    if unsafe { ptr::read_volatile(at as *const *const c_void) } == by() {
        return true;
    }
    // SAFETY: sysconf only answers a question.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let Ok(page) = u64::try_from(page) else {
        return false;
    };
    let start = at & !(page.wrapping_sub(1));
    let Ok(length) = usize::try_from(at.wrapping_add(8).wrapping_sub(start)) else {
        return false;
    };
    let start = start as *mut c_void;
    let protect = |rights: c_int| {
        // SAFETY: the page is one of the object's data, and stays readable.
        unsafe { libc::mprotect(start, length, rights) == 0 }
    };
    if !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return false;
    }
    // SAFETY: the word holds the address of a function of the same type, and is writable now. The
    // server has one thread.
    unsafe { ptr::write_volatile(at as *mut *const c_void, by()) };
    let (from, to) = tables.read_only;
    // The linker protects whole pages only. A word that stays writable does no harm: it was
    // writable before the linker was done.
    if at >= from && (at & !page.wrapping_sub(1)).wrapping_add(page) <= to {
        protect(libc::PROT_READ);
    }
    true
}

/// Finds the tables of an object.
fn tables_of(info: &dl_phdr_info) -> Tables {
    let mut tables = Tables {
        base: info.dlpi_addr,
        ..Tables::default()
    };
    let own = each_object as *const c_void as u64;
    for header in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: there are so many headers.
        let header: &Elf64_Phdr = unsafe { &*info.dlpi_phdr.add(header) };
        let from = info.dlpi_addr.wrapping_add(header.p_vaddr);
        let to = from.wrapping_add(header.p_memsz);
        match header.p_type {
            libc::PT_DYNAMIC => read_dynamic(from, &mut tables),
            libc::PT_GNU_RELRO => tables.read_only = (from, to),
            libc::PT_LOAD => tables.is_own |= (from..to).contains(&own),
            _ => {}
        }
    }
    tables
}

fn read_dynamic(mut at: Elf64_Addr, tables: &mut Tables) {
    let base = tables.base;
    // The linker leaves the kernel's own object as it is.
    let address = |value: u64| match value < base {
        true => base.wrapping_add(value),
        false => value,
    };
    loop {
        // SAFETY: the section ends with an entry of zeros.
        let entry = unsafe { &*(at as *const Dynamic) };
        match entry.tag {
            0 => return,
            DT_STRTAB => tables.strings = address(entry.value),
            DT_SYMTAB => tables.symbols = address(entry.value),
            DT_GNU_HASH => tables.gnu_hash = address(entry.value),
            DT_HASH => tables.old_hash = address(entry.value),
            DT_RELA => tables.relocations[0].0 = address(entry.value),
            DT_RELASZ => tables.relocations[0].1 = entry.value,
            DT_JMPREL => tables.relocations[1].0 = address(entry.value),
            DT_PLTRELSZ => tables.relocations[1].1 = entry.value,
            _ => {}
        }
        at = at.wrapping_add(size_of::<Dynamic>() as u64);
    }
}
