//! How much a backup that builds on an earlier set would read, without making it.
//!
//! The summaries that there are now say it up to where they end. The backup itself waits until they
//! cover everything.

use std::collections::HashSet;
use std::sync::Arc;

use super::changes::{Changes, Proof, Witnessed};
use super::since::SUMMARIES_SINCE;
use crate::chain::{ChainBase, ChainFault};
use crate::cluster::{Cluster, open};
use crate::error::PostgresError;
use crate::scan::{ScanRules, scan};
use crate::session::Session;
use crate::summaries::blocks::ChangedBlocks;
use crate::summaries::{self, Uncovered};
use crate::wal::WalRange;
use crate::witness::ChangeWitness;
use crate::written::reached;

/// What a backup would take that builds on an earlier set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedChanges {
    /// Bytes of files that would be read, without the log.
    pub read_bytes: u64,
    /// What says which blocks changed: `summaries`, `map` (a witness saw all writes) or `pages`
    /// (everything is read, and the pages say themselves whether they have changed).
    pub by: &'static str,
}

impl Cluster {
    /// How much a backup would read now that builds on this set, or why it cannot build on it.
    pub fn expect_changes(
        &mut self,
        base: &Arc<ChainBase>,
        witness: Option<Arc<dyn ChangeWitness>>,
    ) -> Result<Result<ExpectedChanges, ChainFault>, PostgresError> {
        let mut opened = None;
        let session = match &mut self.session {
            Some(session) => session,
            None => opened.insert(open(&self.conninfo)?),
        };
        let facts = &self.facts;
        let listing = scan(&ScanRules::of(facts))?.listing;
        let witnessed = witness
            .zip(base.change_mark().cloned())
            .filter(|(witness, since)| witness.has_seen(since))
            .map(|(witness, since)| Witnessed {
                witness,
                since,
                root: facts.data_directory.clone(),
            });
        let proof = match (witnessed, facts.major() < SUMMARIES_SINCE) {
            (Some(witnessed), _) => Ok(Proof::Witnessed(witnessed)),
            (None, true) => of_pages(facts.major(), facts.data_checksums, base, session)?,
            (None, false) => {
                let end = reached(session)?;
                let ranges = base.path_to(&facts.data_directory, (facts.timeline, end));
                match ranges {
                    Ok(ranges) => of_summaries(&facts.data_directory, ranges, session)?,
                    Err(fault) => Err(fault),
                }
            }
        };
        Ok(proof.map(|proof| {
            let mut changes = Changes {
                base: Arc::clone(base),
                timeline: facts.timeline,
                proof,
                block_bytes: facts.block_bytes.into(),
                segment_blocks: facts.relation_segment_blocks.into(),
            };
            changes.look_at(&listing);
            let entries = listing.entries().iter();
            let read = entries.map(|entry| {
                let share = changes.share(listing.path(entry), entry);
                share.bytes(entry.bytes)
            });
            ExpectedChanges {
                read_bytes: read.sum(),
                by: changes.proof.name(),
            }
        }))
    }
}

fn setting(session: &mut Session, name: &str) -> Result<bool, PostgresError> {
    let sql = format!("SELECT current_setting('{name}')");
    let value: String = session.value("ask for a setting", &sql)?;
    Ok(value == "on")
}

/// Whether the pages themselves say that they changed.
fn of_pages(
    major: u32,
    has_checksums: bool,
    base: &ChainBase,
    session: &mut Session,
) -> Result<Result<Proof, ChainFault>, PostgresError> {
    let is_logged = has_checksums || setting(session, "wal_log_hints")?;
    let which = match (base.hints_logged(), is_logged) {
        (true, true) => return Ok(Ok(Proof::Pages(HashSet::new()))),
        (false, _) => "at the time of the base",
        _ => "now",
    };
    Ok(Err(ChainFault::HintsUnlogged { major, which }))
}

/// What the summaries say so far.
fn of_summaries(
    data_directory: &std::path::Path,
    mut ranges: Vec<WalRange>,
    session: &mut Session,
) -> Result<Result<Proof, ChainFault>, PostgresError> {
    if !setting(session, "summarize_wal")? {
        return Ok(Err(ChainFault::SummariesOff));
    }
    let all = summaries::list(data_directory)?;
    loop {
        match summaries::covering(&all, &ranges) {
            Ok(chosen) => {
                let changed: ChangedBlocks = match summaries::read(&chosen) {
                    Ok(changed) => changed,
                    Err(error) => {
                        let what = error.to_string();
                        return Ok(Err(ChainFault::Summary { what }));
                    }
                };
                return Ok(Ok(Proof::Blocks(changed)));
            }
            Err(Uncovered {
                timeline,
                at,
                next: Some(next),
            }) => return Ok(Err(ChainFault::Gap { timeline, at, next })),
            // The server still writes the rest.
            Err(Uncovered { timeline, at, .. }) => {
                let last = ranges.iter().position(|range| range.timeline == timeline);
                ranges.truncate(last.map_or(0, |last| last + 1));
                if let Some(range) = ranges.last_mut() {
                    range.end = at;
                }
            }
        }
    }
}
