//! Files with parity that a run left under their temporary names.
//!
//! A run ends its parity before it seals its stripes, and gives names when everything is sealed. So
//! parity is removed if it was read that it has no end, or that a stripe of its set has no seal and
//! no device has its name. It gets its name if every stripe is sealed, or a device has its name.
//! What cannot be read proves nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_media::{FormatError, ParityHeader, SetId, Structure};

use super::leftover::{Leftover, begun, is_sealed};
use super::{CleanedUp, REPAIR, is_kept, remove, remove_superfluous};
use crate::bounded::open_regular;
use crate::durable::{self, Locked, NameError};
use crate::error::EngineError;
use crate::set::places::where_it_may_be;
use crate::set::{Ends, ParityFile, parity_header};
use crate::storage::Files;
use crate::stripe_name::{is_partial, partial_path};

/// Deals with a file with parity. Nothing is done to one that a run still writes.
pub(super) fn settle(path: &Path, limit: u64) -> io::Result<Option<CleanedUp>> {
    let Some(file) = locked(path) else {
        return Ok(None);
    };
    let left = |why: &str| Ok(Some(CleanedUp::Left(path.to_owned(), why.to_owned())));
    let header = match parity_header(&Files, path) {
        Ok((header, _)) => header,
        Err(error) => return left(&error.to_string()),
    };
    let Some(name) = own_name(&header, path) else {
        return Ok(None);
    };
    let stripes = stripes_of(&header, path);
    let is_named = stripes.iter().any(|stripe| !is_partial(&stripe.path))
        || named_of(header.set_id, &header.parities, path).is_some();
    let is_unsealed = stripes.iter().any(|it| it.is_sealed == Some(false)) && !is_named;
    let sealed = stripes.iter().filter(|it| it.is_sealed == Some(true));
    let sealed: BTreeSet<u16> = sealed.map(|it| it.number).collect();
    match ParityFile::open(&Files, path, limit) {
        Ok(_) if is_named || sealed.len() == header.stripes.len() => {
            publish((&file, path), &name, &header).map(Some)
        }
        _ if is_unsealed => remove(path).map(Some),
        Ok(_) => left("not every stripe of its set can be read"),
        Err(_) if is_whole(&name, &header, limit) => remove_superfluous(path).map(Some),
        Err(_) if is_named => left(REPAIR),
        Err(error) if is_without_end(&error) && sealed.is_empty() => remove(path).map(Some),
        Err(error) => left(&error.to_string()),
    }
}

/// Whether a file has this parity of this set and is complete.
fn is_whole(path: &Path, own: &ParityHeader, limit: u64) -> bool {
    ParityFile::open(&Files, path, limit)
        .is_ok_and(|file| (file.header.set_id, file.header.parity) == (own.set_id, own.parity))
}

/// Whether the end of a file with parity was read, and is none.
fn is_without_end(error: &EngineError) -> bool {
    let EngineError::Damage { source, .. } = error else {
        return false;
    };
    matches!(
        source,
        FormatError::Magic(Structure::ParityEnd) | FormatError::Truncated(Structure::ParityEnd)
    )
}

/// Removes the parity of a set that was never sealed.
pub(super) fn remove_of(stripe: &Leftover) -> io::Result<Vec<CleanedUp>> {
    let (set, parities) = stripe.parities();
    let beside = [stripe.path.clone()];
    let places = parities.iter().flat_map(|it| where_it_may_be(&beside, it));
    let partials = places.filter(|path| is_partial(path) && is_of(path, set));
    let mut done = Vec::new();
    for path in partials {
        if locked(&path).is_some() {
            done.push(remove(&path)?);
        }
    }
    Ok(done)
}

/// The complete parity of a stripe's set, if it has its name. Then the set was sealed.
pub(super) fn named_beside(stripe: &Leftover) -> Option<PathBuf> {
    let (set, parities) = stripe.parities();
    named_of(set, parities, &stripe.path)
}

fn named_of(set: SetId, parities: &[Vec<u8>], beside: &Path) -> Option<PathBuf> {
    let beside = [beside.to_owned()];
    let mut places = parities.iter().flat_map(|it| where_it_may_be(&beside, it));
    places.find(|path| !is_partial(path) && is_of(path, set))
}

fn is_of(path: &Path, set: SetId) -> bool {
    parity_header(&Files, path).is_ok_and(|(header, _)| header.set_id == set)
}

/// Opens a file and locks it. `None` if a run writes it.
fn locked(path: &Path) -> Option<Locked<File>> {
    let file = Locked::take(open_regular(path).ok()?).ok()?;
    durable::is_file_at(&file, path)
        .unwrap_or(false)
        .then_some(file)
}

/// The name that the run would have given to it, if this is its temporary form.
fn own_name(header: &ParityHeader, path: &Path) -> Option<PathBuf> {
    let location = header.parities.get(usize::from(header.parity))?;
    let name = Path::new(OsStr::from_bytes(location)).file_name()?;
    let name = path.with_file_name(name);
    (partial_path(&name) == path).then_some(name)
}

/// A stripe of the set.
struct Stripe {
    path: PathBuf,
    number: u16,
    /// Whether it has a seal; none if nobody can tell.
    is_sealed: Option<bool>,
}

fn stripes_of(header: &ParityHeader, path: &Path) -> Vec<Stripe> {
    let beside = [path.to_owned()];
    let places = header.stripes.iter().flat_map(|location| {
        let mut places = where_it_may_be(&beside, location);
        let partials: Vec<_> = places.iter().map(|place| partial_path(place)).collect();
        places.extend(partials);
        places
    });
    let stripe = |path: PathBuf| {
        let (own, _) = Ends::open(&Files, &path).ok()?.header().ok()?;
        if own.set_id != header.set_id {
            return None;
        }
        let file = open_regular(&path).ok()?;
        Some(Stripe {
            is_sealed: is_sealed(&file, &own).ok(),
            number: own.stripe.0,
            path,
        })
    };
    places.filter_map(stripe).collect()
}

fn publish(
    (file, path): (&File, &Path),
    name: &Path,
    header: &ParityHeader,
) -> io::Result<CleanedUp> {
    let is_newer = |name: &Path| begun(name).is_some_and(|other| other < header.created_nanos);
    let is_reserved = || durable::reserved_for(name).as_deref() == path.file_name();
    let named = match durable::name_new(file, path, name) {
        Err(NameError::Taken) if is_newer(name) || is_reserved() => {
            durable::name_over(file, path, name)
        }
        named => named,
    };
    match named {
        Ok(()) => Ok(CleanedUp::Published(name.to_owned())),
        Err(NameError::Taken) => {
            let why = format!("{} has its name and is no older stripe", name.display());
            Ok(CleanedUp::Left(path.to_owned(), why))
        }
        Err(NameError::Failed(error)) if is_kept(&error) => {
            let why = format!("it is complete, but it cannot get its name: {error}");
            Ok(CleanedUp::Left(path.to_owned(), why))
        }
        Err(error) => Err(error.into()),
    }
}
