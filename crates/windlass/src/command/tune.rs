//! `windlass tune`: finds the setting that makes backups of this database to these devices fastest.

mod gain;
mod limit;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::media::{Codec, SetId, fitted};
use windlass_engine::{
    BackupOptions, BufferRequest, Cancel, FileDeviceOptions, MEMORY_LIMIT_DEFAULT, Outputs,
    show_rate, to_json,
};
use windlass_lab::{
    Bounds, Ended, LabError, Sample, Settings, Space, Trial, TrialSource, Tuned, exhaust,
    measure_codecs, state_directory, to_f64, tune,
};
use windlass_model::Emulation;
use windlass_sqlite::Database;

use windlass_operations::sampled::cluster_files;

use crate::cli::{Global, Tune};
use crate::compression::parse_codec;
use crate::config::{self, edit};
use crate::database::DatabaseName;
use crate::devices::{self, DeviceName, StripeNames};
use crate::exit::{Code, Failure};
use crate::output;
use crate::outputs;
use crate::privilege;
use crate::signals;
use gain::gain_text;
use windlass_engine::show_size;
use windlass_operations::{OperationError, ProcessUse};

/// The bytes that the first trial reads; then the seconds that each later trial should take.
const LOOK_BYTES: u64 = 16 << 20;
const TRIAL_SECONDS: f64 = 0.5;
const TRIAL_BYTES_MIN: u64 = 16 << 20;
const TRIAL_BYTES_MAX: u64 = 1 << 30;
/// The sample and the time to measure codecs, which the predicted limit needs.
const SAMPLE_BYTES: u64 = 4 << 20;
const SAMPLE_TIME: Duration = Duration::from_millis(200);

pub fn run(global: &Global, arguments: &Tune) -> Result<Code, Failure> {
    if arguments.to.is_empty() {
        let hint = "Name the devices that backups are to go to.";
        return Err(Failure::usage("tune: --to is missing", hint));
    }
    if arguments.write {
        outputs::outputs().check(&edit::file(global.config.as_deref()))?;
    }
    let cancel = signals::cancel_on_signals()?;
    let name = DatabaseName::resolve_named(&arguments.database, arguments.name.as_deref())?;
    let devices = devices::resolve(&arguments.to)?;
    let emulation = Emulation::parse(arguments.bounds.emulate.iter().map(String::as_str))?;
    // The profiles belong to the user who probed, who need not be the database's owner.
    let state = state_directory();
    // Root sees what the owner of the database may not see.
    devices::check(&devices, &outputs::outputs())?;
    let place = privilege::as_user(ProcessUse::Own, name.owner(), || {
        let place = Place::find(&name)?;
        devices::check(&devices, &place.outputs)?;
        Ok::<_, Failure>(place)
    })?;
    for made in devices::make_directories(&devices, name.owner())? {
        if !global.is_silent() {
            output::note(&format!("made the directory {}", made.display()));
        }
    }
    let found = privilege::as_user(ProcessUse::Own, name.owner(), || {
        let known = limit::Known::of(&emulation, state.as_deref(), &place.files, &devices);
        let bench = Bench {
            global,
            arguments,
            name: &name,
            devices: &devices,
            emulation: &emulation,
            outputs: &place.outputs,
            cancel: &cancel,
        };
        bench.tune(&place, &known?)
    })?;
    let written = match arguments.write && !found.keeps_present() {
        true => Some(write(
            global,
            arguments,
            (&name, &devices),
            found.advised(),
        )?),
        false => None,
    };
    let kept = arguments.write && written.is_none();
    show(global, &found, written, kept);
    Ok(Code::Done)
}

/// Where the database's bytes are.
struct Place {
    files: Vec<PathBuf>,
    volumes: usize,
    outputs: Outputs,
}

