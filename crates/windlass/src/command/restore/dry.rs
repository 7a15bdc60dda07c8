//! `windlass restore --dry-run`: what a restore would read and write, and whether it is allowed to.
//!
//! Invariant: no directory is made, and nothing is removed.

use std::path::{Path, PathBuf};

use serde_json::json;
use windlass_engine::{OpenSet, OpenStripe, show_size};
use windlass_lab::{Prediction, Speeds, to_f64};
use windlass_postgres::RestorePlan;

use super::super::check::{show_time, targets};
use crate::checks::Checks;
use crate::cli::{Global, Layout, Restore};
use crate::exit::{Code, Failure};
use crate::foretold::{self, State};
use crate::outputs::existing;
use crate::probed::Ends;
use crate::{output, outputs, places, privilege, requests, words};
use windlass_operations::{Held, ProcessUse, RestoreRequest, cluster_owner, parent};

pub fn run(global: &Global, arguments: &Restore) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let request = requests::restore(global, arguments)?;
    let set = places::open(&caller, &request.set)?;
    let mut checks = Checks::default();
    let description = set.description();
    checks.ok("set", sealed(&set));
    let places = match Held::of(description)? {
        Held::Postgres => postgres(&mut checks, &request, &set),
        Held::Sqlite => sqlite(&mut checks, arguments, &set),
    };
    let places = places.unwrap_or_else(|failure| {
        checks.failure("target", &failure);
        Vec::new()
    });
    let bytes: u64 = description.files.0.iter().map(|file| file.bytes).sum();
    if let Some(place) = places.first().and_then(|place| existing(place)) {
        targets::room_for_files(&mut checks, place, bytes);
    }
    let outputs = outputs::of_set(&set)?;
    for place in &places {
        if let Err(error) = outputs.check(place) {
            checks.failure("target", &error.into());
        }
    }
    targets::check_watching(&mut checks, (global, &arguments.watching), &outputs)?;
    let prediction = predict(arguments, &set, &places, bytes)?;
    let code = output::degraded(checks.code());
    if global.json {
        let document = json!({
            "dry_run": true,
            "set_id": set.set_id().to_string(),
            "read_bytes": set.stripe_bytes(),
            "bytes": bytes,
            "into": places,
            "prediction": prediction.as_ref().map(foretold::document),
            "checks": checks.document(),
            "exit_code": code.number(),
        });
        output::line(&document.to_string());
        return Ok(code);
    }
    checks.print(global);
    if global.quiet {
        return Ok(code);
    }
    let (read, written) = (show_size(set.stripe_bytes()), show_size(bytes));
    output::line(&format!("would read    {read} of set {}", short_id(&set)));
    for place in &places {
        output::line(&format!("would write   {}", place.display()));
    }
    output::line(&format!(
        "would hold    {written} at most: zeros become holes"
    ));
    show_time(prediction.as_ref());
    output::line("nothing was changed");
    Ok(code)
}

/// Which set it is, as other commands say it.
fn sealed(set: &OpenSet) -> String {
    let facts = &set.description().facts;
    let name = facts.database["name"].as_str().unwrap_or("a database");
    let (id, begun) = (short_id(set), words::moment_of_begin(&facts.started));
    format!("set {id} of {name}, begun {begun}, is sealed, and its indexes are whole")
}

/// The beginning of the set's id, as lists show it.
fn short_id(set: &OpenSet) -> String {
    set.set_id().to_string().chars().take(8).collect()
}

/// Predicts how long it would take, if the storage was probed.
fn predict(
    arguments: &Restore,
    set: &OpenSet,
    places: &[PathBuf],
    bytes: u64,
) -> Result<Option<Prediction>, Failure> {
    let emulation = requests::emulation(&arguments.buffers)?;
    let state = State::to_read();
    let facts = &set.description().facts;
    let ends = Ends {
        database: places.iter().filter_map(|place| existing(place)).collect(),
        stripes: set.stripes().iter().map(OpenStripe::location).collect(),
        is_backup: false,
        emulation: &emulation,
    };
    let codec = facts.options["compress"].as_str();
    let codec = codec.and_then(|text| crate::compression::parse_codec(text).ok());
    let speeds = Speeds::probed(state.directory())?;
    let request = requests::request(&arguments.buffers, &Layout::default())?;
    Ok(codec.and_then(|codec| {
        let before = foretold::Before {
            bytes,
            files: set.stripes().len(),
            codec,
            ratio: to_f64(bytes) / to_f64(set.stripe_bytes()).max(1.0),
            speeds,
            request,
            rates: (arguments.max_rate, None),
        };
        foretold::before(state.directory(), &ends, before)
    }))
}

fn postgres(
    checks: &mut Checks,
    request: &RestoreRequest,
    set: &OpenSet,
) -> Result<Vec<PathBuf>, Failure> {
    let description = set.description();
    let owner = cluster_owner(&description.facts.database)?;
    let request = request.cluster_request();
    let plan = privilege::as_user(ProcessUse::Own, owner, || {
        let (facts, files) = (&description.facts, &description.files);
        Ok::<_, Failure>(RestorePlan::new(facts, files, &request)?)
    })?;
    let spaces = plan.tablespaces.iter().map(|space| space.becomes.clone());
    let places: Vec<_> = std::iter::once(plan.into.clone()).chain(spaces).collect();
    for place in &places {
        // Root creates the last directory of the path itself, and gives it to the owner.
        match privilege::is_root() {
            true => checks.ok("target", format!("{} would be made", place.display())),
            false => writable(checks, place),
        }
    }
    Ok(places)
}

fn sqlite(
    checks: &mut Checks,
    arguments: &Restore,
    set: &OpenSet,
) -> Result<Vec<PathBuf>, Failure> {
    let above = parent(&arguments.into);
    privilege::as_user(ProcessUse::Own, privilege::owner(above), || {
        let outputs = outputs::of_set(set)?;
        let (into, force) = (&arguments.into, arguments.force);
        let plan = windlass_sqlite::restore_layout(set.description(), into, force, &outputs)?;
        for path in &plan.leftovers {
            checks.warning(
                "target",
                format!("{} would be replaced or removed", path.display()),
                "Leave out --force, or restore to another path.",
            );
        }
        // The whole path, also of a bare name: a reader sees which directory is meant.
        let target = std::path::absolute(&plan.target).unwrap_or(plan.target);
        writable(checks, parent(&target));
        Ok(vec![target])
    })
}

fn writable(checks: &mut Checks, place: &Path) {
    let found = existing(place).unwrap_or(Path::new("/"));
    match targets::is_writable(found) {
        true => checks.ok("target", format!("{} can be written to", found.display())),
        false => checks.failed(
            "target",
            format!("{} cannot be written to", found.display()),
            "Give the directory to the user who restores, or name another one with --into.",
        ),
    }
}
