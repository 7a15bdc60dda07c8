//! How the data key of an encrypted set is found.
//!
//!   header --lock--+
//!                  +--> Keys --> data key --check--> cipher
//!   key file ------+
//!
//! Whoever opens a set hands in the keys with the storage. A file of envelopes beside a stripe
//! (`SET.windlass-keys`) is asked first: it was written later than the header.
//!
//! Invariant: a key counts only if its check is that of the header, so no file beside a set can
//! give it another key.

use std::path::Path;
use std::sync::Arc;

use windlass_media::{
    DataKey, FormatError, KEY_FILE_BYTES_MAX, KeyFile, Lock, SetCipher, SetId, StripeHeader,
    Structure, fitted,
};

use crate::error::{EngineError, damage, read_error};
use crate::keys::KeyFault;
use crate::storage::Storage;

/// The cipher of a stripe with this header; none if its set is not encrypted.
pub(crate) fn cipher_of(
    storage: &dyn Storage,
    location: &Path,
    header: &StripeHeader,
) -> Result<Option<Arc<SetCipher>>, EngineError> {
    let Some(lock) = &header.lock else {
        return Ok(None);
    };
    let set = header.set_id;
    let key = key_of_set(storage, location, (set, lock))?;
    let cipher = SetCipher::new(&key, set).map_err(|fault| damage(location, 0, fault))?;
    Ok(Some(Arc::new(cipher)))
}

/// The data key of a set, from the envelopes beside a stripe or from those in its header.
pub fn key_of_set(
    storage: &dyn Storage,
    location: &Path,
    (set, lock): (SetId, &Lock),
) -> Result<Arc<DataKey>, EngineError> {
    let (later, broken) = match key_file_of(storage, location, set) {
        Ok(later) => (later.filter(|file| file.lock.check == lock.check), None),
        Err(fault) => (None, Some(fault)),
    };
    let locks = later.iter().map(|file| &file.lock).chain([lock]);
    let mut fault = KeyFault::NoKey;
    for lock in locks.clone() {
        match storage.keys().open(set, lock) {
            Ok(key) if key.check_for(set) == lock.check => return Ok(key),
            Ok(_) => fault = KeyFault::WrongKey,
            Err(KeyFault::NoKey) => {}
            Err(other) => fault = other,
        }
    }
    // The key may be right for the newer envelopes only.
    if let (Some(broken), false) = (broken, fault == KeyFault::NoKey) {
        fault = KeyFault::Failed(format!("its newer envelopes cannot be used: {broken}"));
    }
    let newest = locks.clone().next().unwrap_or(lock);
    Err(EngineError::Locked {
        set,
        recipients: newest.recipients(),
        fault,
    })
}

/// The envelopes that lie beside a stripe of this set, if there are any.
pub fn key_file_of(
    storage: &dyn Storage,
    stripe: &Path,
    set: SetId,
) -> Result<Option<KeyFile>, EngineError> {
    let beside = stripe.parent().unwrap_or(Path::new("."));
    let path = beside.join(KeyFile::name(set));
    let device = match storage.open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| read_error(&path, 0, error))?,
    };
    let length = device.length();
    let length = length.map_err(|error| read_error(&path, 0, error))?;
    let mut bytes = vec![0; fitted(length.min(KEY_FILE_BYTES_MAX))];
    let read = device.read_exact_at(0, &mut bytes);
    read.map_err(|error| read_error(&path, 0, error))?;
    let file = KeyFile::decode(&bytes).map_err(|fault| damage(&path, 0, fault))?;
    if file.set_id != set {
        let fault = FormatError::Foreign {
            structure: Structure::KeyFile,
            expected: set,
            found: file.set_id,
        };
        return Err(damage(&path, 0, fault));
    }
    Ok(Some(file))
}
