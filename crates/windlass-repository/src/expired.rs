//! How the beginning of a log goes that no set needs any more.
//!
//!   log/SYSTEM/expired says up to where --> objects before it go, the oldest first
//!
//! Invariants
//! - The note is durable before the first object goes, in a directory and in a bucket. So log that
//!   is missing before it is no gap. Only on a full disk does one object go first: the note needs
//!   room.
//! - Only objects go that end before the note, and never the last one of the newest timeline. One
//!   that grows goes if a receiver has left it: what it has lost ends before the note, too, and
//!   nobody writes it. It grows no more if its whole timeline has expired.
//! - The note never goes back.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windlass_engine::durable::Locked;
use windlass_engine::{Reading, durable, to_json};
use windlass_media::LogContent;
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, LostEnd, RepositoryError};
use crate::mark::DurableMark;
use crate::place::{LogPlace, ObjectName};

/// The name of the note.
const NAME: &str = "expired";
const NOTE_BYTES_MAX: usize = 4096;
const MODE: u32 = 0o640;
/// Behind everything of a timeline.
const WHOLE: Lsn = Lsn(u64::MAX);

/// Up to where the log of a place may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Expired {
    /// Whole timelines before this one are gone; `None` if the position is that of every timeline.
    #[serde(default)]
    timeline: Option<u32>,
    /// Log before this position is gone.
    before: u64,
}

impl Expired {
    /// Everything before a position, on every timeline of a cluster.
    pub fn before(position: Lsn) -> Self {
        Self {
            timeline: None,
            before: position.0,
        }
    }

    /// Everything before a position of this timeline, and all earlier timelines: those of a SQLite
    /// database have nothing in common.
    pub fn before_in(timeline: Timeline, position: Lsn) -> Self {
        Self {
            timeline: Some(timeline.0),
            before: position.0,
        }
    }

    /// Up to where it may be gone of a timeline.
    pub fn of_timeline(&self, timeline: Timeline) -> Lsn {
        match self.timeline {
            Some(first) if timeline.0 < first => WHOLE,
            Some(first) if timeline.0 > first => Lsn(0),
            _ => Lsn(self.before),
        }
    }

    /// The position.
    pub fn position(&self) -> Lsn {
        Lsn(self.before)
    }
}

/// Objects that go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredLog {
    /// The objects, the oldest first.
    pub objects: Vec<PathBuf>,
    /// Their bytes.
    pub bytes: u64,
}

impl LogPlace {
    /// Up to where an earlier run has removed log, if it has.
    pub fn expired(&self) -> Result<Option<Expired>, RepositoryError> {
        let path = self.note();
        let opened = match self.at().objects().open(&path, None, Reading::Whole) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.doing("open", &path)?,
        };
        let mut text = vec![0; NOTE_BYTES_MAX];
        let bytes = opened.read_at(0, &mut text).doing("read", &path)?;
        text.truncate(bytes);
        match serde_json::from_slice(&text) {
            Ok(note) => Ok(Some(note)),
            Err(_) => Err(RepositoryError::Misplaced {
                path,
                what: "does not say up to where the log has expired",
            }),
        }
    }

    /// What would go of this log.
    pub fn expiring(&self, up_to: Expired) -> Result<ExpiredLog, RepositoryError> {
        let mut found = ExpiredLog::default();
        let timelines = self.timelines()?;
        for timeline in &timelines {
            let mut objects = self.objects(*timeline)?;
            if Some(timeline) == timelines.last() {
                objects.pop();
            }
            let bound = up_to.of_timeline(*timeline);
            let is_over = bound == WHOLE && Some(timeline) != timelines.last();
            for name in objects {
                let is_before = match name.end {
                    Some(end) => end <= bound,
                    None => is_over || self.is_left_behind(*timeline, &name, bound)?,
                };
                if !is_before {
                    continue;
                }
                match self.stored_bytes(&name) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    bytes => found.bytes += bytes.doing("examine", &name.path)?,
                }
                found.objects.push(name.path);
            }
        }
        Ok(found)
    }

    /// Whether an object that a receiver of a cluster left ends before a position, also what it has
    /// lost, and nobody writes it.
    fn is_left_behind(
        &self,
        timeline: Timeline,
        name: &ObjectName,
        bound: Lsn,
    ) -> Result<bool, RepositoryError> {
        if *self.content() != LogContent::Log {
            return Ok(false);
        }
        let (end, lost) = match self.open_object(timeline, name, Reading::Whole) {
            Ok(object) => (Lsn(object.end()), object.lost),
            Err(RepositoryError::LostEnd { lost, .. }) => (lost.end, Some(lost)),
            // Whoever verifies the log names it.
            Err(_) => return Ok(false),
        };
        let lost = self.known_lost(timeline, lost.into_iter().collect())?;
        let ends_before = |lost: &LostEnd| lost.limit().is_some_and(|limit| limit <= bound);
        if end > bound || !lost.iter().all(ends_before) {
            return Ok(false);
        }
        let file = windlass_engine::open_regular(&name.path).doing("open", &name.path)?;
        let locked = Locked::take(file).map_err(|error| error.kind());
        Ok(!matches!(locked, Err(ErrorKind::WouldBlock)))
    }

    /// Removes what [`expiring`](Self::expiring) names, the oldest first.
    pub fn expire(&self, up_to: Expired) -> Result<ExpiredLog, RepositoryError> {
        let gone = self.expiring(up_to)?;
        if gone.objects.is_empty() {
            return Ok(gone);
        }
        let earlier = self.expired()?;
        if earlier.is_none_or(|earlier| earlier < up_to) {
            let text = to_json(&up_to).to_string();
            match self.at().is_directory() {
                true => self.write_note(text.as_bytes(), &gone.objects[..1])?,
                false => self.put_note(text.as_bytes())?,
            }
        }
        self.remove(&gone.objects)?;
        Ok(gone)
    }

    /// Writes the note to a file. On a full disk these objects go first.
    fn write_note(&self, text: &[u8], first: &[PathBuf]) -> Result<(), RepositoryError> {
        let path = self.note();
        let write = || durable::write(&path, text, MODE);
        let written = match write() {
            Err(error) if durable::is_full(&error) => {
                self.remove(first)?;
                write()
            }
            written => written,
        };
        written.doing("write", &path)
    }

    /// Writes the note to a bucket, over an earlier one.
    fn put_note(&self, text: &[u8]) -> Result<(), RepositoryError> {
        let path = self.note();
        let made = self.at().objects().create(self.place(), &path);
        let mut note = made.doing("write", &path)?;
        note.write_all(text).doing("write", &path)?;
        // It has no hash, so all of it is read back.
        note.name_over(text.len()).doing("write", &path)
    }

    fn remove(&self, objects: &[PathBuf]) -> Result<(), RepositoryError> {
        for path in objects {
            if !self.at().is_directory() {
                self.at().objects().remove(path).doing("remove", path)?;
                continue;
            }
            durable::if_there(std::fs::remove_file(path)).doing("remove", path)?;
            DurableMark::of(path).remove()?;
            self.remove_empty(path);
        }
        Ok(())
    }

    /// Removes the directories of an object if it was the last one there. A directory that is not
    /// empty stays.
    fn remove_empty(&self, object: &Path) {
        let above = object.ancestors().skip(1).take(2);
        for directory in above.filter(|one| *one != self.root()) {
            std::fs::remove_dir(directory).unwrap_or_default();
        }
    }

    fn note(&self) -> PathBuf {
        self.root().join(NAME)
    }
}
