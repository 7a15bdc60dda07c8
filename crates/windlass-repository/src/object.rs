//! Reads a log object: its header, where its frames are, and any frame of it.
//!
//!   sealed   end --> index --> frames, any of them
//!   growing  header --> frame --> frame --> ... up to the first that is not whole
//!
//! Invariants
//! - No byte of a frame is handed out before both of its checksums were checked. An encrypted one
//!   was decrypted before, which finds any changed bit.
//! - A key is asked for when the first encrypted frame is read, and not before: an object can be
//!   listed, and its stored bytes checked, without one.
//! - A torn end of a growing object is where its writer was cut off. If bytes before a position
//!   that was durable cannot be read, the object ends in front of them, and says that its end is
//!   lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::ReadAt;
use windlass_media::{
    Decoder, FormatError, LOG_END_BYTES, LOG_FRAME_HEADER_BYTES, LOG_FRAMES_MAX, LOG_HEADER_BYTES,
    LogCipher, LogEnd, LogFrame, LogHeader, LogIndexEntry, Structure, crc32c, decode_log_index,
    fitted,
};

use crate::error::{FormatContext, IoContext, LostEnd, RepositoryError};
use crate::locked::{ObjectLock, read_lock};
use crate::place::Place;
use crate::verify::check_segments;

/// Bytes of an object in which a search looks for a frame behind damage, at once.
const SEARCH_BYTES: usize = 1 << 16;

/// An object that is open for reading.
#[derive(Debug)]
pub(crate) struct LogObject {
    pub(crate) path: PathBuf,
    pub(crate) header: LogHeader,
    bytes: Arc<dyn ReadAt>,
    /// Who can read it, if it is encrypted.
    lock: Option<ObjectLock>,
    /// Where its first frame begins in the file.
    frames_begin: u64,
    index: Vec<LogIndexEntry>,
    /// Position of the first byte behind the last frame.
    end: u64,
    /// Where the last frame ends in the file.
    frames_end: u64,
    /// Whole frames behind the end of a growing object say that everything before this position was
    /// durable.
    pub(crate) said_behind: Option<u64>,
    /// What is lost of the end of a growing object.
    pub(crate) lost: Option<LostEnd>,
    content_hash: Option<[u8; 32]>,
}

/// Memory for reading frames, for reuse.
pub(crate) struct FrameMemory {
    decoder: Decoder,
    stored: Vec<u8>,
    /// What was decrypted of it.
    clear: Vec<u8>,
    pub(crate) decoded: Vec<u8>,
}

impl FrameMemory {
    pub(crate) fn new(path: &Path) -> Result<Self, RepositoryError> {
        Ok(Self {
            decoder: Decoder::new().of(path)?,
            stored: Vec::new(),
            clear: Vec::new(),
            decoded: Vec::new(),
        })
    }
}

impl LogObject {
    /// Opens an object of a place, which is sealed or grows.
    pub(crate) fn open(
        place: &Place,
        (bytes, path): (Arc<dyn ReadAt>, &Path),
        is_sealed: bool,
    ) -> Result<Self, RepositoryError> {
        let length = bytes.length().doing("examine", path)?;
        let mut header = [0; LOG_HEADER_BYTES];
        if length < header.len() as u64 {
            return Err(truncated(Structure::LogHeader, path));
        }
        bytes.read_exact_at(0, &mut header).doing("read", path)?;
        let header = LogHeader::decode(&header).of(path)?;
        let (lock, frames_begin) = match header.is_encrypted {
            true => read_lock(place, &*bytes, path)?,
            false => (None, LOG_HEADER_BYTES as u64),
        };
        let mut object = Self {
            path: path.to_owned(),
            end: header.start,
            header,
            bytes,
            lock,
            frames_begin,
            index: Vec::new(),
            frames_end: frames_begin,
            said_behind: None,
            lost: None,
            content_hash: None,
        };
        match is_sealed {
            true => object.read_index(length)?,
            false => object.walk(length)?,
        }
        Ok(object)
    }

    fn read_index(&mut self, length: u64) -> Result<(), RepositoryError> {
        let Some(end_at) = length.checked_sub(LOG_END_BYTES as u64) else {
            return Err(truncated(Structure::LogEnd, &self.path));
        };
        let mut bytes = [0; LOG_END_BYTES];
        self.read_at(&mut bytes, end_at)?;
        let end = LogEnd::decode(&bytes, length).of(&self.path)?;
        // The end was checked: it has at most LOG_FRAMES_MAX frames, and the file is long enough.
        let mut bytes = vec![0; end.index_bytes()];
        self.read_at(&mut bytes, end.index_offset)?;
        self.index = decode_log_index(&bytes, &end, self.header.start).of(&self.path)?;
        let first = self.index.first().map(|entry| entry.offset);
        if first != Some(self.frames_begin) {
            let what = "its frames do not begin behind its header";
            return Err(invalid(Structure::LogIndex, what, &self.path));
        }
        (self.end, self.frames_end) = (end.end, end.index_offset);
        self.content_hash = Some(end.content_hash);
        Ok(())
    }

