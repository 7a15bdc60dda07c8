//! The sets of places: stripes gathered by the id of their set, and what becomes of each set.

mod parity;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_media::{SetDescription, SetId, StripeHeader, StripeIndex, saturated};

use super::stripe::{
    Found, ParityFound, Stripe, is_just_begun, locked_has_base, look, read_footer,
};
use super::{SetAbout, SetEntry, SetList, SetParity, SetState, StripeEntry, UnknownStripe};
use crate::backup::READ_BYTES;
use crate::error::{EngineError, damage, read_error};
use crate::set::places::where_it_may_be;
use crate::set::removal::{Beside, Removal};
use crate::storage::{PlaceFile, Storage};
use crate::stripe_name::is_partial;
use parity::{gather_parity, holds_elsewhere, judged, parities, places_of_parity};

/// Longest word that a list keeps from a database's facts.
const WORD_BYTES_MAX: usize = 4096;

/// The stripes of one set that have been found so far.
#[derive(Default)]
struct Gathered {
    header: Option<StripeHeader>,
    stripes: Vec<Stripe>,
    /// Its files with parity.
    parities: Vec<ParityFound>,
    /// Where the first stripe is, and what its footer says. It is read while the stripe is at hand:
    /// of a bucket, storage has the ends of a stripe only for a while.
    first: Option<(PathBuf, Result<SetAbout, EngineError>)>,
}

type Sets = BTreeMap<SetId, Gathered>;

/// Lists the sets of these places. `limit` bounds the memory that one footer takes.
pub fn list_sets(
    storage: &dyn Storage,
    places: &[PathBuf],
    limit: u64,
) -> Result<SetList, EngineError> {
    let mut list = SetList::default();
    let mut sets = Sets::new();
    let mut beside = BesideSets::default();
    for place in places {
        storage.list(place, &mut |file| {
            if beside.take(&file) {
                return;
            }
            match look(storage, file, limit) {
                Found::Stripe(stripe, header) => {
                    gather(storage, &mut sets, (*stripe, header), limit)
                }
                Found::Parity(found) => gather_parity(storage, &mut sets, *found),
                Found::Unknown(file, fault) => unknown(&mut list, file, fault),
                Found::Foreign => {}
            }
        })?;
    }
    for set_id in sets.keys().copied().collect::<Vec<_>>() {
        let broken = siblings((storage, places), &mut sets, set_id, limit);
        let is_of_set = |one: &UnknownStripe| {
            let mut broken = broken.values().map(|(file, _)| file);
            broken.any(|file| storage.is_same(&file.location, &one.file.location))
        };
        list.unknown.retain(|one| !is_of_set(one));
        let lost = places_of_parity(places, sets.get(&set_id));
        list.unknown
            .retain(|one| !lost.contains(&one.file.location));
        let Some(mut gathered) = sets.remove(&set_id) else {
            continue;
        };
        list.unfinished.extend(gathered.take_unfinished_copies());
        if let Some(marks) = beside.marks.remove(&set_id) {
            let stripes = gathered.stripes.into_iter().map(|one| one.file.location);
            let parities = gathered.parities.into_iter().map(|one| one.file.location);
            let stripes = stripes.chain(parities).collect();
            list.removals.push(Removal {
                set_id,
                stripes,
                marks,
            });
            continue;
        }
        let held = holds_elsewhere((storage, places), set_id, &gathered);
        beside.holds.entry(set_id).or_default().extend(held);
        beside.add(&mut list, gathered.entry(storage, set_id, broken, limit));
    }
    show_bases(&mut list);
    beside.add_rest(&mut list);
    list.sets.sort_by_key(|set| (set.begun_nanos, set.set_id.0));
    list.unfinished.sort();
    Ok(list)
}

/// Shows hidden sets on which others build. Somebody made a backup while its base was hidden.
fn show_bases(list: &mut SetList) {
    let base_of = |set: &SetEntry| set.about.as_ref().and_then(|about| about.base);
    let mut wanted: Vec<_> = list.sets.iter().filter_map(base_of).collect();
    while let Some(base) = wanted.pop() {
        let found = list.hidden.iter().position(|set| set.set_id == base);
        if let Some(at) = found {
            let set = list.hidden.swap_remove(at);
            wanted.extend(base_of(&set));
            list.sets.push(set);
        }
    }
}

fn unknown(list: &mut SetList, file: PlaceFile, fault: EngineError) {
    match is_just_begun(&file) {
        true => list.unfinished.push(file.location),
        false => list.unknown.push(UnknownStripe { file, fault }),
    }
}

