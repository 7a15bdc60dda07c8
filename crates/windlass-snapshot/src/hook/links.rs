//! Hard links to the files of a snapshot: they keep each file when the server removes its name, and
//! the number of its inode from being used again.
//!
//! They are where the files are, because a link cannot leave its file system:
//!
//!   data directory   pg_subtrans/windlass/ID-NUMBER/     tablespace   LOCATION/windlass/ID-NUMBER/
//!
//! PostgreSQL and its tools leave out what pg_subtrans holds, and what a tablespace's directory
//! holds beside that of the server's version. So does a backup of this program.
//!
//! A snapshot of many files makes no links. There the hook links a file before the server removes
//! its name, into a graveyard beside these directories (`graves`).

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, linkat, open, statat, unlinkat};
use rustix::io::Errno;
use windlass_engine::durable;
use windlass_image::layout::hook::{
    FileKey, FileLink, PLACES_NAME, SAVED_DIRECTORY, SAVED_IN_TABLESPACE,
};

use super::control::{identity, key_of};
use super::error::{HookError, HookIo};
use super::examined::examine;
use super::graves;
use super::untouched::listed_places;

const PRIVATE_MODE: u32 = 0o600;
const IN_DATA: &str = SAVED_DIRECTORY;
const TABLESPACES: &str = "pg_tblspc";

/// The links of a snapshot that is being made. They are removed unless it is kept.
pub(crate) struct Links {
    data: PathBuf,
    name: String,
    directories: Vec<Directory>,
    graves: Vec<Grave>,
    /// The hook makes the links.
    is_late: bool,
    /// The directory of each link, by the link's name.
    made: Vec<usize>,
    is_kept: bool,
}

struct Grave {
    base: PathBuf,
    path: PathBuf,
    device: u32,
}

struct Directory {
    /// Where the files that go here are: the data directory, or a tablespace's link.
    base: PathBuf,
    path: PathBuf,
    handle: OwnedFd,
}

/// How a file is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// By a link of the snapshot.
    Link {
        /// Which directory of links.
        directory: usize,
        /// The link's name there.
        name: u32,
    },
    /// By its own name, and by one in a graveyard when it loses that.
    Name {
        /// When the file was made, in nanoseconds. Another file may get the number of its inode if
        /// somebody removes it without the hook.
        born: i64,
    },
}

/// A file that is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linked {
    pub(crate) pin: Pin,
    pub(crate) key: FileKey,
    pub(crate) bytes: u64,
}

impl Linked {
    /// Whether a link of the snapshot keeps it.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self.pin, Pin::Link { .. })
    }

    /// The link, as an index names it.
    pub(crate) fn link(&self) -> Result<FileLink, HookError> {
        let Pin::Link { directory, name } = self.pin else {
            return Ok(FileLink::NONE);
        };
        let directory = u32::try_from(directory).map_err(|_| HookError::TooLarge)?;
        Ok(FileLink { directory, name })
    }
}

impl Links {
    /// The links of the snapshot with this number. `data` is the data directory.
    pub(crate) fn new(data: &Path, number: u32) -> Result<Self, HookError> {
        Ok(Self {
            data: data.into(),
            name: format!("{}-{number}", identity(data)?),
            directories: Vec::new(),
            graves: Vec::new(),
            is_late: false,
            made: Vec::new(),
            is_kept: false,
        })
    }

    /// Leaves it to the hook to make the links, as far as that is possible.
    pub(crate) fn late(&mut self) {
        self.is_late = true;
    }

    /// Keeps a file. `path` is its path below the data directory. `None` if the file is gone.
    pub(crate) fn pin(&mut self, path: &[u8]) -> Result<Option<Linked>, HookError> {
        if !self.is_late {
            return self.link(path);
        }
        let relative = Path::new(OsStr::from_bytes(path));
        let device = self.grave_device(relative)?;
        let source = self.data.join(relative);
        match examine(&source)? {
            None => Ok(None),
            Some(found) if found.key.device == device && found.born != 0 => Ok(Some(Linked {
                pin: Pin::Name { born: found.born },
                key: found.key,
                bytes: found.bytes,
            })),
            // It can only be linked now, if at all.
            Some(_) => self.link(path),
        }
    }

