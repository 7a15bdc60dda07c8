//! Files with parity that a run left under their temporary names.
//!
//! A run seals its parity before its stripes, and gives names when everything is sealed. So
//! parity without an end belongs to no set that was ever complete, unless a repair was cut off; and
//! parity with an end belongs to a set if one of its stripes is sealed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_media::{ParityHeader, SetId};

use super::leftover::{Leftover, begun};
use super::{CleanedUp, is_kept, remove};
use crate::bounded::open_regular;
use crate::durable::{self, Locked, NameError};
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
    let is_complete = ParityFile::open(&Files, path, limit).is_ok();
    let is_sealed = stripes.iter().any(|stripe| stripe.is_sealed);
    let is_named = stripes.iter().any(|stripe| !is_partial(&stripe.path));
    match (is_complete, is_sealed) {
        (false, _) if is_named || is_sealed => left("it is not complete, although its set is"),
        (false, _) => remove(path).map(Some),
        (true, true) => publish((&file, path), &name, &header).map(Some),
        (true, false) if stripes.is_empty() => left("the stripes of its set cannot be seen"),
        (true, false) => remove(path).map(Some),
    }
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
    is_sealed: bool,
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
        let ends = Ends::open(&Files, &path).ok()?;
        let (own, _) = ends.header().ok()?;
        let is_sealed = ends.seal().is_ok();
        (own.set_id == header.set_id).then_some(Stripe { path, is_sealed })
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
