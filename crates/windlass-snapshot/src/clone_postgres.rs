//! Method `clone` for PostgreSQL: the file system copies the files without copying their blocks.
//!
//!   checkpoint --> list --> clone each file --> stop --> copy the log --> sync
//!
//! Clones of many files are no moment: while one is cloned, another one is written. So this happens
//! between start and stop of a backup, and the log from start to stop belongs to the snapshot, as
//! with every base backup. The server goes on meanwhile.
//!
//! Invariants
//! - pg_control is read after every other file was cloned.
//! - Segments of the log are copied, never cloned: the server uses its own again (`apart.rs`).
//! - As with a copy, a part of the database's own disk stays free.
//! - A window whose log tells of something that replay would get wrong is thrown away, and another
//!   one follows.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::ioctl_ficlone;
use rustix::io::Errno;
use windlass_engine::media::{FileEntry, FileKind, FileNo, FileTable};
use windlass_engine::{Cancel, Progress, open_regular};
use windlass_postgres::{
    BackupRequest, BracketEnd, BracketFiles, BracketSegment, Cluster, DatabaseFacts, WindowCause,
};

use crate::cluster::{self, CONTROL_PATH, PRIVATE_MODE, is_needed, own_file};
use crate::error::{Doing, SnapshotError, failed_at};
use crate::maker::{Made, Maker};
use crate::method::Method;
use crate::obstacle::Obstacle;
use crate::record::Survives;
use crate::{apart, directory, image, room};

/// How often a window is tried again if the log says that replay would go wrong.
const TRIES: u32 = 5;
/// The file with which cloning is tried, and the one that is cloned.
const TRIAL: &str = "trial";
const TRIED: &str = "PG_VERSION";

/// Clones a PostgreSQL cluster.
pub struct PostgresClone {
    cluster: Cluster,
    request: BackupRequest,
}

impl PostgresClone {
    /// Of this cluster.
    pub fn new(cluster: Cluster, request: BackupRequest) -> Self {
        Self { cluster, request }
    }

    /// Makes it in one window. It is of no use if there is a cause.
    fn attempt(
        &mut self,
        into: &Path,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<(Made, Option<WindowCause>), SnapshotError> {
        let left = room::left_for_server(&self.cluster.facts().data_directory, into)?;
        // Before the server makes a checkpoint for it.
        room::check(into, left, 0)?;
        let data = image::make_data(into)?;
        let started = (self.request.label.as_str(), self.request.fast_checkpoint);
        let mut bracket = self.cluster.begin_bracket(started, (progress, cancel))?;
        progress.set_phase("listing files");
        let files = bracket.list()?;
        progress.set_phase("cloning files");
        let mut cloned = Cloned::new(into, left);
        cloned.add_all(&files, cancel)?;
        progress.set_phase("ending the backup on the server");
        let end = bracket.end(&files, cancel)?;
        progress.set_phase("copying the log");
        cloned.add_end(&end)?;
        end.check_log()?;
        progress.set_phase("syncing the clones");
        directory::sync(&data)?;
        let made = self.made(&end.facts, cloned.table)?;
        Ok((made, end.cause))
    }

    fn made(&self, found: &DatabaseFacts, files: FileTable) -> Result<Made, SnapshotError> {
        Ok(Made {
            files: Some(files),
            as_of: cluster::server_time(&found.stop_time),
            lsn: Some(found.stop_lsn.to_string()),
            writers_stopped: Duration::ZERO,
            survives: Survives::PowerCut,
            warnings: cluster::warnings(found),
            facts: cluster::facts(&self.request, found)?,
        })
    }
}

impl Maker for PostgresClone {
    fn method(&self) -> Method {
        Method::Clone
    }

    fn obstacle(&self, into: &Path) -> Result<Option<Obstacle>, SnapshotError> {
        let from = self.cluster.facts().data_directory.join(TRIED);
        let trial = into.join(TRIAL);
        let source = open_regular(&from).doing("open", &from)?;
        let file = create(&trial)?;
        let cloned = ioctl_ficlone(&file, &source);
        std::fs::remove_file(&trial).doing("remove", &trial)?;
        match cloned {
            Ok(()) => Ok(None),
            Err(errno) if is_unsupported(errno) => {
                Ok(Some(Obstacle::no_clones(&from, into, &errno.into())))
            }
            Err(errno) => Err(errno).doing("clone", &from),
        }
    }

    fn make(
        &mut self,
        into: &Path,
        progress: &Arc<Progress>,
        cancel: &Cancel,
    ) -> Result<Made, SnapshotError> {
        for _ in 1..TRIES {
            let (made, cause) = self.attempt(into, progress, cancel)?;
            if cause.is_none() {
                return Ok(made);
            }
            image::remove_data(into)?;
        }
        let (made, cause) = self.attempt(into, progress, cancel)?;
        match cause {
            None => Ok(made),
            Some(cause) => Err(SnapshotError::Disturbed {
                cause: Box::new(cause),
                tries: TRIES,
            }),
        }
    }
}

/// The files that were cloned, by their numbers.
struct Cloned<'a> {
    into: &'a Path,
    /// How many bytes stay free there.
    left: u64,
    table: FileTable,
    /// The next number of a file.
    next: u32,
}

impl<'a> Cloned<'a> {
    fn new(into: &'a Path, left: u64) -> Self {
        Self {
            into,
            left,
            table: FileTable(Vec::new()),
            next: 0,
        }
    }

