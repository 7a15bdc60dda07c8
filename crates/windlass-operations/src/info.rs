//! What sets say about themselves, and what is left of damaged ones.

mod chains;
mod logs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::media::{SetDescription, SetId, fitted};
use windlass_engine::{
    DamagedPart, EngineError, FoundSet, KeyFault, METADATA_LIMIT_DEFAULT, OpenSet, OpenStripe,
    PARTIAL_SUFFIX, SetEntry, SetState, StripeGlance, Survey, UnknownStripe, glance,
    glance_parities,
};
use windlass_image::{SetImage, SetImageOptions};
use windlass_postgres::{KIND, RelationNames};

pub use chains::{BaseFaults, ChainInfo, LinkInfo};
pub(crate) use chains::{base_faults, with_bases};
pub use logs::{DatabaseLogInfo, LogInfo};

use crate::caller::Caller;
use crate::devices::{STORAGE, is_place};
use crate::ending::Ending;
use crate::error::OperationError;
use crate::history::Proofs;
use crate::images::AsCluster;
use crate::places::{self, Identity, Named, SetRequest, below, short_id};

/// What is known about sets.
pub enum InfoOutcome {
    /// Of those that were named or chosen.
    Sets(NamedInfo),
    /// Of all of some directories.
    Places(Box<PlaceInfo>),
}

/// The sets to which some words lead.
pub struct NamedInfo {
    sets: BTreeMap<SetId, Glanced>,
    /// Directories in which sets on which they build may be.
    places: Vec<PathBuf>,
    /// Devices of backups and repairs under way, or cut off.
    pub unfinished: Vec<PathBuf>,
}

/// What was seen of one set.
#[derive(Default)]
struct Glanced {
    stripes: Vec<StripeGlance>,
    /// Where these are, and the files with parity.
    devices: Vec<PathBuf>,
}

/// The sets of some directories.
pub struct PlaceInfo {
    /// The sets.
    pub sets: Vec<SetEntry>,
    /// Files with a stripe's name that cannot be read as one.
    pub unknown: Vec<UnknownStripe>,
    /// Devices of backups and repairs under way, or cut off.
    pub unfinished: Vec<PathBuf>,
    /// Sets that have expired, and are hidden until they are removed.
    pub hidden: Vec<SetEntry>,
    /// Databases with sets there that the words leave out, each with the id of its newest set.
    pub others: Vec<(Identity, String)>,
    /// What hangs on what, for each database of which a set builds on another one.
    pub chains: Vec<ChainInfo>,
    /// The sets whose base is missing, or another set than it was.
    pub base_faults: BaseFaults,
    /// The archived logs of clusters there.
    pub logs: Vec<LogInfo>,
    /// The logs of SQLite databases there.
    pub database_logs: Vec<DatabaseLogInfo>,
    /// The directories.
    places: Vec<PathBuf>,
    /// What earlier runs showed of these sets.
    pub proofs: Proofs,
    /// Directories below with sets, and how many.
    pub below: Vec<(PathBuf, usize)>,
}

/// Finds out what is known about sets.
pub fn info(caller: &Caller, request: &SetRequest) -> Result<InfoOutcome, OperationError> {
    let named = Named::new(caller, request)?;
    if named.choice.which.is_some() {
        let found = places::find_named(caller, &named)?;
        let info = NamedInfo::of(&found.stripes, found.places)?;
        return Ok(InfoOutcome::Sets(info));
    }
    if named.are_directories() {
        return Ok(InfoOutcome::Places(Box::new(PlaceInfo::of(
            caller, &named,
        )?)));
    }
    let mut named_stripes = named.paths.iter().filter(|path| !is_place(path));
    named_stripes.try_for_each(|stripe| places::check_unchosen(stripe, &named.choice))?;
    let directories = named.paths.iter().filter(|path| is_place(path)).cloned();
    let info = NamedInfo::of(&named.paths, directories.collect())?;
    Ok(InfoOutcome::Sets(info))
}

