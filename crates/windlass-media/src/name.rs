//! The object that gives a stripe its name in a bucket: where the stripe's bytes are.
//!
//!   name object = [magic, version, lengths][key of the data][head][tail][CRC-32C]
//!
//! Objects can be neither renamed nor appended to. So a stripe in a bucket is two objects, its data
//! and its seal, and this third one appears last, under the stripe's name. It also has copies of
//! the stripe's two ends, so that one request tells what the stripe is.

use crate::error::{FormatError, Structure};
use crate::limits::{
    FORMAT_VERSION, NAME_HEAD_BYTES_MAX, NAME_KEY_BYTES_MAX, NAME_OBJECT_BYTES_MAX,
    NAME_TAIL_BYTES_MAX,
};
use crate::number::fitted;
use crate::wire::{Reader, check_crc};

const MAGIC: &[u8; 8] = b"WNDLNAME";
const STRUCTURE: Structure = Structure::NameObject;

/// What a name object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameObject {
    /// The key of the data, seen from the place of the stripe: parts between slashes.
    pub key: String,
    /// Bytes of the data: the stripe without its seal's block.
    pub data_bytes: u64,
    /// Bytes of the whole stripe.
    pub stripe_bytes: u64,
    /// A copy of the stripe's first bytes.
    pub head: Vec<u8>,
    /// A copy of the stripe's last bytes: at least the seal's block, which is not in the data.
    pub tail: Vec<u8>,
}

impl NameObject {
    /// The bytes of the object.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut into = Vec::with_capacity(64 + self.key.len() + self.head.len() + self.tail.len());
        into.extend_from_slice(MAGIC);
        into.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let key_bytes: u16 = fitted(self.key.len());
        into.extend_from_slice(&key_bytes.to_le_bytes());
        let (head_bytes, tail_bytes): (u32, u32) =
            (fitted(self.head.len()), fitted(self.tail.len()));
        into.extend_from_slice(&head_bytes.to_le_bytes());
        into.extend_from_slice(&tail_bytes.to_le_bytes());
        into.extend_from_slice(&[0; 4]);
        into.extend_from_slice(&self.data_bytes.to_le_bytes());
        into.extend_from_slice(&self.stripe_bytes.to_le_bytes());
        into.extend_from_slice(self.key.as_bytes());
        into.extend_from_slice(&self.head);
        into.extend_from_slice(&self.tail);
        let crc = crate::codec::crc32c(&into);
        into.extend_from_slice(&crc.to_le_bytes());
        Ok(into)
    }

    /// Reads a whole name object.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() > NAME_OBJECT_BYTES_MAX {
            return Err(limit("length", bytes.len(), NAME_OBJECT_BYTES_MAX));
        }
        Reader::new(bytes, STRUCTURE).magic(MAGIC)?;
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        reader.magic(MAGIC)?;
        reader.version(FORMAT_VERSION)?;
        let key_bytes = usize::from(reader.u16()?);
        let (head_bytes, tail_bytes) = (reader.u32()? as usize, reader.u32()? as usize);
        if reader.u32()? != 0 {
            return Err(reader.invalid("reserved bytes are not zero"));
        }
        let (data_bytes, stripe_bytes) = (reader.u64()?, reader.u64()?);
        let key = std::str::from_utf8(reader.bytes(key_bytes)?);
        let key = key.map_err(|_| reader.invalid("the key is not UTF-8"))?;
        let name = Self {
            key: key.to_owned(),
            data_bytes,
            stripe_bytes,
            head: reader.bytes(head_bytes)?.to_vec(),
            tail: reader.bytes(tail_bytes)?.to_vec(),
        };
        reader.end()?;
        name.check()?;
        Ok(name)
    }

    fn check(&self) -> Result<(), FormatError> {
        let (key, head, tail) = (self.key.len(), self.head.len(), self.tail.len());
        for (what, found, most) in [
            ("length of the key", key, NAME_KEY_BYTES_MAX),
            ("length of the head", head, NAME_HEAD_BYTES_MAX),
            ("length of the tail", tail, NAME_TAIL_BYTES_MAX),
        ] {
            if found > most {
                return Err(limit(what, found, most));
            }
        }
        let invalid = |what| {
            let structure = STRUCTURE;
            Err(FormatError::Invalid { structure, what })
        };
        // The key stays below the place of the stripe, whoever wrote the object.
        if self
            .key
            .split('/')
            .any(|part| ["", ".", ".."].contains(&part))
        {
            return invalid("a part of the key is empty or made of dots");
        }
        let beyond = self.stripe_bytes.checked_sub(self.data_bytes);
        match beyond {
            Some(beyond) if beyond <= tail as u64 => {}
            _ => return invalid("head and tail do not fit the lengths"),
        }
        if head as u64 > self.data_bytes || tail as u64 > self.stripe_bytes {
            return invalid("head and tail do not fit the lengths");
        }
        Ok(())
    }
}

fn limit(what: &'static str, found: usize, limit: usize) -> FormatError {
    FormatError::Limit {
        structure: STRUCTURE,
        what,
        found: found as u64,
        limit: limit as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> NameObject {
        NameObject {
            key: "sets/1f0c/1of2.data".to_owned(),
            data_bytes: 9000,
            stripe_bytes: 9512,
            head: vec![1; 100],
            tail: vec![2; 600],
        }
    }

    #[test]
    fn a_name_object_is_read_as_it_was_written_and_every_flipped_byte_is_noticed() {
        let bytes = example().encode().unwrap();
        assert_eq!(NameObject::decode(&bytes), Ok(example()));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(NameObject::decode(&flipped).is_err(), "byte {at}");
            assert!(NameObject::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_key_never_leaves_its_place_and_the_ends_fit_the_lengths() {
        for key in ["../secret", "/etc", "a//b", "a/./b", "a/.."] {
            let mut name = example();
            name.key = key.to_owned();
            assert!(name.encode().is_err(), "{key}");
        }
        for (data_bytes, stripe_bytes) in [(9513, 9512), (99, 9512), (8000, 9512), (10, 599)] {
            let mut name = example();
            (name.data_bytes, name.stripe_bytes) = (data_bytes, stripe_bytes);
            assert!(name.encode().is_err(), "{data_bytes} {stripe_bytes}");
        }
    }
}
