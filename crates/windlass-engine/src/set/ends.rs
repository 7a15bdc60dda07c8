//! The ends of a stripe: header, seal and footer, each checked before it is believed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use windlass_media::{
    Footer, FormatError, SEAL_BYTES, Seal, SetCipher, StripeHeader, StripeIndex, Structure, fitted,
    is_zero,
};

use crate::error::{EngineError, damage, read_error};
use crate::storage::{ReadAt, Storage};
use crate::stripe_name::is_partial;

/// How much is read from each end at once. It holds a whole header and a whole seal, unless blocks
/// are larger.
const END_BYTES: u64 = 4096;

/// A file that may be a stripe.
#[derive(Clone, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) location: &'a Path,
    pub(crate) device: Arc<dyn ReadAt>,
    pub(crate) bytes: u64,
}

impl<'a> Ends<'a> {
    /// Opens the file at a location.
    pub(crate) fn open(storage: &dyn Storage, location: &'a Path) -> Result<Self, EngineError> {
        let fault = |source| read_error(location, 0, source);
        let device = storage
            .open(location)
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => EngineError::NoSet {
                    location: location.to_string_lossy().into_owned(),
                },
                _ => fault(source),
            })?;
        let bytes = device.length().map_err(fault)?;
        Ok(Self {
            location,
            device,
            bytes,
        })
    }

    /// The header, and its bytes.
    pub(crate) fn header(&self) -> Result<(StripeHeader, Vec<u8>), EngineError> {
        let fault = |source| damage(self.location, 0, source);
        let mut bytes = self.read(0, self.bytes.min(END_BYTES))?;
        let total = StripeHeader::encoded_bytes(&bytes).map_err(fault)? as usize;
        if total > bytes.len() {
            bytes = self.read(0, total as u64)?;
        }
        bytes.truncate(total);
        let header = StripeHeader::decode(&bytes).map_err(fault)?;
        Ok((header, bytes))
    }

    pub(crate) fn seal(&self) -> Result<Seal, EngineError> {
        let unsealed = || EngineError::NotSealed {
            location: self.location.to_string_lossy().into_owned(),
        };
        let offset = self.bytes.checked_sub(SEAL_BYTES as u64);
        let offset = offset.ok_or_else(unsealed)?;
        let mut bytes = self.read_end(self.bytes.min(END_BYTES))?;
        let record = &bytes[bytes.len() - SEAL_BYTES..];
        let seal = Seal::decode(record, self.bytes).map_err(|source| match source {
            // A run that was cut off leaves no seal. A seal with wrong content is damage.
            FormatError::Magic(_) if is_partial(self.location) => unsealed(),
            source => damage(self.location, offset, source),
        })?;
        let alignment = u64::from(seal.alignment);
        if alignment > bytes.len() as u64 {
            bytes = self.read_end(alignment)?;
        }
        let block = &bytes[bytes.len().saturating_sub(seal.alignment as usize)..];
        if is_zero(&block[..block.len() - SEAL_BYTES]) {
            return Ok(seal);
        }
        let what = "padding is not zero";
        let structure = Structure::Seal;
        let fault = FormatError::Invalid { structure, what };
        Err(damage(self.location, self.bytes - alignment, fault))
    }

    /// The footer that a seal leads to. It takes at most `limit` bytes of memory.
    pub(crate) fn footer(
        &self,
        seal: &Seal,
        limit: u64,
        cipher: Option<&SetCipher>,
    ) -> Result<Footer, EngineError> {
        let bytes = self.footer_bytes(seal, limit)?;
        Footer::decode_with(&bytes, limit, cipher)
            .map_err(|source| damage(self.location, seal.footer_offset, source))
    }

    /// The bytes of the footer, which have the hash that the seal states.
    pub(crate) fn footer_bytes(&self, seal: &Seal, limit: u64) -> Result<Vec<u8>, EngineError> {
        let fault = |source| damage(self.location, seal.footer_offset, source);
        let structure = Structure::Footer;
        if seal.footer_bytes > limit {
            return Err(fault(FormatError::Limit {
                structure,
                what: "length",
                found: seal.footer_bytes,
                limit,
            }));
        }
        let bytes = self.read(seal.footer_offset, seal.footer_bytes)?;
        if blake3::hash(&bytes).as_bytes() != &seal.footer_hash {
            return Err(fault(FormatError::Hash(structure)));
        }
        Ok(bytes)
    }

    fn read_end(&self, bytes: u64) -> Result<Vec<u8>, EngineError> {
        self.read(self.bytes.saturating_sub(bytes), bytes)
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, EngineError> {
        let mut into = vec![0; fitted(bytes)];
        let read = self.device.read_exact_at(offset, &mut into);
        read.map_err(|source| read_error(self.location, offset, source))?;
        Ok(into)
    }
}

/// The error when the seal is not of the stripe that has this header.
pub(crate) fn check_same_stripe(header: &StripeHeader, seal: &Seal) -> Result<(), FormatError> {
    if seal.set_id != header.set_id || seal.alignment != header.alignment {
        return Err(FormatError::Foreign {
            structure: Structure::Seal,
            expected: header.set_id,
            found: seal.set_id,
        });
    }
    let same: (StripeIndex, u16) = (header.stripe, header.stripe_count());
    if (seal.stripe, seal.stripe_count) != same {
        return Err(FormatError::StripeIndex {
            structure: Structure::Seal,
            expected: header.stripe,
            found: seal.stripe,
        });
    }
    Ok(())
}

/// The error when the footer is not of the stripe that has this seal.
pub(crate) fn check_same_footer(seal: &Seal, footer: &Footer) -> Result<(), FormatError> {
    if (footer.set_id, footer.stripe) != (seal.set_id, seal.stripe) {
        return Err(FormatError::Foreign {
            structure: Structure::Footer,
            expected: seal.set_id,
            found: footer.set_id,
        });
    }
    if footer.set_root != seal.set_root {
        return Err(FormatError::Hash(Structure::Seal));
    }
    Ok(())
}
