//! Cleaning up after runs that were cut off: the next run does it before it begins.
//!
//!   NAME.partial --> [look] --> not ours, or in use: passed over in silence
//!                          +--> proven unsealed, here or at a sibling: the set never was; removed
//!                          +--> sealed, and all siblings: the set exists; it gets its name
//!                          +--> anything else: left alone, and said so
//!
//! This is the other half of the file device, which writes under a temporary name and renames. So
//! it knows paths, locks and names, as that device does. A storage whose objects appear whole, and
//! under their own name, leaves nothing like this; what its device leaves, that device cleans up.
//!
//! Invariants
//! - Nothing is removed but what is proven unsealed: a stripe whose header is whole and whose end
//!   was read and is no seal, nor the remains of one; and the sealed siblings of such a stripe. A
//!   read that failed, damage, a version that is not known and a limit prove nothing.
//! - A device that a repair began is removed only if the same device has its name and is complete.
//! - Runs give names only when all seals are durable. A set of which one device has its name was
//!   sealed, whatever the others look like now.
//! - Only regular files are opened, and no open waits.

mod leftover;
mod parity;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::durable::{self, NameError};
use crate::error::{DeviceOperation, EngineError};
use crate::set::{FoundSet, METADATA_LIMIT_DEFAULT, is_parity_file};
use crate::storage::Files;
use crate::stripe_name::is_partial;
use leftover::{Leftover, Look, Sibling, look, siblings};

/// Why a device stays that a repair began.
const REPAIR: &str = "it is not complete, although its set is: its repair was cut off, and the \
     next one begins it again";

/// What was done with one left-over stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanedUp {
    /// Removed, because its set was never sealed.
    Removed(PathBuf),
    /// Removed: a repair was cut off, and the device that it was to replace is complete.
    Superfluous(PathBuf),
    /// Renamed to its own name, because its set was sealed.
    Published(PathBuf),
    /// Left as it is. Either nobody can tell whether its set is sealed, or it cannot have its name;
    /// the text says why.
    Left(PathBuf, String),
}

impl fmt::Display for CleanedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed(path) => write!(f, "removed {}: its backup was cut off", path.display()),
            Self::Superfluous(path) => {
                let path = path.display();
                write!(
                    f,
                    "removed {path}: its repair was cut off, and the device is complete"
                )
            }
            Self::Published(path) => {
                write!(
                    f,
                    "named {}: its backup was cut off after the seal",
                    path.display()
                )
            }
            Self::Left(path, why) => write!(f, "left {} alone: {why}", path.display()),
        }
    }
}

/// Cleans up what interrupted runs left in `directory`.
pub fn clean_up(directory: &Path) -> Result<Vec<CleanedUp>, EngineError> {
    clean_up_within(directory, METADATA_LIMIT_DEFAULT)
}

/// Does the same. The description of a set may take at most `metadata_limit` bytes of memory.
pub fn clean_up_within(
    directory: &Path,
    metadata_limit: u64,
) -> Result<Vec<CleanedUp>, EngineError> {
    let fault = |source| EngineError::DeviceIo {
        operation: DeviceOperation::Read,
        device: directory.to_string_lossy().into_owned(),
        offset: 0,
        source,
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fault)? {
        paths.push(entry.map_err(fault)?.path());
    }
    paths.retain(|path| is_partial(path));
    paths.sort();
    let mut done = Vec::new();
    // What is left of a set's stripes says what becomes of its parity, so that comes first.
    let (parities, paths): (Vec<_>, Vec<_>) = paths
        .into_iter()
        .partition(|path| is_parity_file(&Files, path));
    for path in parities {
        done.extend(parity::settle(&path, metadata_limit).map_err(fault)?);
    }
    for path in paths {
        match look(&path) {
            Look::Passed => {}
            Look::Nothing(_lock) => done.push(remove(&path).map_err(fault)?),
            Look::Unknown(why) => done.push(CleanedUp::Left(path, why)),
            Look::Stripe(stripe) => {
                done.extend(settle(*stripe, metadata_limit).map_err(fault)?);
            }
        }
    }
    Ok(done)
}

