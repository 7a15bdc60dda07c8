//! The signals that end a command.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use windlass_engine::Cancel;

use crate::exit::{Code, Failure};

/// The signals that end a command.
pub const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Whether such a signal ends the process at once. It does until the command has something to clean
/// up.
static AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(true.into()));

/// From now on, a signal ends the process with the code of an interrupted command. `main` calls
/// this before everything else: a service manager may stop a command right after its start.
pub fn end_at_once() {
    let code = Code::Interrupted.number().into();
    for signal in ENDING.into_iter().filter(|signal| !is_ignored(*signal)) {
        // If there can be no handler, the signal does what it does to other programs.
        let flag = Arc::clone(&AT_ONCE);
        drop(signal_hook::flag::register_conditional_shutdown(
            signal, code, flag,
        ));
    }
}

/// From now on, the command handles the signals itself. It has registered its own handlers.
pub fn handled() {
    AT_ONCE.store(false, Ordering::SeqCst);
}

/// A flag that SIGINT, SIGTERM and SIGHUP set.
pub fn cancel_on_signals() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    for signal in ENDING {
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
    handled();
    Ok(cancel)
}

/// A write beyond the limit on the size of a file (`ulimit -f`) becomes an error with a message and
/// without leftovers. Otherwise SIGXFSZ would end the process on the spot. A handler, other than a
/// signal that is ignored, stays in this process: the programs that it starts begin as usual.
pub fn take_file_size_limit() {
    // If there can be no handler, the signal does what it does to other programs.
    drop(signal_hook::flag::register(SIGXFSZ, Arc::default()));
}

/// A process that finds no more memory says so and aborts. Then the kernel stops all threads for a
/// core dump, and a thread that waits for our own mount never stops. So the process ends at once,
/// without a core dump, with the code of a command that failed.
pub fn end_on_abort(code: u8) {
    let always = Arc::new(true.into());
    let code = code.into();
    drop(signal_hook::flag::register_conditional_shutdown(
        SIGABRT, code, always,
    ));
}

/// The signals that the caller wants this process to ignore: one bit for each; the lowest is signal
/// 1.
static IGNORED: LazyLock<u64> = LazyLock::new(|| {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    mask.unwrap_or(0)
});

/// Whether the caller wants this process to ignore a signal. `nohup` wants that for SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    *IGNORED >> (signal - 1) & 1 == 1
}
