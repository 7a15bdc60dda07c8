//! Writes a log object: frames one after the other, then index and end.
//!
//! Invariants
//! - The object gets its name only when all of it is durable.
//! - In a place that encrypts, nothing of an object's content is written in the clear.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use windlass_engine::{Naming, NewObject};
use windlass_media::{
    Codec, FormatError, LOG_END_BYTES, LOG_SEALED_BYTES, LogCipher, LogEnd, LogFrame, LogHeader,
    LogIndexEntry, crc32c, encode_log_index, fitted, saturated,
};

use crate::compress::{Bytes, Compressor, Packed};
use crate::error::{FormatContext, IoContext, RepositoryError};
use crate::place::{LogPlace, Place};
use crate::token::ContentKey;

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

/// Frames, appended to a file or to a new object.
pub(crate) struct FrameWriter<W> {
    compressor: Compressor,
    frames: Frames<W>,
}

/// Compressed frames.
struct Frames<W> {
    file: W,
    /// Encrypts them, in a place that does so.
    cipher: Option<LogCipher>,
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

impl<W: Write> FrameWriter<W> {
    /// Begins an object of a place in an empty file.
    pub(crate) fn begin(
        place: &Place,
        (mut file, path): (W, &Path),
        header: &LogHeader,
        packing: Packing,
    ) -> Result<Self, RepositoryError> {
        let header = LogHeader {
            is_encrypted: place.encryption().is_some(),
            ..header.clone()
        };
        let mut bytes = header.encode().of(path)?;
        let cipher = match place.encryption() {
            Some(encryption) => {
                let (lock, cipher) = encryption.begin(&header).of(path)?;
                bytes.append(&mut lock.encode().of(path)?);
                Some(cipher)
            }
            None => None,
        };
        let content_key = place.content_key().filter(|_| cipher.is_some());
        file.write_all(&bytes).doing("write", path)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes);
        Ok(Self {
            compressor: compressor(packing, content_key).of(path)?,
            frames: Frames {
                file,
                cipher,
                hasher,
                index: Vec::new(),
                offset: bytes.len() as u64,
                position: header.start,
                durable: header.start,
                stored_bytes: bytes.len() as u64,
            },
        })
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
        let range = (frames.position, bytes);
        compressor.pack(source, range, |packed| frames.append(packed, path))
    }

    /// Appends index and end. They are not durable yet.
    pub(crate) fn finish(&mut self, path: &Path) -> Result<(), RepositoryError> {
        self.frames.finish(path)
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.frames.stored_bytes
    }

    fn into_file(self) -> W {
        self.frames.file
    }
}

impl FrameWriter<File> {
    /// Goes on with an object that is not encrypted, or completes one that is, behind the frames
    /// that `index` lists. Everything before is durable.
    pub(crate) fn resume(
        file: File,
        (hasher, offset): (blake3::Hasher, u64),
        (index, position): (Vec<LogIndexEntry>, u64),
        (packing, path): (Packing, &Path),
    ) -> Result<Self, RepositoryError> {
        Ok(Self {
            compressor: compressor(packing, None).of(path)?,
            frames: Frames {
                file,
                cipher: None,
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

    pub(crate) fn frames(&self) -> u32 {
        saturated(self.frames.index.len())
    }

    /// Makes everything durable that was appended.
    pub(crate) fn sync(&mut self, path: &Path) -> Result<(), RepositoryError> {
        self.frames.file.sync_data().doing("sync", path)?;
        self.frames.durable = self.frames.position;
        Ok(())
    }

    /// Appends index and end, and makes all durable.
    pub(crate) fn complete(&mut self, path: &Path) -> Result<(), RepositoryError> {
        self.frames.finish(path)?;
        self.frames.file.sync_all().doing("sync", path)?;
        self.frames.durable = self.frames.position;
        Ok(())
    }
}

fn compressor(
    packing: Packing,
    content_key: Option<&ContentKey>,
) -> Result<Compressor, FormatError> {
    let (codec, threads) = (packing.codec, packing.threads);
    Compressor::new((codec, threads), FRAME_BYTES as usize, content_key)
}

impl<W: Write> Frames<W> {
    fn append(&mut self, packed: Packed<'_>, path: &Path) -> Result<(), RepositoryError> {
        let mut frame = LogFrame {
            position: self.position,
            codec: packed.codec,
            stored_bytes: fitted(packed.stored.len()),
            decoded_bytes: packed.decoded_bytes,
            stored_crc: 0,
            decoded_crc: packed.decoded_crc,
            unsynced_bytes: saturated(self.position - self.durable),
            is_encrypted: self.cipher.is_some(),
        };
        let sealed = match &self.cipher {
            Some(cipher) => {
                frame.stored_bytes += fitted::<u32, usize>(LOG_SEALED_BYTES);
                frame.decoded_crc = 0;
                let content = (packed.decoded_crc, packed.stored);
                Some(cipher.seal_frame(&frame, &packed.token, content).of(path)?)
            }
            None => None,
        };
        let stored = sealed.as_deref().unwrap_or(packed.stored);
        frame.stored_crc = crc32c(stored);
        self.index.push(LogIndexEntry {
            position: self.position,
            offset: self.offset,
        });
        self.put(&frame.encode(), path)?;
        self.put(stored, path)?;
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
        self.stored_bytes += bytes.len() as u64;
        Ok(())
    }
}

/// A new object of a log.
pub(crate) struct LogWriter {
    writer: FrameWriter<Box<dyn NewObject>>,
    path: PathBuf,
}

impl LogPlace {
    /// Begins an object that is to have this name.
    pub(crate) fn begin_object(
        &self,
        path: &Path,
        header: &LogHeader,
        packing: Packing,
    ) -> Result<LogWriter, RepositoryError> {
        let object = self.at().objects().create(self.place(), path);
        let object = object.doing("create", path)?;
        Ok(LogWriter {
            writer: FrameWriter::begin(self.at(), (object, path), header, packing)?,
            path: path.to_owned(),
        })
    }
}

impl LogWriter {
    /// Appends the first bytes of a source.
    pub(crate) fn append(
        &mut self,
        source: &(impl Bytes + ?Sized),
        bytes: u64,
    ) -> Result<(), RepositoryError> {
        self.writer.append(source, bytes, &self.path)
    }

    /// Completes the object and gives it its name. `None` if another object has the name.
    pub(crate) fn seal(mut self) -> Result<Option<u64>, RepositoryError> {
        self.writer.finish(&self.path)?;
        let bytes = self.writer.stored_bytes();
        let named = self.writer.into_file().name(LOG_END_BYTES);
        Ok(match named.doing("name", &self.path)? {
            Naming::Named => Some(bytes),
            Naming::Taken => None,
        })
    }

    /// Completes the object and puts it in the place of a damaged one of the same name.
    pub(crate) fn seal_over(mut self) -> Result<u64, RepositoryError> {
        self.writer.finish(&self.path)?;
        let bytes = self.writer.stored_bytes();
        let named = self.writer.into_file().name_over(LOG_END_BYTES);
        named.doing("name", &self.path).map(|()| bytes)
    }
}
