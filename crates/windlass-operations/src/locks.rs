//! Who can read sets, whether keys open them, and new envelopes for them.
//!
//! Invariants
//! - A set is never changed. New envelopes go to a file beside each of its devices, stripes and
//!   parity, which is complete and durable before it has its name. A run that is cut off leaves the
//!   old or the new one.
//! - No frame is read or written: only the data key is encrypted again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use windlass_engine::media::{KeyFile, SetId, fitted};
use windlass_engine::{
    EngineError, FoundSet, LockedSet, METADATA_LIMIT_DEFAULT, SetState, check_locked,
    check_locked_parity, durable, key_file_of, key_of_set,
};
use windlass_keys::Readers;
use windlass_object::is_in_bucket;

use crate::caller::Caller;
use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::places::{self, Named, SetRequest};

/// The mode of files of envelopes: as that of stripes.
const MODE: u32 = 0o600;

/// Who can read a set.
#[derive(Debug)]
pub struct LockShown {
    /// The set.
    pub set_id: SetId,
    /// When it was begun, in nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// Who could read it when it was written. Their envelopes are in the set and stay there.
    pub written_to: Vec<String>,
    /// Who can read it by newer envelopes beside it, and when these were written.
    pub rotated_to: Option<(i64, Vec<String>)>,
    /// Why the newer envelopes cannot be used.
    pub fault: Option<EngineError>,
}

/// Whether the keys of this process open a set.
#[derive(Debug)]
pub struct CheckedSet {
    /// The set.
    pub set_id: SetId,
    /// When it was begun, in nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// Why they do not.
    pub fault: Option<EngineError>,
}

/// A set that has new envelopes.
#[derive(Clone, Debug)]
pub struct RotatedSet {
    /// The set.
    pub set_id: SetId,
    /// Who can read it by them.
    pub recipients: Vec<String>,
    /// The files.
    pub files: Vec<PathBuf>,
    /// Where devices were written that were not found: nothing is beside them.
    pub absent: Vec<PathBuf>,
    /// Who can still read it by the envelopes inside the set, and not by the new ones.
    pub remain: Vec<String>,
}

/// Who can read these sets.
pub fn locks(caller: &Caller, request: &SetRequest) -> Result<Vec<LockShown>, OperationError> {
    let sets = encrypted(caller, request)?;
    let shown = |(set, _): &(LockedSet, _)| {
        let (later, fault) = match later(set) {
            Ok(later) => (later, None),
            Err(fault) => (None, Some(fault)),
        };
        LockShown {
            fault,
            set_id: set.set_id,
            begun_nanos: set.begun_nanos,
            written_to: set.lock.recipients(),
            rotated_to: later.map(|file| (file.written_nanos, file.lock.recipients())),
        }
    };
    Ok(sets.iter().map(shown).collect())
}

/// Whether the keys of this process open these sets. The description of each is decrypted.
pub fn check(caller: &Caller, request: &SetRequest) -> Result<Vec<CheckedSet>, OperationError> {
    let sets = encrypted(caller, request)?;
    let checked = |(set, devices): &(LockedSet, Vec<PathBuf>)| {
        let found = FoundSet::whole(STORAGE, devices, METADATA_LIMIT_DEFAULT);
        CheckedSet {
            set_id: set.set_id,
            begun_nanos: set.begun_nanos,
            fault: found.err(),
        }
    };
    Ok(sets.iter().map(checked).collect())
}

/// Makes new envelopes for these sets, for the readers whom `words` name. All sets are opened
/// before the first file is written.
pub fn rotate(
    caller: &Caller,
    request: &SetRequest,
    words: &[String],
) -> Result<Vec<RotatedSet>, OperationError> {
    let readers = Readers::of_words(words)?;
    let sets = encrypted(caller, request)?;
    let mut new = Vec::with_capacity(sets.len());
    for (set, _) in &sets {
        let key = key_of_set(STORAGE, &set.devices(), (set.set_id, &set.lock))?;
        let lock = readers.lock(&key, set.set_id)?;
        new.push((set, lock));
    }
    let mut rotated = Vec::with_capacity(new.len());
    for (set, lock) in new {
        let recipients = lock.recipients();
        let written = set.lock.recipients();
        let remain = written.into_iter().filter(|one| !recipients.contains(one));
        let file = KeyFile {
            set_id: set.set_id,
            written_nanos: fitted(jiff::Timestamp::now().as_nanosecond()),
            lock,
        };
        rotated.push(RotatedSet {
            set_id: set.set_id,
            remain: remain.collect(),
            files: write(set, &file)?,
            absent: set.absent.clone(),
            recipients,
        });
    }
    Ok(rotated)
}

/// Writes the file beside each device. Readers look beside their own first, then beside the others.
fn write(set: &LockedSet, file: &KeyFile) -> Result<Vec<PathBuf>, OperationError> {
    let bytes = file.encode().map_err(EngineError::from)?;
    let devices = set.devices();
    let directories: BTreeSet<_> = devices.iter().filter_map(|path| path.parent()).collect();
    let mut files = Vec::with_capacity(directories.len());
    for directory in directories {
        let path = directory.join(KeyFile::name(set.set_id));
        let written = match is_in_bucket(&path) {
            true => STORAGE.write(&path, &bytes),
            false => durable::write(&path, &bytes, MODE),
        };
        written.map_err(|source| OperationError::KeyFile {
            path: path.clone(),
            source,
        })?;
        files.push(path);
    }
    Ok(files)
}

/// The newest envelopes beside any device of a set. Fails if there are some and none can be used.
fn later(set: &LockedSet) -> Result<Option<KeyFile>, EngineError> {
    let (mut newest, mut broken) = (None::<KeyFile>, None);
    for device in set.devices() {
        match key_file_of(STORAGE, &device, set.set_id) {
            Ok(Some(file)) if file.lock.check == set.lock.check => {
                let is_newer = |known: &KeyFile| known.written_nanos < file.written_nanos;
                if newest.as_ref().is_none_or(is_newer) {
                    newest = Some(file);
                }
            }
            Ok(_) => {}
            Err(fault) => broken = Some(fault),
        }
    }
    match (newest, broken) {
        (None, Some(fault)) => Err(fault),
        (newest, _) => Ok(newest),
    }
}

/// The encrypted sets that are meant: one, or all of some places. With each come its devices, among
/// them those with parity.
fn encrypted(
    caller: &Caller,
    request: &SetRequest,
) -> Result<Vec<(LockedSet, Vec<PathBuf>)>, OperationError> {
    let named = Named::new(caller, request)?;
    let sets: Vec<Vec<PathBuf>> = match named.choice.which.is_none() && named.are_directories() {
        true => {
            let list = places::list(&named.paths)?;
            let sets = named.sets(&list.sets, list.unknown.is_empty())?;
            let sets = sets.into_iter();
            let begun = sets.filter(|set| !matches!(set.state, SetState::Unfinished));
            begun.map(|set| set.locations()).collect()
        }
        false => vec![places::find_named(caller, &named)?.stripes],
    };
    let mut found = Vec::new();
    for devices in sets {
        let locked = match check_locked(STORAGE, &devices, METADATA_LIMIT_DEFAULT)? {
            None => check_locked_parity(STORAGE, &devices, METADATA_LIMIT_DEFAULT)?,
            locked => locked,
        };
        found.extend(locked.map(|set| (set, devices)));
    }
    match found.is_empty() {
        true => Err(OperationError::NotEncrypted {
            place: named.places().to_string(),
        }),
        false => Ok(found),
    }
}
