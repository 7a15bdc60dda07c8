//! The restore plan: where the database file goes, and which files must not lie beside it.
//!
//!   engine --> target.windlass-restore/unfinished/name --> publish --> target
//!                                                            |
//!                          target.windlass-restore/name <----+ if it cannot be put in its place
//!
//! Invariants
//! - Planning changes nothing. Until `publish`, everything at the target stays as it is.
//! - A complete database that an earlier restore could not put in its place stays until the one of
//!   this restore is complete.

mod left;
mod publish;

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_engine::durable::Locked;
use windlass_engine::{DirectoryTarget, OutputKind, Outputs, TargetLayout, durable};
use windlass_media::{Facts, FileEntry, FileKind, FileTable, SetDescription};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{IoContext, SqliteError};
use crate::facts::DatabaseFacts;
use crate::header::DATABASE_MAGIC;
use crate::sides::{SIDE_FILE, SIDE_SUFFIXES};
use crate::view::beside;

/// What a restored database may replace.
const DATABASE: OutputKind = OutputKind {
    noun: "a SQLite database",
    is_own: |beginning| beginning.starts_with(DATABASE_MAGIC),
    is_renamed: true,
};

/// The end of the name of the directory that a database is first restored into.
const STAGING_SUFFIX: &str = ".windlass-restore";
/// The directory in it that the engine writes into. What lies here is not complete.
const UNFINISHED: &str = "unfinished";
/// The longest name of a file on Linux.
const NAME_BYTES_MAX: usize = 255;

/// Where the database of a set goes; made before anything is written.
#[derive(Debug)]
pub struct RestorePlan {
    /// What the engine must write: into a directory of its own, beside the target.
    pub layout: TargetLayout,
    /// The restored database.
    pub target: PathBuf,
    /// Files in the way, which `publish` would remove or replace now. Empty unless forced.
    pub leftovers: Vec<PathBuf>,
    /// Whether `publish` may replace a database, also one that appears during the restore.
    force: bool,
    /// The staging directory.
    pub staging: PathBuf,
    /// It is locked. The restore that holds the lock may remove what another one left there.
    lock: Option<Locked<File>>,
    /// The database that an earlier restore could not put in its place.
    kept: Option<Kept>,
    /// The file that the engine writes.
    written: Option<File>,
    /// The files that clearing the way must not remove.
    outputs: Outputs,
}

/// What earlier restores to the same target left.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// What a restore had written that was cut off. It is gone now.
    Unfinished,
    /// This database, which could not be put in its place. It stays until this restore has one.
    Database(PathBuf),
}

/// A database that an earlier restore left, opened to know it again.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    file: File,
}

/// Plans to restore the set's database to `into`: a file, or a directory that exists. Refuses if a
/// database, or a leftover of one, is already there, unless `force` is set. Even with `force` it
/// refuses a file that `outputs` protects or that is not a database, and a database that another
/// process has open, also if its file is gone: a restore takes long, and `publish` would refuse it
/// too.
pub fn restore_layout(
    set: &SetDescription,
    into: &Path,
    force: bool,
    outputs: &Outputs,
) -> Result<RestorePlan, SqliteError> {
    check_set(&set.facts, &set.files)?;
    let files = &set.files;
    let target = place(files, into)?;
    outputs.check(&target)?;
    let leftovers = in_the_way(&target);
    match leftovers.first() {
        Some(path) if !force => return Err(SqliteError::TargetExists { path: path.clone() }),
        _ => {}
    }
    let unguarded = outputs.clone().unguarded();
    check_kinds(&target, &leftovers, &unguarded)?;
    match leftovers.contains(&target) {
        true => publish::check_unused(&target)?,
        false => publish::check_left_open(&target)?,
    }
    let staging = staging(&target);
    if staging.symlink_metadata().is_ok() {
        left::found(&staging, &unguarded)?;
    }
    let layout = TargetLayout {
        root: staging.join(UNFINISHED),
        files: files.clone(),
        ..TargetLayout::default()
    };
    Ok(RestorePlan {
        layout,
        target,
        leftovers,
        force,
        staging,
        lock: None,
        kept: None,
        written: None,
        outputs: unguarded,
    })
}

/// The paths of the database that a restore of these files to `into` makes, and of its side files,
/// whether or not they exist.
pub fn target_files(files: &FileTable, into: &Path) -> Result<Vec<PathBuf>, SqliteError> {
    let target = place(files, into)?;
    let sides = SIDE_SUFFIXES.map(|suffix| beside(&target, suffix));
    Ok(std::iter::once(target).chain(sides).collect())
}

