//! The pages of a cluster that goes back: what differs is kept first, and then written.
//!
//! Only the second pass writes, and only pages that the first one has kept, or that lie behind the
//! end of what there was. So the time of the second follows what differs.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileKind, fitted};
use windlass_engine::{Cancel, DirectFile};
use windlass_postgres::Control;
use windlass_sqlite::SharedExtents;

use super::kept::{self, Kept, Pages};
use super::target::{Part, Target};
use super::tree::{self, Tree};
use crate::behind::{BLOCK_BYTES, Behind, Block};
use crate::error::{Doing, SnapshotError};
use crate::hook::Keeper;
use crate::revert::Reverted;
use crate::undo::{PageRuns, UndoWriter};

/// Compares and writes the pages of a cluster.
pub(super) struct Writing<'a> {
    data: &'a Path,
    keeper: Option<Keeper>,
    page_bytes: u32,
    compared: u32,
    written: u32,
    /// The pages that were kept.
    runs: PageRuns,
    /// Three blocks: as it is now, in the snapshot, in the target.
    blocks: [Vec<u8>; 3],
    /// Writes to the cluster's files while pages are written.
    behind: Option<Behind>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(data: &'a Path, mut keeper: Option<Keeper>, page_bytes: u32) -> Self {
        if let Some(keeper) = &mut keeper {
            keeper.begin();
        }
        let block = || vec![0; BLOCK_BYTES];
        Self {
            data,
            keeper,
            page_bytes,
            compared: 0,
            written: 0,
            runs: PageRuns::default(),
            blocks: [block(), block(), block()],
            behind: None,
        }
    }

    /// Removes what is not in a tree, and makes what is missing.
    pub(super) fn shape(&mut self, version: &str, to: &Tree) -> Result<(), SnapshotError> {
        tree::shape((self.data, version), to, self.keeper.as_mut())
    }

    /// Keeps every page that differs from the snapshot or from the target, durably.
    pub(super) fn keep(
        &mut self,
        (live, pending): (Tree, &Path),
        control: &Control,
        target: &mut Target,
        cancel: &Cancel,
    ) -> Result<Kept, SnapshotError> {
        let pages = Pages::of(&live, self.page_bytes)?;
        let (mut writer, sum) = kept::begin(pending, &live, control)?;
        for (path, entry) in &live {
            if let Some(first) = pages.first(path) {
                self.keep_file(entry, first, (target, &mut writer), cancel)?;
            }
        }
        self.runs = writer.take_runs();
        let mut record = target.record(control, sum);
        record.page_count = pages.count;
        kept::complete(pending, writer, record)?;
        let kept = Kept::open(pending, self.page_bytes)?;
        kept.ok_or_else(|| SnapshotError::Damaged {
            path: pending.to_owned(),
            what: "it is gone",
        })
    }

    fn keep_file(
        &mut self,
        entry: &FileEntry,
        number: u32,
        (target, writer): (&mut Target, &mut UndoWriter),
        cancel: &Cancel,
    ) -> Result<(), SnapshotError> {
        let at = tree::at(self.data, &entry.path);
        let file = File::open(&at).doing("open", &at)?;
        let clone = target.clone_of(&entry.path);
        let mut shared = clone.as_ref().and_then(|it| SharedExtents::of(&file, it));
        let (base, wanted) = target.lengths(&entry.path);
        let same_bytes = [Some(entry.bytes), base, wanted]
            .into_iter()
            .min()
            .flatten();
        let (last, block) = (self.pages(entry.bytes), self.pages(BLOCK_BYTES as u64));
        let mut first = 0;
        while first < last {
            cancel.check()?;
            let count = block.min(last - first);
            let (start, end) = (self.offset(first), self.offset(first + count));
            let is_same = end <= same_bytes.unwrap_or(0)
                && !target.has_over(&entry.path, (first, first + count))?
                && (target.is_unwritten(&entry.path, &file, (start, end))
                    || shared.as_mut().is_some_and(|it| it.cover(start, end)));
            if !is_same {
                self.compared += count;
                self.read(&file, (entry, first, count), target)?;
                let ends = (
                    self.pages(base.unwrap_or(0)),
                    self.pages(wanted.unwrap_or(0)),
                );
                let pages = (first, count, number);
                self.keep_pages(pages, (ends, target.is_snapshot()), writer)?;
            }
            first += count;
        }
        Ok(())
    }

    /// Reads a block in all three states.
    fn read(
        &mut self,
        file: &File,
        (entry, first, count): (&FileEntry, u32, u32),
        target: &mut Target,
    ) -> Result<(), SnapshotError> {
        let at = tree::at(self.data, &entry.path);
        let (offset, bytes) = (self.offset(first), fitted::<usize, _>(self.offset(count)));
        let [now, base, wanted] = &mut self.blocks;
        read_all(file, offset, &mut now[..bytes]).doing("read", &at)?;
        let part = Part {
            base: &mut base[..bytes],
            target: &mut wanted[..bytes],
        };
        target.read(&entry.path, (first, self.page_bytes), part)
    }

    fn keep_pages(
        &self,
        (first, count, number): (u32, u32, u32),
        ((base_end, target_end), is_snapshot): ((u32, u32), bool),
        writer: &mut UndoWriter,
    ) -> Result<(), SnapshotError> {
        let size = self.page_bytes as usize;
        let [now, base, target] = &self.blocks;
        for index in 0..count {
            let at = index as usize * size..(index as usize + 1) * size;
            let page = first + index;
            let is_same = page < base_end.min(target_end)
                && now[at.clone()] == target[at.clone()]
                && (is_snapshot || now[at.clone()] == base[at.clone()]);
            if !is_same {
                writer.keep(number + page, &now[at])?;
            }
        }
        Ok(())
    }

    /// Writes what was kept, as the target has it, and what lies behind the old ends. Afterwards
    /// nothing is under way, also if it fails.
    pub(super) fn write(
        &mut self,
        kept: &Kept,
        target: &mut Target,
        cancel: &Cancel,
    ) -> Result<Reverted, SnapshotError> {
        let reverted = self.write_files(kept, target, cancel);
        let behind = self.behind.take();
        let ended = behind.map_or(Ok(()), |mut behind| behind.finish());
        reverted.and_then(|reverted| ended.map(|()| reverted))
    }

    fn write_files(
        &mut self,
        kept: &Kept,
        target: &mut Target,
        cancel: &Cancel,
    ) -> Result<Reverted, SnapshotError> {
        target.rewind()?;
        let changed = std::mem::take(&mut self.runs);
        let files: Vec<FileEntry> = target.tree().values().cloned().collect();
        let mut pages = 0;
        for entry in files.iter().filter(|it| it.kind == FileKind::File) {
            cancel.check()?;
            pages += self.pages(entry.bytes);
            self.write_file(entry, (kept, &changed), target)?;
        }
        Ok(Reverted {
            page_count: pages,
            written_count: self.written,
            compared_count: self.compared,
            ..Reverted::nothing(self.page_bytes)
        })
    }

    fn write_file(
        &mut self,
        entry: &FileEntry,
        (kept, changed): (&Kept, &PageRuns),
        target: &mut Target,
    ) -> Result<(), SnapshotError> {
        let at: Arc<Path> = tree::at(self.data, &entry.path).into();
        let file = Arc::new(DirectFile::cached(open_to_write(&at)?));
        let was = kept.tree().get(&entry.path).map_or(0, |was| was.bytes);
        self.cut(file.file(), &at, entry.bytes)?;
        let last = self.pages(entry.bytes);
        let old = self.pages(was).min(last);
        if let Some(number) = kept.pages().first(&entry.path) {
            for run in changed.within(number..number + old) {
                let pages = run.start - number..run.end - number;
                self.put_all((&file, &at), (entry, pages), target)?;
            }
        }
        self.put_all((&file, &at), (entry, old..last), target)
    }

    /// Writes pages of the target, a block at a time.
    fn put_all(
        &mut self,
        at: (&Arc<DirectFile>, &Arc<Path>),
        (entry, mut pages): (&FileEntry, Range<u32>),
        target: &mut Target,
    ) -> Result<(), SnapshotError> {
        let block = self.pages(BLOCK_BYTES as u64);
        while !pages.is_empty() {
            let count = block.min(pages.end - pages.start);
            self.put(at, (entry, pages.start, count), target)?;
            pages.start += count;
        }
        Ok(())
    }

    /// Writes pages of the target.
    fn put(
        &mut self,
        (file, at): (&Arc<DirectFile>, &Arc<Path>),
        (entry, first, count): (&FileEntry, u32, u32),
        target: &mut Target,
    ) -> Result<(), SnapshotError> {
        let (offset, end) = (self.offset(first), self.offset(first + count));
        let padded = fitted::<usize, _>(end - offset);
        let behind = self.behind.get_or_insert_with(Behind::start);
        let mut bytes = behind.memory()?;
        bytes.set_len(padded);
        let [_, base, _] = &mut self.blocks;
        let part = Part {
            base: &mut base[..padded],
            target: &mut bytes,
        };
        target.read(&entry.path, (first, self.page_bytes), part)?;
        bytes.set_len(fitted(end.min(entry.bytes) - offset));
        if let Some(keeper) = &mut self.keeper {
            keeper.keep(file.file(), offset, end).doing("read", at)?;
        }
        self.written += count;
        behind.write(Block {
            file: Arc::clone(file),
            path: Arc::clone(at),
            offset,
            bytes,
        })
    }

    /// Cuts a file, or makes it longer with zeros.
    fn cut(&mut self, file: &File, at: &Path, bytes: u64) -> Result<(), SnapshotError> {
        let now = file.metadata().doing("inspect", at)?.len();
        if now == bytes {
            return Ok(());
        }
        if let Some(keeper) = self.keeper.as_mut().filter(|_| now > bytes) {
            keeper.keep(file, bytes, now).doing("read", at)?;
        }
        file.set_len(bytes).doing("cut", at)
    }

    /// Writes back what was kept. The files are there, with any content.
    pub(super) fn write_back(&mut self, kept: &Kept) -> Result<(), SnapshotError> {
        let mut changed = kept.reader()?;
        for entry in kept.tree().values() {
            let Some(number) = kept.pages().first(&entry.path) else {
                continue;
            };
            let at = tree::at(self.data, &entry.path);
            let file = open_to_write(&at)?;
            self.cut(&file, &at, entry.bytes)?;
            let end = number + self.pages(entry.bytes);
            while let Some((page, bytes)) = changed.next_below(end)? {
                let offset = self.offset(page - number);
                let count = (entry.bytes - offset).min(bytes.len() as u64);
                if let Some(keeper) = &mut self.keeper {
                    keeper
                        .keep(&file, offset, offset + count)
                        .doing("read", &at)?;
                }
                let bytes = &bytes[..fitted::<usize, _>(count)];
                file.write_all_at(bytes, offset).doing("write", &at)?;
            }
        }
        Ok(())
    }

    fn pages(&self, bytes: u64) -> u32 {
        fitted(bytes.div_ceil(u64::from(self.page_bytes)))
    }

    fn offset(&self, page: u32) -> u64 {
        u64::from(page) * u64::from(self.page_bytes)
    }
}

/// A file of the cluster, to be read and written.
fn open_to_write(path: &Path) -> Result<File, SnapshotError> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).open(path);
    opened.doing("open", path)
}

/// Reads as many bytes as there are. The others are zeros.
fn read_all(file: &File, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    into[done..].fill(0);
    Ok(())
}
