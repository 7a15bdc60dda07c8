//! The restore plan: where one database file goes, and what must not lie beside it.
//!
//! Invariants
//! - Nothing is touched while planning. `clear` removes leftovers, and only those planned.
//! - A restored file never meets a -wal, -journal or -shm of another database: SQLite would play
//!   it back into the restored one.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_engine::{TargetLayout, durable};
use windlass_media::{Facts, FileKind, FileTable};

use crate::error::{IoContext, SqliteError};
use crate::facts::DatabaseFacts;
use crate::lock;
use crate::view::beside;

/// What SQLite keeps beside a database.
const SIDE_SUFFIXES: [&str; 3] = ["-wal", "-journal", "-shm"];

/// Where a set's database goes, before anything is written.
#[derive(Debug)]
pub struct RestorePlan {
    /// What the engine is to write.
    pub layout: TargetLayout,
    /// The restored database.
    pub target: PathBuf,
    /// Files in the way, which `clear` removes; empty unless forced.
    pub leftovers: Vec<PathBuf>,
}

impl RestorePlan {
    /// Removes what is in the way, durably. Fails if a process has the old database open, as far
    /// as its locks tell: an idle connection in rollback mode holds none.
    pub fn clear(&self) -> Result<(), SqliteError> {
        if self.leftovers.contains(&self.target) {
            check_unused(&self.target)?;
        }
        for path in &self.leftovers {
            std::fs::remove_file(path).during("remove", path)?;
        }
        if !self.leftovers.is_empty() {
            durable::sync_parent(&self.target).during("sync the directory of", &self.target)?;
        }
        Ok(())
    }
}

/// Plans to restore the set's database to `into`: a file, or a directory that exists. Refuses a
/// database, or leftovers of one, that are there already, unless `force`.
pub fn restore_layout(
    facts: &Facts,
    files: &FileTable,
    into: &Path,
    force: bool,
) -> Result<RestorePlan, SqliteError> {
    DatabaseFacts::of_set(facts)?;
    let (root, name) = place(files, into)?;
    let target = root.join(std::ffi::OsStr::from_bytes(&name));
    let leftovers = in_the_way(&target);
    match leftovers.first() {
        Some(path) if !force => return Err(SqliteError::TargetExists { path: path.clone() }),
        _ => {}
    }
    let mut files = files.clone();
    for entry in &mut files.0 {
        entry.path.clone_from(&name);
    }
    let layout = TargetLayout { root, mounts: Vec::new(), replace: Vec::new(), files };
    Ok(RestorePlan { layout, target, leftovers })
}

/// The directory to restore into, and the file's name there.
fn place(files: &FileTable, into: &Path) -> Result<(PathBuf, Vec<u8>), SqliteError> {
    let [entry] = files.0.as_slice() else {
        return Err(SqliteError::Facts { what: "the set does not hold exactly one file" });
    };
    if entry.kind != FileKind::File || entry.path.contains(&b'/') {
        return Err(SqliteError::Facts { what: "the set's file is not a plain file at its root" });
    }
    if into.is_dir() {
        return Ok((into.to_path_buf(), entry.path.clone()));
    }
    let Some(name) = into.file_name() else {
        return Err(SqliteError::Facts { what: "the target has no file name" });
    };
    let root = into.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((root.unwrap_or(Path::new(".")).to_path_buf(), name.as_bytes().to_vec()))
}

/// The database and its side files, as far as they are there; links that lead nowhere too.
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
        Some(pid) => Err(SqliteError::TargetInUse { path: path.to_path_buf(), pid }),
        None => Ok(()),
    }
}
