//! Why a schedule cannot be installed.

use std::path::PathBuf;

use thiserror::Error;

use crate::ending::Ending;

/// Why a schedule cannot be installed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Systemd does not understand a time.
    #[error("{origin}: {text:?} is no time of systemd: {fault}")]
    Calendar {
        /// Where it stands.
        origin: String,
        /// The time.
        text: String,
        /// What systemd says.
        fault: String,
    },
    /// A file of this name is there that nobody may overwrite.
    #[error("{} is there, and the schedule did not make it", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The schedule of another configuration has this unit.
    #[error("{} is of the schedule of another configuration: {first_line}", path.display())]
    OtherConfiguration {
        /// The file.
        path: PathBuf,
        /// What it says of itself.
        first_line: String,
    },
    /// A unit would have a name that no file can have.
    #[error("the unit of {subject} would have a name of {bytes} bytes")]
    LongName {
        /// The database.
        subject: String,
        /// How long the name is.
        bytes: usize,
    },
    /// No user has this name.
    #[error("there is no user {user}")]
    NoUser {
        /// The name.
        user: String,
    },
    /// This user has no directory of units.
    #[error("this user has no home, so there is no directory of units")]
    NoHome,
    /// Systemd refuses a unit.
    #[error("systemd refuses a unit: {said}")]
    Refused {
        /// What it said.
        said: String,
    },
    /// A program of systemd failed.
    #[error("{command} failed: {said}")]
    Systemd {
        /// What was run.
        command: String,
        /// What it said.
        said: String,
    },
    /// A file or a directory.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl ScheduleError {
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::Calendar { .. } | Self::LongName { .. } | Self::NoUser { .. } => Ending::Usage,
            _ => Ending::Failed,
        }
    }
}
