//! Brings durable snapshots back when the server starts in a system that has started again.
//!
//!   stamp right? --> saved indexes --> chain --> entries of the store --> map
//!
//! It runs in the server's first process, before recovery changes the first page. What cannot be
//! brought back is unlinked, so that no later start takes it for whole.
//!
//! A page whose copy is damaged among the newest ones was not durable when the power was cut. Then
//! the source still holds it, and its checksum says so. Its entry is cleared then, because after
//! the next power cut the source may hold another page. If the source does not hold it, the
//! snapshots are lost.

use core::ffi::{CStr, c_int};

use windlass_layout::hook::{
    AREA_BYTES_AT, Cause, FILE_WORDS, Fault, FileRecord, Memory, Moment, Phase,
    SAVED_DIRECTORIES_MAX, SAVED_DIRECTORY_BYTES, SAVED_HEADER_BYTES, SNAPSHOTS_MAX,
    SavedDirectory, SavedHeader, Snapshot, Unpublished, lose_all, publish, restore,
    set_last_change,
};
use windlass_layout::{ENTRY_BYTES, Geometry, HEADER_BYTES, Slot, SlotEntry, StoreHeader};
use windlass_layout::{SLOT_LAST, crc32c_more};

use crate::pages::{PAGE_BYTES_MAX, decimal};
use crate::saved::{self, Path};
use crate::system;

/// The newest slots, whose pages are read. The power may have been cut before they were durable.
const SLOTS_CHECKED: u32 = 16_384;
const WORD_BYTES: u64 = 4;
/// Indexes and maps begin at a multiple of so many words.
const AREA_ALIGNED: u64 = 1024;
const CHUNK_BYTES: usize = 4096;
const PATH_BYTES: usize = SAVED_DIRECTORY_BYTES + 16;

/// Fills a new memory, whose file this is, with the durable snapshots of the server whose data
/// directory is the current one. `control` is the checksum of pg_control.
pub(crate) fn recover(memory: Memory<'_>, fd: c_int, control: u32) {
    let stamp = saved::last_stamp();
    let is_as_left = stamp.is_some_and(|it| control == it.before || control == it.after);
    let mut area = AREA_BYTES_AT / WORD_BYTES;
    let mut found: u64 = 0;
    let mut number = 0;
    for index in 0..SNAPSHOTS_MAX {
        let Ok(file) = open_saved(index) else {
            continue;
        };
        let loaded = match is_as_left {
            true => load(memory, (fd, &mut area), index, file),
            false => None,
        };
        system::close(file);
        match loaded {
            Some(found_number) => {
                found |= 1 << index;
                number = found_number.max(number);
            }
            None => saved::forget(index),
        }
    }
    if found == 0 {
        return;
    }
    let last = stamp.zip(system::now().zip(system::up_time()));
    let last = last.map_or(Moment::NEVER, |(stamp, (now, up))| {
        stamp.last_change(now, up)
    });
    set_last_change(memory, last);
    link(memory, found);
    if fill(memory, number).is_none() {
        let (cause, errno) = (Cause::Store, 0);
        lose_all(memory, Fault { cause, errno }, saved::forget);
        system::say(b"windlass: the pages of durable snapshots are not there: they are lost\n");
    }
}

fn open_saved(index: u32) -> Result<c_int, c_int> {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
    match system::open(Path::of(index).name(), flags, 0) {
        Err(errno) if errno != libc::ENOENT => {
            saved::forget(index);
            Err(errno)
        }
        opened => opened,
    }
}

/// Loads a saved index and makes room for the map. Returns the snapshot's number.
fn load(memory: Memory<'_>, (fd, area): (c_int, &mut u64), index: u32, file: c_int) -> Option<u32> {
    let mut bytes = [0; SAVED_HEADER_BYTES];
    read_all(file, &mut bytes, 0)?;
    let header = SavedHeader::decode(&bytes)?;
    (system::stat_at(c".")?.key == header.data).then_some(())?;
    is_of_one_store(memory, &header)?;
    let body_crc = directories(file, &header)?;
    let words = u64::from(header.records).checked_mul(FILE_WORDS as u64)?;
    let index_at = *area;
    let map_at = index_at.checked_add(words)?.next_multiple_of(AREA_ALIGNED);
    let cells = u64::from(header.cells);
    let end = map_at.checked_add(cells)?.next_multiple_of(AREA_ALIGNED);
    let bytes = (end.checked_sub(index_at)?).checked_mul(WORD_BYTES)?;
    system::allocate(fd, index_at.checked_mul(WORD_BYTES)?, bytes)?;
    *area = end;
    let snapshot = Snapshot::at(memory, index).filter(|it| it.state() == Phase::Free)?;
    let (records, cells) = (header.records, header.cells);
    snapshot.prepare(header.number, (index_at, records), (map_at, cells));
    if copy_index(file, &header, words, &snapshot, body_crc) != Some(header.body_crc) {
        snapshot.prepare(0, (0, 0), (0, 0));
        return None;
    }
    snapshot.set_limits(&header.limits);
    snapshot.set_tag(header.tag);
    snapshot.complete();
    Some(header.number)
}

