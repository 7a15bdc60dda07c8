//! Whether somebody else changed the files of snapshots while no server ran, as the hook asks when
//! the next one starts. Until then only readers can.
//!
//! A running server changes its files all the time, so nobody asks then.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use windlass_engine::media::{fitted, saturated};
use windlass_image::layout::hook::{
    FileKey, FileTimes, Memory, Moment, PAGED_DEPTH_MAX, PAGED_DIRECTORIES, PLACES_NAME, Phase,
    SAVED_DIRECTORY, SAVED_IN_TABLESPACE, SNAPSHOTS_MAX, Snapshot, has_other_clock, is_own_change,
    last_change,
};

use super::control::{Control, identity, key_of};
use super::error::{HookError, HookIo};

/// The time by the clock that file systems use.
pub(super) fn now() -> Moment {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(Moment::default(), |now| {
        Moment::new(fitted(now.as_secs()), now.subsec_nanos())
    })
}

/// What somebody else changed.
#[derive(Debug)]
pub(super) enum Changed {
    /// A file by its name in the data directory.
    Named(PathBuf),
    /// A file that has only the name that a snapshot gave it. That means nothing to anybody.
    Kept(FileKey),
    /// Files that have no name any more.
    Gone(HashSet<FileKey>),
}

impl Changed {
    /// In words. `name` knows the first of some files in a snapshot, by its name in the data
    /// directory.
    pub(super) fn words(
        &self,
        name: impl Fn(&dyn Fn(FileKey) -> bool) -> Option<String>,
    ) -> String {
        let (known, what) = match self {
            Self::Named(path) => (Some(path.display().to_string()), "changed"),
            Self::Kept(key) => (name(&|other| other == *key), "changed"),
            Self::Gone(keys) => (name(&|other| keys.contains(&other)), "removed"),
        };
        match (known, self) {
            (Some(path), Self::Gone(keys)) if keys.len() > 1 => {
                format!("{path} and other files were {what} without the hook")
            }
            (Some(path), _) => format!("{path} was {what} without the hook"),
            (None, _) => format!("files of the data directory were {what} without the hook"),
        }
    }
}

/// What somebody else changed; `None` if nobody did, or if a server runs.
pub(super) fn changed(control: &Control) -> Option<Changed> {
    let memory = control.memory();
    let watched = watched(memory);
    if watched.is_empty() || control.serves() {
        return None;
    }
    let mut walk = Walk {
        data: control.data(),
        memory,
        last: last_change(memory),
        watched,
    };
    let own = PAGED_DIRECTORIES.iter().map(|place| walk.data.join(place));
    let own: Vec<_> = own.collect();
    let found = own
        .iter()
        .find_map(|place| walk.directory(place, PAGED_DEPTH_MAX));
    let found = match found {
        Some((path, _)) => {
            let path = path.strip_prefix(walk.data).unwrap_or(&path);
            Some(Changed::Named(path.to_owned()))
        }
        None => walk.links().map(Changed::Kept),
    };
    if found.is_some() {
        return found;
    }
    let is_gone = !walk.watched.is_empty();
    // A server that has started meanwhile has asked itself.
    let is_gone = is_gone && !control.serves();
    is_gone.then_some(Changed::Gone(walk.watched))
}

fn watched(memory: Memory<'_>) -> HashSet<FileKey> {
    let entries = (0..SNAPSHOTS_MAX).filter_map(|index| Snapshot::at(memory, index));
    let kept = entries.filter(|snapshot| snapshot.state() == Phase::Active);
    let files = kept.flat_map(|snapshot| snapshot.files());
    let watched = files.filter(|file| file.is_watched);
    watched.map(|file| file.key).collect()
}

/// Whether an open file is as those left it who take part. `last` is their last change as of any
/// moment before.
pub(super) fn is_own(control: &Control, file: &File, last: Moment) -> std::io::Result<bool> {
    let times = times_of(&file.metadata()?);
    if times.changed <= last || is_own_change(control.memory(), last, &times) {
        return Ok(true);
    }
    let kind = rustix::fs::fstatfs(file).map_err(std::io::Error::from)?;
    #[allow(clippy::useless_conversion, reason = "the type differs by platform")]
    Ok(has_other_clock(i64::from(kind.f_type)) || control.serves())
}

fn times_of(found: &Metadata) -> FileTimes {
    FileTimes {
        key: key_of(found),
        changed: Moment::new(found.ctime(), saturated(found.ctime_nsec())),
        modified: Moment::new(found.mtime(), saturated(found.mtime_nsec())),
    }
}

struct Walk<'a> {
    data: &'a Path,
    memory: Memory<'a>,
    last: Moment,
    /// Files that were not met yet.
    watched: HashSet<FileKey>,
}

impl Walk<'_> {
    /// Looks at all files of a directory, and below it. Returns the first that somebody else
    /// changed.
    fn directory(&mut self, path: &Path, depth: u32) -> Option<(PathBuf, FileKey)> {
        let listed = std::fs::read_dir(path).ok()?;
        let has_times = rustix::fs::statfs(path);
        #[allow(clippy::useless_conversion, reason = "the type differs by platform")]
        let has_times = has_times.is_ok_and(|it| !has_other_clock(i64::from(it.f_type)));
        for entry in listed.flatten() {
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let changed = match found.is_file() {
                true => {
                    let changed = self.file(&found, has_times);
                    changed.map(|key| (entry.path(), key))
                }
                false if depth > 0 && entry.file_name() != SAVED_IN_TABLESPACE => {
                    self.directory(&entry.path(), depth - 1)
                }
                false => None,
            };
            if changed.is_some() {
                return changed;
            }
        }
        None
    }

    fn file(&mut self, found: &Metadata, has_times: bool) -> Option<FileKey> {
        let times = times_of(found);
        if !self.watched.remove(&times.key) || !has_times {
            return None;
        }
        let is_own = is_own_change(self.memory, self.last, &times);
        (!is_own).then_some(times.key)
    }

    /// Looks at the files that have a name of a snapshot only.
    fn links(&mut self) -> Option<FileKey> {
        if self.watched.is_empty() {
            return None;
        }
        let own = format!("{}-", identity(self.data).ok()?);
        // Without the list, what is there is not met.
        let places = listed_places(self.data).into_iter().flatten();
        let places = std::iter::once(self.data.join(SAVED_DIRECTORY)).chain(places);
        for place in places {
            let Ok(listed) = std::fs::read_dir(&place) else {
                continue;
            };
            for entry in listed.flatten() {
                let name = entry.file_name();
                if name.as_bytes().starts_with(own.as_bytes())
                    && let Some((_, changed)) = self.directory(&entry.path(), 0)
                {
                    return Some(changed);
                }
            }
        }
        None
    }
}

/// The places that the hook cannot find itself: those beside tablespaces.
pub(super) fn listed_places(data: &Path) -> Result<Vec<PathBuf>, HookError> {
    let path = data.join(SAVED_DIRECTORY).join(PLACES_NAME);
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes.doing("read", &path)?,
    };
    let places = bytes.split(|byte| *byte == 0);
    let places = places.filter(|place| !place.is_empty());
    let places = places.map(|place| OsStr::from_bytes(place).into());
    Ok(places.collect())
}