impl NamedInfo {
    /// The sets to which these words lead. The sets below them may be in these places, too.
    fn of(words: &[PathBuf], places: Vec<PathBuf>) -> Result<Self, OperationError> {
        let glances = glance(STORAGE, words, METADATA_LIMIT_DEFAULT)?;
        let (unfinished, glances): (Vec<_>, Vec<_>) = glances
            .into_iter()
            .partition(|one| is_unfinished(one, words));
        if glances.is_empty() {
            // The reason why there is no set says more than the fact that there is none.
            places::open_stripes(words)?;
        }
        let mut sets: BTreeMap<SetId, Glanced> = BTreeMap::new();
        for glance in glances {
            let set = sets.entry(glance.header.set_id).or_default();
            set.devices.push(glance.location.clone());
            set.stripes.push(glance);
        }
        for (set, parity) in glance_parities(STORAGE, words)? {
            sets.entry(set).or_default().devices.push(parity);
        }
        let unfinished = unfinished.into_iter().map(|one| one.location);
        Ok(Self {
            sets,
            places,
            unfinished: unfinished.collect(),
        })
    }

    /// Each set, as far as it can be read. Only one of them is in memory.
    pub fn views(&self) -> impl Iterator<Item = SetView> {
        let sets = self.sets.iter();
        sets.map(|(id, seen)| SetView::new(*id, &seen.stripes, (&seen.devices, &self.places)))
    }
}

impl PlaceInfo {
    fn of(caller: &Caller, named: &Named) -> Result<Self, OperationError> {
        let list = places::list(&named.paths)?;
        let all = named.sets(&list.sets, list.unknown.is_empty())?;
        let is_unfinished = |set: &SetEntry| matches!(set.state, SetState::Unfinished);
        let partials = all.iter().filter(|set| is_unfinished(set));
        let partials = partials.flat_map(|set| set.locations());
        let unfinished: Vec<_> = partials.chain(list.unfinished.iter().cloned()).collect();
        let wanted = all.iter().filter(|set| !is_unfinished(set));
        let wanted: BTreeSet<_> = wanted.map(|set| set.set_id.0).collect();
        let base_faults = base_faults(&list.sets, &named.paths);
        let logs = logs::logs_of(&named.paths, &list.sets, &base_faults);
        let database_logs = logs::databases_of(&named.paths, &list.sets, &base_faults);
        let has_log = !logs.is_empty() || !database_logs.is_empty();
        let has_log = has_log && !named.chooses_database();
        if wanted.is_empty() && unfinished.is_empty() && list.unknown.is_empty() && !has_log {
            // `choose` fails and says why there is no set.
            places::choose(caller, &list, named)?;
        }
        let others = named.left_out(&list, &all).into_iter();
        let others = others.map(|(of, newest)| (of, short_id(newest))).collect();
        let sets = list.sets.into_iter();
        let sets: Vec<_> = sets.filter(|set| wanted.contains(&set.set_id.0)).collect();
        Ok(Self {
            proofs: Proofs::of(caller),
            chains: chains::chains_of(&sets, &base_faults),
            base_faults,
            sets,
            unknown: list.unknown,
            hidden: list.hidden,
            unfinished,
            others,
            logs,
            database_logs,
            below: below::places(&named.paths),
            places: named.paths.clone(),
        })
    }

    /// A set, as far as it can be read.
    pub fn view(&self, set: &SetEntry) -> Result<SetView, OperationError> {
        let glances = glance(STORAGE, &set.locations(), METADATA_LIMIT_DEFAULT)?;
        let devices: Vec<_> = match set.parity.files.is_empty() {
            true => glances.iter().map(|one| one.location.clone()).collect(),
            false => set.locations(),
        };
        let places = (&devices[..], &self.places[..]);
        Ok(SetView::new(set.set_id, &glances, places))
    }
}

/// The worse of an ending and that of a fault. If this user may not read a set, or has no key to
/// it, that is no damage.
pub fn worse(ending: Ending, fault: &EngineError) -> Ending {
    match fault {
        // Nobody gave a key, so nothing was asked for that failed.
        EngineError::Locked {
            fault: KeyFault::NoKey,
            ..
        } => ending,
        fault if (fault.is_denied() || is_locked(fault)) && ending != Ending::Damage => {
            Ending::Failed
        }
        _ => Ending::Damage,
    }
}

