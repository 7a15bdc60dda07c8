//! A backup: a live database to a sealed set.
//!
//!   request --> what DATABASE and DEVICES mean --> owner --> plan --> run --> judgement
//!
//! Invariants
//! - A mistake in what was asked for is found before anything is created.
//! - If root started the process, the operation becomes the owner of the database before it reads
//!   or writes anything. Root only looks, and makes the directories that the owner may not make.

mod base;
mod image;
mod in_log;
mod log;
mod merge;
mod mirror;
mod outcome;
mod request;
mod stripes;
pub(crate) mod witness;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use windlass_engine::media::{BackupType, SetId, fitted};
use windlass_engine::{
    BackupOptions, BackupRun, BufferPlan, Cancel, OpenSet, Outputs, RunReport, to_json,
};
use windlass_keys::Readers;
use windlass_postgres::{BackupRequest as ClusterRequest, Chain, ChainBase, Cluster};
use windlass_sqlite::{ChainBase as SqliteBase, Database};

use crate::caller::Caller;
use crate::database::{DatabaseName, plain_name};
use crate::devices::{self, DeviceName};
use crate::ended::RunEnd;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::foretold::{Done, StateDirectory};
use crate::hooks::HookCommands;
use crate::notice::Notice;
use crate::objects::Objects;
use crate::probed::Ends;
use crate::run::Run;
use crate::snapshots::find_named;
use crate::warnings::{SQLITE_VERSION, Warnings, is_accepted, of_instead, of_pages};
use crate::watch::{Ended, Watch, Watching};
use crate::{emptied, outputs, privilege, stored};

pub(crate) use base::{BaseSearch, Basis};
use image::FixedSource;
pub use log::{DatabaseLogOutcome, LogBackedUp, LogBackupOutcome, LogBackupRequest, back_up_log};
pub use merge::merge;
pub use mirror::{MirrorRequest, Mirrored};
pub use outcome::{BackupOutcome, Remark};
pub use request::{BackupRequest, PageChoice};

/// A database that can be backed up now. Nothing has been written yet.
enum Ready {
    Postgres(Box<Cluster>, BufferPlan, Outputs, Basis<Arc<ChainBase>>),
    Sqlite(Box<Database>, BufferPlan, Outputs, Basis<SqliteBase>),
    Fixed(Box<FixedSource>, BufferPlan, Outputs, Basis<()>),
}

/// A sealed set, not yet judged.
struct Sealed {
    report: RunReport,
    backup_type: BackupType,
    base: Option<SetId>,
    database: serde_json::Value,
    places: Vec<PathBuf>,
    warnings: Warnings,
    remarks: Vec<Remark>,
    /// How the set is stored, as it says itself.
    options: serde_json::Value,
    end: RunEnd,
}

/// Backs a database up. The set exists when this returns, unless no device keeps anything.
///
/// Returns the outcome, and how the operation ends: done, or with warnings.
pub fn back_up(
    caller: &Caller,
    request: &BackupRequest,
    cancel: &Cancel,
) -> Result<(BackupOutcome, Ending), OperationError> {
    let about = (caller, &request.watching, &request.hooks);
    let mut run = run_of(about, &request.database, request.name.as_deref(), cancel);
    if devices::keep_nothing(&request.to) {
        run.become_trial();
    }
    run.go(|run| {
        let word = Path::new(&request.database);
        let snapshot = find_named(caller, word, &[])?;
        let fixed = snapshot.map(FixedSource::of_snapshot).transpose()?;
        watched((caller, request), fixed, run, cancel)
    })
}

/// Tells metrics and hooks of a backup that could not be begun, because what was asked for is
/// wrong. A nightly run with such a mistake must not pass unseen.
pub fn backup_not_begun(
    about: (&Caller, &Watching, &HookCommands),
    (database, name, to): (&str, Option<&str>, &[String]),
    (ending, text): (Ending, &str),
) {
    let mut run = run_of(about, database, name, &Cancel::new());
    if devices::keep_nothing(to) {
        run.become_trial();
    }
    run.failed(ending, text);
}

