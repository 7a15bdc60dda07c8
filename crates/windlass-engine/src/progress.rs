//! The progress of a run: counters that can be read cheaply at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::buffer::{Occupancy, Pool};
use crate::options::{BackupOptions, BufferPlan};
use crate::resource::StageName;
use crate::waits::{Io, Recording, Stage, StageReport, Tap, serve_device, served_device};

/// How many phases are kept. If there are more, the last entry is the newest phase.
const PHASES_MAX: usize = 64;

/// The live state of one run.
#[derive(Debug, Default)]
pub struct Progress {
    /// The phases that the run has had, with the present one last; at most [`PHASES_MAX`].
    phases: Mutex<Vec<(&'static str, Instant)>>,
    total_bytes: AtomicU64,
    /// Readers: they read the source in a backup, and the stripes in a restore.
    pub reader: Stage,
    /// Compressors in a backup, decompressors in a restore.
    pub compressor: Stage,
    /// Writers: they write stripes in a backup, and files in a restore.
    pub writer: Stage,
    setup: OnceLock<Setup>,
    recorder: OnceLock<Arc<dyn Recording>>,
}

/// How a run is set up. It is known as soon as the run's threads start.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) plan: BufferPlan,
    pub(crate) codec: String,
    pub(crate) source_rate: Option<u64>,
    pub(crate) device_rate: Option<u64>,
    /// True for a backup, false for a restore or a verification.
    pub(crate) backs_up: bool,
    /// The devices of the stripes, by stripe; then one for the source or the target.
    pub(crate) devices: Vec<DeviceCounter>,
    /// Weak, so that an observer of a run does not keep the run's memory.
    pub(crate) pool: Weak<Pool>,
}

/// How much has gone to or come from a device.
#[derive(Debug)]
pub(crate) struct DeviceCounter {
    pub(crate) name: String,
    bytes: AtomicU64,
    operations: AtomicU64,
}

impl DeviceCounter {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        let (bytes, operations) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            name: name.into(),
            bytes,
            operations,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }
}