/// Whether a set cannot be read because it is encrypted.
pub fn is_locked(fault: &EngineError) -> bool {
    matches!(fault, EngineError::Locked { .. })
}

/// Why a set that is whole cannot be restored: it lacks a set that it builds on.
fn base_fault(set: &FoundSet, devices: &[PathBuf], places: &[PathBuf]) -> Option<EngineError> {
    set.description().base.as_ref()?;
    OpenSet::open_among(STORAGE, devices, places, METADATA_LIMIT_DEFAULT).err()
}

/// An unsealed stripe in a directory is neither a set nor a damaged one: no backup has sealed it
/// yet.
fn is_unfinished(stripe: &StripeGlance, named: &[PathBuf]) -> bool {
    let partial = stripe.location.to_string_lossy().ends_with(PARTIAL_SUFFIX);
    let unsealed = matches!(stripe.fault, Some(EngineError::NotSealed { .. }));
    partial && unsealed && !named.contains(&stripe.location)
}

/// One set, as far as it can be read.
pub struct SetView {
    /// Its id.
    pub id: SetId,
    /// How many stripes it has.
    pub stripe_count: u16,
    /// Those that were found.
    pub stripes: Vec<StripeView>,
    /// What it says about itself, if that can be read.
    pub description: Option<SetDescription>,
    /// Why the set cannot be restored; `None` if it can.
    pub fault: Option<EngineError>,
    /// Its files with parity.
    pub parities: Vec<StripeView>,
    /// The devices that were seen, and where the sets below it may be.
    seen: (Vec<PathBuf>, Vec<PathBuf>),
}

/// One stripe, or one file with parity, wherever it was found.
pub struct StripeView {
    /// Counted from 0. That of parity is behind those of the stripes.
    pub index: u16,
    /// Its file.
    pub location: PathBuf,
    /// Whether that exists.
    pub is_there: bool,
    /// What is wrong with it.
    pub fault: Option<String>,
}

impl SetView {
    /// The set of these devices, together with its devices in other places. It makes all checks
    /// that `info` has time for: seals, footers, sibling stripes. The sets below it may be in
    /// `places`, too.
    fn new(
        id: SetId,
        stripes: &[StripeGlance],
        (devices, places): (&[PathBuf], &[PathBuf]),
    ) -> Self {
        let fault = match FoundSet::whole(STORAGE, devices, METADATA_LIMIT_DEFAULT) {
            Ok(set) => {
                let fault = base_fault(&set, devices, places);
                return Self {
                    fault,
                    seen: (devices.to_vec(), places.to_vec()),
                    ..Self::whole(&set)
                };
            }
            Err(fault) => fault,
        };
        let surveyed = Survey::of_any(STORAGE, devices, METADATA_LIMIT_DEFAULT);
        let view = match &surveyed {
            Ok(survey) => Self::surveyed(survey, stripes),
            // There are two copies of a stripe: show what is there, and trust neither copy.
            Err(_) => Self::glanced(id, stripes),
        };
        Self {
            fault: Some(fault),
            ..view
        }
    }

    /// The worse of an ending and that of this set.
    pub fn worse_than(&self, ending: Ending) -> Ending {
        match &self.fault {
            Some(fault) => worse(ending, fault),
            None if ending == Ending::Done && self.is_mended() => Ending::Warnings,
            None => ending,
        }
    }

    /// Whether something of the set is lost, and can be rebuilt.
    pub fn is_mended(&self) -> bool {
        let mut devices = self.stripes.iter().chain(&self.parities);
        self.fault.is_none() && devices.any(|device| device.fault.is_some())
    }