/// The files that lie beside stripes and say something about their sets.
#[derive(Default)]
struct BesideSets {
    marks: BTreeMap<SetId, Vec<PathBuf>>,
    holds: BTreeMap<SetId, Vec<PathBuf>>,
    hidden: BTreeMap<SetId, Vec<PlaceFile>>,
}

impl BesideSets {
    /// Adds a set with what is said of it.
    fn add(&mut self, list: &mut SetList, entry: SetEntry) {
        let holds = self.holds.remove(&entry.set_id).unwrap_or_default();
        let hidden = self.hidden.remove(&entry.set_id).unwrap_or_default();
        let sets = match hidden.is_empty() {
            true => &mut list.sets,
            false => &mut list.hidden,
        };
        sets.push(SetEntry {
            holds,
            hidden,
            ..entry
        });
    }

    /// Adds what is said of sets of which nothing is there.
    fn add_rest(self, list: &mut SetList) {
        let stale = self.hidden.into_values().flatten();
        list.stale = stale.map(|mark| mark.location).collect();
        for (set_id, marks) in self.marks {
            let stripes = Vec::new();
            list.removals.push(Removal {
                set_id,
                stripes,
                marks,
            });
        }
    }

    /// Takes a file, if it is one of these.
    fn take(&mut self, file: &PlaceFile) -> bool {
        // A place may be named twice.
        let paths = match Beside::of(&file.location) {
            Some(Beside::Mark(set)) => self.marks.entry(set).or_default(),
            Some(Beside::Hold(set)) => self.holds.entry(set).or_default(),
            Some(Beside::Hidden(set)) => {
                let marks = self.hidden.entry(set).or_default();
                if marks.iter().all(|known| known.location != file.location) {
                    marks.push(file.clone());
                }
                return true;
            }
            Some(Beside::Keys(_)) => return true,
            None => return false,
        };
        if !paths.contains(&file.location) {
            paths.push(file.location.clone());
        }
        true
    }
}

fn gather(
    storage: &dyn Storage,
    sets: &mut Sets,
    (stripe, header): (Stripe, Option<StripeHeader>),
    limit: u64,
) {
    let set = sets.entry(stripe.set_id).or_default();
    let known = set.stripes.iter();
    // The same stripe again: a place was named twice, or one place lies inside another.
    let mut known = known.filter(|other| other.index == stripe.index);
    if known.any(|other| storage.is_same(&other.file.location, &stripe.file.location)) {
        return;
    }
    set.header = set.header.take().or(header);
    if let (0, Some(seal), None) = (stripe.index.0, &stripe.seal, &set.first) {
        let footer = read_footer(storage, (&stripe.file, set.header.as_ref()), seal, limit);
        let about = footer.map(|footer| about(&footer.description));
        set.first = Some((stripe.file.location.clone(), about));
    }
    set.stripes.push(stripe);
}

/// What lies where a stripe of a set should be, but is no stripe.
type Broken = BTreeMap<u16, (PlaceFile, EngineError)>;

/// Looks for stripes of a set that are in none of the places. It looks where the set says they are,
/// and returns what exists there but cannot be read.
fn siblings(
    (storage, places): (&dyn Storage, &[PathBuf]),
    sets: &mut Sets,
    set_id: SetId,
    limit: u64,
) -> Broken {
    let mut broken = Broken::new();
    parities((storage, places), sets, set_id, limit);
    let Some(set) = sets.get(&set_id) else {
        return broken;
    };
    let locations = set.locations().iter();
    let missing: Vec<_> = (0u16..)
        .zip(locations.cloned())
        .filter(|(index, _)| set.stripes.iter().all(|one| one.index.0 != *index))
        .collect();
    for (index, location) in missing {
        let inside: Vec<_> = places.iter().map(|place| place.join("any")).collect();
        let may_be = where_it_may_be(&inside, &location);
        if let Some((file, fault)) = may_be.iter().find_map(|path| denied(storage, path)) {
            broken.entry(index).or_insert((file, fault));
        }
        let may_be = may_be.into_iter();
        let there = may_be.filter_map(|location| storage.file_at(location));
        for file in there.filter(|file| file.bytes > 0) {
            let name = file.clone();
            match look(storage, file, limit) {
                Found::Parity(_) => {}
                Found::Stripe(stripe, header) => {
                    if (stripe.set_id, stripe.index.0) == (set_id, index) {
                        gather(storage, sets, (*stripe, header), limit);
                        break;
                    }
                }
                Found::Unknown(_, fault) => drop(broken.entry(index).or_insert((name, fault))),
                Found::Foreign => {
                    let fault = EngineError::NotSealed {
                        location: name.location.to_string_lossy().into_owned(),
                    };
                    broken.entry(index).or_insert((name, fault));
                }
            }
        }
    }
    broken
}

