//! Copies of files of the log, which share no block with what they are copied from.
//!
//! A server uses the files of its log again, and counts on their room. If another file shares their
//! blocks, XFS and Btrfs need a new block for each that is overwritten. On a full disk there is
//! none, and the server stops. `std::io::copy` and `std::fs::copy` share blocks, too:
//! copy_file_range(2) clones what it can.

use std::io::{self, ErrorKind, Read, Write};

/// Bytes that are copied at a time.
const BLOCK_BYTES: usize = 4 << 20;

/// Copies what is left to read. Returns how many bytes that was.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<u64> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut bytes = 0;
    loop {
        let count = match from.read(&mut block) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if count == 0 {
            return Ok(bytes);
        }
        to.write_all(&block[..count])?;
        bytes += count as u64;
    }
}
