//! Which pages the server will write soon: those that are dirty in its shared buffers.
//!
//! The server's array of descriptors is looked at without its locks, and never written to. What is
//! found is only a guess: a page that was chosen wrongly is copied for nothing, and one that was
//! missed is copied by its writer.
//!
//!   descriptor  64 bytes: tablespace | database | relation | fork | block | its number | state ...
//!
//! PostgreSQL 14 to 19 have these words at these places. A descriptor whose number is another one
//! is passed over.

#![allow(
    unsafe_code,
    reason = "the descriptors are memory of the server, found by name"
)]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::pages::decimal;
use crate::system;

const DESCRIPTOR_WORDS: usize = 16;
/// The page is dirty, valid, has a tag, and outlives a crash.
const WANTED: u32 = 1 << 23 | 1 << 24 | 1 << 25 | 1 << 31;

const DEFAULT_SPACE: u32 = 1663;
const GLOBAL_SPACE: u32 = 1664;
const FORKS: [&[u8]; 4] = [b"", b"_fsm", b"_vm", b"_init"];
const SEGMENT_BYTES: u32 = 1 << 30;
const PATH_BYTES: usize = 128;
/// Where pg_control says which version the catalogs have.
const CATALOG_AT: u64 = 12;

type Descriptor = [AtomicU32; DESCRIPTOR_WORDS];

/// A page of a relation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag {
    space: u32,
    database: u32,
    relation: u32,
    fork: u32,
    block: u32,
}

impl Tag {
    /// No page.
    pub(crate) const NONE: Self = Self {
        space: 0,
        database: 0,
        relation: 0,
        fork: 0,
        block: 0,
    };

    /// A number that differs for most others, and is not 0.
    fn mixed(&self) -> u32 {
        let words = [self.database, self.relation, self.fork, self.block];
        let mixed = words.iter().fold(self.space, |mixed, word| {
            (mixed ^ word).wrapping_mul(0x9E37_79B1).rotate_left(13)
        });
        mixed | 1
    }

    /// Which of the relation's files has it, and which block of that file it is.
    pub(crate) const fn place(&self, page_bytes: u32) -> (u32, u32) {
        match SEGMENT_BYTES.checked_div(page_bytes) {
            Some(blocks) if blocks > 0 => (self.block / blocks, self.block % blocks),
            _ => (0, self.block),
        }
    }

    /// Whether two pages are in one file.
    pub(crate) fn is_beside(&self, other: &Self, page_bytes: u32) -> bool {
        let file = |it: &Self| (it.space, it.database, it.relation, it.fork);
        file(self) == file(other) && self.place(page_bytes).0 == other.place(page_bytes).0
    }
}

/// The path of a file below the data directory.
pub(crate) struct Path {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl Path {
    /// The file that has a page. `None` for a fork that no version has.
    pub(crate) fn of(tag: &Tag, page_bytes: u32, version: (c_int, u32)) -> Option<Self> {
        let fork = FORKS.get(usize::try_from(tag.fork).ok()?)?;
        let mut path = Self {
            bytes: [0; PATH_BYTES],
            length: 0,
        };
        path.add_directory(tag, version);
        path.add_number(tag.relation);
        path.add(fork);
        let (segment, _) = tag.place(page_bytes);
        if segment > 0 {
            path.add(b".");
            path.add_number(segment);
        }
        Some(path)
    }

    fn add_directory(&mut self, tag: &Tag, (major, catalog): (c_int, u32)) {
        match tag.space {
            GLOBAL_SPACE => return self.add(b"global/"),
            DEFAULT_SPACE => self.add(b"base/"),
            space => {
                self.add(b"pg_tblspc/");
                self.add_number(space);
                self.add(b"/PG_");
                self.add_number(major.unsigned_abs());
                self.add(b"_");
                self.add_number(catalog);
                self.add(b"/");
            }
        }
        self.add_number(tag.database);
        self.add(b"/");
    }

    /// The last byte stays zero. No path is as long as that.
    fn add(&mut self, bytes: &[u8]) {
        let places = self.bytes.iter_mut().take(PATH_BYTES - 1);
        for (place, byte) in places.skip(self.length).zip(bytes) {
            *place = *byte;
        }
        self.length = self.length.saturating_add(bytes.len());
    }

    fn add_number(&mut self, number: u32) {
        let digits = decimal(number);
        let digits = CStr::from_bytes_until_nul(&digits).unwrap_or(c"");
        self.add(digits.to_bytes());
    }

