//! How much room a file system has. If it has no limit, there is enough.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::StatVfs;

/// How many bytes an ordinary user may still write on the file system of a path. `u64::MAX` if it
/// has no limit.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    Ok(of_disk(&rustix::fs::statvfs(path)?))
}

/// The same of the file system of an open file.
pub fn free_bytes_beside(file: impl AsFd) -> io::Result<u64> {
    Ok(of_disk(&rustix::fs::fstatvfs(file)?))
}

/// A file system without a limit (tmpfs with size=0) says that it has no blocks, and so do some in
/// user space.
fn of_disk(disk: &StatVfs) -> u64 {
    match disk.f_blocks {
        0 => u64::MAX,
        _ => disk.f_bavail.saturating_mul(disk.f_frsize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy that leaves room for its database failed there with its first byte.
    #[test]
    fn a_file_system_without_a_limit_is_not_full() {
        let mut disk = rustix::fs::statvfs("/proc").unwrap();
        assert_eq!(disk.f_blocks, 0);
        assert_eq!(of_disk(&disk), u64::MAX);
        assert_eq!(free_bytes(Path::new("/proc")).unwrap(), u64::MAX);
        let file = std::fs::File::open("/proc/version").unwrap();
        assert_eq!(free_bytes_beside(&file).unwrap(), u64::MAX);
        (disk.f_blocks, disk.f_bavail, disk.f_frsize) = (100, 3, 4096);
        assert_eq!(of_disk(&disk), 3 * 4096);
        disk.f_bavail = 0;
        assert_eq!(of_disk(&disk), 0);
    }
}
