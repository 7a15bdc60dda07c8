//! `windlass restore`: writes a set into a new data directory, or into a new database file.

mod dry;

use windlass_engine::{show_size, to_json};
use windlass_operations::{
    Caller, ChangedCluster, RestoreOutcome, Restored, restore, restore_not_begun,
};

use crate::cli::{Global, Restore};
use crate::exit::{Code, Failure};
use crate::observer::Terminal;
use crate::table::Finished;
use crate::{output, requests, signals, words};

pub fn run(global: &Global, arguments: &Restore) -> Result<Code, Failure> {
    if arguments.dry_run {
        return dry::run(global, arguments);
    }
    let cancel = signals::cancel_on_signals()?;
    let terminal = Terminal::new(global, arguments.watching.details, 10);
    let caller = requests::caller(global, terminal);
    let request = requests::restore(global, arguments);
    let request = request.inspect_err(|failure| tell_failure(&caller, arguments, failure))?;
    let (outcome, ending) = restore(&caller, &request, &cancel)?;
    show(global, arguments, &outcome);
    Ok(output::degraded(ending.into()))
}

/// A value that cannot be used ends the run before it begins. Its hooks hear of it all the same, if
/// they can be used themselves.
fn tell_failure(caller: &Caller, arguments: &Restore, failure: &Failure) {
    let watching = requests::watching_nothing(&arguments.watching);
    if let Ok(hooks) = requests::hooks(&arguments.hooks) {
        let why = (failure.code().ending(), failure.message());
        restore_not_begun((caller, &watching, &hooks), &arguments.into, why);
    }
}

fn show(global: &Global, arguments: &Restore, outcome: &RestoreOutcome) {
    let report = &outcome.report;
    let next = next(&outcome.restored);
    if global.json {
        let mut document = to_json(report);
        outcome.judgement.describe(&mut document);
        if let Some(changed) = changed(&outcome.restored) {
            document["changed_bytes"] = changed.bytes.into();
            document["removed"] = changed.removed.into();
        }
        document["next"] = next.lines().map(str::trim_start).collect();
        return output::line(&document.to_string());
    }
    let (written, stored) = (
        show_size(report.bytes_written),
        show_size(outcome.stripe_bytes),
    );
    let seconds = words::duration(report.seconds);
    let next = next.lines().map(|line| ("next", line.to_owned()));
    let changed = changed(&outcome.restored).map(|changed| {
        let bytes = show_size(changed.bytes);
        let removed = output::count(changed.removed, "path");
        format!("{bytes} that differed or were missing; {removed} removed")
    });
    let finished = Finished {
        result: (
            "restored",
            format!("{written} from a set of {stored}, in {seconds}"),
        ),
        then: changed.into_iter().map(|text| ("changed", text)).collect(),
        report,
        judgement: Some(&outcome.judgement),
        remarks: next.collect(),
        details: arguments.watching.details,
    };
    finished.print(global.quiet);
}

/// What was changed of a cluster that was there.
fn changed(restored: &Restored) -> Option<ChangedCluster> {
    match restored {
        Restored::Cluster { changed, .. } => *changed,
        Restored::Database { .. } => None,
    }
}

/// What to do with what was restored.
fn next(restored: &Restored) -> String {
    match restored {
        Restored::Cluster { next_steps, .. } => next_steps.clone(),
        Restored::Database { path } => format!("{} is ready to open\n", path.display()),
    }
}
