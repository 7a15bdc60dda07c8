//! `windlass backup`: a live database to a sealed set.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::{Codec, SetId};
use windlass_engine::{
    BackupOptions, BackupRun, BufferPlan, Cancel, CodecRange, Emulation, FileDeviceOptions,
    Outputs, RunReport, clean_up, show_size,
};
use windlass_postgres::{BackupRequest, Cluster, EarlierWindow};
use windlass_sqlite::Database;

use crate::cli::{Backup, Global};
use crate::database::{DatabaseName, plain_name};
use crate::devices::{self, DeviceName, StripeNames};
use crate::exit::{Code, Failure};
use crate::foretold::{Done, Judgement, State};
use crate::probed::Ends;
use crate::run::{Run, RunEnd};
use crate::table::{self, Finished};
use crate::watch::{self, Ended, Watch, Watched};
use crate::{log, output, outputs, words};

/// A sealed backup of any kind of database.
struct Sealed {
    report: RunReport,
    database: serde_json::Value,
    places: Vec<PathBuf>,
    warnings: Vec<String>,
    remarks: Vec<String>,
}

pub fn run(global: &Global, arguments: &Backup) -> Result<Code, Failure> {
    if arguments.dry_run {
        return super::check::dry_run(global, arguments);
    }
    let cancel = super::cancel_on_signals()?;
    let subject = match &arguments.name {
        Some(name) => name.clone(),
        None => DatabaseName::guess(&arguments.database).short_name(),
    };
    let about = (global, &arguments.watching, &arguments.hooks);
    let run = Run::new(about, "backup", &subject, &cancel)?;
    run.go(|run| back_up(global, arguments, run, cancel))
}