impl Place {
    fn find(name: &DatabaseName) -> Result<Self, Failure> {
        match name {
            DatabaseName::Sqlite(path) => {
                Database::open(path)?;
                Ok(Self {
                    files: vec![path.clone()],
                    volumes: 1,
                    outputs: outputs::of_sqlite(path)?,
                })
            }
            DatabaseName::Postgres(conninfo) => {
                let (_, files) = cluster_files(conninfo)?;
                let cluster = windlass_postgres::Cluster::connect(conninfo)?;
                Ok(Self {
                    files,
                    volumes: cluster.scan_volumes()?,
                    outputs: outputs::of_cluster(&cluster.facts().data_directory)?,
                })
            }
        }
    }
}

/// What a search found, and what was known before it.
struct Found {
    tuned: Tuned,
    /// Whether the first setting is the configured one. Else it is the default.
    is_present: bool,
    limit: f64,
    trial_bytes: u64,
}

impl Found {
    /// The setting to use: the first one, unless the trials show that the best one is faster.
    fn advised(&self) -> &Settings {
        match self.tuned.difference.apart {
            true => &self.tuned.best.setting,
            false => &self.tuned.first.setting,
        }
    }

    /// Whether the setting to use is the one that the configuration has already.
    fn keeps_present(&self) -> bool {
        self.is_present && !self.tuned.difference.apart
    }
}

/// What all trials have in common.
struct Bench<'a> {
    global: &'a Global,
    arguments: &'a Tune,
    name: &'a DatabaseName,
    devices: &'a [DeviceName],
    emulation: &'a Emulation,
    outputs: &'a Outputs,
    cancel: &'a Cancel,
}

impl Bench<'_> {
    fn tune(&self, place: &Place, known: &limit::Known) -> Result<Found, Failure> {
        let codecs = self.arguments.compress.iter();
        let codecs = codecs
            .map(|text| parse_codec(text))
            .collect::<Result<Vec<Codec>, _>>()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = self.arguments.max_cpu.unwrap_or(f64::INFINITY);
        let threads = threads(most, cores);
        let memory = self.arguments.bounds.max_memory;
        let memory = memory.unwrap_or(MEMORY_LIMIT_DEFAULT);
        let ends = (self.devices.len(), place.volumes);
        let space = Space::new(codecs.clone(), ends, threads, memory);
        let present = present(&self.arguments.present, &space.first());
        let present = present.filter(|setting| setting.memory() <= memory);
        let is_present = present.is_some();
        let space = match present {
            Some(present) => space.beginning_with(present),
            None => space,
        };
        let sample = Sample::of_files(&place.files, SAMPLE_BYTES)?;
        let speeds = measure_codecs(&sample, &codecs, SAMPLE_TIME, self.cancel)?;
        let limit = known.limit(&speeds, &codecs, threads, self.arguments);
        let mut spent = (SAMPLE_TIME.as_secs_f64(), sample.bytes());
        let trial_bytes = match self.arguments.trial_bytes {
            Some(bytes) => bytes,
            None => {
                let source = TrialSource::draw(&place.files, LOOK_BYTES)?;
                let look = self.trial(&source, &space.first(), place.volumes)?;
                spent = (spent.0 + look.seconds, spent.1 + look.bytes);
                trial_bytes(look.rate)
            }
        };
        let source = TrialSource::draw(&place.files, trial_bytes)?;
        let bounds = Bounds {
            seconds: self.arguments.budget - spent.0,
            bytes: self.arguments.budget_bytes.saturating_sub(spent.1),
            cores: most,
            limit,
        };
        let mut trial = |setting: &Settings| {
            let found = self.trial(&source, setting, place.volumes)?;
            self.tell(&found);
            Ok(found)
        };
        let way = if self.arguments.exhaustive {
            exhaust
        } else {
            tune
        };
        let mut tuned = way(&space, &bounds, &mut trial)?;
        tuned.seconds += spent.0;
        tuned.bytes += spent.1;
        Ok(Found {
            tuned,
            is_present,
            limit,
            trial_bytes,
        })
    }

    fn trial(
        &self,
        source: &TrialSource,
        setting: &Settings,
        volumes: usize,
    ) -> Result<Trial, LabError> {
        let asked = BufferRequest {
            memory_limit: self.arguments.bounds.max_memory,
            ..BufferRequest::default()
        };
        let plan = setting.request(&asked).plan(self.devices.len(), volumes)?;
        let names = StripeNames {
            database: format!("{}-trial", self.name.short_name()),
            time: "tune".to_owned(),
            set_id: SetId(*uuid::Uuid::new_v4().as_bytes()),
            count: self.devices.len(),
        };
        let files = FileDeviceOptions {
            alignment: plan.alignment,
            // An existing stripe is safe: a trial ends before it would replace the stripe.
            overwrite: true,
            ..FileDeviceOptions::default()
        };
        let devices = devices::create(self.devices, &names, files, self.outputs);
        let devices = devices.map_err(|failure| match failure {
            OperationError::Engine(error) => LabError::Engine(error),
            failure => LabError::TrialDevices {
                what: failure.to_string(),
            },
        })?;
        let options = BackupOptions {
            plan,
            codec: setting.codec,
            range: None,
            source_rate: self.arguments.rates.max_rate,
            device_rate: self.arguments.rates.max_device_rate,
            ring: true,
            pacing: self.emulation.pacing(),
            page_frames: false,
        };
        let (report, seconds) = source.run(options, devices, self.cancel)?;
        let data_seconds = report.data_seconds.max(1e-9);
        Ok(Trial {
            setting: setting.clone(),
            rate: to_f64(report.bytes_read) / data_seconds,
            ratio: to_f64(report.bytes_read) / to_f64(report.bytes_written.max(1)),
            cores: report.cpu_seconds / report.seconds.max(1e-9),
            limit: report.limit.stage,
            verdict: report.verdict,
            seconds,
            bytes: report.bytes_read,
        })
    }

    fn tell(&self, trial: &Trial) {
        if !self.global.is_silent() {
            output::note(&format!("{}  {}", setting_text(trial), trial.verdict));
        }
    }
}

