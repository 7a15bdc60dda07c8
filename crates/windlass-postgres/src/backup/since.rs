//! Finds out what changed since the base of a backup, when the backup has begun.
//!
//! Invariant: an answer covers the whole log from the start of the base to the start of the backup,
//! or there is none.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_engine::BackupRun;

use super::changes::{Changes, Proof};
use super::running::Backup;
use crate::chain::{ChainBase, ChainFault};
use crate::control::Control;
use crate::error::PostgresError;
use crate::lsn::{Lsn, Timeline};
use crate::summaries::blocks::ChangedBlocks;
use crate::summaries::{self, Uncovered};
use crate::wal::WalRange;

/// The first version that writes summaries.
pub(super) const SUMMARIES_SINCE: u32 = 17;
/// How long the server may write no summary before the backup does without. PostgreSQL's own
/// incremental backups give up after the same time.
const SUMMARY_WAIT: Duration = Duration::from_secs(60);
const SUMMARY_PAUSE: Duration = Duration::from_millis(20);

impl Backup<'_> {
    /// What changed since the base that was asked for. None if everything has to be read: if there
    /// is no base, or if nobody knows what changed and the user does not insist.
    pub(super) fn changes(
        &mut self,
        run: &BackupRun,
        control: &Control,
        start: Lsn,
    ) -> Result<Option<Changes>, PostgresError> {
        let Some(chain) = &self.request.chain else {
            return Ok(None);
        };
        let (base, is_strict) = (Arc::clone(&chain.base), chain.is_strict);
        let at = (control.checkpoint_timeline, start);
        match self.proof(run, &base, at) {
            Ok(proof) => Ok(Some(Changes {
                base,
                timeline: at.0,
                proof,
                block_bytes: self.cluster.block_bytes.into(),
                segment_blocks: self.cluster.relation_segment_blocks.into(),
            })),
            Err(PostgresError::Chain(fault)) if !is_strict => {
                self.instead = Some(fault);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn proof(
        &mut self,
        run: &BackupRun,
        base: &ChainBase,
        at: (Timeline, Lsn),
    ) -> Result<Proof, PostgresError> {
        base.check(self.cluster).map_err(PostgresError::Chain)?;
        let ranges = base.path_to(&self.cluster.data_directory, at);
        let ranges = ranges.map_err(PostgresError::Chain)?;
        let major = self.cluster.major();
        if major < SUMMARIES_SINCE {
            let which = match (base.hints_logged(), self.hints_logged) {
                (true, true) => return Ok(Proof::Pages(HashSet::new())),
                (false, _) => "at the time of the base",
                _ => "now",
            };
            let unlogged = ChainFault::HintsUnlogged { major, which };
            return Err(PostgresError::Chain(unlogged));
        }
        let summarizes: String = self.session.value(
            "ask for summarize_wal",
            "SELECT current_setting('summarize_wal')",
        )?;
        if summarizes != "on" {
            return Err(PostgresError::Chain(ChainFault::SummariesOff));
        }
        run.progress().set_phase("waiting for WAL summaries");
        self.summaries(run, &ranges).map(Proof::Blocks)
    }

    /// Waits until the summaries cover these ranges, and reads them.
    fn summaries(
        &mut self,
        run: &BackupRun,
        ranges: &[WalRange],
    ) -> Result<ChangedBlocks, PostgresError> {
        let mut seen: Option<(Uncovered, Instant)> = None;
        loop {
            let all = summaries::list(&self.cluster.data_directory)?;
            let missing = match summaries::covering(&all, ranges) {
                Ok(chosen) => {
                    return summaries::read(&chosen).map_err(|error| {
                        let what = error.to_string();
                        PostgresError::Chain(ChainFault::Summary { what })
                    });
                }
                Err(missing) => missing,
            };
            let Uncovered { timeline, at, next } = missing;
            if let Some(next) = next {
                let gap = ChainFault::Gap { timeline, at, next };
                return Err(PostgresError::Chain(gap));
            }
            let since = match seen {
                Some((before, since)) if before == missing => since,
                _ => Instant::now(),
            };
            seen = Some((missing, since));
            if since.elapsed() > SUMMARY_WAIT {
                let seconds = SUMMARY_WAIT.as_secs();
                let behind = ChainFault::Behind {
                    timeline,
                    at,
                    seconds,
                };
                return Err(PostgresError::Chain(behind));
            }
            run.cancel().check()?;
            self.session.idle(SUMMARY_PAUSE)?;
        }
    }
}
