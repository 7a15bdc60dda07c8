//! The controller's view of the shared memory of a server with the hook.
//!
//! Locking: one controller works on a server at a time; `locked` waits for the others.

#![allow(
    unsafe_code,
    reason = "the shared memory is a mapping that other processes write to"
)]

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use windlass_image::layout::hook::{
    CONTROL_BYTES, CONTROL_DIRECTORY, FileKey, Memory, Waiter, is_blind,
};

use super::error::{HookError, HookIo};
use super::libraries::Libraries;
use crate::cluster::{CONTROL_ASIDE, CONTROL_PATH};

/// How long the controller waits for a process of the server to leave its call.
const GRACE_MAX: Duration = Duration::from_secs(20);
const TURNS_AWAKE: u32 = 50;
const TURN_PAUSE: Duration = Duration::from_micros(200);

/// The shared memory of a server.
#[derive(Debug)]
pub(crate) struct Control {
    pub(super) file: File,
    map: MmapRaw,
    path: PathBuf,
    data: PathBuf,
}

/// The key of a file.
pub(crate) fn key_of(found: &std::fs::Metadata) -> FileKey {
    let device = found.dev();
    FileKey::new(
        rustix::fs::major(device),
        rustix::fs::minor(device),
        found.ino(),
    )
}

/// Tells clusters apart that share a tablespace's directory.
pub(crate) fn identity(data: &Path) -> Result<String, HookError> {
    let found = std::fs::metadata(data).doing("examine", data)?;
    let name = key_of(&found).control_name();
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok(name.trim_start_matches("windlass-").to_owned())
}

impl Control {
    /// Where the memory of the server with this data directory is.
    pub(crate) fn path_of(data: &Path) -> Result<PathBuf, HookError> {
        let found = std::fs::metadata(data).doing("examine", data)?;
        let name = key_of(&found).control_name();
        let name = std::ffi::OsStr::from_bytes(&name);
        Ok(Path::new(CONTROL_DIRECTORY).join(name))
    }

    /// Opens the memory of the server with this data directory.
    pub(crate) fn open(data: &Path) -> Result<Self, HookError> {
        let path = Self::path_of(data)?;
        let absent = || HookError::NotLoaded { data: data.into() };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc_nofollow())
            .open(&path)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => absent(),
                _ => HookError::io("open", &path, error),
            })?;
        let found = file.metadata().doing("examine", &path)?;
        // Nobody had it, and it was removed while this waited to open it.
        if found.nlink() == 0 {
            return Err(absent());
        }
        // Everybody can make files in that directory. Root reads what the server's user made.
        let owner = std::fs::metadata(data).doing("examine", data)?.uid();
        if !found.is_file() || found.len() != CONTROL_BYTES || found.uid() != owner {
            return Err(HookError::Foreign { path });
        }
        let length = usize::try_from(CONTROL_BYTES).map_err(|_| absent())?;
        let map = MmapOptions::new().len(length).map_raw(&file);
        let control = Self {
            map: map.doing("map", &path)?,
            file,
            path,
            data: data.into(),
        };
        match control.memory().is_of_this_version() {
            true if control.is_of_another_cluster()? => Err(absent()),
            true => Ok(control),
            false => Err(HookError::Version { path: control.path }),
        }
    }

    /// The same; `None` if there is none, or if the data directory is gone, and the server with it.
    pub(crate) fn open_any(data: &Path) -> Result<Option<Self>, HookError> {
        match Self::open(data) {
            Ok(control) => Ok(Some(control)),
            Err(HookError::NotLoaded { .. }) => Ok(None),
            Err(HookError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the memory is that of another cluster, which had this data directory before, or one
    /// with its number on a disk that was in the place of this one. The first server on it makes
    /// the memory anew. While a revert is under way, pg_control has another name.
    fn is_of_another_cluster(&self) -> Result<bool, HookError> {
        let mut bytes = [0; 8];
        for name in [CONTROL_PATH, CONTROL_ASIDE] {
            let path = self.data.join(name);
            let read = File::open(&path).and_then(|mut file| file.read_exact(&mut bytes));
            match read {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                read => {
                    read.doing("read", &path)?;
                    let known = self.memory().cluster();
                    return Ok(known != 0 && known != u64::from_le_bytes(bytes));
                }
            }
        }
        Ok(false)
    }

    /// The words.
    pub(crate) fn memory(&self) -> Memory<'_> {
        let words: *const AtomicU32 = self.map.as_ptr().cast();
        // SAFETY: the mapping is as long as that and lives as long as `self`. All processes access
        // it through atomics. The file is never cut.
        let words = unsafe { std::slice::from_raw_parts(words, self.map.len() / 4) };
        Memory::new(words).unwrap_or_else(|| unreachable!("the length was checked"))
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The data directory of the server.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The inode of the file: another one after the system has started again.
    pub(crate) fn inode(&self) -> Result<u64, HookError> {
        Ok(self.file.metadata().doing("examine", &self.path)?.ino())
    }

    /// Fails unless the server runs now, and everything that every process of it writes goes
    /// through the hook.
    pub(crate) fn check_server(&self) -> Result<(), HookError> {
        self.check_libraries(&mut Libraries::default())
    }

    /// The same. The libraries that are known already are not looked into again.
    pub(super) fn check_libraries(&self, libraries: &mut Libraries) -> Result<(), HookError> {
        let data = || self.data.clone();
        let not_loaded = || HookError::NotLoaded { data: data() };
        let first = self.first_process()?.ok_or_else(not_loaded)?;
        let children = format!("/proc/{first}/task/{first}/children");
        let children = std::fs::read_to_string(&children).doing("read", Path::new(&children))?;
        let children = children.split_whitespace();
        let children = children.filter_map(|pid| pid.parse().ok());
        for pid in std::iter::once(first).chain(children) {
            match self.mapped_by(pid) {
                Some((false, _)) => return Err(not_loaded()),
                Some((true, maps)) => libraries.examine(pid, &maps)?,
                None => {}
            }
        }
        match is_blind(self.memory()) {
            // It has not begun to see, and perhaps never will.
            true if self.memory().first_process() != first => Err(not_loaded()),
            true => Err(HookError::Blind { data: data() }),
            false => Ok(()),
        }
    }

    /// Fails if the server has loaded a module whose writes the hook does not see. The server was
    /// checked before its checkpoint, which may take minutes.
    pub(super) fn check_seeing(&self) -> Result<(), HookError> {
        match is_blind(self.memory()) {
            true => Err(HookError::Blind {
                data: self.data.clone(),
            }),
            false => Ok(()),
        }
    }

    /// The server's first process, if one runs on the data directory.
    pub(crate) fn first_process(&self) -> Result<Option<u32>, HookError> {
        let path = self.data.join("postmaster.pid");
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.doing("read", &path)?,
        };
        let pid = text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        Ok(pid.filter(|pid| Path::new(&format!("/proc/{pid}")).exists()))
    }

    /// Whether a process has the memory, and its list of mappings; `None` if it has ended.
    ///
    /// The system gives the list of mappings in pieces. The list of a process that ends meanwhile
    /// stops in its middle, so a list without the memory counts only if there was a list after it.
    fn mapped_by(&self, pid: u32) -> Option<(bool, String)> {
        let shown = self.path.display().to_string();
        let list = || std::fs::read_to_string(format!("/proc/{pid}/maps")).ok();
        let found = list()?;
        if found.contains(&shown) {
            return Some((true, found));
        }
        let after = list()?;
        (!after.is_empty()).then(|| (after.contains(&shown), after))
    }

    /// Whether a server runs that writes through the hook, and that has looked at what there was
    /// before it.
    pub(crate) fn serves(&self) -> bool {
        let Ok(Some(first)) = self.first_process() else {
            return false;
        };
        first == self.memory().first_process() && self.mapped_by(first).is_some_and(|(is, _)| is)
    }
}

fn libc_nofollow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_else(|_| unreachable!("a flag"))
}

