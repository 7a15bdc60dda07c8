//! Log as it is received, in a place whose objects appear whole: a bucket.
//!
//!   sync       |part|part|part|      an object for what has come since the last one
//!   segment    |======segment======| one object for all of it; then the parts go
//!
//! Invariants
//! - What is durable stays so: parts go only when the object of the whole segment is there.
//! - What a killed run left of a segment is joined with what comes. What lies within another object
//!   goes.
//! - The transactions of a SQLite database have no segments. Each part of them begins and ends with
//!   a record, so a part is whole by itself: those of a killed run stay. Their writer says when
//!   parts are joined. They are not while somebody else stores the same log.
//! - An object that is there with the same name has the same bytes, or nothing is stored any more.

use std::path::{Path, PathBuf};

use windlass_engine::Reading;
use windlass_media::{LogContent, fitted};
use windlass_postgres::Lsn;

use super::GrowingLog;
use crate::content::{Compared, compare};
use crate::error::RepositoryError;
use crate::outermost::have_two_ways;
use crate::path::{LogPath, LogStep};
use crate::place::ObjectName;
use crate::reader::LogReader;

/// Segments that are longer stay in parts: their bytes would have to be kept until they end.
const GATHERED_BYTES_MAX: u64 = 64 << 20;
/// More parts are joined even if they are short: each reader lists them.
const PARTS_MAX: usize = 256;

/// The parts of a segment that are stored.
pub(super) struct Parts {
    /// Where the first one begins.
    start: Lsn,
    /// Their bytes.
    bytes: Vec<u8>,
    objects: Vec<PathBuf>,
}

impl Parts {
    pub(super) fn begin(start: Lsn) -> Self {
        Self {
            start,
            bytes: Vec::new(),
            objects: Vec::new(),
        }
    }

    /// Where they end.
    fn end(&self) -> Lsn {
        Lsn(self.start.0 + self.bytes.len() as u64)
    }
}

impl GrowingLog {
    /// Takes up what an earlier run stored of the segment that goes on at the position, so that one
    /// object can take its place.
    pub(super) fn take_up_parts(&mut self) -> Result<(), RepositoryError> {
        if *self.place.content() == LogContent::Commits {
            let last = Lsn(self.position.0.saturating_sub(1));
            let objects = self.place.objects_at(self.timeline, last)?;
            if !have_two_ways(&objects) {
                drop(self.without_inner(objects));
            }
            return Ok(());
        }
        let bytes = u64::from(self.segment_bytes);
        let begin = Lsn(self.position.0 / bytes * bytes);
        let objects = self.without_inner(self.place.objects_at(self.timeline, begin)?);
        if bytes > GATHERED_BYTES_MAX {
            return Ok(());
        }
        let (mut parts, way) = (Parts::begin(begin), self.way(begin));
        let mut reader = LogReader::new(&self.place, &way, bytes);
        while parts.end() < self.position {
            let mut next = objects.iter().filter(|one| one.start == parts.end());
            let next = next.find(|one| one.end.is_some_and(|end| end <= self.position));
            let Some((object, end)) = next.and_then(|one| Some((one, one.end?))) else {
                // It cannot be joined, and stays as it is.
                return Ok(());
            };
            let mut part = vec![0; fitted::<usize, u64>(end.0 - parts.end().0)];
            match reader.read_at(parts.end(), &mut part) {
                Ok(count) if count == part.len() => {}
                // Without a key nobody can join it, and damage is for others to name.
                Err(error) if !error.is_damage() && !error.is_without_key() => return Err(error),
                _ => return Ok(()),
            }
            parts.bytes.append(&mut part);
            parts.objects.push(object.path.clone());
        }
        self.parts = Some(parts);
        Ok(())
    }

    /// Removes objects that lie within another one, which is sound: a run was killed before it
    /// could. Returns the others.
    fn without_inner(&self, objects: Vec<ObjectName>) -> Vec<ObjectName> {
        let is_sound = |outer: &&ObjectName| {
            let opened = (self.place).open_object(self.timeline, outer, Reading::Whole);
            opened.and_then(|object| object.verify()).is_ok()
        };
        let outer_of = |one: &ObjectName| {
            let mut outer = objects.iter().filter(|other| one.lies_within(other));
            outer.find(is_sound).is_some()
        };
        let (inner, others): (Vec<_>, Vec<_>) = objects.iter().cloned().partition(outer_of);
        for one in inner {
            // It takes room and does no harm. Who may only write removes nothing.
            self.place
                .at()
                .objects()
                .remove(&one.path)
                .unwrap_or_default();
        }
        others
    }

