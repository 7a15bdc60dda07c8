//! Reads the records of a timeline, object after object.
//!
//! In a bucket one object takes the place of several, which go after it. Those that are still there
//! are passed over, also in a directory to which they were copied. Of one that goes before it is
//! read, its part of the new object is read.

use std::io::ErrorKind;
use std::ops::Range;

use windlass_engine::Reading;
use windlass_media::{
    FormatError, LOG_RECORD_BYTES, LOG_STAND_BYTES_MAX, LogRecord, RecordKind, Structure, fitted,
};
use windlass_postgres::{Lsn, Timeline};
use windlass_sqlite::LogPoint;

use super::stand::{StandAbout, point_of};
use crate::error::{FormatContext, LostEnd, RepositoryError};
use crate::object::{FrameMemory, LogObject};
use crate::outermost::outermost;
use crate::place::{LogPlace, ObjectName};

/// Objects of a bucket that are not longer are read with one request.
const SHORT_BYTES: u64 = 1 << 20;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Where the state stands.
    Stand(LogRecord, StandAbout),
    /// A transaction.
    Commit(LogRecord),
}

impl Record {
    /// Its head.
    pub fn head(&self) -> &LogRecord {
        match self {
            Self::Stand(head, _) | Self::Commit(head) => head,
        }
    }

    /// The commit at which the database stands then.
    pub fn point(&self) -> LogPoint {
        point_of(self.head())
    }
}

/// The records of a timeline.
pub struct CommitReader {
    place: LogPlace,
    timeline: Timeline,
    objects: Vec<ObjectName>,
    /// What is read of objects.
    reading: Reading,
    /// The object to open next, and where to go on in it if that is not its beginning.
    next: usize,
    from: Option<Lsn>,
    open: Option<Open>,
    /// What the object that ended last has lost.
    lost: Option<LostEnd>,
    /// Where the record stands that was read last, and its number.
    before: Option<(LogPoint, u64)>,
}

/// An object that is read from its beginning.
struct Open {
    object: LogObject,
    memory: FrameMemory,
    frame: usize,
    /// How much of the frame was read.
    used: usize,
    /// Bytes that are not read in front of the next record.
    skip: u64,
    /// No record that is read begins here or behind.
    until: u64,
    is_new: bool,
}

impl CommitReader {
    /// The records of a timeline, from the beginning.
    pub fn new(place: &LogPlace, timeline: Timeline) -> Result<Self, RepositoryError> {
        let objects = outermost(place.objects(timeline)?);
        Ok(Self::over(place, timeline, objects))
    }

    /// The records of these objects, which were listed before.
    pub(crate) fn over(place: &LogPlace, timeline: Timeline, objects: Vec<ObjectName>) -> Self {
        Self {
            place: place.clone(),
            timeline,
            objects,
            reading: Reading::Whole,
            next: 0,
            from: None,
            open: None,
            lost: None,
            before: None,
        }
    }

    /// The same, for somebody who reads only a little of each object.
    pub(crate) fn reading_ends(self) -> Self {
        Self {
            reading: Reading::Ends,
            ..self
        }
    }

    /// What was listed.
    pub(crate) fn into_objects(self) -> Vec<ObjectName> {
        self.objects
    }

