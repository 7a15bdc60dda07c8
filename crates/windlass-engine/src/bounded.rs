//! Reading a file that somebody named: it may be large by mistake, a device may never end, and a
//! pipe may wait for a writer for ever.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file without waiting. Only a regular file is opened: somebody may name a pipe or a
/// terminal by mistake.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let what = "not a regular file";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Reads a file that has at most `bytes_max` bytes. For a longer file, the error states the limit.
/// A pipe is an error; a device such as `/dev/null` is not.
pub fn read_at_most(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_at_once(path.as_ref())?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe, not a file"));
    }
    let mut file = file.take(bytes_max.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("it is larger than {} KiB", bytes_max >> 10);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(bytes)
}

/// For a pipe without a writer, a plain open is a wait that no signal ends.
fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_never_ends_is_an_error_and_one_that_fits_is_whole() {
        let error = read_at_most("/dev/zero", 4096).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 4 KiB");
        assert_eq!(read_at_most("/dev/null", 0).unwrap(), b"");
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        crate::durable::write(&path, b"four", 0o600).unwrap();
        assert_eq!(read_at_most(&path, 4).unwrap(), b"four");
        assert!(read_at_most(&path, 3).is_err());
    }
}