fn back_up(
    global: &Global,
    arguments: &Backup,
    run: &mut Run<'_>,
    cancel: Cancel,
) -> Result<RunEnd, Failure> {
    let compression = Compression::parse(&arguments.compress)?;
    run.hooks
        .set_owner(DatabaseName::guess(&arguments.database).owner_or_usual());
    let name = DatabaseName::resolve(&arguments.database)?;
    let emulation = super::emulation(&arguments.buffers)?;
    // The profiles belong to the user who probed, who need not be the database's owner.
    let state = State::open(&emulation, !arguments.no_prediction);
    // The hook comes first, because it may be what mounts the devices.
    run.hooks.before()?;
    let devices = devices::resolve(&arguments.to, name.owner())?;
    name.become_owner()?;
    let job = Job {
        global,
        arguments,
        compression,
        emulation,
        name: &name,
        devices,
        cancel,
    };
    let mut sealed = match &name {
        DatabaseName::Postgres(conninfo) => job.postgres(conninfo)?,
        DatabaseName::Sqlite(path) => job.sqlite(path)?,
    };
    let judgement = job.judge(&mut sealed, state)?;
    job.show(&sealed, &judgement);
    let code = if sealed.warnings.is_empty() {
        Code::Done
    } else {
        Code::Warnings
    };
    Ok(RunEnd::new(code, &sealed.report))
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
    fn postgres(&self, conninfo: &str) -> Result<Sealed, Failure> {
        let mut cluster = Cluster::connect(conninfo)?;
        let plan = super::request(&self.arguments.buffers, &self.arguments.layout)?
            .plan(self.devices.len(), cluster.scan_volumes()?)?;
        let request = BackupRequest {
            label: self.arguments.label.clone(),
            fast_checkpoint: self.arguments.checkpoint == "fast",
            verify_checksums: !self.arguments.no_page_checksums,
            options: self.options_json(&plan),
            ..BackupRequest::default()
        };
        let outputs = outputs::of_cluster(&cluster.facts().data_directory)?;
        let database = cluster.facts().name.clone();
        let (run, watch) = self.start(plan, &database, &outputs)?;
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
        let database = serde_json::to_value(&outcome.facts).unwrap_or_default();
        let warnings = outcome
            .facts
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect();
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

    fn sqlite(&self, path: &std::path::Path) -> Result<Sealed, Failure> {
        let mut database = Database::open(path)?;
        if let Some(seconds) = self.arguments.lock_wait {
            database.set_lock_wait(Duration::from_secs(seconds));
        }
        if let Some(seconds) = self.arguments.lock_limit {
            database.set_lock_limit((seconds > 0).then(|| Duration::from_secs(seconds)));
        }
        let plan = super::request(&self.arguments.buffers, &self.arguments.layout)?
            .plan(self.devices.len(), 1)?;
        database.set_options(self.options_json(&plan));
        database.set_label(&self.arguments.label);
        let outputs = outputs::of_sqlite(path)?;
        let (run, watch) = self.start(plan, &self.name.short_name(), &outputs)?;
        let outcome = watch.end(database.backup(run), |done| Ended::well(&done.report))?;
        let held = outcome.lock_held.as_secs_f64() * 1000.0;
        let remark = match outcome.facts.journal_mode {
            windlass_sqlite::JournalMode::Wal => "writers were never blocked (WAL mode)".to_owned(),
            _ => format!("writers were locked out for {held:.1} ms (rollback mode)"),
        };
        let mut remarks = vec![remark];
        remarks.extend(wal_reset_remark(&outcome.facts));
        let mut facts = outcome.facts.to_json();
        facts["lock_held_seconds"] = outcome.lock_held.as_secs_f64().into();
        facts["lock_bytes_read"] = outcome.lock_bytes.into();
        let (report, warnings) = (outcome.report, outcome.warnings);
        Ok(Sealed {
            report,
            database: facts,
            places: vec![path.to_owned()],
            warnings,
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
        watch::check(self.global, &self.arguments.watching, protected)?;
        self.devices
            .iter()
            .try_for_each(|device| device.make(None))?;
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
        if !super::is_silent(self.global) {
            let details = self.arguments.watching.details;
            table::print_plan(&plan, Some(&self.arguments.compress), details);
        }
        let options = BackupOptions {
            plan,
            codec: self.compression.codec,
            range: self.compression.range,
            source_rate: self.arguments.max_rate,
            device_rate: self.arguments.max_device_rate,
            ring: !self.arguments.buffers.no_ring,
            emulation: self.emulation.clone(),
        };
        let watch = Watch::start(&Watched {
            global: self.global,
            watching: &self.arguments.watching,
            outputs: protected,
            command: "backup",
            subject: self.subject(database),
            percent: self.arguments.stats,
        })?;
        let progress = Arc::clone(watch.progress());
        let created = i64::try_from(now.as_nanosecond()).unwrap_or(0);
        let cancel = self.cancel.clone();
        let run = BackupRun::start(set_id, created, options, devices, progress, cancel)?;
        Ok((run, watch))
    }

    /// The database's name in metrics and in the status: the configured one, or `own`.
    fn subject(&self, own: &str) -> String {
        let configured = self.arguments.name.clone();
        configured.unwrap_or_else(|| plain_name(own))
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
            request: super::request(&self.arguments.buffers, &self.arguments.layout)?,
            rates: (self.arguments.max_rate, self.arguments.max_device_rate),
        };
        Ok(state.judge(&ends, &done))
    }

    fn show(&self, sealed: &Sealed, judgement: &Judgement) {
        for warning in &sealed.warnings {
            output::note(&format!("warning: {warning}"));
        }
        let report = &sealed.report;
        if self.global.json {
            return output::line(&document(sealed, judgement).to_string());
        }
        let read = show_size(report.bytes_read);
        let (written, seconds) = (
            show_size(report.bytes_written),
            words::duration(report.seconds),
        );
        let result = match self.devices.iter().all(|device| *device == DeviceName::Nul) {
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
            report,
            judgement: Some(judgement),
            remarks: remarks.collect(),
            details: self.arguments.watching.details,
        };
        finished.print(self.global);
    }

    fn note(&self, text: &str) {
        if !super::is_silent(self.global) {
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
             3.51.3, 3.50.7 and 3.44.6 are fixed",
            facts.sqlite_version
        )
    })
}

/// The JSON object at the end of a backup: the report, and what was backed up.
fn document(sealed: &Sealed, judgement: &Judgement) -> serde_json::Value {
    let mut document = serde_json::to_value(&sealed.report).unwrap_or_default();
    judgement.describe(&mut document);
    document["type"] = "full".into();
    document["database"] = sealed.database.clone();
    document["warnings"] = sealed.warnings.clone().into();
    document["remarks"] = sealed.remarks.clone().into();
    document
}

/// The value of `--compress`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compression {
    /// The codec; with a range, the first one.
    codec: Codec,
    /// The codecs between which the run chooses.
    range: Option<CodecRange>,
}

