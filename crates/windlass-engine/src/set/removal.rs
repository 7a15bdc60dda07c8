//! How a sealed set goes: first a mark that says so, then its stripes, then the mark.
//!
//!   SETID.removing beside its stripes, in each directory --> stripes go --> marks go
//!
//! A set with a mark is in no list, and nobody opens it. So nothing that is cut off in between
//! looks like a damaged set, and whoever lists the place finds what is left to do.
//!
//! Where not every reader can keep what it reads, a set is hidden before (SETID.hidden): no list
//! shows it, so nobody begins to read it, and those who have begun have time to end.
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
use crate::storage::{Going, Storage};

/// The end of a mark's name.
const MARK: &str = "removing";
/// The end of the name of a mark that hides a set.
const HIDDEN: &str = "hidden";
/// The end of the name of a file that holds a set.
const HOLD: &str = "hold";
/// What a mark says to whoever finds it.
const WORDS: &str = "windlass expire removes this set. It ends that when it runs again.\n";
/// What a mark that hides a set says.
const HIDDEN_WORDS: &str =
    "This set has expired. A later run of windlass expire removes it, or shows it again.\n";

/// A file beside the stripes of a set that says something about the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The set is going.
    Mark(SetId),
    /// The set has expired, and will go.
    Hidden(SetId),
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
            HIDDEN => set().map(Self::Hidden),
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

fn hidden_path(directory: &Path, set: SetId) -> PathBuf {
    directory.join(format!("{set}.{HIDDEN}"))
}

fn set_id(digits: &str) -> Option<SetId> {
    SetId::parse(digits).filter(|set| set.to_string() == digits)
}

/// Hides a set from every list. Until it is removed, nothing else changes.
pub fn hide(storage: &dyn Storage, set: &SetEntry) -> Result<(), EngineError> {
    let stripes = set.stripes.iter();
    let directories: BTreeSet<_> = stripes.map(|one| directory(&one.location)).collect();
    let mut new = Vec::new();
    for directory in directories {
        let mark = hidden_path(directory, set.set_id);
        if set.hidden.iter().all(|one| one.location != mark) {
            new.push(mark);
        }
    }
    write_marks(storage, &new, HIDDEN_WORDS)
}

/// Shows a set again that was hidden.
pub fn show(storage: &dyn Storage, set: &SetEntry) -> Result<(), EngineError> {
    remove_marks(storage, set.hidden.iter().map(|mark| &*mark.location))
}

/// Removes all these marks.
fn remove_marks<'a>(
    storage: &dyn Storage,
    mut marks: impl Iterator<Item = &'a Path>,
) -> Result<(), EngineError> {
    marks.try_for_each(|mark| {
        let removed = storage.remove(mark);
        removed.map_err(fault(DeviceOperation::Remove, mark))
    })
}

/// Writes all these marks, or none.
fn write_marks(storage: &dyn Storage, marks: &[PathBuf], words: &str) -> Result<(), EngineError> {
    for (number, mark) in marks.iter().enumerate() {
        let written = match storage.write(mark, words.as_bytes()) {
            // A full disk has room for a name, and the words are only for people.
            Err(error) if is_full(&error) => storage.write(mark, &[]),
            written => written,
        };
        if let Err(error) = written {
            take_back(storage, &marks[..=number]);
            return Err(fault(DeviceOperation::Write, mark)(error));
        }
    }
    Ok(())
}

/// A set that goes: what is there of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The set.
    pub set_id: SetId,
    /// Its stripes and its files with parity that are there.
    pub stripes: Vec<PathBuf>,
    /// The marks that are there.
    pub(crate) marks: Vec<PathBuf>,
}

/// A set that is marked as one that goes, and of which nothing has gone yet.
#[derive(Debug)]
pub struct MarkedRemoval {
    removal: Removal,
    /// The marks that were not there before.
    new: Vec<PathBuf>,
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

    /// The places in which something of it is.
    pub fn places(&self) -> BTreeSet<&Path> {
        let paths = self.stripes.iter().chain(&self.marks);
        paths.map(|path| directory(path)).collect()
    }

