//! Rows of the history that are made from sets, because the catalog lacks them. A set says when it
//! was made, how long it took, how it is stored, and how many bytes it has. It knows neither waits
//! nor warnings, and runs that made no set are lost.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::json;
use windlass_engine::media::Facts;
use windlass_engine::{
    EngineError, FoundSet, METADATA_LIMIT_DEFAULT, PARTIAL_SUFFIX, SetEntry, SetList, SetState,
    glance, to_json,
};
use windlass_repository::{CatalogRun, RunState};

use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::places::{self, Configured, Identity};
use crate::stored::is_missing;

/// The runs that made sets, and the places that could not be searched, with the reason.
#[derive(Default)]
pub(super) struct Rebuilt {
    pub(super) runs: Vec<CatalogRun>,
    pub(super) unread: Vec<(PathBuf, OperationError)>,
}

/// The runs that made the sets of these places. A place that cannot be searched takes nothing from
/// the others. Fails if none of them can be.
pub(super) fn runs_of(
    places: &[PathBuf],
    configured: &[Configured],
) -> Result<Rebuilt, OperationError> {
    let (list, mut unread) = listed(places);
    let Some(list) = list else {
        return match unread.is_empty() {
            true => Ok(Rebuilt::default()),
            false => Err(unread.swap_remove(0).1),
        };
    };
    let mut runs = Vec::new();
    for set in list.sets.iter().filter(|set| was_made(set)) {
        let facts = facts_of(set)?;
        runs.extend(facts.map(|facts| run_of(set, &facts, configured)));
    }
    Ok(Rebuilt { runs, unread })
}

/// The sets of those places that can be listed, if there is one, and why others cannot.
fn listed(places: &[PathBuf]) -> (Option<SetList>, Vec<(PathBuf, OperationError)>) {
    let mut unread = Vec::<(PathBuf, OperationError)>::new();
    let mut there = places.to_vec();
    // A list passes over a directory that does not exist.
    there.retain(|place| match is_missing(place) {
        true => {
            let location = place.display().to_string();
            unread.push((place.clone(), EngineError::NoSet { location }.into()));
            false
        }
        false => true,
    });
    if let Ok(list) = places::list(&there) {
        return ((!there.is_empty()).then_some(list), unread);
    }
    there.retain(
        |place| match places::list(std::slice::from_ref(place)).err() {
            None => true,
            Some(error) => {
                unread.push((place.clone(), error));
                false
            }
        },
    );
    match places::list(&there) {
        Ok(list) => ((!there.is_empty()).then_some(list), unread),
        Err(error) => {
            unread.extend(there.pop().map(|place| (place, error)));
            (None, unread)
        }
    }
}

/// Whether the run that made a set got to its end: devices get their names when all of them are
/// sealed. A device may be lost since.
fn was_made(set: &SetEntry) -> bool {
    let is_named = |path: &PathBuf| !path.to_string_lossy().ends_with(PARTIAL_SUFFIX);
    !matches!(set.state, SetState::Unfinished) && set.locations().iter().any(is_named)
}

/// What a set says of its run. Each stripe has all of it, and parity makes up for all stripes.
fn facts_of(set: &SetEntry) -> Result<Option<Facts>, OperationError> {
    // Without a key, or a footer, nothing does.
    if set.about.is_none() {
        return Ok(None);
    }
    for stripe in &set.stripes {
        let stripe = std::slice::from_ref(&stripe.location);
        let glances = glance(STORAGE, stripe, METADATA_LIMIT_DEFAULT)?;
        let found = glances.into_iter().find_map(|one| one.description);
        if let Some(description) = found {
            return Ok(Some(description.facts));
        }
    }
    let whole = FoundSet::whole(STORAGE, &set.locations(), METADATA_LIMIT_DEFAULT).ok();
    Ok(whole.map(|whole| whole.description().facts.clone()))
}

/// The bytes of a set, if all of its devices are there.
fn stored_bytes(set: &SetEntry) -> Option<i64> {
    let stripes: BTreeSet<_> = set.stripes.iter().map(|one| one.index.0).collect();
    let is_whole = stripes.len() == usize::from(set.stripe_count) && set.parity.lost == 0;
    is_whole.then(|| i64::try_from(set.bytes()).ok()).flatten()
}

fn run_of(set: &SetEntry, facts: &Facts, configured: &[Configured]) -> CatalogRun {
    let identity = Identity::of_facts(&facts.database);
    let millis = |text: &str| text.parse().ok().map(Timestamp::as_millisecond);
    let began = millis(&facts.started).unwrap_or(set.begun_nanos / 1_000_000);
    let name = configured.iter().find(|one| is_of(one, set, &identity));
    let name = name.map_or(identity.name(), |one| &one.name).to_owned();
    let places = set.stripes.iter().filter_map(|one| one.location.parent());
    let places = places.map(|place| json!({"place": place.display().to_string()}));
    let options = &facts.options;
    let about = set.about.as_ref();
    let ended = millis(&facts.finished);
    let span = ended.map(|ended| Timestamp::from_millisecond(ended - began));
    CatalogRun {
        is_rebuilt: true,
        key: Some(identity.key().to_owned()),
        database: Some(identity.name().to_owned()),
        ended,
        state: RunState::Done,
        tool: facts.tool.clone(),
        set_id: Some(set.set_id.to_string()),
        set_type: to_json(&facts.backup_type).as_str().map(str::to_owned),
        base: about.and_then(|about| Some(about.base?.to_string())),
        bytes_read: about.and_then(|about| i64::try_from(about.read_bytes?).ok()),
        bytes_written: stored_bytes(set),
        seconds: span.and_then(Result::ok).map(seconds),
        settings: json!({
            "options": options,
            "buffers": options["buffers"],
            "transfer_bytes": options["transfer_bytes"],
            "devices": places.collect::<Vec<_>>(),
        })
        .to_string(),
        ..CatalogRun::new("backup", "backup", (&name, &name), began)
    }
}

/// A time since 1970 as a length.
fn seconds(span: Timestamp) -> f64 {
    span.as_duration().as_secs_f64()
}

/// Whether a set is of a configured database: it lies in its place, and is of its kind.
fn is_of(configured: &Configured, set: &SetEntry, of: &Identity) -> bool {
    let lies = |place: &PathBuf| set.locations().iter().any(|one| one.starts_with(place));
    configured.may_be(of) && (configured.is_at(of) || configured.places.iter().any(lies))
}
