//! What a run reports when it ends: stages, devices, and the limit.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use windlass_media::SetId;

use crate::adaptive::CompressionReport;
use crate::error::EngineError;
use crate::options::BufferPlan;
use crate::progress::Progress;
use crate::restore::StripeReader;
use crate::set::OpenSet;
use crate::verdict::{Limit, Verdict};
use crate::waits::{Cause, Stage, StageReport};
use crate::writer::StripeWriter;

/// A finished backup, restore or verification.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The set, as 32 hex digits.
    pub set_id: String,
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
    /// How many buffers the pool had.
    pub buffers: usize,
    /// Bytes of one buffer.
    pub transfer_bytes: usize,
    /// Bytes of all buffers.
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
}

/// One device of a finished run.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Its location.
    pub name: String,
    /// Bytes written to it or read from it.
    pub bytes: u64,
    /// Transfers.
    pub operations: u64,
    /// Seconds during which it had work.
    pub busy_seconds: f64,
    /// Median latency of a transfer, in microseconds.
    pub latency_micros_p50: u64,
    /// 99th percentile, in microseconds.
    pub latency_micros_p99: u64,
    /// Slowest, in microseconds.
    pub latency_micros_max: u64,
}

impl DeviceReport {
    pub(crate) fn new(name: &str, bytes: u64, busy: f64, latency: &Histogram<u64>) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            operations: latency.len(),
            busy_seconds: busy,
            latency_micros_p50: latency.value_at_quantile(0.5),
            latency_micros_p99: latency.value_at_quantile(0.99),
            latency_micros_max: latency.max(),
        }
    }
}

/// Latencies of one device: from a microsecond to an hour, to two digits.
pub(crate) fn latencies() -> Result<Histogram<u64>, EngineError> {
    let histogram = Histogram::new_with_bounds(1, 3_600_000_000, 2);
    histogram.map_err(|error| EngineError::Source(Box::new(error)))
}

/// The measurements from which a verdict is made.
pub(crate) struct Activity {
    pub(crate) plan: BufferPlan,
    pub(crate) reader: StageReport,
    pub(crate) compressor: StageReport,
    pub(crate) writer: StageReport,
    pub(crate) data_seconds: f64,
    pub(crate) codec: String,
    pub(crate) source_rate: Option<u64>,
    pub(crate) device_rate: Option<u64>,
    pub(crate) cores: usize,
}

impl Activity {
    pub(crate) fn new(progress: &Progress, plan: &BufferPlan, data_seconds: f64) -> Self {
        let report = |stage: &Stage, name| stage.report(name);
        Self {
            plan: plan.clone(),
            reader: report(&progress.reader, "reader"),
            compressor: report(&progress.compressor, "compressor"),
            writer: report(&progress.writer, "writer"),
            data_seconds,
            codec: String::new(),
            source_rate: None,
            device_rate: None,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    pub(crate) fn stages(&self) -> Vec<StageReport> {
        vec![
            self.reader.clone(),
            self.compressor.clone(),
            self.writer.clone(),
        ]
    }
}

impl RunReport {
    pub(crate) fn of_backup(
        set_id: SetId,
        elapsed: Duration,
        cpu_seconds: f64,
        activity: &Activity,
        stripes: &[StripeWriter],
    ) -> Self {
        let seconds = elapsed.as_secs_f64();
        let devices: Vec<_> = stripes
            .iter()
            .map(|stripe| stripe_report(stripe, activity))
            .collect();
        let verdict = Verdict::of_backup(activity, &devices);
        Self {
            set_id: set_id.to_string(),
            seconds,
            data_seconds: activity.data_seconds,
            cpu_seconds,
            peak_memory_bytes: peak_memory_bytes(),
            bytes_read: activity.reader.bytes,
            bytes_written: stripes.iter().map(|stripe| stripe.offset).sum(),
            buffers: activity.plan.buffers,
            transfer_bytes: activity.plan.transfer_bytes,
            buffer_bytes: activity.plan.buffer_bytes,
            stages: activity.stages(),
            devices,
            limit: verdict.limit,
            verdict: verdict.sentence,
            compression: None,
        }
    }
}

impl RunReport {
    /// `readers` has what the reader of each stripe knows, for how many seconds data moved, and
    /// whether the target keeps it.
    pub(crate) fn of_restore(
        set: &OpenSet,
        elapsed: Duration,
        cpu_seconds: f64,
        activity: &Activity,
        (readers, data_seconds, keeps): (Vec<StripeReader<'_>>, f64, bool),
    ) -> Self {
        let device = |reader: &StripeReader<'_>| {
            let name = reader.stripe.location().to_string_lossy();
            DeviceReport::new(&name, reader.bytes, reader.busy_seconds, &reader.latency)
        };
        let devices: Vec<_> = readers.iter().map(device).collect();
        let mut stages = activity.stages();
        stages[1].name = "decompressor";
        let verdict = Verdict::of_restore(activity, &devices);
        Self {
            set_id: set.set_id().to_string(),
            seconds: elapsed.as_secs_f64(),
            data_seconds,
            cpu_seconds,
            peak_memory_bytes: peak_memory_bytes(),
            bytes_read: readers.iter().map(|reader| reader.bytes).sum(),
            bytes_written: if keeps { activity.writer.bytes } else { 0 },
            buffers: activity.plan.buffers,
            transfer_bytes: activity.plan.transfer_bytes,
            buffer_bytes: activity.plan.buffer_bytes,
            stages,
            devices,
            limit: verdict.limit,
            verdict: verdict.sentence,
            compression: None,
        }
    }
}

fn stripe_report(stripe: &StripeWriter, activity: &Activity) -> DeviceReport {
    // A device is busy while something is in flight. That is always so, except when its writer
    // waits for frames.
    let idle = stripe.waits.report("writer").waited(Cause::Frames);
    let busy = (activity.data_seconds - idle).max(0.0);
    DeviceReport::new(
        stripe.device.location(),
        stripe.offset,
        busy,
        &stripe.latency,
    )
}

/// CPU time of this process so far, in seconds.
pub(crate) fn process_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)).as_secs_f64()
}

/// Most memory that this process has had since it was started, in bytes: `VmHWM` of proc(5). Unlike
/// `ru_maxrss`, it begins anew at exec.
fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes =
        peak.and_then(|peak| peak.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_memory_rises_with_what_was_touched_and_never_falls() {
        let before = peak_memory_bytes();
        assert!(before > 0, "the kernel says it");
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        let with = peak_memory_bytes();
        drop(block);
        let after = peak_memory_bytes();
        // The kernel counts pages for each core separately, so a few may be missing at any moment.
        assert!(with >= 60 << 20, "{before} {with}");
        assert!(after >= 60 << 20, "{with} {after}");
    }
}
