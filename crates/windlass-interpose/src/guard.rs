//! A call of the server that changes files: entered before, left after it.
//!
//! Locking: while a call is entered, the controller waits for it. So nothing that can block for
//! long is entered: no terminal, no pipe, no socket.

#![allow(unsafe_code, reason = "the state is a process's own")]

use core::ffi::{CStr, c_int};

use windlass_layout::hook::{
    Ahead, Change, FileKey, Memory, System, copy_ahead, is_mapping, is_noting, is_tracked,
    mark_changed, note_file, note_path, spoil_journal,
};

use crate::graves;
use crate::pages::{self, Changed};
use crate::shared::{self, Own};
use crate::system::{self, Patience};

/// A call that has been entered.
pub(crate) struct Entered {
    memory: Memory<'static>,
    errno: c_int,
}

/// Enters a call. `None` if there is no memory, or if it is not the server that calls but a thread
/// of a module: then the call goes on as it is.
pub(crate) fn enter() -> Option<Entered> {
    let memory = shared::memory()?;
    if !shared::is_own_thread() {
        return None;
    }
    let errno = system::errno();
    // SAFETY: no other thread gets here, and nobody else uses the state now. A signal handler that
    // comes in between only counts the depth.
    let own = unsafe { &mut *shared::own() };
    if !own.joined {
        shared::join(memory, own);
    }
    own.process.enter(memory, &mut Patience::default());
    Some(Entered { memory, errno })
}

