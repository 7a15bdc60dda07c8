//! Received log that goes on with what an earlier run left: an object that grows, and what such an
//! object has lost.
//!
//!   |frame|frame|..torn          cut behind the last whole frame, and goes on
//!   |frame|fr   lost ->| mark    the same; the mark stays until that has come again
//!   |damaged    lost ->| mark    emptied, and vacant: what comes begins there
//!
//! Invariant: a mark that says what is lost is durable before the object is cut.

use std::fs::{File, OpenOptions};
use std::io::Seek;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use windlass_engine::Reading;
use windlass_engine::durable::Locked;
use windlass_media::LogContent;
use windlass_postgres::Lsn;

use super::{Current, GrowingLog, lock};
use crate::error::{IoContext, LostEnd, RepositoryError};
use crate::lost::keep_aside;
use crate::mark::{DurableMark, Owed};
use crate::object::LogObject;
use crate::place::ObjectName;
use crate::writer::{FrameWriter, MODE};

/// An empty object, whose mark says what is lost from its beginning on.
pub(super) struct Vacant {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) mark: DurableMark,
    pub(super) lock: Option<Locked<File>>,
}

impl GrowingLog {
    /// Goes on with an object if it ends where the log goes on: at this position.
    pub(super) fn take_up(&mut self, name: &ObjectName, at: Lsn) -> Result<(), RepositoryError> {
        let path = &name.path;
        if self
            .vacant
            .as_ref()
            .is_some_and(|vacant| vacant.path == *path)
        {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true);
        let file = windlass_engine::open_own(path, options).doing("open", path)?;
        let lock = lock(&file, path)?;
        if !self.place.has_header(name)? && !self.place.marked(name)?.is_there() {
            // A run was killed before it wrote the header. It never told anybody.
            return std::fs::remove_file(path).doing("remove", path);
        }
        let opened = self.place.open_object(self.timeline, name, Reading::Whole);
        let object = match opened {
            // Nothing of it can be read, and what comes takes its name.
            Err(RepositoryError::LostEnd { lost, .. }) if name.start == at => {
                return self.vacate((file, lock), path, self.owed(&lost));
            }
            Err(RepositoryError::LostEnd { .. }) => return Ok(()),
            opened => opened?,
        };
        if object.end() != at.0 {
            return Ok(());
        }
        let mut mark = DurableMark::of(path);
        match &object.lost {
            Some(lost) if object.index().is_empty() => {
                return self.vacate((file, lock), path, self.owed(lost));
            }
            None if object.index().is_empty() => {
                mark.remove()?;
                return std::fs::remove_file(path).doing("remove", path);
            }
            Some(lost) => {
                if object.stored_bytes() > object.frames_end() {
                    keep_aside(path)?;
                }
                mark.owe(self.owed(lost))?;
            }
            None => {}
        }
        self.go_on((file, lock), (name, &object), mark)
    }

    /// Goes on behind the last whole frame of an object.
    fn go_on(
        &mut self,
        (mut file, lock): (File, Option<Locked<File>>),
        (name, object): (&ObjectName, &LogObject),
        mark: DurableMark,
    ) -> Result<(), RepositoryError> {
        let path = &name.path;
        file.set_len(object.frames_end()).doing("cut off", path)?;
        file.seek(std::io::SeekFrom::End(0))
            .doing("seek in", path)?;
        // What is there may not be durable: the run that wrote it may have been killed.
        file.sync_all().doing("sync", path)?;
        let index = (object.index().to_vec(), object.end());
        let (hasher, offset) = (object.hasher()?, object.frames_end());
        let writer = FrameWriter::resume(
            file,
            (hasher, offset),
            index,
            (self.packing, path.as_path()),
        )?;
        self.current = Some(Current {
            writer,
            path: path.clone(),
            start: name.start,
            mark,
            is_named: true,
            _lock: lock,
        });
        // An object has one data key, and that of the other run is gone.
        let has_key = object.is_encrypted() || self.place.at().encryption().is_some();
        // The other run was killed before it gave the object of a segment its name.
        let segment_bytes = u64::from(self.segment_bytes);
        let is_whole = self.bounds_objects() && object.end().is_multiple_of(segment_bytes);
        match has_key || is_whole {
            true => self.seal(),
            false => Ok(()),
        }
    }

    /// Takes the place of an object of which nothing can be read, where the log comes to it. `None`
    /// if nothing is in the way any more, or what is there can be read.
    pub(super) fn take_over(
        &mut self,
        start: Lsn,
        path: &Path,
    ) -> Result<Option<Vacant>, RepositoryError> {
        let name = ObjectName {
            start,
            end: None,
            path: path.to_owned(),
            bytes: None,
        };
        self.take_up(&name, start)?;
        Ok(self.vacant.take())
    }

    /// Whether an object ends with its segment. The records of a SQLite database have none.
    fn bounds_objects(&self) -> bool {
        *self.place.content() == LogContent::Log
    }

    fn owed(&self, lost: &LostEnd) -> Owed {
        let lost = lost.clone();
        let lost = match self.bounds_objects() {
            true => lost.bounded(self.segment_bytes.into()),
            false => lost,
        };
        Owed::of(&lost, self.place.content())
    }

    /// Empties an object of which nothing can be read. Its mark tells of what is lost until that
    /// has come again.
    fn vacate(
        &mut self,
        (file, lock): (File, Option<Locked<File>>),
        path: &Path,
        owed: Owed,
    ) -> Result<(), RepositoryError> {
        let mut mark = DurableMark::of(path);
        if file.metadata().doing("examine", path)?.len() > 0 {
            keep_aside(path)?;
        }
        mark.owe(owed)?;
        file.set_len(0).doing("cut off", path)?;
        file.sync_all().doing("sync", path)?;
        if let Some(current) = &mut self.current {
            // A kill left it behind an object that was not sealed, and goes on.
            current.mark.owe(owed)?;
            mark.remove()?;
            return std::fs::remove_file(path).doing("remove", path);
        }
        let path = path.to_owned();
        self.vacant = Some(Vacant {
            file,
            path,
            mark,
            lock,
        });
        Ok(())
    }

    /// Makes an empty object where the log ends now, which tells of what has not come again.
    pub(super) fn leave_vacant(&mut self, owed: Owed) -> Result<(), RepositoryError> {
        let path = self.place.growing_path(self.timeline, self.position);
        self.place.make_directory_of(&path)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).mode(MODE);
        let file = windlass_engine::open_own(&path, options).doing("open", &path)?;
        let lock = lock(&file, &path)?;
        self.vacate((file, lock), &path, owed)?;
        self.place.sync_names(&path)
    }

    /// Takes what is lost for gone, if it has not come again at its position.
    pub(crate) fn admit_lost_end(&mut self) -> Result<(), RepositoryError> {
        if let Some(Vacant { path, mut mark, .. }) = self.vacant.take() {
            mark.remove()?;
            std::fs::remove_file(&path).doing("remove", &path)?;
        }
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        match current.mark.admit() {
            true => current.mark.set(current.writer.durable()),
            false => Ok(()),
        }
    }
}
