//! Writes a log object: frames one after the other, then index and end.
//!
//! Invariant: the object gets its name only when all of it is durable. What a killed run leaves has
//! a temporary name, and the next run in the directory removes it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use windlass_engine::durable::{self, NameError};
use windlass_media::{
    Codec, FormatError, LogEnd, LogFrame, LogHeader, LogIndexEntry, crc32c, encode_log_index,
    fitted, saturated,
};

use crate::compress::{Bytes, Compressor, Packed};
use crate::error::{FormatContext, IoContext, RepositoryError};

/// Decoded bytes of a frame. Large frames compress better; nobody reads a log page by page.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;
/// Mode of an object: only its owner reads it, because log holds everything that was written.
pub(crate) const MODE: u32 = 0o600;

/// How an object is compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    pub(crate) codec: Codec,
    pub(crate) threads: usize,
}

/// Frames, appended to a file.
pub(crate) struct FrameWriter {
    compressor: Compressor,
    frames: Frames,
}

/// Compressed frames in a file.
struct Frames {
    file: File,
    hasher: blake3::Hasher,
    index: Vec<LogIndexEntry>,
    /// Where the next frame goes.
    offset: u64,
    /// Position of the next byte.
    position: u64,
    /// Everything before this position is durable.
    durable: u64,
    stored_bytes: u64,
}

impl FrameWriter {
    /// Begins an object in an empty file.
    pub(crate) fn begin(
        mut file: File,
        path: &Path,
        header: &LogHeader,
        packing: Packing,
    ) -> Result<Self, RepositoryError> {
        let bytes = header.encode().of(path)?;
        file.write_all(&bytes).doing("write", path)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes);
        Ok(Self {
            compressor: compressor(packing).of(path)?,
            frames: Frames {
                file,
                hasher,
                index: Vec::new(),
                offset: bytes.len() as u64,
                position: header.start,
                durable: header.start,
                stored_bytes: bytes.len() as u64,
            },
        })
    }

    /// Goes on with an object, behind the frames that `index` lists. Everything before is durable.
    pub(crate) fn resume(
        file: File,
        (hasher, offset): (blake3::Hasher, u64),
        (index, position): (Vec<LogIndexEntry>, u64),
        (packing, path): (Packing, &Path),
    ) -> Result<Self, RepositoryError> {
        Ok(Self {
            compressor: compressor(packing).of(path)?,
            frames: Frames {
                file,
                hasher,
                index,
                offset,
                position,
                durable: position,
                stored_bytes: offset,
            },
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.frames.file
    }

    pub(crate) fn position(&self) -> u64 {
        self.frames.position
    }

    pub(crate) fn durable(&self) -> u64 {
        self.frames.durable
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.frames.stored_bytes
    }

    pub(crate) fn frames(&self) -> u32 {
        saturated(self.frames.index.len())
    }

    /// Appends the first bytes of a source, which follow those before.
    pub(crate) fn append(
        &mut self,
        source: &(impl Bytes + ?Sized),
        bytes: u64,
        path: &Path,
    ) -> Result<(), RepositoryError> {
        let frames = &mut self.frames;
        let compressor = &mut self.compressor;
        compressor.pack(source, bytes, |packed| frames.append(packed, path))
    }

    /// Makes everything durable that was appended.
    pub(crate) fn sync(&mut self, path: &Path) -> Result<(), RepositoryError> {
        self.frames.file.sync_data().doing("sync", path)?;
        self.frames.durable = self.frames.position;
        Ok(())
    }

    /// Appends index and end, and syncs.
    pub(crate) fn finish(&mut self, path: &Path) -> Result<(), RepositoryError> {
        self.frames.finish(path)
    }
}

fn compressor(packing: Packing) -> Result<Compressor, FormatError> {
    Compressor::new(packing.codec, packing.threads, FRAME_BYTES as usize)
}

impl Frames {
    fn append(&mut self, packed: Packed<'_>, path: &Path) -> Result<(), RepositoryError> {
        let frame = LogFrame {
            position: self.position,
            codec: packed.codec,
            stored_bytes: fitted(packed.stored.len()),
            decoded_bytes: packed.decoded_bytes,
            stored_crc: crc32c(packed.stored),
            decoded_crc: packed.decoded_crc,
            unsynced_bytes: saturated(self.position - self.durable),
        };
        self.index.push(LogIndexEntry {
            position: self.position,
            offset: self.offset,
        });
        let mut bytes = frame.encode();
        bytes.extend_from_slice(packed.stored);
        self.put(&bytes, path)?;
        self.position = frame.end();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8], path: &Path) -> Result<(), RepositoryError> {
        self.file.write_all(bytes).doing("write", path)?;
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        self.stored_bytes = self.offset;
        Ok(())
    }

    fn finish(&mut self, path: &Path) -> Result<(), RepositoryError> {
        let index = encode_log_index(&self.index);
        let end = LogEnd {
            frames: saturated(self.index.len()),
            end: self.position,
            index_offset: self.offset,
            index_crc: crc32c(&index),
            content_hash: *self.hasher.finalize().as_bytes(),
        };
        let bytes = [index, end.encode()].concat();
        self.file.write_all(&bytes).doing("write", path)?;
        self.file.sync_all().doing("sync", path)?;
        self.stored_bytes += bytes.len() as u64;
        self.durable = self.position;
        Ok(())
    }
}

/// A new object under a temporary name.
pub(crate) struct NewObject {
    writer: FrameWriter,
    temporary: PathBuf,
}

impl NewObject {
    /// Begins an object beside `path`.
    pub(crate) fn begin(
        path: &Path,
        header: &LogHeader,
        packing: Packing,
    ) -> Result<Self, RepositoryError> {
        let (file, temporary) = durable::create_temporary(path, MODE).doing("create", path)?;
        let writer = FrameWriter::begin(file, &temporary, header, packing);
        let writer = writer.inspect_err(|_| discard(&temporary))?;
        Ok(Self { writer, temporary })
    }

    /// Appends the first bytes of a source.
    pub(crate) fn append(
        &mut self,
        source: &(impl Bytes + ?Sized),
        bytes: u64,
    ) -> Result<(), RepositoryError> {
        self.writer.append(source, bytes, &self.temporary)
    }

    /// Completes the object and gives it its name. `None` if another object has the name.
    pub(crate) fn seal(mut self, path: &Path) -> Result<Option<u64>, RepositoryError> {
        self.writer.finish(&self.temporary)?;
        match durable::name_new(self.writer.file(), &self.temporary, path) {
            Ok(()) => Ok(Some(self.writer.stored_bytes())),
            Err(NameError::Taken) => Ok(None),
            Err(error) => Err(std::io::Error::from(error)).doing("name", path),
        }
    }

    /// Completes the object and puts it in the place of a damaged one of the same name.
    pub(crate) fn seal_over(mut self, path: &Path) -> Result<u64, RepositoryError> {
        self.writer.finish(&self.temporary)?;
        let named = durable::name_over(self.writer.file(), &self.temporary, path);
        named.map_err(std::io::Error::from).doing("name", path)?;
        Ok(self.writer.stored_bytes())
    }
}

impl Drop for NewObject {
    fn drop(&mut self) {
        discard(&self.temporary);
    }
}

/// Removes a file that is ours alone. If it has its name already, nothing has this one.
fn discard(temporary: &Path) {
    std::fs::remove_file(temporary).unwrap_or_default();
}
