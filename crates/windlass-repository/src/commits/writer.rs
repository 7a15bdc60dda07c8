//! Writes the records of a SQLite database's log.
//!
//!   directory   an object grows, and is sealed when it is long
//!   bucket      each sync stores an object of whole records; when they are many or long, one takes
//!               their place
//!
//! Invariants
//! - Each object begins with a stand, and no record is in two objects.
//! - Nothing is asked of a bucket while the writers of the database wait ([`CommitLog::defer`]).

use windlass_engine::durable::Locked;
use windlass_media::{LogRecord, RecordKind, fitted};
use windlass_postgres::{Lsn, Timeline};
use windlass_sqlite::{LogPoint, Standing};

use super::reader::{CommitReader, Record};
use super::stand::{StandAbout, point_of};
use crate::error::RepositoryError;
use crate::growing::{GrowingLog, GrowingStart};
use crate::place::{LogPlace, OBJECT_BYTES_MAX};

/// An object is sealed when it has so many bytes of records. A transaction is never in two of them.
const OBJECT_BYTES: u64 = 16 << 20;
/// The size of segments that headers of objects name; these objects have none.
const SEGMENT_BYTES: u32 = 1 << 20;

/// The log of a database that is being written.
pub struct CommitLog {
    place: LogPlace,
    growing: Option<GrowingLog>,
    timeline: Timeline,
    /// The last record that is there completely, and what the last stand says.
    last: Option<(LogRecord, StandAbout)>,
    /// Whether an earlier timeline has records, if this one has none.
    has_earlier: bool,
    /// Whether what comes stays in memory for now.
    is_deferred: bool,
    _lock: Option<Locked<std::fs::File>>,
}

/// A transaction to keep.
#[derive(Clone, Copy, Debug)]
pub struct NewCommit {
    /// Its last frame, its pages, and the shape of the database behind it.
    pub commit: windlass_sqlite::Commit,
    /// It was not there at this moment.
    pub after_nanos: i64,
    /// It was there at this moment.
    pub by_nanos: i64,
}

impl CommitLog {
    /// Opens the log of a database in a place that exists, and finds out where it ends. Fails if
    /// another process writes it. In a bucket the caller makes sure that there is none.
    pub fn open(place: &LogPlace) -> Result<Self, RepositoryError> {
        let lock = place.lock()?;
        let mut timelines = place.timelines()?;
        let timeline = timelines.pop();
        let mut log = Self {
            place: place.clone(),
            growing: None,
            timeline: timeline.unwrap_or(Timeline(0)),
            last: None,
            has_earlier: false,
            is_deferred: false,
            _lock: lock,
        };
        if let Some(timeline) = timeline {
            log.find_end(timeline)?;
        }
        // Only a timeline that was cut off at its beginning has no record.
        for earlier in timelines.into_iter().filter(|_| log.last.is_none()) {
            log.has_earlier |= match CommitReader::new(place, earlier)?.next_record() {
                // It had some.
                Err(RepositoryError::LostEnd { .. }) => true,
                first => first?.is_some(),
            };
        }
        Ok(log)
    }

