//! The values of a schedule: jobs, the files of their units, and what becomes of them.

use std::path::PathBuf;
use std::time::Duration;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// A full backup.
    Full,
    /// A differential backup.
    Diff,
    /// An incremental backup.
    Incr,
    /// A backup of the log.
    Log,
    /// A check that a backup can run.
    Check,
    /// A verification of the sets.
    Verify,
    /// A drill.
    Drill,
    /// The removal of sets by rules.
    Expire,
}

impl JobKind {
    /// All of them, in the order in which they follow each other if several are due.
    pub const ALL: [Self; 8] = [
        Self::Full,
        Self::Diff,
        Self::Incr,
        Self::Log,
        Self::Check,
        Self::Verify,
        Self::Drill,
        Self::Expire,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Diff => "diff",
            Self::Incr => "incr",
            Self::Log => "log",
            Self::Check => "check",
            Self::Verify => "verify",
            Self::Drill => "drill",
            Self::Expire => "expire",
        }
    }

    /// What it is, as a title.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Full => "full backup",
            Self::Diff => "differential backup",
            Self::Incr => "incremental backup",
            Self::Log => "backup of the log",
            Self::Check => "check before a backup",
            Self::Verify => "verification",
            Self::Drill => "drill",
            Self::Expire => "removal of old sets",
        }
    }

    /// Whether it waits for jobs of the same database that are being done. The log is short and
    /// comes often, and a check only looks: neither waits, and nobody waits for them.
    pub(super) fn is_in_line(self) -> bool {
        !matches!(self, Self::Log | Self::Check)
    }
}

/// One job, of one database or repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The database or repository.
    pub subject: String,
    /// What is done with it.
    pub kind: JobKind,
    /// When, as systemd writes it; the job runs at each of these times.
    pub calendars: Vec<String>,
    /// It begins up to so much later, always the same on one machine.
    pub delay: Duration,
    /// The user; without one, whoever runs the service manager.
    pub user: Option<String>,
    /// A unit that systemd starts if the job fails.
    pub failure_unit: Option<String>,
    /// The program, with an absolute path, and its arguments.
    pub command: Vec<String>,
    /// Where the calendars come from, for errors.
    pub origin: String,
}

/// Where units lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitPlace {
    /// Those of the machine.
    System,
    /// Those of this user.
    User,
    /// A directory that no service manager is told of.
    Other(PathBuf),
}

/// What becomes of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    New,
    /// It had another text.
    Changed,
    /// It is as it was.
    Kept,
    /// Its job is no longer in the configuration.
    Gone,
}

/// A unit's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFile {
    /// Its name.
    pub name: String,
    /// Its text; of a unit that goes, the one that it has.
    pub text: String,
    /// What becomes of it.
    pub change: Change,
}

/// What systemd was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing: the directory is none of its own, or nothing was to be done.
    None,
    /// The timers are enabled. They start with the service manager, which does not run now.
    AtStart,
    /// The timers run.
    Now,
}
