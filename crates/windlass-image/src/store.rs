//! The page store: pages one after another in one file, found by their slots, each with a checksum.
//!
//! It is not a sparse copy of the files, because pages written all over a table would give such a
//! copy tens of thousands of extents, and removing it would take a minute. windlass-layout says
//! where each byte is.
//!
//! Invariants
//! - A page is read only if its checksum is right and it is the page of that file and block.
//!   Otherwise that page is an error, and no other.
//! - A slot holds at most one page that its owner's map or journal mentions.
//! - What a sync made durable is not written again in place. Otherwise a power cut could leave a
//!   page that is neither the old one nor the new one.
//! - Nothing of a file changes before its header shows that it is this store.
//! - A freed slot is used again only after the record that freed it is durable. Otherwise, after a
//!   power cut, the old owner could come back and find the bytes of the new one.
//!
//! Locking: a sync begins only while nobody writes (`Writing`). The list of slots is locked for
//! moments. Whoever reads or writes a slot holds a lock of the slot's owner.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use windlass_engine::media::{crc32c, fitted};
use windlass_layout::{ENTRY_BYTES, Geometry, HEADER_BYTES, SLOT_LAST, SlotEntry, StoreHeader};

pub use windlass_layout::Slot;

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOwner {
    /// The number of the file, as the user of the store counts.
    pub file: u64,
    /// Which page of the file.
    pub block: u64,
}

/// Why a page cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is no store of these pages, or its header is damaged.
    #[error("its header is damaged or that of another store")]
    Header,
    /// One slot is in use twice.
    #[error("slot {slot} is in use twice")]
    Twice {
        /// The slot.
        slot: Slot,
    },
    /// A page is not what was written.
    #[error("the page at offset {offset} is not what was written")]
    Damaged {
        /// Where the page is in the file.
        offset: u64,
    },
}

/// The file of pages.
#[derive(Debug)]
pub struct PageStore {
    file: File,
    geometry: Geometry,
    slots: Mutex<Slots>,
    /// Writers share it. Whoever begins a sync has it alone for a moment.
    epoch: RwLock<()>,
}

#[derive(Debug, Default)]
struct Slots {
    /// Slots from here on have never been used.
    next: Slot,
    /// These slots may be used.
    free: Vec<Slot>,
    /// These slots were freed after the last sync began.
    freed: Vec<Slot>,
    /// A bit for each slot: whether it was taken after the last sync began.
    fresh: Vec<u64>,
}

impl Slots {
    fn mark_fresh(&mut self, slot: Slot) {
        let (word, bit) = bit(slot);
        if self.fresh.len() <= word {
            self.fresh.resize(word + 1, 0);
        }
        self.fresh[word] |= bit;
    }

    fn is_fresh(&self, slot: Slot) -> bool {
        let (word, bit) = bit(slot);
        self.fresh.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

fn bit(slot: Slot) -> (usize, u64) {
    (fitted(slot / u64::BITS), 1 << (slot % u64::BITS))
}

/// The right to write. While it lives, no sync begins.
#[derive(Debug)]
pub struct Writing<'a> {
    store: &'a PageStore,
    _epoch: RwLockReadGuard<'a, ()>,
}

impl PageStore {
    /// Opens a store in which exactly the slots of `used` hold pages. If none is used, the file may
    /// also be empty: it becomes a store. Every other file stays as it is, and is an error.
    pub fn open(
        file: File,
        header: &StoreHeader,
        used: impl IntoIterator<Item = Slot>,
    ) -> Result<Self, StoreError> {
        let mut used: Vec<_> = used.into_iter().collect();
        used.sort_unstable();
        if let Some(pair) = used.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(StoreError::Twice { slot: pair[0] });
        }
        check_header(&file, header, used.is_empty())?;
        if used.is_empty() {
            file.write_all_at(&header.encode(), 0)?;
        }
        let next = used.last().map_or(0, |last| last + 1);
        let mut free = Vec::new();
        let mut expected = 0;
        for slot in used {
            free.extend(expected..slot);
            expected = slot + 1;
        }
        free.reverse();
        // Cuts off pages that nobody refers to. Whoever wrote them was killed before that.
        file.set_len(header.geometry.length(next))?;
        Ok(Self {
            file,
            geometry: header.geometry,
            slots: Mutex::new(Slots {
                next,
                free,
                ..Slots::default()
            }),
            epoch: RwLock::default(),
        })
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        fitted(self.geometry.page_bytes())
    }

