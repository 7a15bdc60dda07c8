//! A backup of a running cluster: of everything, or of what changed since an earlier set.
//!
//!   start, pin WAL --> scan --> push files, drain --> pg_control --> stop
//!     --> push WAL, label, map, drain --> manifest, pg_control --> finish
//!
//! A window goes from a start on the server to its stop. If its log holds something that replay
//! would get wrong, the backup reads another window (`backup/window.rs`).
//!
//! Invariants
//! - The session is open from start to stop. If it ends early, the backup ends too, unsealed.
//! - The backup reads pg_control after every other data file. On a standby it says how far recovery
//!   must replay, and that position must not be earlier than anything in the copied files.
//! - The log from start to stop is in the set. The backup checks that each segment is what its name
//!   says.

mod assembly;
mod beginning;
mod bracket;
mod changes;
mod complete;
mod databases;
mod expected;
mod foreseen;
mod log;
mod paused;
mod request;
mod running;
mod since;
mod status;
mod survey;
mod window;

use std::sync::Arc;

use windlass_engine::{BackupRun, Cancel, RunReport};
use windlass_media::{BackupType, Facts};

use crate::chain::ChainFault;
use crate::cluster::{Cluster, count_subscriptions, open};
use crate::conninfo::Conninfo;
use crate::control::{CONTROL_PATH, Checksums};
use crate::error::PostgresError;
use crate::facts::{ChecksumFacts, DatabaseFacts, KIND, Outgoing};
use crate::hook::PageCheck;
use crate::keeper::Pin;
use crate::listing::Moment;
use crate::lsn::Lsn;
use crate::manifest::{MANIFEST_PATH, Manifest};
use crate::session::Session;
use crate::users::user_name;
use crate::warning::Warning;
use crate::windows::EarlierWindow;
use assembly::Assembly;
pub use bracket::{Bracket, BracketEnd, BracketFiles, BracketSegment};
use databases::Databases;
pub use expected::ExpectedChanges;
pub use foreseen::Foreseen;
pub(crate) use log::BackupLabel;
pub use paused::{ChangedFiles, CrashState, Pinned};
pub use request::{BackupRequest, Chain};
use running::{Backup, Begun};
use since::SUMMARIES_SINCE;
use window::Window;

/// A sealed backup.
#[derive(Debug)]
pub struct BackupOutcome {
    /// Where the time went.
    pub report: RunReport,
    /// What the set says about the cluster.
    pub facts: DatabaseFacts,
    /// What kind of set it is.
    pub backup_type: BackupType,
    /// Why it is a full one although it was to build on a base.
    pub instead: Option<ChainFault>,
    /// Why nobody was asked who saw all writes, although somebody was to be.
    pub unseen: Option<String>,
}

impl Cluster {
    /// Backs the whole cluster up through `run`. After any error there is no set. The session is
    /// then closed, so that the server ends the backup as well.
    pub fn backup(
        &mut self,
        request: &BackupRequest,
        run: BackupRun,
    ) -> Result<BackupOutcome, PostgresError> {
        request.check()?;
        let mut session = self.take_session()?;
        let databases = Databases::before_backup(&self.facts, &mut session)?;
        let hints: String = session.value(
            "ask for wal_log_hints",
            "SELECT current_setting('wal_log_hints')",
        )?;
        let known = self.facts.tablespaces.iter().cloned();
        let known = known.map(|space| (space.oid, space));
        let backup = Backup {
            conninfo: &self.conninfo,
            cluster: &self.facts,
            request,
            session: &mut session,
            databases,
            hints_logged: self.facts.data_checksums || hints == "on",
            instead: None,
            mark: None,
            changes_from: None,
            unseen: None,
            spaces: known.collect(),
        };
        let outcome = backup.run(run);
        let outcome = outcome.map_err(|error| error.or_gone(&self.facts.data_directory));
        let outcome = outcome.map_err(|error| error.or_limited(|| session.slot_limit()))?;
        self.session = Some(session);
        Ok(outcome)
    }
}

/// The times at which a backup began and ended, for its facts.
struct Span {
    started: String,
    stop_time: String,
    window: Window,
    earlier: Vec<EarlierWindow>,
    outgoing: Outgoing,
}