impl RestorePlan {
    /// Makes the staging directory, and removes what a restore left there that was cut off. Returns
    /// what was there. Fails while another restore to the same target runs.
    pub fn prepare(&mut self) -> Result<Left, SqliteError> {
        let staging = &self.staging;
        let was_there = match std::fs::create_dir(staging) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                left::check_directory(staging)?;
                true
            }
            created => created.during("create", staging).map(|()| false)?,
        };
        let lock = File::open(staging).during("open", staging)?;
        let Ok(lock) = Locked::take(lock) else {
            return Err(SqliteError::TargetInUse {
                path: staging.clone(),
                pid: 0,
            });
        };
        if durable::reserved_for(&self.target).is_some() {
            // Nobody else restores to this target, so a restore that crashed left it.
            std::fs::remove_file(&self.target).during("remove", &self.target)?;
        }
        let found = left::found(staging, &self.outputs)?;
        found.remove_unfinished()?;
        self.lock = Some(lock);
        let Some(path) = found.database else {
            return Ok(match was_there {
                true => Left::Unfinished,
                false => Left::Nothing,
            });
        };
        let file = File::open(&path).during("open", &path)?;
        self.kept = Some(Kept {
            path: path.clone(),
            file,
        });
        Ok(Left::Database(path))
    }

    /// Creates the file that the engine will write, and keeps it open, so that `publish` knows it.
    pub fn hold(&mut self, target: &DirectoryTarget) -> Result<(), SqliteError> {
        let (entry, _) = only_file(&self.layout.files)?;
        self.written = target.created(entry.file)?;
        Ok(())
    }

    /// The file that the engine writes, after `hold`.
    pub fn written(&self) -> Option<&File> {
        self.written.as_ref()
    }

    /// Removes what was restored, if it was not published. What an earlier restore left stays.
    pub fn abandon(self) -> Result<(), SqliteError> {
        let root = &self.layout.root;
        match std::fs::remove_dir_all(root) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.during("remove", root)?,
        }
        match self.kept {
            Some(_) => Ok(()),
            // A log of the old database lies there since a crash.
            None if self.staging.join(left::REPLACED).is_dir() => Ok(()),
            None => std::fs::remove_dir(&self.staging).during("remove", &self.staging),
        }
    }

    fn restored(&self) -> PathBuf {
        let path = self
            .layout
            .files
            .0
            .first()
            .map_or(&[][..], |entry| entry.path.as_slice());
        self.layout.root.join(std::ffi::OsStr::from_bytes(path))
    }
}

/// Refuses a set that holds no SQLite database, although all of its checksums may be right. A
/// restore does this before it creates anything, and a verification does the same.
pub fn check_set(facts: &Facts, files: &FileTable) -> Result<(), SqliteError> {
    DatabaseFacts::of_set(facts)?;
    only_file(files).map(drop)
}

/// The set's only file, and its name.
pub(crate) fn only_file(files: &FileTable) -> Result<(&FileEntry, PathBuf), SqliteError> {
    let [entry] = files.0.as_slice() else {
        return Err(SqliteError::Facts {
            what: "the set does not hold exactly one file",
        });
    };
    if entry.kind != FileKind::File || entry.path.contains(&b'/') {
        return Err(SqliteError::Facts {
            what: "the set's file is not a plain file at its root",
        });
    }
    Ok((entry, std::ffi::OsStr::from_bytes(&entry.path).into()))
}

/// The path that the set's only file is restored to.
fn place(files: &FileTable, into: &Path) -> Result<PathBuf, SqliteError> {
    let (_, name) = only_file(files)?;
    if into.is_dir() {
        return Ok(into.join(name));
    }
    let parent = into.parent().filter(|it| !it.as_os_str().is_empty());
    let is_directory = into.as_os_str().as_bytes().ends_with(b"/");
    let missing = match is_directory {
        true => Some(into),
        false => parent.filter(|it| !it.is_dir()),
    };
    match into.file_name() {
        Some(_) if let Some(path) = missing => Err(SqliteError::TargetParent {
            path: path.to_path_buf(),
        }),
        Some(_) => Ok(into.to_path_buf()),
        None => Err(SqliteError::TargetName {
            path: into.to_path_buf(),
        }),
    }
}

/// The directory that a database is first restored into, always the same one for a target. If the
/// database's name leaves no room for a suffix, a hash of it takes its place.
fn staging(target: &Path) -> PathBuf {
    let named = beside(target, STAGING_SUFFIX);
    let is_long = |name: &OsStr| name.len() > NAME_BYTES_MAX;
    match target.file_name() {
        Some(name) if named.file_name().is_some_and(is_long) => {
            let hash = xxh3_64(name.as_bytes());
            target.with_file_name(format!("{hash:016x}{STAGING_SUFFIX}"))
        }
        _ => named,
    }
}

/// The database and its side files, as far as they exist, including links that lead nowhere. A name
/// that a restore reserved is not in the way.
fn in_the_way(target: &Path) -> Vec<PathBuf> {
    let sides = SIDE_SUFFIXES.iter().map(|suffix| beside(target, suffix));
    std::iter::once(target.to_path_buf())
        .chain(sides)
        .filter(|path| path.symlink_metadata().is_ok() && durable::reserved_for(path).is_none())
        .collect()
}

/// Refuses files that SQLite did not write, even if they have the names of its files.
fn check_kinds(target: &Path, paths: &[PathBuf], outputs: &Outputs) -> Result<(), SqliteError> {
    for path in paths {
        let kind = if *path == target { DATABASE } else { SIDE_FILE };
        outputs.check_kind(path, &kind)?;
    }
    Ok(())
}
