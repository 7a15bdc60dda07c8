//! An image in the form in which the readers of catalogs and of the log take the files of a
//! cluster.

use windlass_engine::media::{FileNo, FileTable};
use windlass_image::Image;
use windlass_postgres::{ClusterFiles, ReadError};

/// An image in the form that the readers of catalogs take.
pub struct AsCluster<'a>(pub &'a dyn Image);

impl ClusterFiles for AsCluster<'_> {
    fn files(&self) -> &FileTable {
        self.0.files()
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        Ok(self.0.read(file, offset, into)?)
    }
}
