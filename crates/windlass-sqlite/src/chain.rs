//! What a backup builds on: an earlier set with a database file, whatever its path was.
//!
//!   does the state stand where the base does? -- yes --> no page is read
//!   is the file proven to be as it was then?  -- yes --> pages of the log --+
//!                                             -- no ---> all pages ---------+
//!                                       the same as in the base? <----------+
//!                                         -- yes --> left out
//!                                         -- no ---> goes into the set
//!
//! Nothing in the file of a SQLite database says which pages changed: the change counter rests in
//! WAL mode, and a file can be replaced. So the backup reads all pages and compares their hashes
//! with those that the base has (`page_hashes.rs`), or the pages themselves, byte by byte, if it
//! has none. Fewer are read only if it is proven that nobody wrote to the file: none if nothing
//! changed at all (`standing.rs`), or those of the log (`written.rs`).
//!
//! Invariant: only bytes of layer 0 are left out. A range that was read again lies over an older
//! version in the same set, which would come back.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::{EngineError, OpenSet, Pages, ReadAt};
use windlass_media::{BackupType, Base, FileKind, FileNo, Inherited, InheritedFiles, fitted};

use crate::error::SqliteError;
use crate::facts::{DatabaseFacts, KIND};
use crate::log_pages::LogPages;
use crate::page_hashes::BaseHashes;
use crate::standing::{Standing, booted_nanos};
use crate::written::{Written, parts};

/// How much is read at once of what is checked.
const CHECK_BYTES: u64 = 1 << 20;

/// An earlier set on which a backup can build.
#[derive(Clone, Debug)]
pub struct ChainBase {
    base: Base,
    ids: Vec<String>,
    file: FileNo,
    bytes: u64,
    written: Option<Box<Written>>,
    content: Arc<dyn ReadAt>,
    hashes: Option<BaseHashes>,
}

/// What a backup builds on, and what it becomes.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Differential or incremental.
    pub backup_type: BackupType,
    /// The earlier set.
    pub base: ChainBase,
}

impl ChainBase {
    /// Takes a set as a base. `content` gives the bytes of a file of it, and `unlisted` those of a
    /// file that is not in its table, of this length. The error says why the set cannot be one.
    pub fn of_set(
        set: &OpenSet,
        content: impl FnOnce(FileNo) -> Option<Arc<dyn ReadAt>>,
        unlisted: impl FnOnce(FileNo, u64) -> Option<Arc<dyn ReadAt>>,
    ) -> Result<Self, &'static str> {
        let about = set.description();
        if about.facts.database["kind"] != KIND {
            return Err("it is not a set of a SQLite database");
        }
        let mut files = about.files.0.iter();
        let entry = files.find(|entry| entry.kind == FileKind::File);
        let entry = entry.ok_or("it holds no file")?;
        let facts = DatabaseFacts::of_set(&about.facts).ok();
        let written = facts.as_ref();
        let written = written.and_then(|facts| Written::since(facts, booted_nanos()));
        let hashes = facts.as_ref();
        let hashes = hashes.and_then(|facts| BaseHashes::of_set(facts, unlisted));
        Ok(Self {
            base: set.as_base(),
            ids: set.links().map(|set| set.set_id().to_string()).collect(),
            file: entry.file,
            bytes: entry.bytes,
            written: written.map(Box::new),
            content: content(entry.file).ok_or("its file cannot be read")?,
            hashes,
        })
    }

    /// The set.
    pub fn set_id(&self) -> windlass_media::SetId {
        self.base.set
    }

    /// Where its state stands, and how long it is.
    pub fn standing(&self) -> Option<(&Standing, u64)> {
        let written = self.written.as_deref()?;
        Some((written.standing(), self.bytes))
    }

    /// Says that up to a later state only these pages were written, counted from 1, in order.
    pub fn set_written(&mut self, until: Standing, pages: Vec<u32>) {
        if let Some(written) = &mut self.written {
            written.set_later(until, pages);
        }
    }

    /// Reads what a backup compares with: the hashes, which are short, or all pages of a set
    /// without hashes. Damage that was found later would end every backup on this base. The error
    /// says what cannot be read.
    pub fn check(&self) -> Result<(), String> {
        let (what, read) = match &self.hashes {
            Some(hashes) => {
                let (content, bytes) = hashes.content();
                ("the hashes of its pages", read_through(content, bytes))
            }
            None => {
                let content = self.content.as_ref();
                ("its pages", read_through(content, self.bytes))
            }
        };
        read.map_err(|error| format!("{what} cannot be read: {error}"))
    }

    /// The ids of the set and of those below it.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.ids.clone()
    }

    /// Whether a state of `bytes` that stands there is that of the base. False when in doubt.
    pub(crate) fn is_at(&self, standing: &Standing, bytes: u64) -> bool {
        let own = self.written.as_deref().map(Written::standing);
        bytes == self.bytes && own.is_some_and(|own| standing.proves_unchanged_since(own))
    }

    /// The parts in which a state of `bytes` that stands there can differ from the base. `log` is
    /// what lies over the file. `None` if every page can, or if the base has no hashes: the set
    /// would have none of the pages that nobody reads.
    pub(crate) fn parts_since(
        &self,
        (standing, bytes): (&Standing, u64),
        log: Option<&LogPages>,
        page_bytes: usize,
    ) -> Result<Option<Vec<Range<u64>>>, SqliteError> {
        let own = self.hashes_of(page_bytes).and(self.written.as_deref());
        let Some(own) = own else {
            return Ok(None);
        };
        let page_bytes = page_bytes as u64;
        let known = (self.bytes / page_bytes * page_bytes).min(bytes);
        let pages = own.pages(standing, log)?;
        Ok(pages.map(|pages| parts(&pages, page_bytes, (known, bytes))))
    }

    /// The hashes of its pages, if it has them and its pages are so long.
    pub(crate) fn hashes_of(&self, page_bytes: usize) -> Option<&BaseHashes> {
        let hashes = self.hashes.as_ref();
        hashes.filter(|hashes| hashes.page_bytes() == page_bytes)
    }

    /// The hashes of its pages, if it has them.
    pub(crate) fn hashes(&self) -> Option<&BaseHashes> {
        self.hashes.as_ref()
    }

    /// What the new set says of its base. The database's file there has so many bytes, of which a
    /// part was left out, or nothing.
    pub(crate) fn under(&self, (file, bytes): (FileNo, u64), is_partial: bool) -> Base {
        let inherited = Inherited {
            file,
            base_file: self.file,
            bytes: bytes.min(self.bytes),
        };
        let files = (is_partial && inherited.bytes > 0).then_some(inherited);
        Base {
            files: InheritedFiles::new(files.into_iter().collect()),
            ..self.base.clone()
        }
    }

    /// Leaves out the pages that are as in the base. `hashes` are those of the pages, comparable
    /// with those of the base.
    pub(crate) fn leave_out(
        &self,
        pages: &mut Pages<'_>,
        page_bytes: usize,
        hashes: Option<&[u8]>,
    ) -> Result<(), EngineError> {
        if pages.layer() > 0 {
            return Ok(());
        }
        let offset = pages.offset();
        if let (Some(before), Some(found)) = (self.hashes_of(page_bytes), hashes) {
            let same = pages.reading(|| before.same(offset, found));
            let same = same.map_err(|source| unread(before.name(), offset, source))?;
            same.into_iter().for_each(|range| pages.drop_range(range));
            return Ok(());
        }
        let left = self.bytes.saturating_sub(offset);
        let length =
            usize::try_from(left).map_or(pages.bytes().len(), |left| left.min(pages.bytes().len()));
        let mut before = vec![0; length];
        let read = pages.reading(|| self.content.read_exact_at(offset, &mut before));
        let name = || self.content.name().unwrap_or_default();
        read.map_err(|source| unread(name(), offset, source))?;
        for range in same(&before, pages.bytes(), page_bytes) {
            pages.drop_range(range);
        }
        Ok(())
    }
}

