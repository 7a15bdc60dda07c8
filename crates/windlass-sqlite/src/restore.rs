//! The restore plan: where the database file goes, and which files must not lie beside it.
//!
//!   engine --> target.windlass-restore/name --> publish: clear the way, rename --> target
//!
//! Invariants
//! - Planning changes nothing. Until `publish`, everything at the target stays as it is. `publish`
//!   renames the restored file, so it appears whole and durable.
//! - A restored file never meets a -wal, -journal or -shm of another database, because SQLite would
//!   play it back into the restored one. So `publish` removes these files first. If the machine
//!   crashes at that point, the old database remains without its log, which `force` allows. The
//!   other order could leave the new database with the old log.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use windlass_engine::{OutputKind, Outputs, TargetLayout, durable};
use windlass_media::{Facts, FileEntry, FileKind, FileTable, SetDescription};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{IoContext, SqliteError};
use crate::facts::DatabaseFacts;
use crate::header::DATABASE_MAGIC;
use crate::lock;
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
/// The longest name of a file on Linux.
const NAME_BYTES_MAX: usize = 255;

/// Where the database of a set goes; made before anything is written.
#[derive(Debug)]
pub struct RestorePlan {
    /// What the engine must write: into a directory of its own, beside the target.
    pub layout: TargetLayout,
    /// The restored database.
    pub target: PathBuf,
    /// Files in the way, which `publish` removes or replaces; empty unless forced.
    pub leftovers: Vec<PathBuf>,
    /// The locked staging directory. The restore that holds the lock may remove what another one
    /// left there.
    staging: Option<File>,
    /// The files that clearing the way must not remove.
    outputs: Outputs,
}

/// Plans to restore the set's database to `into`: a file, or a directory that exists. Refuses if a
/// database, or a leftover of one, is already there, unless `force` is set. Even with `force` it
/// refuses a file that `outputs` protects and that is not a database.
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
    for path in &leftovers {
        let kind = if *path == target { DATABASE } else { SIDE_FILE };
        unguarded.check_kind(path, &kind)?;
    }
    let root = staging(&target);
    let layout = TargetLayout {
        root,
        files: files.clone(),
        ..TargetLayout::default()
    };
    Ok(RestorePlan {
        layout,
        target,
        leftovers,
        staging: None,
        outputs: unguarded,
    })
}

impl RestorePlan {
    /// Makes the directory that the engine restores into, and removes what an interrupted restore
    /// left there. Returns whether there was such a directory. Fails while another restore to the
    /// same target runs.
    pub fn prepare(&mut self) -> Result<bool, SqliteError> {
        let root = &self.layout.root;
        let is_left = match std::fs::create_dir(root) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => true,
            created => created.during("create", root).map(|()| false)?,
        };
        let staging = File::open(root).during("open", root)?;
        if rustix::fs::flock(&staging, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(SqliteError::TargetInUse {
                path: root.clone(),
                pid: 0,
            });
        }
        for entry in std::fs::read_dir(root).during("list", root)? {
            let path = entry.during("list", root)?.path();
            self.outputs.check(&path)?;
            std::fs::remove_file(&path).during("remove", &path)?;
        }
        self.staging = Some(staging);
        Ok(is_left)
    }

    /// Puts the restored file in its place, durably. Fails, and leaves the old database untouched,
    /// if another process has the old database open. Only its locks show that: an idle connection
    /// in rollback mode holds none.
    ///
    /// After any other failure the error says which file holds the restored database, because the
    /// old one may have lost its log by then.
    pub fn publish(self) -> Result<(), SqliteError> {
        if self.leftovers.contains(&self.target)
            && let Err(error) = check_unused(&self.target)
        {
            return Err(self.abandon().err().unwrap_or(error));
        }
        let restored = self.restored();
        self.clear_way()
            .and_then(|()| {
                #[expect(clippy::disallowed_methods, reason = "the directory is synced below")]
                std::fs::rename(&restored, &self.target).during("rename", &restored)
            })
            .map_err(|source| SqliteError::NotInPlace {
                restored,
                source: Box::new(source),
            })?;
        let synced = durable::sync_parent(&self.target);
        let target = self.target.clone();
        // The staging directory is empty now. If it stays, the next restore removes it.
        let abandoned = self.abandon();
        synced.map_err(|source| SqliteError::NotDurable {
            path: target,
            source,
        })?;
        abandoned
    }

    /// Removes the files that must not lie beside the restored database.
    fn clear_way(&self) -> Result<(), SqliteError> {
        for path in self.leftovers.iter().filter(|path| **path != self.target) {
            std::fs::remove_file(path).during("remove", path)?;
        }
        durable::sync_parent(&self.target).during("sync the directory of", &self.target)
    }

    /// The paths of the restored database and its side files, whether or not they exist.
    pub fn files(&self) -> Vec<PathBuf> {
        let sides = SIDE_SUFFIXES.map(|suffix| beside(&self.target, suffix));
        std::iter::once(self.target.clone()).chain(sides).collect()
    }

    /// Removes what was restored, if it was not published.
    pub fn abandon(self) -> Result<(), SqliteError> {
        let root = &self.layout.root;
        std::fs::remove_dir_all(root).during("remove", root)
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
    match into.file_name() {
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

/// The database and its side files, as far as they exist, including links that lead nowhere.
fn in_the_way(target: &Path) -> Vec<PathBuf> {
    let sides = SIDE_SUFFIXES.iter().map(|suffix| beside(target, suffix));
    std::iter::once(target.to_path_buf())
        .chain(sides)
        .filter(|path| path.symlink_metadata().is_ok())
        .collect()
}

fn check_unused(path: &Path) -> Result<(), SqliteError> {
    let file = File::open(path).during("open", path)?;
    match lock::user(&file).during("inspect the locks of", path)? {
        Some(pid) => Err(SqliteError::TargetInUse {
            path: path.to_path_buf(),
            pid,
        }),
        None => Ok(()),
    }
}
