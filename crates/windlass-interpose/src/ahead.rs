//! The helper: a process of the server that copies pages for durable snapshots before their writers
//! come, with one sync for many of them.
//!
//!   dirty buffers --> file and block --> copied, cell marked --> ... --> sync --> marks taken away
//!
//! It is a background worker (`worker.rs`). Nothing waits for it, and without it each writer copies
//! and syncs for itself. docs/decisions/0020-durable-snapshots.md says why that is right.

#![allow(unsafe_code, reason = "the room for a turn belongs to one process")]

use core::cell::UnsafeCell;
use core::ffi::c_int;

use windlass_layout::Geometry;
use windlass_layout::hook::{
    Ahead, FileKey, Memory, System, blocks_of, is_durable, lose_ahead, settle_ahead,
};

use crate::buffers::{Buffers, Path, Tag};
use crate::guard::enter;
use crate::pages::{Copier, PAGE_BYTES_MAX, Page};
use crate::system::{self, Patience};

/// So many pages have one sync. All of them are among the slots that are checked after a power cut.
const PAGES_MAX: usize = 1024;
/// So many descriptors are looked at before it rests: those of a gigabyte.
const DESCRIPTORS_MAX: usize = 131_072;
const REST_NANOS: libc::c_long = 50_000_000;
/// While there is no durable snapshot.
const IDLE_NANOS: libc::c_long = 500_000_000;

/// What a turn needs room for.
struct Room {
    tags: [Tag; PAGES_MAX],
    copied: [Option<Ahead>; PAGES_MAX],
    page: Page,
}

struct OneThread(UnsafeCell<Room>);

// SAFETY: only the helper uses it, and it has one thread.
unsafe impl Sync for OneThread {}

static ROOM: OneThread = OneThread(UnsafeCell::new(Room {
    tags: [Tag::NONE; _],
    copied: [None; _],
    page: Page([0; PAGE_BYTES_MAX]),
}));

/// The helper's state between its turns.
#[derive(Default)]
pub(crate) struct Helper {
    buffers: Option<Buffers>,
    /// Which snapshots there were in the last turn.
    changes: u32,
    store: Option<(u32, c_int)>,
}

impl Helper {
    /// Copies what is dirty and was not copied yet. Returns how long to rest.
    pub(crate) fn turn(&mut self, memory: Memory<'_>) -> libc::c_long {
        if !is_durable(memory) {
            return IDLE_NANOS;
        }
        if self.buffers.is_none() {
            self.buffers = Buffers::find();
        }
        let (Some(buffers), Ok(geometry)) = (&mut self.buffers, Geometry::new(memory.page_bytes()))
        else {
            return IDLE_NANOS;
        };
        if memory.changes() != self.changes {
            self.changes = memory.changes();
            buffers.forget();
        }
        // SAFETY: there is one turn at a time.
        let room = unsafe { &mut *ROOM.0.get() };
        let Some(bytes) = room.page.0.get_mut(..geometry.page_bytes() as usize) else {
            return IDLE_NANOS;
        };
        let tags = buffers.find_dirty(DESCRIPTORS_MAX, &mut room.tags);
        tags.sort_unstable();
        let mut turn = Turn {
            memory,
            version: buffers.version,
            copied: &mut room.copied,
            count: 0,
            copier: Copier {
                fd: -1,
                store: &mut self.store,
                version: memory.store_version(),
                memory,
                geometry,
                bytes,
                patience: Patience::none(),
            },
        };
        let page_bytes = geometry.page_bytes();
        for file in tags.chunk_by(|one, other| one.is_beside(other, page_bytes)) {
            turn.copy(file);
        }
        turn.end();
        REST_NANOS
    }
}

/// One turn: pages that are copied, and then synced together.
struct Turn<'a> {
    memory: Memory<'a>,
    version: (c_int, u32),
    copied: &'a mut [Option<Ahead>],
    count: usize,
    copier: Copier<'a>,
}

impl Turn<'_> {
    /// Copies pages of one file.
    fn copy(&mut self, tags: &[Tag]) {
        let page_bytes = self.copier.geometry.page_bytes();
        let path = tags.first();
        let path = path.and_then(|tag| Path::of(tag, page_bytes, self.version));
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
        let opened = path.map(|path| system::open(path.name(), flags, 0));
        let Some(Ok(fd)) = opened else { return };
        self.copier.fd = fd;
        if let Some(stat) = system::stat_of(fd).filter(|stat| stat.is_regular) {
            self.copy_of(stat.key, tags);
        }
        system::close(fd);
    }

    fn copy_of(&mut self, key: FileKey, tags: &[Tag]) {
        let page_bytes = self.copier.geometry.page_bytes();
        let blocks = blocks_of(self.memory, key);
        let each = tags.iter().map(|tag| tag.place(page_bytes).1);
        for block in each.filter(|block| *block < blocks) {
            let Some(entered) = enter() else { break };
            let copied = entered.copy_ahead((key, u64::from(block)), &mut self.copier);
            entered.call(|| ());
            let place = self.copied.get_mut(self.count);
            if let Some((place, page)) = place.zip(copied) {
                *place = Some(page);
                self.count = self.count.saturating_add(1);
            }
        }
    }

    /// Makes durable what was copied, and says so.
    fn end(mut self) {
        if self.count == 0 {
            return;
        }
        let synced = self.copier.sync();
        for page in self.copied.iter().take(self.count).flatten() {
            let Some(entered) = enter() else { break };
            if synced.is_ok() {
                settle_ahead(self.memory, page);
            }
            entered.call(|| ());
        }
        if let Err(fault) = synced
            && let Some(entered) = enter()
        {
            lose_ahead(self.memory, fault, &mut self.copier);
            entered.call(|| ());
        }
    }
}
