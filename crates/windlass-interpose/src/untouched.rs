//! Whether somebody else changed the files of snapshots since the last server with the hook ended.
//!
//!   directories of the server --> each file: met, changed later than by us? --> lost
//!                                  \--> not all met: directories of links, graveyards --> all met?
//!
//! It runs in the server's first process, before recovery changes the first page. A file has its
//! own name, or one that a snapshot gave it. The places for those are in a list, because that of a
//! tablespace that was dropped is found in no other way.

use core::ffi::{CStr, c_int};

use windlass_layout::hook::{
    Memory, Moment, PAGED_DEPTH_MAX, PAGED_DIRECTORIES, PLACES_NAME, Phase, SAVED_DIRECTORY,
    SAVED_IN_TABLESPACE, SNAPSHOTS_MAX, Snapshot, has_other_clock, is_own_change, last_change,
};

use crate::saved;
use crate::system;

const PATH_BYTES: usize = 4096;
const NAMES_BYTES: usize = 8192;
/// The name of the shared memory begins with this; what follows tells data directories apart.
const CONTROL_PREFIX_BYTES: usize = 9;
/// An entry of a directory: inode 8 | position 8 | length 2 | kind 1 | name.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// Whether nobody else did.
pub(crate) fn is_untouched(memory: Memory<'_>) -> bool {
    if kept(memory).next().is_none() {
        return true;
    }
    let mut walk = Walk {
        memory,
        last: last_change(memory),
        turn: memory.starts(),
        in_links: false,
        path: [0; PATH_BYTES],
    };
    let mut is_own = PAGED_DIRECTORIES
        .iter()
        .all(|place| walk.begin(place, PAGED_DEPTH_MAX));
    if is_own && !walk.has_met_all() {
        is_own = walk.links();
    }
    if is_own && !walk.has_met_all() {
        system::say(b"windlass: files of snapshots are gone: these snapshots are lost\n");
        return false;
    }
    is_own
}

/// The snapshots that can be read.
fn kept<'a>(memory: Memory<'a>) -> impl Iterator<Item = Snapshot<'a>> {
    let entries = (0..SNAPSHOTS_MAX).filter_map(move |index| Snapshot::at(memory, index));
    entries.filter(|snapshot| snapshot.state() == Phase::Active)
}

struct Walk<'a> {
    memory: Memory<'a>,
    last: Moment,
    turn: u32,
    /// Whether files are looked at that have a name of a snapshot only.
    in_links: bool,
    path: [u8; PATH_BYTES],
}

