//! What to do about a drill that proved nothing.

use windlass_operations::drill::DrillError;

/// The message, and what to do.
pub fn words(error: &DrillError) -> (String, Option<String>) {
    let (message, hint) = match error {
        DrillError::Chosen => (
            format!("--random: {error}"),
            "Name a directory or a configured database, without @WHICH.",
        ),
        DrillError::NoDirectory { .. } | DrillError::Into { .. } => (
            format!("--into: {error}"),
            "Name a directory that is there, in which the owner of the database may make one.",
        ),
        DrillError::NoRoom { .. } => (
            format!("--into: {error}"),
            "Name a directory with more room. The drill removes what it restored.",
        ),
        _ => (
            error.to_string(),
            "Make a backup first, or name the place that has one.",
        ),
    };
    (message, Some(hint.to_owned()))
}
