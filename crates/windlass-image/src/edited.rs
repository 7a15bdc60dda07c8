//! An image with edits: a different file table, and bytes that replace some bytes of the image.
//!
//! Sometimes a program must not see exactly what was backed up: paths that would lead it elsewhere,
//! or a byte that says how the database was used. Edits are kept in memory, so keep them few.

use std::sync::Arc;

use windlass_engine::media::{FileNo, FileTable, fitted};

use crate::error::ImageError;
use crate::image::{FileLookup, Image, read_length};

/// Bytes that replace an image's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// In which file.
    pub file: FileNo,
    /// The position of the first byte in the file.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// An image with edits.
pub struct EditedImage {
    image: Arc<dyn Image>,
    files: FileTable,
    lookup: FileLookup,
    patches: Vec<Patch>,
}

impl EditedImage {
    /// Shows `image` with the table `files`. Entries may have other paths, modes and link targets;
    /// files may be shorter; directories and links may be new. The patches are applied in order.
    pub fn new(image: Arc<dyn Image>, files: FileTable, patches: Vec<Patch>) -> Self {
        Self {
            lookup: FileLookup::new(&files),
            image,
            files,
            patches,
        }
    }
}

impl Image for EditedImage {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        let entry = &self.files.0[self.lookup.index(&self.files, file)?];
        let length = read_length(entry, offset, into.len());
        let count = self.image.read(file, offset, &mut into[..length])?;
        for patch in self.patches.iter().filter(|patch| patch.file == file) {
            apply(patch, offset, &mut into[..count]);
        }
        Ok(count)
    }

    /// Made from the identity of the image and from the edits.
    fn identity(&self) -> Option<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.image.identity()?);
        hasher.update(&self.files.encode().ok()?);
        for patch in &self.patches {
            hasher.update(&patch.file.0.to_le_bytes());
            hasher.update(&patch.offset.to_le_bytes());
            hasher.update(&(patch.bytes.len() as u64).to_le_bytes());
            hasher.update(&patch.bytes);
        }
        Some(*hasher.finalize().as_bytes())
    }

    fn check_layers(&self, file: FileNo) -> Result<(), ImageError> {
        self.image.check_layers(file)
    }

    fn will_need(&self, file: FileNo, offset: u64) {
        self.image.will_need(file, offset);
    }

    fn prefetch(&self, file: FileNo, offset: u64, bytes: u64) {
        self.image.prefetch(file, offset, bytes);
    }
}

/// Copies the part of a patch that lies in `into`. The first byte of `into` is at `offset` of the
/// file.
fn apply(patch: &Patch, offset: u64, into: &mut [u8]) {
    let start = patch.offset.max(offset);
    let end = (patch.offset + patch.bytes.len() as u64).min(offset + into.len() as u64);
    if start >= end {
        return;
    }
    let within = |from: u64| fitted(start - from);
    let count: usize = fitted(end - start);
    let (to, from) = (within(offset), within(patch.offset));
    into[to..to + count].copy_from_slice(&patch.bytes[from..from + count]);
}
