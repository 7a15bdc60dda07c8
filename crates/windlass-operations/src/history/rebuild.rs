//! Rows of the history that are made from sets, because the catalog lacks them. A set says when it
//! was made, how long it took, how it is stored, and how many bytes it has. It knows neither waits
//! nor warnings, and runs that made no set are lost.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::json;
use windlass_engine::media::Facts;
use windlass_engine::{EngineError, METADATA_LIMIT_DEFAULT, SetEntry, SetState, glance, to_json};
use windlass_repository::{CatalogRun, RunState};

use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::places::{self, Configured, Identity};
use crate::stored::is_missing;

/// The runs that made the sets of these places.
pub(super) fn runs_of(
    places: &[PathBuf],
    configured: &[Configured],
) -> Result<Vec<CatalogRun>, OperationError> {
    // A list passes over a directory that does not exist.
    if let Some(place) = places.iter().find(|place| is_missing(place)) {
        let location = place.display().to_string();
        return Err(EngineError::NoSet { location }.into());
    }
    let list = places::list(places)?;
    let is_whole = |set: &&SetEntry| matches!(set.state, SetState::Sealed);
    let sets = list.sets.iter().filter(is_whole);
    let mut runs = Vec::new();
    for set in sets {
        // One stripe has the whole description.
        let first = set.locations().into_iter().take(1).collect::<Vec<_>>();
        let glances = glance(STORAGE, &first, METADATA_LIMIT_DEFAULT)?;
        let description = glances.into_iter().find_map(|one| one.description);
        runs.extend(description.map(|about| run_of(set, &about.facts, configured)));
    }
    Ok(runs)
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
        bytes_written: i64::try_from(set.bytes()).ok(),
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
