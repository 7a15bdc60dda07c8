//! Which directories have had an entry for a snapshot of a cluster: a note in the data directory.
//!
//!   /srv/main --> /big/main     the data directory was moved, and a link has its old name
//!   /srv/main.windlass-snapshots/     entries from before
//!   /big/main.windlass-snapshots/     where entries come now
//!   /big/main/pg_subtrans/windlass/homes     names both
//!
//! The server has its snapshots by the number of the data directory's inode, and the entries lie
//! beside its path. So a snapshot without an entry beside the path of today is not gone.
//!
//! Invariants
//! - A directory is noted before a snapshot has its entry there.
//! - The note goes with the last snapshot (`durable::sweep`).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use windlass_engine::{durable, read_regular_at_most};
use windlass_image::layout::hook::SAVED_DIRECTORY;

use super::control::Control;
use super::error::{HookError, HookIo};

const NAME: &str = "homes";
const PRIVATE_MODE: u32 = 0o600;
/// A note is far smaller. The server's user can write it, and root reads it.
const BYTES_MAX: u64 = 1024 * 1024;

/// A directory with entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Home {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// When it was made, in nanoseconds since 1970, if the file system knows. A file system gives
    /// the number of a directory that is gone to another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<u64>,
}

impl Home {
    /// The directory that has this name now; `None` if there is none.
    fn at(path: &Path) -> Option<Self> {
        let found = path.metadata().ok()?;
        Some(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            born: found.created().ok().and_then(nanoseconds),
        })
    }

    /// Whether it is the same directory. A device may have another number after a start of the
    /// system.
    fn is(&self, other: &Self) -> bool {
        match (self.born, other.born) {
            (Some(one), Some(another)) => (self.inode, one) == (other.inode, another),
            _ => (self.device, self.inode) == (other.device, other.inode),
        }
    }
}

fn nanoseconds(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// Where the entries of a cluster's snapshots may be.
#[derive(Debug)]
pub(crate) struct Homes {
    /// Those that are there.
    pub(crate) there: Vec<PathBuf>,
    /// Those that are not where they were.
    pub(crate) missing: Vec<PathBuf>,
    /// Whether any was noted. An older version of Windlass noted none.
    pub(crate) is_noted: bool,
}

impl Homes {
    /// Of the cluster in a data directory, with the directory beside its path of today.
    pub(crate) fn of(data: &Path, today: &Path) -> Result<Self, HookError> {
        let noted = read(data)?;
        let now = Home::at(today);
        let is_today = |home: &Home| now.as_ref().is_some_and(|now| now.is(home));
        let is_there = |home: &Home| Home::at(&home.path).is_some_and(|found| found.is(home));
        let mut homes = Self {
            there: vec![today.to_owned()],
            missing: Vec::new(),
            is_noted: !noted.is_empty(),
        };
        for home in noted.into_iter().filter(|home| !is_today(home)) {
            match is_there(&home) {
                true => homes.there.push(home.path),
                false => homes.missing.push(home.path),
            }
        }
        Ok(homes)
    }

    /// Whether a snapshot that has an entry in none of them has none.
    pub(crate) fn are_all(&self) -> bool {
        self.is_noted && self.missing.is_empty()
    }
}

/// Directories beside older paths of a data directory that may have entries of its snapshots.
pub(crate) fn homes_before(data: &Path, today: &Path) -> Result<Vec<PathBuf>, HookError> {
    let mut there = Homes::of(data, today)?.there;
    there.retain(|home| home != today);
    Ok(there)
}

/// Directories that had entries of a cluster's snapshots, and that are not where they were.
pub(crate) fn homes_missing(data: &Path, today: &Path) -> Result<Vec<PathBuf>, HookError> {
    Ok(Homes::of(data, today)?.missing)
}

/// Forgets a directory that had entries, all of which are gone. Call it before the directory goes.
pub(crate) fn forget_home(data: &Path, home: &Path) -> Result<(), HookError> {
    // Whoever makes a snapshot notes its home under this lock.
    let control = Control::open_any(data)?;
    let _alone = control.as_ref().map(Control::lock).transpose()?;
    let mut noted = read(data)?;
    let count = noted.len();
    // One that was moved away may have had the same name.
    let now = Home::at(home);
    noted.retain(|known| !now.as_ref().is_some_and(|now| now.is(known)));
    match noted.len() == count {
        true => Ok(()),
        false => write(data, &noted),
    }
}

/// The note of the cluster in a data directory.
pub(crate) fn path_of(data: &Path) -> PathBuf {
    data.join(SAVED_DIRECTORY).join(NAME)
}

/// Notes that a snapshot is about to have its entry in a directory.
pub(crate) fn note(data: &Path, home: &Path) -> Result<(), HookError> {
    let Some(now) = Home::at(home) else {
        return Ok(());
    };
    let mut noted = read(data)?;
    if noted.contains(&now) {
        return Ok(());
    }
    // It may have been moved together with the data directory.
    noted.retain(|home| !home.is(&now));
    noted.push(now);
    write(data, &noted)
}

fn write(data: &Path, noted: &[Home]) -> Result<(), HookError> {
    let path = path_of(data);
    let bytes = serde_json::to_vec(noted).map_err(|error| fault(&path, &error))?;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).doing("create", parent)?;
    }
    durable::write(&path, &bytes, PRIVATE_MODE).doing("write", &path)
}