impl Compression {
    /// The codec with which a run begins.
    pub(super) fn first(&self) -> Codec {
        self.codec
    }

    /// A codec, `auto`, or `auto:WEAKEST..STRONGEST`.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let range = match text.strip_prefix("auto") {
            Some("") => CodecRange::default(),
            Some(bounds) => parse_range(text, bounds)?,
            None => {
                let codec = parse_codec(text)?;
                return Ok(Self { codec, range: None });
            }
        };
        Ok(Self {
            codec: range.start(),
            range: Some(range),
        })
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.range {
            Some(range) => write!(f, "auto:{range}"),
            None => write!(f, "{}", self.codec),
        }
    }
}

/// `:WEAKEST..STRONGEST`.
fn parse_range(text: &str, bounds: &str) -> Result<CodecRange, Failure> {
    let fault = || {
        Failure::usage(
            format!("--compress: {text:?} is no range of codecs"),
            "Say auto, or auto:WEAKEST..STRONGEST as in auto:lz4..zstd:6.",
        )
    };
    let bounds = bounds.strip_prefix(':').and_then(|it| it.split_once(".."));
    let (weakest, strongest) = bounds.ok_or_else(fault)?;
    CodecRange::new(parse_codec(weakest)?, parse_codec(strongest)?).ok_or_else(fault)
}

/// `none`, `lz4`, `zstd`, `zstd:LEVEL`.
pub(super) fn parse_codec(text: &str) -> Result<Codec, Failure> {
    let fault = || {
        Failure::usage(
            format!("--compress: {text:?} is no codec"),
            "Use none, lz4, zstd, auto or zstd:LEVEL, with a LEVEL from 1 to 19, or -7 to -1.",
        )
    };
    match text
        .split_once(':')
        .map_or((text, None), |(name, level)| (name, Some(level)))
    {
        ("none", None) => Ok(Codec::None),
        ("lz4", None) => Ok(Codec::Lz4),
        ("zstd", None) => Ok(Codec::Zstd(1)),
        ("zstd", Some(level)) => {
            let level: i32 = level.parse().map_err(|_| fault())?;
            let known = (1..=19).contains(&level) || (-7..=-1).contains(&level);
            if known {
                Ok(Codec::Zstd(level))
            } else {
                Err(fault())
            }
        }
        _ => Err(fault()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_codecs_is_read_and_shown() {
        let shown = |text| Compression::parse(text).ok().map(|it| it.to_string());
        assert_eq!(shown("auto").as_deref(), Some("auto:lz4..zstd:9"));
        assert_eq!(
            shown("auto:none..zstd").as_deref(),
            Some("auto:none..zstd:1")
        );
        assert_eq!(shown("zstd:3").as_deref(), Some("zstd:3"));
        for bad in [
            "auto:",
            "auto:lz4",
            "auto:zstd:6..lz4",
            "auto:lz4..tar",
            "automatic",
        ] {
            assert_eq!(shown(bad), None, "{bad}");
        }
    }
}