    /// The timeline from a position on.
    fn way(&self, from: Lsn) -> LogPath {
        LogPath {
            steps: vec![LogStep {
                timeline: self.timeline,
                from,
                to: None,
            }],
        }
    }

    /// Whether what has come since the last object was sealed has so many bytes, or is in many
    /// parts.
    pub(crate) fn is_long(&self, bytes: u64) -> bool {
        match &self.parts {
            Some(parts) => {
                let gathered = (parts.bytes.len() + self.pending.len()) as u64;
                gathered >= bytes || parts.objects.len() >= PARTS_MAX
            }
            None => self.growing_bytes() >= bytes,
        }
    }

    /// Stores what has come since the last part.
    pub(super) fn put_part(&mut self) -> Result<(), RepositoryError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let start = Lsn(self.position.0 - pending.len() as u64);
        let path = self.put_object(start, &pending)?;
        self.durable = self.position;
        if let Some(parts) = &mut self.parts {
            parts.objects.push(path);
            if u64::from(self.segment_bytes) <= GATHERED_BYTES_MAX {
                parts.bytes.extend_from_slice(&pending);
            }
        }
        Ok(())
    }

    /// Ends a segment: puts one object in the place of its parts.
    pub(super) fn gather(&mut self) -> Result<(), RepositoryError> {
        let begun = Parts::begin(self.position);
        let Some(mut parts) = self.parts.replace(begun) else {
            return Ok(());
        };
        let is_kept = u64::from(self.segment_bytes) <= GATHERED_BYTES_MAX;
        if parts.objects.is_empty() || !is_kept {
            self.put_part()?;
            self.parts = Some(Parts::begin(self.position));
            return Ok(());
        }
        if parts.objects.len() == 1 && self.pending.is_empty() {
            return Ok(());
        }
        self.check_alone(&parts)?;
        parts.bytes.append(&mut self.pending);
        let whole = self.put_object(parts.start, &parts.bytes)?;
        self.durable = self.position;
        for object in parts.objects.iter().filter(|one| **one != whole) {
            // A part that stays takes room and does no harm. Who may only write removes nothing.
            self.place.at().objects().remove(object).unwrap_or_default();
        }
        Ok(())
    }

    /// Fails if somebody else has stored transactions of a SQLite database where these parts are.
    /// Two receivers did not see each other's notes: one stood still until its note counted no
    /// more. As long as no parts are joined, what each of them stored can be read.
    fn check_alone(&self, parts: &Parts) -> Result<(), RepositoryError> {
        if *self.place.content() != LogContent::Commits {
            return Ok(());
        }
        let is_own = |one: &ObjectName| {
            let mut own = parts.objects.iter();
            own.any(|own| own.file_name() == one.path.file_name())
        };
        let is_here = |one: &ObjectName| {
            one.start < self.position && one.end.is_some_and(|end| end > parts.start)
        };
        let objects = self.place.objects_at(self.timeline, parts.start)?;
        match objects.into_iter().find(|one| is_here(one) && !is_own(one)) {
            Some(other) => Err(RepositoryError::Locked { path: other.path }),
            None => Ok(()),
        }
    }

    /// Stores bytes of the log as an object. Returns where it is.
    fn put_object(&self, start: Lsn, bytes: &[u8]) -> Result<PathBuf, RepositoryError> {
        self.place.check_held()?;
        let end = Lsn(start.0 + bytes.len() as u64);
        let path = self.place.object_path(self.timeline, start, end);
        let header = self.header(start);
        let mut object = self.place.begin_object(&path, &header, self.packing)?;
        object.append(bytes, bytes.len() as u64)?;
        if object.seal()?.is_none() {
            self.check_same((start, end), bytes, &path)?;
        }
        Ok(path)
    }

    /// Refuses to go on if the object that has a name holds something else.
    fn check_same(
        &self,
        (start, end): (Lsn, Lsn),
        bytes: &[u8],
        path: &Path,
    ) -> Result<(), RepositoryError> {
        let name = ObjectName {
            start,
            end: Some(end),
            path: path.to_owned(),
            bytes: None,
        };
        let there = (self.place).open_object(self.timeline, &name, Reading::Whole)?;
        let read = |at: Lsn, into: &mut [u8]| {
            let from = fitted::<usize, u64>(at.0 - start.0);
            into.copy_from_slice(&bytes[from..from + into.len()]);
            Ok(())
        };
        match compare(&there, (start, end), read)? {
            Compared::Same(to) if to == end => Ok(()),
            _ => Err(RepositoryError::Different {
                name: format!("{start} to {end}"),
                object: path.to_owned(),
            }),
        }
    }
}