    /// Reads frame after frame, up to the first that is not whole.
    fn walk(&mut self, length: u64) -> Result<(), RepositoryError> {
        let mut stored = Vec::new();
        while self.index.len() < LOG_FRAMES_MAX as usize {
            let at = self.frames_end;
            let Some(frame) = self.whole_frame(at, length, &mut stored)? else {
                break;
            };
            if frame.position != self.end {
                break;
            }
            self.index.push(LogIndexEntry {
                position: frame.position,
                offset: at,
            });
            self.end = frame.end();
            self.frames_end = behind(at, &frame);
        }
        self.said_behind = self.said_behind(length, &mut stored)?;
        Ok(())
    }

    /// Up to where bytes were durable that are not there, if frames behind the end say so.
    fn said_behind(
        &self,
        length: u64,
        stored: &mut Vec<u8>,
    ) -> Result<Option<u64>, RepositoryError> {
        let (mut at, mut said) = (self.frames_end, None);
        let mut block = vec![0; SEARCH_BYTES];
        while at + (LOG_FRAME_HEADER_BYTES as u64) <= length {
            let bytes = fitted::<usize, u64>((length - at).min(SEARCH_BYTES as u64));
            self.read_at(&mut block[..bytes], at)?;
            let magic = &LogFrame::MAGIC;
            let starts = block[..bytes].windows(magic.len()).enumerate();
            for (start, _) in starts.filter(|(_, window)| window == magic) {
                let found = self.whole_frame(at + start as u64, length, stored)?;
                let durable = found.map(|frame| frame.durable());
                said = said.max(durable.filter(|durable| *durable > self.end));
            }
            // A magic number may lie across the boundary.
            at += (bytes as u64).saturating_sub(3).max(1);
        }
        Ok(said)
    }

    /// The header of the frame there, if the frame is whole.
    fn whole_frame(
        &self,
        at: u64,
        length: u64,
        stored: &mut Vec<u8>,
    ) -> Result<Option<LogFrame>, RepositoryError> {
        let mut bytes = [0; LOG_FRAME_HEADER_BYTES];
        if at + bytes.len() as u64 > length {
            return Ok(None);
        }
        self.read_at(&mut bytes, at)?;
        let Ok(frame) = LogFrame::decode(&bytes, self.header.frame_bytes) else {
            return Ok(None);
        };
        if behind(at, &frame) > length || frame.is_encrypted != self.header.is_encrypted {
            return Ok(None);
        }
        stored.resize(frame.stored_bytes as usize, 0);
        self.read_at(stored, at + LOG_FRAME_HEADER_BYTES as u64)?;
        Ok(frame.check_stored(stored).is_ok().then_some(frame))
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<(), RepositoryError> {
        self.bytes.read_exact_at(at, into).doing("read", &self.path)
    }

    /// Position of the first byte behind the log that it holds.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether its frames are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.lock.is_some()
    }

    /// Where its last frame ends in the file.
    pub(crate) fn frames_end(&self) -> u64 {
        self.frames_end
    }

