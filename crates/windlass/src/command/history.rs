//! `windlass history`: what was run when, how fast, and what changed.

mod document;

use windlass_engine::show_rate;
use windlass_operations::Caller;
use windlass_operations::history::{
    DatabaseHistory, History as Kept, HistoryOutcome, Shown, history,
};

use crate::cli::{Global, History};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::words::{age, duration, local_time, moment};
use crate::{hints, requests};

pub fn run(global: &Global, arguments: &History) -> Result<Code, Failure> {
    let caller = Caller {
        history: Kept::of_process(),
        ..requests::quiet_caller(global)
    };
    let outcome = history(&caller, &requests::history(global, arguments))?;
    for (place, error) in &outcome.unread {
        let (message, _) = hints::operation::words(error);
        let place = place.display();
        output::degrade(&format!(
            "the sets of {place} are not in the history: {message}"
        ));
    }
    if global.json {
        output::line(&document::of(&outcome).to_string());
    } else {
        show(&outcome);
    }
    Ok(output::degraded(Code::Done))
}

fn show(outcome: &HistoryOutcome) {
    if outcome.added > 0 {
        let sets = output::count(outcome.added as u64, "run");
        output::note(&format!("note: {sets} added from sets"));
    }
    if outcome.runs.is_empty() {
        output::line("no runs");
    } else {
        runs(outcome);
    }
    for database in &outcome.databases {
        output::line("");
        about(outcome, database);
    }
    for jump in &outcome.jumps {
        output::entry("clock", &jump.to_string(), Tone::Bad);
    }
}

fn runs(outcome: &HistoryOutcome) {
    let names = outcome.runs.iter().map(|run| run.database.chars().count());
    let width = names.max().unwrap_or_default().clamp(8, 24);
    if outcome.left_out > 0 {
        output::line(&format!(
            "{} earlier (--limit 0 shows all of them)",
            output::count(outcome.left_out as u64, "run")
        ));
    }
    output::line(&format!(
        "{:<19}  {:<width$} {:<15} {:<4} {:>12} {:>10} {:>10} {:>6} {:>12}  result",
        "began", "database", "run", "type", "took", "read", "stored", "ratio", "rate"
    ));
    for run in &outcome.runs {
        output::line(&line(run, width));
    }
}

fn line(run: &Shown, width: usize) -> String {
    let one = &run.run;
    let bytes = |value: Option<i64>| {
        let value = value.and_then(|bytes| u64::try_from(bytes).ok());
        value.map_or(String::new(), windlass_engine::show_size)
    };
    let what = match (one.command.as_str(), one.operation.as_str()) {
        ("backup", "trial") => "trial",
        (command, _) => command,
    };
    let error = one.error.as_deref().and_then(|text| text.lines().next());
    let error = error.map_or(String::new(), |text| format!(": {text}"));
    format!(
        "{:<19}  {:<width$} {:<15} {:<4} {:>12} {:>10} {:>10} {:>6} {:>12}  {}{error}",
        local_time(one.began.saturating_mul(1_000_000)),
        run.database,
        what,
        one.set_type.as_deref().unwrap_or_default(),
        one.seconds.map_or(String::new(), duration),
        bytes(one.bytes_read),
        bytes(one.bytes_written),
        run.ratio()
            .map_or(String::new(), |ratio| format!("{ratio:.2}")),
        run.rate().map_or(String::new(), show_rate),
        one.state.name(),
    )
}

/// What the runs of a database say about it.
fn about(outcome: &HistoryOutcome, database: &DatabaseHistory) {
    output::entry("database", &database.name, Tone::Plain);
    for newest in &database.newest {
        let ago = age(outcome.now.duration_since(newest.ended));
        let rate = newest.rate.map(|rate| format!(", {}", show_rate(rate)));
        let ratio = newest.ratio.map(|ratio| format!(", ratio {ratio:.2}"));
        let more = rate.into_iter().chain(ratio).collect::<String>();
        output::entry(
            &format!("last {}", newest.set_type),
            &format!("{ago}{more}"),
            Tone::Plain,
        );
    }
    let restorable = match database.restorable {
        Some(time) => (format!("up to {}", moment(time)), Tone::Plain),
        None => ("no backup in the history".to_owned(), Tone::Bad),
    };
    output::entry("restorable", &restorable.0, restorable.1);
    match &database.proven {
        Some(proof) => {
            let set = proof
                .set_id
                .as_deref()
                .map(|id| format!(" of set {}", &id[..id.len().min(8)]));
            let text = format!(
                "{}{} on {}",
                proof.command,
                set.unwrap_or_default(),
                moment(proof.at)
            );
            output::entry("proven", &text, Tone::Good);
        }
        None => {
            let text = "never: no restore of all of it in the history";
            output::entry("proven", text, Tone::Plain);
        }
    }
    for found in &database.breaks {
        output::entry("changed", &found.to_string(), Tone::Bad);
        for cause in &found.causes {
            output::entry("with it", &cause.to_string(), Tone::Plain);
        }
        if found.causes.is_empty() {
            output::entry("with it", "nothing that Windlass knows of", Tone::Plain);
        }
    }
    for gap in &database.gaps {
        output::entry("gap", &gap.to_string(), Tone::Bad);
    }
    if database.failed_since > 0 {
        let runs = output::count(database.failed_since as u64, "backup");
        output::entry(
            "failed",
            &format!("{runs} since the last good one"),
            Tone::Bad,
        );
    }
}
