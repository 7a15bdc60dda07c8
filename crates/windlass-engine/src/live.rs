//! The state of a run that is going on: how far it is, how fast, and what limits it at the moment.
//!
//! The limit is found in the same way as in the verdict (`verdict`), but from the waits of the last
//! seconds instead of all waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windlass_media::fitted;

use crate::activity::Activity;
use crate::buffer::Occupancy;
use crate::progress::{DeviceCounter, Progress, Setup};
use crate::report::DeviceReport;
use crate::resource::Resource;
use crate::verdict::Verdict;
use crate::waits::{StageReport, WaitReport};

/// The period over which rates and the bottleneck are calculated.
const WINDOW: Duration = Duration::from_secs(5);
/// How many looks are kept. Within the period, nobody needs to look more often than this.
const LOOKS_MAX: usize = 64;

/// A run at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// What it is doing: `reading`, `sealing`.
    pub phase: String,
    /// Seconds since the meter was created.
    pub elapsed_seconds: f64,
    /// Bytes of the database that are done.
    pub done_bytes: u64,
    /// Bytes of the database in total; zero when not known.
    pub total_bytes: u64,
    /// `done_bytes` divided by `total_bytes`, at most 1; `None` when not known.
    pub done_share: Option<f64>,
    /// Bytes of the database per second, over the last seconds.
    pub rate: f64,
    /// Seconds until everything is done, at the mean rate so far; `None` when not known.
    pub remaining_seconds: Option<f64>,
    /// What holds the run back; `None` while too little has happened.
    pub limit: Option<LiveLimit>,
    /// What each stage has done and waited for so far.
    pub stages: Vec<StageReport>,
    /// How much has gone to and come from each device so far.
    pub devices: Vec<LiveDevice>,
    /// Who has the buffers. `None` before the run has a pool, and after it.
    pub buffers: Option<Occupancy>,
}

/// What holds a run back right now, in the words of [`crate::Limit`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveLimit {
    /// The stage, or the other resource, that holds it back.
    pub stage: Resource,
    /// The device, if it is one.
    pub device: Option<String>,
}

/// One device of a run under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveDevice {
    /// Its location, or `source` or `target`.
    pub name: String,
    /// Bytes written to it or read from it.
    pub bytes: u64,
    /// Transfers.
    pub operations: u64,
    /// Bytes per second, over the last seconds.
    pub rate: f64,
}

/// The counters at one moment.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    done: u64,
    stages: [StageReport; 3],
    device_bytes: Vec<u64>,
}

/// Looks at a run again and again.
#[derive(Debug)]
pub struct Meter {
    progress: Arc<Progress>,
    began: Instant,
    looks: VecDeque<Look>,
}

impl Meter {
    /// A meter for this run. Its time begins now.
    pub fn new(progress: &Arc<Progress>) -> Self {
        Self {
            progress: Arc::clone(progress),
            began: Instant::now(),
            looks: VecDeque::new(),
        }
    }

    /// Shows how the run is now. Call it from time to time: rates are calculated between two calls.
    pub fn look(&mut self) -> Live {
        let progress = Arc::clone(&self.progress);
        let setup = progress.setup();
        let devices = setup.map_or(&[][..], |setup| &setup.devices);
        let now = Look {
            at: Instant::now(),
            done: progress.done(),
            stages: progress.reports(),
            device_bytes: devices.iter().map(DeviceCounter::bytes).collect(),
        };
        // The first look has no earlier one to compare with, so its rates are zero.
        let before = self.remember(&now).unwrap_or_else(|| now.clone());
        let time = now.at - before.at;
        let elapsed_seconds = (now.at - self.began).as_secs_f64();
        let total_bytes = progress.total();
        let done_share = (total_bytes > 0).then(|| share(now.done, total_bytes));
        let left = |share: f64| elapsed_seconds / share - elapsed_seconds;
        let live_device = |(index, device): (usize, &DeviceCounter)| LiveDevice {
            name: device.name.clone(),
            bytes: now.device_bytes[index],
            operations: device.operations(),
            // Before the run had devices, nothing had gone to them.
            rate: rate(
                before.device_bytes.get(index).copied().unwrap_or(0),
                now.device_bytes[index],
                time,
            ),
        };
        Live {
            phase: progress.phase().to_owned(),
            elapsed_seconds,
            done_bytes: now.done,
            total_bytes,
            done_share,
            rate: rate(before.done, now.done, time),
            remaining_seconds: done_share.filter(|share| *share > 0.0).map(left),
            limit: setup.and_then(|setup| limit(&before, &now, setup)),
            stages: now.stages.to_vec(),
            devices: devices.iter().enumerate().map(live_device).collect(),
            buffers: progress.occupancy(),
        }
    }