    /// How many bytes it has; of one that grows, as far as they are whole.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.bytes.length().unwrap_or(self.frames_end)
    }

    pub(crate) fn index(&self) -> &[LogIndexEntry] {
        &self.index
    }

    /// The frame that holds a position.
    pub(crate) fn frame_of(&self, position: u64) -> Option<usize> {
        if position < self.header.start || position >= self.end {
            return None;
        }
        let behind = self
            .index
            .partition_point(|entry| entry.position <= position);
        behind.checked_sub(1)
    }

    /// Header and stored bytes of a frame; both are checked.
    pub(crate) fn stored_frame(
        &self,
        number: usize,
        stored: &mut Vec<u8>,
    ) -> Result<LogFrame, RepositoryError> {
        let misplaced = |what| invalid(Structure::LogFrame, what, &self.path);
        let entry = self
            .index
            .get(number)
            .ok_or_else(|| misplaced("no such frame"))?;
        let mut bytes = [0; LOG_FRAME_HEADER_BYTES];
        self.read_at(&mut bytes, entry.offset)?;
        let frame = LogFrame::decode(&bytes, self.header.frame_bytes).of(&self.path)?;
        let next = self.index.get(number + 1);
        let (end, behind_it) = match next {
            Some(next) => (next.position, next.offset),
            None => (self.end, self.frames_end),
        };
        let is_there = (frame.position, frame.end(), behind(entry.offset, &frame));
        if is_there != (entry.position, end, behind_it) {
            return Err(misplaced("it is not where the index says"));
        }
        if frame.is_encrypted != self.header.is_encrypted {
            return Err(misplaced("only it or its object is encrypted"));
        }
        stored.resize(frame.stored_bytes as usize, 0);
        self.read_at(stored, entry.offset + LOG_FRAME_HEADER_BYTES as u64)?;
        frame.check_stored(stored).of(&self.path)?;
        Ok(frame)
    }

    /// Reads a frame. Its bytes are then in `memory.decoded`.
    pub(crate) fn read_frame(
        &self,
        number: usize,
        memory: &mut FrameMemory,
    ) -> Result<LogFrame, RepositoryError> {
        let frame = self.stored_frame(number, &mut memory.stored)?;
        // The header was checked: a frame has at most the frame size of its object.
        memory.decoded.resize(frame.decoded_bytes as usize, 0);
        let into = &mut memory.decoded[..];
        let Some(cipher) = self.cipher()? else {
            let decoded = memory.decoder.decode(frame.codec, &memory.stored, into);
            decoded.of(&self.path)?;
            frame.check_decoded(&memory.decoded).of(&self.path)?;
            return Ok(frame);
        };
        let opened = cipher.open_frame(&frame, &memory.stored, &mut memory.clear);
        let (crc, packed) = opened.of(&self.path)?;
        let decoded = memory.decoder.decode(frame.codec, packed, into);
        decoded.of(&self.path)?;
        LogCipher::check_decoded(into, crc).of(&self.path)?;
        Ok(frame)
    }

    /// Whether a frame holds these bytes, by what is known of its content without decoding it.
    pub(crate) fn holds(
        &self,
        frame: &LogFrame,
        (stored, decoded): (&[u8], &[u8]),
    ) -> Result<bool, RepositoryError> {
        let Some(lock) = &self.lock else {
            return Ok(crc32c(decoded) == frame.decoded_crc);
        };
        if let Some((found, key)) = LogCipher::token(stored).zip(lock.content_key()) {
            return Ok(key.token(frame.position, decoded) == found);
        }
        let mut clear = Vec::new();
        let cipher = lock.cipher((&self.header, &self.path))?;
        let opened = cipher.open_frame(frame, stored, &mut clear);
        let (crc, _) = opened.of(&self.path)?;
        Ok(crc32c(decoded) == crc)
    }

    /// What decrypts its frames, if they are encrypted. Fails without a key.
    fn cipher(&self) -> Result<Option<&LogCipher>, RepositoryError> {
        match &self.lock {
            Some(lock) => lock.cipher((&self.header, &self.path)).map(Some),
            None => Ok(None),
        }
    }

    /// Reads everything. Finds any changed byte. Without a key only the stored bytes are checked;
    /// returns whether the content was.
    pub(crate) fn verify(&self) -> Result<bool, RepositoryError> {
        let is_read = match self.cipher() {
            Err(error) if error.is_without_key() => false,
            cipher => cipher.map(|_| true)?,
        };
        let mut memory = FrameMemory::new(&self.path)?;
        for number in 0..self.index.len() {
            if !is_read {
                self.stored_frame(number, &mut memory.stored)?;
                continue;
            }
            let frame = self.read_frame(number, &mut memory)?;
            check_segments(self, frame.position, &memory)?;
        }
        let Some(expected) = self.content_hash else {
            return Ok(is_read);
        };
        match self.hasher()?.finalize().as_bytes() == &expected {
            true => Ok(is_read),
            false => Err(FormatError::Hash(Structure::LogEnd)).of(&self.path),
        }
    }

    /// The hash of header and frames, as far as they are whole.
    pub(crate) fn hasher(&self) -> Result<blake3::Hasher, RepositoryError> {
        let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
        let mut block = vec![0; SEARCH_BYTES];
        while at < self.frames_end {
            let bytes = fitted::<usize, u64>((self.frames_end - at).min(SEARCH_BYTES as u64));
            self.read_at(&mut block[..bytes], at)?;
            hasher.update(&block[..bytes]);
            at += bytes as u64;
        }
        Ok(hasher)
    }
}

/// Where the frame ends that begins at `at`.
fn behind(at: u64, frame: &LogFrame) -> u64 {
    at.saturating_add(LOG_FRAME_HEADER_BYTES as u64)
        .saturating_add(u64::from(frame.stored_bytes))
}

fn truncated(structure: Structure, path: &Path) -> RepositoryError {
    RepositoryError::Object {
        path: path.to_owned(),
        source: FormatError::Truncated(structure),
    }
}

fn invalid(structure: Structure, what: &'static str, path: &Path) -> RepositoryError {
    RepositoryError::Object {
        path: path.to_owned(),
        source: FormatError::Invalid { structure, what },
    }
}
