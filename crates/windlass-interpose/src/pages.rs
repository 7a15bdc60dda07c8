//! The pages of a file that a call is about to change: they are preserved before it begins.

#![allow(
    unsafe_code,
    reason = "a page is read into memory that nobody has filled"
)]

use core::ffi::{CStr, c_int};
use core::ops::Range;

use windlass_layout::hook::{
    Cause, Fault, FileKey, Memory, System, Waiter, blocks_of, first_needed, is_durable, preserve,
};
use windlass_layout::{Geometry, Slot, SlotEntry};

use crate::saved;
use crate::shared::Own;
use crate::system::{self, Patience};

/// The largest page that a server can be built with.
pub(crate) const PAGE_BYTES_MAX: usize = 32_768;
/// The digits of a descriptor behind "/proc/self/fd/".
const DESCRIPTOR_PATH: &[u8; 14] = b"/proc/self/fd/";

/// Memory for one page, where direct I/O can read into it. It is on the stack of the call.
#[repr(align(4096))]
pub(crate) struct Page(pub(crate) [u8; PAGE_BYTES_MAX]);

/// A file that is about to be changed.
#[derive(Clone, Copy)]
pub(crate) struct Changed {
    pub(crate) fd: c_int,
    pub(crate) key: FileKey,
}

/// Preserves the pages from byte `from` up to byte `to`, as far as a snapshot needs them. Most
/// writes find that all of theirs are preserved: that costs the same however many snapshots there
/// are, because the newest says so.
pub(crate) fn keep(memory: Memory<'_>, own: &mut Own, file: Changed, from: u64, to: u64) {
    let Ok(geometry) = Geometry::new(memory.page_bytes()) else {
        return;
    };
    let page = u64::from(geometry.page_bytes());
    let start = from / page;
    let mut end = to.div_ceil(page);
    // To ask all snapshots where the file ends takes longer than to look at one block.
    if end.saturating_sub(start) > 1 {
        end = end.min(u64::from(blocks_of(memory, file.key)));
    }
    if let Some(first) = first_needed(memory, file.key, start..end) {
        copy(memory, own, file, geometry, first..end);
    }
}

/// Preserves those of the blocks that a snapshot needs. It has a page on its stack, which is not
/// to cost anything where no page is copied.
#[inline(never)]
fn copy(memory: Memory<'_>, own: &mut Own, file: Changed, geometry: Geometry, blocks: Range<u64>) {
    let mut page = core::mem::MaybeUninit::<Page>::uninit();
    // SAFETY: every pattern of bits is a byte, and only what was read is used. Filling it first
    // would cost more than the copy.
    let bytes = unsafe { &mut (*page.as_mut_ptr()).0 };
    let Some(bytes) = bytes.get_mut(..geometry.page_bytes() as usize) else {
        return;
    };
    let mut copier = Copier {
        fd: file.fd,
        store: &mut own.store,
        version: memory.store_version(),
        memory,
        geometry,
        bytes,
        patience: match is_durable(memory) {
            true => Patience::for_sync(),
            false => Patience::default(),
        },
    };
    for block in blocks {
        preserve(memory, &own.process, file.key, block, &mut copier);
    }
}

/// Copies pages from a file into the store.
pub(crate) struct Copier<'a> {
    /// The file.
    pub(crate) fd: c_int,
    pub(crate) store: &'a mut Option<(u32, c_int)>,
    pub(crate) version: u32,
    pub(crate) memory: Memory<'a>,
    pub(crate) geometry: Geometry,
    pub(crate) bytes: &'a mut [u8],
    pub(crate) patience: Patience,
}

