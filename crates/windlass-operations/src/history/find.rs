//! What is asked of the history, and what it answers.

use std::path::PathBuf;

use jiff::Timestamp;
use windlass_lab::chart::PAGE;
use windlass_repository::{Catalog, CatalogRun};

use super::error::HistoryError;
use super::record::{damaged, is_running};
use super::schedule::{self, ClockJump};
use super::summary::{self, DatabaseHistory, Shown};
use super::{page, rebuild};
use crate::caller::Caller;
use crate::error::OperationError;
use crate::nearest::nearest;
use crate::outputs::outputs;
use crate::places::Configured;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct HistoryRequest {
    /// The database: a configured name, the name that its sets have, its path or its directory.
    pub database: Option<String>,
    /// Only runs that began since then.
    pub since: Option<Timestamp>,
    /// At most so many runs, the newest.
    pub limit: Option<usize>,
    /// Only runs that did not do what they are for.
    pub failed: bool,
    /// Whether to look for sets that the history lacks, in the places of the configuration.
    pub rebuild: bool,
    /// Places with sets that the history may lack.
    pub from: Vec<PathBuf>,
    /// Where to write a page with charts.
    pub page: Option<PathBuf>,
    /// The configured databases.
    pub configured: Vec<Configured>,
}

/// What the history answers.
#[derive(Debug)]
pub struct HistoryOutcome {
    /// The file.
    pub path: PathBuf,
    /// When it was made.
    pub made: Timestamp,
    /// How many runs were added from sets.
    pub added: usize,
    /// Places that could not be searched for sets, and why.
    pub unread: Vec<(PathBuf, OperationError)>,
    /// Each database.
    pub databases: Vec<DatabaseHistory>,
    /// The runs that were asked for, the oldest first.
    pub runs: Vec<Shown>,
    /// How many more there are.
    pub left_out: usize,
    /// Where the clock went back.
    pub jumps: Vec<ClockJump>,
    /// When this was found out.
    pub now: Timestamp,
}

/// Answers.
pub fn history(
    caller: &Caller,
    request: &HistoryRequest,
) -> Result<HistoryOutcome, OperationError> {
    let now = Timestamp::now();
    let answered = caller.history.with(
        |catalog| {
            let (added, unread) = match complete(catalog, request) {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            };
            let made = Timestamp::from_millisecond(catalog.made_millis()?);
            let runs = catalog.runs(is_running)?;
            let path = catalog.path().to_owned();
            Ok(Ok((path, made.unwrap_or(now), added, unread, runs)))
        },
        damaged(caller),
    );
    let answered = answered.ok_or(HistoryError::NoDirectory)?;
    let (path, made, added, unread, runs) = answered.map_err(HistoryError::from)??;
    let jumps = schedule::jumps(&runs);
    let groups = summary::groups(runs, &request.configured);
    let groups = match &request.database {
        None => groups,
        Some(word) => wanted(groups, word)?,
    };
    let databases: Vec<_> = groups.iter().map(|group| group.summary(now)).collect();
    let mut shown: Vec<_> = groups.into_iter().flat_map(|one| one.shown()).collect();
    shown.sort_by_key(|run| (run.run.began, run.run.row));
    let since = request.since.map_or(i64::MIN, Timestamp::as_millisecond);
    shown.retain(|run| run.run.began >= since && (!request.failed || run.run.state.is_failure()));
    let left_out = shown
        .len()
        .saturating_sub(request.limit.unwrap_or(usize::MAX));
    if let Some(path) = &request.page {
        let page = page::page(&databases, &shown, now);
        outputs().replace(path, &PAGE, page.as_bytes(), 0o644)?;
    }
    Ok(HistoryOutcome {
        path,
        made,
        added,
        unread,
        databases,
        runs: shown.split_off(left_out),
        left_out,
        jumps,
        now,
    })
}

/// The groups that a word means.
fn wanted(groups: Vec<summary::Group>, word: &str) -> Result<Vec<summary::Group>, HistoryError> {
    let names: Vec<_> = groups.iter().map(|group| group.name.clone()).collect();
    let (found, _): (Vec<_>, Vec<_>) = groups.into_iter().partition(|one| one.is_called(word));
    if !found.is_empty() {
        return Ok(found);
    }
    let near = nearest(word, names.iter().map(String::as_str));
    Err(HistoryError::Unknown {
        name: word.to_owned(),
        near: near.map(str::to_owned),
    })
}

/// How many runs were added, and the places that could not be read.
type Completed = (usize, Vec<(PathBuf, OperationError)>);

/// Adds the runs of sets that the catalog lacks: if it is asked for, and once after the catalog was
/// made, because an earlier one may be lost.
fn complete(catalog: &mut Catalog, request: &HistoryRequest) -> Result<Completed, OperationError> {
    let is_new = !catalog.is_complete().map_err(HistoryError::from)?;
    let of_configuration = request.rebuild || (is_new && request.from.is_empty());
    let (mut runs, mut unread) = (Vec::<CatalogRun>::new(), Vec::new());
    if !request.from.is_empty() {
        let found = rebuild::runs_of(&request.from, &request.configured)?;
        runs.extend(found.runs);
        unread.extend(found.unread);
    }
    if of_configuration {
        // The stripes of a set may lie in several places.
        let places = request.configured.iter().map(|one| &one.places);
        let places: Vec<_> = places.filter(|places| !places.is_empty()).collect();
        if places.is_empty() && request.rebuild && request.from.is_empty() {
            return Err(HistoryError::NoPlaces.into());
        }
        for places in places {
            match rebuild::runs_of(places, &request.configured) {
                Ok(found) => {
                    runs.extend(found.runs);
                    unread.extend(found.unread);
                }
                // It may not be mounted.
                Err(error) => unread.push((places[0].clone(), error)),
            }
        }
    }
    let added = catalog.add_sets(&runs).map_err(HistoryError::from)?;
    if of_configuration && unread.is_empty() {
        catalog.set_complete().map_err(HistoryError::from)?;
    }
    Ok((added, unread))
}
