//! The files of a snapshot that is being made: which are linked, which are copied.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use windlass_engine::media::{FileEntry, FileKind, FileNo, FileTable, crc32c, crc32c_zeros_after};
use windlass_image::layout::hook::FileKey;
use windlass_postgres::{BracketEnd, BracketFiles, BracketSegment};

use super::error::{HookError, HookIo};
use super::examined::examine;
use super::index::Tracked;
use super::links::{Linked, Links};
use super::record::{Kept, copied, write};
use super::tail::Tail;
use crate::cluster::{CONTROL_PATH, PRIVATE_MODE, is_needed, own_file};

/// Larger files are linked, even if they are no relations: a server log may be huge.
const COPIED_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of the log that are copied at a time.
const COPIED_AT_ONCE: usize = 256 * 1024;
/// Directories of pages that are no relations.
const PAGED: [&[u8]; 3] = [b"pg_xact/", b"pg_multixact/", b"pg_commit_ts/"];

/// The files of the snapshot, and where each is.
#[derive(Default)]
pub(crate) struct Taken {
    pub(super) entries: Vec<FileEntry>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) tracked: Vec<Tracked>,
    /// Empty files of pages, by their position.
    pub(super) empty: Vec<(FileKey, usize)>,
    /// Small files that are copied later: their position, and where they are.
    pub(super) small: Vec<(usize, PathBuf)>,
    /// Positions of what is not there any more.
    pub(super) gone: BTreeSet<usize>,
    /// The next number of a file.
    next: u32,
}

/// What is kept so far, by path.
pub(crate) type Known = HashMap<Vec<u8>, Linked>;

/// Where the files of a snapshot come to.
pub(crate) struct Into<'a> {
    pub(crate) links: &'a mut Links,
    /// What is kept already, unless the path belongs to another file by now.
    pub(crate) known: &'a mut Known,
    pub(crate) page_bytes: u32,
}

impl Taken {
    /// Keeps every file that consists of pages or is large.
    pub(crate) fn pin(files: &BracketFiles, into: &mut Into<'_>) -> Result<Self, HookError> {
        let mut taken = Self::default();
        for (entry, source, (device, inode)) in files.found() {
            let key = FileKey::new(major(device), minor(device), inode);
            taken.take_listed((entry, Some(key)), source, into)?;
        }
        Ok(taken)
    }

    /// Takes one file.
    pub(super) fn take(
        &mut self,
        entry: FileEntry,
        source: PathBuf,
        into: &mut Into<'_>,
    ) -> Result<(), HookError> {
        self.take_listed((entry, None), source, into)
    }

    /// The same. It need not be looked at again if the list says that it is the one that has a link
    /// already: nobody else gets its inode. What changes its length later is in the log.
    fn take_listed(
        &mut self,
        (mut entry, listed): (FileEntry, Option<FileKey>),
        source: PathBuf,
        into: &mut Into<'_>,
    ) -> Result<(), HookError> {
        if entry.kind != FileKind::File {
            self.push(entry, Kept::Nothing);
        } else if entry.bytes == 0 && is_paged(&entry.path) {
            if let Some(found) = examine(&source)? {
                self.empty.push((found.key, self.entries.len()));
            }
            self.push(entry, Kept::Nothing);
        } else if is_paged(&entry.path) || entry.bytes > COPIED_BYTES_MAX {
            let linked = match into.known.get(&entry.path) {
                Some(linked) if linked.is_link() && listed == Some(linked.key) => Some(Linked {
                    bytes: entry.bytes,
                    ..*linked
                }),
                Some(linked) => into.links.again(&source, linked)?,
                None => None,
            };
            let linked = match linked {
                None => into.links.pin(&entry.path)?,
                linked => linked,
            };
            // A file that is gone was removed after the checkpoint, and replay removes it too.
            let Some(linked) = linked else { return Ok(()) };
            into.known.insert(entry.path.clone(), linked);
            entry.bytes = linked.bytes;
            let is_watched = is_paged(&entry.path);
            self.tracked
                .push(Tracked::of(&linked, into.page_bytes, is_watched)?);
            self.push(entry, Kept::linked(&linked));
        } else {
            self.small.push((self.entries.len(), source));
            self.push(entry, Kept::Copied);
        }
        Ok(())
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
        self.next = self.next.max(copied.next);
        for (entry, kept) in copied.entries.into_iter().zip(copied.kept) {
            self.push(entry, kept);
        }
    }

    /// The table of all files.
    pub(crate) fn table(self) -> (FileTable, Vec<Kept>) {
        let gone = self.gone;
        let rows = self.entries.into_iter().zip(self.kept).enumerate();
        let rows = rows.filter(|(position, _)| !gone.contains(position));
        let (entries, kept) = rows.map(|(_, row)| row).unzip();
        (FileTable(entries), kept)
    }

    /// Takes what is new, with a number of its own.
    pub(super) fn take_new(
        &mut self,
        mut entry: FileEntry,
        source: PathBuf,
        into: &mut Into<'_>,
    ) -> Result<(), HookError> {
        entry.file = self.next();
        self.take(entry, source, into)
    }

