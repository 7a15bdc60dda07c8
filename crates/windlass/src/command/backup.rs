//! `windlass backup`: a live database to a sealed set.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::{SetId, fitted};
use windlass_engine::{
    BackupOptions, BackupRun, BufferPlan, Cancel, FileDeviceOptions, Outputs, RunReport, clean_up,
    show_size, to_json,
};
use windlass_model::Emulation;
use windlass_postgres::{BackupRequest, Cluster, EarlierWindow};
use windlass_sqlite::Database;

use crate::cli::{Backup, Global, SQLITE_VERSION};
use crate::compression::Compression;
use crate::database::{DatabaseName, plain_name};
use crate::devices::{self, DeviceName, StripeNames};
use crate::exit::{Code, Failure};
use crate::foretold::{Done, Judgement, State};
use crate::probed::Ends;
use crate::run::{Run, RunEnd, TRIAL};
use crate::settings;
use crate::signals;
use crate::table::{self, Finished};
use crate::warnings::{self, Warnings};
use crate::watch::{self, Ended, Watch, Watched};
use crate::{log, output, outputs, privilege, words};

/// A sealed backup of any kind of database.
struct Sealed {
    report: RunReport,
    database: serde_json::Value,
    places: Vec<PathBuf>,
    warnings: Warnings,
    remarks: Vec<String>,
}

/// A database that can be backed up now. Nothing has been written yet.
enum Ready {
    Postgres(Box<Cluster>, BufferPlan, Outputs),
    Sqlite(Box<Database>, BufferPlan, Outputs),
}

pub fn run(global: &Global, arguments: &Backup) -> Result<Code, Failure> {
    if arguments.dry_run {
        return super::check::dry_run(global, arguments);
    }
    let cancel = signals::cancel_on_signals()?;
    let guessed = DatabaseName::guess(&arguments.database);
    let configured = |other: String| arguments.name.clone().unwrap_or(other);
    let subject = configured(guessed.short_name());
    let series = configured(guessed.place());
    let about = (global, &arguments.watching, &arguments.hooks);
    let mut run = Run::new(about, "backup", (&subject, &series), &cancel)?;
    if devices::keep_nothing(&arguments.to) {
        run.become_trial(global);
    }
    run.go(|run| back_up(global, arguments, run, cancel))
}

/// What metrics call the run.
fn operation(to: &[String]) -> &'static str {
    match devices::keep_nothing(to) {
        true => TRIAL,
        false => "backup",
    }
}

fn back_up(
    global: &Global,
    arguments: &Backup,
    run: &mut Run<'_>,
    cancel: Cancel,
) -> Result<RunEnd, Failure> {
    run.hooks
        .set_owner(DatabaseName::guess(&arguments.database).owner_or_usual());
    let compression = Compression::parse(&arguments.compress)?;
    let name = DatabaseName::resolve_named(&arguments.database, arguments.name.as_deref())?;
    let emulation = settings::emulation(&arguments.buffers)?;
    // The profiles belong to the user who probed, who need not be the database's owner.
    let state = State::open(&emulation, !arguments.no_prediction);
    // The hook comes first, because it may be what mounts the devices.
    run.hooks.before()?;
    let devices = devices::resolve(&arguments.to)?;
    let job = Job {
        global,
        arguments,
        compression,
        emulation,
        name: &name,
        devices,
        cancel,
    };
    // Only root may be allowed to create the directories of --to, so it is still root here. A
    // mistake in what was asked for is found before they are created. Root looks first, because the
    // owner of the database may not see what a directory belongs to.
    devices::check(&job.devices, &outputs::outputs())?;
    let ready = privilege::as_user(name.owner(), || job.prepare());
    let made = ready.and_then(|ready| {
        let made = devices::make_directories(&job.devices, name.owner())?;
        Ok((ready, made))
    });
    name.become_owner()?;
    let (ready, made) = made?;
    for directory in made {
        // A mistyped name, or a disk that is not mounted, must not stay unseen: this is also for
        // --quiet. A directory is made once.
        let text = format!("made the directory {}", directory.display());
        if arguments.to_is_configured {
            output::degrade(&format!(
                "{text}, which the configuration names. If a disk belongs there, it is not mounted"
            ));
            continue;
        }
        log::info(&text);
        output::unlogged(&text);
    }
    let mut sealed = match ready {
        Ready::Postgres(cluster, plan, outputs) => job.postgres(*cluster, plan, &outputs)?,
        Ready::Sqlite(database, plan, outputs) => job.sqlite(*database, plan, &outputs)?,
    };
    let judgement = job.judge(&mut sealed, state)?;
    job.show(&sealed, &judgement);
    Ok(RunEnd::new(sealed.warnings.code(), &sealed.report))
}

/// One backup to make.
struct Job<'a> {
    global: &'a Global,
    arguments: &'a Backup,
    compression: Compression,
    emulation: Emulation,
    name: &'a DatabaseName,
    devices: Vec<DeviceName>,
    cancel: Cancel,
}