/// The run of a backup of this database, which the configuration may have a name for.
fn run_of<'a>(
    about: (&'a Caller, &'a Watching, &HookCommands),
    database: &str,
    name: Option<&str>,
    cancel: &Cancel,
) -> Run<'a> {
    let guessed = DatabaseName::guess(database);
    let configured = |other: String| name.map_or(other, str::to_owned);
    let subject = configured(guessed.short_name());
    let series = configured(guessed.place());
    let mut run = Run::new(about, "backup", (&subject, &series), cancel);
    run.hooks.set_owner(guessed.owner_or_usual());
    run
}

/// Makes a set of a live database, or of what is given in its place.
fn watched(
    (caller, request): (&Caller, &BackupRequest),
    fixed: Option<FixedSource>,
    run: &Run<'_>,
    cancel: &Cancel,
) -> Result<(BackupOutcome, RunEnd), OperationError> {
    let name = match &fixed {
        // Its owner and its place are those of its files.
        Some(fixed) => DatabaseName::Sqlite(fixed.place()),
        None => DatabaseName::resolve_named(&request.database, request.name.as_deref())?,
    };
    // The profiles belong to the user who probed, who need not be the database's owner.
    let state = StateDirectory::open(caller, &request.settings.emulation, request.keep_prediction);
    // Only root may be allowed to read the files with secrets, so it is still root here.
    let readers = Readers::asked(&request.encrypt)?;
    // The hook comes first, because it may be what mounts the devices.
    run.hooks.before()?;
    let devices = devices::resolve(&request.to)?;
    mirror::check(&request.mirrors, &devices)?;
    devices::check_parity(&devices, request.parities, !request.mirrors.is_empty())?;
    let job = Job {
        caller,
        request,
        run,
        name: &name,
        fixed,
        devices,
        base: OnceCell::new(),
        readers,
        objects: OnceLock::new(),
        cancel,
    };
    let mut sealed = match job.made_ready()? {
        Ready::Postgres(cluster, plan, outputs, base) => {
            job.postgres(*cluster, plan, &outputs, base)?
        }
        Ready::Sqlite(database, plan, outputs, base) => {
            job.sqlite(*database, plan, &outputs, base)?
        }
        Ready::Fixed(fixed, plan, outputs, base) => job.fixed(&fixed, plan, &outputs, base)?,
    };
    let mirrors = job.mirror(&mut sealed);
    let (ending, end) = (sealed.warnings.ending(), sealed.end.clone());
    let options = sealed.options.clone();
    let outcome = BackupOutcome {
        mirrors,
        ..job.judge(sealed, state)
    };
    caller.tell(&Notice::Verdict(&outcome.report.verdict));
    let end = end.judged(ending, &outcome.report);
    let end = end.with_type(outcome.backup_type);
    run.about(outcome.about(options));
    Ok((outcome, end))
}

/// One backup to make.
struct Job<'a> {
    caller: &'a Caller,
    request: &'a BackupRequest,
    run: &'a Run<'a>,
    name: &'a DatabaseName,
    /// What is backed up in place of a live database.
    fixed: Option<FixedSource>,
    devices: Vec<DeviceName>,
    /// What it builds on, which nobody removes meanwhile.
    base: OnceCell<OpenSet>,
    /// Who can read the set, if it is encrypted.
    readers: Option<Readers>,
    /// How stripes in buckets are written; known when the size of the database is.
    objects: OnceLock<Objects>,
    cancel: &'a Cancel,
}

