//! Servers that fetch log to recover. They do it long after the restore has ended, so nobody holds
//! a lock meanwhile: each leaves a note of how far it is, and log from there on stays for a day.
//!
//!   log/SYSTEM/reading-READER says from where on; its age says whether that still counts
//!   log/SYSTEM/reading-READER.old says when that was seen to be old, by whoever expires log
//!
//! Invariant: no clock that jumps ends a note. One that looks old counts until it was seen to be
//! old, and the same, for as long again: a server that still reads has written another by then.
//!
//! A note is an extra. A server that may not write to the place recovers all the same.

use std::path::Path;
use std::time::{Duration, SystemTime};

use windlass_engine::{durable, hostname, read_regular_at_most};
use windlass_postgres::Lsn;

use crate::error::{IoContext, RepositoryError};
use crate::place::LogPlace;

const PREFIX: &str = "reading-";
const NOTE_BYTES_MAX: u64 = 64;
const SEEN_BYTES_MAX: u64 = 256;
const MODE: u32 = 0o640;
/// How long a note counts. A server replays a segment in much less time.
const COUNTS: Duration = Duration::from_secs(24 * 3600);
/// What lies beside a note that looks old.
const SEEN_OLD: &str = "old";

impl LogPlace {
    /// Notes that a server, whose log goes into this directory, reads the log from here on. A
    /// bucket has no notes: a reader would need rights to write.
    pub fn note_reading(&self, directory: &Path, from: Lsn) {
        if !self.at().is_directory() {
            return;
        }
        let path = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let mut hash = blake3::Hasher::new();
        hash.update(hostname().as_bytes());
        hash.update(path.as_os_str().as_encoded_bytes());
        let name = format!("{PREFIX}{}", &hash.finalize().to_hex()[..16]);
        let note = self.root().join(name);
        // A place that is read-only has no expiry either, as far as this server can help it.
        durable::write_unsynced(&note, from.to_string().as_bytes(), MODE).unwrap_or_default();
    }

    /// From where on servers read that recover now.
    pub fn read_from(&self) -> Result<Option<Lsn>, RepositoryError> {
        if !self.at().is_directory() {
            return Ok(None);
        }
        let names = self.at().folders(self.root())?.into_iter();
        let mut first: Option<Lsn> = None;
        for name in names.filter(|name| name.starts_with(PREFIX) && !name.contains('.')) {
            let path = self.root().join(name);
            let Ok(text) = read_regular_at_most(&path, NOTE_BYTES_MAX) else {
                continue;
            };
            let written = path.metadata().and_then(|found| found.modified());
            let written = written.doing("examine", &path)?;
            if is_passed(&path, written, SystemTime::now()) {
                continue;
            }
            let at = std::str::from_utf8(&text).ok().and_then(Lsn::parse);
            first = at.into_iter().chain(first).min();
        }
        Ok(first)
    }
}

/// Whether a note counts no more. The first time that it looks old, that is written down beside it.
fn is_passed(note: &Path, written: SystemTime, now: SystemTime) -> bool {
    let is_old = |time: SystemTime| now.duration_since(time).unwrap_or_default() > COUNTS;
    if !is_old(written) {
        return false;
    }
    let seen = note.with_extension(SEEN_OLD);
    let own = format!("{written:?}");
    let known = read_regular_at_most(&seen, SEEN_BYTES_MAX).unwrap_or_default();
    let since = seen.metadata().and_then(|found| found.modified());
    // One of the future would last until then.
    let since = since.ok().filter(|since| *since <= now);
    if let (Some(since), true) = (since, known == own.as_bytes()) {
        return is_old(since);
    }
    // Where this cannot be written no log can be removed either.
    durable::write_unsynced(&seen, own.as_bytes(), MODE).unwrap_or_default();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_clock_that_jumps_ends_no_note() {
        let directory = tempfile::tempdir().unwrap();
        let note = directory.path().join("reading-1f0c");
        let seen = note.with_extension(SEEN_OLD);
        let seen_at = |time: SystemTime| {
            let file = std::fs::File::options().write(true).open(&seen);
            file.unwrap().set_modified(time).unwrap();
        };
        let written = SystemTime::now() - 500 * HOUR;
        // The clock jumps: the note looks old, and the server writes another soon.
        let jumped = written + 200 * HOUR;
        assert!(!is_passed(&note, written, written + 24 * HOUR));
        assert!(!seen.exists());
        assert!(!is_passed(&note, written, jumped));
        seen_at(jumped);
        let next = jumped + HOUR;
        assert!(!is_passed(&note, next, jumped + 20 * HOUR));
        // What was seen of the earlier one says nothing of this one.
        assert!(!is_passed(&note, next, next + 26 * HOUR));
        seen_at(next + 26 * HOUR);
        assert!(!is_passed(&note, next, next + 50 * HOUR));
        assert!(is_passed(&note, next, next + 51 * HOUR));
        // It goes back: what was seen in the future is seen again.
        seen_at(next + 5000 * HOUR);
        assert!(!is_passed(&note, next, next + 30 * HOUR));
        seen_at(next + 30 * HOUR);
        assert!(is_passed(&note, next, next + 55 * HOUR));
    }
}
