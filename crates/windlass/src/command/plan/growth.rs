//! The answer of `windlass plan --snapshot`: how a snapshot would grow, and by which method it
//! would be made.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_engine::{show_bytes, show_rate, show_size};
use windlass_operations::plan::{GrowthOutcome, GrowthRequest, plan_snapshot};
use windlass_operations::snapshots::Method;

use crate::cli::{Global, Plan};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::words::duration;
use crate::{requests, signals};

/// The moments that are shown, in seconds, and their words.
const MOMENTS: [(f64, &str); 5] = [
    (60.0, "1 minute"),
    (600.0, "10 minutes"),
    (3600.0, "1 hour"),
    (21_600.0, "6 hours"),
    (86_400.0, "1 day"),
];

pub(super) fn run(global: &Global, arguments: &Plan) -> Result<Code, Failure> {
    let Some(database) = &arguments.database else {
        return Err(Failure::usage(
            "--snapshot: name the server".to_owned(),
            "windlass plan --snapshot 'host=/var/run/postgresql'",
        ));
    };
    let cancel = signals::cancel_on_signals()?;
    let request = GrowthRequest {
        database: database.clone(),
        name: None,
        look: Duration::from_secs_f64(arguments.look),
        max_bytes: arguments.max_size,
    };
    let outcome = plan_snapshot(&requests::quiet_caller(global), &request, &cancel)?;
    match global.json {
        true => output::line(&document(&outcome, arguments.max_size).to_string()),
        false => show(&outcome, arguments.max_size),
    }
    Ok(Code::Done)
}

fn document(outcome: &GrowthOutcome, max_size: Option<u64>) -> Value {
    let passed = outcome.passed_over.iter();
    let passed =
        passed.map(|one| json!({"method": one.method, "reason": one.obstacle.to_string()}));
    let growth = MOMENTS.map(
        |(seconds, _)| json!({"seconds": seconds, "bytes": outcome.model.bytes_after(seconds)}),
    );
    json!({
        "server": outcome.version,
        "cluster_bytes": outcome.cluster_bytes,
        "method": outcome.method,
        "passed_over": passed.collect::<Vec<_>>(),
        "look": outcome.look,
        "model": outcome.model,
        "growth": growth,
        "max_size": max_size,
        "reaches_max_size_seconds": outcome.reaches_max_seconds,
    })
}

fn show(outcome: &GrowthOutcome, max_size: Option<u64>) {
    let look = &outcome.look;
    output::line(&format!(
        "snapshot of PostgreSQL {}, {}, looked at for {}",
        outcome.version,
        show_size(outcome.cluster_bytes),
        duration(look.seconds)
    ));
    output::line("");
    output::line("  after             size  of the cluster");
    for (seconds, words) in MOMENTS {
        let bytes = outcome.model.bytes_after(seconds);
        let share = 100.0 * bytes / windlass_lab::to_f64(outcome.cluster_bytes.max(1));
        output::line(&format!(
            "  {words:<11}{:>11}  {share:.1} %",
            show_bytes(bytes)
        ));
    }
    output::line("");
    let method = match outcome.method {
        Method::Copy => "copy: it has the size of a backup at once, and does not grow".to_owned(),
        method => format!("{method}: it grows as above"),
    };
    output::entry("method", &method, Tone::Plain);
    for passed in &outcome.passed_over {
        let text = format!("not {}: {}", passed.method, passed.obstacle);
        output::entry("method", &text, Tone::Plain);
    }
    if let Some(bytes) = max_size {
        output::entry("limit", &limit(outcome, bytes), Tone::Plain);
    }
    let rate = |count: u64| windlass_lab::to_f64(count) / look.seconds.max(1e-3);
    let seen = format!(
        "{:.1} pages a second changed for the first time since the checkpoint, which is {} old; \
         {} of log",
        rate(look.first_changes),
        duration(look.checkpoint_age_seconds),
        show_rate(rate(look.log_bytes))
    );
    output::entry("seen", &seen, Tone::Plain);
    output::entry("sure", sureness(outcome), Tone::Plain);
}

fn limit(outcome: &GrowthOutcome, bytes: u64) -> String {
    match outcome.reaches_max_seconds {
        Some(seconds) => format!(
            "{} are reached after {}",
            show_size(bytes),
            duration(seconds)
        ),
        None => format!("{} are never reached", show_size(bytes)),
    }
}

fn sureness(outcome: &GrowthOutcome) -> &'static str {
    match outcome.model.is_upper_bound {
        true => {
            "rather less: full_page_writes is off, so each changed row counts as a page of its own"
        }
        false => "if the server goes on as it did while it was looked at",
    }
}
