//! A backup: a live database to a sealed set.
//!
//!   request --> what DATABASE and DEVICES mean --> owner --> plan --> run --> judgement
//!
//! Invariants
//! - A mistake in what was asked for is found before anything is created.
//! - If root started the process, the operation becomes the owner of the database before it reads
//!   or writes anything. Root only looks, and makes the directories that the owner may not make.

mod request;

use std::path::{Path, PathBuf};

use windlass_engine::media::{SetId, fitted};
use windlass_engine::{
    BackupOptions, BackupRun, BufferPlan, Cancel, FileDeviceOptions, Outputs, RunReport, clean_up,
    to_json,
};
use windlass_postgres::{BackupRequest as ClusterRequest, Cluster, WindowCause};
use windlass_sqlite::Database;

use crate::caller::Caller;
use crate::database::{DatabaseName, plain_name};
use crate::devices::{self, DeviceName, StripeNames};
use crate::ended::RunEnd;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::foretold::{Done, Judgement, State};
use crate::hooks::HookCommands;
use crate::notice::Notice;
use crate::probed::Ends;
use crate::run::Run;
use crate::warnings::{SQLITE_VERSION, Warnings, is_accepted};
use crate::watch::{Ended, Watch, Watching};
use crate::{emptied, outputs, privilege};

pub use request::BackupRequest;

/// A sealed backup of any kind of database.
#[derive(Debug)]
pub struct BackupOutcome {
    /// What the run did, and what limited it.
    pub report: RunReport,
    /// What the set says about the database.
    pub database: serde_json::Value,
    /// What the user should know about the source.
    pub warnings: Warnings,
    /// What happened, and is no reason to worry.
    pub remarks: Vec<Remark>,
    /// Whether no device keeps anything, so that there is no set.
    pub is_kept_nowhere: bool,
    /// The stripes, in their order; empty unless every stripe of the set can be read again.
    pub stripes: Vec<PathBuf>,
    /// What the plan would have predicted, and what would have made the run faster.
    pub judgement: Judgement,
}

/// Something that happened during a backup.
#[derive(Clone, Debug, PartialEq)]
pub enum Remark {
    /// What changed was copied again after the first copy.
    AnotherWindow {
        /// Why.
        cause: WindowCause,
    },
    /// PostgreSQL: a tablespace lies in the data directory itself.
    TablespaceInPlace {
        /// Its name.
        name: String,
    },
    /// SQLite in WAL mode: writers were never blocked.
    WritersWentOn,
    /// SQLite in rollback mode: writers were locked out for this many seconds.
    WritersWaited(f64),
    /// The SQLite that last wrote the database can corrupt it in rare cases.
    WalResetBug {
        /// Its version.
        version: String,
        /// Whether the user accepted it.
        accepted: bool,
    },
}

/// A database that can be backed up now. Nothing has been written yet.
enum Ready {
    Postgres(Box<Cluster>, BufferPlan, Outputs),
    Sqlite(Box<Database>, BufferPlan, Outputs),
}

