//! Databases that stay open in the background, each under a name, until somebody closes them.
//!
//!   open, with a name --+--> a link of this name to the scratch directory: a path that stays
//!                       +--> its operation, which says the name  <-- list, close
//!
//! Invariants
//! - Only one database of a name is open in a directory.
//! - The signal goes to the process that reported the name, and to no later one with its number.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use windlass_snapshot::{SnapshotError, SnapshotName};

use crate::error::OperationError;
use crate::status::{self, Report};

/// What operations of opened databases are called.
pub(crate) const KIND: &str = "open";
/// Where their numbers have what is said here.
pub(crate) const FIELD: &str = "kept";

/// The name of a database that stays open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptName(SnapshotName);

/// Why a database cannot be kept open or closed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeptError {
    /// Not a name.
    #[error("{text:?} cannot be the name of an open database: {what}")]
    Name {
        /// What was named.
        text: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Something of this name is there.
    #[error("{} is there: a database of this name may be open", path.display())]
    Taken {
        /// Where.
        path: PathBuf,
    },
    /// No database of this name is open.
    #[error("no database is kept open as {name}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that are open.
        open: Vec<String>,
    },
    /// Root sees those of all users.
    #[error("{} databases are kept open as {name}", processes.len())]
    Several {
        /// What was asked for.
        name: String,
        /// Their processes.
        processes: Vec<u32>,
    },
    /// Its process cannot be told to end.
    #[error("cannot end process {process}: {source}")]
    Process {
        /// The process.
        process: u32,
        /// Why.
        source: io::Error,
    },
    /// The operations cannot be listed.
    #[error("cannot list what is open: {0}")]
    List(io::Error),
}

/// What the operation of such a database says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Said {
    name: String,
    /// The directory of the snapshot or the set.
    source: Option<PathBuf>,
    /// A connection string, or the path of the file; nothing until it is open.
    reach: Option<String>,
}

/// A database that was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The process that kept it open.
    pub process: u32,
    /// Whether damage of what was opened had been found.
    pub is_damaged: bool,
}

/// What others are told about a database while it is open.
#[derive(Clone)]
pub(crate) struct Keeping {
    name: KeptName,
    source: Option<PathBuf>,
    reach: Arc<OnceLock<String>>,
}

impl KeptName {
    /// Takes a name, which has to follow the rules for those of snapshots.
    pub fn parse(text: &str) -> Result<Self, OperationError> {
        SnapshotName::parse(text)
            .map(Self)
            .map_err(|error| match error {
                SnapshotError::Name { text, what } => KeptError::Name { text, what }.into(),
                other => other.into(),
            })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for KeptName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl Keeping {
    /// Of a database that lies in `source`.
    pub fn new(name: KeptName, source: Option<PathBuf>) -> Self {
        Self {
            name,
            source,
            reach: Arc::default(),
        }
    }

    /// It is open, and can be reached like this.
    pub fn opened(&self, reach: String) {
        // A database is opened once.
        self.reach.set(reach).unwrap_or_default();
    }

    /// For the numbers of its operation.
    pub fn said(&self) -> serde_json::Value {
        serde_json::json!(Said {
            name: self.name.to_string(),
            source: self.source.clone(),
            reach: self.reach.get().cloned(),
        })
    }
}

/// Closes the database that is kept open under a name, and waits until it is closed.
pub fn close(name: &str) -> Result<Closed, OperationError> {
    let found = list()?;
    let mut named = found.iter().filter(|(_, said)| said.name == name);
    let Some((report, _)) = named.next() else {
        let open = found.iter().map(|(_, said)| said.name.clone()).collect();
        let name = name.to_owned();
        return Err(KeptError::Unknown { name, open }.into());
    };
    let others: Vec<u32> = named.map(|(other, _)| other.pid).collect();
    if !others.is_empty() {
        let processes = [&[report.pid], &*others].concat();
        let name = name.to_owned();
        return Err(KeptError::Several { name, processes }.into());
    }
    Ok(end(report)?)
}

/// Closes what is kept open of a snapshot.
pub(crate) fn close_all_of(snapshot: &Path) -> Result<(), OperationError> {
    for (report, said) in list()? {
        if said
            .source
            .is_some_and(|source| source.starts_with(snapshot))
        {
            end(&report)?;
        }
    }
    Ok(())
}

fn list() -> Result<Vec<(Report, Said)>, KeptError> {
    let reports = status::list().map_err(KeptError::List)?;
    let opened = reports.into_iter().filter(|report| report.kind == KIND);
    let kept = opened.filter_map(|report| {
        let said = Said::deserialize(&report.numbers[FIELD]).ok()?;
        Some((report, said))
    });
    Ok(kept.collect())
}

fn end(report: &Report) -> Result<Closed, KeptError> {
    let closed = Closed {
        process: report.pid,
        is_damaged: report.numbers["mount"]["damaged"].as_u64() > Some(0),
    };
    match end_process(report) {
        Ok(()) | Err(Errno::SRCH) => Ok(closed),
        Err(errno) => Err(KeptError::Process {
            process: report.pid,
            source: errno.into(),
        }),
    }
}

fn end_process(report: &Report) -> Result<(), Errno> {
    let number = i32::try_from(report.pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(number.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
    // Only now is it sure that a process with this number and this start is the one that is held.
    if !report.is_running() {
        return Ok(());
    }
    pidfd_send_signal(&process, Signal::TERM)?;
    wait(&process)
}

fn wait(process: &OwnedFd) -> Result<(), Errno> {
    loop {
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut ended, None) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}