/// All durable snapshots share one store. The first one says which.
fn is_of_one_store(memory: Memory<'_>, header: &SavedHeader) -> Option<()> {
    Geometry::new(header.page_bytes).ok()?;
    let path = CStr::from_bytes_until_nul(&header.store).ok()?;
    if memory.page_bytes() == 0 {
        memory.set_page_bytes(header.page_bytes);
        return memory.set_store(path.to_bytes()).then_some(());
    }
    let mut known = [0; 4097];
    let length = memory.store_path(&mut known);
    let is_same = known.get(..length) == Some(path.to_bytes());
    (is_same && memory.page_bytes() == header.page_bytes).then_some(())
}

/// The checksum of the directories of links, if each is there and on the device that it was on.
/// Otherwise the records would name other files.
fn directories(file: c_int, header: &SavedHeader) -> Option<u32> {
    let mut crc = 0;
    for number in 0..header.directories.min(SAVED_DIRECTORIES_MAX) {
        let bytes = directory(file, number)?;
        let directory = SavedDirectory::decode(&bytes);
        let path = CStr::from_bytes_until_nul(&directory.path).ok()?;
        let stat = system::stat_at(path)?;
        (stat.key.device == directory.device).then_some(())?;
        crc = crc32c_more(crc, &bytes);
    }
    Some(crc)
}

fn directory(file: c_int, number: u32) -> Option<[u8; SAVED_DIRECTORY_BYTES]> {
    let mut bytes = [0; SAVED_DIRECTORY_BYTES];
    let at = directory_at(number);
    read_all(file, &mut bytes, at)?;
    Some(bytes)
}

const fn directory_at(number: u32) -> u64 {
    SAVED_HEADER_BYTES as u64 + number as u64 * SAVED_DIRECTORY_BYTES as u64
}

/// Copies the words of the index. Returns the checksum of everything behind the header.
fn copy_index(
    file: c_int,
    header: &SavedHeader,
    words: u64,
    snapshot: &Snapshot<'_>,
    mut crc: u32,
) -> Option<u32> {
    let start = directory_at(header.directories);
    let mut chunk = [0; CHUNK_BYTES];
    let mut word = 0;
    while word < words {
        let left = (words - word).saturating_mul(WORD_BYTES);
        let count = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let bytes = chunk.get_mut(..count)?;
        read_all(file, bytes, start.checked_add(word * WORD_BYTES)?)?;
        crc = crc32c_more(crc, bytes);
        for four in bytes.as_chunks::<4>().0 {
            snapshot.set_index_word(word, u32::from_le_bytes(*four));
            word += 1;
        }
    }
    Some(crc)
}

fn read_all(fd: c_int, into: &mut [u8], at: u64) -> Option<()> {
    let wanted = into.len();
    (system::read_at(fd, into, at) == Ok(wanted)).then_some(())
}

/// Publishes what was found, the oldest first.
fn link(memory: Memory<'_>, mut found: u64) {
    for _ in 0..SNAPSHOTS_MAX {
        let left = (0..SNAPSHOTS_MAX).filter(|index| found & 1 << index != 0);
        let each = left.filter_map(|index| Snapshot::at(memory, index));
        let Some(oldest) = each.min_by_key(Snapshot::number) else {
            return;
        };
        found &= !(1 << oldest.index());
        publish(memory, Unpublished(oldest));
    }
}

/// The store, as it was left.
struct Store {
    fd: c_int,
    geometry: Geometry,
    /// One more than the last slot that was used.
    slots: Slot,
}

/// Fills the maps from the entries of the store.
fn fill(memory: Memory<'_>, number: u32) -> Option<()> {
    let mut path = [0; 4097];
    memory.store_path(&mut path);
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let fd = system::open(path, libc::O_RDWR | libc::O_NOFOLLOW, 0).ok()?;
    let filled = fill_from(memory, fd, number);
    let identity = system::identity_of(fd);
    system::close(fd);
    // From now on another file of its name is not it.
    memory.set_store_identity(identity?);
    filled
}