    pub(crate) fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// The server's descriptors, and for each of them which page was found in it last.
pub(crate) struct Buffers {
    descriptors: &'static [Descriptor],
    seen: &'static mut [u32],
    next: usize,
    /// The version of the server, and that of its catalogs.
    pub(crate) version: (c_int, u32),
}

impl Buffers {
    /// Those of this server; `None` if they are not where they are expected.
    pub(crate) fn find() -> Option<Self> {
        let count: *const c_int = symbol(c"NBuffers")?.cast_const().cast();
        let first: *const *const Descriptor = symbol(c"BufferDescriptors")?.cast_const().cast();
        // SAFETY: the server has such variables.
        let (count, first) = unsafe { (usize::try_from(*count).ok()?, *first) };
        if first.is_null() || count == 0 {
            return None;
        }
        // SAFETY: the server made so many descriptors, and they stay until it ends.
        let descriptors = unsafe { core::slice::from_raw_parts(first, count) };
        Some(Self {
            descriptors,
            seen: zeros(count)?,
            next: 0,
            version: (system::server_major()?, catalog_version()?),
        })
    }

    /// Forgets which pages were found before.
    pub(crate) fn forget(&mut self) {
        self.seen.fill(0);
    }

    /// Finds dirty pages that were not found before, in at most `most` descriptors. Returns those
    /// that it has put into `into`.
    pub(crate) fn find_dirty<'a>(&mut self, most: usize, into: &'a mut [Tag]) -> &'a mut [Tag] {
        let count = self.descriptors.len();
        let mut found = 0;
        for _ in 0..most.min(count) {
            let index = self.next;
            let each = self.descriptors.get(index).zip(self.seen.get_mut(index));
            let Some((place, (descriptor, seen))) = into.get_mut(found).zip(each) else {
                break;
            };
            self.next = index.wrapping_add(1).checked_rem(count).unwrap_or(0);
            let Some(tag) = dirty(descriptor, index) else {
                continue;
            };
            if *seen != tag.mixed() {
                *seen = tag.mixed();
                *place = tag;
                found = found.saturating_add(1);
            }
        }
        into.get_mut(..found).unwrap_or_default()
    }
}

fn dirty(descriptor: &Descriptor, index: usize) -> Option<Tag> {
    let [space, database, relation, fork, block, number, state, ..] = descriptor;
    let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
    let is_dirty = load(state) & WANTED == WANTED;
    let is_it = usize::try_from(load(number)) == Ok(index);
    (is_dirty && is_it).then(|| Tag {
        space: load(space),
        database: load(database),
        relation: load(relation),
        fork: load(fork),
        block: load(block),
    })
}

/// So many numbers, all of them 0, for as long as the process lives.
fn zeros(count: usize) -> Option<&'static mut [u32]> {
    let bytes = count.checked_mul(size_of::<u32>())?;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let found = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
    // SAFETY: the mapping is as long as that, and nobody else has it.
    (found != libc::MAP_FAILED)
        .then(|| unsafe { core::slice::from_raw_parts_mut(found.cast(), count) })
}

/// A variable or a function of the server.
pub(crate) fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn catalog_version() -> Option<u32> {
    let fd = system::open(c"global/pg_control", libc::O_RDONLY, 0).ok()?;
    let mut bytes = [0; 4];
    let read = system::read_at(fd, &mut bytes, CATALOG_AT);
    system::close(fd);
    (read == Ok(4)).then(|| u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag {
        space: DEFAULT_SPACE,
        database: 5,
        relation: 16_384,
        fork: 0,
        block: 7,
    };

    #[test]
    fn a_page_is_in_the_file_that_the_server_has_it_in() {
        let second = Tag {
            fork: 1,
            block: 131_075,
            ..TAG
        };
        let global = Tag {
            space: GLOBAL_SPACE,
            database: 0,
            relation: 1262,
            ..TAG
        };
        let elsewhere = Tag {
            space: 16_400,
            fork: 2,
            ..TAG
        };
        for (tag, place, expected) in [
            (TAG, (0, 7), c"base/5/16384"),
            (second, (1, 3), c"base/5/16384_fsm.1"),
            (global, (0, 7), c"global/1262"),
            (
                elsewhere,
                (0, 7),
                c"pg_tblspc/16400/PG_15_202209061/5/16384_vm",
            ),
        ] {
            let path = Path::of(&tag, 8192, (15, 202_209_061));
            assert_eq!(path.as_ref().map(Path::name), Some(expected));
            assert_eq!(tag.place(8192), place);
        }
        assert!(Path::of(&Tag { fork: 4, ..TAG }, 8192, (15, 1)).is_none());
        assert!(TAG.is_beside(&Tag { block: 8, ..TAG }, 8192));
        assert!(!TAG.is_beside(
            &Tag {
                block: 131_072,
                ..TAG
            },
            8192
        ));
    }

    #[test]
    fn only_a_dirty_page_in_its_own_descriptor_is_found() {
        let descriptor = |number: u32, state: u32| {
            let words = [DEFAULT_SPACE, 5, 16_384, 0, 7, number, state];
            let mut words = words.into_iter();
            core::array::from_fn(|_| AtomicU32::new(words.next().unwrap_or_default()))
        };
        assert!(dirty(&descriptor(3, WANTED | 2), 3) == Some(TAG));
        assert!(dirty(&descriptor(3, WANTED), 4).is_none());
        assert!(dirty(&descriptor(3, WANTED & !(1 << 23)), 3).is_none());
    }
}
