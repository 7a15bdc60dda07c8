//! `windlass hold`: says that a set must stay, or that it need not any more.

use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_operations::hold::{HoldOutcome, HoldRequest, hold};

use crate::cli::{Global, Hold};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::requests;
use crate::words::quoted;

/// Longest reason. It is a line for people.
const REASON_BYTES_MAX: usize = 4096;

pub fn run(global: &Global, arguments: &Hold) -> Result<Code, Failure> {
    if arguments.reason.len() > REASON_BYTES_MAX {
        return Err(Failure::usage(
            format!("--reason is longer than {REASON_BYTES_MAX} bytes"),
            "Write why the set must stay in a line or two.",
        ));
    }
    let caller = requests::quiet_caller(global);
    let request = HoldRequest {
        set: requests::sets(global, &arguments.set, &arguments.choice),
        reason: arguments.reason.clone(),
        release: arguments.release,
    };
    let outcome = hold(&caller, &request)?;
    if global.json {
        output::line(&document(&outcome, arguments.release).to_string());
    } else if !global.quiet {
        show(&outcome, arguments.release);
    }
    Ok(warn(&outcome, arguments))
}

fn document(outcome: &HoldOutcome, release: bool) -> Value {
    let bases: Vec<_> = outcome.bases.iter().map(ToString::to_string).collect();
    let not_held = outcome.elsewhere.iter().map(|(base, _)| base.to_string());
    let absent = outcome.absent.iter().map(|it| it.display().to_string());
    let failed = outcome
        .failed
        .iter()
        .map(|(it, _)| it.display().to_string());
    json!({
        "set_id": outcome.set_id.to_string(),
        // What could not be removed still holds the set.
        "held": if release { !outcome.failed.is_empty() } else { !outcome.files.is_empty() },
        "bases": bases,
        "not_held": not_held.collect::<Vec<_>>(),
        "absent": absent.collect::<Vec<_>>(),
        "failed": failed.collect::<Vec<_>>(),
    })
}

fn show(outcome: &HoldOutcome, release: bool) {
    let id = outcome.set_id;
    let is_nothing = outcome.files.is_empty();
    let (label, words) = match (release, outcome.bases.len() as u64) {
        (_, _) if !outcome.failed.is_empty() => return,
        (true, _) if !outcome.absent.is_empty() => (
            "released",
            format!("set {id}, in the directories that are there"),
        ),
        (true, _) if is_nothing => ("released", format!("set {id} was not held")),
        (true, _) => (
            "released",
            format!("set {id}: the rules count for it again"),
        ),
        (false, 0) => ("held", format!("set {id} stays until it is released")),
        (false, bases) => {
            let bases = output::count(bases, "set");
            let words = format!("set {id} stays until it is released, with {bases} below it");
            ("held", words)
        }
    };
    output::entry(label, &words, Tone::Good);
}

/// Says what was not done. Returns how the command ends.
fn warn(outcome: &HoldOutcome, arguments: &Hold) -> Code {
    let (is, done) = match arguments.release {
        true => ("still held", "released"),
        false => ("not held", "held"),
    };
    let names = |paths: &[PathBuf]| {
        let directories = paths.iter().filter_map(|path| path.parent());
        let names: Vec<_> = directories.map(|it| it.display().to_string()).collect();
        names.join(", ")
    };
    for (path, error) in &outcome.failed {
        let place = quoted(&names(std::slice::from_ref(path)));
        output::degrade(&format!("the set is {is} in {place}: {error}"));
    }
    if !outcome.failed.is_empty() {
        if !outcome.files.is_empty() {
            output::note(&format!("note: it is {done} in {}", names(&outcome.files)));
        }
        output::note("hint: Mend that, and run the same command again.");
    }
    for place in &outcome.absent {
        let place = quoted(&place.display().to_string());
        output::degrade(&match arguments.release {
            true => format!("{place} is not there: if the set is held in it, it still is"),
            false => format!("{place} is not there, so the set is not held in it"),
        });
    }
    if !arguments.release {
        for (base, place) in &outcome.elsewhere {
            let (base, place) = (&base.to_string()[..8], quoted(&place.display().to_string()));
            output::degrade(&format!(
                "set {base}, on which it builds, lies in {place}, and is not held there"
            ));
            output::note(&format!(
                "hint: Hold it, too: windlass hold {place} --set {base}"
            ));
        }
    }
    match outcome.files.is_empty() && !outcome.failed.is_empty() {
        true => Code::Failed,
        false => output::degraded(Code::Done),
    }
}
