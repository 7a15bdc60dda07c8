//! Replaces functions that the executable imports: the words from which it takes their addresses.
//!
//! PostgreSQL's programs bind all of them at the start, and the linker makes the words read-only
//! after that. So each is made writable for the moment of the change.

#![allow(unsafe_code, reason = "the dynamic section is a web of pointers")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use libc::{Elf64_Addr, Elf64_Rela, Elf64_Sym, Elf64_Xword, dl_phdr_info};

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
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

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
    relocations: [(u64, u64); 2],
}

/// Replaces the functions in the executable. Returns how many words were changed; 0 if one of them
/// could not be.
pub(crate) fn replace(table: &[Replacement]) -> usize {
    let mut tables = Tables::default();
    // SAFETY: `first_object` takes the pointer as what it is, and only during the call.
    unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut tables).cast()) };
    if tables.strings == 0 || tables.symbols == 0 {
        return 0;
    }
    let mut changed: usize = 0;
    for (at, bytes) in tables.relocations {
        let count = bytes / size_of::<Elf64_Rela>() as u64;
        for index in 0..count {
            let entry = at.wrapping_add(index * size_of::<Elf64_Rela>() as u64);
            // SAFETY: the dynamic section says that so many entries are there.
            let entry = unsafe { ptr::read_unaligned(entry as *const Elf64_Rela) };
            let Some(by) = wanted(&tables, &entry, table) else {
                continue;
            };
            if !set(tables.base.wrapping_add(entry.r_offset), by) {
                return 0;
            }
            changed = changed.saturating_add(1);
        }
    }
    changed
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
    let symbol = (entry.r_info >> 32).wrapping_mul(size_of::<Elf64_Sym>() as u64);
    let symbol = tables.symbols.wrapping_add(symbol) as *const Elf64_Sym;
    // SAFETY: a relocation names a symbol of the object's own table.
    let symbol = unsafe { ptr::read_unaligned(symbol) };
    if symbol.st_shndx != 0 || symbol.st_name == 0 {
        return None;
    }
    let name = tables.strings.wrapping_add(u64::from(symbol.st_name));
    // SAFETY: the names of symbols end with a zero.
    let name = unsafe { CStr::from_ptr(name as *const _) };
    let found = table.iter().find(|it| it.names.contains(&name));
    found.map(|replacement| replacement.by)
}

/// Writes an address into a word that may be read-only.
fn set(at: u64, by: fn() -> *const c_void) -> bool {
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
        // SAFETY: the page is one of the executable's data, and stays readable.
        unsafe { libc::mprotect(start, length, rights) == 0 }
    };
    if !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return false;
    }
    // SAFETY: the word holds the address of a function of the same type, and is writable now. The
    // server has one thread.
    unsafe { ptr::write_volatile(at as *mut *const c_void, by()) };
    // A word that stays writable does no harm: it was writable before the linker was done.
    protect(libc::PROT_READ);
    true
}

/// Finds the tables of the first object, which is the executable.
unsafe extern "C" fn first_object(
    info: *mut dl_phdr_info,
    _bytes: usize,
    tables: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes its own structure, and `replace` passes its `Tables`.
    let (info, tables) = unsafe { (&*info, &mut *tables.cast::<Tables>()) };
    tables.base = info.dlpi_addr;
    for header in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: there are so many headers.
        let header = unsafe { &*info.dlpi_phdr.add(header) };
        if header.p_type == libc::PT_DYNAMIC {
            let at = info.dlpi_addr.wrapping_add(header.p_vaddr);
            read_dynamic(at, tables);
        }
    }
    1
}

fn read_dynamic(mut at: Elf64_Addr, tables: &mut Tables) {
    loop {
        // SAFETY: the section ends with an entry of zeros.
        let entry = unsafe { &*(at as *const Dynamic) };
        match entry.tag {
            0 => return,
            DT_STRTAB => tables.strings = entry.value,
            DT_SYMTAB => tables.symbols = entry.value,
            DT_RELA => tables.relocations[0].0 = entry.value,
            DT_RELASZ => tables.relocations[0].1 = entry.value,
            DT_JMPREL => tables.relocations[1].0 = entry.value,
            DT_PLTRELSZ => tables.relocations[1].1 = entry.value,
            _ => {}
        }
        at = at.wrapping_add(size_of::<Dynamic>() as u64);
    }
}
