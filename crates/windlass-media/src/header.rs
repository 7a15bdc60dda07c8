//! The header: the first block of a stripe. It names the set, the stripe, and its siblings.

use crate::cipher::SEALED_BYTES;
use crate::error::{FormatError, Structure};
use crate::ids::{SetId, StripeIndex};
use crate::limits::*;
use crate::lock::Lock;
use crate::number::{fitted, saturated};
use crate::wire::{Reader, check_crc, put_string, round_up, seal_with_crc};

pub(crate) const MAGIC: &[u8; 8] = b"WNDLASS\x01";
const STRUCTURE: Structure = Structure::Header;
/// The feature of sets whose index blocks may have entries of page-aware frames.
const PAGE_FRAMES: u16 = 1;
/// The feature of encrypted sets: the header has a lock.
const ENCRYPTED: u16 = 2;
/// The feature of sets with parity: the header says where that is.
const PARITY: u16 = 4;
/// The number of AES-256-GCM for each frame.
const AES_256_GCM: u8 = 1;

/// What stands at the start of every stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeHeader {
    /// The set this stripe belongs to.
    pub set_id: SetId,
    /// Which stripe this is.
    pub stripe: StripeIndex,
    /// Every structure on the stripe starts at, and is padded to, a multiple of this many bytes.
    pub alignment: u32,
    /// Largest transfer the writer makes, in bytes.
    pub transfer_bytes: u32,
    /// Largest frame, decompressed, in bytes.
    pub frame_bytes: u32,
    /// When the set was begun, in nanoseconds since 1970 UTC.
    pub created_nanos: i64,
    /// Whether index blocks may have entries of page-aware frames ([`crate::PageFrame`]).
    pub page_frames: bool,
    /// Who can read the set, if it is encrypted.
    pub lock: Option<Lock>,
    /// Where each stripe of the set was written: one name for each stripe, this one included.
    pub locations: Vec<Vec<u8>>,
    /// Where each file with parity was written; none if the set has no parity.
    pub parities: Vec<Vec<u8>>,
}

/// So many locations, each a string.
pub(crate) fn read_locations(
    reader: &mut Reader<'_>,
    count: u16,
) -> Result<Vec<Vec<u8>>, FormatError> {
    let mut one = || Ok(reader.string("location length", PATH_BYTES_MAX)?.to_vec());
    (0..count).map(|_| one()).collect()
}

impl StripeHeader {
    /// How many bytes of a stripe [`StripeHeader::encoded_bytes`] needs.
    pub const PREFIX_BYTES: usize = 64;

