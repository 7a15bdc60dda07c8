//! The runs of each database, and what they say about it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass_repository::{CatalogRun, RunState};

use super::changes::{self, Break};
use super::figures::{is_backup, is_proof, is_same, rate, ratio};
use super::schedule::{self, Gap};
use crate::places::Configured;

/// What a backup of the log is called.
const LOG: &str = "log";

/// A run, with the name of its database.
#[derive(Clone, Debug)]
pub struct Shown {
    /// What its database is called.
    pub database: String,
    /// The run.
    pub run: CatalogRun,
}

/// What the runs of one database say about it.
#[derive(Clone, Debug)]
pub struct DatabaseHistory {
    /// What it is called.
    pub name: String,
    /// The newest backup of each type.
    pub newest: Vec<Newest>,
    /// What was committed before this moment can be restored, as far as the history knows.
    pub restorable: Option<Timestamp>,
    /// When it was last shown that it can be restored.
    pub proven: Option<Proof>,
    /// Where rate or ratio changed.
    pub breaks: Vec<Break>,
    /// Where a backup is missing.
    pub gaps: Vec<Gap>,
    /// Runs that failed, were killed or interrupted since the last backup.
    pub failed_since: usize,
}

/// The newest backup of a type.
#[derive(Clone, Debug)]
pub struct Newest {
    /// `full`, `diff`, `incr` or `log`.
    pub set_type: String,
    /// When it began. What is committed later need not be in it.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Bytes of the database for each second.
    pub rate: Option<f64>,
    /// Bytes of the database for each stored byte.
    pub ratio: Option<f64>,
}

/// A run that showed that the database can be restored.
#[derive(Clone, Debug)]
pub struct Proof {
    /// When it ended.
    pub at: Timestamp,
    /// `drill` or `restore`.
    pub command: String,
    /// The set.
    pub set_id: Option<String>,
}

/// The runs of one database.
pub(super) struct Group {
    pub(super) name: String,
    /// Every word that means it.
    words: Vec<String>,
    runs: Vec<CatalogRun>,
}

/// Runs by database. A run that does not say which one belongs to that of the same series, or makes
/// a group of its own.
pub(super) fn groups(runs: Vec<CatalogRun>, configured: &[Configured]) -> Vec<Group> {
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    for run in &runs {
        if let (Some(key), "backup") = (&run.key, run.command.as_str()) {
            keys.insert(run.series.clone(), key.clone());
        }
    }
    let mut groups: Vec<(String, Group)> = Vec::new();
    for run in runs {
        let key = run.key.clone().or_else(|| keys.get(&run.series).cloned());
        let key = key.unwrap_or_else(|| run.series.clone());
        let index = groups.iter().position(|(other, _)| *other == key);
        let index = index.unwrap_or_else(|| {
            let name = name_of(&run, configured);
            let (words, runs) = (vec![key.clone()], Vec::new());
            groups.push((key, Group { name, words, runs }));
            groups.len() - 1
        });
        groups[index].1.add(run, configured);
    }
    let mut groups: Vec<_> = groups.into_iter().map(|(_, group)| group).collect();
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    groups
}

/// What the database of a run is called.
fn name_of(run: &CatalogRun, configured: &[Configured]) -> String {
    let is_configured = |name: &str| configured.iter().any(|one| one.name == name);
    let is_guessed = run.command != "backup" || run.operation == LOG;
    let of_backup = !is_guessed || is_configured(&run.series);
    match (&run.database, of_backup) {
        (Some(name), false) => name.clone(),
        (_, true) => run.subject.clone(),
        (None, false) => run.series.clone(),
    }
}

impl Group {
    fn add(&mut self, run: CatalogRun, configured: &[Configured]) {
        if run.command == "backup" {
            // A backup of the log, and one that did not get as far as the database, call it by a
            // guess.
            if run.key.is_some() && run.operation != LOG {
                self.name = name_of(&run, configured);
            }
            self.words.extend([run.subject.clone(), run.series.clone()]);
        }
        self.words.extend(run.database.clone());
        self.words.sort();
        self.words.dedup();
        self.runs.push(run);
    }

    /// Whether a user may mean it by this word.
    pub(super) fn is_called(&self, word: &str) -> bool {
        let words = self.words.iter().chain([&self.name]);
        let stem = |name: &str| name.rsplit_once('.').map(|(stem, _)| stem.to_owned());
        words
            .into_iter()
            .any(|name| is_same(word, name) || stem(name).as_deref() == Some(word))
    }

    pub(super) fn shown(self) -> impl Iterator<Item = Shown> {
        let name = self.name;
        self.runs.into_iter().map(move |run| Shown {
            database: name.clone(),
            run,
        })
    }

    pub(super) fn summary(&self, now: Timestamp) -> DatabaseHistory {
        let newest: Vec<_> = ["full", "diff", "incr", "log"]
            .into_iter()
            .filter_map(|set_type| self.newest(set_type))
            .collect();
        let good = |run: &&CatalogRun| is_backup(run);
        let last = self.runs.iter().filter(good).map(|run| run.began).max();
        let failed = |run: &&CatalogRun| {
            let is_later = last.is_none_or(|last| run.began > last);
            matches!(run.operation.as_str(), "backup" | "log") && run.state.is_failure() && is_later
        };
        DatabaseHistory {
            name: self.name.clone(),
            restorable: newest.iter().map(|one| one.began).max(),
            proven: self.proven(),
            breaks: changes::breaks(&self.runs),
            gaps: schedule::gaps(&self.runs, now),
            failed_since: self.runs.iter().filter(failed).count(),
            newest,
        }
    }

    fn newest(&self, set_type: &str) -> Option<Newest> {
        let of_type =
            |run: &&CatalogRun| is_backup(run) && run.set_type.as_deref() == Some(set_type);
        let newest = self
            .runs
            .iter()
            .filter(of_type)
            .max_by_key(|run| run.ended)?;
        Some(Newest {
            set_type: set_type.to_owned(),
            began: Timestamp::from_millisecond(newest.began).ok()?,
            ended: Timestamp::from_millisecond(newest.ended?).ok()?,
            rate: rate(newest),
            ratio: ratio(newest),
        })
    }

    fn proven(&self) -> Option<Proof> {
        let proofs = self.runs.iter().filter(|run| is_proof(run));
        let last = proofs.max_by_key(|run| run.ended)?;
        Some(Proof {
            at: Timestamp::from_millisecond(last.ended?).ok()?,
            command: last.command.clone(),
            set_id: last.set_id.clone(),
        })
    }
}

impl Shown {
    /// Bytes that were read in each second.
    pub fn rate(&self) -> Option<f64> {
        rate(&self.run)
    }

    /// Bytes that were read for each byte that was written.
    pub fn ratio(&self) -> Option<f64> {
        ratio(&self.run).filter(|_| self.run.set_type.is_some())
    }

    /// Whether the run is over without having done what it is for.
    pub fn is_failure(&self) -> bool {
        self.run.state.is_failure()
    }

    /// Whether the run is still going on.
    pub fn is_running(&self) -> bool {
        self.run.state == RunState::Running
    }
}