    /// Where an object begins, counted from 0.
    pub fn start_of(&self, object: usize) -> Option<Lsn> {
        self.objects.get(object).map(|one| one.start)
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// The objects, counted from 0, in runs between which some are missing.
    pub fn runs(&self) -> Vec<Range<usize>> {
        let ends = (1..=self.objects.len())
            .filter(|next| *next == self.objects.len() || self.missing_before(*next).is_some());
        let mut start = 0;
        ends.map(|end| std::mem::replace(&mut start, end)..end)
            .collect()
    }

    /// What is missing in front of an object, if there is one before it.
    fn missing_before(&self, object: usize) -> Option<RepositoryError> {
        let before = self.objects.get(object.checked_sub(1)?)?;
        let (from, to) = (before.end?, self.objects.get(object)?.start);
        (from < to).then_some(RepositoryError::Gap {
            timeline: self.timeline,
            from,
            to,
        })
    }

    /// Goes on with this object, counted from 0.
    pub fn seek(&mut self, object: usize) {
        (self.next, self.open, self.before) = (object, None, None);
        (self.lost, self.from) = (None, None);
    }

    /// Goes on at a position at which an object begins, or began before another one took its place.
    pub fn seek_to(&mut self, start: Lsn) -> Result<(), RepositoryError> {
        self.seek(self.object_at(start)?);
        self.from = Some(start);
        Ok(())
    }

    /// Goes on with the object before that one, if there is one.
    pub(crate) fn seek_before(&mut self, start: Lsn) -> Result<(), RepositoryError> {
        self.seek(self.object_at(start)?.saturating_sub(1));
        Ok(())
    }

    /// The object that begins at a position, or has it because it took the place of one that did.
    fn object_at(&self, start: Lsn) -> Result<usize, RepositoryError> {
        let exact = self.objects.iter().rposition(|one| one.start == start);
        let holding = || self.objects.iter().position(|one| one.may_hold(start));
        exact.or_else(holding).ok_or_else(|| RepositoryError::Gap {
            timeline: self.timeline,
            from: start,
            to: Lsn(start.0.saturating_add(1)),
        })
    }

    /// The next record. `None` at the end of the timeline. Fails in front of a gap, and of what is
    /// lost.
    pub fn next_record(&mut self) -> Result<Option<Record>, RepositoryError> {
        loop {
            if self.open.is_none()
                && let Some(lost) = self.lost.clone()
            {
                let goes_on = self.next < self.objects.len();
                return Err(RepositoryError::LostEnd { lost, goes_on });
            }
            if self.open.is_none() && !self.open_next()? {
                return Ok(None);
            }
            if let Some(record) = self.next_of_object()? {
                return Ok(Some(record));
            }
        }
    }

    /// The next record of the object that `seek` chose. `None` at its end.
    pub fn next_of_object(&mut self) -> Result<Option<Record>, RepositoryError> {
        if self.open.is_none() && (self.before.is_some() || !self.open_next()?) {
            return Ok(None);
        }
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let record = open.record()?;
        match &record {
            Some(record) => self.check_order(record)?,
            None => self.lost = self.open.take().and_then(|open| open.object.lost),
        }
        Ok(record)
    }

    /// Reads the next page of the transaction that was read last, with its number. False behind the
    /// last one.
    pub fn page(
        &mut self,
        commit: &LogRecord,
        into: &mut Vec<u8>,
    ) -> Result<Option<u32>, RepositoryError> {
        let Some(open) = self.open.as_mut().filter(|open| open.skip > 0) else {
            return Ok(None);
        };
        let mut number = [0; 4];
        into.resize(commit.page_bytes as usize, 0);
        let is_there = open.read(&mut number)? && open.read(into)?;
        open.skip = open.skip.saturating_sub(4 + u64::from(commit.page_bytes));
        let number = u32::from_le_bytes(number);
        match is_there && number > 0 {
            true => Ok(Some(number)),
            false => Err(open.damaged("a page of it cannot be read")),
        }
    }

    fn open_next(&mut self) -> Result<bool, RepositoryError> {
        let Some(name) = self.objects.get(self.next) else {
            return Ok(false);
        };
        // Somebody who reads on from the object before must not pass over what is missing.
        let missing = self.before.and_then(|_| self.missing_before(self.next));
        if let Some(gap) = missing {
            return Err(gap);
        }
        let opened = self.opened(name);
        let (object, part) = match opened {
            // Nothing of it can be read.
            Err(RepositoryError::LostEnd { lost, .. }) => {
                (self.next, self.lost) = (self.next + 1, Some(lost));
                return Ok(true);
            }
            // It was sealed meanwhile, and has another name.
            Err(RepositoryError::Io { source, .. })
                if source.kind() == ErrorKind::NotFound && name.end.is_none() =>
            {
                let start = name.start;
                self.objects = outermost(self.place.objects(self.timeline)?);
                let now = self.objects.iter().find(|object| object.start == start);
                match now {
                    Some(name) => (self.opened(name)?, None),
                    None => return Ok(false),
                }
            }
            Err(missing) if is_gone(&missing) && !self.place.at().is_directory() => {
                self.open_outer(name, missing)?
            }
            opened => (opened?, None),
        };
        self.next += 1;
        let part = part.unwrap_or(object.header.start..object.end());
        let from = self.from.take().map_or(0, |from| from.0);
        self.open = Some(Open {
            memory: FrameMemory::new(&object.path)?,
            skip: part.start.max(from) - object.header.start,
            until: part.end,
            object,
            frame: 0,
            used: 0,
            is_new: true,
        });
        Ok(true)
    }

    /// Opens the object that has taken the place of one that is gone, and says which part of it
    /// that was.
    fn open_outer(
        &self,
        name: &ObjectName,
        missing: RepositoryError,
    ) -> Result<(LogObject, Option<Range<u64>>), RepositoryError> {
        let objects = self.place.objects(self.timeline)?;
        let outer = objects.iter().find(|other| name.lies_within(other));
        let (Some(outer), Some(end)) = (outer, name.end) else {
            return Err(missing);
        };
        Ok((self.opened(outer)?, Some(name.start.0..end.0)))
    }

    fn opened(&self, name: &ObjectName) -> Result<LogObject, RepositoryError> {
        let is_short = name.bytes.is_some_and(|bytes| bytes <= SHORT_BYTES);
        let reading = match is_short {
            true => Reading::Whole,
            false => self.reading,
        };
        self.place.open_object(self.timeline, name, reading)
    }

    /// Refuses an object that does not go on where the one before ended, and transactions that do
    /// not follow each other.
    fn check_order(&mut self, record: &Record) -> Result<(), RepositoryError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let is_new = std::mem::take(&mut open.is_new);
        let (point, number) = (record.point(), record.head().number);
        let fault = match (record, self.before) {
            (Record::Commit(_), _) if is_new => Some("does not begin with a stand"),
            (Record::Stand(..), Some(before)) if is_new && before != (point, number) => {
                Some("does not go on where the one before ended")
            }
            (Record::Stand(..), Some((_, before))) if before != number => {
                Some("has a stand of another state")
            }
            (Record::Commit(_), Some((_, before))) if before + 1 != number => {
                Some("lacks a transaction")
            }
            _ => None,
        };
        self.before = Some((point, number));
        fault.map_or(Ok(()), |what| {
            Err(RepositoryError::Misplaced {
                path: open.object.path.clone(),
                what,
            })
        })
    }
}

