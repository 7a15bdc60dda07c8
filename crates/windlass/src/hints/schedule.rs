//! What to do if a schedule cannot be installed.

use windlass_operations::schedule::ScheduleError;

/// The hint.
pub fn hint(error: &ScheduleError) -> &'static str {
    match error {
        ScheduleError::Calendar { .. } => {
            "Write \"Sun 02:00\", \"Mon..Fri 22:30\", \"hourly\" or \"*:0/15\". `systemd-analyze \
             calendar TIME` explains a time."
        }
        ScheduleError::Foreign { .. } => {
            "Move the file away, or give the database another name. Nothing was changed."
        }
        ScheduleError::OtherConfiguration { .. } => {
            "Remove that schedule first: `windlass schedule remove` with its --config. Nothing was \
             changed."
        }
        ScheduleError::LongName { .. } => "Give the database a shorter name.",
        ScheduleError::NoUser { .. } => "Correct user in the schedule.",
        ScheduleError::NoHome => "Set HOME, or name a directory with --dir.",
        ScheduleError::Refused { .. } => "Nothing was changed. --dry-run prints the units.",
        ScheduleError::Systemd { .. } => {
            "Correct the cause, and run the command again: it goes on where it stopped."
        }
        _ => "Check the rights of the directory, and run the command again.",
    }
}
