//! The scratch file: it has no name, holds bytes that no storage can compress, and disappears at
//! the end.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use windlass_engine::media::fitted;
use windlass_engine::{Cancel, free_bytes};

use crate::error::LabError;
use crate::sample::next;
use crate::setting::{LabFault, LabSetting};

/// The space that must stay free. Others who write there must not run out of space because of a
/// probe.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// The bytes of one write.
const PIECE_BYTES: usize = 4 << 20;
/// A smaller scratch file says nothing about the storage.
const SCRATCH_BYTES_MIN: u64 = 16 << 20;

/// A file to read and write.
pub(super) struct Scratch {
    buffered: Arc<File>,
    direct: Option<Arc<File>>,
    bytes: u64,
}

impl Scratch {
    /// Creates and fills the file with `bytes`, or with as much as `time` allows.
    pub(super) fn create(
        directory: &Path,
        bytes: u64,
        time: Duration,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        if bytes < SCRATCH_BYTES_MIN {
            return Err(LabError::Setting {
                setting: LabSetting::ScratchSize,
                fault: LabFault::TooSmall {
                    asked_bytes: bytes,
                    least_bytes: SCRATCH_BYTES_MIN,
                },
            });
        }
        check_space(directory, bytes)?;
        let file = nameless(directory)?;
        let filled = fill(&file, bytes, time, cancel).map_err(|error| match error {
            Fault::Lab(error) => error,
            Fault::Io(error) => LabError::io("fill a scratch file in", directory)(error),
        })?;
        let direct = again(&file, libc_direct());
        Ok(Self {
            buffered: Arc::new(file),
            direct: direct.map(Arc::new),
            bytes: filled,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    pub(super) fn file(&self, direct: bool) -> &Arc<File> {
        match &self.direct {
            Some(file) if direct => file,
            _ => &self.buffered,
        }
    }

    /// Makes what was written durable, and drops it from the page cache.
    pub(super) fn forget(&self) -> std::io::Result<()> {
        self.buffered.sync_data()?;
        rustix::fs::fadvise(&*self.buffered, 0, None, Advice::DontNeed)?;
        Ok(())
    }
}

/// Fails if there is no room for so many bytes more.
pub(crate) fn check_space(directory: &Path, bytes: u64) -> Result<(), LabError> {
    let free_bytes = free_bytes(directory).map_err(LabError::io("examine", directory))?;
    let needed_bytes = bytes.saturating_add(FREE_BYTES_MIN);
    if free_bytes >= needed_bytes {
        return Ok(());
    }
    Err(LabError::Space {
        path: directory.to_owned(),
        needed_bytes,
        free_bytes,
    })
}

/// Creates a file without a name. Some network file systems cannot do that; there the file gets a
/// name, which is removed at once.
fn nameless(directory: &Path) -> Result<File, LabError> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(file.into()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => {
        }
        Err(errno) => {
            return Err(LabError::io("make a scratch file in", directory)(
                errno.into(),
            ));
        }
    }
    let path = directory.join(format!(".windlass-probe-{}", std::process::id()));
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path).map_err(LabError::io("create", &path))?;
    std::fs::remove_file(&path).map_err(LabError::io("remove", &path))?;
    Ok(file)
}

/// O_DIRECT as [`OpenOptionsExt::custom_flags`] takes it.
fn libc_direct() -> i32 {
    fitted(OFlags::DIRECT.bits())
}

/// Opens the same file once more; `None` if the file system refuses.
fn again(file: &File, flags: i32) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags);
    options.open(path).ok()
}

enum Fault {
    Lab(LabError),
    Io(std::io::Error),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes all of the file. Storage could read space that is only allocated without asking the disk.
fn fill(file: &File, bytes: u64, time: Duration, cancel: &Cancel) -> Result<u64, Fault> {
    // Where fallocate does not work, the writes allocate the space.
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes).unwrap_or_default();
    let began = Instant::now();
    let mut piece = vec![0; PIECE_BYTES];
    randomise(&mut piece, 1);
    let mut filled = 0;
    while filled + PIECE_BYTES as u64 <= bytes {
        if let Err(error) = cancel.check() {
            return Err(Fault::Lab(error.into()));
        }
        // Each piece is different, so that storage which looks for equal blocks finds none.
        for block in piece.chunks_mut(4096) {
            let word = next(filled ^ u64::from(block[0])).to_le_bytes();
            block[..8].copy_from_slice(&word);
        }
        file.write_all_at(&piece, filled)?;
        filled += PIECE_BYTES as u64;
        // Synced in steps, so that the time measured is the disk's and not the memory's.
        if filled.is_multiple_of(64 << 20) {
            file.sync_data()?;
        }
        if began.elapsed() > time && filled >= SCRATCH_BYTES_MIN {
            break;
        }
    }
    file.set_len(filled)?;
    file.sync_data()?;
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)?;
    Ok(filled)
}

/// Fills memory with bytes that do not compress.
pub(super) fn randomise(bytes: &mut [u8], seed: u64) {
    let mut state = seed;
    for word in bytes.chunks_mut(8) {
        state = next(state);
        let length = word.len();
        word.copy_from_slice(&state.to_le_bytes()[..length]);
    }
}
