//! How the data key of an encrypted set is found.
//!
//!   header --lock--+
//!                  +--> Keys --> data key --check--> cipher
//!   key file ------+
//!
//! Whoever opens a set hands in the keys with the storage. A file of envelopes beside a stripe
//! (`SET.windlass-keys`) is asked first: it was written later than the header. If no key opens
//! either, such files beside the set's other devices are asked, where these were written.
//!
//! Invariant: a key counts only if its check is that of the header, so no file beside a set can
//! give it another key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
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
    let mut devices = vec![location.to_owned()];
    devices.extend(written_to(header));
    let key = key_of_set(storage, &devices, (set, lock))?;
    let cipher = SetCipher::new(&key, set).map_err(|fault| damage(location, 0, fault))?;
    Ok(Some(Arc::new(cipher)))
}

/// Where the devices of a set were written, if that was a path. Nobody waits for another storage
/// because a key does not fit.
fn written_to(header: &StripeHeader) -> impl Iterator<Item = PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let locations = header.locations.iter().chain(&header.parities);
    let paths = locations.map(|location| PathBuf::from(OsStr::from_bytes(location)));
    paths.filter(|path| path.is_absolute())
}

/// The data key of a set, from the envelopes beside its devices or from those in its header. What
/// lies beside the first device is asked first, then the header, and the others only if no key
/// fits: a device may have been away while the newest envelopes were written.
pub fn key_of_set(
    storage: &dyn Storage,
    devices: &[PathBuf],
    (set, lock): (SetId, &Lock),
) -> Result<Arc<DataKey>, EngineError> {
    let mut fault = KeyFault::NoKey;
    let mut open = |one: &Lock| match storage.keys().open(set, one) {
        Ok(key) if key.check_for(set) == lock.check => Some(key),
        Ok(_) => {
            fault = KeyFault::WrongKey;
            None
        }
        Err(KeyFault::NoKey) => None,
        Err(other) => {
            fault = other;
            None
        }
    };
    let (mut files, mut broken) = (Vec::<KeyFile>::new(), None);
    let mut seen = BTreeSet::new();
    for (number, device) in devices.iter().enumerate() {
        let is_new = seen.insert(device.parent());
        let is_known = |file: &KeyFile| files.iter().any(|known| known.lock == file.lock);
        match is_new.then(|| key_file_of(storage, device, set)) {
            Some(Ok(Some(file))) if file.lock.check == lock.check && !is_known(&file) => {
                if let Some(key) = open(&file.lock) {
                    return Ok(key);
                }
                files.push(file);
            }
            Some(Err(error)) => broken = broken.or(Some(error)),
            _ => {}
        }
        if number == 0
            && let Some(key) = open(lock)
        {
            return Ok(key);
        }
    }
    // The key may be right for the newer envelopes only.
    if let (Some(broken), false) = (broken, fault == KeyFault::NoKey) {
        fault = KeyFault::Failed(format!("its newer envelopes cannot be used: {broken}"));
    }
    let newest = files.iter().max_by_key(|file| file.written_nanos);
    let newest = newest.map_or(lock, |file| &file.lock);
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
