//! `windlass snapshot list`: one line for each snapshot, the oldest first.

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_engine::media::fitted;
use windlass_engine::{show_size, to_json};
use windlass_operations::snapshots::{
    self, Entry, HookState, Listed, ListedUndo, Listing, Orphans, SnapshotError, State, Survives,
    UndoNumber, is_limit,
};

use crate::cli::{Global, SnapshotList};
use crate::exit::{Code, Failure};
use crate::words::{age, local_time};
use crate::{hints, output, requests};

const COLUMNS: usize = 9;
const HEADS: [&str; COLUMNS] = [
    "snapshot", "as of", "age", "method", "size", "growth", "lsn", "survives", "state",
];
/// The column that is aligned to the right.
const SIZE: usize = 4;

type Row = [String; COLUMNS];

pub fn run(global: &Global, arguments: &SnapshotList) -> Result<Code, Failure> {
    let of = super::shared::of(&arguments.of);
    let found = snapshots::list(&requests::quiet_caller(global), &of)?;
    match global.json {
        true => {
            let all: Vec<_> = found.snapshots.iter().map(document).collect();
            let undo: Vec<_> = found.undo.iter().map(document_of_undo).collect();
            let missed = &found.missed;
            let missed = json!({
                "removed": missed.without_directory + missed.without_pages,
                "elsewhere": missed.in_doubt,
                "places": places(missed),
                "unseen": found.unseen,
            });
            let document = json!({"snapshots": all, "undo": undo, "missed": missed});
            output::line(&document.to_string());
        }
        false => show(&found),
    }
    for text in missed(&found.missed) {
        output::note(&format!("warning: {text}"));
    }
    for why in &found.unseen {
        output::note(&format!(
            "warning: there may be snapshots that are not in the list: {why} (snapshots-unseen)"
        ));
    }
    Ok(found.ending().into())
}

fn show(found: &Listing) {
    if found.snapshots.is_empty() {
        return match found.missed.has_any() {
            true => {}
            false => output::line("no snapshots"),
        };
    }
    let heads = std::iter::once(HEADS.map(str::to_owned));
    let rows = heads.chain(found.snapshots.iter().map(row));
    let rows: Vec<Row> = rows.chain(found.undo.iter().map(row_of_undo)).collect();
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max())
        .map(Option::unwrap_or_default)
        .collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            SIZE => format!("{cell:>width$}"),
            _ => format!("{cell:width$}"),
        });
        output::line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    for fault in found.snapshots.iter().filter_map(Listed::fault) {
        output::note(&format!("error: {fault}"));
        if let Some(hint) = hints::snapshot(fault) {
            output::note(&format!("hint: {hint}"));
        }
    }
    for listed in &found.undo {
        if let Some(fault) = &listed.fault {
            output::note(&format!("error: {fault}"));
            if let Some(hint) = hint_of_undo(fault, listed.undo.number) {
                output::note(&format!("hint: {hint}"));
            }
        }
    }
}

/// What to do about a state that cannot be read. One that is not damaged may be read tomorrow.
fn hint_of_undo(fault: &SnapshotError, number: UndoNumber) -> Option<String> {
    match fault.is_damage() {
        true => Some(format!(
            "The state cannot be brought back. Remove it: windlass snapshot drop DATABASE {number}"
        )),
        false => hints::snapshot(fault),
    }
}

/// Where directories of snapshots may have been that are not there.
fn places(missed: &Orphans) -> Vec<String> {
    let places = missed.missing.iter();
    places.map(|path| path.display().to_string()).collect()
}

/// What is not in the list although the server has it.
fn missed(missed: &Orphans) -> Vec<String> {
    let mut texts = Vec::new();
    let gone = missed.without_directory + missed.without_pages;
    if gone > 0 {
        let count = output::count(gone as u64, "snapshot");
        let are = if gone == 1 { "is" } else { "are" };
        texts.push(format!(
            "{count} {are} gone: somebody removed the directory. What the server keeps for that, \
             the next `windlass snapshot create` drops (snapshots-removed)"
        ));
    }
    if missed.in_doubt > 0 {
        let count = output::count(missed.in_doubt as u64, "snapshot");
        let unknown = || "whether somebody removed that is not known".to_owned();
        let why = missed.moved().unwrap_or_else(unknown);
        texts.push(format!(
            "the server has {count} without a directory here: {why} (snapshots-elsewhere)"
        ));
    }
    texts
}

fn row(listed: &Listed) -> Row {
    let name = listed.entry.name().to_owned();
    let none = || "-".to_owned();
    let Some(record) = listed.record() else {
        let mut row: Row = std::array::from_fn(|_| none());
        row[0] = name;
        row[COLUMNS - 1] = state(listed);
        return row;
    };
    let size = listed.disk_bytes.map_or_else(none, show_size);
    let growth = listed.growth.as_ref().map_or_else(none, grown);
    let lsn = record.lsn.clone().unwrap_or_else(none);
    let survives = survives(record.survives);
    let (moment, age) = times_of(&record.as_of);
    let method = record.method.to_string();
    [
        name,
        moment,
        age,
        method,
        size,
        growth,
        lsn,
        survives.to_owned(),
        state(listed),
    ]
}

/// What was kept since it was made, and the limit of that.
fn grown(state: &HookState) -> String {
    let grown = show_size(state.grown_bytes);
    match state.limits.max_bytes {
        Some(most) => format!("{grown} of {}", show_size(most)),
        None => grown,
    }
}