/// What a user who may not look into the directory of a stripe can say about the stripe.
fn denied(storage: &dyn Storage, location: &Path) -> Option<(PlaceFile, EngineError)> {
    let fault = read_error(location, 0, storage.look(location).err()?);
    let file = PlaceFile {
        location: location.to_owned(),
        bytes: 0,
        modified_nanos: 0,
    };
    fault.is_denied().then_some((file, fault))
}

impl Gathered {
    /// Where the stripes were written.
    fn locations(&self) -> &[Vec<u8>] {
        let of_parity = || self.parities.first().map(|found| &found.header.stripes);
        let of_stripe = self.header.as_ref().map(|header| &header.locations);
        of_stripe.or_else(of_parity).map_or(&[][..], Vec::as_slice)
    }

    /// Takes out the unfinished stripes that are also there as sealed ones. The sealed stripe
    /// proves that the set was completed, whatever such a copy is. If a set with parity was
    /// completed, any unfinished device is of a repair: runs give names when all is sealed.
    fn take_unfinished_copies(&mut self) -> Vec<PathBuf> {
        let sealed = self.stripes.iter().filter(|one| one.fault.is_none());
        let is_named = |file: &PlaceFile| !is_partial(&file.location);
        let mut whole = self.parities.iter().filter(|one| one.said.is_some());
        let of_header = self.header.as_ref();
        let has_parity = !self.parities.is_empty()
            || of_header.is_some_and(|header| !header.parities.is_empty());
        let is_repaired = whole.any(|one| is_named(&one.file))
            || has_parity && sealed.clone().any(|one| is_named(&one.file));
        let sealed: Vec<_> = sealed.map(|one| one.index).collect();
        let is_copy =
            |one: &mut Stripe| one.is_unfinished() && (is_repaired || sealed.contains(&one.index));
        let copies = self.stripes.extract_if(.., is_copy);
        let mut copies: Vec<_> = copies.map(|copy| copy.file.location).collect();
        let is_unfinished = |one: &mut ParityFound| !is_named(&one.file) && one.said.is_none();
        if is_repaired {
            let parities = self.parities.extract_if(.., is_unfinished);
            copies.extend(parities.map(|copy| copy.file.location));
        }
        copies
    }

    fn entry(
        mut self,
        storage: &dyn Storage,
        set_id: SetId,
        mut broken: Broken,
        limit: u64,
    ) -> SetEntry {
        self.stripes
            .sort_by(|a, b| (a.index, &a.file.location).cmp(&(b.index, &b.file.location)));
        let count = self.stripes.iter().map(|stripe| stripe.count).max();
        let count = count.unwrap_or(saturated(self.locations().len()));
        let (about, footer_fault) = self.describe(storage, limit);
        let begun_nanos = self.begun();
        let state = self.state(set_id, count, &mut broken);
        let is_lost = matches!(state, SetState::Incomplete(_) | SetState::Damaged(_));
        let made_up_for = (is_lost || footer_fault.is_some())
            .then(|| self.made_up_for(storage, (count, footer_fault.is_some()), limit))
            .flatten();
        let (state, mended) = judged(state, footer_fault, made_up_for.is_some());
        let about = about.or_else(|| made_up_for.flatten());
        let parity = SetParity {
            lost: self.parities_lost(),
            mended,
            files: self.parities.iter().map(|one| one.file.clone()).collect(),
        };
        let is_described = about.is_some() || matches!(state, SetState::Unfinished);
        let may_have_base = !is_described && self.may_have_base(storage, limit);
        let stripe = |stripe: Stripe| StripeEntry {
            index: stripe.index,
            location: stripe.file.location,
            bytes: stripe.file.bytes,
        };
        SetEntry {
            set_id,
            begun_nanos,
            is_dated: self.header.is_some() || !self.parities.is_empty(),
            stripe_count: count,
            stripes: self.stripes.into_iter().map(stripe).collect(),
            about,
            may_have_base,
            state,
            holds: Vec::new(),
            hidden: Vec::new(),
            parity,
        }
    }

    /// The content of the first footer that can be read, and why an earlier one cannot be read.
    fn describe(
        &mut self,
        storage: &dyn Storage,
        limit: u64,
    ) -> (Option<SetAbout>, Option<EngineError>) {
        let mut first_fault = None;
        for stripe in &self.stripes {
            let Some(seal) = &stripe.seal else { continue };
            let is_it = |(location, _): &mut (PathBuf, _)| *location == stripe.file.location;
            let read = match self.first.take_if(is_it) {
                Some((_, about)) => about,
                None => read_footer(storage, (&stripe.file, self.header.as_ref()), seal, limit)
                    .map(|footer| about(&footer.description)),
            };
            match read {
                Ok(about) => return (Some(about), first_fault),
                Err(fault) => drop(first_fault.get_or_insert(fault)),
            }
        }
        (None, first_fault)
    }