impl Copier<'_> {
    /// The store's descriptor. An old one belongs to a store that is gone.
    fn store(&mut self) -> Result<c_int, c_int> {
        match *self.store {
            Some((version, fd)) if version == self.version => return Ok(fd),
            Some((_, fd)) => system::close(fd),
            None => {}
        }
        *self.store = None;
        let mut path = [0; 4097];
        if self.memory.store_path(&mut path) == 0 {
            return Err(libc::ENOENT);
        }
        let path = CStr::from_bytes_until_nul(&path).map_err(|_| libc::ENAMETOOLONG)?;
        // Nobody waits for the reader of a pipe that somebody put in its place.
        let flags = libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let fd = system::open(path, flags, 0)?;
        if !self.is_store(fd) {
            system::close(fd);
            return Err(libc::ESTALE);
        }
        *self.store = Some((self.version, fd));
        Ok(fd)
    }

    /// Whether an open file is the store. Whoever may write the directory could put a file of their
    /// own in its place, and read every page of the database there. Who owns it says less: some
    /// file systems show other owners.
    fn is_store(&self, fd: c_int) -> bool {
        let known = self.memory.store_identity();
        let found = system::identity_of(fd);
        found.is_some_and(|found| known == 0 || found == known)
    }

    /// Reads the block through a descriptor of its own: the caller's is only for writing.
    fn read_again(&mut self, offset: u64) -> Result<usize, c_int> {
        let mut path = [0; 32];
        let number = u32::try_from(self.fd).map_err(|_| libc::EBADF)?;
        let digits = decimal(number);
        let text = DESCRIPTOR_PATH.iter().chain(&digits);
        path.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        let path = CStr::from_bytes_until_nul(&path).map_err(|_| libc::EBADF)?;
        let fd = system::open(path, libc::O_RDONLY, 0)?;
        let count = system::read_at(fd, self.bytes, offset);
        system::close(fd);
        count
    }
}

/// A number in decimal digits with a zero byte behind them.
pub(crate) fn decimal(mut number: u32) -> [u8; 11] {
    let mut reversed = [0; 11];
    let mut count: usize = 0;
    for digit in reversed.iter_mut().take(10) {
        let [last, ..] = (number % 10).to_le_bytes();
        *digit = b'0'.wrapping_add(last);
        number /= 10;
        count = count.saturating_add(1);
        if number == 0 {
            break;
        }
    }
    let mut digits = [0; 11];
    let written = reversed.iter().take(count).rev();
    digits
        .iter_mut()
        .zip(written)
        .for_each(|(to, from)| *to = *from);
    digits
}

fn store_fault(errno: c_int) -> Fault {
    Fault {
        cause: match errno {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Cause::StoreFull,
            _ => Cause::Store,
        },
        errno,
    }
}

impl System for Copier<'_> {
    fn read(&mut self, block: u64) -> Result<u32, Fault> {
        let offset = block.wrapping_mul(u64::from(self.geometry.page_bytes()));
        let count = match system::read_at(self.fd, self.bytes, offset) {
            Err(libc::EBADF) => self.read_again(offset),
            read => read,
        };
        let count = count.map_err(|errno| Fault {
            cause: Cause::Source,
            errno,
        })?;
        if let Some(rest) = self.bytes.get_mut(count..) {
            rest.fill(0);
        }
        Ok(crate::checksum::crc32c(self.bytes))
    }

    fn write(&mut self, slot: Slot, entry: &SlotEntry) -> Result<(), Fault> {
        let written = self.store().and_then(|fd| {
            system::write_at(fd, self.bytes, self.geometry.page_offset(slot))?;
            system::write_at(fd, &entry.encode(), self.geometry.entry_offset(slot))
        });
        written.map_err(store_fault)
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.store().and_then(system::sync).map_err(store_fault)
    }

    fn forget(&mut self, index: u32) {
        saved::forget(index);
    }

    fn now(&mut self) -> Option<u32> {
        system::now_seconds()
    }

    fn free_mib(&mut self) -> Option<u32> {
        system::free_mib(self.store().ok()?)
    }

    fn tell_lost(&mut self, cause: Cause) {
        system::say_if_free(match cause {
            Cause::Size => b"windlass: a snapshot is lost: it grew beyond its limit\n",
            Cause::Age => b"windlass: a snapshot is lost: it became as old as it may\n",
            Cause::Free => b"windlass: a snapshot is lost: its disk has too little free space\n",
            Cause::StoreFull => b"windlass: a snapshot is lost: its store is full\n",
            _ => b"windlass: a snapshot is lost: a page could not be kept\n",
        });
    }
}

impl Waiter for Copier<'_> {
    fn is_alive(&mut self, pid: u32) -> bool {
        self.patience.is_alive(pid)
    }

    fn wait(&mut self, turn: u32) -> bool {
        self.patience.wait(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_digits() {
        for (number, text) in [(0, "0"), (7, "7"), (1024, "1024"), (u32::MAX, "4294967295")] {
            let digits = decimal(number);
            let digits = CStr::from_bytes_until_nul(&digits).map(CStr::to_bytes);
            assert_eq!(digits, Ok(text.as_bytes()));
        }
    }
}
