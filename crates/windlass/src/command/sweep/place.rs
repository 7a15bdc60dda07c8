//! Where stripes and restored files are kept during a run.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::exit::{Code, Failure};
use crate::outputs::outputs;
use crate::privilege;
use windlass_engine::show_size;
use windlass_operations::ProcessUse;

/// The default directory. On most systems it is large and on a disk.
const DEFAULT: &str = "/var/tmp";
/// The space that must stay free beside what a run writes.
const KEEP_FREE: u64 = 256 << 20;

/// The places of a sweep. Dropping this removes what was created.
pub struct Places {
    /// Scratch directories of the stripes; empty for `nul`.
    stripes: Vec<PathBuf>,
    /// The scratch directory of restored files.
    restored: Option<PathBuf>,
}

impl Places {
    /// Creates scratch directories that belong to the database's owner. `to` is what the user
    /// named; `keeps` says whether files are needed. A restore has a place of its own.
    pub fn new(
        to: &[String],
        keeps: bool,
        (restores, into): (bool, Option<PathBuf>),
        owner: Option<(u32, u32)>,
    ) -> Result<Self, Failure> {
        let mut places = Self {
            stripes: Vec::new(),
            restored: None,
        };
        let to_nul = to.iter().any(|place| place == "nul");
        if to_nul && (to.len() > 1 || restores) {
            let message = "--to nul: from nothing nothing can be restored, and it stands alone";
            return Err(Failure::usage(message, "Name directories."));
        }
        let mut parents: Vec<PathBuf> = to.iter().map(PathBuf::from).collect();
        match (to_nul, to.is_empty(), keeps) {
            (true, ..) | (_, true, false) => parents.clear(),
            (_, true, true) => parents.push(DEFAULT.into()),
            _ => {}
        }
        for parent in &parents {
            places.stripes.push(scratch(parent, owner)?);
        }
        if restores {
            let parent = into.or_else(|| parents.first().cloned());
            let parent = parent.unwrap_or_else(|| DEFAULT.into());
            places.restored = Some(scratch(&parent, owner)?);
        }
        Ok(places)
    }

    /// The names of the places in the series.
    pub fn names(&self) -> Vec<String> {
        if self.stripes.is_empty() {
            return vec!["nul".to_owned()];
        }
        let parent = |path: &PathBuf| path.parent().unwrap_or(path).display().to_string();
        self.stripes.iter().map(parent).collect()
    }

    /// Devices for `count` stripes, spread over the places.
    pub fn stripes(&self, name: &str, count: usize) -> Vec<PathBuf> {
        if self.stripes.is_empty() {
            return vec!["nul".into(); count];
        }
        let places = self.stripes.iter().cycle().zip(1..=count);
        places
            .map(|(place, number)| place.join(format!("{name}.{number}.windlass")))
            .collect()
    }

    /// Where a restore goes.
    pub fn restored(&self) -> PathBuf {
        self.restored
            .as_deref()
            .unwrap_or(Path::new(DEFAULT))
            .join("restored")
    }

    /// Removes what a run left at these paths.
    pub fn remove(&self, paths: &[PathBuf]) -> Result<(), Failure> {
        for path in paths.iter().filter(|path| path.is_absolute()) {
            remove(path).map_err(|error| fault("remove", path, &error))?;
        }
        Ok(())
    }

    /// Refuses a run whose stripes or restored files would fill a file system.
    pub fn check_space(&self, stripes: u64, restored: u64) -> Result<(), Failure> {
        let share = stripes / (self.stripes.len().max(1) as u64);
        let places = self.stripes.iter().map(|path| (path, share));
        for (path, bytes) in places.chain(self.restored.iter().map(|path| (path, restored))) {
            let stat =
                rustix::fs::statvfs(path).map_err(|error| fault("look at", path, &error.into()))?;
            let (free, needed) = (stat.f_bavail * stat.f_frsize, bytes + KEEP_FREE);
            if free < needed {
                let message = format!(
                    "{}: a sweep needs {} free, and {} are",
                    path.parent().unwrap_or(path).display(),
                    show_size(needed),
                    show_size(free)
                );
                return Err(Failure::new(
                    Code::Failed,
                    message,
                    "Name another place: --to, --into.",
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for path in self.stripes.iter().chain(&self.restored) {
            if let Err(error) = remove(path) {
                crate::output::note(&format!("warning: {} stays: {error}", path.display()));
            }
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let result = match path.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn scratch(parent: &Path, owner: Option<(u32, u32)>) -> Result<PathBuf, Failure> {
    let parent = std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned());
    let id = uuid::Uuid::new_v4().simple().to_string();
    let path = parent.join(format!("windlass-sweep-{}", &id[..8]));
    outputs().check(&path)?;
    privilege::as_user(ProcessUse::Own, owner, || {
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| fault("make", &path, &error))
    })?;
    Ok(path)
}

fn fault(what: &str, path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot {what} {}: {error}", path.display());
    let hint = "Name directories that the database's owner may write to: --to, --into.";
    Failure::new(Code::Failed, message, hint)
}
