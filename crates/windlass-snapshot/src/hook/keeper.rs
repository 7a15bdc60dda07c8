//! Writes of our own to a cluster's files while its server is stopped: the hook does not see them,
//! so what it would do before each of them is done here.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use windlass_engine::free_bytes_beside;
use windlass_engine::media::crc32c;
use windlass_image::layout::hook::{
    CONTROL_TOLD_BYTES, Cause, Change, Fault, Process, Stamp, System, Waiter, blocks_of,
    is_durable, lose_all, lose_unpinned, needs_pin, preserve,
};
use windlass_image::layout::{Geometry, Slot, SlotEntry};

use super::control::{Control, Patience, key_of};
use super::durable;
use super::error::HookError;
use super::examined::examine;
use super::graves;
use super::store::PreservedPages;
use super::{locked, untouched};

/// Preserves pages for the snapshots of a cluster.
pub(crate) struct Keeper {
    control: Control,
    process: Process,
    geometry: Geometry,
    /// `None` if it is gone. A page that has to be kept cannot be, and its snapshots are lost.
    store: Option<File>,
}

impl Keeper {
    /// Of the cluster in this data directory. `None` if it has no hook.
    pub(crate) fn open(data: &Path) -> Result<Option<Self>, HookError> {
        let control = match Control::open(data) {
            Err(HookError::NotLoaded { .. } | HookError::Version { .. }) => return Ok(None),
            control => control?,
        };
        let memory = control.memory();
        // Until the first snapshot says the size of a page there is no page to keep.
        let Ok(geometry) = Geometry::new(memory.page_bytes()) else {
            return Ok(None);
        };
        let store = PreservedPages::own_file(memory)?.map(|(_, file)| file);
        let mut process = Process::new();
        process.join(memory, std::process::id(), &mut Patience::default());
        Ok(Some(Self {
            process,
            geometry,
            store,
            control,
        }))
    }

    /// Tells that any file is changed from now on.
    pub(crate) fn begin(&mut self) {
        let memory = self.control.memory();
        let now = untouched::now();
        self.process.note_change(memory, Change::All, now);
    }

    /// Preserves what lies from `from` to `to`, before it is overwritten or cut off.
    pub(crate) fn keep(&mut self, file: &File, from: u64, to: u64) -> std::io::Result<()> {
        let memory = self.control.memory();
        let key = key_of(&file.metadata()?);
        let page = u64::from(memory.page_bytes());
        let end = to.div_ceil(page).min(u64::from(blocks_of(memory, key)));
        let mut copier = Copier {
            file,
            store: self.store.as_ref(),
            geometry: self.geometry,
            page: vec![0; memory.page_bytes() as usize],
            patience: Patience::default(),
            data: self.control.data(),
            forgotten: Ok(()),
        };
        self.process.enter(memory, &mut Patience::default());
        for block in from / page..end {
            preserve(memory, &self.process, key, block, &mut copier);
        }
        self.process.leave(memory);
        // A power cut would bring back a snapshot without the page that could not be kept.
        let other = |error: HookError| std::io::Error::other(error.to_string());
        copier.forgotten.map_err(other)
    }

    /// Gives a file another name before it is removed, if a snapshot needs the file and has no link
    /// to it. `relative` is its path below the data directory.
    pub(crate) fn pin(&mut self, path: &Path, relative: &Path) -> Result<(), HookError> {
        let memory = self.control.memory();
        let Some(found) = examine(path)?.filter(|found| needs_pin(memory, found.key)) else {
            return Ok(());
        };
        self.process.enter(memory, &mut Patience::default());
        let kept = graves::keep((path, relative), found.key, self.control.data());
        let mut forgotten = Ok(());
        if let Err(error) = &kept {
            let fault = Fault {
                cause: Cause::Name,
                errno: error.raw_os_error().unwrap_or(0),
            };
            lose_unpinned(memory, found.key, fault, |index| {
                let gone = durable::removed(self.control.data(), index);
                forgotten = std::mem::replace(&mut forgotten, Ok(())).and(gone);
            });
        }
        self.process.leave(memory);
        forgotten
    }

