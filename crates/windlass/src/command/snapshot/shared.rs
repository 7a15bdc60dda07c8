//! What several commands about snapshots share: the database that is meant, what is to be made, and
//! how a snapshot is shown.

use serde_json::{Value, json};
use windlass_engine::to_json;
use windlass_operations::snapshots::{
    CreateOutcome, CreateRequest, HookLimits, HookStart, Method, Obstacle, PassedOver, Record,
    SnapshotWarning, SnapshotsOf, Survives,
};

use crate::cli::{Making, Of, SnapshotCheckpoint, SnapshotMethod};
use crate::output::{self, Tone};
use crate::words::{duration, moment_of};

/// Whose snapshots are meant.
pub fn of(arguments: &Of) -> SnapshotsOf {
    SnapshotsOf {
        database: arguments.database.clone(),
        name: arguments.name.clone(),
    }
}

/// What is to be made.
pub fn request(of: &Of, name: &str, making: &Making) -> CreateRequest {
    CreateRequest {
        of: self::of(of),
        name: name.to_owned(),
        into: making.to.clone(),
        method: match making.method {
            SnapshotMethod::Auto => None,
            SnapshotMethod::Hook => Some(Method::Hook),
            SnapshotMethod::Clone => Some(Method::Clone),
            SnapshotMethod::Copy => Some(Method::Copy),
        },
        start: match making.checkpoint {
            SnapshotCheckpoint::Fast => HookStart::Checkpoint,
            SnapshotCheckpoint::Spread => HookStart::SpreadCheckpoint,
            SnapshotCheckpoint::None => HookStart::Pause,
        },
        limits: HookLimits {
            max_bytes: making.max_size,
            until: None,
            keep_free_bytes: making.keep_free,
        },
        max_age: making.max_age,
        durable: making.durable,
        accept: making.accept.clone(),
    }
}

/// Prints the warnings of a snapshot that was made.
pub fn warn(outcome: &CreateOutcome) {
    let open = outcome.warnings.iter().filter(|warning| !warning.accepted);
    for SnapshotWarning { name, text, .. } in open {
        output::note(&format!("warning: {text} ({name})"));
    }
}

/// Prints what was made.
pub fn show(of: &Of, outcome: &CreateOutcome) {
    let record = outcome.record();
    let took = duration(record.seconds);
    let text = format!("{} in {took}, by method {}", record.name, record.method);
    output::entry("snapshot", &text, Tone::Good);
    let place = outcome.snapshot.path().display().to_string();
    output::entry("place", &place, Tone::Plain);
    output::entry("as of", &as_of(record), Tone::Plain);
    for passed in &outcome.passed_over {
        output::entry("method", &passed_over(passed), Tone::Plain);
        if matches!(passed.obstacle, Obstacle::NoHook { .. }) {
            let enable = format!("windlass snapshot enable {}", typed(of));
            output::entry(
                "hint",
                &format!("to prepare the server: {enable}"),
                Tone::Plain,
            );
        }
    }
    let stopped = match record.writers_stopped_seconds {
        0.0 => "nobody had to wait".to_owned(),
        seconds => format!("nobody could commit for {}", duration(seconds)),
    };
    output::entry("writers", &stopped, Tone::Plain);
    output::entry("survives", survives(record.survives), Tone::Plain);
    for step in &record.steps {
        let text = format!("{:>9}  {}", duration(step.seconds), step.name);
        output::entry("step", &text, Tone::Plain);
    }
    let list = format!("windlass snapshot list {}", typed(of));
    output::entry("list", &list, Tone::Plain);
}

/// The database as it is typed.
pub fn typed(of: &Of) -> String {
    crate::words::quoted(of.name.as_deref().unwrap_or(&of.database))
}

/// The moment of the data, and its place in the log.
fn as_of(record: &Record) -> String {
    let moment = moment_of(&record.as_of);
    match &record.lsn {
        Some(lsn) => format!("{moment}, LSN {lsn}"),
        None => moment,
    }
}

fn passed_over(one: &PassedOver) -> String {
    format!("not {}: {}", one.method, one.obstacle)
}

fn survives(what: Survives) -> &'static str {
    match what {
        Survives::Crash => "a crash of the database, not a power cut",
        Survives::PowerCut => "a crash of the database, and a power cut",
    }
}

/// The same for a program.
pub fn document(outcome: &CreateOutcome) -> Value {
    let passed = outcome.passed_over.iter();
    let passed = passed.map(|one| {
        json!({
            "method": one.method,
            "reason": one.obstacle.to_string(),
        })
    });
    let mut document = of_record(outcome.record());
    document["place"] = outcome.snapshot.path().display().to_string().into();
    document["passed_over"] = passed.collect::<Vec<_>>().into();
    document["warnings"] = to_json(&outcome.warnings);
    document
}

/// What is known about a snapshot.
pub fn of_record(record: &Record) -> Value {
    json!({
        "name": record.name,
        "id": record.id,
        "method": record.method,
        "database": record.source.path,
        "kind": record.source.kind,
        "created": record.created,
        "as_of": record.as_of,
        "lsn": record.lsn,
        "seconds": record.seconds,
        "writers_stopped_seconds": record.writers_stopped_seconds,
        "survives": record.survives,
        "state": to_json(&record.state),
        "steps": to_json(&record.steps),
    })
}
