//! Metrics of a place: how old the newest set of each type is, how far the log leads, and what is
//! missing. They are about what is there, not about runs: a backup that nobody began any more is
//! seen here, and nowhere else.

use std::collections::BTreeMap;

use windlass_engine::media::BackupType;
use windlass_engine::{SetEntry, SetState};
use windlass_postgres::Timeline;

use super::render::{append, float, label, unix_seconds};
use crate::info::{DatabaseLogInfo, LogInfo, PlaceInfo};
use crate::places::Identity;

/// One value: its labels, and the number.
type Sample = (String, f64);

/// What the metrics say of a place, in Prometheus's format 0.0.4.
pub fn metrics_of_place(place: &PlaceInfo) -> String {
    let mut out = String::new();
    sets(&mut out, place);
    logs(&mut out, place);
    out
}

fn sets(out: &mut String, place: &PlaceInfo) {
    let mut newest: BTreeMap<String, f64> = BTreeMap::new();
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    let mut bytes: BTreeMap<String, f64> = BTreeMap::new();
    let mut unusable: BTreeMap<String, f64> = BTreeMap::new();
    let mut verified: BTreeMap<String, f64> = BTreeMap::new();
    let mut proven: BTreeMap<String, f64> = BTreeMap::new();
    for set in &place.sets {
        let Some(of) = Identity::of(set) else {
            continue;
        };
        let database = [label("database", of.name()), label("key", of.key())].join(",");
        let is_usable =
            matches!(set.state, SetState::Sealed) && !place.base_faults.contains_key(&set.set_id);
        for (times, at) in [
            (&mut verified, place.proofs.verified(set)),
            (&mut proven, place.proofs.proven(set)),
        ] {
            if let Some(at) = at.map(unix_seconds) {
                let last = times.entry(database.clone()).or_insert(at);
                *last = last.max(at);
            }
        }
        *unusable.entry(database.clone()).or_default() += f64::from(u8::from(!is_usable));
        if let Some((kind, finished)) = finished(set).filter(|_| is_usable) {
            let labels = [database, label("type", kind)].join(",");
            let last = newest.entry(labels.clone()).or_insert(finished);
            *last = last.max(finished);
            *counts.entry(labels.clone()).or_default() += 1.0;
            *bytes.entry(labels).or_default() += float(set.bytes());
        }
    }
    for (name, help, samples) in [
        (
            "place_newest_set_time_seconds",
            "When the newest set of this type that can be restored had read its last page, in Unix time.",
            newest,
        ),
        ("place_sets", "Sets that can be restored.", counts),
        ("place_stored_bytes", "Bytes of these sets.", bytes),
        (
            "place_unusable_sets",
            "Sets that are damaged or incomplete, or whose base is missing.",
            unusable,
        ),
        (
            "place_last_verify_time_seconds",
            "When a set was last read to the last byte and was right, in Unix time.",
            verified,
        ),
        (
            "place_last_proof_time_seconds",
            "When a set was last restored, or opened and checked in a drill, in Unix time.",
            proven,
        ),
    ] {
        family(out, name, help, samples);
    }
}

/// The type of a set, and when it had read its last page.
fn finished(set: &SetEntry) -> Option<(&'static str, f64)> {
    let about = set.about.as_ref()?;
    let kind = match about.backup_type {
        BackupType::Full => "full",
        BackupType::Diff => "diff",
        BackupType::Incr => "incr",
        BackupType::Log => "log",
    };
    Some((kind, unix_seconds(about.finished.parse().ok()?)))
}

/// Values of the logs of a place.
#[derive(Default)]
struct LogSamples {
    start: Vec<Sample>,
    end: Vec<Sample>,
    gaps: Vec<Sample>,
    stored: Vec<Sample>,
    faults: Vec<Sample>,
}

impl LogSamples {
    fn of_cluster(&mut self, log: &LogInfo) {
        let system = log.system.to_string();
        let database = [label("database", &log.name), label("key", &system)].join(",");
        let is_bad = log.fault.is_some() || log.has_lost();
        self.faults
            .push((database.clone(), f64::from(u8::from(is_bad))));
        for one in &log.timelines {
            let with = with(&database, one.timeline);
            self.gaps
                .push((with.clone(), float(one.gaps().count() as u64)));
            self.stored.push((with, float(one.stored_bytes)));
        }
        for one in &log.restorable {
            // The newest window: what a restore of today gets.
            let Some(window) = one.windows.last() else {
                continue;
            };
            let time = |text: &str| text.parse().ok().map(unix_seconds);
            let first = window.sets.first().and_then(|set| time(&set.stop_time));
            let last = window.sets.last().and_then(|set| time(&set.stop_time));
            let last = window.last.map(unix_seconds).or(last);
            let with = with(&database, one.timeline);
            self.start.extend(first.map(|first| (with.clone(), first)));
            self.end.extend(last.map(|last| (with, last)));
        }
    }

    fn of_database(&mut self, info: &DatabaseLogInfo) {
        let key = &info.log.key;
        let name = key.path.rsplit('/').next().unwrap_or_default();
        let database = [label("database", name), label("key", &key.to_string())].join(",");
        let mut timelines = info.log.timelines.iter();
        let is_bad = info.fault.is_some() || timelines.any(|one| one.lost_end.is_some());
        self.faults
            .push((database.clone(), f64::from(u8::from(is_bad))));
        for one in &info.log.timelines {
            let with = with(&database, one.timeline);
            self.gaps
                .push((with.clone(), float(one.gaps().count() as u64)));
            self.stored.push((with.clone(), float(one.stored_bytes)));
            let mut windows = one.runs.iter().filter(|run| !run.sets.is_empty());
            let Some(window) = windows.next_back() else {
                continue;
            };
            let time = |nanos: i64| {
                let moment = jiff::Timestamp::from_nanosecond(nanos.into());
                moment.ok().map(unix_seconds)
            };
            let first = window.first_nanos.and_then(time);
            self.start.extend(first.map(|first| (with.clone(), first)));
            let last = time(window.end_nanos);
            self.end.extend(last.map(|last| (with, last)));
        }
    }
}

/// The labels of a timeline.
fn with(database: &str, timeline: Timeline) -> String {
    [
        database.to_owned(),
        label("timeline", &timeline.0.to_string()),
    ]
    .join(",")
}

fn logs(out: &mut String, place: &PlaceInfo) {
    let mut samples = LogSamples::default();
    for log in &place.logs {
        samples.of_cluster(log);
    }
    for log in &place.database_logs {
        samples.of_database(log);
    }
    let LogSamples {
        start,
        end,
        gaps,
        stored,
        faults,
    } = samples;
    for (name, help, samples) in [
        (
            "place_restorable_start_time_seconds",
            "The first moment of the newest window that can be restored, in Unix time.",
            start,
        ),
        (
            "place_restorable_end_time_seconds",
            "The last moment of that window: how far its log leads, in Unix time.",
            end,
        ),
        ("place_log_gaps", "Gaps in the archived log.", gaps),
        (
            "place_log_stored_bytes",
            "Bytes of the archived log.",
            stored,
        ),
        (
            "place_log_unreadable",
            "1 if the archived log cannot be looked at.",
            faults,
        ),
    ] {
        family(out, name, help, samples);
    }
}

fn family(out: &mut String, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return;
    }
    append(
        out,
        format_args!("# HELP windlass_{name} {help}\n# TYPE windlass_{name} gauge\n"),
    );
    for (labels, value) in samples {
        append(out, format_args!("windlass_{name}{{{labels}}} {value}\n"));
    }
}
