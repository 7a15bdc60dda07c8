//! What a revert of a cluster overwrote, in a directory of its snapshot, with its number.
//!
//!   before.1/files     the list of the files that there were
//!   before.1/undo      the pages that differ from the snapshot, or from what was written (undo.rs)
//!   before.1/control   pg_control
//!   before.1/wal       the segments of the log
//!
//! Pages are numbered through all files of the list, in its order. While a revert is under way the
//! directory has another name (`PENDING`).

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use windlass_engine::media::{FileKind, FileTable, crc32c};
use windlass_engine::{durable, read_regular_at_most};
use windlass_postgres::Control;

use super::tree::Tree;
use crate::error::{Doing, SnapshotError};
use crate::overwritten::{self, UndoNumber};
use crate::undo::{self, CONTROL, LIST, LIST_BYTES_MAX, UNDO, UndoReader, UndoRecord, UndoWriter};

pub(super) use crate::undo::PENDING_STATE as PENDING;
const CONTROL_BYTES_MAX: u64 = 1 << 16;

/// A state of a cluster, as its difference to a snapshot.
pub(super) struct Kept {
    directory: PathBuf,
    tree: Tree,
    pages: Pages,
    record: UndoRecord,
}

/// The numbers of the pages of all files.
pub(super) struct Pages {
    firsts: BTreeMap<Vec<u8>, u32>,
    pub(super) count: u32,
}

impl Pages {
    /// Of the files of a tree.
    pub(super) fn of(tree: &Tree, page_bytes: u32) -> Result<Self, SnapshotError> {
        let mut firsts = BTreeMap::new();
        let mut count: u32 = 0;
        for (path, entry) in tree
            .iter()
            .filter(|(_, entry)| entry.kind == FileKind::File)
        {
            firsts.insert(path.clone(), count + 1);
            let pages = u32::try_from(entry.bytes.div_ceil(u64::from(page_bytes)));
            let next = pages.ok().and_then(|pages| count.checked_add(pages));
            count = next.ok_or(SnapshotError::TooLarge)?;
        }
        Ok(Self { firsts, count })
    }

    /// The number of a file's first page.
    pub(super) fn first(&self, path: &[u8]) -> Option<u32> {
        self.firsts.get(path).copied()
    }
}

/// Makes the directory, with the list of the files that there are. Pages come next.
pub(super) fn begin(
    pending: &Path,
    tree: &Tree,
    control: &Control,
) -> Result<(UndoWriter, u32), SnapshotError> {
    let made = DirBuilder::new().mode(0o700).create(pending);
    made.doing("make the directory", pending)?;
    durable::sync_parent(pending).doing("sync the directory of", pending)?;
    let path = pending.join(LIST);
    let table = FileTable(tree.values().cloned().collect());
    let bytes = table.encode().map_err(std::io::Error::other);
    let bytes = bytes.doing("encode", &path)?;
    durable::write(&path, &bytes, 0o600).doing("write", &path)?;
    let path = pending.join(CONTROL);
    let control = control.clone().into_bytes();
    durable::write(&path, &control, 0o600).doing("write", &path)?;
    Ok((UndoWriter::create(pending)?, crc32c(&bytes)))
}

/// Whether what is kept may be of the revert that took this pg_control aside. One that has just
/// begun has noted none, and has no pages either: pages without a pg_control are of nobody knows
/// which revert.
pub(super) fn may_be_of(pending: &Path, control: &[u8]) -> Result<bool, SnapshotError> {
    let path = pending.join(CONTROL);
    let found = durable::if_there(read_regular_at_most(&path, CONTROL_BYTES_MAX));
    let has_pages = || {
        let mut names = [UNDO, undo::PENDING].into_iter();
        names.any(|name| pending.join(name).symlink_metadata().is_ok())
    };
    Ok(match found.doing("read", &path)? {
        Some(found) => found == control,
        None => !has_pages(),
    })
}

/// Gives a pending state its name.
pub(super) fn finish(pending: &Path) -> Result<(), SnapshotError> {
    let gone = || SnapshotError::Damaged {
        path: pending.to_owned(),
        what: "its pages are gone",
    };
    let directory = parent(pending);
    let record = UndoRecord::read(&pending.join(UNDO))?.ok_or_else(gone)?;
    overwritten::discard_brought_back(directory, record.brings_back.map(UndoNumber))?;
    let name = overwritten::directory_of(directory, UndoNumber(record.number));
    durable::rename(pending, &name).doing("rename", pending)
}

/// The directory of the snapshot.
fn parent(pending: &Path) -> &Path {
    pending.parent().unwrap_or(pending)
}

impl Kept {
    /// The state in a directory. `None` if it is not complete.
    pub(super) fn open(directory: &Path, page_bytes: u32) -> Result<Option<Self>, SnapshotError> {
        let Some(record) = UndoRecord::read(&directory.join(UNDO))? else {
            return Ok(None);
        };
        let path = directory.join(LIST);
        let damaged = |what| SnapshotError::Damaged {
            path: path.clone(),
            what,
        };
        let bytes = read_regular_at_most(&path, LIST_BYTES_MAX).doing("read", &path)?;
        if record.files_crc32c != Some(crc32c(&bytes)) || record.page_bytes != page_bytes {
            return Err(damaged("it does not belong to the pages beside it"));
        }
        let table = FileTable::decode(&bytes).map_err(|_| damaged("it is no list of files"))?;
        let files = table.0.into_iter();
        let tree: Tree = files.map(|entry| (entry.path.clone(), entry)).collect();
        Ok(Some(Self {
            directory: directory.to_owned(),
            pages: Pages::of(&tree, page_bytes)?,
            tree,
            record,
        }))
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Whether no page differed.
    pub(super) fn is_nothing(&self) -> bool {
        self.record.kept_count == 0
    }

    pub(super) fn record(&self) -> &UndoRecord {
        &self.record
    }

    /// The content of pg_control.
    pub(super) fn control(&self) -> Result<Vec<u8>, SnapshotError> {
        let path = self.directory.join(CONTROL);
        read_regular_at_most(&path, CONTROL_BYTES_MAX).doing("read", &path)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its pages, from the first on.
    pub(super) fn reader(&self) -> Result<UndoReader, SnapshotError> {
        let none = || SnapshotError::Damaged {
            path: self.directory.clone(),
            what: "its pages are gone",
        };
        UndoReader::open(&self.directory.join(UNDO))?.ok_or_else(none)
    }
}

/// Makes the pages durable. From then on the state is complete.
pub(super) fn complete(
    pending: &Path,
    writer: UndoWriter,
    record: UndoRecord,
) -> Result<(), SnapshotError> {
    writer.complete(record)?;
    undo::finish(pending)
}
