//! The end of a restore: the restored file gets its name.
//!
//!   lock the old database --> look again --> remove its side files --> rename --> remove staging
//!
//! A restore takes long, so what was found at its beginning counts no more. Everything is looked at
//! again, right before the rename.
//!
//! Invariants
//! - Without `force` nothing is replaced: the rename itself fails if the name exists.
//! - With `force` nobody uses the old database: SQLite's exclusive lock is held until the new one
//!   has its name.
//! - A restored file never meets a -wal, -journal or -shm of another database, because SQLite would
//!   play it back into the restored one. So these files are removed first. If the machine crashes
//!   at that point, the old database remains without its log, which `force` allows. The other order
//!   could leave the new database with the old log.
//! - What gets the name is the file that was written, and no other.
//! - If it cannot get the name, it takes the place of what an earlier restore left. Until then,
//!   both are there.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use windlass_engine::durable::{self, NameError};

use super::{Kept, RestorePlan, UNFINISHED, check_kinds, in_the_way};
use crate::error::{IoContext, SqliteError};
use crate::lock::{self, ExclusiveLock};

impl RestorePlan {
    /// Puts the restored file in its place, durably. An error says what is at the target then, and
    /// where the restored database is.
    pub fn publish(self) -> Result<(), SqliteError> {
        let restored = self.restored();
        self.check_written(&restored)?;
        let placed = self.place(&restored);
        if placed.is_ok() || self.is_written_at(&self.target) {
            // That the name is not durable matters more than what is left beside it.
            return placed.and(self.remove_staging());
        }
        placed.map_err(|error| self.keep(error, &restored))
    }

    fn place(&self, restored: &Path) -> Result<(), SqliteError> {
        let old = self
            .take_over()
            .map_err(|source| withheld(restored, source))?;
        self.clear_way()?;
        self.put_in_place(restored, old.is_some())
    }

    /// Keeps the restored database where the next restore does not remove it, and says in the error
    /// where it is. It takes the place of what an earlier restore left.
    fn keep(&self, error: SqliteError, restored: &Path) -> SqliteError {
        let Some(restored) = self.move_aside(restored) else {
            return error;
        };
        let is_kept = true;
        match error {
            SqliteError::Withheld { source, .. } => SqliteError::Withheld {
                restored,
                is_kept,
                source,
            },
            SqliteError::NotInPlace { source, .. } => SqliteError::NotInPlace {
                restored,
                is_kept,
                source,
            },
            other => other,
        }
    }

    /// Moves the restored database out of the directory for what is not complete. If that fails, it
    /// stays there: what matters is why it did not get its name.
    fn move_aside(&self, restored: &Path) -> Option<PathBuf> {
        let written = self.written.as_ref()?;
        let name = restored.file_name().filter(|name| *name != UNFINISHED);
        let free = self.staging.join(name.unwrap_or(OsStr::new("database")));
        let aside = self.kept.as_ref().map_or(free, |kept| kept.path.clone());
        let moved = match &self.kept {
            Some(kept) if kept.is_there() => durable::name_over(written, restored, &aside),
            _ => durable::name_new(written, restored, &aside),
        };
        if moved.is_err() && !self.is_written_at(&aside) {
            return None;
        }
        // It is empty, unless somebody else put a file there. The next restore looks.
        std::fs::remove_dir(&self.layout.root).unwrap_or_default();
        Some(aside)
    }

    /// Refuses if another file has taken the place of the one that the engine wrote.
    fn check_written(&self, restored: &Path) -> Result<(), SqliteError> {
        match self.is_written_at(restored) {
            true => Ok(()),
            false => Err(SqliteError::RestoredTaken {
                path: restored.to_owned(),
            }),
        }
    }

    fn is_written_at(&self, path: &Path) -> bool {
        let written = self.written.as_ref();
        written.is_some_and(|file| durable::is_file_at(file, path).unwrap_or(false))
    }

