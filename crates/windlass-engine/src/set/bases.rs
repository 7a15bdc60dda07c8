//! Finds the sets that a set builds on, down to the full one.
//!
//! A base is looked for where its stripes were when the set was written, beside the set's own
//! devices, and in the further places that the caller names. Its id and its root decide, not its
//! name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use windlass_media::{Base, SetId, StripeIndex};

use super::found::FoundSet;
use super::identity::identity_of_stripe;
use super::lineage::check_files;
use super::parity_header;
use super::places::where_it_may_be;
use super::stripe::peek_header;
use crate::error::EngineError;
use crate::storage::{Lies, PlaceFile, Storage};

/// The most sets that a chain may have.
const CHAIN_SETS_MAX: usize = 10_000;

/// Where sets are.
pub(crate) struct Search<'a> {
    pub(crate) storage: &'a dyn Storage,
    /// Places to look in, besides those that the sets name.
    pub(crate) further: &'a [PathBuf],
}

impl Search<'_> {
    /// All sets below `newest`, its base first. `open` opens the set of a stripe.
    pub(crate) fn all<T>(
        &self,
        newest: &FoundSet,
        open: impl Fn(&[PathBuf]) -> Result<T, EngineError>,
        set_of: impl Fn(&T) -> &FoundSet,
    ) -> Result<Vec<T>, EngineError> {
        let mut below: Vec<T> = Vec::new();
        loop {
            let above = below.last().map_or(newest, &set_of);
            let Some(base) = &above.description().base else {
                return Ok(below);
            };
            let found = open(&self.find(above, base)?)?;
            let is_right = set_of(&found).root() == base.root;
            if !is_right || below.len() >= CHAIN_SETS_MAX {
                return Err(EngineError::BaseDiffers {
                    set: above.set_id(),
                    base: base.set,
                });
            }
            if set_of(&found).is_described() {
                check_files(above, set_of(&found))?;
            }
            below.push(found);
        }
    }

    /// The stripes of the base of `set`, and its files with parity, of which one may be all that is
    /// left. Those that lie beside each other need not all be here.
    fn find(&self, set: &FoundSet, base: &Base) -> Result<Vec<PathBuf>, EngineError> {
        let own = set.devices().into_iter();
        let further = self.further.iter().map(|place| place.join("any"));
        let beside: Vec<PathBuf> = own.chain(further).collect();
        let mut found = BTreeMap::new();
        let named = base.locations.iter();
        for path in named.flat_map(|location| where_it_may_be(&beside, location)) {
            self.keep(path, base.set, &mut found);
        }
        let mut places: Vec<&Path> = beside.iter().filter_map(|path| path.parent()).collect();
        let mut seen = BTreeSet::new();
        places.retain(|place| seen.insert(*place));
        let stripes = base.locations.len();
        // Files with parity have the numbers behind those of the stripes.
        let is_whole = |found: &BTreeMap<StripeIndex, PathBuf>| {
            let indexes = found.keys().map(|index| usize::from(index.0));
            indexes.filter(|index| *index < stripes).count() == stripes
        };
        for place in places {
            let place = match place.as_os_str().is_empty() {
                true => Path::new("."),
                false => place,
            };
            let is_place = matches!(self.storage.look(place), Ok(Lies::Place));
            if is_place && !is_whole(&found) {
                let mut keep = |file: PlaceFile| self.keep(file.location, base.set, &mut found);
                self.storage.list(place, &mut keep)?;
            }
        }
        if !found.is_empty() {
            let mut found: Vec<_> = found.into_values().collect();
            let mut parities = self.parities((base.set, &found), &beside);
            parities.retain(|path| !found.contains(path));
            found.append(&mut parities);
            return Ok(found);
        }
        let location = base.locations.first();
        let location = location.map(|path| String::from_utf8_lossy(path).into_owned());
        Err(EngineError::BaseMissing {
            set: set.set_id(),
            base: base.set,
            location: location.unwrap_or_default(),
        })
    }

    /// The files with parity of a set of which these devices were found.
    fn parities(&self, (set, devices): (SetId, &[PathBuf]), beside: &[PathBuf]) -> Vec<PathBuf> {
        let said = |path: &PathBuf| match peek_header(self.storage, path) {
            Some(header) => Some(header.parities),
            None => Some(parity_header(self.storage, path).ok()?.0.parities),
        };
        let locations = devices.iter().find_map(said).unwrap_or_default();
        let may_be = locations.iter();
        let may_be = may_be.flat_map(|location| where_it_may_be(beside, location));
        let is_of_set = |path: &PathBuf| {
            let found = parity_header(self.storage, path);
            found.is_ok_and(|(header, _)| header.set_id == set)
        };
        may_be.filter(is_of_set).collect()
    }

    /// Keeps a path if a stripe of the set lies there of which no other copy was found.
    fn keep(&self, path: PathBuf, set: SetId, found: &mut BTreeMap<StripeIndex, PathBuf>) {
        if !matches!(self.storage.look(&path), Ok(Lies::File { .. })) {
            return;
        }
        match identity_of_stripe(self.storage, &path) {
            Some((of, stripe)) if of == set => drop(found.entry(stripe).or_insert(path)),
            _ => {}
        }
    }
}