impl Job<'_> {
    /// Connects to the database or opens it, and checks everything that was asked for.
    fn prepare(&self) -> Result<Ready, Failure> {
        let asked = settings::request(&self.arguments.buffers, &self.arguments.layout)?;
        let ready = match self.name {
            DatabaseName::Postgres(conninfo) => {
                settings::postgres_request(self.arguments).check()?;
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
        watch::check(self.global, &self.arguments.watching, &protected)?;
        Ok(ready)
    }

    fn postgres(
        &self,
        mut cluster: Cluster,
        plan: BufferPlan,
        outputs: &Outputs,
    ) -> Result<Sealed, Failure> {
        let request = BackupRequest {
            fast_checkpoint: self.arguments.checkpoint == "fast",
            verify_checksums: !self.arguments.no_page_checksums,
            options: self.options_json(&plan),
            ..settings::postgres_request(self.arguments)
        };
        let database = cluster.facts().name.clone();
        let (run, watch) = self.start(plan, &database, outputs)?;
        let mut places = vec![cluster.facts().data_directory.clone()];
        let outcome = watch.end(cluster.backup(&request, run), |done| {
            Ended::well(&done.report)
        })?;
        let tablespaces = outcome.facts.tablespaces.iter().map(|one| &one.location);
        places.extend(
            tablespaces
                .map(PathBuf::from)
                .filter(|path| path.is_absolute()),
        );
        let database = to_json(&outcome.facts);
        let warnings = outcome.facts.warnings.iter();
        let warnings = warnings.map(|warning| (warning.name(), warning.to_string()));
        let warnings = Warnings::new(warnings, &self.arguments.accept);
        let earlier = outcome.facts.earlier_windows.iter();
        let remark = |window: &EarlierWindow| {
            let cause = &window.cause;
            format!("changed files were copied again after the first copy, because {cause}")
        };
        Ok(Sealed {
            report: outcome.report,
            database,
            places,
            warnings,
            remarks: earlier.map(remark).collect(),
        })
    }

    fn sqlite(
        &self,
        mut database: Database,
        plan: BufferPlan,
        outputs: &Outputs,
    ) -> Result<Sealed, Failure> {
        if let Some(seconds) = self.arguments.lock_wait {
            database.set_lock_wait(Duration::from_secs(seconds));
        }
        if let Some(seconds) = self.arguments.lock_limit {
            database.set_lock_limit((seconds > 0).then(|| Duration::from_secs(seconds)));
        }
        database.set_options(self.options_json(&plan));
        database.set_label(&self.arguments.label);
        let path = PathBuf::from(&database.facts().path);
        let (run, watch) = self.start(plan, &self.name.short_name(), outputs)?;
        let outcome = watch.end(database.backup(run), |done| Ended::well(&done.report))?;
        let held = outcome.lock_held.as_secs_f64() * 1000.0;
        let remark = match outcome.facts.journal_mode {
            windlass_sqlite::JournalMode::Wal => "writers were never blocked (WAL mode)".to_owned(),
            _ => format!("writers were locked out for {held:.1} ms (rollback mode)"),
        };
        let mut remarks = vec![remark];
        let is_accepted = warnings::is_accepted(SQLITE_VERSION, &self.arguments.accept);
        if !is_accepted || self.arguments.watching.details || self.global.json {
            remarks.extend(wal_reset_remark(&outcome.facts));
        }
        let mut facts = outcome.facts.to_json();
        facts["lock_held_seconds"] = outcome.lock_held.as_secs_f64().into();
        facts["lock_bytes_read"] = outcome.lock_bytes.into();
        let warnings = outcome.warnings.iter();
        let warnings = warnings.map(|warning| (warning.name(), warning.to_string()));
        Ok(Sealed {
            report: outcome.report,
            database: facts,
            places: vec![path],
            warnings: Warnings::new(warnings, &self.arguments.accept),
            remarks,
        })
    }

    /// Cleans up, opens the devices, prints the configuration, and starts the pipeline.
    fn start(
        &self,
        plan: BufferPlan,
        database: &str,
        outputs: &Outputs,
    ) -> Result<(BackupRun, Watch), Failure> {
        let protected = &devices::protect(&self.devices, outputs)?;
        for directory in devices::directories(&self.devices) {
            for done in clean_up(&directory)? {
                self.note(&done.to_string());
            }
        }
        let set_id = SetId(*uuid::Uuid::new_v4().as_bytes());
        let now = jiff::Timestamp::now();
        let names = StripeNames {
            database: plain_name(database),
            time: now.strftime("%Y%m%dT%H%M%SZ").to_string(),
            set_id,
            count: self.devices.len(),
        };
        let options = FileDeviceOptions {
            alignment: plan.alignment,
            direct: !self.arguments.buffered,
            ring: !self.arguments.buffers.no_ring,
            overwrite: self.arguments.overwrite,
            ..FileDeviceOptions::default()
        };
        let devices = devices::create(&self.devices, &names, options, outputs)?;
        log::settings(&plan, Some(&self.arguments.compress));
        if !self.global.is_silent() {
            let details = self.arguments.watching.details;
            table::print_plan(&plan, Some(&self.arguments.compress), details);
        }
        let options = BackupOptions {
            plan,
            codec: self.compression.codec,
            range: self.compression.range,
            source_rate: self.arguments.rates.max_rate,
            device_rate: self.arguments.rates.max_device_rate,
            ring: !self.arguments.buffers.no_ring,
            pacing: self.emulation.pacing(),
        };
        let watch = Watch::start(&Watched {
            global: self.global,
            watching: &self.arguments.watching,
            outputs: protected,
            command: "backup",
            operation: operation(&self.arguments.to),
            subject: self.subject(plain_name(database)),
            series: self.subject(self.name.place()),
            percent: self.arguments.stats,
        })?;
        let progress = Arc::clone(watch.progress());
        let created = fitted(now.as_nanosecond());
        let cancel = self.cancel.clone();
        let run = BackupRun::start(set_id, created, options, devices, progress, cancel)?;
        Ok((run, watch))
    }

    /// The database's configured name, or `other`.
    fn subject(&self, other: String) -> String {
        self.arguments.name.clone().unwrap_or(other)
    }

    fn options_json(&self, plan: &BufferPlan) -> serde_json::Value {
        serde_json::json!({
            "compress": self.compression.to_string(),
            "buffers": plan.buffers,
            "transfer_bytes": plan.transfer_bytes,
            "frame_bytes": plan.frame_bytes,
            "block_bytes": plan.alignment,
        })
    }

    /// Reports how close the run came to the probed speed of its storage, and to the plan's
    /// prediction.
    fn judge(&self, sealed: &mut Sealed, state: State) -> Result<Judgement, Failure> {
        let directories = self.devices.iter().filter_map(DeviceName::directory);
        let ends = Ends {
            database: sealed.places.iter().map(PathBuf::as_path).collect(),
            stripes: directories.collect(),
            is_backup: true,
            emulation: &self.emulation,
        };
        ends.judge(state.directory(), &mut sealed.report);
        let fixed = self.compression.range.is_none();
        let done = Done {
            report: &sealed.report,
            codec: fixed.then_some(self.compression.codec),
            request: settings::request(&self.arguments.buffers, &self.arguments.layout)?,
            rates: (
                self.arguments.rates.max_rate,
                self.arguments.rates.max_device_rate,
            ),
        };
        Ok(state.judge(&ends, &done))
    }

    fn show(&self, sealed: &Sealed, judgement: &Judgement) {
        sealed.warnings.print(self.arguments.watching.details);
        let report = &sealed.report;
        let is_trial = devices::keep_nothing(&self.arguments.to);
        if self.global.json {
            let mut document = document(sealed, judgement);
            if is_trial {
                // There is no set, so nobody may look for it.
                document["set_id"] = serde_json::Value::Null;
            }
            return output::line(&document.to_string());
        }
        let read = show_size(report.bytes_read);
        let (written, seconds) = (
            show_size(report.bytes_written),
            words::duration(report.seconds),
        );
        let result = match is_trial {
            true => ("nothing kept", format!("{read} read in {seconds}")),
            false => {
                let id = &report.set_id;
                (
                    "sealed",
                    format!("set {id}: {read} stored in {written}, in {seconds}"),
                )
            }
        };
        let remarks = sealed.remarks.iter().map(|text| ("source", text.clone()));
        let finished = Finished {
            result,
            then: self.stripes(report),
            report,
            judgement: Some(judgement),
            remarks: remarks.collect(),
            details: self.arguments.watching.details,
        };
        finished.print(self.global);
    }

    /// Where the set is, and how to restore it.
    fn stripes(&self, report: &RunReport) -> Vec<(&'static str, String)> {
        let kept = report.devices.iter().map(|device| device.name.as_str());
        let kept: Vec<_> = kept.filter(|name| name.starts_with('/')).collect();
        let mut lines: Vec<_> = kept
            .iter()
            .map(|name| ("stripe", (*name).to_owned()))
            .collect();
        if let (true, Some(first)) = (kept.len() == self.devices.len(), kept.first()) {
            let stripe = words::quoted(first);
            lines.push(("restore", format!("windlass restore {stripe} --into PATH")));
        }
        lines
    }

    fn note(&self, text: &str) {
        if !self.global.is_silent() {
            output::note(text);
        }
    }
}

/// This is a remark and not a warning. The backup itself is right, and most systems have such a
/// SQLite. A warning would end every backup there with exit code 3.
fn wal_reset_remark(facts: &windlass_sqlite::DatabaseFacts) -> Option<String> {
    facts.wal_reset_bug.then(|| {
        format!(
            "last written by SQLite {}, which can corrupt a database in WAL mode in rare cases; \
             3.51.3, 3.50.7 and 3.44.6 are fixed ({SQLITE_VERSION})",
            facts.sqlite_version
        )
    })
}

/// The JSON object at the end of a backup: the report, and what was backed up.
fn document(sealed: &Sealed, judgement: &Judgement) -> serde_json::Value {
    let mut document = to_json(&sealed.report);
    judgement.describe(&mut document);
    document["type"] = "full".into();
    document["database"] = sealed.database.clone();
    document["warnings"] = sealed.warnings.document();
    document["remarks"] = sealed.remarks.clone().into();
    document
}
