//! What a backup reads: files of the source, cut into units that fill one buffer each.
//!
//! A unit is one extent of a large file, or many small files bundled: 50,000 files of 8 KiB cost
//! 400 transfers, not 50,000. Units are cut where files are pushed, so readers only read.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use windlass_media::{FileNo, crc32c_zeros_after};

use crate::error::EngineError;
use crate::read::ReadFile;
use crate::storage::ReadAt;
use crate::waits::may_block;

/// A file to back up. Exactly `bytes` bytes of it go into the set. If the file is longer, it is cut
/// there (the log holds the rest). If it is shorter, its first `needed_bytes` must still be there,
/// or the run fails; the bytes missing after them are filled with zeros.
#[derive(Clone, Debug)]
pub struct FileSpec {
    /// Its number in the set.
    pub file: FileNo,
    /// Where its bytes come from.
    pub content: FileContent,
    /// Its length in the set, in bytes.
    pub bytes: u64,
    /// How many bytes from its start must be there. This equals `bytes` if nothing may shorten the
    /// file during the backup. It is less if recovery or another source restores what is missing.
    pub needed_bytes: u64,
    /// What to do when the file does not exist.
    pub missing: Missing,
}

/// Where the bytes of a file come from.
#[derive(Clone, Debug)]
pub enum FileContent {
    /// A path. It is opened when the first byte is needed, and closed after the last.
    Path(PathBuf),
    /// An open file.
    Open(Arc<File>),
    /// Bytes of anything else, such as a file in an image.
    At(Arc<dyn ReadAt>),
    /// These bytes.
    Bytes(Arc<[u8]>),
}

/// What to do when a file does not exist at the moment it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The backup fails.
    Fail,
    /// It was dropped after it was listed, so it is not part of the set.
    Skip,
}

/// What became of a file in the backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOutcome {
    /// It did not exist, and that was no error.
    pub vanished: bool,
    /// CRC-32C of its bytes in the set, without layers.
    pub crc32c: u32,
    /// How many bytes were missing at its end and were filled with zeros.
    pub short_bytes: u64,
    /// How many bytes were left out, by a hook or by the caller. The CRC-32C means nothing if there
    /// are any.
    pub dropped_bytes: u64,
}

/// A file of the source, while units of it are under way.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) spec: FileSpec,
    opened: OnceLock<Result<Option<ReadFile>, Mutex<Option<io::Error>>>>,
}

impl SourceFile {
    pub(crate) fn new(spec: FileSpec) -> Arc<Self> {
        Arc::new(Self {
            spec,
            opened: OnceLock::new(),
        })
    }

    /// The open file, or `None` when it has vanished and may. It is opened once, so extents that
    /// are read later see the same inode, or the same absence, as the first one.
    pub(crate) fn open(&self) -> Result<Option<&ReadFile>, EngineError> {
        let open = || self.open_now().map_err(|error| Mutex::new(Some(error)));
        let opened = self.opened.get_or_init(open);
        opened.as_ref().map(Option::as_ref).map_err(|failed| {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            match failed.take() {
                Some(error) => self.error("open", 0, error),
                None => EngineError::Stopped,
            }
        })
    }

    /// True when opening it is no wait any more.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    fn open_now(&self) -> io::Result<Option<ReadFile>> {
        may_block();
        match &self.spec.content {
            FileContent::Open(file) => Ok(Some(ReadFile::of_file(Arc::clone(file)))),
            FileContent::At(bytes) => Ok(Some(ReadFile::of(Arc::clone(bytes)))),
            FileContent::Bytes(_) => Ok(None),
            FileContent::Path(path) => match ReadFile::open(path) {
                Err(error) if self.may_vanish(&error) => Ok(None),
                other => other.map(Some),
            },
        }
    }

    fn may_vanish(&self, error: &io::Error) -> bool {
        self.spec.missing == Missing::Skip && error.kind() == io::ErrorKind::NotFound
    }

    /// Returns an error if the file has nothing at `end_offset` although it must be longer. The
    /// error names the end of the file, which may lie before `end_offset`: several threads read.
    pub(crate) fn check_end(&self, file: &ReadFile, end_offset: u64) -> Result<(), EngineError> {
        if end_offset >= self.spec.needed_bytes {
            return Ok(());
        }
        let length = file.bytes().length();
        Err(EngineError::SourceShort {
            path: self.path(),
            found_bytes: length.map_or(end_offset, |length| length.min(end_offset)),
            needed_bytes: self.spec.needed_bytes,
        })
    }

    pub(crate) fn error(
        &self,
        operation: &'static str,
        offset: u64,
        source: io::Error,
    ) -> EngineError {
        EngineError::SourceIo {
            operation,
            path: self.path(),
            offset,
            source,
        }
    }

    fn path(&self) -> PathBuf {
        match &self.spec.content {
            FileContent::Path(path) => path.clone(),
            FileContent::At(bytes) => bytes.name().unwrap_or_else(|| self.number()),
            FileContent::Open(_) => self.number(),
            FileContent::Bytes(_) => Path::new("(memory)").to_owned(),
        }
    }

    fn number(&self) -> PathBuf {
        PathBuf::from(format!("(file {})", self.spec.file))
    }
}

/// One part of a unit: a run of bytes of one file.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) layer: u8,
}

/// A part whose bytes were read. It does not keep its file open: a buffer may have a thousand of
/// them, and there are many buffers.
#[derive(Debug)]
pub(crate) struct ReadPart {
    pub(crate) file: FileNo,
    /// How long the file is in the set.
    pub(crate) file_bytes: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) layer: u8,
}

