//! A file of a set that is not in its file table. It is no part of the image, and its bytes are
//! those of this set alone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_engine::ReadAt;
use windlass_engine::media::{FileEntry, FileFlags, FileKind, FileNo};

use super::SetImage;
use crate::error::ImageError;
use crate::image::{Image, read_length};

/// The bytes of such a file.
struct UnlistedFile {
    image: Arc<SetImage>,
    entry: FileEntry,
    /// Its layers were checked: a backup leaves out pages because of what such a file says.
    checked: AtomicBool,
}

impl SetImage {
    /// The bytes of a file that is in the set and not in its table. `None` if the set says of no
    /// such file.
    pub fn unlisted(image: &Arc<Self>, file: FileNo, bytes: u64) -> Option<Arc<dyn ReadAt>> {
        let about = image.set.description();
        let entry = about.superseded.contains(file).then(|| FileEntry {
            file,
            kind: FileKind::File,
            flags: FileFlags::default(),
            mode: 0,
            bytes,
            mtime_nanos: 0,
            crc32c: 0,
            path: format!("(file {file})").into_bytes(),
            link_target: Vec::new(),
        })?;
        Some(Arc::new(UnlistedFile {
            image: Arc::clone(image),
            entry,
            checked: AtomicBool::new(false),
        }))
    }
}

impl std::fmt::Debug for UnlistedFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "UnlistedFile({})", self.entry.file)
    }
}

impl ReadAt for UnlistedFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.entry.bytes)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if !self.checked.load(Ordering::Relaxed) {
            let checked = self.image.check_layers(self.entry.file);
            checked.map_err(ImageError::into_io)?;
            self.checked.store(true, Ordering::Relaxed);
        }
        let length = read_length(&self.entry, offset, into.len());
        let read = self
            .image
            .read_entry(&self.entry, offset, &mut into[..length]);
        read.map_err(ImageError::into_io)?;
        Ok(length)
    }

    fn name(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.entry.path_lossy()))
    }
}