    fn whole(set: &FoundSet) -> Self {
        let lost = set.lost();
        let view = |index: u16, location: PathBuf| {
            let lost = lost.iter().find(|device| device.number == index + 1);
            let fault = lost.map(|device| device.fault.clone());
            StripeView {
                index,
                is_there: fault.is_none() || location.exists(),
                location,
                fault,
            }
        };
        let stripe =
            |stripe: &OpenStripe| view(stripe.header().stripe.0, stripe.location().to_owned());
        let lost_parities = lost.iter().filter(|device| device.is_parity);
        let lost_parities = lost_parities.map(|it| (it.number, PathBuf::from(&it.location)));
        let mut parities: Vec<_> = set.parities().into_iter().chain(lost_parities).collect();
        parities.sort();
        let parities = parities.into_iter();
        Self {
            id: set.set_id(),
            stripe_count: fitted(set.stripes().len()),
            stripes: set.stripes().iter().map(stripe).collect(),
            description: Some(set.description().clone()),
            fault: None,
            parities: parities
                .map(|(number, path)| view(number - 1, path))
                .collect(),
            seen: Default::default(),
        }
    }

    fn surveyed(survey: &Survey, glances: &[StripeGlance]) -> Self {
        let set = survey.set();
        let count = glances.first().map_or(0, |one| one.header.stripe_count());
        let view = |index: u16| {
            let opened = set
                .stripes()
                .iter()
                .find(|one| one.header().stripe.0 == index);
            let damage: Vec<_> = survey
                .found()
                .iter()
                .filter(|damage| damage.stripe == index + 1)
                .collect();
            let listed = damage.first().map(|damage| PathBuf::from(&damage.location));
            let words = damage.iter().map(|damage| damage.fault.as_str());
            StripeView {
                index,
                location: opened
                    .map(|one| one.location().to_owned())
                    .or(listed)
                    .unwrap_or_default(),
                is_there: damage
                    .iter()
                    .all(|damage| damage.part != DamagedPart::Stripe),
                fault: (!damage.is_empty()).then(|| words.collect::<Vec<_>>().join("; ")),
            }
        };
        Self {
            id: set.set_id(),
            stripe_count: count,
            stripes: (0..count).map(view).collect(),
            description: survey.files_known().then(|| set.description().clone()),
            fault: None,
            parities: Vec::new(),
            seen: Default::default(),
        }
    }

    fn glanced(id: SetId, glances: &[StripeGlance]) -> Self {
        let view = |one: &StripeGlance| StripeView {
            index: one.header.stripe.0,
            location: one.location.clone(),
            is_there: true,
            fault: one
                .fault
                .as_ref()
                .filter(|fault| !is_locked(fault))
                .map(ToString::to_string),
        };
        let description = glances.iter().find_map(|one| one.description.clone());
        Self {
            id,
            stripe_count: glances.first().map_or(0, |one| one.header.stripe_count()),
            stripes: glances.iter().map(view).collect(),
            description,
            fault: None,
            parities: Vec::new(),
            seen: Default::default(),
        }
    }

    /// The names of a PostgreSQL cluster's relations; none if they cannot be read.
    pub fn names(&self) -> RelationNames {
        let kind = self.description.as_ref();
        let kind = kind.map(|found| &found.facts.database["kind"]);
        if self.fault.is_some() || kind.and_then(|kind| kind.as_str()) != Some(KIND) {
            return RelationNames::default();
        }
        let (devices, places) = &self.seen;
        let options = SetImageOptions::default();
        let set = OpenSet::open_among(STORAGE, devices, places, METADATA_LIMIT_DEFAULT);
        let image = set
            .map_err(OperationError::from)
            .and_then(|set| Ok(SetImage::open(Arc::new(set), &options)?));
        match image {
            Ok(image) => RelationNames::read(&AsCluster(&image)),
            // The list itself is still useful without the names.
            Err(_) => RelationNames::default(),
        }
    }

    /// Bytes of the stripes that are there. Copies of a stripe count once.
    pub fn stored_bytes(&self) -> u64 {
        let mut lengths: BTreeMap<u16, u64> = BTreeMap::new();
        let devices = self.stripes.iter().chain(&self.parities);
        for stripe in devices.filter(|stripe| stripe.is_there) {
            let bytes = stripe.location.metadata().map_or(0, |file| file.len());
            let length = lengths.entry(stripe.index).or_default();
            *length = bytes.max(*length);
        }
        lengths.into_values().sum()
    }
}
