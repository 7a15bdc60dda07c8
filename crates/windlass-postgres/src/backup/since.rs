//! Finds out what changed since the base of a backup, when the backup has begun.
//!
//! Invariant: an answer covers the whole log from the start of the base to the start of the backup,
//! or there is none.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_engine::BackupRun;
use windlass_media::fitted;

use super::changes::{Changes, Proof, Witnessed};
use super::running::Backup;
use crate::chain::{ChainBase, ChainFault};
use crate::control::{CONTROL_BYTES, CONTROL_PATH, Control};
use crate::error::PostgresError;
use crate::lsn::{Lsn, Timeline};
use crate::scan::{ScanRules, scan};
use crate::summaries::blocks::ChangedBlocks;
use crate::summaries::{self, Uncovered};
use crate::wal::WalRange;
use crate::witness::{ChangeMark, ChangeWitness};

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
            Ok(proof) => {
                self.changes_from = Some(proof.name());
                Ok(Some(Changes {
                    base,
                    timeline: at.0,
                    proof,
                    block_bytes: self.cluster.block_bytes.into(),
                    segment_blocks: self.cluster.relation_segment_blocks.into(),
                }))
            }
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
        if let Some(witnessed) = self.witnessed(base) {
            return Ok(Proof::Witnessed(witnessed));
        }
        if major < SUMMARIES_SINCE {
            let which = match (base.hints_logged(), self.hints_logged) {
                (true, true) => return Ok(Proof::Pages(HashSet::new())),
                (false, _) => "at the time of the base",
                _ => "now",
            };
            let unlogged = ChainFault::HintsUnlogged { major, which };
            return Err(PostgresError::Chain(unlogged));
        }
        if !self.summarizes()? {
            return Err(PostgresError::Chain(ChainFault::SummariesOff));
        }
        run.progress().set_phase("waiting for WAL summaries");
        self.summaries(run, &ranges).map(Proof::Blocks)
    }

    /// Whether the server writes down itself which blocks changed.
    fn summarizes(&mut self) -> Result<bool, PostgresError> {
        if self.cluster.major() < SUMMARIES_SINCE {
            return Ok(false);
        }
        let summarizes: String = self.session.value(
            "ask for summarize_wal",
            "SELECT current_setting('summarize_wal')",
        )?;
        Ok(summarizes == "on")
    }

    /// Lets the witness see all writes from now on as later than this backup, if one is needed:
    /// each write costs the server a little then. Call it before the first file is read, and behind
    /// the checkpoint of the start: what that writes is in the files then.
    pub(super) fn begin_mark(&mut self) -> Result<(), PostgresError> {
        let Some(witness) = self.request.witness.as_deref() else {
            return Ok(());
        };
        let chain = self.request.chain.as_ref();
        let base = chain.and_then(|chain| chain.base.change_mark());
        let is_asked = base.is_some_and(|since| witness.has_seen(since));
        if !is_asked && self.summarizes()? {
            return Ok(());
        }
        let begun = match witness.go_on() {
            Ok(None) => witness.begin(self.written_bytes()?),
            Ok(Some(mark)) => Ok(mark),
            Err(why) => Err(why),
        };
        match begun {
            Ok(mark) => self.mark = Some(mark),
            Err(why) => self.unseen = Some(why),
        }
        Ok(())
    }

    /// How many bytes the server writes to: its files, and its log, which may be larger.
    fn written_bytes(&mut self) -> Result<u64, PostgresError> {
        let log: i64 = self.session.value(
            "ask for max_wal_size",
            "SELECT pg_size_bytes(current_setting('max_wal_size'))",
        )?;
        // A scan that fails now fails again when its files are needed.
        let files = scan(&ScanRules::of(self.cluster));
        let files = files.map_or(0, |found| found.listing.total_bytes());
        Ok(files + fitted::<u64, _>(log))
    }

    /// The witness of all that changed since the base.
    fn witnessed(&mut self, base: &ChainBase) -> Option<Witnessed> {
        // It sees what is written now.
        self.mark.as_ref()?;
        let witness = self.request.witness.as_ref()?;
        let since = base.change_mark()?;
        if !witness.has_seen(since) {
            // A base of another server, or of a machine that was set back, has another map, too.
            let why = "it is not the one that saw the base: the server has started since, or the \
                       base is of another server";
            self.unseen = Some(why.into());
            return None;
        }
        if !self.sees_control(witness.as_ref(), since) {
            self.unseen = Some("it does not show what the server has just written".into());
            return None;
        }
        Some(Witnessed {
            witness: Arc::clone(witness),
            since: since.clone(),
            root: self.cluster.data_directory.clone(),
        })
    }

    /// Whether the witness saw that the checkpoint of this backup's start changed pg_control. If it
    /// knows files by other numbers than the server does, it sees nothing. A standby makes no
    /// checkpoint.
    fn sees_control(&self, witness: &dyn ChangeWitness, since: &ChangeMark) -> bool {
        let path = self.cluster.data_directory.join(CONTROL_PATH);
        let is_seen = |found| {
            let whole = (1, CONTROL_BYTES as u64);
            !witness
                .changed(since, (path.as_path(), &found), whole)
                .is_empty()
        };
        self.cluster.standby || std::fs::metadata(&path).is_ok_and(is_seen)
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
