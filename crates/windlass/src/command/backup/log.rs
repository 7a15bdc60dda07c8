//! `windlass backup --type log`: what a place lacks of a database's log, up to now.

use serde_json::{Value, json};
use windlass_engine::show_size;
use windlass_operations::{DatabaseLogOutcome, LogBackedUp, LogBackupOutcome, back_up_log};

use crate::cli::{Backup, Global};
use crate::command::receive;
use crate::exit::{Code, Failure};
use crate::{output, requests, signals, words};

pub(super) fn run(global: &Global, arguments: &Backup) -> Result<Code, Failure> {
    if arguments.dry_run {
        return Err(Failure::usage(
            "--dry-run: a backup of the log cannot be predicted",
            "`windlass check` says whether the server can be backed up.",
        ));
    }
    if let Some(option) = arguments.not_of_log {
        return Err(Failure::usage(
            format!("{option} has no meaning for a backup of the log"),
            "Leave it out. --type log copies the log, and makes no set.",
        ));
    }
    let cancel = signals::cancel_on_signals()?;
    let caller = requests::quiet_caller(global);
    let request = requests::log_backup(global, arguments);
    let request =
        request.inspect_err(|failure| super::tell_failure(&caller, arguments, failure))?;
    let (outcome, ending) = back_up_log(&caller, &request, &cancel)?;
    super::print_warnings(outcome.warnings(), arguments.watching.details);
    match (&outcome, global.json) {
        (_, false) if global.quiet => {}
        (LogBackedUp::Cluster(of), true) => output::line(&document(of).to_string()),
        (LogBackedUp::Cluster(of), false) => print(of),
        (LogBackedUp::Database(of), true) => output::line(&of_database(of).to_string()),
        (LogBackedUp::Database(of), false) => print_of_database(of),
    }
    Ok(output::degraded(ending.into()))
}

fn print_of_database(outcome: &DatabaseLogOutcome) {
    output::line(&receive::captured_line("log", &outcome.captured));
    if outcome.set.is_some() {
        let place = words::quoted(&outcome.captured.place.display().to_string());
        output::line(&format!(
            "restore       windlass restore {place} --into PATH --target-latest"
        ));
    }
}

fn of_database(outcome: &DatabaseLogOutcome) -> Value {
    let mut document = receive::document(&outcome.captured);
    document["type"] = "log".into();
    document["seconds"] = outcome.seconds.into();
    document["set"] = outcome.set.map(|set| set.to_string()).into();
    document["warnings"] = outcome.warnings.document();
    document
}

fn print(outcome: &LogBackupOutcome) {
    let (timeline, end) = (outcome.timeline, outcome.end);
    let copied = &outcome.copied;
    let seconds = words::duration(outcome.seconds);
    let what = match copied.objects {
        0 => "the place had all of it".to_owned(),
        objects => format!(
            "{} stored in {}, {}",
            show_size(copied.bytes),
            show_size(copied.stored_bytes),
            output::count(objects, "object")
        ),
    };
    output::line(&format!(
        "log           up to {end} on timeline {timeline}: {what}, in {seconds}"
    ));
    if outcome.gap.is_none() && outcome.set.is_some() {
        let place = words::quoted(&outcome.place.display().to_string());
        // The latest state is that of the newest timeline.
        let target = match outcome.is_newest {
            true => "--target-latest".to_owned(),
            false => format!("--target-timeline {timeline}"),
        };
        output::line(&format!(
            "restore       windlass restore {place} --into PATH {target}"
        ));
    }
}

fn document(outcome: &LogBackupOutcome) -> Value {
    let gap = outcome
        .gap
        .map(|gap| json!({"start": gap.start.to_string(), "end": gap.end.to_string()}));
    json!({
        "type": "log",
        "system": outcome.system.to_string(),
        "timeline": outcome.timeline.0,
        "end": outcome.end.to_string(),
        "objects": outcome.copied.objects,
        "bytes": outcome.copied.bytes,
        "stored_bytes": outcome.copied.stored_bytes,
        "seconds": outcome.seconds,
        "newest_set": outcome.set.map(|set| set.to_string()),
        "gap": gap,
        "warnings": outcome.warnings.document(),
    })
}
