//! `windlass lab rehearse`: how far the plan is off for real runs on emulated storage.

use windlass_lab::{Direction, Rehearsal};
use windlass_operations::rehearsing::{ErrorsMax, RehearseOutcome, RehearseRequest, rehearse};

use crate::cli::{Global, Rehearse};
use crate::exit::{Code, Failure};
use crate::{output, requests, signals};

pub fn run(global: &Global, arguments: &Rehearse) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let request = RehearseRequest {
        path: arguments.path.clone(),
        bytes: arguments.bytes,
        only: arguments.only.clone(),
        errors_max: errors_max(&arguments.at_most)?,
    };
    let outcome = rehearse(&requests::quiet_caller(global), &request, &cancel)?;
    if global.json {
        let document = serde_json::json!({
            "runs": outcome.rehearsals,
            "error_median": outcome.error_median,
            "error_worst": outcome.error_worst,
            "limit_right": outcome.limit_right,
        });
        output::line(&document.to_string());
    } else {
        show(&outcome);
    }
    if outcome.is_too_far_off {
        // The result is printed, and in JSON it is the only object.
        output::note("error: the plan is further off than it may be");
        output::note(
            "hint: Run it again on an idle machine; if it stays so, the simulation is wrong.",
        );
    }
    Ok(outcome.ending().into())
}

/// `MEDIAN,WORST`, or nothing.
fn errors_max(at_most: &[f64]) -> Result<Option<ErrorsMax>, Failure> {
    match *at_most {
        [] => Ok(None),
        [median, worst] => Ok(Some(ErrorsMax { median, worst })),
        _ => Err(Failure::usage(
            "--at-most takes two numbers",
            "Name the largest median error and the largest error: --at-most 0.10,0.25",
        )),
    }
}

fn show(outcome: &RehearseOutcome) {
    output::line("| set-up | run | plan | measured | error | plan: bound by | verdict |");
    output::line("|---|---|---:|---:|---:|---|---|");
    for one in &outcome.rehearsals {
        output::line(&text(one));
    }
    output::line("");
    output::line(&format!(
        "{} runs: median error {:.1} %, worst {:.1} %; same limit named in {}",
        outcome.rehearsals.len(),
        outcome.error_median * 100.0,
        outcome.error_worst * 100.0,
        outcome.limit_right
    ));
}

/// A row of the table.
fn text(one: &Rehearsal) -> String {
    let direction = match one.direction {
        Direction::Backup => "backup",
        Direction::Restore => "restore",
    };
    format!(
        "| {} | {direction} | {:.2} s | {:.2} s | {:+.1} % | {} | {} |",
        one.setup,
        one.predicted_seconds,
        one.measured_seconds,
        one.error() * 100.0,
        one.predicted_limit,
        one.measured_limit
    )
}
