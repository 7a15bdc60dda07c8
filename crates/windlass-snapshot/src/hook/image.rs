//! A snapshot by the hook as an image.
//!
//!   page of a block --> in the map of this snapshot or a newer one? --yes--> store, checked
//!                            \--no--> source, through the link --> asked again: still no --> right
//!
//! Invariants
//! - No byte is given out before it is certain that the snapshot still had it: the map is asked
//!   again after the source was read, and a snapshot that was lost meanwhile is an error. So is one
//!   whose database a server has written to without the hook.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use quick_cache::sync::Cache;
use windlass_engine::media::{FileEntry, FileNo, FileTable, fitted};
use windlass_engine::open_regular;
use windlass_image::layout::hook::{FileKey, Found, Reading, find};
use windlass_image::{Image, ImageError};
use windlass_postgres::DatabaseFacts;

use super::control::{Control, Patience, key_of};
use super::error::HookError;
use super::examined::examine_open;
use super::graves;
use super::record::{Document, Kept, copied, is_damage, sum_of};
use super::remove::{control_of, why_gone};
use super::seen::Seen;
use super::state::why_lost;
use super::store::{PreservedPages, Wanted};
use super::taken::is_paged;

/// How many files are kept open.
const OPEN_FILES_MAX: usize = 256;
/// At most so many blocks are read at once.
const RUN_BLOCKS_MAX: u64 = 128;

static READERS: AtomicUsize = AtomicUsize::new(0);

/// A snapshot by the hook.
pub struct HookImage {
    directory: PathBuf,
    document: Document,
    files: FileTable,
    /// Positions in the table, by number.
    positions: Vec<(FileNo, usize)>,
    control: Control,
    seen: Seen,
    store: OnceLock<PreservedPages>,
    open: Cache<usize, Arc<File>>,
}

impl HookImage {
    /// Opens the snapshot in a directory.
    pub fn open(directory: &Path) -> Result<Self, HookError> {
        Self::open_of(directory, None)
    }

    /// The same, if the record of the snapshot has this checksum of its document. Every copy is
    /// checked at once: a server that finds a damaged one would say something else.
    pub(crate) fn open_of(directory: &Path, recorded: Option<u32>) -> Result<Self, HookError> {
        let lost = |why: &str| HookError::Lost { why: why.into() };
        let document = Document::read_of(directory, recorded)?;
        let document = document.ok_or_else(|| lost("it was never completed"))?;
        let control = control_of(&document)?;
        let control = control.ok_or_else(|| lost(&why_gone(&document)))?;
        let name = |wanted: &dyn Fn(FileKey) -> bool| document.name_of(directory, wanted);
        if let Some(why) = why_lost(&control, document.number, name) {
            return Err(HookError::Lost { why });
        }
        let files = document.table(directory)?;
        let positions = files.0.iter().zip(0..).map(|(entry, at)| (entry.file, at));
        let mut positions: Vec<_> = positions.collect();
        positions.sort_unstable();
        let image = Self {
            directory: directory.into(),
            document,
            files,
            positions,
            seen: Seen::of(&control),
            control,
            store: OnceLock::new(),
            open: Cache::new(OPEN_FILES_MAX),
        };
        for (position, kept) in image.document.kept.iter().enumerate() {
            if *kept == Kept::Copied {
                image.open_copied(position)?;
            }
        }
        Ok(image)
    }

    /// What the files are.
    pub fn database(&self) -> &DatabaseFacts {
        &self.document.database
    }

    /// Whether these bytes of the database's file are those of this snapshot, because nobody has
    /// written to them since. Whole blocks, and nobody may write now.
    pub(crate) fn is_unwritten(&self, file: FileNo, now: &File, start: u64, end: u64) -> bool {
        let Ok(position) = self.position(file) else {
            return false;
        };
        let Some(key) = self.document.kept[position].key() else {
            return false;
        };
        let is_same = now.metadata().is_ok_and(|found| key_of(&found) == key);
        let page = u64::from(self.document.page_bytes);
        let part = Part {
            entry: &self.files.0[position],
            position,
            key,
            offset: start,
        };
        is_same
            && self
                .is_source(part, start / page, (end - start).div_ceil(page))
                .unwrap_or(false)
    }

    fn position(&self, file: FileNo) -> Result<usize, ImageError> {
        let found = self
            .positions
            .binary_search_by_key(&file, |(number, _)| *number);
        found
            .map(|at| self.positions[at].1)
            .map_err(|_| ImageError::NoFile { file })
    }

    fn path(&self, position: usize) -> PathBuf {
        let file = self.files.0[position].file;
        match self.document.kept[position] {
            Kept::Linked {
                directory, name, ..
            } => {
                let links = self.document.links.get(directory);
                let links = links.map_or(Path::new(""), PathBuf::as_path);
                links.join(name.to_string())
            }
            Kept::Named { .. } => {
                let path = &self.files.0[position].path;
                self.document.data.join(OsStr::from_bytes(path))
            }
            Kept::Copied | Kept::Nothing => copied(&self.directory, file),
        }
    }

