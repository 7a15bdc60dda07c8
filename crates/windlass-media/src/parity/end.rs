//! The end of a file with parity: its last 512 bytes, written and synced after everything else.

use super::header::ParityHeader;
use crate::error::{FormatError, Structure};
use crate::ids::SetId;
use crate::limits::*;
use crate::wire::{Reader, check_crc, seal_with_crc};

const MAGIC: &[u8; 8] = b"WNDLPEND";
const STRUCTURE: Structure = Structure::ParityEnd;

/// What the last 512 bytes of a complete file with parity say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityEnd {
    /// The set.
    pub set_id: SetId,
    /// Which parity this is.
    pub parity: u16,
    /// Bytes of the last block: zeros, then these 512 bytes.
    pub alignment: u32,
    /// Where the directory begins.
    pub directory_offset: u64,
    /// How long the directory is, padding included.
    pub directory_bytes: u64,
    /// BLAKE3 of the directory.
    pub directory_hash: [u8; 32],
    /// Length of the whole file, this end included.
    pub file_bytes: u64,
    /// How many groups there are.
    pub groups: u64,
    /// The set's root hash, as in the seals of its stripes.
    pub set_root: [u8; 32],
}

impl ParityEnd {
    /// The last block of the file, `alignment` bytes long.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = Vec::with_capacity(SEAL_BYTES);
        record.extend_from_slice(MAGIC);
        record.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        record.extend_from_slice(&self.parity.to_le_bytes());
        record.extend_from_slice(&self.alignment.to_le_bytes());
        record.extend_from_slice(&self.set_id.0);
        record.extend_from_slice(&self.directory_offset.to_le_bytes());
        record.extend_from_slice(&self.directory_bytes.to_le_bytes());
        record.extend_from_slice(&self.file_bytes.to_le_bytes());
        record.extend_from_slice(&self.groups.to_le_bytes());
        record.extend_from_slice(&self.directory_hash);
        record.extend_from_slice(&self.set_root);
        seal_with_crc(&mut record, SEAL_BYTES);
        let mut block = vec![0; self.alignment as usize - SEAL_BYTES];
        block.extend_from_slice(&record);
        block
    }

    /// Reads the last [`SEAL_BYTES`] bytes of a file with this header, which is `file_bytes` long.
    pub fn decode(
        record: &[u8],
        file_bytes: u64,
        header: &ParityHeader,
    ) -> Result<Self, FormatError> {
        let end = Self::read(record)?;
        end.check(file_bytes, header)?;
        Ok(end)
    }

    /// The set of a file of which the header cannot be read any more. `record` is its last
    /// [`SEAL_BYTES`] bytes.
    pub fn set_of(record: &[u8]) -> Result<SetId, FormatError> {
        Self::read(record).map(|end| end.set_id)
    }

    fn read(record: &[u8]) -> Result<Self, FormatError> {
        if record.len() != SEAL_BYTES {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        Reader::new(record, STRUCTURE).magic(MAGIC)?;
        let mut reader = Reader::new(check_crc(record, STRUCTURE)?, STRUCTURE);
        reader.magic(MAGIC)?;
        reader.version(FORMAT_VERSION)?;
        let (parity, alignment) = (reader.u16()?, reader.u32()?);
        let set_id = SetId(reader.array()?);
        let (directory_offset, directory_bytes) = (reader.u64()?, reader.u64()?);
        let (file_bytes, groups) = (reader.u64()?, reader.u64()?);
        let (directory_hash, set_root) = (reader.array()?, reader.array()?);
        reader.padding()?;
        Ok(Self {
            set_id,
            parity,
            alignment,
            directory_offset,
            directory_bytes,
            directory_hash,
            file_bytes,
            groups,
            set_root,
        })
    }

    fn check(&self, file_bytes: u64, header: &ParityHeader) -> Result<(), FormatError> {
        let invalid = |what| {
            Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            })
        };
        let own = (header.set_id, header.parity, header.alignment);
        if (self.set_id, self.parity, self.alignment) != own {
            return invalid("it is of another set or of another parity");
        }
        if self.file_bytes != file_bytes {
            return invalid("the file is not as long as its end says");
        }
        let end = self.directory_offset.checked_add(self.directory_bytes);
        let end = end.and_then(|end| end.checked_add(u64::from(self.alignment)));
        if end != Some(file_bytes) || self.directory_bytes > FOOTER_BYTES_MAX {
            return invalid("directory and end do not end the file");
        }
        Ok(())
    }
}