/// The setting that backups have now by the configuration; `None` if it leaves all of it to the
/// defaults, or to each run (`--compress auto`).
fn present(configured: &BTreeMap<String, String>, default: &Settings) -> Option<Settings> {
    if configured.is_empty() {
        return None;
    }
    let number = |key: &str, default: usize| match configured.get(key) {
        Some(text) => text.parse().ok(),
        None => Some(default),
    };
    let size = |key: &str, default: usize| match configured.get(key) {
        Some(text) => usize::try_from(windlass_engine::parse_size(text).ok()?).ok(),
        None => Some(default),
    };
    let codec = configured.get("compress").map(String::as_str);
    Some(Settings {
        codec: match codec {
            Some(text) => parse_codec(text).ok()?,
            None => default.codec,
        },
        buffers: number("buffers", default.buffers)?,
        transfer_bytes: size("transfer-size", default.transfer_bytes)?,
        readers: number("readers", default.readers)?,
        threads: number("threads", default.threads)?,
    })
}

/// The number of compressors: one for each core, or fewer if fewer may be busy.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of cores, and positive"
)]
fn threads(most: f64, cores: usize) -> usize {
    (most.ceil().min(1e6) as usize).clamp(1, cores)
}

/// The bytes of a trial that takes about [`TRIAL_SECONDS`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes, and positive"
)]
fn trial_bytes(rate: f64) -> u64 {
    let bytes = (rate * TRIAL_SECONDS) as u64;
    bytes
        .next_multiple_of(1 << 20)
        .clamp(TRIAL_BYTES_MIN, TRIAL_BYTES_MAX)
}

/// Writes the setting to the configuration. Returns the file, and the database's name in it.
fn write(
    global: &Global,
    arguments: &Tune,
    (database, devices): (&DatabaseName, &[DeviceName]),
    setting: &Settings,
) -> Result<(PathBuf, String), Failure> {
    let path = edit::file(global.config.as_deref());
    let name = arguments.name.clone().unwrap_or(database.short_name());
    let number = |value: usize| fitted::<i64, _>(value).into();
    let options = vec![
        ("compress", setting.codec.to_string().into()),
        ("buffers", number(setting.buffers)),
        (
            "transfer-size",
            format!("{}KiB", setting.transfer_bytes >> 10).into(),
        ),
        ("readers", number(setting.readers)),
        ("threads", number(setting.threads)),
    ];
    // Another file of the configuration may name the database, and its devices hold the backups.
    let whose = match config::database_names().contains(&name) {
        true => Vec::new(),
        false => whose(database, devices)?,
    };
    edit::set(&path, &name, whose, options)?;
    Ok((path, name))
}

