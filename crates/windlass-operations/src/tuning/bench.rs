//! The trials of a search: what they have in common, and how one is made.

use std::path::Path;
use std::time::Duration;

use windlass_engine::media::{Codec, SetId};
use windlass_engine::{
    BackupOptions, BufferRequest, Cancel, FileDeviceOptions, MEMORY_LIMIT_DEFAULT,
};
use windlass_lab::{
    Bounds, Sample, Settings, Space, Trial, TrialSource, Tuned, exhaust, measure_codecs, to_f64,
    tune as search,
};

use super::limit::Known;
use super::{TuneRequest, TunedDatabase};
use crate::backup::PageChoice;
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::devices::{self, DeviceName, StripeNames};
use crate::error::OperationError;
use crate::notice::Notice;
use crate::objects::Objects;

/// The bytes that the first trial reads; then the seconds that each later trial should take.
const LOOK_BYTES: u64 = 16 << 20;
const TRIAL_SECONDS: f64 = 0.5;
const TRIAL_BYTES_MIN: u64 = 16 << 20;
const TRIAL_BYTES_MAX: u64 = 1 << 30;
/// The sample and the time to measure codecs, which the predicted limit needs.
const SAMPLE_BYTES: u64 = 4 << 20;
const SAMPLE_TIME: Duration = Duration::from_millis(200);

/// What all trials have in common.
pub(super) struct Bench<'a> {
    pub(super) caller: &'a Caller,
    pub(super) request: &'a TuneRequest,
    pub(super) name: &'a DatabaseName,
    pub(super) devices: &'a [DeviceName],
    pub(super) database: &'a TunedDatabase,
    pub(super) cancel: &'a Cancel,
}

/// What a search found.
pub(super) struct Found {
    pub(super) tuned: Tuned,
    pub(super) is_present: bool,
    /// Infinite if nothing is known.
    pub(super) limit: f64,
    pub(super) trial_bytes: u64,
}

/// What was spent before the search: seconds, and bytes that were read.
type Spent = (f64, u64);

impl Bench<'_> {
    pub(super) fn tune(&self, known: &Known) -> Result<Found, OperationError> {
        let (request, files) = (self.request, &self.database.files);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = request.cores_max.unwrap_or(f64::INFINITY);
        let threads = threads(most, cores);
        let (space, is_present) = self.space(threads);
        let class = |path: &Path| {
            let class = self.database.class(path);
            class.filter(|_| self.takes_apart(Codec::Zstd(1)))
        };
        let sample = Sample::of_relations(files, SAMPLE_BYTES, class)?;
        let sample = sample.asked(request.pages == PageChoice::Auto);
        let speeds = measure_codecs(&sample, &request.codecs, SAMPLE_TIME, self.cancel)?;
        let limit = known.limit(&speeds, &request.codecs, threads, &request.rates);
        let spent = (SAMPLE_TIME.as_secs_f64(), sample.bytes());
        let (trial_bytes, spent) = self.trial_bytes(&space, spent)?;
        let source = self.draw(trial_bytes)?;
        let bounds = Bounds {
            seconds: request.budget.as_secs_f64() - spent.0,
            bytes: request.budget_bytes.saturating_sub(spent.1),
            cores: most,
            limit,
        };
        let mut trial = |setting: &Settings| {
            let trial = self.trial(&source, setting)?;
            self.caller.tell(&Notice::Tried(&trial));
            Ok::<_, OperationError>(trial)
        };
        let mut tuned = match request.exhaustive {
            true => exhaust(&space, &bounds, &mut trial)?,
            false => search(&space, &bounds, &mut trial)?,
        };
        tuned.seconds += spent.0;
        tuned.bytes += spent.1;
        Ok(Found {
            tuned,
            is_present,
            limit,
            trial_bytes,
        })
    }

    /// The settings to choose from, and whether the search begins with the present one.
    fn space(&self, threads: usize) -> (Space, bool) {
        let memory = self.request.memory_limit.unwrap_or(MEMORY_LIMIT_DEFAULT);
        let ends = (self.devices.len(), self.database.volumes);
        let space = Space::new(self.request.codecs.clone(), ends, threads, memory);
        let present = self.request.present.as_ref();
        let present = present.map(|present| present.over(&space.first()));
        match present.filter(|setting| setting.memory() <= memory) {
            Some(present) => (space.beginning_with(present), true),
            None => (space, false),
        }
    }

    /// How much one trial reads, and what was spent after the look that finds it out.
    fn trial_bytes(&self, space: &Space, spent: Spent) -> Result<(u64, Spent), OperationError> {
        if let Some(bytes) = self.request.trial_bytes {
            return Ok((bytes, spent));
        }
        let source = self.draw(LOOK_BYTES)?;
        let look = self.trial(&source, &space.first())?;
        let spent = (spent.0 + look.seconds, spent.1 + look.bytes);
        Ok((trial_bytes(look.rate), spent))
    }

    /// Whether a backup with this codec takes pages apart.
    fn takes_apart(&self, codec: Codec) -> bool {
        let is_postgres = matches!(self.name, DatabaseName::Postgres(_));
        self.request.pages.holds_with(is_postgres, codec)
    }

    fn draw(&self, bytes: u64) -> Result<TrialSource, OperationError> {
        let source = TrialSource::draw(&self.database.files, bytes)?;
        Ok(source.with_classes(|path| self.database.class(path)))
    }

    fn trial(&self, source: &TrialSource, setting: &Settings) -> Result<Trial, OperationError> {
        let asked = BufferRequest {
            memory_limit: self.request.memory_limit,
            ..BufferRequest::default()
        };
        let asked = setting.request(&asked);
        let plan = asked.plan(self.devices.len(), self.database.volumes)?;
        let names = StripeNames {
            database: format!("{}-trial", self.name.short_name()),
            time: "tune".to_owned(),
            set_id: SetId(*uuid::Uuid::new_v4().as_bytes()),
            count: self.devices.len(),
        };
        let objects = Objects::none(self.cancel);
        let files = FileDeviceOptions {
            alignment: plan.alignment,
            // An existing stripe is safe: a trial ends before it would replace the stripe.
            overwrite: true,
            ..FileDeviceOptions::default()
        };
        let devices = devices::create(
            self.devices,
            &names,
            files,
            (&self.database.outputs, &objects),
        )?;
        let page_frames = self.takes_apart(setting.codec) && plan.check_pages().is_ok();
        let options = BackupOptions {
            plan,
            codec: setting.codec,
            range: None,
            source_rate: self.request.rates.read,
            device_rate: self.request.rates.write,
            ring: true,
            pacing: self.request.emulation.pacing(),
            page_frames,
            frame_proof: true,
            encryption: None,
            parities: 0,
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