    /// Tells the hook what pg_control becomes, before it does: on disk, too, if a snapshot is to
    /// outlive a power cut. The next server takes another content for the work of somebody who
    /// wrote without the hook.
    pub(crate) fn note_control(&self, bytes: &[u8]) -> Result<(), HookError> {
        let Some(told) = bytes.get(..CONTROL_TOLD_BYTES) else {
            return Ok(());
        };
        let memory = self.control.memory();
        let after = crc32c(told);
        if is_durable(memory) {
            let before = memory.control_crc();
            let stamp = Stamp {
                before,
                after,
                at: untouched::now(),
                is_last: false,
            };
            durable::write_stamp(self.control.data(), stamp)?;
        }
        memory.set_control_crc(after);
        Ok(())
    }

    /// Gives up every snapshot: somebody wrote without the hook.
    pub(crate) fn lose_all(&self) -> Result<(), HookError> {
        let (cause, errno) = (Cause::Unseen, 0);
        durable::forget_all(self.control.data(), self.control.memory())?;
        lose_all(self.control.memory(), Fault { cause, errno }, |index| {
            durable::forget(self.control.data(), index);
        });
        Ok(())
    }

    /// Whether pg_control is what the hook saw last, and the files are as it left them. If not,
    /// somebody wrote without the hook.
    pub(crate) fn has_seen(&self, bytes: &[u8]) -> bool {
        let seen = self.control.memory().control_crc();
        let told = bytes.get(..CONTROL_TOLD_BYTES);
        let is_seen = told.is_some_and(|told| seen == 0 || seen == crc32c(told));
        is_seen && untouched::changed(&self.control).is_none()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        locked::note_done(&self.control, &mut self.process);
    }
}

/// Copies pages of a file into the store.
struct Copier<'a> {
    file: &'a File,
    store: Option<&'a File>,
    geometry: Geometry,
    page: Vec<u8>,
    patience: Patience,
    /// The data directory.
    data: &'a Path,
    /// Whether everything that was lost is forgotten.
    forgotten: Result<(), HookError>,
}

impl Copier<'_> {
    fn store(&self) -> Result<&File, Fault> {
        let gone = std::io::Error::from(rustix::io::Errno::NOENT);
        self.store.ok_or_else(|| fault(Cause::Store, &gone))
    }
}

fn fault(cause: Cause, error: &std::io::Error) -> Fault {
    let errno = error.raw_os_error().unwrap_or(0);
    Fault { cause, errno }
}

impl System for Copier<'_> {
    fn read(&mut self, block: u64) -> Result<u32, Fault> {
        let mut offset = block * u64::from(self.geometry.page_bytes());
        let mut left = &mut self.page[..];
        while !left.is_empty() {
            let read = self.file.read_at(left, offset);
            let count = read.map_err(|error| fault(Cause::Source, &error))?;
            if count == 0 {
                left.fill(0);
                break;
            }
            offset += count as u64;
            left = &mut left[count..];
        }
        Ok(crc32c(&self.page))
    }

    fn write(&mut self, slot: Slot, entry: &SlotEntry) -> Result<(), Fault> {
        let (page, at) = (
            self.geometry.page_offset(slot),
            self.geometry.entry_offset(slot),
        );
        let store = self.store()?;
        let written = store.write_all_at(&self.page, page);
        let written = written.and_then(|()| store.write_all_at(&entry.encode(), at));
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull => fault(Cause::StoreFull, &error),
            _ => fault(Cause::Store, &error),
        })
    }

    fn sync(&mut self) -> Result<(), Fault> {
        let synced = self.store()?.sync_data();
        synced.map_err(|error| fault(Cause::Store, &error))
    }

    fn forget(&mut self, index: u32) {
        let gone = durable::removed(self.data, index);
        self.forgotten = std::mem::replace(&mut self.forgotten, Ok(())).and(gone);
    }

    fn now(&mut self) -> Option<u32> {
        u32::try_from(jiff::Timestamp::now().as_second()).ok()
    }

    fn free_mib(&mut self) -> Option<u32> {
        let free = free_bytes_beside(self.store?).ok()?;
        u32::try_from(free >> 20).ok()
    }

    /// `snapshot list` shows it.
    fn tell_lost(&mut self, _cause: Cause) {}
}

impl Waiter for Copier<'_> {
    fn is_alive(&mut self, pid: u32) -> bool {
        self.patience.is_alive(pid)
    }

    fn wait(&mut self, turn: u32) -> bool {
        self.patience.wait(turn)
    }
}
