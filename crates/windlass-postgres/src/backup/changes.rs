//! What of each file goes into a set that builds on another one.
//!
//! PostgreSQL's own incremental backups lose data in two ways, so the rules here are others. Pages
//! of visibility maps change without a word in the summaries. And a relation that is cut off and
//! grows again may have pages of zeros that no log names, below the length that its parent has. The
//! rules:
//!
//! - Only main forks are taken in part. Free space maps, visibility maps, `_init` forks, maps of
//!   file numbers, the status of transactions and everything else are whole.
//! - A file is whole if the base does not have it, if its database was made, moved or dropped, if
//!   the relation was made or was cut off before this segment, or if it ends within a page.
//! - Else its blocks that the log names are taken, and each block behind the shortest that the
//!   relation has been, or behind the end of the base's file.
//!
//! If a witness saw all writes to the files, its word replaces the log: what was not written since
//! the base began is what the base has, whatever wrote it and whether it was logged.
//!
//! PostgreSQL 14 to 16 have no summaries. Without a witness, all main forks are read, and a page is
//! left out if its header says that it was last changed before the base began. That holds only if
//! hint bits are logged. A page without a position may be one of zeros that nobody logged, so it is
//! taken. A copy of a database's files keeps the positions of its template, so a database whose
//! PG_VERSION is not the one that the base has is whole. With `wal_level = minimal`, pages of a
//! file that their transaction has made may have positions from before the base, too. The base has
//! no such file: the server gives a number again only after four billion others.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_media::FileNo;

use crate::chain::ChainBase;
use crate::listing::{Entry, Listing};
use crate::lsn::{Lsn, Timeline};
use crate::names::{Fork, RelationFile, is_relation_directory};
use crate::summaries::blocks::{ChangedBlocks, RelationKey};
use crate::tablespace::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use crate::wal::effects::DatabaseDirectory;
use crate::witness::{ChangeMark, ChangeWitness};

/// What changed since the base.
pub(super) struct Changes {
    pub(super) base: Arc<ChainBase>,
    /// The timeline on which the backup began, as far as that is known.
    pub(super) timeline: Timeline,
    pub(super) proof: Proof,
    pub(super) block_bytes: u64,
    pub(super) segment_blocks: u64,
}

/// How it is known what changed.
pub(super) enum Proof {
    /// The summaries of the log name the blocks.
    Blocks(ChangedBlocks),
    /// The pages say it. These directories have been those of the same databases all the time.
    Pages(HashSet<Vec<u8>>),
    /// Somebody saw all writes.
    Witnessed(Witnessed),
}

/// Whoever saw all writes to the files below a data directory since the base began.
pub(super) struct Witnessed {
    pub(super) witness: Arc<dyn ChangeWitness>,
    pub(super) since: ChangeMark,
    pub(super) root: PathBuf,
}

impl Proof {
    /// The name of this answer in the facts of a set.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Blocks(_) => "summaries",
            Self::Pages(_) => "pages",
            Self::Witnessed(_) => "map",
        }
    }
}

/// What of a file goes into the set.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All of it.
    Whole,
    /// These ranges of bytes. The rest is in the base.
    Parts {
        /// The file in the base.
        base_file: FileNo,
        /// Bytes from here on are never those of the base.
        limit: u64,
        ranges: Vec<Range<u64>>,
    },
    /// The pages that have changed, as they say themselves.
    Scanned {
        /// The file in the base.
        base_file: FileNo,
        /// Bytes from here on are never those of the base.
        limit: u64,
    },
}

impl Share {
    /// How many bytes of a file of this length are read.
    pub(super) fn bytes(&self, length: u64) -> u64 {
        match self {
            Self::Whole | Self::Scanned { .. } => length,
            Self::Parts { ranges, .. } => ranges.iter().map(|range| range.end - range.start).sum(),
        }
    }
}

impl Changes {
    /// Looks at the files of the window. Call it once, before anything else.
    pub(super) fn look_at(&mut self, listing: &Listing) {
        let Proof::Pages(same) = &mut self.proof else {
            return;
        };
        // The directory of what all databases share is never made again.
        same.insert(b"global".to_vec());
        for entry in listing.entries() {
            let path = listing.path(entry);
            let Some(directory) = path.strip_suffix(b"/PG_VERSION") else {
                continue;
            };
            let before = self.base.file(path);
            let is_same = before.is_some_and(|it| it.mtime_nanos == entry.mtime_nanos);
            if is_same && is_relation_directory(directory) {
                same.insert(directory.to_vec());
            }
        }
    }

