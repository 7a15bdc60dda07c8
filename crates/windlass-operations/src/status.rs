//! Operations that are under way. Each has a file that others can read: `windlass status` shows
//! them.
//!
//!   operation --> DIRECTORY/PID-N.json, rewritten about once a second, removed at its end
//!
//! DIRECTORY is /run/windlass for root and $XDG_RUNTIME_DIR/windlass for others. If neither exists,
//! it is a private directory below the temporary one. Root sees everybody's operations, because a
//! run that root starts runs as the owner of its database.
//!
//! Invariants
//! - A file is complete at any moment, because a rename replaces it.
//! - A file whose process has ended counts for nothing. A process is identified by its number and
//!   its start time, because numbers are used again. A user's own listing, and the next operation,
//!   remove such files of that user. Root removes no files of other users, because these users
//!   could put something in its way.
//! - Windlass trusts a directory only if nobody except its user could have written to it.
//! - An operation goes on if its file cannot be written, because being seen is not its purpose.

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_engine::durable;

/// How often an operation writes its state.
const PERIOD: Duration = Duration::from_secs(1);
/// A larger file is not a report.
const REPORT_BYTES_MAX: u64 = 1024 * 1024;

/// What an operation reports about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The number of its process.
    pub pid: u32,
    /// The start of that process, in the kernel's ticks since boot.
    pub process_start: u64,
    /// The kind of the operation: `mount`, `backup`.
    pub kind: String,
    /// What it works on, in a few words.
    pub title: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// What it is doing.
    pub phase: String,
    /// Its progress, and everything else that is worth knowing about this kind of operation.
    pub numbers: Value,
}

impl Report {
    /// Whether its process still runs.
    pub(crate) fn is_running(&self) -> bool {
        process_start(self.pid) == Some(self.process_start)
    }
}

/// An operation that others can see until this is dropped.
pub struct Operation {
    /// Asks for the state to be written at once. It ends when this is dropped.
    ask: Option<Sender<Sender<()>>>,
    thread: Option<JoinHandle<()>>,
}

impl Operation {
    /// Shows an operation. `look` gives its phase and its numbers about once a second.
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
            started: jiff::Timestamp::now().to_string(),
            phase: String::new(),
            numbers: Value::Null,
        };
        let (ask, asked) = channel::<Sender<()>>();
        let work = move || {
            let Ok(directory) = directory(true) else {
                return;
            };
            remove_left(&directory);
            let path = directory.join(format!("{pid}-{number}.json"));
            let mut waiting: Option<Sender<()>> = None;
            loop {
                (report.phase, report.numbers) = look();
                // It is written again in a second; the operation itself does not depend on it.
                replace(&path, &report).unwrap_or_default();
                drop(waiting.take());
                match asked.recv_timeout(PERIOD) {
                    Ok(asker) => waiting = Some(asker),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            // If this fails, the next listing removes the file.
            std::fs::remove_file(&path).unwrap_or_default();
        };
        let thread = std::thread::Builder::new().name("status".to_owned());
        Self {
            ask: Some(ask),
            thread: thread.spawn(work).ok(),
        }
    }

    /// Writes its state, and returns when others can see it.
    pub(crate) fn refresh(&self) {
        let (asker, written) = channel();
        if let Some(ask) = &self.ask
            && ask.send(asker).is_ok()
        {
            // Nothing is ever sent: the other end is dropped after the write, or with the thread.
            written.recv().unwrap_or_default();
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, it shows nothing any more either.
            thread.join().unwrap_or_default();
        }
    }
}

/// All operations that are under way, the oldest process first: this user's, or for root
/// everybody's.
pub fn list() -> io::Result<Vec<Report>> {
    let mut reports = Vec::new();
    match directory(false) {
        Ok(own) => {
            let left = list_one(&own, &mut reports)?;
            left.iter().try_for_each(|left| remove(left))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if rustix::process::geteuid().is_root() {
        for (directory, uid) in directories_of_others() {
            if is_private(&directory, uid).unwrap_or(false) {
                // The user may be removing the directory at this moment.
                drop(list_one(&directory, &mut reports));
            }
        }
    }
    reports.sort_by_key(|report| (report.process_start, report.pid, report.started.clone()));
    Ok(reports)
}

/// Adds the operations of a directory. Returns the files there that killed processes left.
fn list_one(directory: &Path, reports: &mut Vec<Report>) -> io::Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if is_unfinished(&path) {
            left.push(path);
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        // The operation ended after the directory was read.
        let Ok(bytes) = read(&path) else {
            continue;
        };
        match serde_json::from_slice::<Report>(&bytes) {
            Ok(report) if report.is_running() => {
                reports.push(report);
            }
            Ok(_) => left.push(path),
            Err(_) => continue,
        }
    }
    Ok(left)
}

/// Removes a file that may be gone: whoever lists the operations or begins one removes such files.
fn remove(left: &Path) -> io::Result<()> {
    durable::if_there(std::fs::remove_file(left)).map(|_| ())
}

/// Whether a process was killed while it wrote this file for the first time or again.
fn is_unfinished(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let pid = stem.and_then(|stem| stem.split('-').next()?.parse().ok());
    let is_new = path.extension().is_some_and(|extension| extension == "new");
    is_new && pid.is_some_and(|pid| process_start(pid).is_none())
}

/// Removes the files that killed processes of this user left.
fn remove_left(directory: &Path) {
    // If one stays, the next operation or listing removes it.
    for left in list_one(directory, &mut Vec::new()).unwrap_or_default() {
        std::fs::remove_file(&left).unwrap_or_default();
    }
}

/// The bytes of a report. The user who made the file cannot make root read another file or wait.
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

/// The directories in which other users' operations may be, each with its user.
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

/// The start time of a process; `None` if no process has this number. One that has ended, and that
/// its parent has not waited for, does nothing any more.
pub(crate) fn process_start(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may contain anything. The start is the 20th field after it.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let start = fields.nth(18)?.parse().ok();
    start.filter(|_| !has_ended)
}

fn replace(path: &Path, report: &Report) -> io::Result<()> {
    let beside = path.with_extension("new");
    let file = std::fs::File::create(&beside)?;
    serde_json::to_writer(&file, report)?;
    // The rename is not durable: after a power cut there is no operation to show.
    rustix::fs::rename(&beside, path)?;
    Ok(())
}

/// The directory of this user's operations. With `make`, it is created if it is missing.
fn directory(make: bool) -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid();
    let directory = if uid.is_root() {
        PathBuf::from("/run/windlass")
    } else {
        // The variable may belong to the user who started this, and not to the user it now runs as.
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
    // In a directory that everybody may write to, somebody else may have created it first.
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
    fn a_left_file_that_another_process_removed_is_no_failure() {
        let place = tempfile::tempdir().unwrap();
        let left = place.path().join("1-0.json");
        drop(std::fs::File::create(&left).unwrap());
        remove(&left).unwrap();
        remove(&left).unwrap();
        assert!(remove(place.path()).is_err());
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = std::process::id();
        assert_eq!(process_start(own), process_start(own));
        assert!(process_start(own).is_some());
        assert_eq!(process_start(u32::MAX), None);
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_is_none() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        assert!(process_start(pid).is_some());
        drop(child.stdin.take());
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !stat().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(process_start(pid), None);
        child.wait().unwrap();
    }
}