/// Whether an object is not there any more.
fn is_gone(error: &RepositoryError) -> bool {
    matches!(error, RepositoryError::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

impl Open {
    /// The next record, if it is there completely.
    fn record(&mut self) -> Result<Option<Record>, RepositoryError> {
        if !self.pass(self.skip)? {
            return Ok(None);
        }
        self.skip = 0;
        if self.position() >= self.until {
            return Ok(None);
        }
        let mut head = [0; LOG_RECORD_BYTES];
        if !self.read(&mut head)? {
            return Ok(None);
        }
        let head = LogRecord::decode(&head).of(&self.object.path)?;
        match head.kind {
            RecordKind::Commit => {
                self.skip = u64::from(head.count) * (4 + u64::from(head.page_bytes));
                Ok((self.skip <= self.left()).then_some(Record::Commit(head)))
            }
            RecordKind::Stand => {
                let mut about = vec![0; head.count.min(LOG_STAND_BYTES_MAX) as usize];
                if !self.read(&mut about)? {
                    return Ok(None);
                }
                let about = serde_json::from_slice(&about);
                let about = about.map_err(|_| self.damaged("a stand of it makes no sense"))?;
                Ok(Some(Record::Stand(head, about)))
            }
        }
    }

    /// How many bytes of records the object has behind this one.
    fn left(&self) -> u64 {
        self.object.end() - self.position()
    }

    /// Where the next byte of records is.
    fn position(&self) -> u64 {
        match self.object.index().get(self.frame) {
            Some(entry) => entry.position + self.used as u64,
            None => self.object.end(),
        }
    }

    /// Passes over bytes; frames that nobody needs are not decoded.
    fn pass(&mut self, bytes: u64) -> Result<bool, RepositoryError> {
        let mut left = bytes;
        while left > 0 {
            let index = self.object.index();
            let Some(entry) = index.get(self.frame) else {
                return Ok(false);
            };
            let end = index
                .get(self.frame + 1)
                .map_or(self.object.end(), |next| next.position);
            let rest = end - entry.position - self.used as u64;
            if left < rest {
                if self.used == 0 {
                    self.object.read_frame(self.frame, &mut self.memory)?;
                }
                self.used += fitted::<usize, u64>(left);
                return Ok(true);
            }
            (self.frame, self.used, left) = (self.frame + 1, 0, left - rest);
        }
        Ok(true)
    }

    /// Fills `into`. False if the object ends before.
    fn read(&mut self, into: &mut [u8]) -> Result<bool, RepositoryError> {
        let mut done = 0;
        while done < into.len() {
            if self.frame >= self.object.index().len() {
                return Ok(false);
            }
            if self.used == 0 {
                self.object.read_frame(self.frame, &mut self.memory)?;
            }
            let bytes = self.memory.decoded.get(self.used..).unwrap_or_default();
            let count = bytes.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&bytes[..count]);
            (done, self.used) = (done + count, self.used + count);
            if self.used >= self.memory.decoded.len() {
                (self.frame, self.used) = (self.frame + 1, 0);
            }
        }
        Ok(true)
    }

    fn damaged(&self, what: &'static str) -> RepositoryError {
        let structure = Structure::LogRecord;
        RepositoryError::Object {
            path: self.object.path.clone(),
            source: FormatError::Invalid { structure, what },
        }
    }
}
