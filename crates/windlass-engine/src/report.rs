//! What a run reports when it ends: stages, devices, and the limit.

mod device;
mod pages;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_media::SetId;

use crate::activity::Activity;
use crate::adaptive::CompressionReport;
use crate::process::peak_memory_bytes;
use crate::resource::StageName;
use crate::verdict::{Limit, Verdict};
use crate::waits::{Cause, StageReport};

pub use device::DeviceReport;
pub(crate) use device::latencies;
pub use pages::PagesReport;

/// A finished backup, restore or verification. What it becomes as JSON can be read back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The set, as 32 hex digits; `None` if nothing was kept, so that nobody looks for it.
    pub set_id: Option<String>,
    /// Wall time from the start until everything is durable.
    pub seconds: f64,
    /// Wall time during which data moved.
    pub data_seconds: f64,
    /// CPU time of the whole process.
    pub cpu_seconds: f64,
    /// Most memory the process ever had, in bytes; zero where the kernel does not say.
    pub peak_memory_bytes: u64,
    /// Bytes read from the source (backup) or from the stripes (restore, verify).
    pub bytes_read: u64,
    /// Bytes written to the stripes (backup) or to the target (restore); zero for verify.
    pub bytes_written: u64,
    /// How many buffers the pool had at the beginning.
    pub buffers: usize,
    /// The most buffers that it had.
    #[serde(default)]
    pub buffers_peak: usize,
    /// Bytes of one buffer.
    pub transfer_bytes: usize,
    /// Bytes of all buffers at the beginning.
    pub buffer_bytes: u64,
    /// What each stage did, and what it waited for.
    pub stages: Vec<StageReport>,
    /// What each device did.
    pub devices: Vec<DeviceReport>,
    /// What bound the run.
    pub limit: Limit,
    /// The same information as a sentence.
    pub verdict: String,
    /// What an adaptive backup compressed with, and the reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionReport>,
    /// What a backup did with pages that it could take apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PagesReport>,
}

/// What a run of either direction knows about itself when it ends.
pub(crate) struct Ended {
    pub(crate) set_id: SetId,
    pub(crate) elapsed: Duration,
    pub(crate) cpu_seconds: f64,
    /// For how long data moved.
    pub(crate) data_seconds: f64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) devices: Vec<DeviceReport>,
}

impl RunReport {
    /// Seconds and number of a stage's waits; zero if there were none.
    pub fn waited(&self, stage: StageName, cause: Cause) -> (f64, u64) {
        let stage = self.stages.iter().find(|one| one.name == stage);
        let waits = stage.map_or(&[][..], |stage| &stage.waits);
        let wait = waits.iter().find(|wait| wait.cause == cause);
        wait.map_or((0.0, 0), |wait| (wait.seconds, wait.count))
    }

    pub(crate) fn of_backup(ended: Ended, activity: &Activity) -> Self {
        let verdict = Verdict::of_backup(activity, &ended.devices);
        Self::new(ended, activity, verdict)
    }

    pub(crate) fn of_restore(ended: Ended, activity: &Activity) -> Self {
        let verdict = Verdict::of_restore(activity, &ended.devices);
        let mut report = Self::new(ended, activity, verdict);
        report.stages[1].name = StageName::Decompressor;
        report
    }

    fn new(ended: Ended, activity: &Activity, verdict: Verdict) -> Self {
        let plan = &activity.plan;
        Self {
            set_id: Some(ended.set_id.to_string()),
            seconds: ended.elapsed.as_secs_f64(),
            data_seconds: ended.data_seconds,
            cpu_seconds: ended.cpu_seconds,
            peak_memory_bytes: peak_memory_bytes(),
            bytes_read: ended.bytes_read,
            bytes_written: ended.bytes_written,
            buffers: plan.buffers,
            buffers_peak: activity.buffers_peak,
            transfer_bytes: plan.transfer_bytes,
            buffer_bytes: plan.buffer_bytes,
            stages: activity.stages(),
            devices: ended.devices,
            limit: verdict.limit,
            verdict: verdict.sentence,
            compression: None,
            pages: None,
        }
    }
}
