//! The lock of an encrypted set: envelopes that hold its data key, one for each who may read, and
//! what tells the right key from a wrong one.
//!
//! It stands in the header of each stripe. Envelopes that were made later lie in a file beside the
//! stripes ([`KeyFile`]), because a set is never changed.
//!
//! Invariant: this module never sees a key, only envelopes.

use crate::error::{FormatError, Structure};
use crate::ids::SetId;
use crate::number::fitted;
use crate::wire::{Reader, check_crc, put_string, seal_with_crc};

/// Bytes of a key check.
pub const CHECK_BYTES: usize = 16;
/// Most envelopes of one set.
pub const ENVELOPES_MAX: usize = 64;
/// Longest envelope, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 4096;
/// Longest name of an envelope, in bytes.
pub const RECIPIENT_BYTES_MAX: usize = 256;
/// Largest file of envelopes, in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 512 * 1024;

const MAGIC: &[u8; 8] = b"WNDLKEYS";
const VERSION: u16 = 1;

/// What shows whether a data key is the right one. Nobody can compute the key from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyCheck(pub [u8; CHECK_BYTES]);

/// The data key, encrypted for one who may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Who can open it: `age1...` for a recipient of age, `passphrase` for a passphrase.
    pub recipient: String,
    /// A file in the format of age that holds the data key.
    pub bytes: Vec<u8>,
}

/// The check of a data key, and its envelopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Tells the right key from others.
    pub check: KeyCheck,
    /// At least one.
    pub envelopes: Vec<Envelope>,
}

impl Lock {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(&self.check.0);
        let count: u16 = fitted(self.envelopes.len());
        out.extend_from_slice(&count.to_le_bytes());
        for envelope in &self.envelopes {
            put_string(out, envelope.recipient.as_bytes())?;
            put_string(out, &envelope.bytes)?;
        }
        Ok(())
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let check = KeyCheck(reader.array()?);
        let count = reader.u16()?;
        if !(1..=ENVELOPES_MAX).contains(&usize::from(count)) {
            let (found, limit) = (u64::from(count), ENVELOPES_MAX as u64);
            return Err(reader.limit("number of envelopes", found, limit));
        }
        let mut envelopes = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let recipient = reader.string("length of a recipient", RECIPIENT_BYTES_MAX)?;
            let recipient = String::from_utf8(recipient.to_vec())
                .map_err(|_| reader.invalid("a recipient is not UTF-8"))?;
            let bytes = reader.string("length of an envelope", ENVELOPE_BYTES_MAX)?;
            envelopes.push(Envelope {
                recipient,
                bytes: bytes.to_vec(),
            });
        }
        Ok(Self { check, envelopes })
    }

    /// Who can open it, in the order of the envelopes.
    pub fn recipients(&self) -> Vec<String> {
        let envelopes = self.envelopes.iter();
        envelopes.map(|one| one.recipient.clone()).collect()
    }
}

/// The content of a file of envelopes that lies beside the stripes of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// The set.
    pub set_id: SetId,
    /// When it was written, in nanoseconds since 1970 UTC.
    pub written_nanos: i64,
    /// The envelopes. Their key must be that of the set.
    pub lock: Lock,
}

impl KeyFile {
    /// The name of the file, beside the stripes.
    pub fn name(set_id: SetId) -> String {
        format!("{set_id}.windlass-keys")
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.set_id.0);
        out.extend_from_slice(&self.written_nanos.to_le_bytes());
        self.lock.encode(&mut out)?;
        let total = out.len() + 4;
        seal_with_crc(&mut out, total);
        Ok(out)
    }

    /// Reads the content of the file.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let structure = Structure::KeyFile;
        Reader::new(bytes, structure).magic(MAGIC)?;
        let mut reader = Reader::new(check_crc(bytes, structure)?, structure);
        reader.magic(MAGIC)?;
        let found = reader.u16()?;
        if found != VERSION {
            return Err(FormatError::Version {
                structure,
                found,
                supported: VERSION,
            });
        }
        if reader.array::<6>()? != [0; 6] {
            return Err(reader.invalid("reserved bytes are not zero"));
        }
        let set_id = SetId(reader.array()?);
        let written_nanos = reader.i64()?;
        let lock = Lock::decode(&mut reader)?;
        reader.end()?;
        Ok(Self {
            set_id,
            written_nanos,
            lock,
        })
    }
}