/// Where a database is and where its backups go, for a database that the configuration does not
/// name yet. A device that keeps nothing is for trials only, so `to` is then left out.
fn whose(database: &DatabaseName, devices: &[DeviceName]) -> Result<edit::Options, Failure> {
    let source = match database {
        DatabaseName::Postgres(conninfo) => conninfo.clone(),
        DatabaseName::Sqlite(path) => absolute(path)?,
    };
    let mut whose = vec![("source", source.into())];
    let paths: Option<Vec<_>> = devices.iter().map(DeviceName::path).collect();
    if let Some(paths) = paths {
        let to: Result<toml_edit::Array, _> = paths.into_iter().map(absolute).collect();
        whose.push(("to", to?.into()));
    }
    Ok(whose)
}

/// A path as it is meant wherever the next backup starts.
fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        Failure::new(Code::Failed, message, "Name the whole path.")
    })?;
    Ok(absolute.display().to_string())
}

fn show(global: &Global, found: &Found, written: Option<(PathBuf, String)>, kept: bool) {
    let tuned = &found.tuned;
    if global.json {
        let mut document = to_json(tuned);
        document["predicted_limit"] =
            serde_json::json!(found.limit.is_finite().then_some(found.limit));
        document["first_is_configured"] = found.is_present.into();
        document["trial_bytes"] = found.trial_bytes.into();
        document["advised"] = to_json(found.advised());
        document["written"] = serde_json::json!(written);
        return output::line(&document.to_string());
    }
    let (best, first) = (&tuned.best, &tuned.first);
    let (label, words) = match found.is_present {
        true => ("present", "present setting"),
        false => ("default", "default"),
    };
    output::line(&format!("{label}       {}", setting_text(first)));
    output::line(&format!("best          {}", setting_text(best)));
    output::line(&format!(
        "gain          {}",
        gain_text(&tuned.difference, words, best.setting == first.setting)
    ));
    output::line(&format!("limit         {}", best.verdict));
    let predicted = match found.limit.is_finite() {
        true => format!(", predicted limit {}", show_rate(found.limit)),
        false => String::new(),
    };
    output::line(&format!(
        "ended         {}{predicted}; {} trials, {:.1} s, {} read",
        ended_text(tuned.ended),
        tuned.trials.len(),
        tuned.seconds,
        show_size(tuned.bytes)
    ));
    let Settings {
        codec,
        buffers,
        transfer_bytes,
        readers,
        threads,
    } = found.advised();
    output::line(&format!(
        "use           --compress {codec} --buffers {buffers} --transfer-size {}KiB --readers \
         {readers} --threads {threads}",
        transfer_bytes >> 10
    ));
    if let Some((path, name)) = written {
        output::line(&format!(
            "written       [database.{name}] of {}",
            path.display()
        ));
    }
    if kept {
        output::line("written       nothing: the present setting stays, as no gain was shown");
    }
}

fn setting_text(trial: &Trial) -> String {
    let setting = &trial.setting;
    format!(
        "{:<8} {:>3} x {:<7} {:>2} readers  {:>10}  ratio {:.2}",
        setting.codec.to_string(),
        setting.buffers,
        show_size(setting.transfer_bytes as u64),
        setting.readers,
        show_rate(trial.rate),
        trial.ratio
    )
}

fn ended_text(ended: Ended) -> &'static str {
    match ended {
        Ended::AtTheLimit => "at the predicted limit",
        Ended::AtTheRate => "at --max-rate",
        Ended::NoGain => "nothing more gains",
        Ended::Budget => "budget spent",
    }
}
