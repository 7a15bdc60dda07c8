//! Snapshots that outlive a power cut: what of them is on disk beside their pages.
//!
//!   publish --> copies, log, document --> sync the file systems --> index saved: it is durable
//!
//! The hook finds the saved index when the system has started again, before the server changes its
//! first page. docs/decisions/0020-durable-snapshots.md says why that is right.
//!
//! Invariants
//! - A saved index is removed, and that is durable, before anything of its snapshot becomes wrong.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windlass_engine::durable;
use windlass_engine::media::crc32c;
use windlass_image::layout::hook::{
    FILE_WORDS, FileKey, Memory, PLACES_NAME, Phase, SAVED_DIRECTORIES_MAX, SAVED_DIRECTORY,
    SAVED_HEADER_BYTES, SNAPSHOTS_MAX, STAMP_BYTES, STAMP_NAME, SavedDirectory, SavedHeader,
    Snapshot, Stamp, is_durable, saved_name,
};

use super::control::key_of;
use super::error::{HookError, HookIo};
use super::homes;
use super::locked::Locked;
use super::store::PreservedPages;
use super::unnamed;
use super::untouched;

const PRIVATE_MODE: u32 = 0o600;

/// How a durable snapshot is found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Durable {
    /// What tells it from every other.
    tag: u64,
    /// Its place in the table of the memory.
    place: u32,
}

impl Durable {
    /// That of a snapshot; `None` if it is not durable.
    pub(crate) fn of(snapshot: &Snapshot<'_>) -> Option<Self> {
        snapshot.is_durable().then(|| Self {
            tag: snapshot.tag(),
            place: snapshot.index(),
        })
    }

    /// Whether the snapshot with this number is the one that is meant.
    pub(crate) fn is_in(&self, memory: Memory<'_>, number: u32) -> bool {
        Snapshot::numbered(memory, number).is_some_and(|it| it.tag() == self.tag)
    }

    /// Whether its index is saved in this data directory.
    pub(crate) fn is_saved(&self, data: &Path) -> bool {
        let mut bytes = [0; SAVED_HEADER_BYTES];
        let file = File::open(path_of(data, self.place));
        let read = file.and_then(|mut file| file.read_exact(&mut bytes));
        let found = read.ok().and_then(|()| SavedHeader::decode(&bytes));
        found.is_some_and(|header| header.tag == self.tag)
    }

    /// Removes its saved index, so that it never comes back.
    pub(crate) fn forget(&self, data: &Path) -> Result<(), HookError> {
        match self.is_saved(data) {
            true => removed(data, self.place),
            false => Ok(()),
        }
    }
}

fn path_of(data: &Path, place: u32) -> PathBuf {
    let name = saved_name(place);
    let name = std::ffi::OsStr::from_bytes(&name);
    data.join(SAVED_DIRECTORY).join(name)
}

/// Removes the saved index at a place of the table.
pub(crate) fn removed(data: &Path, place: u32) -> Result<(), HookError> {
    let path = path_of(data, place);
    durable::if_there(std::fs::remove_file(&path)).doing("remove", &path)?;
    // Whoever removed it before may not have synced the directory yet.
    match durable::sync_parent(&path) {
        Err(error) if durable::is_absent(&error) => Ok(()),
        synced => synced.doing("sync the directory of", &path),
    }
}

/// Removes the saved indexes of a snapshot and all older ones. Call it before they are lost: a
/// power cut would bring back what has not all its pages any more.
pub(crate) fn forget_from(data: &Path, newest: Option<Snapshot<'_>>) -> Result<(), HookError> {
    let chain = std::iter::successors(newest, Snapshot::older).take(SNAPSHOTS_MAX as usize);
    let mut saved = chain.filter(Snapshot::is_durable);
    saved.try_for_each(|snapshot| removed(data, snapshot.index()))
}

/// The same for all snapshots.
pub(crate) fn forget_all(data: &Path, memory: Memory<'_>) -> Result<(), HookError> {
    let newest = memory.newest().checked_sub(1);
    forget_from(data, newest.and_then(|index| Snapshot::at(memory, index)))
}

/// The same for one, where nobody can be told of an error. Whoever has to know that it is gone
/// called `removed` before.
pub(crate) fn forget(data: &Path, place: u32) {
    removed(data, place).unwrap_or_default();
}

/// A number for a new snapshot: 0 if it is not to be durable. Call it before the snapshot is
/// published.
pub(crate) fn tag(locked: &Locked<'_>, durable: bool) -> Result<u64, HookError> {
    if !durable {
        return Ok(0);
    }
    if !is_durable(locked.memory()) {
        // Nobody has kept it up to date since the last durable snapshot.
        let path = stamp_path(locked.control().data());
        durable::if_there(std::fs::remove_file(&path)).doing("remove", &path)?;
    }
    Ok(uuid::Uuid::new_v4().as_u64_pair().0 | 1)
}

fn stamp_path(data: &Path) -> PathBuf {
    data.join(SAVED_DIRECTORY).join(STAMP_NAME)
}

/// Says on disk what pg_control is and what it is about to become. No server runs.
pub(crate) fn write_stamp(data: &Path, stamp: Stamp) -> Result<(), HookError> {
    let path = stamp_path(data);
    durable::write(&path, &stamp.encode(), PRIVATE_MODE).doing("write", &path)
}

/// Says on disk that Windlass changed names of files. No server runs.
pub(crate) fn move_stamp(data: &Path) -> Result<(), HookError> {
    let mut bytes = [0; STAMP_BYTES];
    let file = File::open(stamp_path(data));
    let read = file.and_then(|mut file| file.read_exact(&mut bytes));
    let Some(stamp) = read.ok().and_then(|()| Stamp::decode(&bytes)) else {
        return Ok(());
    };
    let moved = Stamp {
        at: untouched::now(),
        is_last: true,
        ..stamp
    };
    write_stamp(data, moved)
}

