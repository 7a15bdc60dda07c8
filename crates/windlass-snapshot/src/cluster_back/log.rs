//! The log of a cluster that goes back: today's segments are kept, and those of the target take
//! their place.
//!
//!   pg_wal --take--> before.pending/wal          target --put--> pg_wal
//!          <--put back (undone)--|--return what is not archived yet (finished)-->
//!
//! Histories of timelines stay: with them the server finds a timeline that nobody used. Summaries
//! of the log go with the segments, because those of the old timeline would count for the new one.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::io::Errno;
use windlass_engine::{free_bytes, open_regular};

use super::tree::LOG;
use crate::cluster::PRIVATE_MODE;
use crate::error::{Doing, SnapshotError, failed_at};
use crate::{apart, directory};

/// Today's segments, beside the pages that were overwritten.
const TAKEN: &str = "wal";
/// The same while they come or go. Nothing of the target is in pg_wal then.
const MOVING: &str = "wal.moving";
const STATUS: &str = "archive_status";
const SUMMARIES: &str = "summaries";
/// What is below pg_wal, with names that begin like those of segments.
const BELOW: [&str; 2] = [STATUS, SUMMARIES];
const READY: &str = ".ready";
const DONE: &str = ".done";
/// Timeline and number of a segment, in hexadecimal digits.
const SEGMENT_DIGITS: usize = 24;

/// Whether this is the name of a segment, or begins like one: that of a part, of its status.
pub(super) fn is_segment(name: &[u8]) -> bool {
    let digits = name.get(..SEGMENT_DIGITS);
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// Takes today's segments and their summaries out of the cluster.
pub(super) fn take(data: &Path, pending: &Path) -> Result<(), SnapshotError> {
    let (log, moving) = (data.join(LOG), pending.join(MOVING));
    make_directory(&moving)?;
    for below in BELOW {
        make_directory(&moving.join(below))?;
        move_all(&log.join(below), &moving.join(below))?;
    }
    move_all(&log, &moving)?;
    rename_directory(&moving, &pending.join(TAKEN))
}

/// Undoes [`take`], however far it came.
pub(super) fn put_back(data: &Path, pending: &Path) -> Result<(), SnapshotError> {
    let (log, moving, taken) = (data.join(LOG), pending.join(MOVING), pending.join(TAKEN));
    if taken.is_dir() {
        for directory in [log.join(STATUS), log.clone()] {
            for name in segments(&directory)? {
                let path = directory.join(name);
                std::fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        rename_directory(&taken, &moving)?;
    }
    if moving.is_dir() {
        move_all(&moving, &log)?;
        for below in BELOW {
            move_all(&moving.join(below), &log.join(below))?;
        }
    }
    Ok(())
}

/// Removes what was taken for an undo of a revert that was cut off.
pub(super) fn forget_summaries(pending: &Path) -> Result<(), SnapshotError> {
    let summaries = pending.join(TAKEN).join(SUMMARIES);
    match std::fs::remove_dir_all(&summaries) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.doing("remove", &summaries),
    }
}

/// Makes a directory that a power cut does not take.
fn make_directory(path: &Path) -> Result<(), SnapshotError> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made.doing("make the directory", path)?,
    }
    windlass_engine::durable::sync_parent(path).doing("sync the directory of", path)
}

/// Puts a segment of the target into the log. `fill` writes it. The archive has it already, unless
/// it was still waiting today.
pub(super) fn put(
    (data, pending): (&Path, &Path),
    name: &OsStr,
    is_told: bool,
    fill: impl FnOnce(&Path) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let log = data.join(LOG);
    fill(&log.join(name))?;
    let waits = pending.join(TAKEN).join(STATUS).join(with(name, READY));
    if is_told && !waits.exists() && log.join(STATUS).is_dir() {
        let path = log.join(STATUS).join(with(name, DONE));
        File::create(&path).doing("create", &path)?;
    }
    Ok(())
}

/// Puts the segments of an earlier state back, as they were kept.
pub(super) fn put_kept(data: &Path, pending: &Path, kept: &Path) -> Result<(), SnapshotError> {
    let taken = kept.join(TAKEN);
    for name in segments(&taken)? {
        let status = taken.join(STATUS);
        let is_told = [READY, DONE].iter();
        let is_told = is_told
            .clone()
            .any(|end| status.join(with(&name, end)).exists());
        put((data, pending), &name, is_told, |at| {
            copy(&taken.join(&name), at)
        })?;
    }
    Ok(())
}

