//! What a cluster becomes: a snapshot, or a snapshot with a state over it that a revert kept.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileKind, fitted};
use windlass_image::Image;
use windlass_postgres::{Control, DatabaseFacts};

use super::kept::Kept;
use super::tree::{self, LABEL, LOG, Tree};
use super::{descent, log};
use crate::cluster::CONTROL_PATH;
use crate::error::{Doing, SnapshotError};
use crate::hook::{self, HookImage};
use crate::image;
use crate::method::Method;
use crate::overwritten::{self, UndoNumber};
use crate::revert::{Back, image_of, record_of};
use crate::snapshot::Snapshot;
use crate::undo::{UNDO, UndoReader, UndoRecord};

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// No file that is read as a whole is longer.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// The state that a cluster goes to.
pub(super) struct Target {
    snapshot: Snapshot,
    /// The number for the state that is overwritten.
    number: UndoNumber,
    back: Back,
    image: Arc<dyn Image>,
    /// The files of the snapshot.
    base: Tree,
    /// The same snapshot, to ask which pages it still shares with the cluster.
    hooked: Option<HookImage>,
    over: Option<(Kept, UndoReader)>,
}

/// A part of a file, as it is in the snapshot and in the target.
pub(super) struct Part<'a> {
    pub(super) base: &'a mut [u8],
    pub(super) target: &'a mut [u8],
}

impl Target {
    pub(super) fn open(
        (snapshot, number): (&Snapshot, UndoNumber),
        back: Back,
    ) -> Result<Self, SnapshotError> {
        let image = image_of(snapshot)?;
        let hooked = match snapshot.record().method {
            Method::Hook => {
                let content = snapshot.path().join(hook::CONTENT);
                Some(HookImage::open_of(
                    &content,
                    snapshot.record().files_crc32c,
                )?)
            }
            _ => None,
        };
        let mut target = Self {
            base: tree::of_image(image.files()),
            snapshot: snapshot.clone(),
            number,
            back,
            image,
            hooked,
            over: None,
        };
        if let Some(state) = back.state() {
            let before = overwritten::directory_of(snapshot.path(), state);
            let none = || SnapshotError::NoState {
                name: state.to_string(),
                known: Vec::new(),
            };
            let record = UndoRecord::read(&before.join(UNDO))?.ok_or_else(none)?;
            let found = Kept::open(&before, record.page_bytes)?.ok_or_else(none)?;
            if record.snapshot_id != snapshot.record().id {
                return Err(none());
            }
            let reader = found.reader()?;
            target.over = Some((found, reader));
        }
        Ok(target)
    }

    /// Its pg_control. Refuses a state of another cluster, or of another version.
    pub(super) fn check(&self, now: &Control) -> Result<Control, SnapshotError> {
        let then = self.control()?;
        let then = Control::parse(then).map_err(|what| SnapshotError::Damaged {
            path: self.snapshot.path().to_owned(),
            what,
        })?;
        let key = |it: &Control| {
            (
                it.system_identifier,
                it.catalog_version,
                it.block_bytes,
                it.wal_segment_bytes,
            )
        };
        match key(&then) == key(now) {
            true => Ok(then),
            false => Err(SnapshotError::OtherCluster {
                name: self.snapshot.record().name.clone(),
            }),
        }
    }

    /// Whether a cluster that was shut down, and has its pages, has everything that a server would
    /// replay of its log, too.
    pub(super) fn needs_nothing_of_log(
        &self,
        data: &Path,
        control: &Control,
    ) -> Result<bool, SnapshotError> {
        if self.over.is_some() {
            // A state is that of a cluster which was shut down.
            return Ok(true);
        }
        let facts = &self.snapshot.record().facts;
        let facts = DatabaseFacts::of_set(&facts.database)?;
        let timeline = facts.wal.last().map_or(facts.timeline, |it| it.timeline);
        descent::went_through(data, control, (timeline, facts.stop_lsn))
    }

    /// The files of the target.
    pub(super) fn tree(&self) -> &Tree {
        match &self.over {
            Some((kept, _)) => kept.tree(),
            None => &self.base,
        }
    }

    /// How long a file is, in the snapshot and in the target. `None` where it is not there.
    pub(super) fn lengths(&self, path: &[u8]) -> (Option<u64>, Option<u64>) {
        let length = |tree: &Tree| {
            let entry = tree.get(path).filter(|it| it.kind == FileKind::File);
            entry.map(|entry| entry.bytes)
        };
        (length(&self.base), length(self.tree()))
    }

    /// The record of a state that this revert overwrites. Its pages come later.
    pub(super) fn record(&self, control: &Control, files_crc32c: u32) -> UndoRecord {
        UndoRecord {
            files_crc32c: Some(files_crc32c),
            ..record_of(
                (&self.snapshot, self.number),
                self.back,
                control.block_bytes,
            )
        }
    }

    /// Whether it is the snapshot itself.
    pub(super) fn is_snapshot(&self) -> bool {
        self.over.is_none()
    }

