//! Operations that are under way, each in a file for others to read: what `windlass status` shows.
//!
//!   operation --> DIRECTORY/PID-N.json, rewritten about once a second, removed at its end
//!
//! DIRECTORY is /run/windlass for root, $XDG_RUNTIME_DIR/windlass for others, and a private
//! directory below the temporary one where there is neither. Root sees everybody's: what root
//! starts runs as the owner of its database.
//!
//! Invariants
//! - A file is whole whenever it is read: it is replaced by a rename.
//! - A file whose process is gone says nothing: a process is known by its number and its start,
//!   because numbers come back. Its user removes such a file when listing; root, who reads what
//!   others could have put in its way, removes none of theirs.
//! - Nothing is believed of a directory that somebody else than its user could have written to.
//! - An operation goes on when its file cannot be written: to be seen is not its purpose.

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How often an operation says how it goes.
const PERIOD: Duration = Duration::from_secs(1);
/// What claims to be a report and is larger is none.
const REPORT_BYTES_MAX: u64 = 1024 * 1024;

/// What an operation says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its process.
    pub pid: u32,
    /// When that process started, in the kernel's ticks since boot.
    pub process_start: u64,
    /// What it is: `mount`, `backup`.
    pub kind: String,
    /// What it works on, in a few words.
    pub title: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// What it is doing.
    pub phase: String,
    /// How far it is; whatever is worth knowing of its kind.
    pub numbers: Value,
}

/// An operation that can be seen until this is dropped.
pub struct Operation {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Operation {
    /// Shows an operation; `look` gives its phase and its numbers, about once a second.
    pub fn begin(
        kind: &str,
        title: &str,
        look: impl Fn() -> (String, Value) + Send + 'static,
    ) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut report = Report {
            pid,
            process_start: process_start(pid).unwrap_or(0),
            kind: kind.to_owned(),
            title: title.to_owned(),
            started: jiff::Zoned::now().timestamp().to_string(),
            phase: String::new(),
            numbers: Value::Null,
        };
        let (stop, stopped) = channel();
        let work = move || {
            let Ok(directory) = directory(true) else {
                return;
            };
            let path = directory.join(format!("{pid}-{number}.json"));
            loop {
                (report.phase, report.numbers) = look();
                // Tried again in a second; the operation itself does not depend on it.
                replace(&path, &report).unwrap_or_default();
                if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            // Whoever lists takes it away otherwise.
            std::fs::remove_file(&path).unwrap_or_default();
        };
        let thread = std::thread::Builder::new().name("status".to_owned());
        Self {
            stop: Some(stop),
            thread: thread.spawn(work).ok(),
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked shows nothing any more either.
            thread.join().unwrap_or_default();
        }
    }
}

/// All operations that are under way, oldest process first: this user's, or everybody's for root.
pub fn list() -> io::Result<Vec<Report>> {
    let mut reports = Vec::new();
    match directory(false) {
        Ok(own) => {
            for left in list_one(&own, &mut reports)? {
                std::fs::remove_file(&left)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if rustix::process::geteuid().is_root() {
        for (directory, uid) in directories_of_others() {
            if is_private(&directory, uid).unwrap_or(false) {
                // Its user may be removing it just now.
                drop(list_one(&directory, &mut reports));
            }
        }
    }
    reports.sort_by_key(|report| (report.process_start, report.pid, report.started.clone()));
    Ok(reports)
}

/// Adds the operations of a directory; the files there of processes that were killed.
fn list_one(directory: &Path, reports: &mut Vec<Report>) -> io::Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        // Gone since the directory was read: its operation ended.
        let Ok(bytes) = read(&path) else {
            continue;
        };
        match serde_json::from_slice::<Report>(&bytes) {
            Ok(report) if process_start(report.pid) == Some(report.process_start) => {
                reports.push(report);
            }
            Ok(_) => left.push(path),
            Err(_) => continue,
        }
    }
    Ok(left)
}

/// A report's bytes. Whoever made the file gets root to read no other one, and to wait for none.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.take(REPORT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where other users' operations may be, and the user each belongs to.
fn directories_of_others() -> Vec<(PathBuf, u32)> {
    let children = |parent: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let number = |path: &Path, prefix: &str| -> Option<u32> {
        path.file_name()?
            .to_str()?
            .strip_prefix(prefix)?
            .parse()
            .ok()
    };
    let runtime = children(Path::new("/run/user")).into_iter();
    let runtime =
        runtime.filter_map(|path| number(&path, "").map(|uid| (path.join("windlass"), uid)));
    let temporary = children(&std::env::temp_dir()).into_iter();
    let temporary = temporary.filter_map(|path| number(&path, "windlass-").map(|uid| (path, uid)));
    runtime.chain(temporary).collect()
}

/// When a process started; `None` when there is none of this number.
fn process_start(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything; the start is the 20th field after it.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn replace(path: &Path, report: &Report) -> io::Result<()> {
    let beside = path.with_extension("new");
    let file = std::fs::File::create(&beside)?;
    serde_json::to_writer(&file, report)?;
    // Not the durable kind: after a power cut there is no operation to tell of.
    rustix::fs::rename(&beside, path)?;
    Ok(())
}

/// The directory of this user's operations; made if `make` and it is missing.
fn directory(make: bool) -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid();
    let directory = if uid.is_root() {
        PathBuf::from("/run/windlass")
    } else {
        // Of the user who started this, who need not be the one it runs as.
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let own = |path: &PathBuf| path.metadata().is_ok_and(|data| data.uid() == uid.as_raw());
        match runtime.filter(own) {
            Some(runtime) => runtime.join("windlass"),
            None => std::env::temp_dir().join(format!("windlass-{}", uid.as_raw())),
        }
    };
    if make {
        let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    // Below a directory that is everybody's, somebody else may have made it first.
    if is_private(&directory, uid.as_raw())? {
        return Ok(directory);
    }
    let message = format!("{} is not a private directory of ours", directory.display());
    Err(io::Error::other(message))
}

/// Whether this is a directory that nobody but this user (and root) can write to.
fn is_private(directory: &Path, uid: u32) -> io::Result<bool> {
    let data = std::fs::symlink_metadata(directory)?;
    Ok(data.is_dir() && data.uid() == uid && data.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = std::process::id();
        assert_eq!(process_start(own), process_start(own));
        assert!(process_start(own).is_some());
        assert_eq!(process_start(u32::MAX), None);
    }
}
