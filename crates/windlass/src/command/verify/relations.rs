//! `windlass verify --open`: opens the set, and checks every relation with the database's own
//! tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use windlass_engine::Cancel;
use windlass_engine::media::SetId;
use windlass_mount::{MountError, apart};

use crate::cli::{Global, Verify};
use crate::exit::{Code, Failure};
use windlass_operations::{Observer, Opened, ToOpen};

use crate::hints;
use crate::observer::Terminal;
use crate::output::{self, Tone};
use crate::places::{self, Advice};
use crate::requests;
use crate::words::duration;

/// What follows if the database is damaged, and every byte of its set is right.
pub(super) const OF_SOURCE: &str = "The set is what was backed up: the damage was in the source.";

/// The result of a check.
pub(super) struct Checked {
    pub(super) code: Code,
    pub(super) document: Value,
    /// The number of faults in the database; then whether damage of the set is their cause.
    faults: u64,
    set_is_damaged: bool,
}

impl Checked {
    /// Reports at the end what is wrong. It is called only if no damage of the set was found
    /// before.
    pub(super) fn complain(&self, id: &SetId, advice: Option<&Advice>) {
        let older = advice
            .filter(|advice| advice.is_older())
            .map(hints::places::instead);
        let (error, mut hint) = match (self.set_is_damaged, self.faults) {
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
        match (older, self.set_is_damaged) {
            (Some(older), true) => hint += &format!(" {older}"),
            (Some(older), false) => hint += &format!(" An older set may be without it. {older}"),
            (None, _) => {}
        }
        output::note(&format!("error: {error}"));
        output::note(&format!("hint: {hint}"));
    }
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

/// Opens the set and checks what is in it. `line` names the set, if nothing has named it yet.
pub(super) fn check(
    (global, line): (&Global, Option<String>),
    arguments: &Verify,
    stripes: &[PathBuf],
    cancel: &Cancel,
) -> Result<Checked, Failure> {
    let begun = Instant::now();
    let set = Arc::new(places::open_stripes(stripes)?);
    let writable = set.description().facts.database["kind"] == windlass_postgres::KIND;
    let observer: Arc<dyn Observer> = Arc::new(Terminal::new(global, false, 10));
    let settings = requests::opening(&arguments.opening, writable);
    let what = ToOpen::set(&set, settings.cache_bytes)?;
    let mut opened = Opened::open(&observer, &what, &settings, cancel)?;
    let findings = match &opened {
        Opened::Postgres { server, view } => {
            let jobs = std::thread::available_parallelism().map_or(2, usize::from);
            let inspect = || windlass_postgres::inspect(server, view.at(), jobs, cancel);
            let found = read_apart(view.at(), inspect)?;
            found.map(postgres).map_err(Failure::from)
        }
        Opened::Sqlite { database, .. } => {
            let found = read_apart(database, || windlass_sqlite::inspect(database))?;
            found.map(sqlite).map_err(Failure::from)
        }
    };
    // If damage ended the server, its end says more than the session that broke with it.
    let findings = match findings {
        Ok(findings) => findings,
        Err(failure) => {
            let ended = opened.check_alive().err();
            return Err(ended.map_or(failure, Failure::from));
        }
    };
    let set_is_damaged = opened.close()?;
    let faults = findings.faults.len() as u64;
    let damaged = set_is_damaged || faults > 0;
    if !global.json {
        let seconds = duration(begun.elapsed().as_secs_f64());
        let opened = format!("{}, in {seconds}", findings.summary);
        if damaged {
            line.iter().for_each(|line| output::line(line));
        }
        if damaged || !global.quiet {
            output::entry("opened", &opened, Tone::Plain);
        }
        for Finding { name, what } in &findings.faults {
            output::entry("damaged", &format!("{name}: {what}"), Tone::Bad);
        }
        if !damaged && !global.quiet {
            output::entry("sound", "nothing wrong was found in it", Tone::Good);
        }
    }
    for Finding { name, what } in &findings.warnings {
        output::note(&format!("warning: {name}: {what}"));
    }
    let code = match (damaged, findings.warnings.is_empty()) {
        (true, _) => Code::Damage,
        (false, false) => Code::Warnings,
        (false, true) => Code::Done,
    };
    let mut document = findings.document;
    document["damaged"] = findings.faults.iter().map(shown).collect();
    document["warnings"] = findings.warnings.iter().map(shown).collect();
    Ok(Checked {
        code,
        document,
        faults,
        set_is_damaged,
    })
}

/// Reads our own mount. Otherwise a process that is killed could wait for itself for ever.
fn read_apart<T: Send>(at: &Path, read: impl FnOnce() -> T + Send) -> Result<T, Failure> {
    let failed = |source| MountError::Serve {
        at: at.to_owned(),
        source,
    };
    Ok(apart(read).map_err(failed)?)
}

fn shown(finding: &Finding) -> Value {
    json!({"relation": finding.name, "what": finding.what})
}

fn postgres(found: windlass_postgres::Inspection) -> Findings {
    let windlass_postgres::Inspection {
        databases,
        tables,
        indexes,
        pages,
        checksums,
        ..
    } = found;
    let judged = if checksums {
        "checksums judged"
    } else {
        "without checksums"
    };
    let finding = |fault: windlass_postgres::RelationFault| {
        let parts = [fault.database, fault.relation];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Finding {
            name: parts.join(": "),
            what: fault.what,
        }
    };
    Findings {
        summary: format!(
            "{}: {}, {} against them, {} read, {judged}",
            output::count(databases, "database"),
            output::count(tables, "table"),
            output::count(indexes, "index"),
            output::count(pages, "page")
        ),
        document: json!({
            "databases": databases,
            "tables": tables,
            "indexes": indexes,
            "pages": pages,
            "checksums": checksums,
        }),
        faults: found.faults.into_iter().map(finding).collect(),
        warnings: found.unchecked.into_iter().map(finding).collect(),
    }
}

fn sqlite(found: windlass_sqlite::Inspection) -> Findings {
    let finding = |(table, what): (String, String)| Finding {
        name: if table.is_empty() {
            "database".to_owned()
        } else {
            table
        },
        what,
    };
    let tables = found.tables;
    Findings {
        summary: format!(
            "{}: integrity and foreign keys checked",
            output::count(tables, "table")
        ),
        document: json!({"tables": tables}),
        faults: found.faults.into_iter().map(finding).collect(),
        warnings: found.warnings.into_iter().map(finding).collect(),
    }
}