impl Part {
    /// The part once it was read. The file is closed with its last part.
    pub(crate) fn into_read(self) -> ReadPart {
        ReadPart {
            file: self.file.spec.file,
            file_bytes: self.file.spec.bytes,
            offset: self.offset,
            bytes: self.bytes,
            layer: self.layer,
        }
    }
}

/// The part of a file that has not been cut into units yet.
#[derive(Debug)]
pub(crate) struct Uncut {
    pub(crate) file: Arc<SourceFile>,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) layer: u8,
}

/// What is read into one buffer.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    pub(crate) parts: Vec<Part>,
}

impl Unit {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// How many parts a unit may have. It bounds the pieces of a frame, and the work between two looks
/// at a flag.
const PARTS_MAX: usize = 1024;

/// Cuts files into units.
#[derive(Debug)]
pub(crate) struct Cutter {
    unit_bytes: usize,
    bundle: Unit,
}

impl Cutter {
    pub(crate) fn new(unit_bytes: usize) -> Self {
        Self {
            unit_bytes,
            bundle: Unit::default(),
        }
    }

    /// The next full unit of `rest`; `None` when nothing is left to cut. Units are made one at a
    /// time, because a file of a terabyte has a million of them.
    pub(crate) fn next(&mut self, rest: &mut Uncut) -> Option<Unit> {
        while rest.offset < rest.end {
            let part = self.take_part(rest);
            // A part of at least half a buffer has a buffer of its own, so that it is read directly
            // into place.
            if part.bytes * 2 >= self.unit_bytes {
                return Some(Unit { parts: vec![part] });
            }
            let full = self.bundle.bytes() + part.bytes > self.unit_bytes
                || self.bundle.parts.len() == PARTS_MAX;
            let bundle = full.then(|| std::mem::take(&mut self.bundle));
            self.bundle.parts.push(part);
            if bundle.is_some() {
                return bundle;
            }
        }
        None
    }

    /// The last bundle, which is not full.
    pub(crate) fn flush(&mut self) -> Option<Unit> {
        (!self.bundle.parts.is_empty()).then(|| std::mem::take(&mut self.bundle))
    }

    /// Cuts off a part that is at most as long as a buffer.
    fn take_part(&self, rest: &mut Uncut) -> Part {
        let left = rest.end - rest.offset;
        let bytes = usize::try_from(left).map_or(self.unit_bytes, |left| left.min(self.unit_bytes));
        let part = Part {
            file: Arc::clone(&rest.file),
            offset: rest.offset,
            bytes,
            layer: rest.layer,
        };
        rest.offset += bytes as u64;
        part
    }
}

/// What became of each file, by number.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<Vec<FileOutcome>>);

impl Outcomes {
    pub(crate) fn get(&self, file: FileNo) -> Option<FileOutcome> {
        let outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.get(file.0 as usize).copied()
    }

    fn update(&self, file: FileNo, change: impl FnOnce(&mut FileOutcome)) {
        let mut outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = file.0 as usize;
        if outcomes.len() <= index {
            outcomes.resize(index + 1, FileOutcome::default());
        }
        change(&mut outcomes[index]);
    }

    pub(crate) fn vanish(&self, file: FileNo) {
        self.update(file, |outcome| outcome.vanished = true);
    }

    pub(crate) fn short(&self, file: FileNo, bytes: u64) {
        self.update(file, |outcome| outcome.short_bytes += bytes);
    }

    pub(crate) fn dropped(&self, file: FileNo, bytes: u64) {
        self.update(file, |outcome| outcome.dropped_bytes += bytes);
    }

    /// Whether bytes of a file were left out.
    pub(crate) fn has_dropped(&self, file: FileNo) -> bool {
        self.get(file)
            .is_some_and(|outcome| outcome.dropped_bytes > 0)
    }

    /// Makes the file known. An empty file has no pieces, and its CRC is that of no bytes.
    pub(crate) fn know(&self, file: FileNo) {
        self.update(file, |_| {});
    }

    /// Adds a piece's CRC to its file's; the file is `file_bytes` long.
    pub(crate) fn add_crc(&self, file: FileNo, crc: u32, end: u64, file_bytes: u64) {
        let share = crc32c_zeros_after(crc, file_bytes - end);
        self.update(file, |outcome| outcome.crc32c ^= share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u32, bytes: u64) -> Arc<SourceFile> {
        let content = FileContent::Bytes(Arc::from([]));
        SourceFile::new(FileSpec {
            file: FileNo(number),
            content,
            bytes,
            needed_bytes: bytes,
            missing: Missing::Fail,
        })
    }

    /// The sizes of all full units of a file.
    fn sizes(cutter: &mut Cutter, number: u32, bytes: u64) -> Vec<usize> {
        let mut rest = Uncut {
            file: file(number, bytes),
            offset: 0,
            end: bytes,
            layer: 0,
        };
        std::iter::from_fn(|| cutter.next(&mut rest).map(|unit| unit.bytes())).collect()
    }

    #[test]
    fn large_files_are_cut_and_small_ones_bundled() {
        let mut cutter = Cutter::new(1000);
        assert!(sizes(&mut cutter, 0, 300).is_empty());
        assert_eq!(sizes(&mut cutter, 1, 2600), [1000, 1000, 600]);
        assert!(sizes(&mut cutter, 2, 400).is_empty());
        assert_eq!(sizes(&mut cutter, 3, 400), [700]);
        assert_eq!(cutter.flush().unwrap().bytes(), 400);
        assert!(cutter.flush().is_none());
    }
}
