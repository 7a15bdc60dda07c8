//! The memories that nobody needs any more. A memory outlives its server, because the next one goes
//! on with it. If its cluster was removed, or loads the library no more, nobody else takes it away.
//!
//!   a file in /dev/shm --lease: nobody has it open or mapped--> no snapshot, no store --> gone
//!
//! The kernel gives the lease, whatever container a process is in, and as long as this process has
//! it, whoever opens the file waits. A server that has waited finds a file that has lost its name,
//! and makes another memory. The kernel takes the lease away from a process that is not quick
//! enough, so it is asked for once more before the file goes.
//!
//! Never does: remove a memory with a snapshot. Only a number says which data directory it is of,
//! and that may have another name by now, or be on a disk that is not mounted.

#![allow(
    unsafe_code,
    reason = "a lease is asked for with a call of the system that no crate here has"
)]

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::AtomicU32;

use windlass_engine::{durable, open_regular};
use windlass_image::layout::hook::{
    AREA_BYTES_AT, CONTROL_BYTES, CONTROL_DIRECTORY, CONTROL_NAME_BYTES, Memory, Phase,
    SNAPSHOTS_MAX, Snapshot,
};

use super::store::PreservedPages;

/// What the name of each memory begins with.
const NAME_START: &[u8] = b"windlass-";
/// Chooses the signal for the holder of a lease: `F_SETSIG` of fcntl(2).
const SET_SIGNAL: c_int = 10;

/// Removes the memories of this user that nobody has open and that no server could go on with. One
/// that cannot be removed now stays for the next call: it does no harm.
pub fn sweep_memories() {
    let entries = std::fs::read_dir(CONTROL_DIRECTORY);
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_bytes();
        if name.len() == CONTROL_NAME_BYTES && name.starts_with(NAME_START) {
            sweep(&entry.path()).unwrap_or_default();
        }
    }
}

/// Removes one, if nobody needs it.
fn sweep(path: &Path) -> std::io::Result<()> {
    sweep_after(path, || ())
}

/// The same. Does something before it removes the file.
fn sweep_after(path: &Path, before: impl FnOnce()) -> std::io::Result<()> {
    let file = open_regular(path)?;
    let found = file.metadata()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    let may_go = is_own && found.len() == CONTROL_BYTES && is_leased(&file);
    // Another file may have got its name before the lease.
    if may_go && is_useless(&file)? && durable::is_file_at(&file, path)? {
        before();
        if is_still_leased(&file) {
            std::fs::remove_file(path)?;
        }
    }
    // The lease ends with the file.
    Ok(())
}

/// Whether this process has a lease now, which it gets only if nobody else has the file open or
/// mapped.
fn is_leased(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // Whoever waits for the lease is announced with a signal. SIGIO, which the kernel would send,
    // ends a process; SIGURG does nothing.
    // SAFETY: both calls take numbers, and the descriptor is ours.
    unsafe {
        libc::fcntl(fd, SET_SIGNAL, libc::SIGURG) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0
    }
}

/// Whether nobody has opened the file to write, or waits for that, since the lease was given. The
/// kernel waits for whoever has a lease no longer than /proc/sys/fs/lease-break-time says: a server
/// that was let in has begun to use the memory. One who only reads leaves a lease to read.
fn is_still_leased(file: &File) -> bool {
    // SAFETY: the call takes numbers, and the descriptor is ours.
    let lease = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) };
    [libc::F_WRLCK, libc::F_RDLCK].contains(&lease)
}

