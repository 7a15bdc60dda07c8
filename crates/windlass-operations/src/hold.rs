//! Holds: sets that must stay, whatever the rules of retention say.
//!
//!   SETID.hold beside its devices, stripes and parity, in each directory
//!
//! A set is never rewritten, so what holds it lies beside it. While the hold is written the set is
//! kept like one that is read: a run that removes sets sees either the reader or the hold.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use windlass_engine::media::{SetId, fitted};
use windlass_engine::{DeviceOperation, EngineError, FoundSet, SetEntry, hold_path, to_json};

use crate::caller::Caller;
use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::places::{self, SetRequest};
use crate::privilege;
use crate::stored::is_missing;

/// Longest hold that is read.
const BYTES_MAX: u64 = 65_536;

/// What is to be held, or released.
#[derive(Clone, Debug, Default)]
pub struct HoldRequest {
    /// The set.
    pub set: SetRequest,
    /// Why it is held.
    pub reason: String,
    /// Whether to end the hold.
    pub release: bool,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Why the set is held.
    pub reason: String,
    /// Since when, as RFC 3339.
    pub since: String,
}

/// What was held or released.
#[derive(Debug)]
pub struct HoldOutcome {
    /// The set.
    pub set_id: SetId,
    /// The sets that it builds on, which stay with it.
    pub bases: Vec<SetId>,
    /// Those of them in other directories, where nobody sees the hold: each with its directory.
    pub elsewhere: Vec<(SetId, PathBuf)>,
    /// Where the hold is, or was. None if there was nothing to release.
    pub files: Vec<PathBuf>,
    /// Directories of the set that are not there. A hold in one of them is as it was.
    pub absent: Vec<PathBuf>,
    /// Where the hold could not be written or removed, and why.
    pub failed: Vec<(PathBuf, EngineError)>,
}

/// Holds a set, or releases it.
pub fn hold(caller: &Caller, request: &HoldRequest) -> Result<HoldOutcome, OperationError> {
    let found = places::find(caller, &request.set)?;
    let owner = found
        .stripes
        .first()
        .and_then(|stripe| privilege::owner(stripe));
    if let Some((uid, gid)) = owner {
        privilege::become_user(caller.process, uid, gid)?;
    }
    let set = found.open()?;
    let directories = directories_of(&set);
    let bases = set.links().skip(1).flat_map(|base| {
        let places = directories_of(base).into_iter();
        places.map(|place| (base.set_id(), place))
    });
    let elsewhere: BTreeSet<_> = bases
        .filter(|(_, place)| !directories.contains(place))
        .collect();
    let (absent, there): (Vec<_>, Vec<_>) = directories
        .into_iter()
        .partition(|one| !one.as_os_str().is_empty() && is_missing(one));
    let paths = there.iter().map(|one| hold_path(one, set.set_id()));
    let mut files: Vec<_> = paths.collect();
    if request.release {
        files.retain(|path| STORAGE.look(path).is_ok());
    }
    let failed = change(&files, request);
    files.retain(|path| failed.iter().all(|(other, _)| other != path));
    Ok(HoldOutcome {
        set_id: set.set_id(),
        elsewhere: elsewhere.into_iter().collect(),
        bases: set.links().skip(1).map(|set| set.set_id()).collect(),
        files,
        absent,
        failed,
    })
}

/// The directories in which devices of a set are, or were.
fn directories_of(set: &FoundSet) -> BTreeSet<PathBuf> {
    let devices = set.devices().into_iter();
    let directories = devices.filter_map(|path| path.parent().map(Path::to_owned));
    directories.collect()
}

/// Writes or removes each of these holds, also if one of them cannot be. Returns those.
fn change(files: &[PathBuf], request: &HoldRequest) -> Vec<(PathBuf, EngineError)> {
    let hold = Hold {
        reason: request.reason.clone(),
        since: Timestamp::now().to_string(),
    };
    let text = to_json(&hold).to_string();
    let one = |path: &PathBuf| {
        let (operation, done) = match request.release {
            true => (DeviceOperation::Remove, STORAGE.remove(path)),
            false => (DeviceOperation::Write, STORAGE.write(path, text.as_bytes())),
        };
        let source = done.err()?;
        let error = EngineError::DeviceIo {
            operation,
            device: path.display().to_string(),
            offset: 0,
            source,
        };
        Some((path.clone(), error))
    };
    files.iter().filter_map(one).collect()
}

/// What holds a set of a list, if something does. A hold that cannot be read holds all the same.
pub fn hold_of(set: &SetEntry) -> Option<Hold> {
    let path = set.holds.first()?;
    let read = document(path).and_then(|text| serde_json::from_slice(&text).ok());
    Some(read.unwrap_or(Hold {
        reason: String::new(),
        since: String::new(),
    }))
}

fn document(path: &Path) -> Option<Vec<u8>> {
    let opened = STORAGE.open(path).ok()?;
    let length = opened.length().ok().filter(|bytes| *bytes <= BYTES_MAX)?;
    let mut text = vec![0; fitted(length)];
    opened.read_exact_at(0, &mut text).ok()?;
    Some(text)
}
