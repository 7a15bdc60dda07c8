//! Whether a directory holds anything, and whether a server runs on it.

use std::io::ErrorKind;
use std::path::Path;

use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::error::{IoContext, PostgresError};

/// Refuses a directory that holds anything.
pub fn check_unoccupied(path: &Path) -> Result<(), PostgresError> {
    let mut entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(PostgresError::TargetNotDirectory { path: path.into() });
        }
        other => other.doing("list", path)?,
    };
    match entries.next() {
        Some(_) => Err(PostgresError::TargetNotEmpty { path: path.into() }),
        None => Ok(()),
    }
}

/// The process named in postmaster.pid, if it is alive.
pub(crate) fn running_server(into: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(into.join("postmaster.pid")).ok()?;
    // A server for one user alone writes its process with a minus in front.
    let process = text
        .lines()
        .next()?
        .trim()
        .parse::<i32>()
        .ok()?
        .checked_abs()?;
    (process > 0 && lives(process)).then_some(process)
}

/// Whether a process is there and has not ended.
pub(crate) fn lives(process: i32) -> bool {
    // For a process of another user, kill returns EPERM: the process is alive.
    let is_there = kill(Pid::from_raw(process), None) != Err(nix::errno::Errno::ESRCH);
    is_there && !has_ended(process)
}

/// Whether a process has ended, and nobody has asked yet how.
fn has_ended(process: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before the state may have any characters.
    let state = text.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with('Z'))
}
