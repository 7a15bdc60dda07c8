//! Where an open file is within its file system, through whichever mount somebody opened it.
//!
//!   /proc/PID/fd/7      --> /mnt/data/shop.db (deleted)
//!   /proc/PID/fdinfo/7  --> mnt_id: 41
//!   /proc/PID/mountinfo --> 41 28 8:1 /srv /mnt/data ...      so it is /srv/shop.db of 8:1

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A file by its file system, as the system numbers that, and its path from the root of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    file_system: Vec<u8>,
    path: PathBuf,
}

impl Inside {
    /// What this process has open by this path.
    pub(super) fn of_own(file: &File, path: &Path) -> Option<Self> {
        Self::of("self", &file.as_raw_fd().to_string(), path)
    }

    /// What a process has open by this path. `None` if its mount cannot be found: it may have been
    /// unmounted.
    pub(super) fn of(process: &str, descriptor: &str, path: &Path) -> Option<Self> {
        let told = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).ok()?;
        let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
        let mounts = std::fs::read(format!("/proc/{process}/mountinfo")).ok()?;
        Mount::find(&mounts, id.trim().as_bytes())?.inside(path)
    }

    /// A file in this directory.
    pub(super) fn join(&self, name: &Path) -> Self {
        Self {
            file_system: self.file_system.clone(),
            path: self.path.join(name),
        }
    }
}

struct Mount {
    file_system: Vec<u8>,
    /// What of the file system is mounted.
    root: PathBuf,
    /// Where.
    point: PathBuf,
}

impl Mount {
    /// That with this number. A line is `id parent major:minor root point ...` (proc(5)).
    fn find(mounts: &[u8], id: &[u8]) -> Option<Self> {
        let mut lines = mounts.split(|byte| *byte == b'\n');
        lines.find_map(|line| {
            let mut words = line.split(|byte| *byte == b' ');
            if words.next() != Some(id) {
                return None;
            }
            let mut words = words.skip(1);
            Some(Self {
                file_system: words.next()?.to_owned(),
                root: unescaped(words.next()?),
                point: unescaped(words.next()?),
            })
        })
    }

    fn inside(self, path: &Path) -> Option<Inside> {
        let below = path.strip_prefix(&self.point).ok()?;
        Some(Inside {
            file_system: self.file_system,
            path: self.root.join(below),
        })
    }
}

/// A path of the list: a space, for example, is `\040` there.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, others)) = rest.split_first() {
        let digits = others
            .get(..3)
            .and_then(|digits| str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if *first == b'\\' => {
                bytes.push(code);
                rest = &others[3..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"\
        28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
        41 28 8:1 /srv/a\\040b /mnt/data rw - ext4 /dev/root rw\n\
        42 28 0:30 / /tmp rw - tmpfs tmpfs rw\n";

    fn inside(id: &str, path: &str) -> Option<(String, String)> {
        let found = Mount::find(MOUNTS, id.as_bytes())?.inside(path.as_ref())?;
        let file_system = String::from_utf8(found.file_system).unwrap();
        Some((file_system, found.path.display().to_string()))
    }

    #[test]
    fn a_file_has_one_place_in_its_file_system_through_all_mounts() {
        let place = ("8:1".to_owned(), "/srv/a b/shop.db".to_owned());
        assert_eq!(inside("28", "/srv/a b/shop.db"), Some(place.clone()));
        assert_eq!(inside("41", "/mnt/data/shop.db"), Some(place));
        assert_eq!(inside("42", "/tmp/shop.db").unwrap().0, "0:30");
        assert_eq!(inside("43", "/tmp/shop.db"), None);
        assert_eq!(
            inside("41", "/srv/shop.db"),
            None,
            "of another root directory"
        );
    }
}
