//! Superseded files: numbers whose pieces lie in a set and do not count.
//!
//! A writer may copy a file again under a new number, or learn that a file which it has copied is
//! not part of the image. The bytes are on the stripes already; this list takes them out of the
//! set.
//!
//! Invariants
//! - The numbers ascend, so a lookup is a search by halves and none occurs twice.
//! - No number of the file table is superseded.

use crate::error::{FormatError, Structure};
use crate::files::FileTable;
use crate::ids::FileNo;
use crate::limits::SUPERSEDED_MAX;
use crate::wire::Reader;

const STRUCTURE: Structure = Structure::Superseded;
const ENTRY_BYTES: usize = 4;

/// The file numbers of a set whose pieces do not count, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupersededFiles(Vec<FileNo>);

impl SupersededFiles {
    /// Takes numbers in any order.
    pub fn new(mut numbers: Vec<FileNo>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers)
    }

    /// True when every number of the set counts, as in most sets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many numbers are superseded.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when the pieces of `file` do not count.
    pub fn contains(&self, file: FileNo) -> bool {
        self.0.binary_search(&file).is_ok()
    }

    /// The section's bytes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, FormatError> {
        if self.0.len() as u64 > SUPERSEDED_MAX {
            return Err(FormatError::Limit {
                structure: STRUCTURE,
                what: "file count",
                found: self.0.len() as u64,
                limit: SUPERSEDED_MAX,
            });
        }
        Ok(self
            .0
            .iter()
            .flat_map(|file| file.0.to_le_bytes())
            .collect())
    }

    /// Reads the section of a set with these files.
    pub(crate) fn decode(raw: &[u8], files: &FileTable) -> Result<Self, FormatError> {
        let mut reader = Reader::new(raw, STRUCTURE);
        let count = raw.len() / ENTRY_BYTES;
        if count == 0 || count as u64 > SUPERSEDED_MAX {
            return Err(reader.limit("file count", count as u64, SUPERSEDED_MAX));
        }
        let mut numbers: Vec<FileNo> = Vec::with_capacity(count);
        for _ in 0..count {
            let number = FileNo(reader.u32()?);
            if numbers.last().is_some_and(|last| *last >= number) {
                return Err(reader.invalid("file numbers do not ascend"));
            }
            numbers.push(number);
        }
        let superseded = Self(numbers);
        if files.0.iter().any(|entry| superseded.contains(entry.file)) {
            return Err(reader.invalid("a file of the file table is superseded"));
        }
        reader.end()?;
        Ok(superseded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{FileEntry, FileFlags, FileKind};

    fn decode(numbers: &[u32]) -> Result<SupersededFiles, FormatError> {
        let raw: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let entry = FileEntry {
            file: FileNo(7),
            kind: FileKind::File,
            flags: FileFlags::default(),
            mode: 0o600,
            bytes: 0,
            mtime_nanos: 0,
            crc32c: 0,
            path: b"a".to_vec(),
            link_target: Vec::new(),
        };
        SupersededFiles::decode(&raw, &FileTable(vec![entry]))
    }

    #[test]
    fn numbers_read_back_in_ascending_order() {
        let superseded = SupersededFiles::new(vec![FileNo(9), FileNo(2), FileNo(9)]);
        assert_eq!(decode(&[2, 9]).unwrap(), superseded);
        assert_eq!(superseded.encode().unwrap(), [2, 0, 0, 0, 9, 0, 0, 0]);
        assert!(superseded.contains(FileNo(2)) && !superseded.contains(FileNo(3)));
    }

    #[test]
    fn a_list_that_no_writer_makes_is_refused() {
        for numbers in [&[][..], &[2, 2], &[9, 2], &[2, 7]] {
            assert!(decode(numbers).is_err(), "{numbers:?}");
        }
        assert!(SupersededFiles::decode(&[1, 0, 0], &FileTable::default()).is_err());
        assert!(SupersededFiles::decode(&[1, 0, 0, 0, 5], &FileTable::default()).is_err());
    }
}
