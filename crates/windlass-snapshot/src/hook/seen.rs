//! Whether all that was written to a data directory went through the hook: by pg_control, while a
//! server runs or after it, and by the times of a file that is read while none runs.
//!
//! A server writes pg_control when it starts, before it changes its data, and the hook notes the
//! checksum of what it saw. Another checksum means that a server runs, or ran, without the hook.
//! The next server with the hook finds that out as well; until then only readers can.
//!
//! Invariants
//! - A page of the database's own files is given out only if this was asked after it was read.
//! - A server that is just writing pg_control is waited for, and so is not taken for another one.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use windlass_engine::durable;
use windlass_engine::media::crc32c;
use windlass_image::layout::hook::{CONTROL_TOLD_BYTES, Moment, is_lost, last_change};

use super::control::Control;
use super::untouched;
use crate::cluster::{CONTROL_ASIDE, CONTROL_PATH};

/// How long the hook may take to note what was written.
const NOTED_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// Watches pg_control of a data directory.
pub(super) struct Seen {
    path: PathBuf,
    /// The file when it was last found to be as the hook saw it.
    proven: Mutex<Option<Times>>,
    /// The last change of those who take part, as it was last known.
    last: Mutex<Moment>,
}

/// What changes whenever somebody writes to a file.
type Times = (u64, i64, i64, i64, i64);

impl Seen {
    pub(super) fn of(control: &Control) -> Self {
        Self {
            path: control.data().join(CONTROL_PATH),
            proven: Mutex::new(None),
            last: Mutex::new(last_change(control.memory())),
        }
    }

    /// Whether nobody has written without the hook. A file that cannot be read says nothing: during
    /// a revert it has another name, and there is no server either.
    pub(super) fn holds(&self, control: &Control) -> bool {
        let begun = Instant::now();
        loop {
            let Ok(found) = self.path.metadata() else {
                return !is_taken_away(control.data());
            };
            if self.is_as_seen(control, &found) {
                return true;
            }
            let age = found.modified().ok();
            let age = age.and_then(|at| SystemTime::now().duration_since(at).ok());
            if age.is_some_and(|age| age > NOTED_WITHIN) || begun.elapsed() > NOTED_WITHIN {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether nobody has changed this file without the hook, for the snapshot with this number.
    pub(super) fn is_own(
        &self,
        control: &Control,
        (file, number): (&File, u32),
    ) -> std::io::Result<bool> {
        let known = *lock(&self.last);
        let is_own = untouched::is_own(control, file, known)?;
        *lock(&self.last) = last_change(control.memory());
        // A server that has started meanwhile has told what it found.
        Ok(is_own && !is_lost(control.memory(), number))
    }

    fn is_as_seen(&self, control: &Control, found: &std::fs::Metadata) -> bool {
        let times = times(found);
        let mut proven = lock(&self.proven);
        if *proven == Some(times) {
            return true;
        }
        let mut told = [0; CONTROL_TOLD_BYTES];
        let read = File::open(&self.path).and_then(|file| file.read_exact_at(&mut told, 0));
        let seen = control.memory().control_crc();
        if read.is_err() {
            return true;
        }
        let is_seen = seen == 0 || seen == crc32c(&told);
        if is_seen {
            *proven = Some(times);
        }
        is_seen
    }
}

/// Whether somebody else than a revert has taken pg_control away. pg_upgrade does, before another
/// cluster gets the same files, and that one's server tells the hook of this one nothing.
fn is_taken_away(data: &Path) -> bool {
    let is_absent = |name: &str| {
        let found = data.join(name).symlink_metadata();
        found.is_err_and(|error| durable::is_absent(&error))
    };
    // The whole data directory may have another name by now. And a revert may just have given the
    // file its name back.
    let names = [CONTROL_PATH, CONTROL_ASIDE, CONTROL_PATH];
    data.join("global").is_dir() && names.into_iter().all(is_absent)
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn times(found: &std::fs::Metadata) -> Times {
    let (written, changed) = (
        (found.mtime(), found.mtime_nsec()),
        (found.ctime(), found.ctime_nsec()),
    );
    (found.ino(), written.0, written.1, changed.0, changed.1)
}
