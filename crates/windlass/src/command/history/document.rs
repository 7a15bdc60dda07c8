//! The history as one JSON object.

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_operations::history::{Break, DatabaseHistory, Gap, HistoryOutcome, Shown};

/// The object.
pub fn of(outcome: &HistoryOutcome) -> Value {
    let unread = outcome.unread.iter().map(
        |(place, error)| json!({"place": place.to_string_lossy(), "error": error.to_string()}),
    );
    let jumps = outcome.jumps.iter();
    let jumps = jumps.map(|jump| json!({"from": jump.from.to_string(), "to": jump.to.to_string()}));
    json!({
        "history": outcome.path.to_string_lossy(),
        "made": outcome.made.to_string(),
        "rebuilt_runs": outcome.added,
        "unread_places": unread.collect::<Vec<_>>(),
        "databases": outcome.databases.iter().map(|one| database(one, outcome.now)).collect::<Vec<_>>(),
        "runs": outcome.runs.iter().map(run).collect::<Vec<_>>(),
        "left_out_runs": outcome.left_out,
        "clock_jumps": jumps.collect::<Vec<_>>(),
    })
}

fn time(millis: i64) -> Option<String> {
    Timestamp::from_millisecond(millis)
        .ok()
        .map(|time| time.to_string())
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

fn run(shown: &Shown) -> Value {
    let run = &shown.run;
    json!({
        "database": shown.database,
        "command": run.command,
        "operation": run.operation,
        "subject": run.subject,
        "key": run.key,
        "started": time(run.began),
        "ended": run.ended.and_then(time),
        "result": run.state.name(),
        "error": run.error,
        "set_id": run.set_id,
        "type": run.set_type,
        "base": run.base,
        "seconds": run.seconds,
        "bytes_read": run.bytes_read,
        "bytes_written": run.bytes_written,
        "rate": shown.rate(),
        "ratio": shown.ratio(),
        "limit": run.limit,
        "verdict": run.verdict,
        "settings": parsed(&run.settings),
        "warnings": parsed(&run.warnings),
        "tool": run.tool,
        "rebuilt": run.is_rebuilt,
    })
}

fn database(database: &DatabaseHistory, now: Timestamp) -> Value {
    let age = |at: Timestamp| now.duration_since(at).as_secs_f64();
    let newest = database.newest.iter().map(|newest| {
        json!({
            "type": newest.set_type,
            "ended": newest.ended.to_string(),
            "age_seconds": age(newest.ended),
            "rate": newest.rate,
            "ratio": newest.ratio,
        })
    });
    let proven = database.proven.as_ref().map(|proof| {
        json!({
            "at": proof.at.to_string(),
            "age_seconds": age(proof.at),
            "command": proof.command,
            "set_id": proof.set_id,
        })
    });
    json!({
        "name": database.name,
        "newest": newest.collect::<Vec<_>>(),
        "restorable": database.restorable.map(|time| time.to_string()),
        "restorable_age_seconds": database.restorable.map(age),
        "proven": proven,
        "changes": database.breaks.iter().map(change).collect::<Vec<_>>(),
        "gaps": database.gaps.iter().map(gap).collect::<Vec<_>>(),
        "failed_since": database.failed_since,
    })
}

fn change(found: &Break) -> Value {
    let causes = found.causes.iter().map(|cause| {
        json!({
            "text": cause.to_string(),
            "before": cause.before,
            "after": cause.after,
        })
    });
    let side = |(value, runs): (f64, usize)| json!({"mean": value, "runs": runs});
    json!({
        "quantity": found.quantity.name(),
        "type": found.set_type,
        "since": found.since.to_string(),
        "before": side(found.before),
        "after": side(found.after),
        "ratio": found.difference.ratio,
        "needed": found.difference.needed,
        "with_it": causes.collect::<Vec<_>>(),
        "text": found.to_string(),
    })
}

fn gap(gap: &Gap) -> Value {
    json!({
        "type": gap.set_type,
        "from": gap.from.to_string(),
        "to": gap.to.map(|to| to.to_string()),
        "usual_seconds": gap.usual_seconds,
        "failed_runs": gap.failed,
    })
}