/// The line of a state that a revert or an undo overwrote.
fn row_of_undo(listed: &ListedUndo) -> Row {
    let undo = &listed.undo;
    let none = || "-".to_owned();
    let (moment, age) = match &undo.record {
        Some(record) => times_of(&record.at),
        None => (none(), none()),
    };
    let size = undo.disk_bytes().ok().map_or_else(none, show_size);
    [
        undo.number.to_string(),
        moment,
        age,
        none(),
        size,
        none(),
        none(),
        survives(undo.snapshot.record().survives).to_owned(),
        state_of_undo(listed),
    ]
}

/// What it is, and whether it can be brought back.
fn state_of_undo(listed: &ListedUndo) -> String {
    let undo = &listed.undo;
    let snapshot = undo.snapshot.record();
    match (&undo.record, &snapshot.state) {
        (None, _) => "cannot be read".to_owned(),
        _ if listed.fault.is_some() => "cannot be read".to_owned(),
        (_, State::Lost { .. }) => format!("lost with {}", snapshot.name),
        (Some(record), State::Kept) => {
            format!("before the {} with {}", record.by, snapshot.name)
        }
    }
}

fn document_of_undo(listed: &ListedUndo) -> Value {
    let ListedUndo { undo, fault } = listed;
    let snapshot = undo.snapshot.record();
    let mut document = match &undo.record {
        Some(record) => to_json(record),
        None => json!({}),
    };
    document["name"] = undo.number.to_string().into();
    document["snapshot"] = snapshot.name.clone().into();
    document["state"] = match (&undo.record, fault) {
        (Some(_), None) => to_json(&snapshot.state),
        _ => "cannot be read".into(),
    };
    if let Some(fault) = fault {
        document["error"] = fault.to_string().into();
    }
    document["disk_bytes"] = undo.disk_bytes().ok().into();
    document
}

fn survives(what: Survives) -> &'static str {
    match what {
        Survives::Crash => "crash",
        Survives::PowerCut => "power cut",
    }
}

/// The moment of the data as people read it, and its age.
fn times_of(moment: &str) -> (String, String) {
    match moment.parse::<Timestamp>() {
        Ok(moment) => {
            let nanos = fitted(moment.as_nanosecond());
            let passed = Timestamp::now().duration_since(moment);
            (local_time(nanos), age(passed))
        }
        Err(_) => (moment.to_owned(), "-".to_owned()),
    }
}

fn state(listed: &Listed) -> String {
    match &listed.entry {
        Entry::Snapshot(snapshot) => match &snapshot.record().state {
            State::Kept if listed.is_of_other_cluster => "kept, of another cluster".to_owned(),
            State::Kept => "kept".to_owned(),
            State::Lost { why } if is_limit(why) => format!("ended: {why}"),
            State::Lost { why } => format!("lost: {why}"),
        },
        Entry::Unfinished { .. } => "unfinished".to_owned(),
        Entry::Missing { path, .. } => format!("{} is not there", path.display()),
        Entry::Unreadable {
            error: SnapshotError::OfAnother { .. },
            ..
        } => "of another database".to_owned(),
        Entry::Unreadable { .. } => "cannot be read".to_owned(),
    }
}

fn document(listed: &Listed) -> Value {
    let mut document = match listed.record() {
        Some(record) => super::shared::of_record(record),
        None => json!({"name": listed.entry.name(), "state": state(listed)}),
    };
    document["place"] = listed.path().display().to_string().into();
    document["disk_bytes"] = listed.disk_bytes.into();
    if let Some(record) = listed.record() {
        let moment = record.as_of.parse::<Timestamp>().ok();
        let passed = moment.map(|moment| Timestamp::now().duration_since(moment));
        document["age_seconds"] = passed.map(|passed| passed.as_secs_f64()).into();
    }
    if let Some(growth) = &listed.growth {
        let limits = &growth.limits;
        document["grown_bytes"] = growth.grown_bytes.into();
        document["limits"] = json!({
            "max_bytes": limits.max_bytes,
            "until": limits.until.map(|end| end.to_string()),
            "keep_free_bytes": limits.keep_free_bytes,
        });
    }
    if listed.is_of_other_cluster {
        document["of_other_cluster"] = true.into();
    }
    if let Some(fault) = listed.fault() {
        document["error"] = fault.to_string().into();
    }
    document
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// A disk that does not answer now has the state all the same.
    #[test]
    fn nobody_is_told_to_remove_a_state_that_is_not_damaged() {
        let path = || "/srv/s1/before.3/undo".into();
        let damaged = SnapshotError::Damaged {
            path: path(),
            what: "it is too short",
        };
        let hint = hint_of_undo(&damaged, UndoNumber(3)).unwrap();
        assert!(hint.contains("snapshot drop DATABASE undo:3"), "{hint}");
        for kind in [
            ErrorKind::PermissionDenied,
            ErrorKind::StaleNetworkFileHandle,
        ] {
            let unread = SnapshotError::Io {
                action: "open",
                path: path(),
                source: kind.into(),
            };
            let hint = hint_of_undo(&unread, UndoNumber(3)).unwrap_or_default();
            assert!(!hint.contains("drop"), "{kind}: {hint}");
        }
    }
}
