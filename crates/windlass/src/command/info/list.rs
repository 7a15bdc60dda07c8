//! `windlass info DIRECTORY`: one line for each set, the newest last; with `--long` everything
//! about each.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_engine::media::BackupType;
use windlass_engine::{EngineError, SetEntry, SetState, UnknownStripe, show_size};
use windlass_operations::Ending;
use windlass_operations::denied::Denied;
use windlass_operations::history::Proofs;
use windlass_operations::hold::hold_of;
use windlass_operations::info::{PlaceInfo, worse};

use crate::cli::{Global, Info};
use crate::exit::Failure;
use crate::places::{Identity, short_id};
use crate::words::{age, local_time, quoted, timestamp, typed};
use crate::{hints, output};

const COLUMNS: usize = 14;
const HEADS: [&str; COLUMNS] = [
    "set", "begun", "age", "database", "kind", "type", "base", "size", "stored", "ratio", "label",
    "verified", "proven", "state",
];
/// The columns that are shown only if a set has something there.
const BASE: usize = 6;
const LABEL: usize = 10;
const VERIFIED: usize = 11;
const PROVEN: usize = 12;
/// The label of a backup that got none.
const LABEL_DEFAULT: &str = "windlass";
/// The most characters of a label that a row shows.
const LABEL_SHOWN: usize = 30;
/// Columns that are aligned to the right.
const RIGHT: [&str; 3] = ["size", "stored", "ratio"];

type Row = [String; COLUMNS];

pub(super) fn show(
    global: &Global,
    arguments: &Info,
    places: &PlaceInfo,
) -> Result<Ending, Failure> {
    let unknown = places.unknown.iter();
    let ending = unknown.fold(Ending::Done, |ending, one| worse(ending, &one.fault));
    let mut ending = super::logs::ending((&places.logs, &places.database_logs), ending);
    if arguments.long || arguments.files || global.json {
        let documents = long(global, arguments, places, &mut ending)?;
        if global.json {
            output::line(&document(documents, places).to_string());
            return Ok(ending);
        }
    } else {
        let faults = places.sets.iter().filter_map(|set| set.state.fault());
        let shown = places.sets.iter().map(|set| &set.set_id);
        let baseless = shown.filter_map(|id| places.base_faults.get(id));
        ending = faults.chain(baseless).fold(ending, worse);
        let is_mended = |set: &SetEntry| set.parity.mended.is_some() || set.parity.lost > 0;
        if ending == Ending::Done && places.sets.iter().any(is_mended) {
            ending = Ending::Warnings;
        }
        short(places);
        for (of, newest) in &places.others {
            let typed = quoted(of.key());
            output::line(&format!(
                "other         {of} has sets there too, the newest is {newest}: --database {typed}"
            ));
        }
    }
    for unknown in &places.unknown {
        output::line(&unknown_line(unknown));
    }
    super::chains::show(&places.chains, &places.logs);
    super::logs::show(&places.logs);
    super::logs::show_databases(&places.database_logs);
    for below in &places.below {
        let (path, sets) = (
            typed(std::slice::from_ref(&below.0)),
            hints::places::below(below),
        );
        output::line(&format!("below         {sets}: windlass info {path}"));
    }
    if !places.hidden.is_empty() {
        let sets = output::count(places.hidden.len() as u64, "set");
        let bytes: u64 = places.hidden.iter().map(SetEntry::bytes).sum();
        let bytes = show_size(bytes);
        output::line(&format!(
            "hidden        {sets}, {bytes}, that expired: windlass expire removes them when their \
             grace is over"
        ));
    }
    for path in &places.unfinished {
        let path = path.display();
        output::line(&format!(
            "unfinished    {path}  of a backup or a repair under way, or cut off"
        ));
    }
    Ok(ending)
}

/// The line about a file that may be a stripe.
fn unknown_line(unknown: &UnknownStripe) -> String {
    let path = unknown.file.location.display();
    match Denied::of(&unknown.fault) {
        Some(denied) => format!("not readable  {denied}"),
        None => format!("damaged       {path}  {}", unknown.fault),
    }
}

/// Shows everything about each set, one after another.
fn long(
    global: &Global,
    arguments: &Info,
    places: &PlaceInfo,
    ending: &mut Ending,
) -> Result<Vec<Value>, Failure> {
    let mut documents = Vec::new();
    for set in &places.sets {
        let view = places.view(set)?;
        *ending = view.worse_than(*ending);
        match global.json {
            true => {
                let mut document = super::json(&view, arguments.files);
                let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
                document["verified"] = json!(text(places.proofs.verified(set)));
                document["proven"] = json!(text(places.proofs.proven(set)));
                documents.push(document);
            }
            false => super::print(&view, arguments.files),
        }
    }
    Ok(documents)
}

fn document(sets: Vec<Value>, places: &PlaceInfo) -> Value {
    let unknown = places.unknown.iter().map(|one| {
        json!({
            "location": one.file.location.to_string_lossy(),
            "fault": one.fault.to_string(),
        })
    });
    let unfinished = places.unfinished.iter().map(|path| path.to_string_lossy());
    let holds = places.sets.iter().filter_map(|set| {
        let hold = hold_of(set)?;
        let (set_id, reason, since) = (set.set_id.to_string(), hold.reason, hold.since);
        Some(json!({ "set_id": set_id, "reason": reason, "since": since }))
    });
    let hidden = places.hidden.iter().map(|set| set.set_id.to_string());
    json!({
        "sets": sets,
        "holds": holds.collect::<Vec<_>>(),
        "hidden": hidden.collect::<Vec<_>>(),
        "chains": super::chains::document(&places.chains, &places.logs),
        "logs": super::logs::document(&places.logs, &places.database_logs),
        "damaged_files": unknown.collect::<Vec<_>>(),
        "unfinished": unfinished.collect::<Vec<_>>(),
    })
}

