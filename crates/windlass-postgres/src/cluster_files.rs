//! The files of a cluster's image, as those who read the log and the catalogs need them.

use windlass_media::{FileNo, FileTable};

/// The files of a cluster's image, for its readers: a directory, a set or a view.
pub trait ClusterFiles {
    /// All files, by their paths below the data directory.
    fn files(&self) -> &FileTable;

    /// Reads bytes of a file. Returns how many; fewer than asked for only at the file's end.
    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ReadError>;
}

/// Why an image cannot be read, as the image's own error.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;