impl Entered {
    /// Whether any snapshot exists.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.memory.newest() != 0
    }

    /// Whether anybody wants to know which files change.
    fn is_watched(&self) -> bool {
        self.has_snapshots() || is_noting(self.memory) || is_mapping(self.memory)
    }

    /// Preserves what a write of `bytes` bytes changes. Without an offset it is at the position of
    /// the descriptor.
    pub(crate) fn before_write(&self, fd: c_int, bytes: usize, offset: Option<i64>) {
        if !self.is_watched() || bytes == 0 {
            return;
        }
        let Some(stat) = system::stat_of(fd).filter(|stat| stat.is_regular) else {
            return;
        };
        let key = stat.key;
        let from = offset.or_else(|| position(fd));
        let from = from.and_then(|from| u64::try_from(from).ok());
        let to = from.map(|from| from.saturating_add(bytes as u64));
        // What lies between the end and the write becomes zeros. What is appended begins there.
        let start = from.unwrap_or(u64::MAX).min(stat.bytes);
        let end = to.unwrap_or(stat.bytes.saturating_add(bytes as u64));
        mark_changed(self.memory, key, start, end);
        if is_noting(self.memory) && to.is_none_or(|to| to > stat.bytes) {
            note_file(self.memory, key);
        }
        if let (Some(from), Some(to)) = (from, to)
            && is_tracked(self.memory, key)
        {
            self.note(key);
            self.keep(Changed { fd, key }, from, to);
        }
    }

    /// Preserves everything from a byte on: the length changes.
    pub(crate) fn before_cut(&self, fd: c_int, length: i64) {
        let Ok(from) = u64::try_from(length) else {
            return;
        };
        let Some(key) = self.before_length(fd, from) else {
            return;
        };
        if is_tracked(self.memory, key) {
            self.keep(Changed { fd, key }, from, u64::MAX);
        }
    }

    /// An open file may become longer, up to a range of bytes, and what it has stays.
    pub(crate) fn before_growth(&self, fd: c_int, offset: i64, bytes: i64) {
        if let Ok(to) = u64::try_from(offset.saturating_add(bytes)) {
            self.before_length(fd, to);
        }
    }

    /// The length of an open file changes.
    fn before_length(&self, fd: c_int, length: u64) -> Option<FileKey> {
        if !self.is_watched() {
            return None;
        }
        let stat = system::stat_of(fd).filter(|stat| stat.is_regular)?;
        self.mark_between(&stat, length);
        note_file(self.memory, stat.key);
        if is_tracked(self.memory, stat.key) {
            self.note(stat.key);
        }
        Some(stat.key)
    }

    /// A name comes, or leads to another file.
    pub(crate) fn before_name(&self, directory: c_int, path: &CStr) {
        if !is_noting(self.memory) {
            return;
        }
        match is_plain(directory, path) {
            true => note_path(self.memory, path.to_bytes()),
            false => spoil_journal(self.memory),
        }
    }

    /// A name goes, or leads to another file. The one that has it now may lose its last name.
    pub(crate) fn before_loss(&self, directory: c_int, path: &CStr) {
        self.before_name(directory, path);
        if !self.has_snapshots() {
            return;
        }
        let stat = system::stat_below(directory, path).filter(|stat| stat.is_regular);
        let Some(stat) = stat.filter(|stat| is_tracked(self.memory, stat.key)) else {
            return;
        };
        self.note(stat.key);
        match is_plain(directory, path) {
            true => graves::pin(self.memory, path, stat.key),
            false => graves::cannot_pin(self.memory, stat.key),
        }
    }

    /// Marks what a file loses or gains with another length.
    fn mark_between(&self, stat: &system::Stat, length: u64) {
        let (from, to) = (stat.bytes.min(length), stat.bytes.max(length));
        mark_changed(self.memory, stat.key, from, to);
    }

    /// A file gets another name. What an earlier backup had under that name was another file.
    pub(crate) fn before_arrival(&self, directory: c_int, path: &CStr) {
        if !is_mapping(self.memory) {
            return;
        }
        let stat = system::stat_below(directory, path).filter(|stat| stat.is_regular);
        if let Some(stat) = stat {
            self.mark_between(&stat, 0);
        }
    }

    /// Tells that the call changes a file of a snapshot, or its names.
    fn note(&self, key: FileKey) {
        let Some(now) = system::now() else { return };
        // SAFETY: as in `enter`.
        let own: &mut Own = unsafe { &mut *shared::own() };
        own.process.note_change(self.memory, Change::File(key), now);
    }

    /// The file at a path and its mode, if a snapshot has the file.
    pub(crate) fn tracked_at(&self, path: &CStr) -> Option<(FileKey, u32)> {
        if !self.has_snapshots() {
            return None;
        }
        let stat = system::stat_at(path).filter(|stat| stat.is_regular)?;
        is_tracked(self.memory, stat.key).then_some((stat.key, stat.mode))
    }

    /// Preserves everything of the file at a path from a byte on.
    pub(crate) fn before_cut_at(&self, path: &CStr, length: i64) {
        if is_mapping(self.memory)
            && let Some(stat) = system::stat_at(path).filter(|stat| stat.is_regular)
            && let Ok(length) = u64::try_from(length)
        {
            self.mark_between(&stat, length);
        }
        if self.tracked_at(path).is_none() {
            return;
        }
        if let Ok(fd) = system::open(path, libc::O_RDONLY, 0) {
            self.before_cut(fd, length);
            system::close(fd);
        }
    }

    /// Copies a page that somebody will overwrite.
    pub(crate) fn copy_ahead(
        &self,
        (key, block): (FileKey, u64),
        system: &mut impl System,
    ) -> Option<Ahead> {
        // SAFETY: as in `enter`.
        let own: &Own = unsafe { &*shared::own() };
        copy_ahead(self.memory, &own.process, (key, block), system)
    }

    fn keep(&self, file: Changed, from: u64, to: u64) {
        // SAFETY: as in `enter`.
        let own: &mut Own = unsafe { &mut *shared::own() };
        pages::keep(self.memory, own, file, from, to);
    }

    /// Makes the call itself, with the error number that the caller had, and leaves.
    pub(crate) fn call<T>(self, call: impl FnOnce() -> T) -> T {
        system::set_errno(self.errno);
        let result = call();
        let errno = system::errno();
        // SAFETY: as in `enter`.
        let own: &mut Own = unsafe { &mut *shared::own() };
        if own.process.is_at_change()
            && let Some(now) = system::now()
        {
            own.process.note_done(self.memory, now);
        }
        own.process.leave(self.memory);
        system::set_errno(errno);
        result
    }
}

/// Whether a path begins in the data directory, where the server is, or is absolute.
fn is_plain(directory: c_int, path: &CStr) -> bool {
    directory == libc::AT_FDCWD || path.to_bytes().starts_with(b"/")
}

/// Where the next write of a descriptor goes.
fn position(fd: c_int) -> Option<i64> {
    // SAFETY: the calls only ask.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags & libc::O_APPEND != 0 {
        // Bytes behind the end are in no snapshot.
        return None;
    }
    // SAFETY: the call moves nothing.
    let at = unsafe { libc::lseek64(fd, 0, libc::SEEK_CUR) };
    (at >= 0).then_some(at)
}