impl Progress {
    /// Says what the run is doing now.
    pub fn set_phase(&self, phase: &'static str) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        if phases.last().is_some_and(|(last, _)| *last == phase) {
            return;
        }
        phases.truncate(PHASES_MAX - 1);
        phases.push((phase, Instant::now()));
    }

    /// What the run is doing now.
    pub fn phase(&self) -> &'static str {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.last().map_or("", |(phase, _)| phase)
    }

    /// Everything the run has done so far, in order. The last entry is what it does now.
    pub fn phases(&self) -> Vec<&'static str> {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.iter().map(|(phase, _)| *phase).collect()
    }

    /// The same, each with the time that it took. The last one goes on until now.
    pub fn phase_times(&self) -> Vec<(&'static str, Duration)> {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = phases.iter().skip(1).map(|(_, begun)| *begun);
        let ends = ends.chain([Instant::now()]);
        let times = phases.iter().zip(ends);
        times
            .map(|((phase, begun), end)| (*phase, end.saturating_duration_since(*begun)))
            .collect()
    }

    /// Sets how many bytes there are to do, as far as that is known.
    pub fn set_total(&self, bytes: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Takes bytes that will not be done out of the total.
    pub(crate) fn leave_out(&self, bytes: u64) {
        let total = self.total_bytes.load(Ordering::Relaxed);
        let less = bytes.min(total);
        self.total_bytes.fetch_sub(less, Ordering::Relaxed);
    }

    /// How many bytes there are to do; zero when not known. A run may turn out to have more to do
    /// than was foreseen, for example files that it read again. So the total is never less than
    /// what is done; a caller who compares the two asks for `done` first.
    pub fn total(&self) -> u64 {
        match self.total_bytes.load(Ordering::Relaxed) {
            0 => 0,
            total => total.max(self.done()),
        }
    }

    /// How many bytes are done: read from the source, or taken from the stripes.
    pub fn done(&self) -> u64 {
        self.compressor.bytes()
    }

    /// Notes that the run's threads start now.
    pub(crate) fn begin(&self, setup: Setup) {
        let setup = self.setup.get_or_init(|| setup);
        if let Some(recorder) = self.recorder.get() {
            recorder.begin(setup.describe());
        }
    }

    /// Notes that the next set of a chain is read, by threads of its own.
    pub(crate) fn begin_link(&self) {
        for stage in self.stages() {
            stage.begin_link();
        }
    }

    pub(crate) fn setup(&self) -> Option<&Setup> {
        self.setup.get()
    }

    /// From now on, reports all waits and I/Os to a recorder.
    pub(crate) fn record(&self, recorder: &Arc<dyn Recording>) {
        let recorder = self.recorder.get_or_init(|| Arc::clone(recorder));
        for (index, stage) in self.stages().into_iter().enumerate() {
            stage.set_tap(Tap::new(recorder, index));
        }
    }

    fn stages(&self) -> [&Stage; 3] {
        [&self.reader, &self.compressor, &self.writer]
    }

    /// The counters of the stages up to now.
    pub fn reports(&self) -> [StageReport; 3] {
        let names = self.setup.get().map_or(BACKUP_STAGES, Setup::stages);
        let [reader, compressor, writer] = self.stages();
        [
            reader.report(names[0]),
            compressor.report(names[1]),
            writer.report(names[2]),
        ]
    }

    /// From here on, everything that the calling thread does is for the device of this stripe.
    pub(crate) fn serve(stripe: usize) {
        serve_device(stripe);
    }

    /// Does the same for the source of a backup, or the target of a restore.
    pub(crate) fn serve_outside(&self) {
        if let Some(setup) = self.setup.get() {
            serve_device(setup.devices.len().saturating_sub(1));
        }
    }

    /// Counts an I/O for the device that the calling thread serves.
    pub(crate) fn io(&self, stage: &Stage, io: Io) {
        let device = self.setup.get().zip(served_device());
        if let Some(device) = device.and_then(|(setup, device)| setup.devices.get(device)) {
            device.bytes.fetch_add(io.bytes, Ordering::Relaxed);
            device.operations.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(tap) = stage.tap() {
            tap.completed(&io);
        }
    }

    /// Who has the buffers right now. `None` before the run has a pool, and after it.
    pub(crate) fn occupancy(&self) -> Option<Occupancy> {
        let pool = self.setup.get()?.pool.upgrade()?;
        Some(pool.occupancy())
    }
}

const BACKUP_STAGES: [StageName; 3] = [StageName::Reader, StageName::Compressor, StageName::Writer];
const RESTORE_STAGES: [StageName; 3] = [
    StageName::Reader,
    StageName::Decompressor,
    StageName::Writer,
];

impl Setup {
    /// The setup of a backup to stripes at these places.
    pub(crate) fn of_backup<'a>(
        options: &BackupOptions,
        stripes: impl Iterator<Item = &'a str>,
        pool: &Arc<Pool>,
    ) -> Self {
        let devices = stripes.chain(["source"]).map(DeviceCounter::new);
        Self {
            plan: options.plan.clone(),
            codec: options.codec.to_string(),
            source_rate: options.source_rate,
            device_rate: options.device_rate,
            backs_up: true,
            devices: devices.collect(),
            pool: Arc::downgrade(pool),
        }
    }

    /// How many buffers the run has now.
    pub(crate) fn buffers(&self) -> usize {
        let pool = self.pool.upgrade();
        pool.map_or(self.plan.buffers, |pool| pool.count())
    }

    /// The setup for a recorder.
    fn describe(&self) -> serde_json::Value {
        let outside = if self.backs_up { "source" } else { "target" };
        let last = self.devices.len().saturating_sub(1);
        let devices = self.devices.iter().enumerate().map(|(index, device)| {
            let role = if index == last { outside } else { "stripe" };
            serde_json::json!({"device": index, "name": device.name, "role": role})
        });
        serde_json::json!({
            "stages": self.stages(),
            "devices": devices.collect::<Vec<_>>(),
            "plan": self.plan,
            "codec": self.codec,
        })
    }

    /// The stages' names.
    pub(crate) fn stages(&self) -> [StageName; 3] {
        if self.backs_up {
            BACKUP_STAGES
        } else {
            RESTORE_STAGES
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_never_less_than_what_is_done() {
        let progress = Progress::default();
        progress.compressor.add_work(50);
        assert_eq!(progress.total(), 0, "not known yet");
        progress.set_total(100);
        assert_eq!(progress.total(), 100);
        progress.compressor.add_work(100);
        assert_eq!((progress.done(), progress.total()), (150, 150));
    }
}