    /// The end of the last object that holds something.
    fn find_end(&mut self, timeline: Timeline) -> Result<(), RepositoryError> {
        let mut reader = CommitReader::new(&self.place, timeline)?;
        for object in (0..reader.objects()).rev() {
            reader.seek(object);
            while let Some(record) = reader.next_of_object()? {
                let head = *record.head();
                match (record, &mut self.last) {
                    (Record::Stand(_, about), last) => *last = Some((head, about)),
                    (Record::Commit(_), Some(last)) => last.0 = head,
                    (Record::Commit(_), None) => {}
                }
            }
            if self.last.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Whether the place has transactions of this database, on any timeline.
    pub fn has_any(&self) -> bool {
        self.last.is_some() || self.has_earlier
    }

    /// Where the database stood at the end of the log.
    pub fn end_standing(&self) -> Option<Standing> {
        self.last.as_ref().map(|(head, about)| Standing {
            point: point_of(head),
            file: about.standing.file,
        })
    }

    /// The watch of its last stand.
    pub fn end_watch(&self) -> Option<u64> {
        self.last.as_ref().and_then(|(_, about)| about.watch)
    }

    /// The commit at which the log ends.
    pub fn end_point(&self) -> Option<LogPoint> {
        self.last.as_ref().map(|(head, _)| point_of(head))
    }

    /// Up to when the log has every transaction, in nanoseconds since 1970.
    pub fn end_nanos(&self) -> Option<i64> {
        self.last.as_ref().map(|(head, _)| head.by_nanos)
    }

    /// The timeline.
    pub fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// How many transactions the timeline has.
    pub fn number(&self) -> u64 {
        self.last.as_ref().map_or(0, |(head, _)| head.number)
    }

    /// Goes on with the log: what comes follows what it has.
    pub fn go_on(&mut self, stand: LogRecord, about: StandAbout) -> Result<(), RepositoryError> {
        self.begin_object()?;
        self.put_stand(stand, about)
    }

    /// Begins a new timeline: something before it may be lost. One that was begun and has no record
    /// yet is begun again.
    pub fn begin(&mut self, stand: LogRecord, about: StandAbout) -> Result<(), RepositoryError> {
        if let Some(growing) = self.growing.take() {
            growing.end()?;
        }
        if self.last.take().is_some() || self.timeline == Timeline(0) {
            self.timeline = Timeline(self.timeline.0 + 1);
        }
        self.begin_object()?;
        self.put_stand(stand, about)
    }

    /// Seals what an earlier writer left, and begins another object behind it.
    fn begin_object(&mut self) -> Result<(), RepositoryError> {
        let position = match GrowingLog::start(&self.place, self.timeline)? {
            GrowingStart::Behind(position) => position,
            GrowingStart::Nothing => Lsn(0),
        };
        let of = (self.timeline, SEGMENT_BYTES);
        let mut growing = GrowingLog::open(&self.place, of, position, 1)?;
        growing.seal()?;
        self.growing = Some(growing);
        Ok(())
    }

    /// Says where the database stands, with an empty log: nothing was committed since the last
    /// transaction, but the point is another one.
    pub fn emptied(&mut self, stand: LogRecord, about: StandAbout) -> Result<(), RepositoryError> {
        // An object begins with the point at which the one before ended.
        self.seal_long()?;
        let shape = self
            .last
            .as_ref()
            .map(|(head, _)| (head.page_bytes, head.page_count));
        let (page_bytes, page_count) = shape.unwrap_or((stand.page_bytes, stand.page_count));
        let stand = LogRecord {
            page_bytes,
            page_count,
            ..stand
        };
        self.put_stand(stand, about)
    }

    /// Says where the database stands now, which has changed nothing since the last transaction.
    pub fn stand(&mut self, stand: LogRecord, about: StandAbout) -> Result<(), RepositoryError> {
        // An object begins with the point at which the one before ended.
        self.seal_long()?;
        self.put_stand(stand, about)
    }

    fn put_stand(&mut self, stand: LogRecord, about: StandAbout) -> Result<(), RepositoryError> {
        let text = windlass_engine::to_json(&about).to_string();
        let head = LogRecord {
            kind: RecordKind::Stand,
            count: fitted(text.len()),
            number: self.number(),
            ..stand
        };
        self.put(&head.encode())?;
        self.put(text.as_bytes())?;
        self.last = Some((head, about));
        Ok(())
    }

    /// Whether the place takes a transaction. In a bucket it is in memory until it is there.
    pub fn takes(&self, commit: &windlass_sqlite::Commit) -> bool {
        let bytes = u64::from(commit.count) * u64::from(commit.page_bytes);
        self.place.at().is_directory() || bytes <= OBJECT_BYTES_MAX
    }

    /// Whether what comes stays in memory for now: then nothing is asked of the place, and nothing
    /// is durable. The next [`sync`](Self::sync) after that makes it so.
    pub fn defer(&mut self, is_deferred: bool) {
        self.is_deferred = is_deferred;
    }

    /// Keeps a transaction. `pages` gives each of its pages.
    pub fn commit<E: From<RepositoryError>>(
        &mut self,
        new: &NewCommit,
        pages: impl FnOnce(&mut dyn FnMut(u32, &[u8]) -> Result<(), E>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.seal_long()?;
        let commit = &new.commit;
        let head = LogRecord {
            kind: RecordKind::Commit,
            page_bytes: commit.page_bytes,
            page_count: commit.page_count,
            count: commit.count,
            frame: commit.point.frame,
            salts: commit.point.salts,
            sums: commit.point.sums,
            number: self.number() + 1,
            after_nanos: new.after_nanos,
            by_nanos: new.by_nanos,
        };
        self.put(&head.encode())?;
        pages(&mut |number, bytes| {
            self.put(&number.to_le_bytes())?;
            Ok(self.put(bytes)?)
        })?;
        if let Some(last) = &mut self.last {
            last.0 = head;
        }
        Ok(())
    }

    /// Ends an object that is long enough. An object also ends by itself if it has many frames.
    /// The next one begins with a stand.
    fn seal_long(&mut self) -> Result<(), RepositoryError> {
        let Some(growing) = &mut self.growing else {
            return Ok(());
        };
        if growing.is_long(OBJECT_BYTES) && !self.is_deferred {
            growing.seal()?;
        }
        match self.last.clone() {
            Some((head, about)) if growing.growing_bytes() == 0 => self.put_stand(head, about),
            _ => Ok(()),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), RepositoryError> {
        match &mut self.growing {
            Some(growing) => growing.append(growing.position(), bytes),
            None => Ok(()),
        }
    }

    /// Makes everything durable, unless that is deferred.
    pub fn sync(&mut self) -> Result<(), RepositoryError> {
        match &mut self.growing {
            Some(growing) if !self.is_deferred => growing.sync(),
            _ => Ok(()),
        }
    }

    /// Admits what objects of this log have lost of their ends: it has come again, or the timeline
    /// says that it may be lost.
    pub fn admit_lost_ends(&mut self) -> Result<(), RepositoryError> {
        if let Some(growing) = &mut self.growing {
            growing.admit_lost_end()?;
        }
        self.place.admit_lost_ends()
    }

    /// Ends the log: seals what there is.
    pub fn end(mut self) -> Result<(), RepositoryError> {
        match self.growing.take() {
            Some(growing) => growing.end().map(drop),
            None => Ok(()),
        }
    }
}
