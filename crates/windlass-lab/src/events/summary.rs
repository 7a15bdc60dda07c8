//! The tables: waits by stage and cause, I/Os by device.

use std::collections::BTreeMap;

use serde::Serialize;
use windlass_engine::Cause;
use windlass_engine::media::saturated;

use super::read::EventFile;
use super::spread::{Spread, float};

/// The summary of a file.
#[derive(Clone, Debug, Serialize)]
pub struct EventTable {
    /// `backup`, `restore`, `verify`.
    pub command: String,
    /// What it worked on.
    pub subject: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The length of the recording.
    pub seconds: f64,
    /// `done`, `failed`; `cut_off` when the file has no end.
    pub outcome: String,
    /// Why it failed.
    pub error: Option<String>,
    /// The run's verdict, if it has one.
    pub verdict: Option<String>,
    /// Events in the file.
    pub events: u64,
    /// Events that were left out; others in the file stand for them.
    pub thinned: u64,
    /// Events that were left out, and no other event stands for them.
    pub lost: u64,
    /// Waits; the longest sum comes first.
    pub waits: Vec<WaitRow>,
    /// I/Os, by device.
    pub ios: Vec<IoRow>,
}

/// Waits of one stage for one cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRow {
    /// The stage.
    pub stage: String,
    /// Why it waited.
    pub cause: &'static str,
    /// How long, how often.
    #[serde(flatten)]
    pub spread: Spread,
    /// Its share of all waiting.
    pub share: f64,
}

/// I/Os of one kind with one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IoRow {
    /// The device's location.
    pub device: String,
    /// Its short name, for people.
    pub name: String,
    /// `device_write`, `source_read`, ...
    pub operation: &'static str,
    /// How long, from submission to completion, and how often.
    #[serde(flatten)]
    pub spread: Spread,
    /// Bytes of all.
    pub bytes: u64,
    /// Mean bytes of one I/O.
    pub mean_bytes: f64,
    /// Mean number of I/Os in flight on the thread.
    pub mean_depth: f64,
}

type Values = Vec<(u64, u64)>;

#[derive(Default)]
struct IoSums {
    values: Values,
    bytes: u128,
    depth: u128,
    weight: u128,
}

impl EventTable {
    /// Sums up a file.
    pub fn of(file: &EventFile) -> Self {
        let end = file.end.as_ref();
        let report = end.and_then(|end| end.report.as_ref());
        let verdict = report.and_then(|report| report["verdict"].as_str());
        Self {
            command: file.header.command.clone(),
            subject: file.header.subject.clone(),
            started: file.header.started.clone(),
            seconds: file.seconds(),
            outcome: end.map_or("cut_off", |end| end.outcome.as_str()).to_owned(),
            error: end.and_then(|end| end.error.clone()),
            verdict: verdict.map(str::to_owned),
            events: file.events.len() as u64,
            thinned: end.map_or(0, |end| end.thinned),
            lost: end.map_or(0, |end| end.lost),
            waits: waits(file),
            ios: ios(file),
        }
    }
}

fn waits(file: &EventFile) -> Vec<WaitRow> {
    let mut groups: BTreeMap<(usize, Cause), Values> = BTreeMap::new();
    for event in file.events.iter().filter(|event| !event.io) {
        let group = groups.entry((event.stage, event.cause)).or_default();
        group.push((event.nanos, event.weight));
    }
    let row = |((stage, cause), values): ((usize, Cause), Values)| WaitRow {
        stage: file.header.stages.get(stage).cloned().unwrap_or_default(),
        cause: cause.name(),
        spread: Spread::of(values),
        share: 0.0,
    };
    let mut rows: Vec<_> = groups.into_iter().map(row).collect();
    let all: f64 = rows.iter().map(|row| row.spread.total_seconds).sum();
    for row in &mut rows {
        row.share = row.spread.total_seconds / all.max(1e-9);
    }
    rows.sort_by(|a, b| b.spread.total_seconds.total_cmp(&a.spread.total_seconds));
    rows
}

fn ios(file: &EventFile) -> Vec<IoRow> {
    let mut groups: BTreeMap<(Option<usize>, Cause), IoSums> = BTreeMap::new();
    for event in file.events.iter().filter(|event| event.io) {
        let sums = groups.entry((event.device, event.cause)).or_default();
        let weight = u128::from(event.weight);
        sums.values.push((event.nanos, event.weight));
        sums.bytes += u128::from(event.bytes) * weight;
        sums.depth += u128::from(event.depth) * weight;
        sums.weight += weight;
    }
    let short = file.short_names();
    let device = |index: Option<usize>| index.and_then(|index| file.header.devices.get(index));
    let name = |index: Option<usize>| index.and_then(|index| short.get(index)).cloned();
    let row = |((index, cause), sums): ((Option<usize>, Cause), IoSums)| IoRow {
        device: device(index).map_or_else(String::new, |device| device.name.clone()),
        name: name(index).unwrap_or_default(),
        operation: cause.name(),
        spread: Spread::of(sums.values),
        bytes: saturated(sums.bytes),
        mean_bytes: float(sums.bytes) / float(sums.weight.max(1)),
        mean_depth: float(sums.depth) / float(sums.weight.max(1)),
    };
    groups.into_iter().map(row).collect()
}