impl Backup<'_> {
    fn run(mut self, mut run: BackupRun) -> Result<BackupOutcome, PostgresError> {
        let started = jiff::Timestamp::now().to_string();
        let mut warnings = foreseen::of_slots(self.session)?;
        warnings.extend(foreseen::of_configuration(self.cluster));
        let known = self.known_directories()?;
        let (time, moment) = (self.session.now()?, Moment::now());
        let (start_lsn, pin) = self.start(&run, &mut warnings)?;
        self.begin_mark()?;
        let begun = Begun {
            start_lsn,
            time,
            moment,
            known,
        };

        let check = self.page_check(&mut run);
        let root = self.cluster.data_directory.clone();
        let mut assembly = Assembly::new(root, self.cluster.group_access());
        let (mut window, earlier) =
            self.windows(&mut run, &mut assembly, check.as_deref(), begun)?;
        let stop_time = self.session.now()?;
        let outgoing = self.outgoing()?;
        warnings.extend(self.databases.warnings(self.cluster, self.session)?);
        warnings.extend(pin.map(Pin::end).unwrap_or_default());

        warnings.extend(assembly.partial_pages(self.cluster.block_bytes));
        warnings.append(&mut window.warnings);
        let found = check
            .as_deref()
            .filter(|_| self.verifies_checksums())
            .map(|check| check.report(|file| assembly.counts(file), window.stopped.lsn));
        let checksums = self.judge(found, window.control.checksums(), &mut warnings);
        let span = Span {
            started,
            stop_time,
            window,
            earlier,
            outgoing,
        };
        self.finish(run, assembly, (span, checksums, warnings))
    }

    /// Counts the subscriptions at the end and takes the larger of this number and the one from the
    /// start, because the set may hold either.
    fn outgoing(&mut self) -> Result<Outgoing, PostgresError> {
        let now = Some(count_subscriptions(self.session)?);
        let before = &self.cluster.outgoing;
        Ok(Outgoing {
            subscriptions: now.max(before.subscriptions),
            ..before.clone()
        })
    }

    /// Starts the backup on the server, and pins the log. Returns where the log begins, and the
    /// session that pins it.
    fn start(
        &mut self,
        run: &BackupRun,
        warnings: &mut Vec<Warning>,
    ) -> Result<(Lsn, Option<Pin>), PostgresError> {
        run.progress().set_phase("waiting for the start checkpoint");
        let how = (self.request.label.as_str(), self.request.fast_checkpoint);
        let (session, conninfo) = (&mut *self.session, self.conninfo);
        let begun = start_pinned((session, conninfo), how, run.cancel(), || ());
        let (start_lsn, pin) = begun?;
        let pin = pin.unwrap_or_else(|reason| {
            warnings.push(Warning::WalNotPinned { reason });
            None
        });
        let pin = pin.map(|session| Pin::keep(session, conninfo.clone()));
        Ok((start_lsn, pin))
    }

    /// Whether pages are checked: the cluster has checksums, and the user wants it.
    fn verifies_checksums(&self) -> bool {
        self.cluster.data_checksums && self.request.verify_checksums
    }

    /// What looks at pages on their way, if there is anything to look for.
    fn page_check(&self, run: &mut BackupRun) -> Option<Arc<PageCheck>> {
        let (cluster, verifies) = (self.cluster, self.verifies_checksums());
        let scans = self.request.chain.is_some() && cluster.major() < SUMMARIES_SINCE;
        let check = (verifies || scans || run.takes_pages_apart()).then(|| {
            let sizes = (cluster.block_bytes, cluster.relation_segment_blocks);
            let root = cluster.data_directory.clone();
            Arc::new(PageCheck::new(root, sizes, verifies))
        });
        if let Some(check) = &check {
            run.set_hook(Arc::clone(check) as _);
        }
        check
    }

    /// The result of the page checksums. While a server switches them on or off, two kinds of pages
    /// prove nothing: pages without a checksum, and pages whose checksum the server no longer
    /// maintains.
    fn judge(
        &self,
        found: Option<ChecksumFacts>,
        at_end: Checksums,
        warnings: &mut Vec<Warning>,
    ) -> ChecksumFacts {
        if at_end == Checksums::Changing || at_end != self.cluster.checksums {
            warnings.push(Warning::ChecksumsChanging);
            return ChecksumFacts::default();
        }
        let enabled = self.cluster.data_checksums;
        let facts = found.unwrap_or(ChecksumFacts {
            enabled,
            ..ChecksumFacts::default()
        });
        if facts.pages_bad > 0 {
            let (pages, files) = (facts.pages_bad, facts.files.len() as u64);
            warnings.push(Warning::PageChecksums { pages, files });
        }
        facts
    }

    fn finish(
        &self,
        mut run: BackupRun,
        mut assembly: Assembly,
        (span, checksums, warnings): (Span, ChecksumFacts, Vec<Warning>),
    ) -> Result<BackupOutcome, PostgresError> {
        assembly.settle(&mut run)?;
        let window = &span.window;
        let control_bytes = window.control.without_checkpoint();
        assembly.push_last(&mut run, CONTROL_PATH.as_bytes(), control_bytes)?;
        let manifest = Manifest {
            major: self.cluster.major(),
            system_identifier: self.cluster.system_identifier,
            ranges: &window.ranges,
        };
        let manifest = manifest.bytes(assembly.entries());
        assembly.push_bytes(&mut run, MANIFEST_PATH.as_bytes(), manifest)?;
        let database = self.database_facts(&span, checksums, warnings);
        let base = assembly.base();
        let chain = self.request.chain.as_ref();
        let chain = chain.filter(|_| base.is_some());
        let backup_type = chain.map_or(BackupType::Full, |chain| chain.backup_type);
        let facts = Facts {
            tool: self.request.tool.clone(),
            backup_type,
            started: span.started,
            finished: jiff::Timestamp::now().to_string(),
            options: self.request.options.clone(),
            database: database.to_json()?,
            parents: chain.map_or_else(Vec::new, |chain| chain.base.ids()),
        };
        if let Some(base) = base {
            run.build_on(base);
        }
        let table = assembly.into_table();
        complete::check(&facts, &table, &window.status)?;
        let report = run.finish(table, facts)?;
        Ok(BackupOutcome {
            report,
            facts: database,
            backup_type,
            instead: self.instead.clone(),
            unseen: self.unseen.clone(),
        })
    }

    fn database_facts(
        &self,
        span: &Span,
        checksums: ChecksumFacts,
        warnings: Vec<Warning>,
    ) -> DatabaseFacts {
        let (cluster, window) = (self.cluster, &span.window);
        let outside = cluster.configuration_outside.iter();
        DatabaseFacts {
            kind: KIND.into(),
            name: cluster.name.clone(),
            version: cluster.version.clone(),
            version_number: cluster.version_number,
            system_identifier: cluster.system_identifier.to_string(),
            timeline: window
                .ranges
                .first()
                .map_or(cluster.timeline, |range| range.timeline),
            start_lsn: window.start_lsn,
            stop_lsn: window.stopped.lsn,
            start_time: window.start_time.clone(),
            stop_time: span.stop_time.clone(),
            wal: window.ranges.clone(),
            wal_segment_bytes: cluster.wal_segment_bytes,
            block_bytes: cluster.block_bytes,
            label: self.request.label.clone(),
            standby: cluster.standby,
            tablespaces: window.tablespaces.clone(),
            checksums,
            owner: owner_name(),
            group_access: cluster.group_access(),
            data_directory: cluster.data_directory.display().to_string(),
            configuration_outside: outside.map(|path| path.display().to_string()).collect(),
            outgoing: span.outgoing.clone(),
            warnings,
            earlier_windows: span.earlier.clone(),
            hints_logged: self.hints_logged,
            log_surveyed: true,
            crash_lsn: None,
            change_mark: self.mark.clone(),
            changes_from: self.changes_from.map(str::to_owned),
            restored: cluster.restored.clone(),
        }
    }
}