    /// Whether nothing says that the set, whose footers cannot be read, has no base.
    fn may_have_base(&self, storage: &dyn Storage, limit: u64) -> bool {
        let sealed = self.stripes.iter();
        let mut sealed = sealed.filter_map(|one| Some((&one.file, one.seal.as_ref()?)));
        let said = sealed.find_map(|(file, seal)| locked_has_base(storage, file, seal, limit).ok());
        said.unwrap_or(true)
    }

    /// The time in the header. Without a header, the time of the last write to a stripe.
    fn begun(&self) -> i64 {
        let of_header = self.header.as_ref().map(|header| header.created_nanos);
        let written = self.stripes.iter().map(|stripe| stripe.file.modified_nanos);
        let of_parity = self
            .parities
            .first()
            .map(|found| found.header.created_nanos);
        of_header
            .or(of_parity)
            .or(written.max())
            .unwrap_or_default()
    }

    /// The state, as far as it shows without a footer.
    fn state(&mut self, set_id: SetId, count: u16, broken: &mut Broken) -> SetState {
        if self.stripes.iter().any(Stripe::is_unfinished) {
            return SetState::Unfinished;
        }
        if let Some(fault) = self.twice(set_id) {
            return SetState::Damaged(fault);
        }
        let mut faults = self.stripes.iter_mut();
        if let Some(fault) = faults.find_map(|stripe| stripe.fault.take()) {
            return SetState::of_fault(fault);
        }
        if let Some((_, (_, fault))) = broken.pop_first() {
            return SetState::of_fault(fault);
        }
        let there = |index| self.stripes.iter().any(|stripe| stripe.index.0 == index);
        if let Some(index) = (0..count).find(|index| !there(*index)) {
            return SetState::Incomplete(self.missing(set_id, StripeIndex(index)));
        }
        let mut roots = self.stripes.iter().filter_map(|stripe| {
            let seal = stripe.seal.as_ref();
            seal.map(|seal| (&stripe.file, seal.set_root))
        });
        let first = roots.next().map(|(_, root)| root);
        match roots.find(|(_, root)| Some(*root) != first) {
            None => SetState::Sealed,
            Some((file, _)) => {
                let fault = windlass_media::FormatError::Hash(windlass_media::Structure::Seal);
                let fault = damage(&file.location, file.bytes, fault);
                SetState::Damaged(fault)
            }
        }
    }

    fn twice(&self, set: SetId) -> Option<EngineError> {
        let mut pairs = self.stripes.iter().zip(self.stripes.iter().skip(1));
        let (first, second) = pairs.find(|(one, other)| one.index == other.index)?;
        let name = |stripe: &Stripe| stripe.file.location.to_string_lossy().into_owned();
        Some(EngineError::StripeTwice {
            set,
            stripe: first.index,
            first: name(first),
            second: name(second),
        })
    }

    fn missing(&self, set: SetId, stripe: StripeIndex) -> EngineError {
        let header = self.header.as_ref();
        let written = header.and_then(|header| header.locations.get(usize::from(stripe.0)));
        let location = written.map(|name| String::from_utf8_lossy(name).into_owned());
        EngineError::StripeMissing {
            set,
            stripe,
            location: location.unwrap_or_default(),
        }
    }
}

fn about(description: &SetDescription) -> SetAbout {
    let facts = &description.facts;
    let files = description.files.0.iter();
    SetAbout {
        backup_type: facts.backup_type,
        base: description.base.as_ref().map(|base| base.set),
        started: facts.started.clone(),
        finished: facts.finished.clone(),
        file_bytes: files.fold(0, |sum, file| sum.saturating_add(file.bytes)),
        read_bytes: facts.options[READ_BYTES].as_u64(),
        database: short_words(&facts.database),
    }
}

/// The words and numbers of an object. Lists are left out, because they grow with the database.
fn short_words(database: &Value) -> Value {
    let fields = database.as_object().into_iter().flatten();
    let short = fields.filter(|(_, value)| match value {
        Value::String(text) => text.len() <= WORD_BYTES_MAX,
        Value::Array(_) | Value::Object(_) | Value::Null => false,
        Value::Bool(_) | Value::Number(_) => true,
    });
    short
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
