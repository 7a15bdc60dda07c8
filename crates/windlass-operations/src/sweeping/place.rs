//! Where stripes and restored files are kept during a run.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::{durable, free_bytes};

use super::SweepError;
use crate::caller::{Caller, ProcessUse};
use crate::devices::NUL;
use crate::error::OperationError;
use crate::notice::{Notice, Observer};
use crate::outputs::outputs;
use crate::privilege;

/// The default directory. On most systems it is large and on a disk.
const DEFAULT: &str = "/var/tmp";
/// The space that must stay free beside what a run writes.
const KEEP_FREE: u64 = 256 << 20;

/// The places of a sweep. Dropping this removes what was created.
pub(super) struct Places {
    observer: Arc<dyn Observer>,
    /// Scratch directories of the stripes; empty for `nul`.
    stripes: Vec<PathBuf>,
    /// The scratch directory of restored files.
    restored: Option<PathBuf>,
}

impl Places {
    /// Creates scratch directories that belong to the database's owner. `to` is what the user
    /// named; `keeps` says whether files are needed. A restore has a place of its own.
    pub(super) fn new(
        caller: &Caller,
        (to, keeps): (&[String], bool),
        (restores, into): (bool, Option<PathBuf>),
        owner: Option<(u32, u32)>,
    ) -> Result<Self, OperationError> {
        let mut places = Self {
            observer: Arc::clone(&caller.observer),
            stripes: Vec::new(),
            restored: None,
        };
        let to_nul = to.iter().any(|place| place == NUL);
        if to_nul && (to.len() > 1 || restores) {
            return Err(SweepError::NulAlone.into());
        }
        let mut parents: Vec<PathBuf> = to.iter().map(PathBuf::from).collect();
        match (to_nul, to.is_empty(), keeps) {
            (true, ..) | (_, true, false) => parents.clear(),
            (_, true, true) => parents.push(DEFAULT.into()),
            _ => {}
        }
        for parent in &parents {
            places
                .stripes
                .push(scratch("sweep", caller.process, parent, owner)?);
        }
        if restores {
            let parent = into.or_else(|| parents.first().cloned());
            let parent = parent.unwrap_or_else(|| DEFAULT.into());
            places.restored = Some(scratch("sweep", caller.process, &parent, owner)?);
        }
        Ok(places)
    }

    /// The names of the places in the series.
    pub(super) fn names(&self) -> Vec<String> {
        if self.stripes.is_empty() {
            return vec![NUL.to_owned()];
        }
        let parent = |path: &PathBuf| path.parent().unwrap_or(path).display().to_string();
        self.stripes.iter().map(parent).collect()
    }

    /// Devices for `count` stripes, spread over the places.
    pub(super) fn stripes(&self, name: &str, count: usize) -> Vec<PathBuf> {
        if self.stripes.is_empty() {
            return vec![NUL.into(); count];
        }
        let places = self.stripes.iter().cycle().zip(1..=count);
        places
            .map(|(place, number)| place.join(format!("{name}.{number}.windlass")))
            .collect()
    }

    /// Where a restore goes.
    pub(super) fn restored(&self) -> PathBuf {
        self.restored
            .as_deref()
            .unwrap_or(Path::new(DEFAULT))
            .join("restored")
    }

    /// Removes what a run left at these paths.
    pub(super) fn remove(&self, paths: &[PathBuf]) -> Result<(), SweepError> {
        let mut paths = paths.iter().filter(|path| path.is_absolute());
        paths.try_for_each(|path| remove(path).map_err(SweepError::scratch("remove", path)))
    }

    /// Refuses a run whose stripes or restored files would fill a file system.
    pub(super) fn check_room(&self, stripes: u64, restored: u64) -> Result<(), SweepError> {
        let share = stripes / (self.stripes.len().max(1) as u64);
        let places = self.stripes.iter().map(|path| (path, share));
        for (path, bytes) in places.chain(self.restored.iter().map(|path| (path, restored))) {
            check_free(path, bytes)?;
        }
        Ok(())
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for path in self.stripes.iter().chain(&self.restored) {
            if let Err(error) = &remove(path) {
                self.observer.notice(&Notice::ScratchLeft { path, error });
            }
        }
    }
}

/// Refuses what would fill the file system of a scratch directory.
pub(crate) fn check_free(path: &Path, bytes: u64) -> Result<(), SweepError> {
    let free_bytes = free_bytes(path).map_err(SweepError::scratch("look at", path))?;
    let needed_bytes = bytes.saturating_add(KEEP_FREE);
    if free_bytes < needed_bytes {
        return Err(SweepError::Room {
            place: path.parent().unwrap_or(path).to_owned(),
            needed_bytes,
            free_bytes,
        });
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let result = match path.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    };
    durable::if_there(result).map(|_| ())
}

/// Makes a directory of its own for the owner of what is experimented with.
pub(crate) fn scratch(
    what: &str,
    process: ProcessUse,
    parent: &Path,
    owner: Option<(u32, u32)>,
) -> Result<PathBuf, OperationError> {
    let parent = std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned());
    let id = uuid::Uuid::new_v4().simple().to_string();
    let path = parent.join(format!("windlass-{what}-{}", &id[..8]));
    outputs().check(&path)?;
    privilege::as_user(process, owner, || {
        let made = DirBuilder::new().mode(0o700).create(&path);
        Ok::<_, OperationError>(made.map_err(SweepError::scratch("make", &path))?)
    })?;
    Ok(path)
}