    /// The places of a file that has no link: its own, and then the graveyards. The hook makes a
    /// grave before the name goes, so a file that is nowhere has gone without the hook.
    fn open_named(&self, position: usize, key: FileKey, born: i64) -> io::Result<File> {
        let graves = self.document.graves.iter();
        let graves = graves.map(|grave| grave.join(graves::name_of(key)));
        for path in std::iter::once(self.path(position)).chain(graves) {
            let file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let found = examine_open(&file)?;
            if found.key == key && found.born == born {
                return Ok(file);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn file(&self, position: usize) -> Result<Arc<File>, ImageError> {
        self.open.get_or_insert_with(&position, || {
            let file = match self.document.kept[position] {
                Kept::Named {
                    device,
                    inode,
                    born,
                } => self.open_named(position, FileKey { device, inode }, born),
                Kept::Copied => return self.open_copied(position).map(Arc::new),
                _ => File::open(self.path(position)),
            };
            file.map(Arc::new)
                .map_err(|source| self.fault("open", position, source))
        })
    }

    /// Opens a copy, and checks it. One of an older version of Windlass has no checksum.
    fn open_copied(&self, position: usize) -> Result<File, ImageError> {
        let (entry, path) = (&self.files.0[position], self.path(position));
        let damaged = |what: String| ImageError::SnapshotFile {
            path: path.clone(),
            what,
        };
        let fault = |error: io::Error| match is_damage(&error) {
            true => damaged(error.to_string()),
            false => self.fault("read", position, error),
        };
        let file = match open_regular(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("it is not there".to_owned()));
            }
            opened => opened.map_err(fault)?,
        };
        let length = file.metadata().map_err(fault)?.len();
        if length < entry.bytes {
            return Err(damaged(format!("it ends after {length} bytes")));
        }
        let is_summed = entry.flags.crc_known;
        if is_summed && sum_of(&file).map_err(fault)? != (entry.crc32c, entry.bytes) {
            return Err(damaged("its checksum is wrong".to_owned()));
        }
        Ok(file)
    }

    fn fault(&self, operation: &'static str, position: usize, source: io::Error) -> ImageError {
        ImageError::Directory {
            operation,
            path: self.path(position),
            source,
        }
    }

    fn store(&self) -> Result<&PreservedPages, ImageError> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let memory = self.control.memory();
        let path = PreservedPages::path_of(memory).unwrap_or_default();
        let opened = PreservedPages::open(&path, self.document.page_bytes);
        let opened = opened.map_err(|error| ImageError::Directory {
            operation: "open",
            path,
            source: io::Error::other(error),
        })?;
        Ok(self.store.get_or_init(|| opened))
    }

    /// Reads a part of a file that the server may be writing to.
    fn read_linked(&self, part: Part<'_>, into: &mut [u8]) -> Result<(), ImageError> {
        let page = u64::from(self.document.page_bytes);
        let mut done = 0;
        while done < into.len() {
            let at = part.offset + done as u64;
            let (block, within) = (at / page, at % page);
            let left = (into.len() - done) as u64 + within;
            let wanted = left.div_ceil(page).min(RUN_BLOCKS_MAX);
            let (found, blocks) = self.run(part, block, wanted)?;
            let count = (blocks * page - within).min((into.len() - done) as u64);
            let target = &mut into[done..done + fitted::<usize, _>(count)];
            let is_read = match found {
                None => {
                    self.read_source(part, at, target)?
                        && self.is_source(part, block, blocks)?
                        && self.is_seen(part)?
                }
                Some(slot) => self.read_slots(part, (block, slot), within, target)?,
            };
            if is_read {
                done += target.len();
            }
        }
        Ok(())
    }

    /// Where a block is, and for how many blocks from it on that is the same: the source, or a run
    /// of slots.
    fn run(&self, part: Part<'_>, block: u64, most: u64) -> Result<(Option<u32>, u64), ImageError> {
        let first = self.find(part, block)?;
        let most = match first {
            Some(slot) => most.min(u64::from(self.store()?.run(slot))),
            None => most,
        };
        for (next, further) in (1..most).zip(1..) {
            if self.find(part, block + next)? != first.map(|slot| slot + further) {
                return Ok((first, next));
            }
        }
        Ok((first, most))
    }

    /// Fails if somebody has written without the hook. A page that was read before may not be that
    /// of the snapshot then.
    fn is_seen(&self, part: Part<'_>) -> Result<bool, ImageError> {
        match self.seen.holds(&self.control) && self.is_own(part)? {
            true => Ok(true),
            false => Err(self.lost(part)),
        }
    }

    /// Whether nobody has changed the file without the hook. Some large files are anybody's.
    fn is_own(&self, part: Part<'_>) -> Result<bool, ImageError> {
        if !is_paged(&part.entry.path) {
            return Ok(true);
        }
        let file = self.file(part.position)?;
        let of = (&*file, self.document.number);
        let own = self.seen.is_own(&self.control, of);
        own.map_err(|error| self.fault("examine", part.position, error))
    }