    /// The device of the graveyard for a file. It is made if there is none yet.
    fn grave_device(&mut self, relative: &Path) -> Result<u32, HookError> {
        let base = base_of(relative);
        let known = self.graves.iter().find(|grave| grave.base == base);
        if let Some(known) = known {
            return Ok(known.device);
        }
        let path = graves::path_in(&place(&self.data, &base)?, &self.data)?;
        make_directory(&path)?;
        let device = key_of(&std::fs::metadata(&path).doing("examine", &path)?).device;
        self.graves.push(Grave { base, path, device });
        Ok(device)
    }

    /// The graveyards that files may come to.
    pub(crate) fn graves(&self) -> Vec<PathBuf> {
        self.graves.iter().map(|grave| grave.path.clone()).collect()
    }

    /// Links a file.
    fn link(&mut self, path: &[u8]) -> Result<Option<Linked>, HookError> {
        let relative = Path::new(OsStr::from_bytes(path));
        let source = self.data.join(relative);
        let directory = self.directory(relative)?;
        let handle = &self.directories[directory].handle;
        let name = u32::try_from(self.made.len()).map_err(|_| HookError::TooLarge)?;
        self.made.push(directory);
        let link = name.to_string();
        // The kernel would link a link itself.
        match linkat(CWD, &source, handle, &link, AtFlags::SYMLINK_FOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            linked => linked.map_err(|errno| HookError::Link {
                path: source.clone(),
                source: errno.into(),
            })?,
        }
        let found = statat(handle, &link, AtFlags::SYMLINK_NOFOLLOW);
        let found = found
            .map_err(std::io::Error::from)
            .doing("examine", &source)?;
        let (key, bytes) = told(&found)?;
        Ok(Some(Linked {
            pin: Pin::Link { directory, name },
            key,
            bytes,
        }))
    }

    /// A file that is kept already, with the length that it has now. `None` if the path belongs
    /// to another file by now, or to none.
    pub(crate) fn again(
        &self,
        source: &Path,
        linked: &Linked,
    ) -> Result<Option<Linked>, HookError> {
        let found = examine(source)?.filter(|found| {
            let is_same = match linked.pin {
                Pin::Name { born } => found.born == born,
                Pin::Link { .. } => true,
            };
            found.key == linked.key && is_same
        });
        Ok(found.map(|found| Linked {
            bytes: found.bytes,
            ..*linked
        }))
    }

    /// Removes all links but these: nobody needs them, and they keep files that the server removed.
    pub(crate) fn leave(&self, needed: &HashSet<u32>) -> Result<(), HookError> {
        for (name, directory) in (0..).zip(&self.made) {
            if needed.contains(&name) {
                continue;
            }
            let Directory { handle, path, .. } = &self.directories[*directory];
            // One that was never made has a name, too.
            let removed = unlinkat(handle, name.to_string(), AtFlags::empty());
            let removed = durable::if_there(removed.map_err(std::io::Error::from));
            removed.doing("remove a link in", path)?;
        }
        Ok(())
    }

    /// The directory for the links of a file.
    fn directory(&mut self, relative: &Path) -> Result<usize, HookError> {
        let base = base_of(relative);
        let known = self.directories.iter();
        let mut known = known.map(|directory| &directory.base);
        if let Some(index) = known.position(|known| *known == base) {
            return Ok(index);
        }
        let path = place(&self.data, &base)?.join(&self.name);
        make_directory(&path)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = open(&path, flags, Mode::empty());
        let handle = handle.map_err(std::io::Error::from).doing("open", &path)?;
        self.directories.push(Directory { base, path, handle });
        Ok(self.directories.len() - 1)
    }

    /// Their directories, in the order of their numbers.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let directories = self.directories.iter();
        directories
            .map(|directory| directory.path.clone())
            .collect()
    }

    /// Tells the hook where they are, if it would not find them: a tablespace can be dropped.
    pub(crate) fn list_places(&self) -> Result<(), HookError> {
        let known = listed_places(&self.data)?;
        let mut places: BTreeSet<PathBuf> = known.iter().cloned().collect();
        let links = self.directories.iter().map(|directory| &directory.path);
        let graves = self.graves.iter().map(|grave| &grave.path);
        let parents = links.chain(graves).filter_map(|path| path.parent());
        let own = self.data.join(IN_DATA);
        places.extend(parents.filter(|place| *place != own).map(PathBuf::from));
        if places.len() == known.len() {
            return Ok(());
        }
        let bytes = places.iter().flat_map(|place| {
            let bytes = place.as_os_str().as_bytes();
            bytes.iter().copied().chain([0])
        });
        let bytes: Vec<u8> = bytes.collect();
        let path = own.join(PLACES_NAME);
        make_directory(&own)?;
        durable::write(&path, &bytes, PRIVATE_MODE).doing("write", &path)
    }

    /// Keeps the links.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        for directory in self.directories.drain(..) {
            // What cannot be removed now, the next controller removes.
            remove(&directory.path).unwrap_or_default();
        }
    }
}

