//! Going back: a PostgreSQL cluster becomes what one of its snapshots is, and can be brought back.
//!
//!   stop --> pg_control aside --> [keep what differs] --> [write] --> pg_control of the target
//!                                        |                                  |
//!                       killed here: the next command undoes it     recover alone --> start
//!                                                                           |
//!                                                        killed here: the next command finishes it
//!
//! The target is the snapshot, or the snapshot with what an earlier revert kept over it. In both
//! cases what is overwritten is kept as the difference to the snapshot, so an undo can be undone.
//!
//! Invariants
//! - A target that can never be gone back to is refused before the server is stopped.
//! - Nothing runs on the data directory from the first change to the last. While pg_control is
//!   aside, no server starts on it.
//! - What is overwritten is durable before the first byte of it is overwritten. It is enough to
//!   undo a revert that was cut off; the snapshot is not needed for that. A note beside pg_control
//!   says where it is, so nobody takes a cluster for unchanged because it is not found.
//! - pg_control of the target gets its name when everything else is durable. From then on the
//!   revert can only be finished.
//! - If the server that ran does not run afterwards, the error or the outcome says so.
//! - The cluster begins a new timeline, so no two logs have the same name and another content.
//!
//! Locking: the place; the snapshot is held.

mod descent;
mod kept;
mod log;
mod settling;
mod target;
mod tree;
mod writing;

use std::path::{Path, PathBuf};
use std::time::Instant;

use windlass_engine::{Cancel, Progress, durable};
use windlass_postgres::{ClusterServer, Control};

use crate::cluster::{CONTROL_ASIDE, CONTROL_PATH, PRIVATE_MODE};
use crate::error::{Doing, Left, SnapshotError};
use crate::hook::Keeper;
use crate::method::Method;
use crate::overwritten::{self, Settled, UndoNumber};
use crate::place::Place;
use crate::revert::{Back, Reverted};
use crate::snapshot::Snapshot;
use crate::states;
use target::Target;
use writing::Writing;

/// A standby follows its primary and cannot go back alone.
const STANDBY: &str = "standby.signal";
/// A server with this file is to become another state by itself. A revert makes one of its own.
const RECOVERY: &str = "recovery.signal";

/// A cluster that goes back, with its server.
#[derive(Debug)]
pub struct ClusterBack {
    data: PathBuf,
    server: ClusterServer,
}

impl ClusterBack {
    /// The cluster in a data directory.
    pub fn new(data: &Path) -> Result<Self, SnapshotError> {
        Ok(Self {
            data: data.canonicalize().doing("find", data)?,
            server: ClusterServer::find(data)?,
        })
    }

    /// Its server, as it ran or not when this was made.
    pub fn server(&self) -> &ClusterServer {
        &self.server
    }

    /// Whether a revert was cut off.
    pub fn is_cut_off(data: &Path) -> bool {
        let found = data.join(CONTROL_ASIDE).symlink_metadata();
        !found.is_err_and(|error| durable::is_absent(&error))
    }

    /// Whether what was cut off is an undo, and not a revert to a snapshot.
    pub fn is_undo(data: &Path) -> bool {
        settling::is_undo(data)
    }

    /// The data directory whose pg_control this is, if a revert that was cut off took it aside.
    pub fn without_control(control: &Path) -> Option<&Path> {
        let data = control.parent()?.parent()?;
        let is_control = control == data.join(CONTROL_PATH);
        (is_control && Self::is_cut_off(data)).then_some(data)
    }

    /// Refuses a cluster that cannot go back.
    pub fn check(&self) -> Result<(), SnapshotError> {
        let path = self.data.clone();
        if self.data.join(STANDBY).exists() {
            return Err(SnapshotError::Standby { path });
        }
        if self.data.join(RECOVERY).exists() && !Self::is_cut_off(&self.data) {
            return Err(SnapshotError::Recovering { path });
        }
        match self.server.is_first_process() {
            true => Err(SnapshotError::FirstProcess { path }),
            false => Ok(self.server.check()?),
        }
    }

