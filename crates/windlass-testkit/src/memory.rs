//! Bytes in memory, which are read as those of a file or an object are.

use std::io;

use windlass_engine::ReadAt;

/// The bytes.
#[derive(Clone, Debug)]
pub struct InMemory(pub Vec<u8>);

impl ReadAt for InMemory {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let length = self.0.len();
        let from = usize::try_from(offset).map_or(length, |from| from.min(length));
        let count = into.len().min(length - from);
        into[..count].copy_from_slice(&self.0[from..from + count]);
        Ok(count)
    }
}