/// How the controller waits.
#[derive(Debug)]
pub(crate) struct Patience {
    most: Duration,
    until: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Self {
        Self::of(GRACE_MAX)
    }
}

impl Patience {
    /// Waits for no longer than this.
    pub(crate) fn of(most: Duration) -> Self {
        Self { most, until: None }
    }
}

impl Waiter for Patience {
    fn is_alive(&mut self, pid: u32) -> bool {
        pid != 0 && Path::new("/proc").join(pid.to_string()).exists()
    }

    fn wait(&mut self, turn: u32) -> bool {
        if turn == 0 {
            self.until = Some(Instant::now() + self.most);
        }
        if self.until.is_some_and(|until| Instant::now() > until) {
            return false;
        }
        match turn < TURNS_AWAKE {
            true => std::thread::yield_now(),
            false => std::thread::sleep(TURN_PAUSE),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A memory goes with its test.
    struct Made(PathBuf);

    impl Drop for Made {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).unwrap_or_default();
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn the_memory_of_another_cluster_is_none_also_while_a_revert_is_under_way() {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join("global")).unwrap();
        let made = Made(Control::path_of(data.path()).unwrap());
        let file = File::create_new(&made.0).unwrap();
        file.set_len(CONTROL_BYTES).unwrap();
        let control = Control::open(data.path());
        assert!(matches!(control, Err(HookError::Version { .. })));
        let length = usize::try_from(CONTROL_BYTES).unwrap();
        let control = Control {
            map: MmapOptions::new().len(length).map_raw(&file).unwrap(),
            file,
            path: made.0.clone(),
            data: data.path().into(),
        };
        control.memory().format(8192);
        control.memory().set_cluster(7);
        for name in [CONTROL_PATH, CONTROL_ASIDE] {
            let path = data.path().join(name);
            for (identity, is_own) in [(7_u64, true), (8, false)] {
                std::fs::write(&path, identity.to_le_bytes()).unwrap();
                let opened = Control::open(data.path());
                assert_eq!(opened.is_ok(), is_own, "{name}");
                let is_none = matches!(opened, Err(HookError::NotLoaded { .. }));
                assert_eq!(is_none, !is_own, "{name}");
            }
            std::fs::remove_file(&path).unwrap();
        }
        assert!(Control::open(data.path()).is_ok());
    }
}