/// The session that pins the log, if that is another one than the backup's; or why none does.
type LogPin = Result<Option<Session>, String>;

/// Starts a backup on the server, and pins the log at the same time, because the slot and the
/// checkpoint each wait for the disk. Calls `started` when the checkpoint is done. Returns where
/// the log begins, and who pins it.
///
/// Without a slot the backup may still succeed (with wal_keep_size, or because it is quick enough).
/// Whoever reads the log checks each segment to find out.
fn start_pinned(
    (session, conninfo): (&mut Session, &Conninfo),
    (label, fast): (&str, bool),
    cancel: &Cancel,
    started: impl FnOnce(),
) -> Result<(Lsn, LogPin), PostgresError> {
    let (start_lsn, pin) = std::thread::scope(|scope| {
        let pin = scope.spawn(|| open(conninfo).map(pinned));
        let start_lsn = session.start_backup(label, fast, cancel);
        started();
        (start_lsn, pin.join())
    });
    let start_lsn = start_lsn?;
    let pin = match pin {
        Ok(Ok(pin)) => pin.map(Some),
        // There is no second connection, but the backup's own session can pin the log as well.
        _ => session.pin_wal().map(|()| None),
    };
    Ok((start_lsn, pin))
}

fn pinned(mut session: Session) -> Result<Session, String> {
    session.pin_wal().map(|()| session)
}

/// The data directory's owner is this process's user; otherwise the backup would have refused.
fn owner_name() -> String {
    user_name(nix::unistd::geteuid().as_raw())
}