/// Does what the seals of the stripe and of its siblings prove to be right.
fn settle(stripe: Leftover, metadata_limit: u64) -> std::io::Result<Vec<CleanedUp>> {
    if !stripe.sealed && stripe.is_there_complete(metadata_limit) {
        return Ok(vec![remove_superfluous(&stripe.path)?]);
    }
    let siblings = siblings(&stripe);
    if siblings.iter().any(|it| matches!(it, Sibling::InUse)) {
        return Ok(Vec::new());
    }
    let unsealed = |it: &Sibling| matches!(it, Sibling::Leftover(other) if !other.sealed);
    let never = !stripe.sealed || siblings.iter().any(unsealed);
    let left = |why: String| Ok(vec![CleanedUp::Left(stripe.path.clone(), why)]);
    let named = siblings.iter().find_map(|it| match it {
        Sibling::Named(path) => Some(path.clone()),
        _ => None,
    });
    let named = named.or_else(|| parity::named_beside(&stripe));
    if never {
        return match named {
            Some(_) if stripe.has_parity() => left(REPAIR.to_owned()),
            Some(path) => left(format!(
                "it is not sealed any more, although its set was: {} has its name",
                path.display()
            )),
            None => remove_all(stripe, siblings),
        };
    }
    let unclear = siblings.iter().find_map(|it| match it {
        Sibling::Unknown(why) => Some(why.clone()),
        Sibling::Absent => Some("its other stripes cannot be seen".to_owned()),
        _ => None,
    });
    if let Some(why) = unclear {
        return left(why);
    }
    match FoundSet::whole(&Files, std::slice::from_ref(&stripe.path), metadata_limit) {
        Ok(_) => publish(&stripe).map(|done| vec![done]),
        Err(error) => left(error.to_string()),
    }
}

/// Removes the stripes of a set that was never sealed. The unsealed ones prove that, so they go
/// last.
fn remove_all(stripe: Leftover, siblings: Vec<Sibling>) -> std::io::Result<Vec<CleanedUp>> {
    let mut done = parity::remove_of(&stripe)?;
    let mut doomed = vec![stripe];
    doomed.extend(siblings.into_iter().filter_map(|it| match it {
        Sibling::Leftover(other) => Some(*other),
        _ => None,
    }));
    doomed.sort_by_key(|it| !it.sealed);
    for stripe in doomed {
        done.push(remove(&stripe.path)?);
        // What proves that the others may go must stay as long as they do.
        if matches!(done.last(), Some(CleanedUp::Left(..))) {
            break;
        }
    }
    Ok(done)
}

/// Removes a stripe. One that this user or this directory keeps costs no later backup.
fn remove(path: &Path) -> std::io::Result<CleanedUp> {
    match std::fs::remove_file(path) {
        Err(error) if is_kept(&error) => {
            let why = format!("its backup was cut off, but it cannot be removed: {error}");
            return Ok(CleanedUp::Left(path.to_owned(), why));
        }
        removed => removed?,
    }
    durable::sync_parent(path)?;
    Ok(CleanedUp::Removed(path.to_owned()))
}

/// Removes what a repair began of a device that is there and complete.
fn remove_superfluous(path: &Path) -> std::io::Result<CleanedUp> {
    Ok(match remove(path)? {
        CleanedUp::Removed(path) => CleanedUp::Superfluous(path),
        other => other,
    })
}

/// Gives a sealed stripe its name. A file that has this name goes only if the run would have
/// replaced it: if it is a stripe of an older set, or if it only reserves the name for this one.
fn publish(stripe: &Leftover) -> std::io::Result<CleanedUp> {
    let name = stripe.name();
    let is_reserved = || durable::reserved_for(&name).as_deref() == stripe.path.file_name();
    let named = match durable::name_new(stripe.file(), &stripe.path, &name) {
        Err(NameError::Taken) if stripe.is_newer_than(&name) || is_reserved() => {
            durable::name_over(stripe.file(), &stripe.path, &name)
        }
        named => named,
    };
    match named {
        Err(NameError::Taken) => {
            let why = format!("{} has its name and is no older stripe", name.display());
            Ok(CleanedUp::Left(stripe.path.clone(), why))
        }
        Err(NameError::Failed(error)) if is_kept(&error) => {
            let why = format!("its set is complete, but it cannot get its name: {error}");
            Ok(CleanedUp::Left(stripe.path.clone(), why))
        }
        named => Ok(named.map(|()| CleanedUp::Published(name))?),
    }
}

/// Whether the file stays because somebody wants it to stay: it belongs to another user, its
/// directory is append-only, or something is mounted on it. The storage itself is sound.
fn is_kept(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ResourceBusy)
}