fn unread(path: PathBuf, offset: u64, source: std::io::Error) -> EngineError {
    EngineError::SourceIo {
        operation: "read",
        path,
        offset,
        source,
    }
}

/// Reads so many bytes, and keeps none.
fn read_through(content: &dyn ReadAt, bytes: u64) -> std::io::Result<()> {
    let mut part = vec![0; fitted::<usize, u64>(bytes.min(CHECK_BYTES))];
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(CHECK_BYTES);
        let part = &mut part[..fitted::<usize, u64>(length)];
        content.read_exact_at(at, part)?;
        at += length;
    }
    Ok(())
}

/// The whole pages that are the same in both.
fn same(before: &[u8], now: &[u8], page_bytes: usize) -> Vec<Range<usize>> {
    let pairs = before
        .chunks_exact(page_bytes)
        .zip(now.chunks_exact(page_bytes));
    let same = pairs.enumerate().filter(|(_, (before, now))| before == now);
    same.map(|(index, _)| index * page_bytes..(index + 1) * page_bytes)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of which one cannot be read.
    #[derive(Debug)]
    struct Damaged(u64);

    impl ReadAt for Damaged {
        fn length(&self) -> std::io::Result<u64> {
            Ok(3 * CHECK_BYTES)
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
            match (offset..offset + into.len() as u64).contains(&self.0) {
                true => Err(std::io::ErrorKind::InvalidData.into()),
                false => Ok(into.len()),
            }
        }
    }

    #[test]
    fn damage_anywhere_is_found_before_a_backup_builds_on_it() {
        let bytes = 2 * CHECK_BYTES + 77;
        for at in [0, CHECK_BYTES - 1, CHECK_BYTES, bytes - 1] {
            assert!(read_through(&Damaged(at), bytes).is_err(), "{at}");
        }
        read_through(&Damaged(bytes), bytes).unwrap();
        read_through(&Damaged(0), 0).unwrap();
    }

    #[test]
    fn only_whole_pages_that_are_the_same_are_left_out() {
        let before = [[1; 4], [2; 4], [3; 4], [4; 4]].concat();
        let mut now = before.clone();
        now[5] = 9;
        now.truncate(15);
        assert_eq!(same(&before, &now, 4), [0..4, 8..12]);
        assert_eq!(same(&before[..12], &now, 4), [0..4, 8..12]);
        assert_eq!(same(&before[..7], &now, 4).len(), 1);
        assert!(same(&[], &now, 4).is_empty());
    }
}