fn make_directory(path: &Path) -> Result<(), HookError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let mut made = builder.create(path);
    // Another cluster in the same tablespace's directory may just have left it.
    if made.as_ref().is_err_and(durable::is_absent) {
        made = builder.create(path);
    }
    made.doing("create", path)
}

/// The key of a file and its length.
fn told(found: &Stat) -> Result<(FileKey, u64), HookError> {
    let (major, minor) = (
        rustix::fs::major(found.st_dev),
        rustix::fs::minor(found.st_dev),
    );
    let bytes = u64::try_from(found.st_size).map_err(|_| HookError::TooLarge)?;
    Ok((FileKey::new(major, minor, found.st_ino), bytes))
}

/// The part of the database that a file is in: a tablespace, or empty for the data directory.
fn base_of(relative: &Path) -> PathBuf {
    let mut parts = relative.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(first)), Some(second)) if first == TABLESPACES => {
            Path::new(TABLESPACES).join(second)
        }
        _ => PathBuf::new(),
    }
}

/// The directory for all links of the part of the database that a file is in.
pub(crate) fn place_of(data: &Path, relative: &Path) -> Result<PathBuf, HookError> {
    place(data, &base_of(relative))
}

/// The directory for all links of a part of the database.
fn place(data: &Path, base: &Path) -> Result<PathBuf, HookError> {
    let link = data.join(base);
    if base.as_os_str().is_empty() || !link.is_symlink() {
        return Ok(data.join(IN_DATA));
    }
    let location = link.canonicalize().doing("resolve", &link)?;
    Ok(location.join(SAVED_IN_TABLESPACE))
}

/// Removes a directory of links.
pub(crate) fn remove(path: &Path) -> Result<(), HookError> {
    let removed = durable::if_there(std::fs::remove_dir_all(path)).doing("remove", path)?;
    if removed.is_some() {
        leave_place_of(path);
    }
    Ok(())
}

/// Removes the place beside a tablespace from which a directory was removed, if nothing else is in
/// it: the tablespace may have been dropped, and nobody comes back.
pub(crate) fn leave_place_of(path: &Path) {
    let Some(place) = path.parent() else { return };
    if place.ends_with(SAVED_IN_TABLESPACE) && !place.ends_with(IN_DATA) {
        // What another snapshot or another cluster has in it keeps it.
        std::fs::remove_dir(place).unwrap_or_default();
    }
}

/// Removes the links of snapshots that are no longer there.
pub(crate) fn sweep(data: &Path, numbers: &BTreeSet<u32>) -> Result<(), HookError> {
    let identity = format!("{}-", identity(data)?);
    for place in places(data)? {
        for name in entries(&place)? {
            let text = name.to_string_lossy();
            let number = text
                .strip_prefix(&identity)
                .and_then(|rest| rest.parse().ok());
            if number.is_some_and(|number: u32| !numbers.contains(&number)) {
                remove(&place.join(&name))?;
            }
        }
    }
    Ok(())
}

/// Where the directories of links of a cluster are.
pub(crate) fn places(data: &Path) -> Result<BTreeSet<PathBuf>, HookError> {
    let mut places = BTreeSet::from([data.join(IN_DATA)]);
    for space in entries(&data.join(TABLESPACES))? {
        let base = Path::new(TABLESPACES).join(space);
        // A tablespace whose directory is gone has no links.
        if data.join(&base).exists() {
            places.insert(place(data, &base)?);
        }
    }
    Ok(places)
}

/// The names in a directory; none if there is no such directory.
pub(crate) fn entries(path: &Path) -> Result<Vec<std::ffi::OsString>, HookError> {
    let listed = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.doing("list", path)?,
    };
    let names = listed.map(|entry| entry.map(|entry| entry.file_name()));
    names.collect::<Result<_, _>>().doing("list", path)
}