/// Gives the server the segments that it has not archived yet. They are of the old timeline, and a
/// server that has recovered does not read them.
pub(super) fn return_unarchived(data: &Path, pending: &Path) -> Result<(), SnapshotError> {
    let (log, taken) = (data.join(LOG), pending.join(TAKEN));
    for status in segments(&taken.join(STATUS))? {
        let Some(name) = status.as_bytes().strip_suffix(READY.as_bytes()) else {
            continue;
        };
        let name = OsStr::from_bytes(name);
        let from = taken.join(name);
        if from.is_file() {
            let to = log.join(name);
            // A segment that is there is one of the state that the cluster went to.
            if !to.exists() {
                copy(&from, &to)?;
            }
            let path = log.join(STATUS).join(&status);
            File::create(&path).doing("create", &path)?;
        }
    }
    Ok(())
}

fn with(name: &OsStr, end: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(end);
    name
}

/// Copies a file over another one. They share no block: the server uses one of them again.
fn copy(from: &Path, to: &Path) -> Result<(), SnapshotError> {
    let partial = to.with_file_name(with(to.file_name().unwrap_or_default(), ".windlass"));
    write_apart(from, &partial).map_err(|error| {
        let (action, at) = failed_at(&error, ("copy", from), &partial);
        SnapshotError::io(action, at, error)
    })?;
    windlass_engine::durable::rename(&partial, to).doing("rename", &partial)
}

fn write_apart(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = open_regular(from)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true);
    let mut copy = options.mode(PRIVATE_MODE).open(to)?;
    copy.set_permissions(source.metadata()?.permissions())?;
    apart::copy(&mut source, &mut copy)?;
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<OsString>, SnapshotError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing("list", directory)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.doing("list", directory)?.file_name());
    }
    Ok(names)
}

/// The segments in a directory, or their statuses.
fn segments(directory: &Path) -> Result<Vec<OsString>, SnapshotError> {
    let mut names = names(directory)?;
    names.retain(|name| is_segment(name.as_bytes()));
    names.sort();
    Ok(names)
}

/// Fails if there is no room for the segment that a recovery begins.
pub(super) fn check_room(data: &Path, segment_bytes: u64) -> Result<(), SnapshotError> {
    let log = data.join(LOG);
    match free_bytes(&log).doing("inspect", &log)? < segment_bytes {
        true => Err(Error::from(ErrorKind::StorageFull)).doing("begin a segment in", &log),
        false => Ok(()),
    }
}

/// Moves all segments of a directory into another one.
fn move_all(from: &Path, to: &Path) -> Result<(), SnapshotError> {
    for name in segments(from)? {
        let (from, to) = (from.join(&name), to.join(&name));
        match rustix::fs::rename(&from, &to) {
            // pg_wal may be on a disk of its own.
            Err(Errno::XDEV) => {
                copy(&from, &to)?;
                File::open(&to)
                    .and_then(|file| file.sync_all())
                    .doing("sync", &to)?;
                std::fs::remove_file(&from).doing("remove", &from)?;
            }
            renamed => renamed.doing("rename", &from)?,
        }
    }
    if to.is_dir() {
        directory::sync(to)?;
    }
    Ok(())
}

fn rename_directory(from: &Path, to: &Path) -> Result<(), SnapshotError> {
    windlass_engine::durable::rename(from, to).doing("rename", from)
}

#[cfg(test)]
mod tests {
    use windlass_sqlite::SharedExtents;
    use windlass_testkit::volume::{Volume, VolumeKind};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_segment_that_comes_back_shares_no_block_with_the_kept_one() {
        let volume = Volume::new(VolumeKind::Xfs, 400);
        let [kept, back] = ["kept", "back"].map(|name| volume.at().join(name));
        let content = vec![7_u8; 1 << 20];
        std::fs::write(&kept, &content).unwrap();
        copy(&kept, &back).unwrap();
        assert_eq!(std::fs::read(&back).unwrap(), content);
        let [one, other] = [&kept, &back].map(|path| File::open(path).unwrap());
        let mut shared = SharedExtents::of(&one, &other).unwrap();
        assert!(!shared.cover(0, 4096));
    }

    #[test]
    fn a_recovery_has_room_for_a_segment_before_it_begins() {
        // A file system in memory may say that it has no limit.
        let data = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(data.path().join(LOG)).unwrap();
        check_room(data.path(), 0).unwrap();
        let error = check_room(data.path(), u64::MAX).unwrap_err();
        let is_full = matches!(&error, SnapshotError::Io { path, source, .. }
            if source.kind() == ErrorKind::StorageFull && path.ends_with(LOG));
        assert!(is_full, "{error}");
    }
}
