//! Little-endian reading and writing with bounds, shared by every structure.

use crate::error::{FormatError, Structure};

/// Rounds up to a multiple of a power of two.
pub fn round_up(value: u64, alignment: u32) -> u64 {
    let mask = u64::from(alignment) - 1;
    value.saturating_add(mask) & !mask
}

/// Reads fields one after the other. Before each read it checks how many bytes are left.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    structure: Structure,
}

macro_rules! read_int {
    ($($name:ident: $int:ty),*) => {$(
        pub(crate) fn $name(&mut self) -> Result<$int, FormatError> {
            Ok(<$int>::from_le_bytes(self.array()?))
        }
    )*};
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], structure: Structure) -> Self {
        Self { bytes, structure }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (head, tail) = self
            .bytes
            .split_at_checked(count)
            .ok_or(FormatError::Truncated(self.structure))?;
        self.bytes = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    read_int!(u8: u8, u16: u16, u32: u32, u64: u64, i64: i64);

    /// A byte string with a 16-bit length, at most `limit` long.
    pub(crate) fn string(
        &mut self,
        what: &'static str,
        limit: usize,
    ) -> Result<&'a [u8], FormatError> {
        let length = usize::from(self.u16()?);
        if length > limit {
            return Err(self.limit(what, length as u64, limit as u64));
        }
        self.bytes(length)
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Checks that the rest is zero: padding is checked like every other byte.
    pub(crate) fn padding(self) -> Result<(), FormatError> {
        if self.bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        Err(self.invalid("padding is not zero"))
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), FormatError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(self.invalid("bytes follow the last field"))
    }

    pub(crate) fn limit(&self, what: &'static str, found: u64, limit: u64) -> FormatError {
        FormatError::Limit {
            structure: self.structure,
            what,
            found,
            limit,
        }
    }

    pub(crate) fn invalid(&self, what: &'static str) -> FormatError {
        FormatError::Invalid {
            structure: self.structure,
            what,
        }
    }

    /// Checks magic bytes.
    pub(crate) fn magic(&mut self, magic: &[u8; 8]) -> Result<(), FormatError> {
        if &self.array::<8>()? == magic {
            return Ok(());
        }
        Err(FormatError::Magic(self.structure))
    }

    /// Reads a version, and refuses any but that of this build.
    pub(crate) fn version(&mut self, supported: u16) -> Result<(), FormatError> {
        let found = self.u16()?;
        if found == supported {
            return Ok(());
        }
        Err(FormatError::Version {
            structure: self.structure,
            found,
            supported,
        })
    }
}

/// Appends a byte string with its 16-bit length.
pub(crate) fn put_string(into: &mut Vec<u8>, bytes: &[u8]) -> Result<(), FormatError> {
    let length = u16::try_from(bytes.len()).map_err(|_| FormatError::Limit {
        structure: Structure::FileTable,
        what: "string length",
        found: bytes.len() as u64,
        limit: u64::from(u16::MAX),
    })?;
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(bytes);
    Ok(())
}

/// Pads with zeros to `total` bytes. The last four of them are the CRC-32C of all bytes before.
pub(crate) fn seal_with_crc(into: &mut Vec<u8>, total: usize) {
    into.resize(total - 4, 0);
    let crc = crate::codec::crc32c(into);
    into.extend_from_slice(&crc.to_le_bytes());
}

/// Checks the CRC-32C in the last four bytes and returns what stands before it.
pub(crate) fn check_crc(bytes: &[u8], structure: Structure) -> Result<&[u8], FormatError> {
    let split = bytes
        .len()
        .checked_sub(4)
        .ok_or(FormatError::Truncated(structure))?;
    let (content, stored) = bytes.split_at(split);
    let mut expected = [0; 4];
    expected.copy_from_slice(stored);
    let (expected, found) = (u32::from_le_bytes(expected), crate::codec::crc32c(content));
    if expected != found {
        return Err(FormatError::Checksum {
            structure,
            expected,
            found,
        });
    }
    Ok(content)
}