    /// Finishes or undoes a revert that was cut off. `None` if there is none.
    pub fn settle(&self, place: &Place) -> Result<Option<Settled>, SnapshotError> {
        let was_there = place.home().is_dir();
        let _alone = place.lock()?;
        let settled = self.settle_alone(place);
        if settled.is_err() && !was_there {
            // Whoever moves the directory back would move it into this one.
            place.remove_if_empty();
        }
        settled
    }

    /// Makes the cluster what its snapshot is, or what it was before that. The server is stopped,
    /// and started again if it ran.
    pub fn run(
        &self,
        place: &Place,
        (snapshot, back): (&Snapshot, Back),
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<Reverted, SnapshotError> {
        let _alone = place.lock()?;
        // Since this was made, its server may have been stopped or started.
        let now = Self::new(&self.data)?;
        now.check()?;
        now.settle_alone(place)?;
        let _hold = snapshot.hold()?;
        progress.set_phase("opening the snapshot");
        let number = states::next_number(place)?;
        let mut target = Target::open((snapshot, number), back)?;
        // Refused later, all sessions would have ended for nothing.
        target.check(&Control::read(&now.data)?)?;
        snapshot.check_there()?;
        progress.set_phase("stopping the server");
        let began = Instant::now();
        let went = match now.server.stop(cancel) {
            Ok(()) => now.go((place, snapshot, back), &mut target, progress, cancel),
            Err(error) => Err(error.into()),
        };
        progress.set_phase("starting the server");
        let mut reverted = now.end(went)?;
        reverted.locked = began.elapsed();
        if reverted.kept.is_some() {
            // The cluster went back. What could not be removed, the next revert removes.
            reverted.gone = states::trim(place).unwrap_or_default();
        }
        Ok(reverted)
    }

    /// Starts the server again, if it ran and the directory is whole. If it stays stopped although
    /// the caller expects it to run, the error says so.
    fn end(&self, went: Result<Reverted, SnapshotError>) -> Result<Reverted, SnapshotError> {
        let server = &self.server;
        if !server.was_running() || server.running().is_some() {
            return went;
        }
        let left = match (Self::is_cut_off(&self.data), &went) {
            (true, _) => Left::CutOff {
                is_undo: Self::is_undo(&self.data),
            },
            (false, Ok(_)) => Left::Back,
            (false, Err(_)) => Left::AsBefore,
        };
        let is_managed = server.is_managed();
        let error = match went {
            Ok(reverted) if is_managed => return Ok(reverted),
            Ok(mut reverted) => match server.start() {
                Ok(()) => {
                    reverted.lacks = server.lacks();
                    return Ok(reverted);
                }
                Err(error) => error.into(),
            },
            Err(error) if left == Left::AsBefore && !is_managed && server.start().is_ok() => {
                return Err(error);
            }
            Err(error) => error,
        };
        Err(SnapshotError::Stopped {
            error: Box::new(error),
            left,
            path: self.data.clone(),
            start: server.start_command(),
        })
    }

    fn go(
        &self,
        (place, snapshot, back): (&Place, &Snapshot, Back),
        target: &mut Target,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<Reverted, SnapshotError> {
        let control = Control::read(&self.data)?;
        if !control.is_shut_down() {
            let path = self.data.clone();
            return Err(SnapshotError::NotShutDown { path });
        }
        let then = target.check(&control)?;
        self.check_hook(snapshot, &control)?;
        let (at, aside) = (self.control(), self.data.join(CONTROL_ASIDE));
        settling::note_undo(&self.data, back)?;
        durable::rename(&at, &aside).doing("rename", &at)?;
        let pending = snapshot.path().join(kept::PENDING);
        let written = self.write(
            (&control, then),
            (place, &pending),
            target,
            (progress, cancel),
        );
        let mut reverted = match written {
            Ok(Some(reverted)) => reverted,
            Ok(None) => {
                self.roll_back(Some(&pending))?;
                overwritten::discard_brought_back(snapshot.path(), back.state())?;
                return Ok(Reverted::nothing(control.block_bytes));
            }
            Err(error) => {
                self.roll_back(Some(&pending))?;
                return Err(error);
            }
        };
        progress.set_phase("recovering");
        self.finish(Some(&pending))?;
        reverted.page_bytes = control.block_bytes;
        Ok(reverted)
    }

    /// Refuses a snapshot by the hook if the last server wrote without it: then nobody knows which
    /// pages are still those of the snapshot, or of any other.
    fn check_hook(&self, snapshot: &Snapshot, control: &Control) -> Result<(), SnapshotError> {
        let bytes = control.clone().into_bytes();
        let keeper = Keeper::open(&self.data)?;
        let is_seen = keeper.as_ref().is_some_and(|it| it.has_seen(&bytes));
        if let Some(keeper) = keeper.filter(|_| !is_seen) {
            // What this revert tells the hook of pg_control would hide it from the next server.
            keeper.lose_all()?;
        }
        match snapshot.record().method == Method::Hook && !is_seen {
            true => Err(SnapshotError::Lost {
                name: snapshot.record().name.clone(),
                why: "the data directory was changed without the hook".to_owned(),
            }),
            false => Ok(()),
        }
    }

    /// Everything that can be undone, and then the one step that cannot. `None` if the cluster is
    /// what it should be: a state that differs in nothing would take the room of another one.
    /// Pages that are the same are not enough, because a part of a snapshot may be in its log.
    fn write(
        &self,
        (control, then): (&Control, Control),
        (place, pending): (&Place, &Path),
        target: &mut Target,
        (progress, cancel): (&Progress, &Cancel),
    ) -> Result<Option<Reverted>, SnapshotError> {
        if let Some(process) = self.server.running() {
            let path = self.data.clone();
            let what = "a server runs again";
            return Err(SnapshotError::ServerRuns {
                what,
                path,
                process,
            });
        }
        let version = tree::version_directory(&self.data, control)?;
        let mut writing = Writing::new(&self.data, Keeper::open(&self.data)?, control.block_bytes);
        progress.set_phase("comparing");
        let live = tree::live(&self.data, &version)?;
        let kept = writing.keep((live, pending), control, target, cancel)?;
        let is_alike = kept.is_nothing() && tree::is_alike(kept.tree(), target.tree());
        if is_alike && target.needs_nothing_of_log(&self.data, control)? {
            return Ok(None);
        }
        let number = UndoNumber(kept.record().number);
        states::note_number(place, number)?;
        settling::note_overwriting(&self.data, pending)?;
        progress.set_phase("writing pages");
        writing.shape(&version, target.tree())?;
        let mut reverted = writing.write(&kept, target, cancel)?;
        progress.set_phase("replacing the log");
        log::take(&self.data, pending)?;
        target.put_log(&self.data, pending)?;
        if let Some(label) = target.label()? {
            let path = self.data.join(tree::LABEL);
            durable::write(&path, &label, PRIVATE_MODE).doing("write", &path)?;
        }
        // A server refuses to recover a minimal log to a new timeline, and to archive it.
        if !then.is_log_minimal() {
            self.server.prepare_recovery()?;
        }
        progress.set_phase("syncing");
        tree::sync_all(&self.data)?;
        log::check_room(&self.data, u64::from(control.wal_segment_bytes))?;
        self.put_control(&then.into_bytes())?;
        reverted.kept_count = kept.record().kept_count;
        reverted.kept = Some(number);
        Ok(Some(reverted))
    }

    /// Gives pg_control its name. The hook is told, or it would take this for a foreign write.
    fn put_control(&self, bytes: &[u8]) -> Result<(), SnapshotError> {
        if let Some(keeper) = Keeper::open(&self.data)? {
            keeper.note_control(bytes)?;
        }
        let path = self.control();
        durable::write(&path, bytes, PRIVATE_MODE).doing("write", &path)
    }

    fn control(&self) -> PathBuf {
        self.data.join(CONTROL_PATH)
    }
}
