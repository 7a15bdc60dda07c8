//! The files of a backup, listed compactly: a cluster may have hundreds of thousands.
//!
//! One entry takes 64 bytes and its path; one arena holds all paths. A `FileEntry` of the set's
//! table takes three times as much, and three allocations. So the backup makes those only at the
//! end.
//!
//! Invariants
//! - A file's number follows from its entry's position, so entries may be removed only before
//!   numbers are given out.
//! - A directory stands before everything that it holds.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_media::{FileEntry, FileFlags, FileKind, FileNo, fitted};

use crate::error::PostgresError;

/// 32 bits address the arena, so ten million paths of 400 bytes fit.
const ARENA_FULL: &str = "the paths of this cluster take more than 4 GiB";

/// All files, directories and links found by a scan.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    arena: Vec<u8>,
    entries: Vec<Entry>,
}

/// A file, a directory or a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    path_at: u32,
    path_bytes: u16,
    link_bytes: u16,
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    /// Which segment of a relation's fork the file is; `None` for other files.
    pub(crate) segment: Option<u32>,
    pub(crate) bytes: u64,
    pub(crate) mtime_nanos: i64,
    ctime_nanos: i64,
    device: u64,
    inode: u64,
}

/// What the file system says about an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) bytes: u64,
    pub(crate) mtime_nanos: i64,
    pub(crate) ctime_nanos: i64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// A file's times prove nothing if they are this near to the look at the file. A kernel stamps
/// writes with a clock that ticks only a few hundred times a second, it sets the stamp before it
/// has copied the bytes, and some file systems store whole seconds.
const RACY_NANOS: i64 = 10_000_000_000;

/// A moment of this machine's clock, in nanoseconds since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) i64);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(fitted(jiff::Timestamp::now().as_nanosecond()))
    }
}

impl Attributes {
    /// True if nobody wrote to the file between a time well before `moment` and the reading of
    /// these attributes.
    pub(crate) fn is_older_than(&self, moment: Moment) -> bool {
        self.mtime_nanos.max(self.ctime_nanos) < moment.0.saturating_sub(RACY_NANOS)
    }
}

impl Entry {
    /// The numbers of its device and its inode.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// True if this is the same file as `other` with the same content. `other` was listed at
    /// `moment` or later.
    pub(crate) fn is_unchanged_since(&self, other: &Entry, moment: Moment) -> bool {
        let identity = |entry: &Entry| {
            (
                entry.kind,
                entry.inode,
                entry.bytes,
                entry.mtime_nanos,
                entry.ctime_nanos,
            )
        };
        let newest = self.mtime_nanos.max(self.ctime_nanos);
        identity(self) == identity(other) && newest < moment.0.saturating_sub(RACY_NANOS)
    }
}

impl Attributes {
    /// Attributes for the listing: only the permission bits, and a length only for regular files.
    pub(crate) fn of(metadata: &std::fs::Metadata, kind: FileKind) -> Self {
        let nanos = metadata.mtime().saturating_mul(1_000_000_000);
        let changed = metadata.ctime().saturating_mul(1_000_000_000);
        Self {
            kind,
            mode: fitted(metadata.mode() & 0o777),
            bytes: if kind == FileKind::File {
                metadata.len()
            } else {
                0
            },
            mtime_nanos: nanos.saturating_add(metadata.mtime_nsec()),
            ctime_nanos: changed.saturating_add(metadata.ctime_nsec()),
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

impl Listing {
    /// Appends an entry.
    pub(crate) fn add(
        &mut self,
        path: &[u8],
        link_target: &[u8],
        attributes: Attributes,
        segment: Option<u32>,
    ) -> Result<(), PostgresError> {
        let fault = |what| {
            let path = PathBuf::from(OsStr::from_bytes(path));
            Err(PostgresError::Path { path, what })
        };
        let (Ok(path_bytes), Ok(link_bytes)) =
            (u16::try_from(path.len()), u16::try_from(link_target.len()))
        else {
            return fault("the path is longer than 65535 bytes");
        };
        let Ok(path_at) = u32::try_from(self.arena.len()) else {
            return fault(ARENA_FULL);
        };
        self.arena.extend_from_slice(path);
        self.arena.extend_from_slice(link_target);
        let Attributes {
            kind,
            mode,
            bytes,
            mtime_nanos,
            ctime_nanos,
            device,
            inode,
        } = attributes;
        let entry = Entry {
            path_at,
            path_bytes,
            link_bytes,
            kind,
            mode,
            segment,
            bytes,
            mtime_nanos,
            ctime_nanos,
            device,
            inode,
        };
        self.entries.push(entry);
        Ok(())
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The positions of all entries, sorted by path. Each directory is sorted already, so the
    /// stable sort finds few runs and merges them; one that knows no runs compares far more.
    pub(crate) fn by_path(&self) -> Vec<u32> {
        let count = fitted(self.entries.len());
        let mut positions: Vec<u32> = (0..count).collect();
        positions.sort_by_key(|position| self.path_at(*position));
        positions
    }

    /// Finds a path among positions that [`Listing::by_path`] gave.
    pub(crate) fn find(&self, positions: &[u32], path: &[u8]) -> Option<u32> {
        let found = positions.binary_search_by(|position| self.path_at(*position).cmp(path));
        found.ok().and_then(|index| positions.get(index).copied())
    }

    fn path_at(&self, position: u32) -> &[u8] {
        path_in(&self.arena, &self.entries[position as usize])
    }

    /// The entries, in order.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Sum of the lengths of all files.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// Sorts the entries from `first` on by path, so that every run over one cluster has the same
    /// order.
    pub(crate) fn sort_from(&mut self, first: usize) {
        let Self { arena, entries } = self;
        entries[first..].sort_unstable_by(|a, b| path_in(arena, a).cmp(path_in(arena, b)));
    }

    /// True if one of the entries in `range` has this path. They are sorted by path.
    pub(crate) fn holds(&self, range: Range<usize>, path: &[u8]) -> bool {
        let entries = &self.entries[range];
        let found = entries.binary_search_by(|entry| self.path(entry).cmp(path));
        found.is_ok()
    }

    /// Removes the entries for whose paths `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        let Self { arena, entries } = self;
        entries.retain(|entry| keep(path_in(arena, entry)));
    }

    /// An entry's path below the data directory.
    pub(crate) fn path(&self, entry: &Entry) -> &[u8] {
        path_in(&self.arena, entry)
    }

    /// The path from which to read an entry's content. It goes through the server's links
    /// (tablespaces, pg_wal).
    pub(crate) fn source_path(&self, root: &Path, entry: &Entry) -> PathBuf {
        root.join(OsStr::from_bytes(self.path(entry)))
    }

    /// The entry in the form of the set's file table. Its CRC is not known yet.
    pub(crate) fn table_entry(&self, file: FileNo, entry: &Entry) -> FileEntry {
        let link_at = entry.path_at as usize + usize::from(entry.path_bytes);
        FileEntry {
            file,
            kind: entry.kind,
            flags: FileFlags::default(),
            mode: u32::from(entry.mode),
            bytes: entry.bytes,
            mtime_nanos: entry.mtime_nanos,
            crc32c: 0,
            path: self.path(entry).to_vec(),
            link_target: self.arena[link_at..link_at + usize::from(entry.link_bytes)].to_vec(),
        }
    }
}

fn path_in<'a>(arena: &'a [u8], entry: &Entry) -> &'a [u8] {
    let at = entry.path_at as usize;
    &arena[at..at + usize::from(entry.path_bytes)]
}
