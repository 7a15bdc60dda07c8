//! A survey: the parts of a set that exist, and everything that is wrong with them.
//!
//! If a set opens, its headers, footers and seals are right. If it does not, each stripe is taken
//! apart (`parts.rs`), and the parts that are right are used. The description of the set is the one
//! that most stripes have. Stripes with another description are left out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use windlass_media::{
    BackupType, Facts, FileTable, SetDescription, SetId, StripeHeader, StripeIndex,
    StripeTableEntry, SupersededFiles,
};

use super::parts::{Agreed, Parts};
use super::report::{Damage, DamagedPart};
use crate::error::EngineError;
use crate::set::{FoundSet, OpenStripe, Search, note_all, places, removal};
use crate::storage::{Kept, Storage};
use crate::stripe_name::is_partial;

/// A set, as far as it exists.
#[derive(Debug)]
pub struct Survey {
    set: FoundSet,
    found: Vec<Damage>,
    /// The damage of the sets that it builds on, with the number of the set in the chain.
    below: Vec<(usize, Damage)>,
    short: bool,
    files_known: bool,
    /// Others are told that the set is read.
    _noted: Vec<Kept>,
}

type Stripes = BTreeMap<u16, Parts>;

impl Survey {
    /// Looks for the stripes that `places` lead to, and for those of the sets on which that set
    /// builds. Fails when there is no set, when there is more than one, or when no database can be
    /// made of the set.
    pub fn of(
        storage: &dyn Storage,
        places: &[PathBuf],
        metadata_limit: u64,
    ) -> Result<Self, EngineError> {
        Self::among(storage, places, &[], metadata_limit)
    }

    /// Does the same, and looks for the sets below in `further` places, too.
    pub fn among(
        storage: &dyn Storage,
        places: &[PathBuf],
        further: &[PathBuf],
        metadata_limit: u64,
    ) -> Result<Self, EngineError> {
        let mut survey = Self::of_any(storage, places, metadata_limit)?;
        survey.set.check_type()?;
        let search = Search { storage, further };
        let open = |stripes: &[PathBuf]| Self::of_any(storage, stripes, metadata_limit);
        let bases = search.all(&survey.set, open, |below| &below.set)?;
        for (link, base) in (1..).zip(&bases) {
            base.set.check_type()?;
            survey.short |= base.short;
            survey.files_known &= base.files_known;
            let found = base.found.iter().cloned();
            survey.below.extend(found.map(|damage| (link, damage)));
        }
        let bases = bases.into_iter().map(|base| base.set);
        survey.set.stand_on(bases.collect());
        survey._noted = note_all(storage, &survey.set)?;
        for link in survey.set.links() {
            removal::check_stays(storage, link)?;
        }
        Ok(survey)
    }

    /// Does the same for a set of any type, without those below it, to say what it is and what is
    /// left of it.
    pub fn of_any(
        storage: &dyn Storage,
        places: &[PathBuf],
        metadata_limit: u64,
    ) -> Result<Self, EngineError> {
        let refused = match FoundSet::whole(storage, places, metadata_limit) {
            Ok(set) => {
                return Ok(Self {
                    set,
                    found: Vec::new(),
                    below: Vec::new(),
                    short: false,
                    files_known: true,
                    _noted: Vec::new(),
                });
            }
            Err(error) if is_ambiguous(&error) || !error.is_of_media() => {
                return Err(error);
            }
            Err(error) => error,
        };
        let Some((set_id, stripes)) = gather(storage, places, metadata_limit)? else {
            return Err(refused);
        };
        let mut survey = Self::of_stripes(set_id, stripes, metadata_limit)?;
        if survey.found.is_empty() || matches!(refused, EngineError::BeyondParity { .. }) {
            // A set that a restore would refuse must not pass as good.
            survey.found.push(Damage::of_set(&refused, 0));
        }
        Ok(survey)
    }

    /// The stripes that exist, with what can be read of each.
    pub fn set(&self) -> &FoundSet {
        &self.set
    }

    /// The damage that headers, footers and seals show.
    pub fn found(&self) -> &[Damage] {
        &self.found
    }

    /// All such damage, with the number of the set in the chain: 0 is the newest.
    pub(super) fn found_by_link(&self) -> impl Iterator<Item = (usize, &Damage)> {
        let own = self.found.iter().map(|damage| (0, damage));
        own.chain(self.below.iter().map(|(link, damage)| (*link, damage)))
    }

    /// True when the list of files could be read.
    pub fn files_known(&self) -> bool {
        self.files_known
    }

    /// True when the set holds some bytes of files more than once, older and newer.
    pub(super) fn has_layers(&self) -> bool {
        let stripes = self.set.links().flat_map(FoundSet::stripes);
        let mut directories = stripes.flat_map(OpenStripe::directory);
        directories.any(|entry| entry.layer_max > 0)
    }