    /// Pages that were last changed before this position are those of the base; only if the pages
    /// themselves have to say it.
    pub(super) fn scans_since(&self) -> Option<Lsn> {
        matches!(self.proof, Proof::Pages(_)).then(|| self.base.start())
    }

    /// What of a listed file goes into the set.
    pub(super) fn share(&self, path: &[u8], entry: &Entry) -> Share {
        self.part(path, entry.bytes).unwrap_or(Share::Whole)
    }

    /// The same, if it is a part.
    fn part(&self, path: &[u8], bytes: u64) -> Option<Share> {
        let (key, segment) = main_fork(path)?;
        let base_file = self.base.file(path)?;
        let lengths = [bytes, base_file.bytes];
        if lengths
            .iter()
            .any(|it| !it.is_multiple_of(self.block_bytes))
        {
            return None;
        }
        let [blocks, base_blocks] = lengths.map(|bytes| bytes / self.block_bytes);
        if blocks > self.segment_blocks {
            return None;
        }
        let changed = match &self.proof {
            Proof::Blocks(changed) if !changed.has_new(key.directory) => changed,
            Proof::Pages(same) if same.contains(directory_of(path)) => {
                let limit = blocks.min(base_blocks) * self.block_bytes;
                return (limit > 0).then_some(Share::Scanned {
                    base_file: base_file.file,
                    limit,
                });
            }
            Proof::Witnessed(witnessed) => {
                let limit = blocks.min(base_blocks);
                let path = witnessed.root.join(OsStr::from_bytes(path));
                let found = std::fs::metadata(&path).ok()?;
                let look = (limit, self.block_bytes);
                let seen = (&*path, &found);
                let changed = witnessed.witness.changed(&witnessed.since, seen, look);
                return self.parts(base_file.file, (limit, blocks), changed.into_iter(), bytes);
            }
            _ => return None,
        };
        let first = u64::from(segment) * self.segment_blocks;
        let changes = changed.get(&key);
        let limit = changes.and_then(|changes| changes.limit());
        let limit = limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(first));
        let limit = limit.min(base_blocks).min(blocks);
        let listed = changes.map(|changes| changes.blocks_in(first..first + limit));
        let listed = listed.unwrap_or_default().into_iter();
        let listed = listed.map(|block| block - first);
        self.parts(base_file.file, (limit, blocks), listed, bytes)
    }

    /// These blocks below a limit, and everything from there on; `None` if that is the whole file.
    fn parts(
        &self,
        base_file: FileNo,
        (limit, blocks): (u64, u64),
        changed: impl Iterator<Item = u64>,
        bytes: u64,
    ) -> Option<Share> {
        if limit == 0 {
            return None;
        }
        let share = Share::Parts {
            base_file,
            limit: limit * self.block_bytes,
            ranges: self.ranges(changed.chain(limit..blocks)),
        };
        (share.bytes(bytes) < bytes).then_some(share)
    }

    /// Ranges of bytes with these blocks, which are in order.
    fn ranges(&self, blocks: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            let range = block * self.block_bytes..(block + 1) * self.block_bytes;
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }
}

fn directory_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
}

/// The relation of a file of a main fork, and which segment of it the file is.
fn main_fork(path: &[u8]) -> Option<(RelationKey, u32)> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let (tablespace, database, name) = match parts.as_slice() {
        [b"global", name] => (GLOBAL_TABLESPACE, 0, name),
        [b"base", database, name] => (DEFAULT_TABLESPACE, number(database)?, name),
        [b"pg_tblspc", tablespace, _, database, name] => {
            (number(tablespace)?, number(database)?, name)
        }
        _ => return None,
    };
    let file = RelationFile::parse(name)?;
    let directory = DatabaseDirectory {
        database,
        tablespace,
    };
    let key = RelationKey {
        directory,
        number: file.number,
    };
    (file.fork == Fork::Main && !file.temporary).then_some((key, file.segment))
}
