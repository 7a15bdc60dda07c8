//! What `windlass verify` shows of archived logs.

use serde_json::{Value, json};
use windlass_engine::show_size;
use windlass_operations::verify::VerifiedLog;

use crate::command::info::logs as info;
use crate::words::moment_of;
use crate::{hints, output};

/// Prints what was found of a log.
pub(super) fn show(log: &VerifiedLog, quiet: bool) {
    let of = subject(log);
    for fault in log.faults() {
        let word = match fault.is_damage() {
            true => "damaged     ",
            false => "not readable",
        };
        output::line(&format!("{word}  the log of {of}: {fault}"));
    }
    for gap in &log.gaps {
        output::line(&format!(
            "gap           {of}, timeline {}: {} to {} is missing",
            gap.timeline, gap.start, gap.end
        ));
    }
    for timeline in &log.check.without_history {
        output::line(&format!(
            "gap           {of}: the history of timeline {timeline} is missing"
        ));
    }
    for one in log.database.iter().flat_map(|log| &log.timelines) {
        let timeline = one.timeline;
        if one.lost.is_some() {
            output::line(&format!(
                "gap           {of}: transactions before timeline {timeline} may be missing"
            ));
        }
        for gap in one.gaps() {
            let gap = info::gap_words(&gap);
            output::line(&format!("gap           {of}, timeline {timeline}: {gap}"));
        }
    }
    for set in log.database.iter().flat_map(|log| log.not_linked()) {
        let (id, moment) = (set.id.to_string(), moment_of(&set.started));
        output::line(&format!(
            "not in log    {of}: set {} of {moment} does not stand in the log that was kept then",
            &id[..8]
        ));
    }
    if log.faults().next().is_none() && !quiet {
        let objects = output::count(log.check.objects, "object");
        let right = match log.is_quick {
            true => format!("{objects}, all indexes right"),
            false => {
                let bytes = show_size(log.check.stored_bytes);
                match log.check.unread {
                    0 => format!("all {bytes} in {objects} read and right"),
                    _ => format!("{objects} encrypted: whole, content not checked without a key"),
                }
            }
        };
        output::line(&format!("log           {of}: {right}"));
    }
}

/// Whose log it is.
fn subject(log: &VerifiedLog) -> String {
    match &log.database {
        Some(database) => database.key.to_string(),
        None => format!("cluster {}", log.system),
    }
}

/// Reports at the end what is wrong.
pub(super) fn complain(logs: &[VerifiedLog]) {
    for log in logs {
        let (of, faults) = (subject(log), log.faults().count() as u64);
        if let Some(first) = log.faults().next() {
            let what = match log.is_damaged() {
                true => format!("is damaged: {}", output::count(faults, "fault")),
                false => "could not be read".to_owned(),
            };
            output::note(&format!("error: the log of {of} {what}"));
            if let Some(hint) = hints::log(first) {
                output::note(&format!("hint: {hint}"));
            }
        } else if log.is_unread() {
            output::note(&format!(
                "warning: the log of {of} is encrypted, and no key was given: its content was not \
                 checked"
            ));
            output::note("hint: Name the key: --key identity-file:PATH.");
        } else if log.has_gaps() {
            output::note(&format!(
                "warning: the log of {of} is not whole: some moments cannot be restored"
            ));
            let place = crate::words::quoted(&log.place.display().to_string());
            output::note(&format!(
                "hint: `windlass info {place}` shows which moments can be restored."
            ));
        }
    }
}

/// What was found, in JSON.
pub(super) fn document(log: &VerifiedLog) -> Value {
    let damage = log.faults().map(ToString::to_string);
    let gaps = log.gaps.iter().map(|gap| {
        json!({
            "timeline": gap.timeline.0,
            "start": gap.start.to_string(),
            "end": gap.end.to_string(),
        })
    });
    let timelines = log.check.without_history.iter().map(|one| one.0);
    let mut document = json!({
        "place": log.place.to_string_lossy(),
        "system": log.system.to_string(),
        "ok": log.faults().next().is_none(),
        "quick": log.is_quick,
        "objects": log.check.objects,
        "stored_bytes": log.check.stored_bytes,
        "objects_not_read": log.check.unread,
        "damage": damage.collect::<Vec<_>>(),
        "gaps": gaps.collect::<Vec<_>>(),
        "timelines_without_history": timelines.collect::<Vec<_>>(),
    });
    if let Some(database) = &log.database {
        let timelines = database.timelines.iter().map(info::commits_document);
        document["database"] = database.key.to_string().into();
        document["timelines"] = timelines.collect();
        document["outside"] = info::ids(&database.outside);
    }
    document
}
