//! An image as the source of a backup: its files go through the pipeline like those of a directory.
//!
//!   Image --> [ImageSource] --push--> BackupRun --outcomes--> [ImageSource::files] --> finish
//!
//! Invariants
//! - The files get new numbers, one after another. The numbers of an image may come from a set, and
//!   so from anywhere; a run keeps memory up to the highest number.
//! - If the image knows the checksum of a whole file, what was read must have it.
//! - Holes cost no I/O with the image's own storage, as far as the image knows them, and none with
//!   the devices.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileKind, FileNo, FileTable, fitted};
use windlass_engine::{
    BackupRun, EngineError, FileClasses, FileContent, FileOutcome, FileSpec, Missing, PageClass,
    ReadAt,
};

use crate::error::ImageError;
use crate::image::Image;

/// An image that is backed up.
pub struct ImageSource {
    image: Arc<dyn Image>,
}

/// One file of an image.
struct ImageFile {
    image: Arc<dyn Image>,
    file: FileNo,
    bytes: u64,
    path: PathBuf,
}

impl ImageSource {
    /// Takes an image. It must not change until the run has ended.
    pub fn new(image: Arc<dyn Image>) -> Self {
        Self { image }
    }

    /// The bytes of one file of the image.
    pub fn bytes_of(&self, file: FileNo) -> Option<Arc<dyn ReadAt>> {
        let mut entries = self.image.files().0.iter();
        let entry = entries.find(|entry| entry.file == file && entry.kind == FileKind::File)?;
        Some(Arc::new(self.file(entry)))
    }

    fn file(&self, entry: &FileEntry) -> ImageFile {
        ImageFile {
            image: Arc::clone(&self.image),
            file: entry.file,
            bytes: entry.bytes,
            path: PathBuf::from(entry.path_lossy()),
        }
    }

    /// Every entry of the image's table, with its number in the new set.
    fn entries(&self) -> impl Iterator<Item = (FileNo, &FileEntry)> {
        (0u32..).map(FileNo).zip(&self.image.files().0)
    }

    /// The files, as a run takes them. Directories and links are only in the table.
    pub fn specs(&self) -> impl Iterator<Item = FileSpec> {
        let files = self.entries();
        let files = files.filter(|(_, entry)| entry.kind == FileKind::File);
        files.map(|(file, entry)| FileSpec {
            file,
            content: FileContent::At(Arc::new(self.file(entry))),
            bytes: entry.bytes,
            needed_bytes: entry.bytes,
            missing: Missing::Fail,
        })
    }

    /// Adds all files of the image to a run that has no others.
    pub fn push(&self, run: &mut BackupRun) -> Result<(), EngineError> {
        self.specs().try_for_each(|spec| run.push(spec))
    }

    /// Says of each file how its pages are laid out; `None` if that is not known. Call it before
    /// the files are added.
    pub fn classify(&self, run: &mut BackupRun, of: impl Fn(&FileEntry) -> Option<Arc<PageClass>>) {
        let files = self.entries();
        let files = files.filter(|(_, entry)| entry.kind == FileKind::File);
        let classes = files.filter_map(|(file, entry)| Some((file, of(entry)?)));
        run.set_hook(Arc::new(classes.collect::<FileClasses>()));
    }

    /// The file table of the new set, once the run has read everything (`drain`). It says of every
    /// file the checksum of what was read.
    pub fn files(&self, run: &BackupRun) -> Result<FileTable, ImageError> {
        let entries = self.entries();
        let entries = entries.map(|(file, entry)| self.entry(file, entry, run.outcome(file)));
        entries.collect::<Result<_, _>>().map(FileTable)
    }

    fn entry(
        &self,
        file: FileNo,
        entry: &FileEntry,
        outcome: Option<FileOutcome>,
    ) -> Result<FileEntry, ImageError> {
        let mut new = FileEntry {
            file,
            ..entry.clone()
        };
        if entry.kind != FileKind::File {
            return Ok(new);
        }
        // Before the new set exists, nothing about the bytes that went into it is only believed.
        self.image.check_layers(entry.file)?;
        let path = || entry.path_lossy();
        let found = outcome.ok_or_else(|| ImageError::Missing {
            path: path(),
            offset: 0,
        })?;
        match self.image.file_checksum(entry) {
            Some(expected) if expected != found.crc32c => Err(ImageError::FileChecksum {
                path: path(),
                expected,
                found: found.crc32c,
            }),
            _ => {
                new.crc32c = found.crc32c;
                new.flags.crc_known = true;
                Ok(new)
            }
        }
    }
}

impl fmt::Debug for ImageFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ImageFile({}, {} bytes)", self.file, self.bytes)
    }
}

impl ReadAt for ImageFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        // While these bytes are decoded, the system fetches the next ones.
        let next = offset.saturating_add(fitted(into.len()));
        if next < self.bytes {
            self.image.will_need(self.file, next);
        }
        let read = self.image.read(self.file, offset, into);
        read.map_err(ImageError::into_io)
    }

    fn will_need(&self, offset: u64, _bytes: u64) {
        self.image.will_need(self.file, offset);
    }

    fn name(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }
}
