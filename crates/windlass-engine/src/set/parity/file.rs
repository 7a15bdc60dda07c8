//! One file with parity: its header, its end, its directory and its blocks, each checked before it
//! is believed.

use std::path::{Path, PathBuf};

use windlass_media::{
    FormatError, GroupBlock, GroupDirectory, GroupEntry, ParityEnd, ParityHeader, SEAL_BYTES,
    Structure, crc32c, fitted, is_zero,
};

use crate::error::{EngineError, damage, read_error};
use crate::read::ReadFile;
use crate::set::ends::Ends;
use crate::storage::Storage;

/// How much is read of the beginning at once. It holds most headers.
const HEAD_BYTES: u64 = 4096;

/// An open file with parity.
#[derive(Debug)]
pub(crate) struct ParityFile {
    pub(crate) location: PathBuf,
    file: ReadFile,
    pub(crate) header: ParityHeader,
    pub(crate) header_bytes: u64,
    pub(crate) end: ParityEnd,
    pub(crate) directory: GroupDirectory,
}

/// Whether a file begins as one with parity.
pub(crate) fn is_parity_file(storage: &dyn Storage, location: &Path) -> bool {
    let mut magic = [0; 8];
    let opened = storage.open(location);
    opened.is_ok_and(|file| file.read_exact_at(0, &mut magic).is_ok())
        && ParityHeader::begins(&magic)
}

/// The header of a file with parity, if it is one.
pub(crate) fn parity_header(
    storage: &dyn Storage,
    location: &Path,
) -> Result<(ParityHeader, u64), EngineError> {
    let ends = Ends::open(storage, location)?;
    header_of(&ends)
}

/// The same of a file that is open.
pub(crate) fn header_of(ends: &Ends<'_>) -> Result<(ParityHeader, u64), EngineError> {
    let fault = |source| damage(ends.location, 0, source);
    let mut bytes = read(ends, 0, ends.bytes.min(HEAD_BYTES))?;
    let total = ParityHeader::encoded_bytes(&bytes).map_err(fault)? as usize;
    if total > bytes.len() {
        bytes = read(ends, 0, total as u64)?;
    }
    bytes.truncate(total);
    let header = ParityHeader::decode(&bytes).map_err(fault)?;
    Ok((header, total as u64))
}

fn read(ends: &Ends<'_>, offset: u64, bytes: u64) -> Result<Vec<u8>, EngineError> {
    let mut into = vec![0; fitted(bytes)];
    let read = ends.device.read_exact_at(offset, &mut into);
    read.map_err(|source| read_error(ends.location, offset, source))?;
    Ok(into)
}

impl ParityFile {
    /// Opens a file, and checks that its parts belong together. Its directory takes at most `limit`
    /// bytes of memory.
    pub(crate) fn open(
        storage: &dyn Storage,
        location: &Path,
        limit: u64,
    ) -> Result<Self, EngineError> {
        let ends = Ends::open(storage, location)?;
        let (header, header_bytes) = header_of(&ends)?;
        let fault = |offset| move |source| damage(location, offset, source);
        let block = u64::from(header.alignment);
        let offset = ends.bytes.saturating_sub(block);
        let last = read(&ends, offset, ends.bytes - offset)?;
        let (zeros, record) = last.split_at(last.len().saturating_sub(SEAL_BYTES));
        let end = ParityEnd::decode(record, ends.bytes, &header).map_err(fault(offset))?;
        if !is_zero(zeros) {
            let (structure, what) = (Structure::ParityEnd, "padding is not zero");
            return Err(damage(
                location,
                offset,
                FormatError::Invalid { structure, what },
            ));
        }
        let at = end.directory_offset;
        if end.directory_bytes > limit {
            return Err(damage(
                location,
                at,
                FormatError::Limit {
                    structure: Structure::GroupDirectory,
                    what: "length",
                    found: end.directory_bytes,
                    limit,
                },
            ));
        }
        let directory = read(&ends, at, end.directory_bytes)?;
        if blake3::hash(&directory).as_bytes() != &end.directory_hash {
            return Err(damage(
                location,
                at,
                FormatError::Hash(Structure::GroupDirectory),
            ));
        }
        let directory = GroupDirectory::decode(&directory, &header, limit).map_err(fault(at))?;
        let file = Self {
            location: location.to_owned(),
            file: ReadFile::of(ends.device),
            header,
            header_bytes,
            end,
            directory,
        };
        file.check_layout()?;
        Ok(file)
    }

    /// Its number among the devices of the set, from 1.
    pub(crate) fn number(&self) -> u16 {
        self.header.stripe_count() + self.header.parity + 1
    }

    /// Checks that header, parities, blocks and directory follow each other without a gap.
    fn check_layout(&self) -> Result<(), EngineError> {
        let entries = &self.directory.entries;
        let first = entries
            .first()
            .map_or(self.end.directory_offset, |it| it.region_offset);
        let last = entries
            .last()
            .map_or(first, |it| it.offset.saturating_add(u64::from(it.bytes)));
        let groups: u64 = entries.iter().map(|it| u64::from(it.groups)).sum();
        if (first, last, groups)
            == (
                self.header_bytes,
                self.end.directory_offset,
                self.end.groups,
            )
        {
            return Ok(());
        }
        let what = "its blocks do not fill the file up to the directory";
        let structure = Structure::GroupDirectory;
        Err(damage(
            &self.location,
            self.end.directory_offset,
            FormatError::Invalid { structure, what },
        ))
    }

    /// Reads and checks one group block.
    pub(crate) fn block(&self, number: usize) -> Result<GroupBlock, EngineError> {
        let Some(entry) = self.directory.entries.get(number) else {
            return Err(EngineError::Stopped);
        };
        let mut bytes = vec![0; entry.bytes as usize];
        self.read(entry.offset, &mut bytes)?;
        let fault = |source| damage(&self.location, entry.offset, source);
        if blake3::hash(&bytes).as_bytes() != &entry.hash {
            return Err(fault(FormatError::Hash(Structure::GroupBlock)));
        }
        let block = GroupBlock::decode(&bytes, entry.offset, &self.header).map_err(fault)?;
        let listed = (
            entry.first_group,
            entry.groups as usize,
            entry.region_offset,
        );
        let own = (block.first_group, block.groups.len(), block.region_offset);
        if listed != own || block.number as usize != number {
            let what = "it is not as the directory says";
            let structure = Structure::GroupBlock;
            return Err(fault(FormatError::Invalid { structure, what }));
        }
        Ok(block)
    }

    /// Reads and checks the parity of one group.
    pub(crate) fn parity(&self, group: &GroupEntry) -> Result<Vec<u8>, EngineError> {
        let mut bytes = vec![0; group.bytes as usize];
        self.read(group.offset, &mut bytes)?;
        let found = crc32c(&bytes);
        if found == group.crc32c {
            return Ok(bytes);
        }
        let fault = FormatError::Checksum {
            structure: Structure::Parity,
            expected: group.crc32c,
            found,
        };
        Err(damage(&self.location, group.offset, fault))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), EngineError> {
        let fault = |source| read_error(&self.location, offset, source);
        let read = self.file.read_uncached(offset, into).map_err(fault)?;
        match read == into.len() {
            true => Ok(()),
            false => Err(fault(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }
}