    /// Removes the set, or ends that where it was cut off. The caller has reserved its stripes.
    pub fn run(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        self.mark(storage)?.end(storage)
    }

    /// Marks the set as one that goes, wherever it has a stripe.
    pub fn mark(&self, storage: &dyn Storage) -> Result<MarkedRemoval, EngineError> {
        let directories: BTreeSet<_> = self.stripes.iter().map(|path| directory(path)).collect();
        let marks = directories.into_iter();
        let mut new: Vec<_> = marks.map(|one| mark_path(one, self.set_id)).collect();
        new.retain(|mark| !self.marks.contains(mark));
        write_marks(storage, &new, WORDS)?;
        let mut removal = self.clone();
        removal.marks.extend(new.iter().cloned());
        Ok(MarkedRemoval { removal, new })
    }

    /// Removes the marks that are there. Then the set stays, whatever is left of it.
    pub fn give_up(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        remove_marks(storage, self.marks.iter().map(|mark| &**mark))
    }
}

impl MarkedRemoval {
    /// The set.
    pub fn set_id(&self) -> SetId {
        self.removal.set_id
    }

    /// Removes the marks. The set stays.
    pub fn take_back(self, storage: &dyn Storage) {
        take_back(storage, &self.new);
    }

    /// Removes the set. If nothing of it can be removed, it stays as it was.
    pub fn end(self, storage: &dyn Storage) -> Result<(), EngineError> {
        let removal = &self.removal;
        let places = removal.places();
        let may_be_hidden = places.iter().any(|place| storage.hides(place));
        let mut is_begun = false;
        for place in places {
            let stripes = removal.stripes.iter();
            let stripes = stripes.filter(|one| directory(one) == place);
            let stripes: Vec<_> = stripes.cloned().collect();
            let mut beside = vec![place.join(KeyFile::name(removal.set_id))];
            beside.extend(may_be_hidden.then(|| hidden_path(place, removal.set_id)));
            let going = Going {
                place,
                set: removal.set_id,
                stripes: &stripes,
                beside: &beside,
            };
            if let Err(not) = storage.remove_set(&going) {
                if !is_begun && !not.is_begun {
                    take_back(storage, &self.new);
                }
                return Err(fault(DeviceOperation::Remove, &not.location)(not.source));
            }
            is_begun = true;
        }
        for mark in &removal.marks {
            match storage.remove(mark) {
                // Such storages may protect what is new. The set is gone; the next run tries again.
                Err(_) if storage.hides(mark) => {}
                removed => removed.map_err(fault(DeviceOperation::Remove, mark))?,
            }
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

/// Whether a set that was opened has gone meanwhile, or goes, from a storage that could not keep
/// it. What is missing of it is no damage then.
pub fn is_removed(storage: &dyn Storage, set: &FoundSet) -> Result<bool, EngineError> {
    for link in set.links() {
        let stripes: BTreeSet<_> = link.stripes().iter().map(|one| one.location()).collect();
        let places: BTreeSet<_> = stripes.iter().map(|one| directory(one)).collect();
        for place in places.into_iter().filter(|place| storage.hides(place)) {
            let mut there = BTreeSet::new();
            storage.list(place, &mut |file| there.extend([file.location]))?;
            let mut own = stripes.iter().filter(|one| directory(one) == place);
            let is_gone = own.any(|one| !there.contains(*one));
            if is_gone || there.contains(&mark_path(place, link.set_id())) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Refuses a set that is going.
pub(crate) fn check_stays(storage: &dyn Storage, set: &FoundSet) -> Result<(), EngineError> {
    let stripes = set.stripes().iter();
    let directories = stripes.map(|one| directory(one.location())).collect();
    check_stays_in(storage, set.set_id(), directories)
}

/// Refuses a set that is going from these directories.
pub(crate) fn check_stays_in(
    storage: &dyn Storage,
    set: SetId,
    directories: BTreeSet<&Path>,
) -> Result<(), EngineError> {
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
    let (EngineError::StripeMissing { set, .. } | EngineError::BeyondParity { set, .. }) = error
    else {
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
