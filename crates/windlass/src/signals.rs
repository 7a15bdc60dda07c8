//! The signals that end a command.

use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use windlass_engine::Cancel;

use crate::exit::{Code, Failure};

/// A flag that SIGINT, SIGTERM and SIGHUP set.
pub fn cancel_on_signals() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if is_ignored(signal) {
            continue;
        }
        let flag = cancel.flag();
        // A second signal ends the process at once. The next run cleans up what was half done.
        let end = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag));
        end.and_then(|_| signal_hook::flag::register(signal, flag))
            .map_err(|error| {
                Failure::new(
                    Code::Failed,
                    format!("cannot handle signals: {error}"),
                    "Try again.",
                )
            })?;
    }
    Ok(cancel)
}

/// Whether the caller wants this process to ignore a signal. `nohup` wants that for SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    // SigIgn in /proc/self/status has one bit for each signal; the lowest bit is signal 1.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}