fn fill_from(memory: Memory<'_>, fd: c_int, mut number: u32) -> Option<()> {
    let mut bytes = [0; HEADER_BYTES];
    read_all(fd, &mut bytes, 0)?;
    let geometry = StoreHeader::decode(&bytes).ok()?.geometry;
    (geometry.page_bytes() == memory.page_bytes()).then_some(())?;
    let mut store = Store {
        fd,
        geometry,
        slots: 0,
    };
    let mut slots = 0;
    store.each_entry(|slot, entry| {
        slots = slot.saturating_add(1);
        let [a, b, c, d, ..] = entry.owner.to_le_bytes();
        number = number.max(u32::from_le_bytes([a, b, c, d]));
        Some(())
    })?;
    store.slots = slots;
    memory.go_on(number, slots);
    store.each_entry(|slot, entry| {
        let is_there = |snapshot: &Snapshot<'_>, record: &FileRecord| {
            store.is_there(slot, entry, (snapshot, record))
        };
        restore(memory, slot, entry, is_there).then_some(())
    })?;
    system::sync(fd).ok()
}

impl Store {
    /// Calls a function with each entry. `None` if one is damaged, or the function says so.
    fn each_entry(&self, mut each: impl FnMut(Slot, &SlotEntry) -> Option<()>) -> Option<()> {
        let mut group = [0; PAGE_BYTES_MAX];
        let group = group.get_mut(..self.geometry.page_bytes() as usize)?;
        let mut first: Slot = 0;
        loop {
            let count = system::read_at(self.fd, group, self.geometry.entry_offset(first)).ok()?;
            let entries = group.get(..count)?.as_chunks::<ENTRY_BYTES>().0;
            for (bytes, slot) in entries.iter().zip(first..) {
                if let Some(entry) = SlotEntry::decode(bytes).ok()? {
                    each(slot, &entry)?;
                }
            }
            let next = first.checked_add(self.geometry.group_slots())?;
            if count < group.len() || next >= SLOT_LAST {
                return Some(());
            }
            first = next;
        }
    }

    /// Whether the store has the page of a slot. `Some(false)`: it was not durable, and the source
    /// still has it. `None`: nobody has it.
    fn is_there(
        &self,
        slot: Slot,
        entry: &SlotEntry,
        of: (&Snapshot<'_>, &FileRecord),
    ) -> Option<bool> {
        if slot.saturating_add(SLOTS_CHECKED) < self.slots {
            return Some(true);
        }
        let mut page = [0; PAGE_BYTES_MAX];
        let page = page.get_mut(..self.geometry.page_bytes() as usize)?;
        if is_page(self.fd, page, self.geometry.page_offset(slot), entry) {
            return Some(true);
        }
        let source = open_link(of)?;
        let offset = entry.block.checked_mul(page.len() as u64);
        let is_source = offset.is_some_and(|offset| is_page(source, page, offset, entry));
        system::close(source);
        is_source.then_some(())?;
        let none = [0; ENTRY_BYTES];
        system::write_at(self.fd, &none, self.geometry.entry_offset(slot)).ok()?;
        Some(false)
    }
}

/// Whether the page at an offset is the one that an entry means. Bytes behind the end are zeros.
fn is_page(fd: c_int, page: &mut [u8], offset: u64, entry: &SlotEntry) -> bool {
    let Ok(count) = system::read_at(fd, page, offset) else {
        return false;
    };
    if let Some(rest) = page.get_mut(count..) {
        rest.fill(0);
    }
    crate::checksum::crc32c(page) == entry.page_crc
}

/// Opens a file of a snapshot by its link.
fn open_link((snapshot, record): (&Snapshot<'_>, &FileRecord)) -> Option<c_int> {
    let file = system::open(Path::of(snapshot.index()).name(), libc::O_RDONLY, 0).ok()?;
    let bytes = directory(file, record.link.directory);
    system::close(file);
    let directory = SavedDirectory::decode(&bytes?);
    let directory = CStr::from_bytes_until_nul(&directory.path).ok()?;
    let mut path = [0; PATH_BYTES];
    let name = decimal(record.link.name);
    let parts = [directory.to_bytes(), b"/", &name];
    path.iter_mut()
        .zip(parts.into_iter().flatten())
        .for_each(|(to, from)| *to = *from);
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    system::open(path, libc::O_RDONLY | libc::O_NOFOLLOW, 0).ok()
}
