//! How a sealed set goes: first a mark that says so, then its stripes, then the mark.
//!
//!   SETID.removing beside its stripes, in each directory --> stripes go --> marks go
//!
//! A set with a mark is in no list, and nobody opens it. So nothing that is cut off in between
//! looks like a damaged set, and whoever lists the place finds what is left to do.
//!
//! Invariants
//! - No stripe goes before each directory that has one has the mark, durably.
//! - A mark goes only after the stripes beside it are gone, durably.
//! - A stripe is never written to.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use windlass_media::{KeyFile, SetId};

use super::FoundSet;
use crate::durable::is_full;
use crate::error::{DeviceOperation, EngineError};
use crate::place::SetEntry;
use crate::storage::Storage;

/// The end of a mark's name.
const MARK: &str = "removing";
/// The end of the name of a file that holds a set.
const HOLD: &str = "hold";
/// What a mark says to whoever finds it.
const WORDS: &str = "windlass expire removes this set. It ends that when it runs again.\n";

/// A file beside the stripes of a set that says something about the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The set is going.
    Mark(SetId),
    /// The set must stay.
    Hold(SetId),
    /// Who can read the set is written there anew.
    Keys(SetId),
}

impl Beside {
    /// What a file is, by its name.
    pub fn of(location: &Path) -> Option<Self> {
        let ending = location.extension()?.to_str()?;
        let set = || set_id(location.file_stem()?.to_str()?);
        match ending {
            MARK => set().map(Self::Mark),
            HOLD => set().map(Self::Hold),
            _ => {
                let is_of = |set: &SetId| location.ends_with(KeyFile::name(*set));
                set().filter(is_of).map(Self::Keys)
            }
        }
    }
}

/// Where the file is that holds a set whose stripes lie in a directory.
pub fn hold_path(directory: &Path, set: SetId) -> PathBuf {
    directory.join(format!("{set}.{HOLD}"))
}

fn mark_path(directory: &Path, set: SetId) -> PathBuf {
    directory.join(format!("{set}.{MARK}"))
}

fn set_id(digits: &str) -> Option<SetId> {
    SetId::parse(digits).filter(|set| set.to_string() == digits)
}

/// A set that goes: what is there of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The set.
    pub set_id: SetId,
    /// Its stripes that are there.
    pub stripes: Vec<PathBuf>,
    /// The marks that are there.
    pub(crate) marks: Vec<PathBuf>,
}

impl Removal {
    /// The removal of a set of a list, not yet begun.
    pub fn of(set: &SetEntry) -> Self {
        Self {
            set_id: set.set_id,
            stripes: set.locations(),
            marks: Vec::new(),
        }
    }

    /// Removes the set, or ends that where it was cut off. The caller has reserved its stripes.
    pub fn run(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        let directories: BTreeSet<_> = self.stripes.iter().map(|path| directory(path)).collect();
        let mut marks: BTreeSet<_> = self.marks.iter().cloned().collect();
        let (mut envelopes, mut new) = (Vec::new(), Vec::new());
        for directory in directories {
            envelopes.push(directory.join(KeyFile::name(self.set_id)));
            let mark = mark_path(directory, self.set_id);
            if marks.insert(mark.clone()) {
                let written = storage.write(&mark, WORDS.as_bytes());
                // A full disk has room for a name, and the words are only for people.
                let written = match written {
                    Err(error) if is_full(&error) => storage.write(&mark, &[]),
                    written => written,
                };
                new.push(mark.clone());
                if let Err(error) = written {
                    take_back(storage, &new);
                    return Err(fault(DeviceOperation::Write, &mark)(error));
                }
            }
        }
        let paths = self.stripes.iter().chain(&envelopes).chain(&marks);
        for (number, path) in paths.enumerate() {
            let removed = storage.remove(path);
            if number == 0 && removed.is_err() {
                take_back(storage, &new);
            }
            removed.map_err(fault(DeviceOperation::Remove, path))?;
        }
        Ok(())
    }
}

/// Removes the marks of a removal of which nothing has been done: the set is whole, and may be
/// protected. Whatever of them stays says that the removal goes on.
fn take_back(storage: &dyn Storage, marks: &[PathBuf]) {
    for mark in marks {
        storage.remove(mark).unwrap_or_default();
    }
}

/// Refuses a set that is going.
pub(super) fn check_stays(storage: &dyn Storage, set: &FoundSet) -> Result<(), EngineError> {
    let stripes = set.stripes().iter();
    let directories: BTreeSet<_> = stripes.map(|one| directory(one.location())).collect();
    let set = set.set_id();
    let is_marked = |directory: &&Path| storage.look(&mark_path(directory, set)).is_ok();
    match directories.into_iter().find(is_marked) {
        Some(_) => Err(EngineError::SetRemoved { set }),
        None => Ok(()),
    }
}

/// What a set's error is if the set is going: a stripe that is missing is no damage then.
pub(super) fn explained(
    storage: &dyn Storage,
    places: &[PathBuf],
    error: EngineError,
) -> EngineError {
    let EngineError::StripeMissing { set, .. } = error else {
        return error;
    };
    let is_marked = |place: &PathBuf| {
        let marked = |directory: &Path| storage.look(&mark_path(directory, set)).is_ok();
        marked(place) || marked(directory(place))
    };
    match places.iter().any(is_marked) {
        true => EngineError::SetRemoved { set },
        false => error,
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn fault(operation: DeviceOperation, path: &Path) -> impl FnOnce(io::Error) -> EngineError {
    move |source| EngineError::DeviceIo {
        operation,
        device: path.to_string_lossy().into_owned(),
        offset: 0,
        source,
    }
}