    fn is_source(&self, part: Part<'_>, block: u64, blocks: u64) -> Result<bool, ImageError> {
        for block in block..block + blocks {
            if self.find(part, block)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn find(&self, part: Part<'_>, block: u64) -> Result<Option<u32>, ImageError> {
        let (memory, number) = (self.control.memory(), self.document.number);
        match find(memory, number, part.key, block) {
            Found::Slot(slot) => Ok(Some(slot)),
            Found::Source => Ok(None),
            Found::Nowhere => Err(self.lost(part)),
        }
    }

    fn lost(&self, part: Part<'_>) -> ImageError {
        let why = why_lost(&self.control, self.document.number, |wanted| {
            self.document.name_of(&self.directory, wanted)
        });
        ImageError::SnapshotLost {
            path: part.entry.path_lossy(),
            offset: part.offset,
            why: why.unwrap_or_else(|| "its file was removed without the hook".into()),
        }
    }

    /// Reads the source. What lies behind its end was cut off before the snapshot was complete, and
    /// reads as zeros. Replay cuts it off again.
    fn read_source(&self, part: Part<'_>, at: u64, into: &mut [u8]) -> Result<bool, ImageError> {
        let file = self.file(part.position)?;
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], at + done as u64) {
                Ok(0) => into[done..].fill(0),
                Ok(count) => {
                    done += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.fault("read", part.position, error)),
            }
            break;
        }
        Ok(true)
    }

    /// Reads from a run of slots, from a byte of the first on. False if a page was moved meanwhile.
    fn read_slots(
        &self,
        part: Part<'_>,
        (block, slot): (u64, u32),
        within: u64,
        into: &mut [u8],
    ) -> Result<bool, ImageError> {
        let page = self.document.page_bytes as usize;
        let within: usize = fitted(within);
        if within == 0 && into.len().is_multiple_of(page) {
            return self.read_pages(part, (block, slot), into);
        }
        // The file ends within a page, or somebody asks for a part of one.
        let mut pages = vec![0; (within + into.len()).next_multiple_of(page)];
        let is_read = self.read_pages(part, (block, slot), &mut pages)?;
        into.copy_from_slice(&pages[within..within + into.len()]);
        Ok(is_read)
    }

    fn read_pages(
        &self,
        part: Part<'_>,
        (block, slot): (u64, u32),
        into: &mut [u8],
    ) -> Result<bool, ImageError> {
        let wanted = Wanted {
            key: part.key,
            block,
            number: self.document.number,
        };
        let read = self.store()?.read(slot, wanted, into);
        if read.map_err(|error| self.fault("read the store for", part.position, error))? {
            return Ok(true);
        }
        let page = self.document.page_bytes as usize;
        for ((block, slot), page) in (block..).zip(slot..).zip(into.chunks_exact_mut(page)) {
            let wanted = Wanted { block, ..wanted };
            let read = self.store()?.read(slot, wanted, page);
            let is_read =
                read.map_err(|error| self.fault("read the store for", part.position, error));
            if !is_read? && self.find(part, block)? == Some(slot) {
                return Err(ImageError::SnapshotPage {
                    path: part.entry.path_lossy(),
                    offset: block * u64::from(self.document.page_bytes),
                });
            }
        }
        Ok(false)
    }
}

/// A part of a file.
#[derive(Clone, Copy)]
struct Part<'a> {
    entry: &'a FileEntry,
    position: usize,
    key: FileKey,
    offset: u64,
}

impl Image for HookImage {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        let position = self.position(file)?;
        let entry = &self.files.0[position];
        let left = entry.bytes.saturating_sub(offset).min(into.len() as u64);
        let into = &mut into[..fitted::<usize, _>(left)];
        match self.document.kept[position] {
            Kept::Nothing => into.fill(0),
            Kept::Copied => {
                let file = self.file(position)?;
                let read = file.read_exact_at(into, offset);
                read.map_err(|error| self.fault("read", position, error))?;
            }
            Kept::Linked { device, inode, .. } | Kept::Named { device, inode, .. } => {
                let part = Part {
                    entry,
                    position,
                    key: FileKey { device, inode },
                    offset,
                };
                let start = READERS.fetch_add(1, Ordering::Relaxed);
                let memory = self.control.memory();
                let pid = std::process::id();
                let place = Reading::begin(memory, pid, start, &mut Patience::default());
                let place = place.ok_or_else(|| self.lost(part))?;
                if matches!(self.document.kept[position], Kept::Named { .. }) {
                    // Another file may have its number by now, and the store pages of that one.
                    self.file(position).map_err(|_| self.lost(part))?;
                }
                self.read_linked(part, into)?;
                drop(place);
            }
        }
        Ok(into.len())
    }

    fn identity(&self) -> Option<[u8; 32]> {
        Some(self.document.identity)
    }
}
