//! Metrics of a place: how old the newest set of each type is, how far the log leads, and what is
//! missing. They are about what is there, not about runs: a backup that nobody began any more is
//! seen here, and nowhere else.

use std::collections::BTreeMap;

use windlass_engine::media::BackupType;
use windlass_engine::{SetEntry, SetState};

use super::render::{append, float, label, unix_seconds};
use crate::info::{LogInfo, PlaceInfo};
use crate::places::Identity;

/// One value: its labels, and the number.
type Sample = (String, f64);

/// What the metrics say of a place, in Prometheus's format 0.0.4.
pub fn metrics_of_place(place: &PlaceInfo) -> String {
    let mut out = String::new();
    sets(&mut out, place);
    logs(&mut out, &place.logs);
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

fn logs(out: &mut String, logs: &[LogInfo]) {
    let (mut start, mut end) = (Vec::<Sample>::new(), Vec::<Sample>::new());
    let (mut gaps, mut stored, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for log in logs {
        let system = log.system.to_string();
        let database = [label("database", &log.name), label("key", &system)].join(",");
        faults.push((
            database.clone(),
            f64::from(u8::from(log.fault.is_some() || log.has_lost())),
        ));
        let with =
            |timeline: u32| [database.clone(), label("timeline", &timeline.to_string())].join(",");
        for one in &log.timelines {
            gaps.push((with(one.timeline.0), float(one.gaps().count() as u64)));
            stored.push((with(one.timeline.0), float(one.stored_bytes)));
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
            start.extend(first.map(|first| (with(one.timeline.0), first)));
            end.extend(last.map(|last| (with(one.timeline.0), last)));
        }
    }
    for (name, help, samples) in [
        (
            "place_restorable_start_time_seconds",
            "The first moment of the newest window that can be restored, in Unix time.",
            start,
        ),
        (
            "place_restorable_end_time_seconds",
            "The last moment of that window: of the last transaction in its log, in Unix time.",
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