/// A sealed set, not yet judged.
struct Sealed {
    report: RunReport,
    database: serde_json::Value,
    places: Vec<PathBuf>,
    warnings: Warnings,
    remarks: Vec<Remark>,
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
    run.go(|run| watched(caller, request, run, cancel))
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

fn watched(
    caller: &Caller,
    request: &BackupRequest,
    run: &Run<'_>,
    cancel: &Cancel,
) -> Result<(BackupOutcome, RunEnd), OperationError> {
    let name = DatabaseName::resolve_named(&request.database, request.name.as_deref())?;
    // The profiles belong to the user who probed, who need not be the database's owner.
    let state = State::open(caller, &request.settings.emulation, request.keep_prediction);
    // The hook comes first, because it may be what mounts the devices.
    run.hooks.before()?;
    let devices = devices::resolve(&request.to)?;
    let job = Job {
        caller,
        request,
        run,
        name: &name,
        devices,
        cancel,
    };
    let sealed = match job.made_ready()? {
        Ready::Postgres(cluster, plan, outputs) => job.postgres(*cluster, plan, &outputs)?,
        Ready::Sqlite(database, plan, outputs) => job.sqlite(*database, plan, &outputs)?,
    };
    let (ending, end) = (sealed.warnings.ending(), sealed.end.clone());
    let outcome = job.judge(sealed, state);
    caller.tell(&Notice::Verdict(&outcome.report.verdict));
    let end = end.judged(ending, &outcome.report);
    Ok((outcome, end))
}

/// One backup to make.
struct Job<'a> {
    caller: &'a Caller,
    request: &'a BackupRequest,
    run: &'a Run<'a>,
    name: &'a DatabaseName,
    devices: Vec<DeviceName>,
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
        let asked = &self.request.settings.buffers;
        let ready = match self.name {
            DatabaseName::Postgres(conninfo) => {
                self.request.cluster_request().check()?;
                let cluster = Cluster::connect(conninfo)?;
                let plan = asked.plan(self.devices.len(), cluster.scan_volumes()?)?;
                let outputs = outputs::of_cluster(&cluster.facts().data_directory)?;
                Ready::Postgres(Box::new(cluster), plan, outputs)
            }
            DatabaseName::Sqlite(path) => {
                let database = Database::open(path)?;
                let plan = asked.plan(self.devices.len(), 1)?;
                Ready::Sqlite(Box::new(database), plan, outputs::of_sqlite(path)?)
            }
        };
        let (Ready::Postgres(_, _, outputs) | Ready::Sqlite(_, _, outputs)) = &ready;
        let protected = devices::protect(&self.devices, outputs)?;
        self.run.check(&protected)?;
        Ok(ready)
    }

    fn postgres(
        &self,
        mut cluster: Cluster,
        plan: BufferPlan,
        outputs: &Outputs,
    ) -> Result<Sealed, OperationError> {
        let request = ClusterRequest {
            options: self.options_json(&plan),
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
        let earlier = outcome.facts.earlier_windows.iter();
        let windows = earlier.map(|window| Remark::AnotherWindow {
            cause: window.cause.clone(),
        });
        let spaces = outcome.facts.tablespaces.iter();
        let in_place = spaces.filter(|space| space.is_in_place());
        let in_place = in_place.map(|space| Remark::TablespaceInPlace {
            name: space.name.clone(),
        });
        Ok(Sealed {
            report: outcome.report,
            database: to_json(&outcome.facts),
            places,
            warnings: Warnings::new(warnings, &self.request.accept),
            remarks: windows.chain(in_place).collect(),
            end,
        })
    }

    fn sqlite(
        &self,
        mut database: Database,
        plan: BufferPlan,
        outputs: &Outputs,
    ) -> Result<Sealed, OperationError> {
        if let Some(wait) = self.request.lock_wait {
            database.set_lock_wait(wait);
        }
        if let Some(limit) = self.request.lock_limit {
            database.set_lock_limit((!limit.is_zero()).then_some(limit));
        }
        database.set_options(self.options_json(&plan));
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
        let emptied = emptied::warning(&devices::directories(&self.devices), &outcome.facts);
        let warnings = outcome.warnings.iter().chain(&emptied);
        let warnings = warnings.map(|warning| (warning.name(), warning.to_string()));
        Ok(Sealed {
            report: outcome.report,
            database: facts,
            places: vec![path],
            warnings: Warnings::new(warnings, &self.request.accept),
            remarks,
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
        for directory in devices::directories(&self.devices) {
            for done in clean_up(&directory)? {
                self.caller.tell(&Notice::CleanedUp(done.to_string()));
            }
        }
        let set_id = SetId(*uuid::Uuid::new_v4().as_bytes());
        let now = jiff::Timestamp::now();
        let devices = self.create(&plan, (database, set_id, now), outputs)?;
        self.caller.tell(&Notice::Settings {
            plan: &plan,
            codec: Some(&self.request.compression_text),
        });
        let compression = &self.request.compression;
        let options = BackupOptions {
            plan,
            codec: compression.codec,
            range: compression.range,
            source_rate: self.request.rates.read,
            device_rate: self.request.rates.write,
            ring: self.request.settings.ring,
            pacing: self.request.settings.emulation.pacing(),
            page_frames: false,
        };
        let configured = |other: String| self.request.name.clone().unwrap_or(other);
        let subject = configured(plain_name(database));
        let series = configured(self.name.place());
        let watch = self.run.watch(protected, (&subject, &series))?;
        let progress = watch.progress().clone();
        let created = fitted(now.as_nanosecond());
        let cancel = self.cancel.clone();
        let run = BackupRun::start(set_id, created, options, devices, progress, cancel)?;
        Ok((run, watch))
    }

    /// Opens the devices of a new set, which is named after the database and begins now.
    fn create(
        &self,
        plan: &BufferPlan,
        (database, set_id, now): (&str, SetId, jiff::Timestamp),
        outputs: &Outputs,
    ) -> Result<Vec<Box<dyn windlass_engine::Device>>, OperationError> {
        let names = StripeNames {
            database: plain_name(database),
            time: now.strftime("%Y%m%dT%H%M%SZ").to_string(),
            set_id,
            count: self.devices.len(),
        };
        let options = FileDeviceOptions {
            alignment: plan.alignment,
            direct: !self.request.buffered,
            ring: self.request.settings.ring,
            overwrite: self.request.overwrite,
            ..FileDeviceOptions::default()
        };
        devices::create(&self.devices, &names, options, outputs)
    }

    fn options_json(&self, plan: &BufferPlan) -> serde_json::Value {
        serde_json::json!({
            "compress": self.request.compression.to_string(),
            "buffers": plan.buffers,
            "transfer_bytes": plan.transfer_bytes,
            "frame_bytes": plan.frame_bytes,
            "block_bytes": plan.alignment,
        })
    }

    /// Says how close the run came to the probed speed of its storage, and to the plan's
    /// prediction.
    fn judge(&self, mut sealed: Sealed, state: State) -> BackupOutcome {
        let is_kept_nowhere = devices::keep_nothing(&self.request.to);
        if is_kept_nowhere {
            sealed.report.set_id = None;
        }
        let directories = self.devices.iter().filter_map(DeviceName::directory);
        let settings = &self.request.settings;
        let ends = Ends {
            database: sealed.places.iter().map(PathBuf::as_path).collect(),
            stripes: directories.collect(),
            is_backup: true,
            emulation: &settings.emulation,
        };
        ends.judge(state.directory(), &mut sealed.report);
        let compression = &self.request.compression;
        let fixed = compression.range.is_none();
        let done = Done {
            report: &sealed.report,
            codec: fixed.then_some(compression.codec),
            request: settings.buffers.clone(),
            rates: (self.request.rates.read, self.request.rates.write),
        };
        let judgement = state.judge(self.caller, &ends, &done);
        BackupOutcome {
            stripes: self.stripes(&sealed.report),
            report: sealed.report,
            database: sealed.database,
            warnings: sealed.warnings,
            remarks: sealed.remarks,
            is_kept_nowhere,
            judgement,
        }
    }

    /// Where the stripes are that can be read again.
    fn stripes(&self, report: &RunReport) -> Vec<PathBuf> {
        let kept = report.devices.iter().map(|device| Path::new(&device.name));
        kept.filter(|path| path.is_absolute())
            .map(Path::to_owned)
            .collect()
    }
}