    /// Keeps this look, and returns the oldest one of the period.
    fn remember(&mut self, now: &Look) -> Option<Look> {
        let too_old = |second: &Look| now.at - second.at >= WINDOW;
        while self.looks.get(1).is_some_and(too_old) {
            self.looks.pop_front();
        }
        let recent = |last: &Look| now.at - last.at < WINDOW / fitted(LOOKS_MAX);
        if !self.looks.back().is_some_and(recent) {
            self.looks.push_back(now.clone());
        }
        self.looks
            .front()
            .filter(|first| first.at < now.at)
            .cloned()
    }
}

/// The share is at most one: a database may grow while it is read.
fn share(done: u64, total: u64) -> f64 {
    (float(done) / float(total)).min(1.0)
}

/// Bytes per second.
fn rate(before: u64, now: u64, time: Duration) -> f64 {
    float(now.saturating_sub(before)) / time.as_secs_f64().max(1e-9)
}

/// The verdict on what happened between two looks.
fn limit(before: &Look, now: &Look, setup: &Setup) -> Option<LiveLimit> {
    let stage = |index: usize| since(&before.stages[index], &now.stages[index]);
    let activity = Activity {
        plan: setup.plan.clone(),
        reader: stage(0),
        compressor: stage(1),
        writer: stage(2),
        data_seconds: (now.at - before.at).as_secs_f64(),
        buffers_peak: setup.buffers(),
        codec: setup.codec.clone(),
        takes_apart: false,
        source_rate: setup.source_rate,
        device_rate: setup.device_rate,
        cores: 1,
    };
    // Before the first byte, all threads wait for work. That says nothing about any resource.
    if activity.reader.threads == 0 || now.done == before.done {
        return None;
    }
    let (_, stripes) = setup.devices.split_last()?;
    let devices: Vec<_> = stripes.iter().map(unmeasured).collect();
    let verdict = if setup.backs_up {
        Verdict::of_backup(&activity, &devices)
    } else {
        Verdict::of_restore(&activity, &devices)
    };
    let (stage, device) = (verdict.limit.stage, verdict.limit.device);
    // Only the whole run shows which of several devices is the slowest.
    let device = device.filter(|_| stripes.len() == 1);
    Some(LiveLimit { stage, device })
}

/// A report of a device for which the verdict needs only the name.
fn unmeasured(device: &DeviceCounter) -> DeviceReport {
    DeviceReport {
        name: device.name.clone(),
        bytes: device.bytes(),
        operations: device.operations(),
        busy_seconds: 0.0,
        latency_micros_p50: 0,
        latency_micros_p99: 0,
        latency_micros_max: 0,
    }
}

/// What a stage did between two reports.
fn since(before: &StageReport, now: &StageReport) -> StageReport {
    let wait = |wait: &WaitReport| WaitReport {
        cause: wait.cause,
        seconds: (wait.seconds - before.waited(wait.cause)).max(0.0),
        count: wait.count,
    };
    StageReport {
        busy_seconds: (now.busy_seconds - before.busy_seconds).max(0.0),
        cpu_seconds: (now.cpu_seconds - before.cpu_seconds).max(0.0),
        operations: now.operations - before.operations,
        bytes: now.bytes - before.bytes,
        waits: now.waits.iter().map(wait).collect(),
        ..now.clone()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
fn float(value: u64) -> f64 {
    value as f64
}
