//! What stripes and files with parity say of their set, and how one of them leads to it.

use std::path::{Path, PathBuf};

use windlass_media::{ParityHeader, SetId, StripeHeader};

use super::file::{is_parity_file, parity_header};
use crate::error::EngineError;
use crate::set::identity::identity_of_stripe;
use crate::set::places::{expand, where_it_may_be};
use crate::set::stripe::peek_header;
use crate::storage::{Lies, Storage};
use crate::stripe_name::{is_partial, set_part};

/// What a header says of a set with parity.
pub(super) struct Model {
    pub(super) set: SetId,
    pub(super) stripes: Vec<Vec<u8>>,
    pub(super) parities: Vec<Vec<u8>>,
}

/// What a file says of its set.
enum Says {
    Model(Model),
    /// The set has no parity.
    NoParity,
    /// It can be read neither as a stripe nor as a file with parity.
    Nothing,
}

impl Says {
    fn of(storage: &dyn Storage, path: &Path) -> Self {
        if let Some(header) = peek_header(storage, path) {
            return Model::of_stripe(header).map_or(Self::NoParity, Self::Model);
        }
        match parity_header(storage, path) {
            Ok((header, _)) => Self::Model(Model::of_parity(header)),
            Err(_) => Self::Nothing,
        }
    }
}

impl Model {
    pub(super) fn of_stripe(header: StripeHeader) -> Option<Self> {
        (!header.parities.is_empty()).then_some(Self {
            set: header.set_id,
            stripes: header.locations,
            parities: header.parities,
        })
    }

    fn of_parity(header: ParityHeader) -> Self {
        Self {
            set: header.set_id,
            stripes: header.stripes,
            parities: header.parities,
        }
    }

    fn names(&self, path: &Path) -> bool {
        let locations = self.stripes.iter().chain(&self.parities);
        let mut names = locations.filter_map(|location| file_name(location));
        path.file_name()
            .is_some_and(|name| names.any(|own| own == name.as_encoded_bytes()))
    }
}

fn file_name(location: &[u8]) -> Option<&[u8]> {
    location.rsplit(|byte| *byte == b'/').next()
}

/// The files with parity in these places.
pub(crate) fn parity_files(
    storage: &dyn Storage,
    places: &[PathBuf],
) -> Result<Vec<PathBuf>, EngineError> {
    let mut found = Vec::new();
    for place in places {
        if is_place(storage, place) {
            let mut all = Vec::new();
            storage.list(place, &mut |file| all.push(file.location))?;
            all.sort();
            found.extend(all);
        } else {
            found.push(place.clone());
        }
    }
    found.retain(|path| is_parity_file(storage, path));
    Ok(found)
}

fn is_place(storage: &dyn Storage, path: &Path) -> bool {
    matches!(storage.look(path), Ok(Lies::Place))
}

/// A stripe of the set of each file with parity that was named, if stripes are there.
pub(crate) fn stripes_of(storage: &dyn Storage, places: &[PathBuf]) -> Vec<PathBuf> {
    let files = places.iter().filter(|path| !is_place(storage, path));
    let stripe = |path: &PathBuf| {
        let (header, _) = parity_header(storage, path).ok()?;
        let beside = [path.clone()];
        let locations = header.stripes.iter();
        let mut may_be = locations.flat_map(|it| where_it_may_be(&beside, it));
        may_be.find(|path| {
            peek_header(storage, path).is_some_and(|found| found.set_id == header.set_id)
        })
    };
    files.filter_map(stripe).collect()
}

/// What the files in these places say of their set. If a file that was named says nothing, one
/// beside it may name it.
pub(super) fn model(
    storage: &dyn Storage,
    places: &[PathBuf],
) -> Result<Option<Model>, EngineError> {
    let told = told(storage, places)?.into_iter();
    // In a directory, what has a temporary name belongs to another run.
    let told: Vec<_> = told
        .filter(|path| places.contains(path) || !is_partial(path))
        .collect();
    for path in &told {
        let model = match Says::of(storage, path) {
            Says::Model(model) => model,
            Says::NoParity => return Ok(None),
            Says::Nothing => continue,
        };
        let is_other = |path: &PathBuf| {
            identity_of_stripe(storage, path).is_some_and(|(set, _)| set != model.set)
        };
        return Ok((!told.iter().any(is_other)).then_some(model));
    }
    for path in places.iter().filter(|path| !is_place(storage, path)) {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let place = parent.unwrap_or(Path::new(".")).to_owned();
        if !is_place(storage, &place) {
            continue;
        }
        // There may be thousands of others, and each costs a look. Names say which may be of the
        // same set.
        let mut beside = Vec::new();
        storage.list(&place, &mut |file| {
            if set_part(&file.location) == set_part(path) {
                beside.push(file.location);
            }
        })?;
        beside.sort();
        for other in beside {
            if let Says::Model(model) = Says::of(storage, &other)
                && model.names(path)
            {
                return Ok(Some(model));
            }
        }
    }
    Ok(None)
}

/// The stripes and the files with parity in these places.
pub(super) fn told(storage: &dyn Storage, places: &[PathBuf]) -> Result<Vec<PathBuf>, EngineError> {
    let mut told = expand(storage, places)?;
    told.extend(parity_files(storage, places)?);
    Ok(told)
}
