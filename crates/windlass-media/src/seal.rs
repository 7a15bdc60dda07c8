//! The seal: the last 512 bytes of a stripe, written and synced after everything else.

use crate::error::{FormatError, Structure};
use crate::ids::{SetId, StripeIndex};
use crate::limits::*;
use crate::wire::{Reader, check_crc, seal_with_crc};

pub(crate) const MAGIC: &[u8; 8] = b"WNDLSEAL";
const STRUCTURE: Structure = Structure::Seal;

/// What the last 512 bytes of a complete stripe say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The set.
    pub set_id: SetId,
    /// The stripe.
    pub stripe: StripeIndex,
    /// How many stripes the set has.
    pub stripe_count: u16,
    /// Where the footer begins on the stripe.
    pub footer_offset: u64,
    /// How long the footer is, padding included.
    pub footer_bytes: u64,
    /// BLAKE3 of the footer.
    pub footer_hash: [u8; 32],
    /// The set's root hash: the same on every stripe.
    pub set_root: [u8; 32],
    /// Length of the whole stripe, this seal included.
    pub stripe_bytes: u64,
    /// Bytes of the last block: zeros, then these 512 bytes.
    pub alignment: u32,
}

impl Seal {
    /// Where the set's id stands in the [`SEAL_BYTES`] bytes.
    pub const SET_ID: std::ops::Range<usize> = 16..32;

    /// The last block of the stripe, `alignment` bytes long: zeros, then the 512 bytes of the seal.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = Vec::with_capacity(SEAL_BYTES);
        record.extend_from_slice(MAGIC);
        record.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        record.extend_from_slice(&[0; 2]);
        record.extend_from_slice(&self.alignment.to_le_bytes());
        record.extend_from_slice(&self.set_id.0);
        record.extend_from_slice(&self.stripe.0.to_le_bytes());
        record.extend_from_slice(&self.stripe_count.to_le_bytes());
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(&self.footer_offset.to_le_bytes());
        record.extend_from_slice(&self.footer_bytes.to_le_bytes());
        record.extend_from_slice(&self.stripe_bytes.to_le_bytes());
        record.extend_from_slice(&self.footer_hash);
        record.extend_from_slice(&self.set_root);
        seal_with_crc(&mut record, SEAL_BYTES);
        let mut block = vec![0; self.alignment as usize - SEAL_BYTES];
        block.extend_from_slice(&record);
        block
    }

    /// Reads the last [`SEAL_BYTES`] bytes of a stripe that is `stripe_bytes` long.
    pub fn decode(record: &[u8], stripe_bytes: u64) -> Result<Self, FormatError> {
        if record.len() != SEAL_BYTES {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        Reader::new(record, STRUCTURE).magic(MAGIC)?;
        let mut reader = Reader::new(check_crc(record, STRUCTURE)?, STRUCTURE);
        reader.magic(MAGIC)?;
        reader.version(FORMAT_VERSION)?;
        let features = reader.u16()?;
        if features != 0 {
            let found = u32::from(features);
            return Err(FormatError::Feature {
                structure: STRUCTURE,
                found,
            });
        }
        let alignment = reader.u32()?;
        let set_id = SetId(reader.array()?);
        let (stripe, stripe_count) = (StripeIndex(reader.u16()?), reader.u16()?);
        if reader.u32()? != 0 {
            return Err(reader.invalid("reserved bytes are not zero"));
        }
        let (footer_offset, footer_bytes) = (reader.u64()?, reader.u64()?);
        let found_bytes = reader.u64()?;
        let (footer_hash, set_root) = (reader.array()?, reader.array()?);
        reader.padding()?;
        let seal = Self {
            set_id,
            stripe,
            stripe_count,
            footer_offset,
            footer_bytes,
            footer_hash,
            set_root,
            stripe_bytes: found_bytes,
            alignment,
        };
        seal.check(stripe_bytes)?;
        Ok(seal)
    }

    fn check(&self, stripe_bytes: u64) -> Result<(), FormatError> {
        let invalid = |what| {
            Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            })
        };
        if self.stripe_bytes != stripe_bytes {
            return invalid("the stripe is not as long as its seal says");
        }
        if self.footer_bytes > FOOTER_BYTES_MAX {
            return Err(FormatError::Limit {
                structure: STRUCTURE,
                what: "footer length",
                found: self.footer_bytes,
                limit: FOOTER_BYTES_MAX,
            });
        }
        let alignments = ALIGNMENT_MIN..=ALIGNMENT_MAX;
        if !self.alignment.is_power_of_two() || !alignments.contains(&self.alignment) {
            return invalid("the alignment is not a power of two from 512 to 65536");
        }
        let end = self.footer_offset.checked_add(self.footer_bytes);
        if end.and_then(|end| end.checked_add(u64::from(self.alignment))) != Some(stripe_bytes) {
            return invalid("footer and seal do not end the stripe");
        }
        Ok(())
    }
}
