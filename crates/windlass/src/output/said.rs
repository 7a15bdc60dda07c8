//! What a person was told, and how runs ended: kept for those who hear of the end of a command.

use std::sync::{Mutex, PoisonError};

use windlass_operations::RunEnd;

/// The first of each kind that was said.
#[derive(Clone, Debug)]
pub struct Said {
    pub error: Option<String>,
    pub warning: Option<String>,
    pub hint: Option<String>,
    /// The run. Of several, the first one that was no success, or the last.
    pub run: Option<RunEnd>,
}

static SAID: Mutex<Said> = Mutex::new(Said {
    error: None,
    warning: None,
    hint: None,
    run: None,
});

/// What was said until now.
pub fn so_far() -> Said {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps a line, if it is the first of its kind.
pub(super) fn keep(line: &str) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let first = |kept: &mut Option<String>, prefix: &str| {
        if let Some(text) = line.strip_prefix(prefix) {
            kept.get_or_insert_with(|| text.to_owned());
        }
    };
    first(&mut said.error, "error: ");
    first(&mut said.warning, "warning: ");
    first(&mut said.hint, "hint: ");
}

/// Keeps how a run ended.
pub fn run_ended(end: &RunEnd) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.run.as_ref().is_none_or(RunEnd::is_success) {
        said.run = Some(end.clone());
    }
}
