//! `windlass receive`: the log of a running database, until a signal ends the command.

use std::time::Duration;

use windlass_engine::show_size;
use windlass_operations::{CapturedLog, ReceiveRequest, Received, ReceivedLog, receive};

use crate::cli::{Global, Receive};
use crate::exit::{Code, Failure};
use crate::{output, requests, signals, words};

pub fn run(global: &Global, arguments: &Receive) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let caller = requests::quiet_caller(global);
    let request = ReceiveRequest {
        database: arguments.database.clone(),
        to: arguments.to.clone(),
        encrypt: requests::log_readers(global, &arguments.to, &arguments.encrypt),
        slot: arguments.slot.clone(),
        create_slot: arguments.create_slot,
        interval: arguments
            .interval
            .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
    };
    let (received, ending) = receive(&caller, &request, &cancel)?;
    match (&received, global.json) {
        (_, false) if global.quiet => {}
        (Received::Cluster(log), json) => show_cluster(log, json),
        (Received::Database(log), true) => output::line(&document(log).to_string()),
        (Received::Database(log), false) => output::line(&captured_line("received", log)),
    }
    Ok(ending.into())
}

fn show_cluster(received: &ReceivedLog, json: bool) {
    if json {
        let document = serde_json::json!({
            "system": received.system.to_string(),
            "timeline": received.timeline.0,
            "durable": received.durable.to_string(),
            "bytes": received.bytes,
        });
        return output::line(&document.to_string());
    }
    let (bytes, durable) = (show_size(received.bytes), received.durable);
    let timeline = received.timeline;
    output::line(&format!(
        "received      {bytes}; durable up to {durable} on timeline {timeline}"
    ));
}

/// What was captured of a SQLite database.
pub(super) fn captured_line(word: &str, log: &CapturedLog) -> String {
    let commits = output::count(log.commits, "transaction");
    let (bytes, timeline, number) = (show_size(log.bytes), log.timeline, log.number);
    let waited = match log.held.times {
        0 => "writers never waited".to_owned(),
        times => {
            let times = output::count(times, "time");
            let longest = words::duration(log.held.longest.as_secs_f64());
            format!("writers waited {times}, {longest} at most")
        }
    };
    format!("{word:<13} {commits}, {bytes}; timeline {timeline} has {number}; {waited}")
}

pub(super) fn document(log: &CapturedLog) -> serde_json::Value {
    serde_json::json!({
        "database": log.database.to_string_lossy(),
        "timeline": log.timeline.0,
        "transactions": log.commits,
        "number": log.number,
        "bytes": log.bytes,
        "breaks": log.breaks,
        "writers_waited": log.held.times,
        "writers_waited_seconds": log.held.longest.as_secs_f64(),
    })
}