    fn push(&mut self, entry: FileEntry, kept: Kept) {
        self.next = self.next.max(entry.file.0.saturating_add(1));
        self.entries.push(entry);
        self.kept.push(kept);
    }

    /// The names of all links that it needs.
    pub(crate) fn links(&self) -> HashSet<u32> {
        let kept = self.kept.iter();
        let names = kept.filter_map(|kept| match kept {
            Kept::Linked { name, .. } => Some(*name),
            _ => None,
        });
        names.collect()
    }

    /// How many files the snapshot shares with the database.
    pub(crate) fn linked_files(&self) -> u64 {
        let kept = self.kept.iter().zip(0..);
        let linked = kept.filter(|(kept, at)| kept.key().is_some() && !self.gone.contains(at));
        linked.count() as u64
    }

    /// Copies the small files.
    pub(crate) fn copy(&mut self, directory: &Path) -> Result<(), HookError> {
        for (position, source) in std::mem::take(&mut self.small) {
            if self.gone.contains(&position) {
                continue;
            }
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
                    self.gone.insert(position);
                }
                Err(error) => return Err(HookError::io("read", &source, error)),
            }
        }
        Ok(())
    }

    /// Adds what is known at the end: the log, the label, pg_control.
    pub(crate) fn add_end(&mut self, end: &BracketEnd, directory: &Path) -> Result<(), HookError> {
        for segment in end.segments() {
            self.add_used(directory, &segment)?;
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

    /// Copies what the server used of a segment of the log, and sums it up on its way.
    fn add_used(
        &mut self,
        directory: &Path,
        segment: &BracketSegment<'_>,
    ) -> Result<(), HookError> {
        let file = self.next();
        let sum = copy_used(segment, &copied(directory, file))?;
        self.add(file, format!("pg_wal/{}", segment.name), segment.bytes);
        if let Some(entry) = self.entries.last_mut() {
            entry.crc32c = sum;
            entry.flags.crc_known = true;
        }
        self.add_mark(directory, segment.name)
    }

    /// Adds a copy of a segment of the log.
    pub(super) fn add_segment(&mut self, directory: &Path, copy: &Tail) -> Result<(), HookError> {
        self.add(copy.file, format!("pg_wal/{}", copy.name), copy.bytes);
        self.add_mark(directory, &copy.name)
    }

    /// A number for a file that is added later, if at all.
    pub(super) fn reserve(&mut self) -> FileNo {
        let file = self.next();
        self.next = self.next.saturating_add(1);
        file
    }

    /// A server that recovers from a segment must not archive it again.
    fn add_mark(&mut self, directory: &Path, name: &str) -> Result<(), HookError> {
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
pub(super) fn is_paged(path: &[u8]) -> bool {
    windlass_postgres::is_relation_file(path) || PAGED.iter().any(|paged| path.starts_with(paged))
}

/// Copies what counts of a segment, with zeros behind it that take no room. Returns the checksum of
/// the copy.
fn copy_used(segment: &BracketSegment<'_>, to: &Path) -> Result<u32, HookError> {
    let source = File::open(segment.path).doing("open", segment.path)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(PRIVATE_MODE);
    let mut target = options.open(to).doing("create", to)?;
    let mut buffer = vec![0; COPIED_AT_ONCE];
    let (mut sum, mut at) = (0_u32, 0_u64);
    while at < segment.used_bytes {
        let left = segment.used_bytes - at;
        let count = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let part = &mut buffer[..count];
        let read = source.read_exact_at(part, at);
        read.doing("copy", segment.path)?;
        target.write_all(part).doing("write", to)?;
        sum = crc32c_zeros_after(sum, count as u64) ^ crc32c(part);
        at += count as u64;
    }
    target.set_len(segment.bytes).doing("write", to)?;
    // A CRC inverts its register at the beginning and at the end.
    let zeros = segment.bytes.saturating_sub(segment.used_bytes);
    Ok(!crc32c_zeros_after(!sum, zeros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_copy_of_a_segment_has_what_was_used_of_it_and_zeros() {
        let place = tempfile::tempdir().unwrap();
        let (path, to) = (place.path().join("segment"), place.path().join("copy"));
        let content: Vec<u8> = (0..=250).cycle().take(3 * COPIED_AT_ONCE).collect();
        std::fs::write(&path, &content).unwrap();
        for used in [0, 1, COPIED_AT_ONCE, COPIED_AT_ONCE + 7, content.len()] {
            let segment = BracketSegment {
                name: "segment",
                path: &path,
                bytes: content.len() as u64,
                used_bytes: used as u64,
            };
            let sum = copy_used(&segment, &to).unwrap();
            let copy = std::fs::read(&to).unwrap();
            assert_eq!(copy[..used], content[..used]);
            assert!(copy[used..].iter().all(|byte| *byte == 0));
            assert_eq!((copy.len(), sum), (content.len(), crc32c(&copy)));
            std::fs::remove_file(&to).unwrap();
        }
        let short = BracketSegment {
            name: "segment",
            path: &path,
            bytes: 4 * COPIED_AT_ONCE as u64,
            used_bytes: 4 * COPIED_AT_ONCE as u64,
        };
        assert!(copy_used(&short, &to).is_err());
    }
}