    /// True when content may be missing that no index block describes.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    fn of_stripes(set_id: SetId, mut stripes: Stripes, limit: u64) -> Result<Self, EngineError> {
        let (locations, count) = (locations(&stripes), stripe_count(&stripes));
        let (root, description) = most_agree(&stripes, limit);
        let files_known = description.is_some();
        let description = description.unwrap_or_else(nothing);
        let model = stripes.values().find_map(Parts::own_header).cloned();
        let (mut open, mut found, mut short) = (Vec::new(), Vec::new(), false);
        for index in (0..count).map(StripeIndex) {
            let listed = description.stripes.get(usize::from(index.0));
            let Some(parts) = stripes.remove(&index.0) else {
                found.push(missing(index, &locations, listed));
                short = true;
                continue;
            };
            short |= parts.root() != Some(root);
            let model = model.as_ref();
            let agreed = Agreed {
                set_id,
                root,
                listed,
                model,
            };
            open.extend(parts.open(index, &agreed, &mut found)?);
        }
        short |= open.len() < usize::from(count);
        Ok(Self {
            set: FoundSet::new(set_id, root, open, description),
            found,
            below: Vec::new(),
            short,
            files_known,
            _noted: Vec::new(),
        })
    }
}

/// True when the given stripes are not one set, so there is nothing to survey.
fn is_ambiguous(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::SetsMixed { .. } | EngineError::StripeTwice { .. }
    )
}

/// The stripes of the first set that `places` lead to, and their siblings; `None` when there is no
/// set.
fn gather(
    storage: &dyn Storage,
    places: &[PathBuf],
    limit: u64,
) -> Result<Option<(SetId, Stripes)>, EngineError> {
    let mut stripes = Stripes::new();
    let mut set_id = None;
    for path in places::expand(storage, places)? {
        if is_partial(&path) && !places.contains(&path) {
            continue;
        }
        let parts = Parts::of(storage, &path, limit.saturating_sub(held(&stripes)));
        let Some((set, index)) = parts.identity() else {
            continue;
        };
        if *set_id.get_or_insert(set) == set {
            stripes.entry(index.0).or_insert(parts);
        }
    }
    let Some(set_id) = set_id else {
        return Ok(None);
    };
    let beside: Vec<_> = stripes
        .values()
        .map(|parts| parts.path().to_owned())
        .collect();
    for (index, location) in (0u16..).zip(locations(&stripes)) {
        if stripes.contains_key(&index) {
            continue;
        }
        let may_be = places::where_it_may_be(&beside, &location);
        let left = limit.saturating_sub(held(&stripes));
        let mut may_be = may_be
            .into_iter()
            .map(|path| Parts::of(storage, &path, left));
        let sibling = may_be.find(|parts| match parts.identity() {
            Some(own) => own == (set_id, StripeIndex(index)),
            // The set says that its stripe is at this place. So a file here that cannot be read is
            // the damaged stripe, not an unrelated file.
            None => places::is_occupied(storage, parts.path()),
        });
        sibling.map(|parts| stripes.insert(index, parts));
    }
    let known = stripes.values().find_map(|parts| parts.cipher().cloned());
    if let Some(cipher) = known {
        let limit = limit.saturating_sub(held(&stripes));
        let locked = stripes.values_mut();
        locked.for_each(|parts| parts.unlock(&cipher, limit));
    }
    Ok(Some((set_id, stripes)))
}

fn held(stripes: &Stripes) -> u64 {
    stripes.values().map(Parts::directory_bytes).sum()
}

/// The root on which most stripes agree, and the description that belongs to it. If two roots have
/// as many stripes, the first one wins.
fn most_agree(stripes: &Stripes, limit: u64) -> ([u8; 32], Option<SetDescription>) {
    let roots: Vec<_> = stripes.values().filter_map(Parts::root).collect();
    let votes = |root: &[u8; 32]| roots.iter().filter(|other| *other == root).count();
    let Some(root) = roots.iter().rev().max_by_key(|root| votes(root)) else {
        return ([0; 32], None);
    };
    // The description is read a second time. To keep the copy of every stripe would take many times
    // the memory.
    let mut agreeing = stripes.values().filter(|parts| parts.root() == Some(*root));
    (*root, agreeing.find_map(|parts| parts.description(limit)))
}

/// Where the set says its stripes were written.
fn locations(stripes: &Stripes) -> Vec<Vec<u8>> {
    let of_header = stripes.values().find_map(Parts::own_header);
    let of_header = of_header.map(|header: &StripeHeader| header.locations.clone());
    let of_footer = || stripes.values().find_map(Parts::locations);
    of_header.or_else(of_footer).unwrap_or_default()
}

fn stripe_count(stripes: &Stripes) -> u16 {
    stripes.values().map(Parts::stripe_count).max().unwrap_or(0)
}

fn missing(index: StripeIndex, locations: &[Vec<u8>], listed: Option<&StripeTableEntry>) -> Damage {
    let location = locations.get(usize::from(index.0));
    let location = location.map(|name| String::from_utf8_lossy(name).into_owned());
    let bytes = listed.map_or(0, |entry| entry.data_bytes);
    let (location, fault) = (location.unwrap_or_default(), "is missing".to_owned());
    Damage::new(
        index.number(),
        &location,
        DamagedPart::Stripe,
        (0, bytes),
        fault,
    )
}

/// The description of a set of which no footer is left.
fn nothing() -> SetDescription {
    let facts = Facts {
        tool: String::new(),
        backup_type: BackupType::Full,
        started: String::new(),
        finished: String::new(),
        options: serde_json::Value::Null,
        database: serde_json::Value::Null,
        parents: Vec::new(),
    };
    SetDescription {
        stripes: Vec::new(),
        files: FileTable::default(),
        superseded: SupersededFiles::default(),
        base: None,
        facts,
    }
}
