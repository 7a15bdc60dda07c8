//! The errors of the laboratory.

use windlass_lab::{LabError, LabSetting};

use super::OPTION_VALUES;

/// The options that a setting of the laboratory belongs to.
fn options(setting: LabSetting) -> &'static str {
    match setting {
        LabSetting::ScratchSize => "--scratch-bytes",
        LabSetting::Database => "DATABASE",
        LabSetting::UsedSize => "--used-bytes",
        LabSetting::Bounds => "--max-memory, --max-cpu",
        _ => "an option",
    }
}

/// What went wrong, without its causes.
pub fn message(error: &LabError) -> String {
    match error {
        LabError::Setting { setting, fault } => format!("{}: {fault}", options(*setting)),
        LabError::Engine(error) => super::engine_message(error),
        error => error.to_string(),
    }
}

/// What to do about it.
pub fn hint(error: &LabError) -> Option<String> {
    let text = match error {
        LabError::Engine(error) => return super::engine(error),
        LabError::Setting { .. } => OPTION_VALUES,
        LabError::Events { .. } => {
            "Name a file that --events wrote, in its default format (--events-format jsonl)."
        }
        LabError::Series { .. } => "Name a file that `lab sweep` wrote.",
        LabError::Space { .. } => {
            "Name a directory with more room, or write less (--scratch-bytes, --bytes)."
        }
        error => return error.hint(),
    };
    Some(text.to_owned())
}
