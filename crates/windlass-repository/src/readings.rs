//! Servers that fetch log to recover. They do it long after the restore has ended, so nobody holds
//! a lock meanwhile: each leaves a note of how far it is, and log from there on stays for a day.
//!
//!   log/SYSTEM/reading-READER says from where on; its age says whether that still counts
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
const MODE: u32 = 0o640;
/// How long a note counts. A server replays a segment in much less time.
const COUNTS: Duration = Duration::from_secs(24 * 3600);

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
            let age = SystemTime::now()
                .duration_since(written)
                .unwrap_or_default();
            if age > COUNTS {
                continue;
            }
            let at = std::str::from_utf8(&text).ok().and_then(Lsn::parse);
            first = at.into_iter().chain(first).min();
        }
        Ok(first)
    }
}