fn read(data: &Path) -> Result<Vec<Home>, HookError> {
    let path = path_of(data);
    match read_regular_at_most(&path, BYTES_MAX) {
        Err(error) if durable::is_absent(&error) => Ok(Vec::new()),
        bytes => {
            let bytes = bytes.doing("read", &path)?;
            serde_json::from_slice(&bytes).map_err(|error| fault(&path, &error))
        }
    }
}

fn fault(path: &Path, error: &serde_json::Error) -> HookError {
    HookError::Document {
        path: path.to_owned(),
        what: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_got_the_number_of_another_one_is_not_that() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path()).unwrap();
        assert!(home.is(&home));
        // As after a start of the system, and after the old one was removed.
        let device = home.device + 1;
        let born = home.born.map(|born| born + 1);
        assert_eq!(
            home.is(&Home {
                device,
                ..home.clone()
            }),
            born.is_some()
        );
        assert!(
            !home.is(&Home {
                born,
                ..home.clone()
            }) || born.is_none()
        );
        let (device, older) = (home.device + 1, None);
        assert!(home.is(&Home {
            born: older,
            ..home.clone()
        }));
        assert!(!home.is(&Home {
            born: older,
            device,
            ..home.clone()
        }));
    }

    #[test]
    fn a_pipe_in_the_place_of_the_note_is_an_error_and_no_wait() {
        let place = tempfile::tempdir().unwrap();
        let path = path_of(place.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        assert!(read(place.path()).is_err());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn forgetting_a_home_forgets_none_that_had_its_name_and_was_moved_away() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (data, home) = (at("data"), at("home"));
        std::fs::create_dir(&home).unwrap();
        note(&data, &home).unwrap();
        std::fs::rename(&home, at("away")).unwrap();
        std::fs::create_dir(&home).unwrap();
        note(&data, &home).unwrap();
        assert_eq!(read(&data).unwrap().len(), 2);
        forget_home(&data, &home).unwrap();
        assert_eq!(homes_missing(&data, &at("today")).unwrap(), [home]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_home_is_known_by_what_it_is_and_missed_if_another_one_has_its_name() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (old, new) = (at("old"), at("new"));
        std::fs::create_dir(&old).unwrap();
        let data = at("data");
        assert!(!Homes::of(&data, &old).unwrap().are_all(), "none is noted");
        note(&data, &old).unwrap();
        note(&data, &old).unwrap();
        assert_eq!(read(&data).unwrap().len(), 1);
        // The data directory has another path now.
        std::fs::create_dir(&new).unwrap();
        let homes = Homes::of(&data, &new).unwrap();
        assert!(homes.are_all());
        assert_eq!(homes.there, [new.clone(), old.clone()]);
        // Its home was moved with it.
        std::fs::remove_dir(&new).unwrap();
        std::fs::rename(&old, &new).unwrap();
        let homes = Homes::of(&data, &new).unwrap();
        assert!(homes.are_all());
        assert_eq!(homes.there, std::slice::from_ref(&new));
        note(&data, &new).unwrap();
        assert_eq!(read(&data).unwrap().len(), 1);
        // Somebody put another one in its place.
        std::fs::rename(&new, &old).unwrap();
        std::fs::create_dir(&new).unwrap();
        let homes = Homes::of(&data, &new).unwrap();
        assert!(!homes.are_all());
        assert_eq!(homes.missing, [new]);
    }
}
