//! `windlass verify --open`: what the database's own tools found in an opened set.

use serde_json::{Value, json};
use windlass_engine::media::SetId;
use windlass_operations::OperationError;
use windlass_operations::places::Advice;
use windlass_operations::verify::{self, Inspected};

use crate::hints::{self, OF_SOURCE};
use crate::output::{self, Tone};
use crate::words::duration;

/// Reports at the end what is wrong. It is called only if no damage of the set was found before.
pub(super) fn complain(found: &Inspected, id: &SetId, advice: Option<&Advice>) {
    let (error, hint) = match (found.set_is_damaged, found.faults()) {
        (true, _) => (
            format!("set {id} is damaged"),
            "`windlass verify` without --quick lists all of its damage.".to_owned(),
        ),
        (false, 0) => return,
        (false, faults) => (
            format!(
                "the database in set {id} is damaged in {}",
                output::count(faults, "place")
            ),
            OF_SOURCE.to_owned(),
        ),
    };
    note(&error, hint, found.set_is_damaged, advice);
}

/// Reports at the end that the database cannot be opened, although no damage of the set was found.
pub(super) fn unopened(why: &OperationError, id: &SetId, advice: Option<&Advice>) {
    let is_of_set = !matches!(why, OperationError::OfSource(_));
    let hint = hints::operation::words(why).1.unwrap_or_default();
    let error = format!("the database in set {id} is damaged and cannot be opened");
    note(&error, hint, is_of_set, advice);
}

/// Prints an error, and with the hint which older set there is.
fn note(error: &str, mut hint: String, set_is_damaged: bool, advice: Option<&Advice>) {
    let older = advice
        .filter(|advice| advice.is_older())
        .map(hints::places::instead);
    match (older, set_is_damaged) {
        (Some(older), true) => hint += &format!(" {older}"),
        (Some(older), false) => hint += &format!(" An older set may be without it. {older}"),
        (None, _) => {}
    }
    output::note(&format!("error: {error}"));
    output::note(&format!("hint: {hint}"));
}

/// What the check says about a relation.
struct Finding {
    /// Database and relation, if they are known.
    name: String,
    what: String,
}

/// The findings, for any kind of database.
struct Findings {
    summary: String,
    document: Value,
    faults: Vec<Finding>,
    warnings: Vec<Finding>,
}

/// Prints what was found.
pub(in crate::command) fn print(found: &Inspected, quiet: bool) {
    let (findings, damaged) = (of(found), found.is_damaged());
    let opened = format!("{}, in {}", findings.summary, duration(found.seconds));
    if damaged || !quiet {
        output::entry("opened", &opened, Tone::Plain);
    }
    for Finding { name, what } in &findings.faults {
        output::entry("damaged", &format!("{name}: {what}"), Tone::Bad);
    }
    if !damaged && !quiet {
        let words = match findings.warnings.is_empty() {
            true => "nothing wrong was found in it",
            false => "no damage was found in it, but there are warnings",
        };
        output::entry("sound", words, Tone::Good);
    }
}

/// Prints what could not be checked.
pub(in crate::command) fn warn(found: &Inspected) {
    for Finding { name, what } in of(found).warnings {
        output::note(&format!("warning: {name}: {what}"));
    }
}

/// What was found, in JSON.
pub(in crate::command) fn document(found: &Inspected) -> Value {
    let findings = of(found);
    let mut document = findings.document;
    document["damaged"] = findings.faults.iter().map(shown).collect();
    document["warnings"] = findings.warnings.iter().map(shown).collect();
    document
}

fn of(found: &Inspected) -> Findings {
    match &found.findings {
        verify::Findings::Postgres(found) => postgres(found),
        verify::Findings::Sqlite(found) => sqlite(found),
    }
}

fn shown(finding: &Finding) -> Value {
    json!({"relation": finding.name, "what": finding.what})
}

fn postgres(found: &windlass_postgres::Inspection) -> Findings {
    let judged = if found.checksums {
        "checksums judged"
    } else {
        "without checksums"
    };
    let finding = |fault: &windlass_postgres::RelationFault| {
        let parts = [fault.database.as_str(), &fault.relation];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Finding {
            name: parts.join(": "),
            what: fault.what.clone(),
        }
    };
    Findings {
        summary: format!(
            "{}: {}, {} against them, {} read, {judged}",
            output::count(found.databases, "database"),
            output::count(found.tables, "table"),
            output::count(found.indexes, "index"),
            output::count(found.pages, "page")
        ),
        document: json!({
            "databases": found.databases,
            "tables": found.tables,
            "indexes": found.indexes,
            "pages": found.pages,
            "checksums": found.checksums,
        }),
        faults: found.faults.iter().map(finding).collect(),
        warnings: found.unchecked.iter().map(finding).collect(),
    }
}

fn sqlite(found: &windlass_sqlite::Inspection) -> Findings {
    let finding = |(table, what): &(String, String)| Finding {
        name: match table.is_empty() {
            true => "database".to_owned(),
            false => table.clone(),
        },
        what: what.clone(),
    };
    Findings {
        summary: format!(
            "{}: integrity and foreign keys checked",
            output::count(found.tables, "table")
        ),
        document: json!({"tables": found.tables}),
        faults: found.faults.iter().map(finding).collect(),
        warnings: found.warnings.iter().map(finding).collect(),
    }
}
