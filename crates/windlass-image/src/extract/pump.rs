//! The copy of one file out of an image.
//!
//!   reader: group N + 1 --> writer: group N --> flusher: what was written before
//!
//! Invariants
//! - Two groups are in memory, whatever the size of the file.
//! - At most twice `EXTRACT_FLUSH_BYTES` of the file are written and not yet durable, so neither
//!   the last sync nor the end of a cancelled copy takes long.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, SystemTime};

use windlass_engine::Cancel;
use windlass_engine::media::{FileEntry, crc32c, crc32c_zeros_after, fitted, is_zero};

use super::error;
use crate::error::ImageError;
use crate::image::{Image, read_exact};

/// How much is read ahead while the bytes before it are written.
pub const EXTRACT_GROUP_BYTES: usize = 1024 * 1024;
/// After how many written bytes of a file they are made durable, while the next ones are written.
pub const EXTRACT_FLUSH_BYTES: u64 = 32 * 1024 * 1024;
/// Zeros of this length are not written, but left as a hole.
const HOLE_BYTES: usize = 64 * 1024;
/// The longest write. On a busy disk, the system may make a long one wait for seconds.
const WRITE_BYTES: usize = 2 * HOLE_BYTES;

/// A run of a file on its way from the reader to the writer.
type Group = (u64, Vec<u8>);

/// A file of an image, and the new file that receives its bytes.
pub(super) struct Pump<'a> {
    pub(super) image: &'a dyn Image,
    pub(super) entry: &'a FileEntry,
    pub(super) file: &'a File,
    pub(super) path: &'a Path,
    pub(super) cancel: &'a Cancel,
}

impl Pump<'_> {
    /// Copies the file, and compares its checksum if that is known.
    pub(super) fn run(&self) -> Result<(), ImageError> {
        let Self { image, entry, .. } = self;
        self.cancel.check()?;
        image.check_layers(entry.file)?;
        let sized = self.file.set_len(entry.bytes);
        sized.map_err(|source| self.fault(source))?;
        let found = match entry.bytes <= EXTRACT_GROUP_BYTES as u64 {
            true => self.at_once()?,
            false => self.in_groups()?,
        };
        match image.file_checksum(entry) {
            Some(expected) if expected != found => Err(ImageError::FileChecksum {
                path: entry.path_lossy(),
                expected,
                found,
            }),
            _ => self.finish().map_err(|source| self.fault(source)),
        }
    }

    fn fault(&self, source: io::Error) -> ImageError {
        error("write", self.path, source)
    }

    fn at_once(&self) -> Result<u32, ImageError> {
        let mut bytes = vec![0; fitted(self.entry.bytes)];
        read_exact(self.image, self.entry, 0, &mut bytes)?;
        self.write(0, &bytes)?;
        Ok(crc32c(&bytes))
    }

    fn in_groups(&self) -> Result<u32, ImageError> {
        std::thread::scope(|scope| {
            // There are two groups: one is being read while the other is being written.
            let (full, groups) = sync_channel(1);
            let (free, spare) = sync_channel(2);
            for _ in 0..2 {
                free.send(vec![0; EXTRACT_GROUP_BYTES]).unwrap_or_default();
            }
            let (flush, flushes) = sync_channel(0);
            let reader = scope.spawn(move || self.read_ahead(&full, &spare));
            let flusher = scope.spawn(move || self.flush(&flushes));
            let written = self.write_groups(groups, &free, &flush);
            drop((free, flush));
            let (read, flushed) = (joined(reader), joined(flusher));
            // If the writer failed, the others ended because of that.
            let found = written?;
            read.and(flushed).map(|()| found)
        })
    }

    fn read_ahead(
        &self,
        full: &SyncSender<Group>,
        spare: &Receiver<Vec<u8>>,
    ) -> Result<(), ImageError> {
        let mut offset = 0;
        while offset < self.entry.bytes {
            self.cancel.check()?;
            // The writer has ended with an error, and that error is the one to show.
            let Ok(mut bytes) = spare.recv() else {
                return Ok(());
            };
            let left: usize = fitted(self.entry.bytes - offset);
            bytes.resize(left.min(EXTRACT_GROUP_BYTES), 0);
            read_exact(self.image, self.entry, offset, &mut bytes)?;
            let next = offset + bytes.len() as u64;
            if full.send((offset, bytes)).is_err() {
                return Ok(());
            }
            offset = next;
        }
        Ok(())
    }

    /// Writes all groups. Returns the CRC-32C of the file.
    fn write_groups(
        &self,
        groups: Receiver<Group>,
        free: &SyncSender<Vec<u8>>,
        flush: &SyncSender<()>,
    ) -> Result<u32, ImageError> {
        let (mut found, mut unflushed) = (0, 0);
        for (offset, bytes) in groups {
            let after = self.entry.bytes - offset - bytes.len() as u64;
            found ^= crc32c_zeros_after(crc32c(&bytes), after);
            unflushed += self.write(offset, &bytes)?;
            // The reader may have ended, because it has read everything.
            free.send(bytes).unwrap_or_default();
            if unflushed >= EXTRACT_FLUSH_BYTES {
                unflushed = 0;
                if flush.send(()).is_err() {
                    // The flusher has failed. Its error is the one to show.
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Makes durable what was written, each time the writer asks for it.
    fn flush(&self, flushes: &Receiver<()>) -> Result<(), ImageError> {
        for () in flushes {
            let synced = self.file.sync_data();
            synced.map_err(|source| error("sync", self.path, source))?;
        }
        Ok(())
    }

    /// Writes all that is not zero, and returns how much that was. The file has its full length
    /// already, so the rest are holes.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<u64, ImageError> {
        let (mut at, mut written) = (0, 0);
        let blocks = |bytes: &[u8], zero: bool| {
            let same = bytes
                .chunks(HOLE_BYTES)
                .take_while(|block| is_zero(block) == zero);
            same.map(<[u8]>::len).sum::<usize>()
        };
        while at < bytes.len() {
            at += blocks(&bytes[at..], true);
            let data = &bytes[at..][..blocks(&bytes[at..], false)];
            for part in data.chunks(WRITE_BYTES) {
                self.cancel.check()?;
                let write = self.file.write_all_at(part, offset + at as u64);
                write.map_err(|source| self.fault(source))?;
                at += part.len();
                written += part.len() as u64;
            }
        }
        Ok(written)
    }

    fn finish(&self) -> io::Result<()> {
        let nanos = self.entry.mtime_nanos.max(0).cast_unsigned();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
        self.file.set_modified(modified)?;
        let mode = Permissions::from_mode(self.entry.permissions());
        self.file.set_permissions(mode)
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