    /// Looks at the target again. If there is a database that may be replaced, this locks it.
    fn take_over(&self) -> Result<Option<ExclusiveLock>, SqliteError> {
        let found = in_the_way(&self.target);
        match found.first() {
            Some(path) if !self.force => {
                return Err(SqliteError::TargetExists { path: path.clone() });
            }
            _ => {}
        }
        let is_there = found.contains(&self.target);
        let lock = is_there.then(|| lock_unused(&self.target)).transpose()?;
        // With the lock held, SQLite makes no new files beside the database.
        check_kinds(&self.target, &in_the_way(&self.target), &self.outputs)?;
        Ok(lock)
    }

    /// Removes the files that must not lie beside the restored database.
    fn clear_way(&self) -> Result<(), SqliteError> {
        let sides: Vec<PathBuf> = in_the_way(&self.target);
        let mut sides = sides.iter().filter(|path| **path != self.target).peekable();
        if sides.peek().is_none() {
            return Ok(());
        }
        let removed = sides
            .try_for_each(|path| std::fs::remove_file(path).during("remove", path))
            .and_then(|()| {
                durable::sync_parent(&self.target).during("sync the directory of", &self.target)
            });
        removed.map_err(|source| SqliteError::NotInPlace {
            restored: self.restored(),
            is_kept: false,
            source: Box::new(source),
        })
    }

    fn put_in_place(&self, restored: &Path, replaces: bool) -> Result<(), SqliteError> {
        let taken = || SqliteError::RestoredTaken {
            path: restored.to_owned(),
        };
        let written = self.written.as_ref().ok_or_else(taken)?;
        let named = match replaces {
            true => durable::name_over(written, restored, &self.target),
            false => durable::name_new(written, restored, &self.target),
        };
        let (restored, path) = (restored.to_owned(), self.target.clone());
        named.map_err(|error| match error {
            NameError::Unfinished(source) => SqliteError::NotDurable { path, source },
            NameError::Taken => withheld(&restored, SqliteError::TargetExists { path }),
            NameError::Failed(source) => {
                let (action, path) = ("rename", restored.clone());
                let source = Box::new(SqliteError::Io {
                    action,
                    path,
                    source,
                });
                SqliteError::NotInPlace {
                    restored,
                    is_kept: false,
                    source,
                }
            }
        })
    }

    /// Removes what an earlier restore left, and the directories. These are empty now, unless
    /// somebody else put a file there, which then stays.
    fn remove_staging(self) -> Result<(), SqliteError> {
        let kept = self.kept.as_ref().filter(|kept| kept.is_there());
        let removed = kept
            .map_or(Ok(()), |kept| std::fs::remove_file(&kept.path))
            .and_then(|()| std::fs::remove_dir(&self.layout.root))
            .and_then(|()| std::fs::remove_dir(&self.staging));
        removed.map_err(|source| SqliteError::StagingLeft {
            path: self.target,
            staging: self.staging,
            source,
        })
    }
}

impl Kept {
    /// Whether it is still where it was found.
    fn is_there(&self) -> bool {
        durable::is_file_at(&self.file, &self.path).unwrap_or(false)
    }
}

fn withheld(restored: &Path, source: SqliteError) -> SqliteError {
    SqliteError::Withheld {
        restored: restored.to_owned(),
        is_kept: false,
        source: Box::new(source),
    }
}

/// Refuses a database that another process has open, as far as the system can tell.
pub(super) fn check_unused(path: &Path) -> Result<(), SqliteError> {
    let file = File::open(path).during("open", path)?;
    let user = match lock::user(&file).during("inspect the locks of", path)? {
        // An idle connection in rollback mode holds no lock.
        None => lock::is_open_for_writing(&file).then_some(0),
        user => user,
    };
    match user {
        Some(pid) => Err(SqliteError::TargetInUse {
            path: path.to_path_buf(),
            pid,
        }),
        None => Ok(()),
    }
}

/// Refuses the same, and locks the database against every later user.
fn lock_unused(path: &Path) -> Result<ExclusiveLock, SqliteError> {
    check_unused(path)?;
    ExclusiveLock::take(path).or_else(|error| {
        // Somebody took a lock just now. If the system cannot say who, this error is the answer.
        check_unused(path)?;
        Err(error).during("lock", path)
    })
}