/// Whether a server that starts would find nothing in it to go on with, and the next controller
/// nothing to remove: one that was killed may have left the file of the pages, and only the memory
/// says where that is. A map of changes is nothing to go on with: a server that starts ends it.
/// Another version's may have anything.
fn is_useless(file: &File) -> std::io::Result<bool> {
    let bytes = usize::try_from(AREA_BYTES_AT).map_err(std::io::Error::other)?;
    let mut bytes = vec![0; bytes];
    file.read_exact_at(&mut bytes, 0)?;
    let words = bytes.as_chunks::<4>().0.iter();
    let words: Vec<_> = words
        .map(|word| AtomicU32::new(u32::from_le_bytes(*word)))
        .collect();
    let known = Memory::new(&words).filter(Memory::is_of_this_version);
    Ok(known.is_some_and(|memory| {
        let mut entries = (0..SNAPSHOTS_MAX).filter_map(|index| Snapshot::at(memory, index));
        let has_store = PreservedPages::path_of(memory).is_some();
        !has_store && entries.all(|it| it.state() == Phase::Free)
    }))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::PathBuf;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use memmap2::MmapOptions;
    use tempfile::TempDir;
    use windlass_image::layout::hook::{MapShape, begin_map, claim};

    use super::*;

    /// This only ends a test that hangs.
    const HANG: Duration = Duration::from_secs(120);

    /// A memory in a directory of its own: other processes look at what is beside it.
    struct Made(TempDir);

    impl Made {
        /// One as a server leaves it, with what `fill` puts into it, and its file.
        fn new(fill: impl Fn(Memory<'_>)) -> (Self, File) {
            let count = usize::try_from(AREA_BYTES_AT / 4).unwrap();
            let words: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
            let memory = Memory::new(&words).unwrap();
            memory.format(8192);
            fill(memory);
            let words = words.iter().map(|word| word.load(Ordering::Relaxed));
            let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
            let made = Self(tempfile::tempdir_in(CONTROL_DIRECTORY).unwrap());
            std::fs::write(made.path(), bytes).unwrap();
            let file = File::options().read(true).write(true).open(made.path());
            let file = file.unwrap();
            file.set_len(CONTROL_BYTES).unwrap();
            (made, file)
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("memory")
        }

        fn stays(&self) -> bool {
            sweep(&self.path()).unwrap();
            self.path().exists()
        }

        /// Sweeps until the lease is given. A process that another test starts has for a moment all
        /// files open that this one had.
        fn sweep_after(&self, before: impl Fn()) {
            let (mut is_asked, begun) = (false, Instant::now());
            while !is_asked {
                assert!(begun.elapsed() < HANG);
                let before = || {
                    is_asked = true;
                    before();
                };
                sweep_after(&self.path(), before).unwrap();
            }
        }
    }

    #[test]
    fn only_a_memory_that_nobody_has_open_and_that_has_no_snapshot_is_removed() {
        let (made, file) = Made::new(|memory| assert!(claim(memory).is_some()));
        drop(file);
        assert!(made.stays(), "it has a snapshot");
        let (made, file) = Made::new(|memory| assert!(memory.set_store(b"/pages")));
        drop(file);
        assert!(made.stays(), "it says where pages are");
        let (made, file) = Made::new(|memory| memory.set_cluster(7));
        let map = MmapOptions::new().len(4096).map_raw(&file).unwrap();
        drop(file);
        assert!(made.stays(), "a server has it");
        let reader = File::open(made.path()).unwrap();
        drop(map);
        assert!(made.stays(), "somebody reads it");
        drop(reader);
        made.sweep_after(|| ());
        assert!(!made.path().exists());
    }

    /// Each cluster has one whose server has the hook, as soon as it was backed up.
    #[test]
    fn a_map_of_changes_without_a_server_keeps_no_memory() {
        let shape = MapShape {
            cells_log2: 12,
            unit_log2: 13,
        };
        let (made, file) = Made::new(|memory| {
            begin_map(memory, AREA_BYTES_AT / 4, shape, (1, 1));
        });
        drop(file);
        made.sweep_after(|| ());
        assert!(!made.path().exists());
    }

    /// The kernel lets a server in that has waited for too long.
    #[test]
    fn a_memory_that_a_server_opens_meanwhile_stays_and_one_that_is_read_goes() {
        let opened = |made: &Made, is_writer: bool| {
            let mut options = File::options();
            let options = options.read(true).write(is_writer);
            let opened = options.custom_flags(libc::O_NONBLOCK).open(made.path());
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::WouldBlock);
        };
        for is_writer in [true, false] {
            let (made, file) = Made::new(|memory| memory.set_cluster(7));
            drop(file);
            made.sweep_after(|| opened(&made, is_writer));
            assert_eq!(made.path().exists(), is_writer);
        }
    }
}
