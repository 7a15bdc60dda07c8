//! The archived logs of a place, as `windlass info` shows them.

use serde_json::{Value, json};
use windlass_engine::show_size;
use windlass_operations::Ending;
use windlass_operations::commits::{CommitGap, CommitRun, CommitTimeline, DatabaseSet};
use windlass_operations::info::{DatabaseLogInfo, LogInfo};
use windlass_operations::reach::{Restorable, Window};
use windlass_repository::LostEnd;

use crate::output;
use crate::words::moment_of;

/// So many sets that do not stand in a log are named.
const SHOWN_MAX: usize = 4;

/// Shows what there is, and each gap.
pub(super) fn show(logs: &[LogInfo]) {
    for log in logs {
        let system = log.system;
        for one in &log.timelines {
            let timeline = one.timeline;
            if let (Some(first), Some(last)) = (one.spans.first(), one.spans.last()) {
                let stored = show_size(one.stored_bytes);
                let objects = output::count(one.objects, "object");
                let (start, end) = (first.start, last.end);
                output::line(&format!(
                    "log           cluster {system}, timeline {timeline}: {start} to {end}, {stored} in {objects}"
                ));
            }
            for gap in one.gaps() {
                output::line(&format!(
                    "gap           timeline {timeline}: {} to {} is missing",
                    gap.start, gap.end
                ));
            }
            let lost = one.lost.iter().filter(|lost| !lost.is_left);
            lost.for_each(show_lost);
        }
        for one in &log.restorable {
            show_windows(log, one);
        }
        if let Some(fault) = &log.fault {
            output::line(&format!(
                "damaged       the log of cluster {system}: {fault}"
            ));
        }
    }
}

/// Shows what there is of the log of SQLite databases, and to which moments they can be restored.
pub(super) fn show_databases(logs: &[DatabaseLogInfo]) {
    for DatabaseLogInfo { log, fault, .. } in logs {
        for one in &log.timelines {
            let (key, timeline, stored) = (&log.key, one.timeline, show_size(one.stored_bytes));
            if let Some(lost) = &one.lost {
                output::line(&format!(
                    "gap           {key}: transactions before timeline {timeline} may be missing \
                     ({lost})"
                ));
            }
            if one.runs.is_empty() {
                one.lost_end.iter().for_each(show_lost);
                continue;
            }
            let commits = output::count(one.commits(), "transaction");
            let objects = output::count(one.objects, "object");
            output::line(&format!(
                "log           {key}, timeline {timeline}: {commits}, {stored} in {objects}"
            ));
            for gap in one.gaps() {
                let gap = gap_words(&gap);
                output::line(&format!("gap           {key}, timeline {timeline}: {gap}"));
            }
            one.lost_end.iter().for_each(show_lost);
            for run in &one.runs {
                let Some(first) = run.first_nanos else {
                    continue;
                };
                let [from, to] = [first, run.end_nanos].map(|one| moment_of(&nanos(one)));
                let sets = output::count(run.sets.len() as u64, "set");
                output::line(&format!(
                    "restorable    {key}, timeline {timeline}: {from} to {to}, {sets}"
                ));
            }
        }
        if !log.outside.is_empty() {
            let (key, outside) = (&log.key, outside_words(&log.outside));
            output::line(&format!("not in log    {key}: {outside}"));
        }
        if let Some(fault) = fault {
            output::line(&format!(
                "damaged       a log of a SQLite database: {fault}"
            ));
        }
    }
}

/// Shows what a growing object has lost.
fn show_lost(lost: &LostEnd) {
    output::line(&format!("damaged       {lost}"));
}

/// What a growing object has lost, in JSON.
fn lost_document(lost: &LostEnd) -> Value {
    json!({
        "object": lost.path.to_string_lossy(),
        "end": lost.end.to_string(),
        "durable": lost.durable.map(|durable| durable.to_string()),
        "left_before": lost.is_left,
    })
}

/// The sets that do not stand in a log, in words.
fn outside_words(sets: &[DatabaseSet]) -> String {
    let newest = sets.iter().rev().take(SHOWN_MAX);
    let mut ids: Vec<_> = newest
        .map(|set| set.id.to_string()[..8].to_owned())
        .collect();
    if sets.len() > SHOWN_MAX {
        ids.push("...".to_owned());
    }
    let (count, ids) = (output::count(sets.len() as u64, "set"), ids.join(", "));
    format!("{count}, restorable as they are and no further: {ids}")
}

/// What is missing of a timeline, in words.
pub(in crate::command) fn gap_words(gap: &CommitGap) -> String {
    let commits = output::count(gap.commits, "transaction");
    let to = moment_of(&nanos(gap.by_nanos));
    match gap.after_nanos {
        Some(from) => {
            let from = moment_of(&nanos(from));
            format!("{from} to {to} is missing, {commits}")
        }
        None => format!("what comes before {to} is missing, {commits}"),
    }
}

/// A moment as RFC 3339.
pub(in crate::command) fn nanos(nanos: i64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(nanos.into());
    moment.map_or_else(|_| String::new(), |moment| moment.to_string())
}

