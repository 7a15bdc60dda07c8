//! Reading a file that somebody named: it may be large by mistake, and a device may never end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file that has at most `bytes_max` bytes. For a longer file, the error states the limit.
pub fn read_at_most(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(bytes_max.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("it is larger than {} KiB", bytes_max >> 10);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(bytes)
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