    /// Clones all files of a window.
    fn add_all(&mut self, files: &BracketFiles, cancel: &Cancel) -> Result<(), SnapshotError> {
        for (mut entry, source) in files.entries() {
            cancel.check()?;
            if entry.kind == FileKind::File {
                match self.clone_file(entry.file, &source)? {
                    Some(bytes) => entry.bytes = bytes,
                    None if is_needed(&entry.path, &source) => {
                        return Err(ErrorKind::NotFound).doing("open", &source);
                    }
                    // It was removed after the checkpoint, and replay removes it, too.
                    None => continue,
                }
            }
            self.push(entry);
        }
        Ok(())
    }

    /// Adds what is known at the end: the log, the label, and pg_control as the last.
    fn add_end(&mut self, end: &BracketEnd) -> Result<(), SnapshotError> {
        for segment in end.segments() {
            let (file, name) = (FileNo(self.next), segment.name);
            self.copy_segment(file, &segment)?;
            self.add(file, format!("pg_wal/{name}"), segment.bytes);
            // A server that recovers from it must not archive it again.
            self.add_bytes(format!("pg_wal/archive_status/{name}.done"), b"")?;
        }
        for (name, bytes) in &end.history {
            self.add_bytes(format!("pg_wal/{name}"), bytes)?;
        }
        self.add_bytes("backup_label".to_owned(), &end.label)?;
        if !end.tablespace_map.is_empty() {
            self.add_bytes("tablespace_map".to_owned(), &end.tablespace_map)?;
        }
        self.add_bytes(CONTROL_PATH.to_owned(), &end.control)?;
        if let Some(control) = self.table.0.last_mut() {
            control.flags.last = true;
        }
        Ok(())
    }

    /// Clones a file, or copies it from another file system, durably. Returns its length; none if
    /// the file is gone.
    fn clone_file(&self, file: FileNo, source: &Path) -> Result<Option<u64>, SnapshotError> {
        let mut from = match open_regular(source) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.doing("open", source)?,
        };
        room::check(self.into, self.left, 0)?;
        let path = self.path(file);
        let mut clone = create(&path)?;
        match ioctl_ficlone(&clone, &from) {
            Ok(()) => {}
            // A tablespace may be elsewhere.
            Err(errno) if is_unsupported(errno) => {
                let bytes = from.metadata().doing("inspect", source)?.len();
                room::check(self.into, self.left, bytes)?;
                let copied = std::io::copy(&mut from, &mut clone);
                copied.map_err(|error| copying(source, &path, error))?;
            }
            Err(errno) => {
                let error = std::io::Error::from(errno);
                let (action, at) = failed_at(&error, ("clone", source), &path);
                return Err(SnapshotError::io(action, at, error));
            }
        }
        clone.sync_all().doing("sync", &path)?;
        let metadata = clone.metadata().doing("inspect", &path)?;
        Ok(Some(metadata.len()))
    }

    /// Copies what counts of a segment of the log, durably, with zeros behind it that take no room.
    fn copy_segment(&self, file: FileNo, found: &BracketSegment<'_>) -> Result<(), SnapshotError> {
        let (source, path) = (found.path, self.path(file));
        let from = open_regular(source).doing("open", source)?;
        room::check(self.into, self.left, found.used_bytes)?;
        let mut copy = create(&path)?;
        let copied = apart::copy(&mut from.take(found.used_bytes), &mut copy);
        let copied = copied.map_err(|error| copying(source, &path, error))?;
        if copied < found.used_bytes {
            return Err(ErrorKind::UnexpectedEof).doing("copy", source);
        }
        copy.set_len(found.bytes).doing("write", &path)?;
        copy.sync_all().doing("sync", &path)
    }

    fn add_bytes(&mut self, path: String, bytes: &[u8]) -> Result<(), SnapshotError> {
        let file = FileNo(self.next);
        let at = self.path(file);
        let mut made = create(&at)?;
        let written = made.write_all(bytes).and_then(|()| made.sync_all());
        written.doing("write", &at)?;
        self.add(file, path, bytes.len() as u64);
        Ok(())
    }

    fn path(&self, file: FileNo) -> PathBuf {
        image::file_in(self.into, file)
    }

    fn add(&mut self, file: FileNo, path: String, bytes: u64) {
        self.push(own_file(file, path, bytes));
    }

    fn push(&mut self, entry: FileEntry) {
        self.next = self.next.max(entry.file.0.saturating_add(1));
        self.table.0.push(entry);
    }
}

/// What the system said when a file was copied.
fn copying(source: &Path, path: &Path, error: std::io::Error) -> SnapshotError {
    let (action, at) = failed_at(&error, ("copy", source), path);
    SnapshotError::io(action, at, error)
}

fn create(path: &Path) -> Result<File, SnapshotError> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(PRIVATE_MODE);
    options.open(path).doing("create", path)
}

/// Whether the system says that it cannot clone this file, rather than that cloning failed
/// (ioctl_ficlonerange(2)).
fn is_unsupported(errno: Errno) -> bool {
    [
        Errno::OPNOTSUPP,
        Errno::XDEV,
        Errno::INVAL,
        Errno::NOTTY,
        Errno::NOSYS,
        Errno::PERM,
    ]
    .contains(&errno)
}
