//! The base of a set: which set a differential or an incremental one builds on, and which bytes of
//! which of its files are there.
//!
//!   file of this set --file number in the base, bytes--> file of the base
//!
//! A file that is not in the list is whole in this set. Of a file in the list, the bytes below the
//! stated length that no piece of this set holds are those of the base. All other bytes are in this
//! set.
//!
//! Invariants
//! - The writer of the set has decided which files are the same. A reader compares no names.
//! - The root of the base is recorded. So a reader knows whether it has the right set, and the root
//!   of a set covers every set below it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{FormatError, Structure};
use crate::files::{FileKind, FileTable};
use crate::ids::{FileNo, SetId};
use crate::limits::{FILE_BYTES_MAX, FILES_MAX, PATH_BYTES_MAX, STRIPES_MAX};
use crate::number::fitted;
use crate::wire::{Reader, put_string};

const STRUCTURE: Structure = Structure::Base;
const ENTRY_BYTES: usize = 4 + 4 + 8;

/// The set that a set builds on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The id of the set.
    pub set: SetId,
    /// Its root.
    pub root: [u8; 32],
    /// Where its stripes were when this set was written.
    pub locations: Vec<Vec<u8>>,
    /// The files of which it has bytes.
    pub files: InheritedFiles,
}

/// A file of which the base has bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// The file in this set.
    pub file: FileNo,
    /// The file in the base.
    pub base_file: FileNo,
    /// Only bytes before this offset come from the base. It is at least 1, and at most the length
    /// of the file in either set.
    pub bytes: u64,
}

/// The files of which the base has bytes, in the order of their numbers. Copies share the list:
/// several readers of a chain keep those of each of its sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InheritedFiles(Arc<[Inherited]>);

impl InheritedFiles {
    /// Takes them in any order, each file once.
    pub fn new(mut files: Vec<Inherited>) -> Self {
        files.sort_unstable_by_key(|inherited| inherited.file);
        Self(files.into())
    }

    /// All of them, in the order of their numbers.
    pub fn all(&self) -> &[Inherited] {
        &self.0
    }

    /// What the base has of a file; `None` for a file that is whole in this set.
    pub fn get(&self, file: FileNo) -> Option<Inherited> {
        let at = self.0.binary_search_by_key(&file, |one| one.file).ok()?;
        Some(self.0[at])
    }

    /// Whether any of these numbers is in the list.
    pub fn any_in(&self, first: FileNo, last: FileNo) -> bool {
        let at = self.0.partition_point(|one| one.file < first);
        self.0.get(at).is_some_and(|one| one.file <= last)
    }
}

impl Base {
    /// The section's bytes, for a set with these files.
    pub(crate) fn encode(&self, files: &FileTable) -> Result<Vec<u8>, FormatError> {
        self.check(files)?;
        let mut out = Vec::with_capacity(64 + self.files.0.len() * ENTRY_BYTES);
        out.extend_from_slice(&self.set.0);
        out.extend_from_slice(&self.root);
        out.extend_from_slice(&fitted::<u16, _>(self.locations.len()).to_le_bytes());
        for location in &self.locations {
            put_string(&mut out, location)?;
        }
        out.extend_from_slice(&fitted::<u32, _>(self.files.0.len()).to_le_bytes());
        for one in self.files.all() {
            out.extend_from_slice(&one.file.0.to_le_bytes());
            out.extend_from_slice(&one.base_file.0.to_le_bytes());
            out.extend_from_slice(&one.bytes.to_le_bytes());
        }
        Ok(out)
    }

    /// Reads the section of a set with these files.
    pub(crate) fn decode(raw: &[u8], files: &FileTable) -> Result<Self, FormatError> {
        let mut reader = Reader::new(raw, STRUCTURE);
        let (set, root) = (SetId(reader.array()?), reader.array()?);
        let count = reader.u16()?;
        if count > STRIPES_MAX {
            return Err(reader.limit("location count", count.into(), STRIPES_MAX.into()));
        }
        let mut locations = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            locations.push(reader.string("location length", PATH_BYTES_MAX)?.to_vec());
        }
        let count = reader.u32()?;
        if count > FILES_MAX {
            return Err(reader.limit("file count", count.into(), FILES_MAX.into()));
        }
        if (count as usize).saturating_mul(ENTRY_BYTES) > reader.remaining() {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let mut inherited = Vec::with_capacity(count as usize);
        for _ in 0..count {
            inherited.push(Inherited {
                file: FileNo(reader.u32()?),
                base_file: FileNo(reader.u32()?),
                bytes: reader.u64()?,
            });
        }
        reader.end()?;
        let files_here = InheritedFiles(inherited.into());
        let base = Self {
            set,
            root,
            locations,
            files: files_here,
        };
        base.check(files)?;
        Ok(base)
    }