/// Shows one line for each set.
fn short(places: &PlaceInfo) {
    let (sets, faults) = (&places.sets, &places.base_faults);
    if sets.is_empty() {
        return;
    }
    let now = Timestamp::now();
    // Each row is compared with every database, and there may be many more sets than those.
    let all: BTreeSet<_> = sets.iter().filter_map(Identity::of).collect();
    let row = |set: &SetEntry| row(set, now, (&all, &places.proofs), faults.get(&set.set_id));
    let rows: Vec<Row> = sets.iter().map(row).collect();
    let heads = HEADS.map(str::to_owned);
    let width = |column: usize| {
        let words = rows.iter().chain([&heads]).map(|row| &row[column]);
        words.map(|word| word.chars().count()).max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    // Most backups have no label, and most places have only full sets.
    let is_used = |column: usize| rows.iter().any(|row| !row[column].is_empty());
    let hidden = [BASE, LABEL, VERIFIED, PROVEN].map(|column| (!is_used(column)).then_some(column));
    for row in [&heads].into_iter().chain(&rows) {
        let cells = row.iter().zip(widths).zip(HEADS).enumerate();
        let cells = cells.filter(|(column, _)| !hidden.contains(&Some(*column)));
        let cells = cells.map(|(_, ((word, width), head))| match RIGHT.contains(&head) {
            true => format!("{word:>width$}"),
            false => format!("{word:<width$}"),
        });
        let cells: Vec<_> = cells.collect();
        output::line(cells.join("  ").trim_end());
    }
}

/// The name of a database among these, with its key if two have the same name.
fn database(of: &Identity, all: &BTreeSet<Identity>) -> String {
    let is_namesake = |other: &Identity| other.name() == of.name() && !other.is_same(of);
    match all.iter().any(is_namesake) {
        false => of.name().to_owned(),
        true if of.is_cluster() => format!("{} {}", of.name(), of.key()),
        true => of.key().to_owned(),
    }
}

/// How long ago something was; nothing if it never was.
fn passed(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(String::new, |at| age(now.duration_since(at)))
}

fn row(
    set: &SetEntry,
    now: Timestamp,
    (all, proofs): (&BTreeSet<Identity>, &Proofs),
    fault: Option<&EngineError>,
) -> Row {
    let of = Identity::of(set);
    let unknown = || "?".to_owned();
    let about = set.about.as_ref();
    let stored = set.bytes();
    // The stripes that are missing would count, too.
    let whole = about.filter(|_| matches!(set.state, SetState::Sealed));
    let state = match (set.state.fault(), fault) {
        (Some(fault), _) => format!("{}: {fault}", set.state.name()),
        (None, Some(fault)) => format!("no base: {fault}"),
        (None, None) => match hold_of(set) {
            None => sound(set),
            Some(hold) if hold.reason.is_empty() => format!("{}, held", sound(set)),
            Some(hold) => format!("{}, held: {}", sound(set), hold.reason),
        },
    };
    [
        short_id(set),
        local_time(set.begun_nanos),
        age(now.duration_since(timestamp(set.begun_nanos))),
        of.as_ref().map_or_else(unknown, |of| database(of, all)),
        of.as_ref().map_or_else(unknown, Identity::kind),
        about.map_or_else(unknown, |about| type_name(about.backup_type).to_owned()),
        base_of(set),
        about.map_or_else(unknown, |about| show_size(about.file_bytes)),
        show_size(stored),
        whole.map_or_else(unknown, |about| ratio(about.file_bytes, stored)),
        about.map_or_else(String::new, |about| label(&about.database)),
        passed(proofs.verified(set), now),
        passed(proofs.proven(set), now),
        state,
    ]
}

/// The state of a set that can be read. If something of it is lost, parity makes up for that.
fn sound(set: &SetEntry) -> String {
    let name = set.state.name();
    match (&set.parity.mended, set.parity.lost) {
        (Some(fault), _) => format!("{name}, rebuilt from parity: {fault}"),
        (None, 0) => name.to_owned(),
        (None, lost) => format!(
            "{name}, parity lost on {}",
            output::count(lost.into(), "device")
        ),
    }
}

/// The id of the set on which a set builds.
fn base_of(set: &SetEntry) -> String {
    let base = set.about.as_ref().and_then(|about| about.base);
    base.map_or_else(String::new, |base| base.to_string()[..8].to_owned())
}

/// The label that a person gave to the backup, on one line.
fn label(facts: &Value) -> String {
    let label = facts["label"].as_str().unwrap_or_default();
    if label == LABEL_DEFAULT {
        return String::new();
    }
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut shown: String = label.chars().map(plain).take(LABEL_SHOWN).collect();
    if shown.chars().count() < label.chars().count() {
        shown += "...";
    }
    shown
}

pub(in crate::command) fn type_name(kind: BackupType) -> &'static str {
    match kind {
        BackupType::Full => "full",
        BackupType::Diff => "diff",
        BackupType::Incr => "incr",
        BackupType::Log => "log",
    }
}

/// How many times smaller the stored set is than its content.
fn ratio(raw: u64, stored: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let ratio = raw as f64 / stored.max(1) as f64;
    format!("{ratio:.1}")
}
