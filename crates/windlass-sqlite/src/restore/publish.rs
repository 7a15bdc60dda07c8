//! The end of a restore: the restored file gets its name.
//!
//!   lock the old database --> look again --> move its side files aside --> rename --> remove them,
//!                                                                            and the staging
//!
//! A restore takes long, so what was found at its beginning counts no more. Everything is looked at
//! again, right before the rename.
//!
//! Invariants
//! - Without `force` nothing is replaced: the rename itself fails if the name exists.
//! - With `force` nobody uses the old database: SQLite's exclusive lock is held until the new one
//!   has its name.
//! - A restored file never meets a -wal, -journal or -shm of another database, because SQLite would
//!   play it back into the restored one. So these files are moved aside first, and back if the new
//!   database cannot get the name. If the machine crashes between, the old database remains without
//!   its log, which is in the staging directory. The other order could leave the new database with
//!   the old log.
//! - Nothing ever moves such a log back later: somebody may have used the database without it.
//! - What gets the name is the file that was written, and no other.
//! - If it cannot get the name, it takes the place of what an earlier restore left. Until then,
//!   both are there.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use windlass_engine::durable::{self, NameError};

use super::left::{self, REPLACED};
use super::{Kept, RestorePlan, UNFINISHED, check_kinds, in_the_way};
use crate::error::{IoContext, SqliteError};
use crate::left_open::left_open;
use crate::lock::{self, ExclusiveLock};
use crate::sides::SIDE_SUFFIXES;
use crate::view::beside;

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
        let aside = self.clear_way()?;
        let placed = self.put_in_place(restored, old.is_some());
        match placed {
            // The old database is still there and locked, so its side files belong to it.
            Err(error) if !self.is_written_at(&self.target) => {
                aside.move_back()?;
                Err(match (old, error) {
                    (Some(_), SqliteError::NotInPlace { source, .. }) => {
                        withheld(restored, *source)
                    }
                    (_, error) => error,
                })
            }
            placed => placed,
        }
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
        let name = restored
            .file_name()
            .filter(|name| *name != UNFINISHED && *name != REPLACED);
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
        if !is_there {
            check_left_open(&self.target)?;
        }
        let lock = is_there.then(|| lock_unused(&self.target)).transpose()?;
        // With the lock held, SQLite makes no new files beside the database.
        check_kinds(&self.target, &in_the_way(&self.target), &self.outputs)?;
        Ok(lock)
    }

    /// Moves away the files that must not lie beside the restored database.
    fn clear_way(&self) -> Result<Aside<'_>, SqliteError> {
        let mut aside = Aside {
            plan: self,
            moved: Vec::new(),
        };
        let sides = in_the_way(&self.target).into_iter();
        let sides: Vec<PathBuf> = sides.filter(|path| *path != self.target).collect();
        if sides.is_empty() {
            return Ok(aside);
        }
        match sides.into_iter().try_for_each(|side| aside.take(side)) {
            Ok(()) => Ok(aside),
            Err(source) => {
                aside.move_back()?;
                Err(withheld(&self.restored(), source))
            }
        }
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
            .and_then(|()| left::remove_replaced(&self.staging))
            .and_then(|()| std::fs::remove_dir(&self.layout.root))
            .and_then(|()| std::fs::remove_dir(&self.staging));
        removed.map_err(|source| SqliteError::StagingLeft {
            path: self.target,
            staging: self.staging,
            source,
        })
    }
}

/// The side files of the old database, in the staging directory.
struct Aside<'a> {
    plan: &'a RestorePlan,
    /// Where each was, and where it is.
    moved: Vec<(PathBuf, PathBuf)>,
}

impl Aside<'_> {
    fn take(&mut self, side: PathBuf) -> Result<(), SqliteError> {
        let directory = self.plan.staging.join(REPLACED);
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.during("create", &directory)?,
        }
        let suffix = SIDE_SUFFIXES
            .iter()
            .find(|suffix| beside(&self.plan.target, suffix) == side);
        let to = directory.join(format!("database{}", suffix.unwrap_or(&"-side")));
        durable::rename(&side, &to).during("move away", &side)?;
        self.moved.push((side, to));
        durable::sync_parent(&self.plan.target).during("sync the directory of", &self.plan.target)
    }

    /// Moves them back, durably. The old database is still locked, so nobody has made new ones.
    fn move_back(self) -> Result<(), SqliteError> {
        for (was, is) in &self.moved {
            let moved = durable::rename(is, was).during("move back", is);
            moved.map_err(|source| SqliteError::NotInPlace {
                restored: self.plan.restored(),
                is_kept: false,
                source: Box::new(source),
            })?;
        }
        if !self.moved.is_empty() {
            // The restore ends with an error, and that one is to be shown.
            std::fs::remove_dir(self.plan.staging.join(REPLACED)).unwrap_or_default();
        }
        Ok(())
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

/// Refuses a name whose file is gone and that another process still has open, or that process and
/// whoever opens the restored database would share their log and journal.
pub(super) fn check_left_open(path: &Path) -> Result<(), SqliteError> {
    match left_open(path).during("find who has open", path)? {
        Some(found) => Err(SqliteError::TargetInUse {
            path: found.path,
            pid: found.process,
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
