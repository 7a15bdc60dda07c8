//! The beginning of a file, as if the file ended there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::ReadAt;

use crate::error::{IoContext, PostgresError};

/// The first bytes of a file.
#[derive(Debug)]
pub(super) struct Beginning {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Beginning {
    /// The first `bytes` bytes of the file at a path.
    pub(super) fn open(path: &Path, bytes: u64) -> Result<Arc<Self>, PostgresError> {
        let file = File::open(path).doing("open", path)?;
        let path = path.to_owned();
        Ok(Arc::new(Self { file, path, bytes }))
    }
}

impl ReadAt for Beginning {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().min(self.bytes))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes.saturating_sub(offset);
        let most = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let mut filled = 0;
        while filled < most {
            let read = self
                .file
                .read_at(&mut into[filled..most], offset + filled as u64);
            match read {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn name(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }
}
