//! `windlass receive`: the log of a running server, until a signal ends the command.

use std::time::Duration;

use windlass_engine::show_size;
use windlass_operations::{ReceiveRequest, receive};

use crate::cli::{Global, Receive};
use crate::exit::{Code, Failure};
use crate::{output, requests, signals};

/// How long log waits until it is durable, unless somebody says otherwise.
const INTERVAL_SECONDS: f64 = 0.2;

pub fn run(global: &Global, arguments: &Receive) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let caller = requests::quiet_caller(global);
    let seconds = arguments.interval.unwrap_or(INTERVAL_SECONDS);
    let request = ReceiveRequest {
        database: arguments.database.clone(),
        to: arguments.to.clone(),
        slot: arguments.slot.clone(),
        create_slot: arguments.create_slot,
        interval: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
    };
    let (received, ending) = receive(&caller, &request, &cancel)?;
    if global.json {
        let document = serde_json::json!({
            "system": received.system.to_string(),
            "timeline": received.timeline.0,
            "durable": received.durable.to_string(),
            "bytes": received.bytes,
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        let (bytes, durable) = (show_size(received.bytes), received.durable);
        let timeline = received.timeline;
        output::line(&format!(
            "received      {bytes}; durable up to {durable} on timeline {timeline}"
        ));
    }
    Ok(ending.into())
}