/// Removes the files of durable snapshots that are no longer there or cannot be read any more, and
/// what killed controllers left of them. Whoever lost one may not have been able to.
pub(crate) fn sweep(locked: &Locked<'_>) -> Result<(), HookError> {
    let mut kept: Vec<PathBuf> = Vec::new();
    let data = locked.control().data();
    let is_whole = |it: &Snapshot<'_>| it.is_durable() && it.state() == Phase::Active;
    for snapshot in locked.snapshots().filter(is_whole) {
        kept.push(path_of(data, snapshot.index()));
    }
    if is_durable(locked.memory()) {
        kept.push(stamp_path(data));
    }
    let place = data.join(SAVED_DIRECTORY);
    if locked.snapshots().next().is_some() {
        kept.push(place.join(PLACES_NAME));
        kept.push(homes::path_of(data));
        kept.push(unnamed::path_of(data));
    }
    let listed = match std::fs::read_dir(&place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        listed => listed.doing("list", &place)?,
    };
    let mut removed = None;
    for entry in listed {
        let entry = entry.doing("list", &place)?;
        let path = entry.path();
        let is_file = entry.file_type().doing("examine", &path)?.is_file();
        if is_file && !kept.contains(&path) {
            std::fs::remove_file(&path).doing("remove", &path)?;
            removed = Some(path);
        }
    }
    removed.map_or(Ok(()), |path| {
        durable::sync_parent(&path).doing("sync the directory of", &path)
    })
}

/// Makes a published snapshot durable. Everything that belongs to it is written by now, and whoever
/// wrote to the database without seeing it has left the call.
pub(crate) fn keep(
    locked: &Locked<'_>,
    snapshot: &Snapshot<'_>,
    (links, directory): (&[PathBuf], &Path),
) -> Result<(), HookError> {
    let data = locked.control().data();
    stamp(locked)?;
    let store = PreservedPages::path_of(locked.memory()).unwrap_or_default();
    let places = [data, directory, store.as_path()].into_iter();
    sync(places.chain(links.iter().map(PathBuf::as_path)))?;
    let page_bytes = locked.memory().page_bytes();
    let found = std::fs::metadata(data).doing("examine", data)?;
    let of = (key_of(&found), page_bytes);
    let bytes = encoded(snapshot, links, (&store, of))?;
    let path = path_of(data, snapshot.index());
    durable::write(&path, &bytes, PRIVATE_MODE).doing("write", &path)
}

/// Makes the stamp of pg_control, unless the server has written one meanwhile: its is newer.
fn stamp(locked: &Locked<'_>) -> Result<(), HookError> {
    let path = stamp_path(locked.control().data());
    let unnamed = path.with_extension("new");
    let crc = locked.memory().control_crc();
    let stamp = Stamp {
        before: crc,
        after: crc,
        at: untouched::now(),
        is_last: false,
    };
    // A killed controller may have left it.
    durable::if_there(std::fs::remove_file(&unnamed)).doing("remove", &unnamed)?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE_MODE)
        .open(&unnamed);
    let written = file.and_then(|mut file| {
        file.write_all(&stamp.encode())?;
        file.sync_all()
    });
    written.doing("write", &unnamed)?;
    match std::fs::hard_link(&unnamed, &path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        linked => linked.doing("create", &path)?,
    }
    std::fs::remove_file(&unnamed).doing("remove", &unnamed)
}

/// Makes everything durable that was written to these file systems: links, copies, the store, and
/// the pages that the server wrote before the snapshot.
fn sync<'a>(places: impl Iterator<Item = &'a Path>) -> Result<(), HookError> {
    let mut devices = BTreeSet::new();
    for path in places {
        let file = File::open(path).doing("open", path)?;
        let device = file.metadata().doing("examine", path)?.dev();
        if devices.insert(device) {
            let synced = rustix::fs::syncfs(&file).map_err(std::io::Error::from);
            synced.doing("sync the file system of", path)?;
        }
    }
    Ok(())
}

/// The bytes of a saved index.
fn encoded(
    snapshot: &Snapshot<'_>,
    links: &[PathBuf],
    (store, (data, page_bytes)): (&Path, (FileKey, u32)),
) -> Result<Vec<u8>, HookError> {
    let directories = u32::try_from(links.len()).map_err(|_| HookError::TooLarge)?;
    let [(_, words), (_, cells)] = snapshot.extents();
    let mut body = Vec::new();
    for path in links {
        let found = std::fs::metadata(path).doing("examine", path)?;
        let saved = SavedDirectory::new(key_of(&found).device, path.as_os_str().as_bytes());
        body.extend(saved.ok_or(HookError::TooLarge)?.encode());
    }
    for word in 0..words {
        body.extend(snapshot.index_word(word).to_le_bytes());
    }
    let too_large = || HookError::TooLarge;
    let number = |value: u64| u32::try_from(value).map_err(|_| too_large());

    let header = SavedHeader {
        number: snapshot.number(),
        tag: snapshot.tag(),
        records: number(words / FILE_WORDS as u64)?,
        cells: number(cells)?,
        limits: snapshot.limits(),
        page_bytes,
        directories: (directories <= SAVED_DIRECTORIES_MAX)
            .then_some(directories)
            .ok_or_else(too_large)?,
        body_crc: crc32c(&body),
        data,
        store: SavedHeader::path(store.as_os_str().as_bytes()).ok_or_else(too_large)?,
    };
    let mut bytes = header.encode().to_vec();
    bytes.append(&mut body);
    Ok(bytes)
}
