//! pg_filenode.map: the file numbers of the catalogs that a reader needs to find pg_class itself.
//!
//! It holds a magic number, a count, that many pairs of oid and file number, room for more pairs,
//! and a CRC-32C of everything before it. 14 and 15 have room for 62 pairs (512 bytes), 16 and
//! newer for 64 (524 bytes).

use windlass_media::crc32c;

use super::heap::u32_at;

/// The file's name in `global` and in a database's directory.
pub(crate) const MAP_NAME: &[u8] = b"pg_filenode.map";
/// Longest form of the file.
pub(crate) const MAP_BYTES_MAX: usize = 524;
const MAGIC: u32 = 0x0059_2717;
/// The lengths that the file may have, each with the place of its CRC.
const FORMS: [(usize, usize); 2] = [(512, 504), (524, 520)];

/// The map: catalogs by oid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileMap(Vec<(u32, u32)>);

impl FileMap {
    /// Parses the file's bytes. The error says what is wrong with them.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let form = FORMS.iter().find(|(length, _)| *length == bytes.len());
        let (_, crc_at) = *form.ok_or("has a length that no version's map has")?;
        if u32_at(bytes, crc_at) != Some(crc32c(&bytes[..crc_at])) {
            return Err("has a CRC-32C that does not hold");
        }
        if u32_at(bytes, 0) != Some(MAGIC) {
            return Err("is not a map of file numbers");
        }
        let count = u32_at(bytes, 4).unwrap_or(u32::MAX) as usize;
        if count > (crc_at - 8) / 8 {
            return Err("counts more entries than it has");
        }
        let pairs = bytes[8..8 + count * 8].chunks_exact(8);
        let pair = |pair: &[u8]| Some((u32_at(pair, 0)?, u32_at(pair, 4)?));
        Ok(Self(pairs.filter_map(pair).collect()))
    }

    /// The file number of a catalog.
    pub(crate) fn get(&self, oid: u32) -> Option<u32> {
        let found = self.0.iter().find(|(catalog, _)| *catalog == oid);
        found.map(|(_, number)| *number)
    }

    /// All file numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(u32, u32)], (length, crc_at): (usize, usize)) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&u32::try_from(pairs.len()).unwrap().to_le_bytes());
        for (oid, number) in pairs {
            bytes.extend_from_slice(&oid.to_le_bytes());
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(length, 0);
        let crc = crc32c(&bytes[..crc_at]);
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn both_forms_are_read_and_every_flipped_byte_is_noticed() {
        for form in FORMS {
            let bytes = map(&[(1259, 16_400), (1249, 1249)], form);
            let parsed = FileMap::parse(&bytes).unwrap();
            assert_eq!(parsed.get(1259), Some(16_400));
            assert_eq!(parsed.get(1247), None);
            for at in 0..form.1 + 4 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert!(FileMap::parse(&damaged).is_err(), "byte {at}");
            }
        }
        let crowded = map(&[(1, 1); 63], (512, 504));
        let found = FileMap::parse(&crowded);
        assert_eq!(found, Err("counts more entries than it has"));
        assert!(FileMap::parse(&[]).is_err());
    }
}
