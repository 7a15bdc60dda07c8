//! Finds stripes in the places that the user named.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use windlass_media::{Footer, SEAL_BYTES, Seal, SetDescription, StripeHeader};

use super::stripe::{OpenStripe, open_stripe, read_error, read_header};
use crate::bounded::open_regular;
use crate::error::EngineError;
use crate::stripe_name::{is_named_as_stripe, is_partial, partial_path};

/// The first stripe that `places` lead to. All stripes that are found must be of one set.
pub(super) fn first_stripe(
    places: &[PathBuf],
    metadata_limit: u64,
) -> Result<(OpenStripe, Footer), EngineError> {
    let paths = expand(places)?;
    let mut first: Option<(PathBuf, StripeHeader)> = None;
    let mut fault = None;
    let mut seen: BTreeMap<u16, PathBuf> = BTreeMap::new();
    for path in paths {
        let named = places.contains(&path);
        let header = match read_header(&path) {
            Ok((header, _)) => header,
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
            return Err(EngineError::SetsMixed {
                first: other.set_id,
                second: header.set_id,
            });
        }
        if let Some(other) = seen.insert(header.stripe.0, path.clone())
            && !same_file(&other, &path)
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
        (Some((path, _)), _) => open_stripe(&path, metadata_limit),
        (None, Some(fault)) => Err(fault),
        (None, None) => {
            let names: Vec<_> = places.iter().map(|place| place.to_string_lossy()).collect();
            Err(EngineError::NoSet {
                location: names.join(", "),
            })
        }
    }
}

pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    if one == other {
        return true;
    }
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Turns each directory into the stripes in it. Files stay as they are.
pub(crate) fn expand(places: &[PathBuf]) -> Result<Vec<PathBuf>, EngineError> {
    let mut paths = Vec::new();
    for place in places {
        if !place.is_dir() {
            paths.push(place.clone());
            continue;
        }
        let entries = std::fs::read_dir(place).map_err(|source| read_error(place, 0, source))?;
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| read_error(place, 0, source))?;
            if entry.file_type().is_ok_and(|kind| kind.is_file())
                && looks_like_stripe(&entry.path())
            {
                found.push(entry.path());
            }
        }
        found.sort();
        paths.extend(found);
    }
    Ok(paths)
}

/// Judges by the beginning, the end or the name, because a damaged stripe may have only one of them
/// left.
fn looks_like_stripe(path: &Path) -> bool {
    let Ok(file) = open_regular(path) else {
        return false;
    };
    let mut magic = [0; 7];
    if file.read_exact_at(&mut magic, 0).is_ok() && &magic == b"WNDLASS" {
        return true;
    }
    is_named_as_stripe(path) || ends_in_seal(&file)
}

fn ends_in_seal(file: &File) -> bool {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let Some(offset) = length.checked_sub(SEAL_BYTES as u64) else {
        return false;
    };
    let mut record = [0; SEAL_BYTES];
    let read = file.read_exact_at(&mut record, offset);
    read.is_ok() && Seal::decode(&record, length).is_ok()
}

/// Where the other stripes may be: at the places that were given, beside the first stripe, and
/// where they were written. With each comes the index that the set gives to it, if any.
pub(super) fn candidates(
    places: &[PathBuf],
    first: &OpenStripe,
    set: &SetDescription,
) -> Vec<(Option<u16>, PathBuf)> {
    let told = expand(places).unwrap_or_default();
    let mut candidates: Vec<_> = told.into_iter().map(|path| (None, path)).collect();
    let beside = [first.location().to_owned()];
    for (index, entry) in (0..).zip(&set.stripes) {
        let may_be = where_it_may_be(&beside, &entry.location);
        candidates.extend(may_be.into_iter().map(|path| (Some(index), path)));
    }
    candidates
}

/// Whether a file exists there. An empty file is a stripe that has lost everything.
pub(crate) fn is_occupied(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Where the stripe that was written to `location` may be: beside its siblings, or still at
/// `location`.
pub(crate) fn where_it_may_be(siblings: &[PathBuf], location: &[u8]) -> Vec<PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let written = PathBuf::from(OsStr::from_bytes(location));
    let beside = siblings.iter().filter_map(|sibling| {
        let directory = sibling.parent().unwrap_or(Path::new("."));
        written.file_name().map(|name| directory.join(name))
    });
    let mut places: Vec<_> = beside.collect();
    let partial = partial_path(&written);
    places.extend([written, partial]);
    places
}
