//! Writes of whole blocks past the page cache.
//!
//! Never does: sync.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// The unit of direct writes.
const BLOCK_BYTES: usize = 4096;

/// A file that is open twice: through the page cache, and past it where the file system can.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    direct: Option<File>,
}

impl DirectFile {
    /// A file that is written through the cache only.
    #[must_use]
    pub fn cached(file: File) -> Self {
        Self { file, direct: None }
    }

    /// Opens a file for direct writes, too.
    #[must_use]
    pub fn open(file: File) -> Self {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut options = OpenOptions::new();
        let direct = options.write(true).custom_flags(libc::O_DIRECT).open(path);
        Self {
            file,
            // Some file systems have no direct writes.
            direct: direct.ok(),
        }
    }

    /// The same file, written through the cache only.
    #[must_use]
    pub fn into_cached(self) -> Self {
        Self::cached(self.file)
    }

    /// The file as it is open through the cache.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether whole blocks go past the cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Writes whole blocks directly, if they begin at one in the file and in memory, and the rest
    /// through the cache.
    ///
    /// # Errors
    ///
    /// If neither way works.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(direct) = &self.direct else {
            return self.file.write_all_at(bytes, offset);
        };
        let aligned = offset.is_multiple_of(BLOCK_BYTES as u64)
            && bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES);
        let blocks = if aligned {
            bytes.len() - bytes.len() % BLOCK_BYTES
        } else {
            0
        };
        let (whole, rest) = bytes.split_at(blocks);
        if direct.write_all_at(whole, offset).is_err() {
            // Direct writes do not work on this file system, or not now. If the disk is at fault,
            // this call fails too.
            self.file.write_all_at(whole, offset)?;
        }
        self.file.write_all_at(rest, offset + blocks as u64)
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;

    #[test]
    fn whole_blocks_and_what_is_left_are_where_they_belong() {
        // On a disk, and in memory, where older kernels have no direct writes.
        for directory in ["/var/tmp", "/dev/shm"] {
            let place = tempfile::NamedTempFile::new_in(directory).unwrap();
            let file = DirectFile::open(place.reopen().unwrap());
            let mut memory = MmapMut::map_anon(4 * BLOCK_BYTES).unwrap();
            let mut expected = Vec::new();
            for (round, length) in [(1, 8192), (2, 4096 * 3), (3, 10_000), (4, 77)] {
                memory.fill(round);
                file.write_all_at(&memory[..length], expected.len() as u64)
                    .unwrap();
                expected.resize(expected.len() + length, round);
            }
            // Neither begins where a block does.
            file.write_all_at(&memory[1..5000], 10).unwrap();
            expected[10..5009].fill(4);
            assert_eq!(std::fs::read(place.path()).unwrap(), expected);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_says_so() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let readable = DirectFile::cached(File::open(place.path()).unwrap());
        assert!(!readable.is_direct());
        assert!(readable.write_all_at(&[1; 4096], 0).is_err());
    }
}
