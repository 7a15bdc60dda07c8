//! What an image is, and how its files are found by number.

use windlass_engine::media::{FileEntry, FileKind, FileNo, FileTable};

use crate::error::ImageError;

/// A database as of one moment: files, and their bytes at any offset.
pub trait Image: Send + Sync {
    /// All files, directories and links; a directory comes before what it holds.
    fn files(&self) -> &FileTable;

    /// Reads bytes of a file at `offset`; returns how many.
    ///
    /// It returns fewer than `into.len()` only at the end of the file; 0 means that `offset` is at
    /// or beyond the end. Holes read as zeros. After an error the content of `into` is unspecified.
    /// Any number of threads may read at once.
    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError>;

    /// What is known about the bytes at `offset` without reading them. `None` when the image keeps
    /// no checksums, or when `offset` is at or beyond the end of the file.
    fn checksum(&self, file: FileNo, offset: u64) -> Result<Option<Checksummed>, ImageError> {
        let _ = (file, offset);
        Ok(None)
    }

    /// The CRC-32C of a whole file, if the image keeps it. Whoever has read the whole file can
    /// compare: this finds bytes that are right one by one and do not belong together.
    fn file_checksum(&self, _entry: &FileEntry) -> Option<u32> {
        None
    }

    /// Finds out which bytes of a file count, wherever that is written. Whoever reads a whole file
    /// calls this first: it costs little beside the bytes, and afterwards nobody has to believe a
    /// list that says where that need not be looked up.
    fn check_layers(&self, _file: FileNo) -> Result<(), ImageError> {
        Ok(())
    }

    /// Announces that a file will be read from `offset` on. The system may fetch those bytes in the
    /// background; this call does not wait for them.
    fn will_need(&self, _file: FileNo, _offset: u64) {}

    /// Announces that these bytes will be read soon. This call prepares them at once, on the
    /// calling thread. If they cannot be read, the later read reports the error, not this call.
    fn prefetch(&self, _file: FileNo, _offset: u64, _bytes: u64) {}

    /// Distinguishes this image from every other, and is the same each time the image is opened. An
    /// overlay is bound to it. `None` when there is no such value: a directory can change between
    /// two openings.
    fn identity(&self) -> Option<[u8; 32]> {
        None
    }
}

/// A run of a file's bytes that was checksummed when the image was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksummed {
    /// Where the run ends.
    pub end: u64,
    /// The CRC-32C of the bytes from the requested offset to `end`. `None` when it is not known,
    /// because the run began before the offset or because another layer replaces a part of it.
    pub crc32c: Option<u32>,
}

/// The regular files of a table, by number.
#[derive(Debug)]
pub(crate) struct FileLookup(Vec<(FileNo, usize)>);

impl FileLookup {
    pub(crate) fn new(files: &FileTable) -> Self {
        let entries = files.0.iter().enumerate();
        let mut numbers: Vec<_> = entries.map(|(index, entry)| (entry.file, index)).collect();
        numbers.sort_unstable();
        Self(numbers)
    }

    /// Where the regular file `file` stands in the table that this lookup was made from.
    pub(crate) fn index(&self, files: &FileTable, file: FileNo) -> Result<usize, ImageError> {
        let found = self.0.binary_search_by_key(&file, |(number, _)| *number);
        let index = found
            .map(|at| self.0[at].1)
            .map_err(|_| ImageError::NoFile { file })?;
        let entry = &files.0[index];
        match entry.kind {
            FileKind::File => Ok(index),
            _ => Err(ImageError::NotAFile {
                path: entry.path_lossy(),
            }),
        }
    }
}

/// How many bytes of `entry` a read of `wanted` bytes at `offset` returns.
pub(crate) fn read_length(entry: &FileEntry, offset: u64, wanted: usize) -> usize {
    let left = entry.bytes.saturating_sub(offset);
    usize::try_from(left).map_or(wanted, |left| left.min(wanted))
}

/// Reads bytes that the file must have. If an image returns fewer, it breaks its promise, and this
/// is an error. Otherwise the caller would take old content of `into` for bytes of the file.
pub(crate) fn read_exact(
    image: &dyn Image,
    entry: &FileEntry,
    offset: u64,
    into: &mut [u8],
) -> Result<(), ImageError> {
    let count = image.read(entry.file, offset, into)?;
    if count == into.len() {
        return Ok(());
    }
    Err(ImageError::Missing {
        path: entry.path_lossy(),
        offset: offset + count as u64,
    })
}
