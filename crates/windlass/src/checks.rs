//! Shows what was checked before a run, and says what to do.

use serde_json::{Value, json};
use windlass_operations::checks::{Check, Checks, Level};

use crate::hints::checks::words;
use crate::{log, output};

/// Logs a check.
pub fn log(check: &Check) {
    let (text, hint) = words(check);
    let hinted = hint.map(|hint| format!(" hint: {hint}"));
    let line = format!("{}: {text}{}", check.name, hinted.unwrap_or_default());
    match check.level {
        Level::Ok => log::info(&line),
        Level::Warning => log::warn(&line),
        Level::Failed => log::error(&line),
    }
}

/// Prints a line for each check, with its hint below. With `quiet` it leaves out what is right.
pub fn print(checks: &Checks, quiet: bool) {
    for check in checks.iter() {
        if quiet && check.level == Level::Ok {
            continue;
        }
        let (text, hint) = words(check);
        output::line(&format!(
            "{:<8} {:<12} {text}",
            word(check.level),
            check.name
        ));
        if let Some(hint) = hint {
            output::line(&format!("{:21} hint: {hint}", ""));
        }
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Warning => "warning",
        Level::Failed => "failed",
    }
}

/// The checks as JSON.
pub fn document(checks: &Checks) -> Value {
    let one = |check: &Check| {
        let (text, hint) = words(check);
        json!({"name": check.name, "state": word(check.level), "text": text, "hint": hint})
    };
    checks.iter().map(one).collect()
}