    /// Reads pages of a file. What lies behind an end is zeros. Parts come in ascending order. If
    /// it is the snapshot itself, only the target's part is read.
    pub(super) fn read(
        &mut self,
        path: &[u8],
        (first, page_bytes): (u32, u32),
        part: Part<'_>,
    ) -> Result<(), SnapshotError> {
        let offset = u64::from(first) * u64::from(page_bytes);
        let Part { base, target } = part;
        let entry = self.base.get(path);
        let found = match entry.filter(|entry| entry.kind == FileKind::File) {
            Some(entry) => self.image.read(entry.file, offset, target)?,
            None => 0,
        };
        target[found..].fill(0);
        let (_, length) = self.lengths(path);
        let Some((kept, reader)) = &mut self.over else {
            return Ok(());
        };
        base.copy_from_slice(target);
        if let (Some(number), Some(length)) = (kept.pages().first(path), length) {
            // The numbers behind the last page are those of the next file.
            let left = length.div_ceil(u64::from(page_bytes)) * u64::from(page_bytes);
            let left = left.saturating_sub(offset).min(target.len() as u64);
            reader.skip_to(number + first)?;
            reader.lay_over(number + first, &mut target[..fitted::<usize, _>(left)])?;
        }
        Ok(())
    }

    /// Whether pages of a file up to this one are kept over the snapshot.
    pub(super) fn has_over(
        &mut self,
        path: &[u8],
        pages: (u32, u32),
    ) -> Result<bool, SnapshotError> {
        let Some((kept, reader)) = &mut self.over else {
            return Ok(false);
        };
        let Some(number) = kept.pages().first(path) else {
            return Ok(true);
        };
        reader.skip_to(number + pages.0)?;
        Ok(reader.has_below(number + pages.1))
    }

    /// Begins again with the first part.
    pub(super) fn rewind(&mut self) -> Result<(), SnapshotError> {
        if let Some((kept, reader)) = &mut self.over {
            *reader = kept.reader()?;
        }
        Ok(())
    }

    /// The clone of a file, if the snapshot consists of clones.
    pub(super) fn clone_of(&self, path: &[u8]) -> Option<File> {
        let entry = self.base.get(path)?;
        let is_clone = self.snapshot.record().method == Method::Clone;
        is_clone.then(|| image::open_file(self.snapshot.path(), entry.file).ok())?
    }

    /// Whether the hook knows that these bytes of the cluster's file are those of the snapshot.
    pub(super) fn is_unwritten(&self, path: &[u8], file: &File, (start, end): (u64, u64)) -> bool {
        let (Some(hooked), Some(entry)) = (&self.hooked, self.base.get(path)) else {
            return false;
        };
        hooked.is_unwritten(entry.file, file, start, end)
    }

    /// The content of pg_control.
    fn control(&self) -> Result<Vec<u8>, SnapshotError> {
        if let Some((kept, _)) = &self.over {
            return kept.control();
        }
        let missing = SnapshotError::Damaged {
            path: self.snapshot.path().to_owned(),
            what: "it has no pg_control",
        };
        self.small(CONTROL_PATH)?.ok_or(missing)
    }

    /// The label of a snapshot that was made through the backup interface.
    pub(super) fn label(&self) -> Result<Option<Vec<u8>>, SnapshotError> {
        match self.over {
            Some(_) => Ok(None),
            None => self.small(LABEL),
        }
    }

    /// Puts the segments of the log into the cluster.
    pub(super) fn put_log(&self, data: &Path, pending: &Path) -> Result<(), SnapshotError> {
        if let Some((kept, _)) = &self.over {
            return log::put_kept(data, pending, kept.directory());
        }
        for entry in &self.image.files().0 {
            let Some(name) = name_in_log(entry) else {
                continue;
            };
            if log::is_segment(name.as_bytes()) {
                log::put((data, pending), name, true, |at| self.copy(entry, at))?;
            } else if name.as_bytes().ends_with(b".history") {
                let at = data.join(LOG).join(name);
                if !at.exists() {
                    self.copy(entry, &at)?;
                }
            }
        }
        Ok(())
    }

    fn small(&self, path: &str) -> Result<Option<Vec<u8>>, SnapshotError> {
        let mut files = self.image.files().0.iter();
        let entry = files.find(|entry| entry.path == path.as_bytes());
        let Some(entry) = entry.filter(|entry| entry.bytes <= SMALL_BYTES_MAX) else {
            return Ok(None);
        };
        let mut bytes = vec![0; fitted(entry.bytes)];
        let found = self.image.read(entry.file, 0, &mut bytes)?;
        bytes.truncate(found);
        Ok(Some(bytes))
    }

    fn copy(&self, entry: &FileEntry, to: &Path) -> Result<(), SnapshotError> {
        let mut out = File::create(to).doing("create", to)?;
        let (mut block, mut offset) = (vec![0; COPY_BYTES], 0);
        while offset < entry.bytes {
            let count = self.image.read(entry.file, offset, &mut block)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof).doing("read the snapshot's copy of", to);
            }
            out.write_all(&block[..count]).doing("write", to)?;
            offset += count as u64;
        }
        Ok(())
    }
}

/// The name of a file of the log.
fn name_in_log(entry: &FileEntry) -> Option<&OsStr> {
    let name = entry
        .path
        .strip_prefix(LOG.as_bytes())?
        .strip_prefix(b"/")?;
    let is_file = entry.kind == FileKind::File && !name.contains(&b'/');
    is_file.then(|| OsStr::from_bytes(name))
}