    /// Begins to write. It waits while a sync begins.
    pub fn writing(&self) -> Writing<'_> {
        Writing {
            store: self,
            _epoch: self.epoch.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Gives back slots that nothing refers to.
    pub fn give_back(&self, runs: &[Range<Slot>]) {
        let mut slots = self.lock();
        runs.iter().for_each(|run| slots.free.extend(run.clone()));
    }

    /// Frees slots. The record that frees them must have been written already.
    pub fn free(&self, freed: impl IntoIterator<Item = Slot>) {
        self.lock().freed.extend(freed);
    }

    /// Begins a sync. Nobody writes while `mark` runs: it notes up to where its user's records will
    /// be durable. Returns the slots that were freed by then; they go to [`PageStore::reuse`] once
    /// these records are durable, or back to [`PageStore::free`].
    pub fn begin_sync<T>(&self, mark: impl FnOnce() -> T) -> (Vec<Slot>, T) {
        let _epoch = self.epoch.write().unwrap_or_else(PoisonError::into_inner);
        let freed = {
            let mut slots = self.lock();
            slots.fresh.clear();
            std::mem::take(&mut slots.freed)
        };
        (freed, mark())
    }

    /// Makes every page durable that was written before.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Lets slots be used again.
    pub fn reuse(&self, freed: Vec<Slot>) {
        if freed.is_empty() {
            return;
        }
        let mut slots = self.lock();
        slots.free.extend(freed);
        // In descending order, because slots are taken from the end: so they are taken as runs.
        slots.free.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Approximate number of slots that hold pages, and number of free slots.
    pub fn counts(&self) -> (u64, u64) {
        let slots = self.lock();
        let idle = (slots.free.len() + slots.freed.len()) as u64;
        (u64::from(slots.next) - idle, idle)
    }

    /// Reads from `within` of the first page on: neighbouring pages of one file, in consecutive
    /// slots.
    pub fn read(
        &self,
        slot: Slot,
        owner: PageOwner,
        within: usize,
        into: &mut [u8],
    ) -> Result<(), StoreError> {
        let (page, mut rest) = (self.page_bytes(), into);
        let (mut slot, mut owner, mut within) = (slot, owner, within);
        let mut pages = Vec::new();
        while !rest.is_empty() {
            let wanted: u32 = fitted((within + rest.len()).div_ceil(page));
            let count = wanted.min(self.geometry.run(slot));
            pages.resize(count as usize * page, 0);
            self.read_pages(slot, owner, &mut pages)?;
            let (now, later) = rest.split_at_mut(rest.len().min(pages.len() - within));
            now.copy_from_slice(&pages[within..within + now.len()]);
            (slot, owner.block) = (slot + count, owner.block + u64::from(count));
            (rest, within) = (later, 0);
        }
        Ok(())
    }

    /// Reads whole pages of one group, and checks each.
    fn read_pages(&self, slot: Slot, owner: PageOwner, pages: &mut [u8]) -> Result<(), StoreError> {
        let page = self.page_bytes();
        let mut entries = vec![0; pages.len() / page * ENTRY_BYTES];
        self.read_at(self.geometry.entry_offset(slot), &mut entries)?;
        self.read_at(self.geometry.page_offset(slot), pages)?;
        let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
        let slots = (slot..).zip(owner.block..);
        for ((entry, bytes), (slot, block)) in entries.iter().zip(pages.chunks(page)).zip(slots) {
            let expected = SlotEntry {
                file: owner.file,
                block,
                owner: 0,
                page_crc: crc32c(bytes),
            };
            if SlotEntry::decode(entry) != Ok(Some(expected)) {
                let offset = self.geometry.page_offset(slot);
                return Err(StoreError::Damaged { offset });
            }
        }
        Ok(())
    }

    /// Reads bytes of the file. Those beyond its end are zeros, and so no page.
    fn read_at(&self, offset: u64, mut into: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        while !into.is_empty() {
            match self.file.read_at(into, at) {
                Ok(0) => {
                    into.fill(0);
                    return Ok(());
                }
                Ok(count) => {
                    at += count as u64;
                    into = &mut into[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Accepts the page as it is, if its entry is that of its owner: a kill has cut off a write in
    /// place between the page and its entry. Only for pages that no sync covers.
    pub fn accept_torn(&self, slot: Slot, owner: PageOwner) -> Result<(), StoreError> {
        let (mut entry, mut page) = ([0; ENTRY_BYTES], vec![0; self.page_bytes()]);
        self.read_at(self.geometry.entry_offset(slot), &mut entry)?;
        self.read_at(self.geometry.page_offset(slot), &mut page)?;
        match SlotEntry::decode(&entry) {
            Ok(Some(found)) if (found.file, found.block) == (owner.file, owner.block) => {
                match crc32c(&page) == found.page_crc {
                    true => Ok(()),
                    false => Ok(self.write_entries(slot, owner, &page)?),
                }
            }
            _ => Ok(()),
        }
    }

    fn write_pages(&self, slot: Slot, owner: PageOwner, pages: &[u8]) -> io::Result<()> {
        self.file
            .write_all_at(pages, self.geometry.page_offset(slot))?;
        self.write_entries(slot, owner, pages)
    }

    fn write_entries(&self, slot: Slot, owner: PageOwner, pages: &[u8]) -> io::Result<()> {
        let mut entries = Vec::with_capacity(pages.len() / self.page_bytes() * ENTRY_BYTES);
        for (page, block) in pages.chunks(self.page_bytes()).zip(owner.block..) {
            let entry = SlotEntry {
                file: owner.file,
                block,
                owner: 0,
                page_crc: crc32c(page),
            };
            entries.extend_from_slice(&entry.encode());
        }
        self.file
            .write_all_at(&entries, self.geometry.entry_offset(slot))
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a file that is no store with this header, before anything of it changes. A store in
/// which nothing is used yet may lack its header: its first opening was cut off.
fn check_header(file: &File, header: &StoreHeader, is_new: bool) -> Result<(), StoreError> {
    let mut found = [0; HEADER_BYTES];
    let length = file.metadata()?.len();
    let there: usize = fitted(length.min(HEADER_BYTES as u64));
    file.read_exact_at(&mut found[..there], 0)?;
    let mut own = found.iter().zip(header.encode());
    let is_begun =
        length <= header.geometry.length(0) && own.all(|(found, own)| *found == own || *found == 0);
    match StoreHeader::decode(&found) == Ok(*header) || is_new && is_begun {
        true => Ok(()),
        false => Err(StoreError::Header),
    }
}

impl Writing<'_> {
    /// Takes `count` slots, as runs; `None` when all slot numbers are in use.
    pub fn take(&self, count: u32) -> Option<Vec<Range<Slot>>> {
        let mut slots = self.store.lock();
        let mut runs: Vec<Range<Slot>> = Vec::new();
        for _ in 0..count {
            let slot = match slots.free.pop() {
                Some(slot) => slot,
                None => {
                    let slot = slots.next;
                    slots.next = Some(slot).filter(|slot| *slot < SLOT_LAST)? + 1;
                    slot
                }
            };
            slots.mark_fresh(slot);
            match runs.last_mut() {
                Some(run) if run.end == slot => run.end += 1,
                _ => runs.push(slot..slot + 1),
            }
        }
        Some(runs)
    }

    /// Whether a page may be written in place: no sync has begun since its slot was taken.
    pub fn is_fresh(&self, slot: Slot) -> bool {
        self.store.lock().is_fresh(slot)
    }

    /// Writes whole pages: neighbours of one file, to consecutive slots.
    pub fn write(&self, slot: Slot, owner: PageOwner, pages: &[u8]) -> Result<(), StoreError> {
        let (mut slot, mut owner, mut rest) = (slot, owner, pages);
        while !rest.is_empty() {
            let page = self.store.page_bytes();
            let wanted: u32 = fitted(rest.len() / page);
            let count = wanted.min(self.store.geometry.run(slot));
            let (now, later) = rest.split_at(count as usize * page);
            self.store.write_pages(slot, owner, now)?;
            (slot, owner.block) = (slot + count, owner.block + u64::from(count));
            rest = later;
        }
        Ok(())
    }

    /// Writes a part of a page that is fresh.
    pub fn overwrite(
        &self,
        slot: Slot,
        owner: PageOwner,
        within: usize,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let mut page = vec![0; self.store.page_bytes()];
        if bytes.len() < page.len() {
            self.store.read_pages(slot, owner, &mut page)?;
        }
        page[within..within + bytes.len()].copy_from_slice(bytes);
        self.store.write_pages(slot, owner, &page)?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test are small"
)]
mod tests;