impl Job<'_> {
    /// Prepares the database and the directories, and becomes the owner of the database.
    fn made_ready(&self) -> Result<Ready, OperationError> {
        let (owner, process) = (self.name.owner(), self.caller.process);
        // Only root may be allowed to create the directories of the devices, so it is still root
        // here. A mistake in what was asked for is found before they are created. Root looks first,
        // because the owner of the database may not see what a directory belongs to.
        devices::check(&self.devices, &outputs::outputs())?;
        let ready = privilege::as_user(process, owner, || self.prepare());
        let made = ready.and_then(|ready| {
            let made = devices::make_directories(&self.devices, owner)?;
            Ok((ready, made))
        });
        self.name.become_owner(process)?;
        let (ready, made) = made?;
        for directory in made {
            self.caller.tell(&Notice::MadeDirectory {
                path: directory,
                is_expected: self.request.to_is_expected,
            });
        }
        Ok(ready)
    }

    /// Connects to the database or opens it, and checks everything that was asked for.
    fn prepare(&self) -> Result<Ready, OperationError> {
        let ready = match (&self.fixed, self.name) {
            (Some(fixed), _) => {
                let plan = self.plan(fixed.readers(), || Ok(fixed.bytes()))?;
                let base = self
                    .search()
                    .whole("a snapshot is always backed up as a whole")?;
                Ready::Fixed(Box::new(fixed.clone()), plan, fixed.outputs()?, base)
            }
            (None, DatabaseName::Postgres(conninfo)) => {
                self.request.cluster_request().check()?;
                let mut cluster = Cluster::connect(conninfo)?;
                let volumes = cluster.scan_volumes()?;
                let plan = self.plan(volumes, || Ok(cluster.foresee()?.bytes))?;
                let mut outputs = outputs::of_cluster(&cluster.facts().data_directory)?;
                let base = self.search().base_of_cluster(&cluster, &mut outputs)?;
                Ready::Postgres(Box::new(cluster), plan, outputs, base)
            }
            (None, DatabaseName::Sqlite(path)) => {
                let mut database = Database::open(path)?;
                database.set_host(&self.caller.host);
                let plan = self.plan(1, || Ok(database.estimate_bytes()))?;
                let mut outputs = outputs::of_sqlite(path)?;
                let base = self.search().base_of_file(&database, &mut outputs)?;
                Ready::Sqlite(Box::new(database), plan, outputs, base)
            }
        };
        let (Ready::Postgres(_, plan, outputs, _)
        | Ready::Sqlite(_, plan, outputs, _)
        | Ready::Fixed(_, plan, outputs, _)) = &ready;
        let apart = self.request.pages == PageChoice::Auto && self.may_take_pages_apart();
        if apart {
            plan.check_pages()?;
        }
        let pages_bytes = if apart { plan.pages_bytes() } else { 0 };
        plan.check_parity(self.request.parities, pages_bytes)?;
        let protected = devices::protect(&self.devices, outputs)?;
        mirror::guard(&self.request.mirrors, &protected)?;
        self.run.check(&protected)?;
        Ok(ready)
    }

    fn postgres(
        &self,
        mut cluster: Cluster,
        plan: BufferPlan,
        outputs: &Outputs,
        base: Basis<Arc<ChainBase>>,
    ) -> Result<Sealed, OperationError> {
        let instead = base.clone().and_then(Result::err);
        let base = base.and_then(Result::ok);
        let base_id = base.as_ref().map(|base| base.set_id());
        let options = self.options_json(&plan);
        let is_kept = !devices::keep_nothing(&self.request.to);
        let (witness, unseen) = match witness::of(&cluster.facts().data_directory) {
            Ok(witness) => (witness.filter(|_| is_kept), None),
            Err(why) => (None, Some(why)),
        };
        let request = ClusterRequest {
            options: options.clone(),
            witness,
            chain: base.map(|base| Chain {
                backup_type: self.request.backup_type,
                base,
                is_strict: self.request.is_strict,
            }),
            ..self.request.cluster_request()
        };
        let database = cluster.facts().name.clone();
        let (run, watch) = self.start(plan, &database, outputs)?;
        let mut places = vec![cluster.facts().data_directory.clone()];
        let (outcome, end) = watch.end(cluster.backup(&request, run), |done| {
            Ended::well(&done.report)
        })?;
        let tablespaces = outcome.facts.tablespaces.iter();
        let tablespaces = tablespaces.map(|one| PathBuf::from(&one.location));
        places.extend(tablespaces.filter(|path| path.is_absolute()));
        let warnings = outcome.facts.warnings.iter();
        let warnings = warnings.map(|warning| (warning.name(), warning.to_string()));
        let warnings = warnings.chain(of_pages(outcome.report.pages));
        let instead = instead.or(outcome.instead.map(|fault| fault.to_string()));
        let warnings = warnings.chain(of_instead(instead));
        let remarks = outcome::of_cluster(&outcome.facts, outcome.unseen.or(unseen));
        let is_chained = outcome.backup_type != BackupType::Full;
        Ok(Sealed {
            report: outcome.report,
            backup_type: outcome.backup_type,
            base: base_id.filter(|_| is_chained),
            database: to_json(&outcome.facts),
            places,
            warnings: Warnings::new(warnings, &self.request.accept),
            remarks,
            options,
            end,
        })
    }

    fn sqlite(
        &self,
        mut database: Database,
        plan: BufferPlan,
        outputs: &Outputs,
        base: Basis<SqliteBase>,
    ) -> Result<Sealed, OperationError> {
        if let Some(wait) = self.request.lock_wait {
            database.set_lock_wait(wait);
        }
        if let Some(limit) = self.request.lock_limit {
            database.set_lock_limit((!limit.is_zero()).then_some(limit));
        }
        let instead = base.clone().and_then(Result::err);
        let base = base.and_then(Result::ok);
        let base_id = base.as_ref().map(SqliteBase::set_id);
        database.set_chain(base.map(|base| windlass_sqlite::Chain {
            backup_type: self.request.backup_type,
            base,
        }));
        database.set_keeps_hashes(!devices::keep_nothing(&self.request.to));
        let options = self.options_json(&plan);
        database.set_options(options.clone());
        database.set_label(&self.request.label);
        let path = PathBuf::from(&database.facts().path);
        let (run, watch) = self.start(plan, &self.name.short_name(), outputs)?;
        let sealed = database.backup(run);
        let (outcome, end) = watch.end(sealed, |done| Ended::well(&done.report))?;
        let mut remarks = vec![match outcome.facts.journal_mode {
            windlass_sqlite::JournalMode::Wal => Remark::WritersWentOn,
            _ => Remark::WritersWaited(outcome.lock_held.as_secs_f64()),
        }];
        if outcome.facts.wal_reset_bug {
            remarks.push(Remark::WalResetBug {
                version: outcome.facts.sqlite_version.to_string(),
                accepted: is_accepted(SQLITE_VERSION, &self.request.accept),
            });
        }
        let mut facts = outcome.facts.to_json();
        facts["lock_held_seconds"] = outcome.lock_held.as_secs_f64().into();
        facts["lock_bytes_read"] = outcome.lock_bytes.into();
        let directories = devices::directories(&self.devices);
        let emptied = emptied::warning(&directories, &outcome.facts);
        let in_log = in_log::warning(&directories, &outcome.facts, self.cancel);
        let warnings = outcome.warnings.iter().chain(&emptied);
        let warnings = warnings.map(|warning| (warning.name(), warning.to_string()));
        let warnings = warnings.chain(of_pages(outcome.report.pages));
        let warnings = warnings.chain(of_instead(instead)).chain(in_log);
        Ok(Sealed {
            report: outcome.report,
            backup_type: base_id.map_or(BackupType::Full, |_| self.request.backup_type),
            base: base_id,
            database: facts,
            places: vec![path],
            warnings: Warnings::new(warnings, &self.request.accept),
            remarks,
            options,
            end,
        })
    }

    /// Cleans up, opens the devices, tells the settings, and starts the pipeline.
    fn start(
        &self,
        plan: BufferPlan,
        database: &str,
        outputs: &Outputs,
    ) -> Result<(BackupRun, Watch), OperationError> {
        let protected = &devices::protect(&self.devices, outputs)?;
        for place in devices::places(&self.devices) {
            for done in stored::clean_up(&place)? {
                self.caller.tell(&Notice::CleanedUp(&done));
            }
        }
        let set_id = SetId(*uuid::Uuid::new_v4().as_bytes());
        let begun = self.fixed.as_ref().and_then(FixedSource::begun);
        let begun = begun.unwrap_or_else(jiff::Timestamp::now);
        let devices = self.create(&plan, (database, set_id, begun), outputs)?;
        let compression = &self.request.compression;
        let page_frames = self.takes_pages_apart(&plan);
        let options = BackupOptions {
            plan,
            codec: compression.codec,
            range: compression.range,
            source_rate: self.request.rates.read,
            device_rate: self.request.rates.write,
            ring: self.request.settings.ring,
            pacing: self.request.settings.emulation.pacing(),
            page_frames,
            frame_proof: self.request.frame_proof,
            encryption: Readers::encryption_of(self.readers.as_ref(), set_id)?,
            parities: self.request.parities,
        };
        self.caller.tell(&Notice::Settings {
            plan: &options.plan,
            codec: Some(&self.request.compression_text),
            more: self.more_memory(&options),
        });
        let configured = |other: String| self.request.name.clone().unwrap_or(other);
        let subject = configured(plain_name(database));
        let series = configured(self.name.place());
        let watch = self.run.watch(protected, (&subject, &series))?;
        let progress = watch.progress().clone();
        let created = fitted(begun.as_nanosecond());
        let cancel = self.cancel.clone();
        let run = BackupRun::start(set_id, created, options, devices, progress, cancel)?;
        Ok((run, watch))
    }

    /// Whether the run takes pages apart: only if there is memory for it.
    fn takes_pages_apart(&self, plan: &BufferPlan) -> bool {
        self.may_take_pages_apart() && plan.check_pages().is_ok()
    }

    /// Whether that is wanted.
    fn may_take_pages_apart(&self) -> bool {
        let is_postgres = match &self.fixed {
            Some(fixed) => fixed.is_postgres(),
            None => matches!(self.name, DatabaseName::Postgres(_)),
        };
        let (choice, compression) = (self.request.pages, &self.request.compression);
        choice.holds(is_postgres, compression)
    }

    fn options_json(&self, plan: &BufferPlan) -> serde_json::Value {
        let apart = self.takes_pages_apart(plan);
        self.request.options_json(plan, apart)
    }

    /// Says how close the run came to the probed speed of its storage, and to the plan's
    /// prediction.
    fn judge(&self, mut sealed: Sealed, state: StateDirectory) -> BackupOutcome {
        let is_kept_nowhere = devices::keep_nothing(&self.request.to);
        if is_kept_nowhere {
            sealed.report.set_id = None;
        }
        let places = self.devices.iter().filter_map(DeviceName::place);
        let settings = &self.request.settings;
        let ends = Ends {
            database: sealed.places.iter().map(PathBuf::as_path).collect(),
            stripes: places.collect(),
            is_backup: true,
            emulation: &settings.emulation,
        };
        ends.judge(state.directory(), &mut sealed.report);
        let compression = &self.request.compression;
        let fixed = compression.range.is_none();
        let done = Done {
            report: &sealed.report,
            codec: fixed.then_some(compression.codec),
            pages_asked: self.request.pages == PageChoice::Auto,
            request: settings.buffers.clone(),
            rates: (self.request.rates.read, self.request.rates.write),
        };
        let judgement = state.judge(self.caller, &ends, &done);
        BackupOutcome {
            stripes: outcome::stripes(&sealed.report),
            parities: self.request.parities,
            report: sealed.report,
            backup_type: sealed.backup_type,
            base: sealed.base.map(|base| base.to_string()),
            database: sealed.database,
            warnings: sealed.warnings,
            remarks: sealed.remarks,
            is_kept_nowhere,
            mirrors: Vec::new(),
            judgement,
        }
    }
}