/// A timeline of the log of a SQLite database, in JSON.
pub(in crate::command) fn commits_document(one: &CommitTimeline) -> Value {
    let sets = one.sets().map(|set| set.id.to_string());
    let gaps = one.gaps().map(|gap| {
        json!({
            "start_time": gap.after_nanos.map(nanos),
            "end_time": nanos(gap.by_nanos),
            "transactions": gap.commits,
        })
    });
    let windows = one.runs.iter().filter(|run| !run.sets.is_empty());
    json!({
        "timeline": one.timeline.0,
        "start_time": one.runs.first().map(|run| nanos(run.start_nanos)),
        "end_time": one.runs.last().map(|run| nanos(run.end_nanos)),
        "transactions": one.commits(),
        "objects": one.objects,
        "stored_bytes": one.stored_bytes,
        "lost": one.lost,
        "lost_end": one.lost_end.as_ref().map(lost_document),
        "gaps": gaps.collect::<Vec<_>>(),
        "windows": windows.map(run_document).collect::<Vec<_>>(),
        "sets": sets.collect::<Vec<_>>(),
    })
}

/// The ids of sets, in JSON.
pub(in crate::command) fn ids(sets: &[DatabaseSet]) -> Value {
    sets.iter().map(|set| set.id.to_string()).collect()
}

/// The moments to which the sets of a run lead.
fn run_document(run: &CommitRun) -> Value {
    let sets = run.sets.iter().map(|set| set.id.to_string());
    json!({
        "start_time": run.first_nanos.map(nanos),
        "end_time": nanos(run.end_nanos),
        "sets": sets.collect::<Vec<_>>(),
    })
}

/// Shows to which moments a cluster can be restored.
fn show_windows(log: &LogInfo, of: &Restorable) {
    let timeline = of.timeline;
    let cluster = match log.name.as_str() {
        "" => format!("cluster {}", log.system),
        name => name.to_owned(),
    };
    for window in &of.windows {
        let first = window.sets.first().map(|set| moment_of(&set.stop_time));
        let last = window.last.map(|last| moment_of(&last.to_string()));
        let last = last.or_else(|| window.sets.last().map(|set| moment_of(&set.stop_time)));
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let (sets, end) = (output::count(window.sets.len() as u64, "set"), window.end);
        output::line(&format!(
            "restorable    {cluster}, timeline {timeline}: {first} to {last} ({end}), {sets}"
        ));
    }
}

fn window_document(window: &Window) -> Value {
    let sets = window.sets.iter().map(|set| set.id.to_string());
    let first = window.sets.first();
    json!({
        "start": first.map(|set| set.stop.to_string()),
        "start_time": first.map(|set| set.stop_time.clone()),
        "end": window.end.to_string(),
        "last_transaction": window.last.map(|last| last.to_string()),
        "sets": sets.collect::<Vec<_>>(),
    })
}

/// How a command ends that found this.
pub(super) fn ending(
    (logs, databases): (&[LogInfo], &[DatabaseLogInfo]),
    ending: Ending,
) -> Ending {
    let is_damaged =
        |log: &LogInfo| log.fault.as_ref().is_some_and(|fault| fault.is_damage()) || log.has_lost();
    let is_bad = |log: &DatabaseLogInfo| {
        let mut timelines = log.log.timelines.iter();
        log.fault.as_ref().is_some_and(|fault| fault.is_damage())
            || timelines.any(|one| one.lost_end.is_some())
    };
    match logs.iter().any(is_damaged) || databases.iter().any(is_bad) {
        true => Ending::Damage,
        false => ending,
    }
}

pub(super) fn document(logs: &[LogInfo], databases: &[DatabaseLogInfo]) -> Value {
    let databases = databases.iter().map(|info| {
        let timelines = info.log.timelines.iter().map(commits_document);
        json!({
            "place": info.place.to_string_lossy(),
            "database": info.log.key.to_string(),
            "timelines": timelines.collect::<Vec<_>>(),
            "outside": ids(&info.log.outside),
            "fault": info.fault.as_ref().map(ToString::to_string),
        })
    });
    let span = |start: String, end: String| json!({"start": start, "end": end});
    let logs = logs.iter().map(|log| {
        let timelines = log.timelines.iter().map(|one| {
            let spans = one
                .spans
                .iter()
                .map(|it| span(it.start.to_string(), it.end.to_string()));
            let gaps = one
                .gaps()
                .map(|it| span(it.start.to_string(), it.end.to_string()));
            json!({
                "timeline": one.timeline.0,
                "spans": spans.collect::<Vec<_>>(),
                "gaps": gaps.collect::<Vec<_>>(),
                "lost": one.lost.iter().map(lost_document).collect::<Vec<_>>(),
                "objects": one.objects,
                "stored_bytes": one.stored_bytes,
            })
        });
        let restorable = log.restorable.iter().map(|one| {
            let windows = one.windows.iter().map(window_document);
            json!({
                "timeline": one.timeline.0,
                "windows": windows.collect::<Vec<_>>(),
            })
        });
        json!({
            "place": log.place.to_string_lossy(),
            "system": log.system.to_string(),
            "name": log.name,
            "timelines": timelines.collect::<Vec<_>>(),
            "restorable": restorable.collect::<Vec<_>>(),
            "fault": log.fault.as_ref().map(ToString::to_string),
        })
    });
    logs.chain(databases).collect()
}
