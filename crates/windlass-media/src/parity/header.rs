//! The first block of a file with parity. It names the set, its stripes, and the other such files.

use crate::error::{FormatError, Structure};
use crate::header::{StripeHeader, read_locations};
use crate::ids::SetId;
use crate::limits::*;
use crate::number::fitted;
use crate::wire::{Reader, check_crc, put_string, round_up, seal_with_crc};

pub(crate) const MAGIC: &[u8; 8] = b"WNDLPAR\x01";
const STRUCTURE: Structure = Structure::ParityHeader;

/// What stands at the start of every file with parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityHeader {
    /// The set whose stripes can be rebuilt.
    pub set_id: SetId,
    /// Which parity this is, from 0.
    pub parity: u16,
    /// Every structure starts at, and is padded to, a multiple of this many bytes.
    pub alignment: u32,
    /// Largest member of a group, in bytes.
    pub member_bytes: u32,
    /// When the set was begun, in nanoseconds since 1970 UTC.
    pub created_nanos: i64,
    /// Where each stripe of the set was written.
    pub stripes: Vec<Vec<u8>>,
    /// Where each parity was written, this one included.
    pub parities: Vec<Vec<u8>>,
}

impl ParityHeader {
    /// How many bytes [`ParityHeader::encoded_bytes`] needs.
    pub const PREFIX_BYTES: usize = 64;

    /// The header of one parity of a set whose stripes have this header.
    pub fn of(stripe: &StripeHeader, parity: u16, member_bytes: u32) -> Self {
        Self {
            set_id: stripe.set_id,
            parity,
            alignment: stripe.alignment,
            member_bytes,
            created_nanos: stripe.created_nanos,
            stripes: stripe.locations.clone(),
            parities: stripe.parities.clone(),
        }
    }

    /// Whether bytes begin as such a file does.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC[..7])
    }

    /// The header as it stands in the file. Its length is a multiple of the alignment.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        let total_at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.set_id.0);
        let (parities, stripes): (u16, u16) = (self.parity_count(), self.stripe_count());
        for number in [self.parity, parities, stripes, 0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.alignment.to_le_bytes());
        out.extend_from_slice(&self.member_bytes.to_le_bytes());
        out.extend_from_slice(&self.created_nanos.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        for location in self.stripes.iter().chain(&self.parities) {
            put_string(&mut out, location)?;
        }
        let total = round_up(out.len() as u64 + 4, self.alignment);
        let narrow = u32::try_from(total).ok();
        let narrow = narrow.filter(|total| *total <= HEADER_BYTES_MAX);
        let total = narrow.ok_or(FormatError::Limit {
            structure: STRUCTURE,
            what: "length",
            found: total,
            limit: u64::from(HEADER_BYTES_MAX),
        })?;
        out[total_at..total_at + 4].copy_from_slice(&total.to_le_bytes());
        seal_with_crc(&mut out, total as usize);
        Ok(out)
    }

    /// Length of the whole header, from its first [`Self::PREFIX_BYTES`] bytes.
    pub fn encoded_bytes(prefix: &[u8]) -> Result<u32, FormatError> {
        Self::preamble(&mut Reader::new(prefix, STRUCTURE))
    }

    fn preamble(reader: &mut Reader<'_>) -> Result<u32, FormatError> {
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
        let total = reader.u32()?;
        if !(ALIGNMENT_MIN..=HEADER_BYTES_MAX).contains(&total) {
            return Err(reader.limit("length", u64::from(total), u64::from(HEADER_BYTES_MAX)));
        }
        Ok(total)
    }

    /// Reads a header; `bytes` is exactly [`Self::encoded_bytes`] long.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let total = Self::encoded_bytes(bytes)?;
        if bytes.len() != total as usize {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        Self::preamble(&mut reader)?;
        let set_id = SetId(reader.array()?);
        let (parity, parity_count) = (reader.u16()?, reader.u16()?);
        let (stripe_count, zero) = (reader.u16()?, reader.u16()?);
        let (alignment, member_bytes) = (reader.u32()?, reader.u32()?);
        let created_nanos = reader.i64()?;
        if zero != 0 || reader.bytes(8)? != [0; 8] {
            return Err(reader.invalid("reserved bytes are not zero"));
        }
        let count = u64::from(stripe_count) + u64::from(parity_count);
        if count > u64::from(STRIPES_MAX) {
            return Err(reader.limit("device count", count, u64::from(STRIPES_MAX)));
        }
        let stripes = read_locations(&mut reader, stripe_count)?;
        let parities = read_locations(&mut reader, parity_count)?;
        reader.padding()?;
        let header = Self {
            set_id,
            parity,
            alignment,
            member_bytes,
            created_nanos,
            stripes,
            parities,
        };
        header.check()?;
        Ok(header)
    }

    /// How many stripes the set has.
    pub fn stripe_count(&self) -> u16 {
        fitted(self.stripes.len())
    }

    /// How many parities the set has.
    pub fn parity_count(&self) -> u16 {
        fitted(self.parities.len())
    }

    fn check(&self) -> Result<(), FormatError> {
        let invalid = |what| {
            Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            })
        };
        let count = self.stripes.len() + self.parities.len();
        if self.stripes.is_empty() || count > usize::from(STRIPES_MAX) {
            return invalid("a set has at least one stripe, and at most 64 devices");
        }
        if usize::from(self.parity) >= self.parities.len() {
            return invalid("the number of the parity is not below their count");
        }
        let mut locations = self.stripes.iter().chain(&self.parities);
        if locations.any(|location| location.len() > PATH_BYTES_MAX) {
            return invalid("a location is longer than 4096 bytes");
        }
        let alignments = ALIGNMENT_MIN..=ALIGNMENT_MAX;
        if !self.alignment.is_power_of_two() || !alignments.contains(&self.alignment) {
            return invalid("the alignment is not a power of two from 512 to 65536");
        }
        let members = self.alignment..=MEMBER_BYTES_MAX;
        if !members.contains(&self.member_bytes)
            || !self.member_bytes.is_multiple_of(self.alignment)
        {
            return invalid("the largest member is not a multiple of the alignment up to 4 MiB");
        }
        Ok(())
    }
}