    /// Checks the list against the files of the set. Whether the base has the other files is only
    /// known when the base is open.
    fn check(&self, files: &FileTable) -> Result<(), FormatError> {
        let invalid = |what| {
            Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            })
        };
        let listed = &self.files.0;
        if listed.windows(2).any(|pair| pair[0].file >= pair[1].file) {
            return invalid("file numbers do not ascend");
        }
        let mut below = HashSet::with_capacity(listed.len());
        if listed.iter().any(|one| !below.insert(one.base_file)) {
            return invalid("two files come from one file of the base");
        }
        if listed
            .iter()
            .any(|one| one.bytes > FILE_BYTES_MAX || one.bytes == 0)
        {
            return invalid("a length is zero or too large");
        }
        let mut found = 0;
        for entry in files.0.iter().filter(|entry| entry.kind == FileKind::File) {
            let Some(one) = self.files.get(entry.file) else {
                continue;
            };
            found += 1;
            if one.bytes > entry.bytes {
                return invalid("more of a file comes from the base than the file has");
            }
            if entry.flags.crc_known {
                return invalid("a file with bytes of the base states a checksum");
            }
        }
        match found == listed.len() {
            true => Ok(()),
            false => invalid("a file of the list is not in the set"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{FileEntry, FileFlags};

    fn table(bytes: u64, crc_known: bool) -> FileTable {
        let entry = |file, kind| FileEntry {
            file: FileNo(file),
            kind,
            flags: FileFlags {
                last: false,
                crc_known: crc_known && kind == FileKind::File,
            },
            mode: 0o600,
            bytes: if kind == FileKind::File { bytes } else { 0 },
            mtime_nanos: 0,
            crc32c: 0,
            path: file.to_string().into_bytes(),
            link_target: Vec::new(),
        };
        let kinds = [FileKind::File, FileKind::File, FileKind::Directory];
        FileTable(
            (1..)
                .zip(kinds)
                .map(|(file, kind)| entry(file, kind))
                .collect(),
        )
    }

    fn base(files: &[(u32, u32, u64)]) -> Base {
        let one = |(file, base_file, bytes): &(u32, u32, u64)| Inherited {
            file: FileNo(*file),
            base_file: FileNo(*base_file),
            bytes: *bytes,
        };
        Base {
            set: SetId([3; 16]),
            root: [4; 32],
            locations: vec![b"/backup/a".to_vec()],
            files: InheritedFiles(files.iter().map(one).collect()),
        }
    }

    #[test]
    fn copies_of_the_list_share_it() {
        let files = base(&[(1, 9, 1), (2, 4, 99)]).files;
        let copy = files.clone();
        assert!(std::ptr::eq(copy.all(), files.all()));
    }

    #[test]
    fn a_base_reads_back_as_it_was_written() {
        for files in [&[][..], &[(1, 9, 100)], &[(1, 9, 1), (2, 4, 99)]] {
            let (files, table) = (base(files), table(100, false));
            let raw = files.encode(&table).unwrap();
            assert_eq!(Base::decode(&raw, &table).unwrap(), files);
            for bytes in 0..raw.len() {
                assert!(Base::decode(&raw[..bytes], &table).is_err(), "{bytes}");
            }
        }
    }

    #[test]
    fn a_list_that_no_writer_makes_is_refused() {
        let good = base(&[(1, 9, 100), (2, 4, 99)]);
        let raw = good.encode(&table(100, false)).unwrap();
        assert!(Base::decode(&raw, &table(99, false)).is_err());
        assert!(Base::decode(&raw, &table(100, true)).is_err());
        for files in [
            &[(2, 4, 9), (1, 9, 9)][..],
            &[(1, 4, 9), (1, 9, 9)],
            &[(1, 4, 9), (2, 4, 9)],
            &[(1, 4, 0)],
            &[(3, 4, 9)],
            &[(7, 4, 9)],
        ] {
            assert!(base(files).encode(&table(100, false)).is_err(), "{files:?}");
        }
    }

    #[test]
    fn files_are_found_by_number_and_by_range() {
        let files = base(&[(3, 9, 5), (7, 4, 9)]).files;
        assert_eq!(files.get(FileNo(7)).unwrap().bytes, 9);
        assert_eq!(files.get(FileNo(4)), None);
        for (first, last, any) in [
            (0, 2, false),
            (0, 3, true),
            (4, 6, false),
            (4, 9, true),
            (8, 9, false),
        ] {
            assert_eq!(files.any_in(FileNo(first), FileNo(last)), any);
        }
    }
}
