//! The files of a snapshot that is being made: which are linked, which are copied.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use windlass_engine::media::{FileEntry, FileKind, FileNo, FileTable};
use windlass_postgres::{BracketEnd, BracketFiles};

use super::error::{HookError, HookIo};
use super::index::Tracked;
use super::links::{Linked, Links};
use super::record::{Kept, copied, write};
use crate::cluster::{CONTROL_PATH, is_needed, own_file};

/// Larger files are linked, even if they are no relations: a server log may be huge.
const COPIED_BYTES_MAX: u64 = 64 * 1024;
/// Directories of pages that are no relations.
const PAGED: [&[u8]; 3] = [b"pg_xact/", b"pg_multixact/", b"pg_commit_ts/"];

/// The files of the snapshot, and where each is.
#[derive(Default)]
pub(crate) struct Taken {
    entries: Vec<FileEntry>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) tracked: Vec<Tracked>,
    /// Small files that are copied later: their position, and where they are.
    small: Vec<(usize, PathBuf)>,
    /// The next number of a file.
    next: u32,
}

/// The links that were made so far, by path.
pub(crate) type Known = HashMap<Vec<u8>, Linked>;

impl Taken {
    /// Links every file that consists of pages or is large. What `known` has is linked already,
    /// unless the path belongs to another file by now.
    pub(crate) fn link(
        files: &BracketFiles,
        links: &mut Links,
        known: &mut Known,
        page_bytes: u32,
    ) -> Result<Self, HookError> {
        let mut taken = Self::default();
        for (mut entry, source) in files.entries() {
            let is_file = entry.kind == FileKind::File;
            if !is_file || (entry.bytes == 0 && is_paged(&entry.path)) {
                taken.push(entry, Kept::Nothing);
            } else if is_paged(&entry.path) || entry.bytes > COPIED_BYTES_MAX {
                let linked = match known.get(&entry.path) {
                    Some(linked) => links.again(&source, linked)?,
                    None => None,
                };
                let linked = match linked {
                    None => links.link(&entry.path)?,
                    linked => linked,
                };
                // A file that is gone was removed after the checkpoint, and replay removes it too.
                let Some(linked) = linked else { continue };
                known.insert(entry.path.clone(), linked);
                entry.bytes = linked.bytes;
                let blocks = linked.bytes.div_ceil(u64::from(page_bytes));
                let blocks = u32::try_from(blocks).map_err(|_| HookError::TooLarge)?;
                taken.tracked.push(Tracked {
                    key: linked.key,
                    blocks,
                    link: linked.link()?,
                });
                taken.push(entry, Kept::linked(&linked));
            } else {
                taken.small.push((taken.entries.len(), source));
                taken.push(entry, Kept::Copied);
            }
        }
        Ok(taken)
    }

    /// No files yet; the numbers of new ones begin here.
    pub(crate) fn numbered_from(next: u32) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }

    /// Adds files that are copied already.
    pub(crate) fn append(&mut self, copied: Self) {
        for (entry, kept) in copied.entries.into_iter().zip(copied.kept) {
            self.push(entry, kept);
        }
    }

    /// The table of all files.
    pub(crate) fn table(self) -> (FileTable, Vec<Kept>) {
        (FileTable(self.entries), self.kept)
    }

    fn push(&mut self, entry: FileEntry, kept: Kept) {
        self.next = self.next.max(entry.file.0.saturating_add(1));
        self.entries.push(entry);
        self.kept.push(kept);
    }

    pub(crate) fn blocks(&self) -> u64 {
        let blocks = self.tracked.iter().map(|file| u64::from(file.blocks));
        blocks.sum()
    }

    /// Copies the small files.
    pub(crate) fn copy(&mut self, directory: &Path) -> Result<(), HookError> {
        let mut gone = Vec::new();
        for (position, source) in std::mem::take(&mut self.small) {
            let entry = &mut self.entries[position];
            match std::fs::read(&source) {
                Ok(bytes) => {
                    entry.bytes = bytes.len() as u64;
                    write(&copied(directory, entry.file), &bytes)?;
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    if is_needed(&entry.path, &source) {
                        return Err(HookError::io("read", &source, error));
                    }
                    gone.push(position);
                }
                Err(error) => return Err(HookError::io("read", &source, error)),
            }
        }
        for position in gone.into_iter().rev() {
            self.entries.remove(position);
            self.kept.remove(position);
        }
        Ok(())
    }

    /// Adds what is known at the end: the log, the label, pg_control.
    pub(crate) fn add_end(&mut self, end: &BracketEnd, directory: &Path) -> Result<(), HookError> {
        for (name, path) in end.segments() {
            self.add_segment(directory, name, path)?;
        }
        let history = end.history.iter();
        let history = history.map(|(name, bytes)| (format!("pg_wal/{name}"), bytes));
        let named = |name: &str| name.to_owned();
        let mut made: Vec<(String, &Vec<u8>)> = history.collect();
        made.push((named("backup_label"), &end.label));
        if !end.tablespace_map.is_empty() {
            made.push((named("tablespace_map"), &end.tablespace_map));
        }
        for (name, bytes) in made {
            self.add_bytes(directory, name, bytes)?;
        }
        self.add_control(directory, &end.control)
    }

    /// Copies a segment of the log.
    pub(crate) fn add_segment(
        &mut self,
        directory: &Path,
        name: &str,
        path: &Path,
    ) -> Result<(), HookError> {
        let file = self.next();
        let bytes = std::fs::copy(path, copied(directory, file)).doing("copy", path)?;
        self.add(file, format!("pg_wal/{name}"), bytes);
        // A server that recovers from it must not archive it again.
        let mark = format!("pg_wal/archive_status/{name}.done");
        self.add_bytes(directory, mark, b"")
    }

    /// Adds pg_control, the last of the files.
    pub(crate) fn add_control(&mut self, directory: &Path, bytes: &[u8]) -> Result<(), HookError> {
        self.add_bytes(directory, CONTROL_PATH.to_owned(), bytes)?;
        if let Some(control) = self.entries.last_mut() {
            control.flags.last = true;
        }
        Ok(())
    }

    fn add_bytes(&mut self, directory: &Path, path: String, bytes: &[u8]) -> Result<(), HookError> {
        let file = self.next();
        write(&copied(directory, file), bytes)?;
        self.add(file, path, bytes.len() as u64);
        Ok(())
    }

    fn next(&self) -> FileNo {
        FileNo(self.next)
    }

    fn add(&mut self, file: FileNo, path: String, bytes: u64) {
        self.push(own_file(file, path, bytes), Kept::Copied);
    }
}

/// Whether a file consists of pages that the server overwrites.
fn is_paged(path: &[u8]) -> bool {
    windlass_postgres::is_relation_file(path) || PAGED.iter().any(|paged| path.starts_with(paged))
}