    /// Whether bytes begin as a stripe does, of this format or another.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC[..7])
    }

    /// The header as it stands on the stripe. Its length is a multiple of the alignment.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let pages = u16::from(self.page_frames) * PAGE_FRAMES;
        let encrypted = u16::from(self.lock.is_some()) * ENCRYPTED;
        let parity = u16::from(!self.parities.is_empty()) * PARITY;
        out.extend_from_slice(&(pages | encrypted | parity).to_le_bytes());
        let total_at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.set_id.0);
        out.extend_from_slice(&self.stripe.0.to_le_bytes());
        let count: u16 = fitted(self.locations.len());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&self.alignment.to_le_bytes());
        out.extend_from_slice(&self.transfer_bytes.to_le_bytes());
        out.extend_from_slice(&self.frame_bytes.to_le_bytes());
        out.extend_from_slice(&self.created_nanos.to_le_bytes());
        out.push(0); // role: data
        out.push(u8::from(self.lock.is_some()) * AES_256_GCM);
        out.push(saturated(self.parities.len()));
        out.extend_from_slice(&[0; 5]);
        for location in self.locations.iter().chain(&self.parities) {
            put_string(&mut out, location)?;
        }
        if let Some(lock) = &self.lock {
            lock.encode(&mut out)?;
        }
        let total = round_up(out.len() as u64 + 4, self.alignment);
        let narrow = u32::try_from(total)
            .ok()
            .filter(|total| *total <= HEADER_BYTES_MAX);
        let total = narrow.ok_or(FormatError::Limit {
            structure: STRUCTURE,
            what: "length",
            found: total,
            limit: u64::from(HEADER_BYTES_MAX),
        })?;
        out[total_at..total_at + 4].copy_from_slice(&total.to_le_bytes());
        self.check()?;
        seal_with_crc(&mut out, total as usize);
        Ok(out)
    }

    /// Length of the whole header, from its first [`Self::PREFIX_BYTES`] bytes.
    pub fn encoded_bytes(prefix: &[u8]) -> Result<u32, FormatError> {
        let mut reader = Reader::new(prefix, STRUCTURE);
        Self::preamble(&mut reader).map(|(_, total)| total)
    }

    /// Magic, version, features, length. Returns features and length.
    fn preamble(reader: &mut Reader<'_>) -> Result<(u16, u32), FormatError> {
        reader.magic(MAGIC)?;
        reader.version(FORMAT_VERSION)?;
        let features = reader.u16()?;
        let unknown = features & !(PAGE_FRAMES | ENCRYPTED | PARITY);
        if unknown != 0 {
            let found = u32::from(unknown);
            return Err(FormatError::Feature {
                structure: STRUCTURE,
                found,
            });
        }
        let total = reader.u32()?;
        if !(ALIGNMENT_MIN..=HEADER_BYTES_MAX).contains(&total) {
            return Err(reader.limit("length", u64::from(total), u64::from(HEADER_BYTES_MAX)));
        }
        Ok((features, total))
    }

    /// Reads a header; `bytes` is exactly [`Self::encoded_bytes`] long.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let total = Self::encoded_bytes(bytes)?;
        if bytes.len() != total as usize {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        let (features, _) = Self::preamble(&mut reader)?;
        let set_id = SetId(reader.array()?);
        let stripe = StripeIndex(reader.u16()?);
        let count = reader.u16()?;
        let (alignment, transfer_bytes) = (reader.u32()?, reader.u32()?);
        let (frame_bytes, created_nanos) = (reader.u32()?, reader.i64()?);
        let (role, encryption) = (reader.u8()?, reader.u8()?);
        let is_encrypted = features & ENCRYPTED != 0;
        if role != 0 || encryption != u8::from(is_encrypted) * AES_256_GCM {
            let found = u32::from(role) << 8 | u32::from(encryption);
            return Err(FormatError::Feature {
                structure: STRUCTURE,
                found,
            });
        }
        let parity_count = u16::from(reader.u8()?);
        if (parity_count > 0) != (features & PARITY != 0) {
            return Err(
                reader.invalid("only the feature or only the count says that it has parity")
            );
        }
        if reader.bytes(5)? != [0; 5] {
            return Err(reader.invalid("reserved bytes are not zero"));
        }
        if count > STRIPES_MAX {
            return Err(reader.limit("stripe count", u64::from(count), u64::from(STRIPES_MAX)));
        }
        if parity_count > STRIPES_MAX {
            let most = u64::from(STRIPES_MAX);
            return Err(reader.limit("parity count", u64::from(parity_count), most));
        }
        let locations = read_locations(&mut reader, count)?;
        let parities = read_locations(&mut reader, parity_count)?;
        let lock = is_encrypted
            .then(|| Lock::decode(&mut reader))
            .transpose()?;
        reader.padding()?;
        let header = Self {
            set_id,
            stripe,
            alignment,
            transfer_bytes,
            frame_bytes,
            created_nanos,
            page_frames: features & PAGE_FRAMES != 0,
            lock,
            locations,
            parities,
        };
        header.check()?;
        Ok(header)
    }

    /// How many stripes the set has.
    pub fn stripe_count(&self) -> u16 {
        fitted(self.locations.len())
    }

    /// The longest frame that the set may have, as it is stored.
    pub fn stored_bytes_max(&self) -> u32 {
        let sealed: u32 = fitted(SEALED_BYTES);
        self.frame_bytes + u32::from(self.lock.is_some()) * sealed
    }

    fn check(&self) -> Result<(), FormatError> {
        let invalid = |what| {
            Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            })
        };
        if !(1..=STRIPES_MAX).contains(&self.stripe_count()) {
            return invalid("a set has 1 to 64 stripes");
        }
        if self.locations.len() + self.parities.len() > usize::from(STRIPES_MAX) {
            return invalid("stripes and parities are more than 64");
        }
        if self.stripe.0 >= self.stripe_count() {
            return invalid("the stripe's index is not below the stripe count");
        }
        let mut locations = self.locations.iter().chain(&self.parities);
        if locations.any(|location| location.len() > PATH_BYTES_MAX) {
            return invalid("a location is longer than 4096 bytes");
        }
        let alignments = ALIGNMENT_MIN..=ALIGNMENT_MAX;
        if !self.alignment.is_power_of_two() || !alignments.contains(&self.alignment) {
            return invalid("the alignment is not a power of two from 512 to 65536");
        }
        if self.frame_bytes == 0 || self.frame_bytes > FRAME_BYTES_MAX {
            return invalid("the frame size is not from 1 byte to 4 MiB");
        }
        if self.transfer_bytes == 0 {
            return invalid("the transfer size is zero");
        }
        Ok(())
    }
}
