//! A set as a database, while a program runs on it or until the caller asks for the end.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use thiserror::Error;
use windlass_engine::Cancel;

use crate::caller::Caller;
use crate::error::OperationError;
use crate::opened::{OpenSettings, Opened, ToOpen};
use crate::places::{self, LocatedSet, SetRequest};
use crate::recovered::ChosenMoment;
use crate::recovery::RecoveryRequest;
use crate::scratch::Scratch;
use crate::snapshots::SnapshotImage;

/// The pause between two looks at signals and processes.
const LOOK: Duration = Duration::from_millis(5);
/// The same if nobody waits in front of it.
const LOOK_KEPT: Duration = Duration::from_millis(50);

/// What to open, and how.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The set.
    pub set: SetRequest,
    /// A moment in the log to which the database is brought first.
    pub at: Option<RecoveryRequest>,
    /// How it is opened.
    pub settings: OpenSettings,
}

/// An opened set.
pub struct OpenedSet {
    opened: Opened,
    /// The set; none if a snapshot is opened that is no set.
    found: Option<LocatedSet>,
    /// Where the image of a later moment is. It is removed after the mount.
    _recovered: Option<Scratch>,
}

/// A program that cannot be run or waited for.
#[derive(Debug, Error)]
#[error("cannot run {program}: {source}")]
pub struct ProgramError {
    /// The program.
    pub program: String,
    /// Why.
    pub source: io::Error,
}

/// Opens a set.
pub fn open(
    caller: &Caller,
    request: &OpenRequest,
    cancel: &Cancel,
) -> Result<OpenedSet, OperationError> {
    let settings = &request.settings;
    let open = |what: &ToOpen| Opened::open(&caller.observer, what, settings, cancel);
    if let Some(moment) = &request.at {
        let chosen = ChosenMoment::find(caller, &request.set, moment)?;
        let what = chosen.to_open(caller, settings, cancel);
        return match what.and_then(|(what, recovered)| Ok((open(&what)?, recovered))) {
            Ok((opened, recovered)) => Ok(OpenedSet {
                opened,
                found: Some(chosen.found),
                _recovered: recovered,
            }),
            Err(error) => Err(chosen.found.advised(error)),
        };
    }
    if let Some(snapshot) = SnapshotImage::of_request(caller, &request.set)? {
        return Ok(OpenedSet {
            opened: open(&snapshot.to_open()?)?,
            found: None,
            _recovered: None,
        });
    }
    let found = places::find(caller, &request.set)?;
    let set = Arc::new(found.open()?);
    let opened = ToOpen::set(&set, settings.cache_bytes).and_then(|what| open(&what));
    finished(opened, found)
}

/// What was opened, with its set.
fn finished(
    opened: Result<Opened, OperationError>,
    found: LocatedSet,
) -> Result<OpenedSet, OperationError> {
    match opened {
        Ok(opened) => Ok(OpenedSet {
            opened,
            found: Some(found),
            _recovered: None,
        }),
        Err(error) => Err(found.advised(error)),
    }
}

impl OpenedSet {
    /// The server, or the file.
    pub fn database(&self) -> &Opened {
        &self.opened
    }

    /// Waits until the caller asks for the end. Fails if the server ends before.
    pub fn serve(&mut self, cancel: &Cancel) -> Result<(), OperationError> {
        let pause = match self.opened.view().is_kept() {
            true => LOOK_KEPT,
            false => LOOK,
        };
        while !cancel.is_cancelled() {
            self.check_alive()?;
            std::thread::sleep(pause);
        }
        Ok(())
    }

    /// Runs a program and waits for it. When `terminate` is set, SIGTERM is passed on to it.
    pub fn run(
        &self,
        mut command: Command,
        terminate: &AtomicBool,
    ) -> Result<ExitStatus, ProgramError> {
        let program = command.get_program().display().to_string();
        let fault = |source| ProgramError {
            program: program.clone(),
            source,
        };
        let mut child = command.spawn().map_err(fault)?;
        loop {
            if let Some(status) = child.try_wait().map_err(fault)? {
                return Ok(status);
            }
            if terminate.swap(false, Ordering::Relaxed) {
                pass_on(&child);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Fails if the server is no longer there.
    pub fn check_alive(&mut self) -> Result<(), OperationError> {
        let alive = self.opened.check_alive();
        alive.map_err(|error| match &self.found {
            Some(found) => found.advised(error),
            None => error,
        })
    }

    /// Closes the database. Returns the set if damage of it was found.
    pub fn close(self) -> Result<Option<LocatedSet>, OperationError> {
        let is_damaged = self.opened.close()?;
        Ok(self.found.filter(|_| is_damaged))
    }
}

fn pass_on(child: &Child) {
    if let Ok(process) = i32::try_from(child.id()) {
        // The process may have ended just now.
        kill(Pid::from_raw(process), Signal::SIGTERM).unwrap_or_default();
    }
}
