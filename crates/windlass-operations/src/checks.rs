//! Checks that are made before a run. Each has the result right, doubtful or wrong.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use windlass_engine::show_size;
use windlass_object::Removal;

use crate::ending::Ending;
use crate::error::OperationError;
use crate::hooks::{HookEvent, ProgramFault};
use crate::notice::{Notice, Observer};

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Right.
    Ok,
    /// The run would warn of it, or it may stop the run.
    Warning,
    /// The run would fail.
    Failed,
}

/// One check.
#[derive(Debug)]
pub struct Check {
    /// What was checked, in one or two words.
    pub name: &'static str,
    /// The result.
    pub level: Level,
    /// What was found.
    pub finding: Finding,
}

/// What a check found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Finding {
    /// Something that is as it should be, or that nobody has to act on.
    #[error("{0}")]
    Fact(String),
    /// An error that would end the run, or that the run would go on after.
    #[error("{0}")]
    Error(OperationError),
    /// A hook that would run.
    #[error("the hook {} would run {}", event.word(), path.display())]
    Hook {
        /// Which one.
        event: HookEvent,
        /// The program.
        path: PathBuf,
    },
    /// A hook that cannot run.
    #[error("the hook {}: {}", event.word(), fault.text(program))]
    NoHook {
        /// Which one.
        event: HookEvent,
        /// The program.
        program: String,
        /// What is wrong with it.
        fault: ProgramFault,
    },
    /// The run would warn of this.
    #[error("{text} ({name})")]
    Foreseen {
        /// The name of the warning.
        name: String,
        /// What it says.
        text: String,
    },
    /// A right that the role does not have.
    #[error("role {role} may not {what}")]
    Right {
        /// The role.
        role: String,
        /// What it may not.
        what: String,
        /// The database in which the right can be given.
        database: String,
        /// The statement that gives it.
        grant: String,
    },
    /// No replication slot is free.
    #[error("all {most} replication slots are taken")]
    NoSlots {
        /// How many there are.
        most: i64,
    },
    /// Somebody has locked the database.
    #[error("{} has locked the database just now", process_text(*process))]
    Locked {
        /// The number of the process; 0 if it is not known.
        process: i32,
        /// How long a backup would wait.
        wait: Duration,
    },
    /// A transaction is under way, or was cut off.
    #[error("{} is there: a transaction is under way, or was cut off", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
    },
    /// No device was named.
    #[error("no device was named, so none was checked")]
    NoDevices,
    /// A stripe's file exists.
    #[error("{} exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// This user may not write to a device's directory.
    #[error("{user} may not write to {}", directory.display())]
    MayNotWrite {
        /// The user.
        user: String,
        /// The directory.
        directory: PathBuf,
    },
    /// A server that replaces an object even if it is asked not to.
    #[error("the server of {} ignores conditions: it replaces an object that is to be created", place.display())]
    NoConditions {
        /// The place.
        place: PathBuf,
    },
    /// A bucket in which these keys may remove nothing, or that protects what is there.
    #[error("{} can be written to and read back, and {removal}", place.display())]
    NoRemoval {
        /// The place.
        place: PathBuf,
        /// What became of what was written.
        removal: Removal,
    },
    /// A directory that was there on other nights does not exist.
    #[error("{} does not exist, although the configuration names it", path.display())]
    Vanished {
        /// The directory.
        path: PathBuf,
    },
    /// A directory that this user may not make.
    #[error("{} does not exist, and {user} may not make it in {}", path.display(), parent.display())]
    MayNotMake {
        /// The directory.
        path: PathBuf,
        /// The user.
        user: String,
        /// The directory in which it would be.
        parent: PathBuf,
    },
    /// The room for stripes.
    #[error(
        "{} free at {}, for {} before compression",
        show_size(*free), place.display(), show_size(*needed)
    )]
    RoomForSet {
        /// The place.
        place: PathBuf,
        /// Free bytes.
        free: u64,
        /// Bytes of the database that would go there.
        needed: u64,
    },
    /// The room for what a restore writes.
    #[error("{} free at {}, for {} at most", show_size(*free), place.display(), show_size(*needed))]
    RoomForFiles {
        /// The place.
        place: PathBuf,
        /// Free bytes.
        free: u64,
        /// Bytes that would be written there at most.
        needed: u64,
    },
    /// Stripes of another run.
    #[error("{count} unfinished in {}: {first}", directory.display())]
    Unfinished {
        /// How many.
        count: usize,
        /// Where.
        directory: PathBuf,
        /// The name of the first.
        first: String,
    },
    /// A segment of the log was not archived there.
    #[error("segment {segment} is not in {}", place.display())]
    NotArchived {
        /// The segment.
        segment: String,
        /// The place.
        place: PathBuf,
    },
    /// Metrics cannot be served.
    #[error("{address} cannot be served on: {error}")]
    Unserved {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// A restore would replace or remove this.
    #[error("{} would be replaced or removed", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// A restore may not write there.
    #[error("{} cannot be written to", directory.display())]
    NotWritable {
        /// The directory.
        directory: PathBuf,
    },
}

impl From<String> for Finding {
    fn from(text: String) -> Self {
        Self::Fact(text)
    }
}

impl From<&str> for Finding {
    fn from(text: &str) -> Self {
        Self::Fact(text.to_owned())
    }
}

fn process_text(process: i32) -> String {
    match process {
        0 => "another process".to_owned(),
        id => format!("process {id}"),
    }
}

/// All checks, in their order. Each is told when it is made.
pub struct Checks {
    observer: Arc<dyn Observer>,
    all: Vec<Check>,
}

impl Checks {
    pub(crate) fn new(observer: &Arc<dyn Observer>) -> Self {
        Self {
            observer: Arc::clone(observer),
            all: Vec::new(),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Check> {
        self.all.iter()
    }

    pub(crate) fn ok(&mut self, name: &'static str, finding: impl Into<Finding>) {
        self.push(name, Level::Ok, finding.into());
    }

    pub(crate) fn warning(&mut self, name: &'static str, finding: Finding) {
        self.push(name, Level::Warning, finding);
    }

    pub(crate) fn failed(&mut self, name: &'static str, finding: Finding) {
        self.push(name, Level::Failed, finding);
    }

    /// Adds what an error says is wrong.
    pub(crate) fn failure(&mut self, name: &'static str, error: impl Into<OperationError>) {
        self.failed(name, Finding::Error(error.into()));
    }

    fn push(&mut self, name: &'static str, level: Level, finding: Finding) {
        let check = Check {
            name,
            level,
            finding,
        };
        self.observer.notice(&Notice::Checked(&check));
        self.all.push(check);
    }

    /// The ending of the worst check. If the run would end as one that was asked for something
    /// impossible, so does the check.
    pub fn ending(&self) -> Ending {
        let is_misused = |check: &Check| match &check.finding {
            Finding::Error(error) => {
                check.level == Level::Failed && error.ending() == Ending::Usage
            }
            _ => false,
        };
        match self.all.iter().map(|check| check.level).max() {
            None | Some(Level::Ok) => Ending::Done,
            Some(Level::Warning) => Ending::Warnings,
            Some(Level::Failed) if self.all.iter().any(is_misused) => Ending::Usage,
            Some(Level::Failed) => Ending::Failed,
        }
    }
}