impl Walk<'_> {
    fn has_met_all(&self) -> bool {
        kept(self.memory).all(|snapshot| snapshot.has_met_all(self.turn))
    }

    /// Looks at all files below a path. False if somebody else changed one.
    fn begin(&mut self, path: &str, depth: u32) -> bool {
        match self.append(0, path.as_bytes()) {
            Some(length) => self.directory(length, depth),
            None => true,
        }
    }

    /// Puts a name behind the first bytes of the path. Returns how long it is then.
    fn append(&mut self, length: usize, name: &[u8]) -> Option<usize> {
        let end = length.checked_add(name.len())?;
        self.path.get_mut(length..end)?.copy_from_slice(name);
        *self.path.get_mut(end)? = 0;
        Some(end)
    }

    /// Looks at all files of the directory that the path leads to, and below it. What cannot be
    /// opened has no files: they are not met then.
    fn directory(&mut self, length: usize, depth: u32) -> bool {
        let Some(directory) = self.open() else {
            return true;
        };
        let has_times = !system::file_system(directory).is_some_and(has_other_clock);
        let is_own = each_name(directory, |name, kind| {
            if matches!(kind, libc::DT_REG | libc::DT_UNKNOWN)
                && let Some(is_own) = self.file(directory, name, has_times)
            {
                return is_own || self.tell(length, name);
            }
            let is_saved = name.to_bytes() == SAVED_IN_TABLESPACE.as_bytes();
            let is_below = kind != libc::DT_REG && depth > 0 && !is_saved;
            !is_below || self.below(length, name, depth.saturating_sub(1))
        });
        system::close(directory);
        is_own
    }

    fn open(&self) -> Option<c_int> {
        let path = CStr::from_bytes_until_nul(&self.path).ok()?;
        system::open(path, libc::O_RDONLY | libc::O_DIRECTORY, 0).ok()
    }

    fn below(&mut self, length: usize, name: &CStr, depth: u32) -> bool {
        let slash = self.append(length, b"/");
        let below = slash.and_then(|slash| self.append(slash, name.to_bytes()));
        let is_own = below.is_none_or(|below| self.directory(below, depth));
        self.append(length, b"");
        is_own
    }

    /// Whether a file is as those left it who take part. `None` if it is no file.
    fn file(&self, directory: c_int, name: &CStr, has_times: bool) -> Option<bool> {
        let file = system::times_below(directory, name)?;
        let mut is_watched = false;
        for snapshot in kept(self.memory) {
            is_watched |= snapshot.meet(file.key, self.turn);
        }
        Some(!is_watched || !has_times || is_own_change(self.memory, self.last, &file))
    }

    /// Says which file was changed. Always false.
    fn tell(&mut self, length: usize, name: &CStr) -> bool {
        let slash = self.append(length, b"/");
        slash.and_then(|slash| self.append(slash, name.to_bytes()));
        let path = CStr::from_bytes_until_nul(&self.path).unwrap_or(c"");
        system::say(b"windlass: every snapshot is lost: somebody else changed ");
        if self.in_links {
            // Its own name is gone, and only the controller knows which that was.
            system::say(b"the file that a snapshot keeps as ");
        }
        system::say(path.to_bytes());
        system::say(b"\n");
        false
    }

    /// Looks at the files that have a name of a snapshot only.
    fn links(&mut self) -> bool {
        self.in_links = true;
        let Some(directory) = system::stat_at(c".") else {
            return true;
        };
        let name = directory.key.control_name();
        let own = name.get(CONTROL_PREFIX_BYTES..).unwrap_or_default();
        let Some(length) = self.append(0, SAVED_DIRECTORY.as_bytes()) else {
            return true;
        };
        if !self.place(length, own) {
            return false;
        }
        let list = saved::Path::new(PLACES_NAME.as_bytes());
        let Ok(list) = system::open(list.name(), libc::O_RDONLY | libc::O_NOFOLLOW, 0) else {
            return true;
        };
        let is_own = self.listed(list, own);
        system::close(list);
        is_own
    }

    fn listed(&mut self, list: c_int, own: &[u8]) -> bool {
        let mut offset: u64 = 0;
        loop {
            let mut bytes = [0; PATH_BYTES];
            let read = system::read_at(list, &mut bytes, offset);
            let place = CStr::from_bytes_until_nul(&bytes).unwrap_or(c"");
            if read.is_err() || place.is_empty() {
                return true;
            }
            let place = place.to_bytes();
            if let Some(length) = self.append(0, place)
                && !self.place(length, own)
            {
                return false;
            }
            offset = offset.saturating_add(place.len() as u64).saturating_add(1);
        }
    }

    /// Looks at the directories of links and the graveyards in a place.
    fn place(&mut self, length: usize, own: &[u8]) -> bool {
        let Some(directory) = self.open() else {
            return true;
        };
        let is_own = each_name(directory, |name, _| {
            !name.to_bytes().starts_with(own) || self.below(length, name, 0)
        });
        system::close(directory);
        is_own
    }
}

/// Calls a function with each name of a directory and its kind, until it says false.
fn each_name(directory: c_int, mut each: impl FnMut(&CStr, u8) -> bool) -> bool {
    let mut names = [0; NAMES_BYTES];
    loop {
        let Ok(count) = system::read_names(directory, &mut names) else {
            return true;
        };
        let mut rest = names.get(..count).unwrap_or_default();
        if rest.is_empty() {
            return true;
        }
        while let Some((name, kind, length)) = entry(rest) {
            let is_one = name != c"." && name != c"..";
            if is_one && !each(name, kind) {
                return false;
            }
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

/// The first entry: its name, its kind, its length.
#[allow(clippy::host_endian_bytes, reason = "the kernel writes them")]
fn entry(bytes: &[u8]) -> Option<(&CStr, u8, usize)> {
    let length = bytes.get(LENGTH_AT..LENGTH_AT + 2)?.try_into().ok()?;
    let length = usize::from(u16::from_ne_bytes(length));
    let kind = *bytes.get(LENGTH_AT + 2)?;
    let name = CStr::from_bytes_until_nul(bytes.get(NAME_AT..length)?).ok()?;
    Some((name, kind, length))
}
