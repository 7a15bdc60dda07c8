//! Finds stripes in the places that the user named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use windlass_media::{Footer, ParityHeader, SetDescription, SetId, StripeHeader};

use super::ends::Ends;
use super::parity::file::is_parity_file;
use super::stripe::{OpenStripe, open_stripe, peek_header};
use crate::error::EngineError;
use crate::storage::{Lies, Storage};
use crate::stripe_name::{is_named_as_stripe, is_partial, partial_path};

/// The first stripe that `places` lead to. All stripes that are found must be of one set.
pub(super) fn first_stripe(
    storage: &dyn Storage,
    places: &[PathBuf],
    metadata_limit: u64,
) -> Result<(OpenStripe, Footer), EngineError> {
    let paths = expand(storage, places)?;
    let mut first: Option<(PathBuf, StripeHeader)> = None;
    let mut fault = None;
    let mut seen: BTreeMap<u16, PathBuf> = BTreeMap::new();
    for path in paths {
        let named = places.contains(&path);
        let header = match Ends::open(storage, &path).and_then(|ends| ends.header()) {
            Ok((header, _)) => header,
            Err(_) if named && is_parity_file(storage, &path) => continue,
            Err(error) if named => return Err(error),
            Err(error) => {
                fault.get_or_insert(error);
                continue;
            }
        };
        // In a directory, stripes that are not sealed belong to another run.
        if !named && is_partial(&path) {
            continue;
        }
        if let Some((_, other)) = &first
            && other.set_id != header.set_id
        {
            let stripes = sets_of(storage, places)?;
            return Err(EngineError::SetsMixed { stripes });
        }
        if let Some(other) = seen.insert(header.stripe.0, path.clone())
            && !storage.is_same(&other, &path)
        {
            return Err(EngineError::StripeTwice {
                set: header.set_id,
                stripe: header.stripe,
                first: other.to_string_lossy().into_owned(),
                second: path.to_string_lossy().into_owned(),
            });
        }
        first.get_or_insert((path, header));
    }
    match (first, fault) {
        (Some((path, _)), _) => open_stripe(storage, &path, metadata_limit),
        (None, Some(fault)) => Err(fault),
        (None, None) => {
            let names: Vec<_> = places.iter().map(|place| place.to_string_lossy()).collect();
            Err(EngineError::NoSet {
                location: names.join(", "),
            })
        }
    }
}

/// The set of each stripe in these places, as far as headers say it.
fn sets_of(storage: &dyn Storage, places: &[PathBuf]) -> Result<Vec<(String, SetId)>, EngineError> {
    let paths = expand(storage, places)?.into_iter();
    let paths = paths.filter(|path| places.contains(path) || !is_partial(path));
    let set_of = |path: PathBuf| {
        let header = peek_header(storage, &path)?;
        Some((path.to_string_lossy().into_owned(), header.set_id))
    };
    Ok(paths.filter_map(set_of).collect())
}

/// Turns each place into the stripes in it. Files stay as they are.
pub(crate) fn expand(
    storage: &dyn Storage,
    places: &[PathBuf],
) -> Result<Vec<PathBuf>, EngineError> {
    let mut paths = Vec::new();
    for place in places {
        if !matches!(storage.look(place), Ok(Lies::Place)) {
            paths.push(place.clone());
            continue;
        }
        let mut found = Vec::new();
        storage.list(place, &mut |file| found.push(file.location))?;
        found.retain(|location| looks_like_stripe(storage, location));
        found.sort();
        paths.extend(found);
    }
    Ok(paths)
}

/// Judges by the beginning, the end or the name, because a damaged stripe may have only one of them
/// left.
fn looks_like_stripe(storage: &dyn Storage, location: &Path) -> bool {
    let Ok(ends) = Ends::open(storage, location) else {
        return false;
    };
    let mut magic = [0; 8];
    if ends.device.read_exact_at(0, &mut magic).is_ok() {
        if StripeHeader::begins(&magic) {
            return true;
        }
        if ParityHeader::begins(&magic) {
            return false;
        }
    }
    is_named_as_stripe(location) || ends.seal().is_ok()
}

/// Where the other stripes may be: at the places that were given, beside the first stripe, and
/// where they were written. With each comes the index that the set gives to it, if any.
pub(super) fn candidates(
    storage: &dyn Storage,
    places: &[PathBuf],
    first: &OpenStripe,
    set: &SetDescription,
) -> Result<Vec<(Option<u16>, PathBuf)>, EngineError> {
    let told = expand(storage, places)?;
    let mut candidates: Vec<_> = told.into_iter().map(|path| (None, path)).collect();
    let beside = [first.location().to_owned()];
    for (index, entry) in (0..).zip(&set.stripes) {
        let may_be = where_it_may_be(&beside, &entry.location);
        candidates.extend(may_be.into_iter().map(|path| (Some(index), path)));
    }
    Ok(candidates)
}

/// Whether a file exists there, or may exist in a directory that this user may not look into. An
/// empty file is a stripe that has lost everything.
pub(crate) fn is_occupied(storage: &dyn Storage, location: &Path) -> bool {
    match storage.look(location) {
        Ok(lies) => matches!(lies, Lies::File { .. }),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Where the stripe that was written to `location` may be: beside its siblings, or still at
/// `location`.
pub(crate) fn where_it_may_be(siblings: &[PathBuf], location: &[u8]) -> Vec<PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let written = PathBuf::from(OsStr::from_bytes(location));
    // Many siblings may lie in one directory.
    let mut seen = BTreeSet::new();
    let directories = siblings
        .iter()
        .map(|it| it.parent().unwrap_or(Path::new(".")));
    let directories = directories.filter(|directory| seen.insert(*directory));
    let beside = directories.filter_map(|it| written.file_name().map(|name| it.join(name)));
    let mut places: Vec<_> = beside.collect();
    let partial = partial_path(&written);
    places.extend([written, partial]);
    places
}
