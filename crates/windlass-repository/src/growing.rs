//! The log as it is received: an object that grows frame by frame, and is sealed at the end of each
//! segment.
//!
//!   append --> pending bytes --sync--> frame --> durable: this may be told to the server
//!                                        |
//!                        end of a segment, or of the timeline --> index, end --> new name
//!
//! In a bucket nothing grows: there each sync makes an object (`parts`).
//!
//! Invariants
//! - [`GrowingLog::durable`] never goes back, and nothing before it is lost by a kill or a power
//!   cut.
//! - Two processes never write one object: the one that grows is locked.
//! - What an object has lost of its end is told until it has come again, also if it is cut or
//!   sealed before: then an object behind it tells of it, which is vacant.

mod parts;
mod resume;

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use windlass_engine::durable::{self, Locked, NameError};
use windlass_engine::{Objects as _, Reading};
use windlass_media::{Codec, LOG_FRAMES_MAX, LogContent, LogHeader, fitted};
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, RepositoryError};
use crate::mark::DurableMark;
use crate::place::{LogPlace, ObjectName};
use crate::push::{Pushed, now_nanos, put_file};
use crate::ranges::TimelineLog;
use crate::writer::{FRAME_BYTES, FrameWriter, MODE, Packing};
use parts::Parts;
use resume::Vacant;

/// Where received log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowingStart {
    /// Behind what the place has.
    Behind(Lsn),
    /// The place has no log of this timeline.
    Nothing,
}

/// The log of a timeline, as it is received.
pub struct GrowingLog {
    place: LogPlace,
    timeline: Timeline,
    segment_bytes: u32,
    packing: Packing,
    current: Option<Current>,
    /// The object in which what comes next begins, if it tells of what is lost there.
    vacant: Option<Vacant>,
    /// What was stored of the segment, if the objects of the place do not grow.
    parts: Option<Parts>,
    /// Bytes that are in no frame yet.
    pending: Vec<u8>,
    /// Position of the next byte.
    position: Lsn,
    durable: Lsn,
}

struct Current {
    writer: FrameWriter<File>,
    path: PathBuf,
    start: Lsn,
    /// Says up to where it is durable.
    mark: DurableMark,
    /// Whether its name is durable.
    is_named: bool,
    /// Nobody else writes it meanwhile. A process that this one starts just now does not keep the
    /// lock longer than this value lives.
    _lock: Option<Locked<File>>,
}

impl GrowingLog {
    /// Where log of this timeline goes on in a place: behind its last byte. If nothing of it can be
    /// read any more, where it began.
    pub fn start(place: &LogPlace, timeline: Timeline) -> Result<GrowingStart, RepositoryError> {
        let log = TimelineLog::of(place, timeline)?;
        Ok(match log.spans.last() {
            Some(last) => GrowingStart::Behind(last.end),
            None => match log.lost.iter().map(|lost| lost.end).min() {
                Some(begin) => GrowingStart::Behind(begin),
                None => GrowingStart::Nothing,
            },
        })
    }

    /// Begins to receive at a position. An object that grows up to there goes on.
    pub fn open(
        place: &LogPlace,
        (timeline, segment_bytes): (Timeline, u32),
        position: Lsn,
        threads: usize,
    ) -> Result<Self, RepositoryError> {
        let mut log = Self {
            place: place.clone(),
            timeline,
            segment_bytes,
            packing: Packing {
                codec: Codec::Zstd(1),
                threads,
            },
            current: None,
            vacant: None,
            parts: (!place.at().is_directory()).then(|| Parts::begin(position)),
            pending: Vec::new(),
            position,
            durable: position,
        };
        // The run that left what is there may have been killed before it synced the names.
        place.sync_names_before(timeline, position)?;
        for name in place.begun_at(timeline, position)? {
            log.take_up(&name, position)?;
        }
        if log.parts.is_some() {
            log.take_up_parts()?;
        }
        Ok(log)
    }

    /// The timeline.
    pub fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// Position of the next byte.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Everything before this position survives a power cut.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Nothing behind this position was ever durable: whoever sends the log has nothing there yet.
    /// What is lost ends before it, even if nobody knows where.
    pub fn bound_lost(&mut self, at: Lsn) {
        let current = self.current.as_mut().map(|current| &mut current.mark);
        let vacant = self.vacant.as_mut().map(|vacant| &mut vacant.mark);
        for mark in current.into_iter().chain(vacant) {
            mark.bound(at.0);
        }
    }

    /// Takes bytes that follow those before.
    pub fn append(&mut self, at: Lsn, bytes: &[u8]) -> Result<(), RepositoryError> {
        if at != self.position {
            return Err(RepositoryError::NotNext {
                expected: self.position,
                found: at,
            });
        }
        let mut left = bytes;
        while !left.is_empty() {
            let segment_bytes = u64::from(self.segment_bytes);
            // The records of a SQLite database do not come in segments.
            let in_segment = match self.place.content() {
                LogContent::Commits => u64::MAX,
                _ => segment_bytes - self.position.0 % segment_bytes,
            };
            let room = match self.parts {
                Some(_) => u64::MAX,
                None => u64::from(FRAME_BYTES) - self.pending.len() as u64,
            };
            let count = fitted::<usize, u64>(in_segment.min(room).min(left.len() as u64));
            self.pending.extend_from_slice(&left[..count]);
            self.position = Lsn(self.position.0 + count as u64);
            left = &left[count..];
            if self.parts.is_none() && self.pending.len() as u64 >= u64::from(FRAME_BYTES) {
                self.flush()?;
            }
            if count as u64 == in_segment {
                self.seal()?;
            }
        }
        Ok(())
    }

    /// Makes durable what has come so far.
    pub fn sync(&mut self) -> Result<(), RepositoryError> {
        if self.parts.is_some() {
            return self.put_part();
        }
        self.flush()?;
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if current.writer.durable() < current.writer.position() || !current.is_named {
            current.writer.sync(&current.path)?;
            if !current.is_named {
                self.place.sync_names(&current.path)?;
                current.is_named = true;
            }
            current.mark.set(current.writer.durable())?;
        }
        self.durable = self.position;
        if current.writer.frames() > LOG_FRAMES_MAX / 2 {
            self.seal()?;
        }
        Ok(())
    }

    /// Ends the log of this timeline: seals what there is.
    pub fn end(mut self) -> Result<Lsn, RepositoryError> {
        self.seal()?;
        Ok(self.position)
    }

    /// Writes what is pending as a frame.
    fn flush(&mut self) -> Result<(), RepositoryError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let start = Lsn(self.position.0 - self.pending.len() as u64);
        if self.current.is_none() {
            self.current = Some(self.begin(start)?);
        }
        if let Some(current) = &mut self.current {
            let bytes = self.pending.len() as u64;
            (current.writer).append(&self.pending[..], bytes, &current.path)?;
        }
        self.pending.clear();
        Ok(())
    }

    fn begin(&mut self, start: Lsn) -> Result<Current, RepositoryError> {
        let vacant = match self.vacant.take() {
            Some(vacant) => vacant,
            None => self.begin_empty(start)?,
        };
        let Vacant {
            file,
            path,
            mark,
            lock,
        } = vacant;
        Ok(Current {
            writer: FrameWriter::begin(
                self.place.at(),
                (file, &path),
                &self.header(start),
                self.packing,
            )?,
            path,
            start,
            mark,
            is_named: false,
            _lock: lock,
        })
    }

    fn begin_empty(&mut self, start: Lsn) -> Result<Vacant, RepositoryError> {
        let path = self.place.growing_path(self.timeline, start);
        self.place.make_directory_of(&path)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(MODE);
        let mut opened = options.open(&path);
        if is_taken(&opened) {
            if let Some(vacant) = self.take_over(start, &path)? {
                return Ok(vacant);
            }
            opened = options.open(&path);
        }
        if is_taken(&opened) {
            // Somebody has begun it since this log was opened.
            return Err(RepositoryError::Locked { path });
        }
        let file = opened.doing("create", &path)?;
        let lock = lock(&file, &path)?;
        // That of an object which somebody removed.
        let mut mark = DurableMark::of(&path);
        mark.remove()?;
        Ok(Vacant {
            file,
            path,
            mark,
            lock,
        })
    }

    fn header(&self, start: Lsn) -> LogHeader {
        LogHeader {
            system: self.place.system(),
            timeline: self.timeline.0,
            segment_bytes: self.segment_bytes,
            start: start.0,
            begun_nanos: now_nanos(),
            frame_bytes: FRAME_BYTES,
            content: self.place.content().clone(),
            // The place says it.
            is_encrypted: false,
        }
    }

    /// How many bytes have come since the last object was sealed, or the last part was stored.
    pub(crate) fn growing_bytes(&self) -> u64 {
        match &self.current {
            Some(current) => self.position.0 - current.start.0,
            None => self.pending.len() as u64,
        }
    }

    /// Completes the growing object and gives it the name of its range.
    pub(crate) fn seal(&mut self) -> Result<(), RepositoryError> {
        if self.parts.is_some() {
            return self.gather();
        }
        self.flush()?;
        let Some(mut current) = self.current.take() else {
            return Ok(());
        };
        current.writer.complete(&current.path)?;
        if let Some(owed) = current.mark.owed_behind(self.position.0) {
            self.leave_vacant(owed)?;
        }
        current.mark.remove()?;
        let path = self
            .place
            .object_path(self.timeline, current.start, self.position);
        let named = durable::name_new(current.writer.file(), &current.path, &path);
        match named {
            Ok(()) => self.place.sync_names(&path)?,
            // The archive has this segment, too. What grew stays as it is, until it is in the way.
            Err(NameError::Taken) => self.drop_if_same(&path, &current)?,
            Err(error) => {
                return Err(std::io::Error::from(error)).doing("name", &path);
            }
        }
        self.durable = self.position;
        Ok(())
    }

    /// Removes what grew if the object that has its name holds the same.
    fn drop_if_same(&self, path: &Path, current: &Current) -> Result<(), RepositoryError> {
        let name = ObjectName {
            start: current.start,
            end: Some(self.position),
            path: path.to_owned(),
            bytes: None,
        };
        let there = (self.place).open_object(self.timeline, &name, Reading::Whole)?;
        let own = windlass_engine::Directory.open(&current.path, None, Reading::Whole);
        let own = own.doing("open", &current.path)?;
        let own = crate::object::LogObject::open(self.place.at(), (own, &current.path), true)?;
        let mut memory = crate::object::FrameMemory::new(path)?;
        let read = |at: Lsn, into: &mut [u8]| {
            let mut done = 0;
            while done < into.len() {
                let at = at.0 + done as u64;
                let number = own.frame_of(at).unwrap_or(usize::MAX);
                let frame = own.read_frame(number, &mut memory)?;
                let bytes = &memory.decoded[fitted::<usize, u64>(at - frame.position)..];
                let count = bytes.len().min(into.len() - done);
                into[done..done + count].copy_from_slice(&bytes[..count]);
                done += count;
            }
            Ok(())
        };
        let range = (current.start, self.position);
        let compared = crate::content::compare(&there, range, read)?;
        if compared != crate::content::Compared::Same(self.position) {
            return Err(RepositoryError::Different {
                name: format!("{} to {}", current.start, self.position),
                object: path.to_owned(),
            });
        }
        std::fs::remove_file(&current.path).doing("remove", &current.path)?;
        self.place.sync_names(path)
    }

    /// Stores the history of a timeline, unless the place has it.
    pub fn put_history(
        place: &LogPlace,
        timeline: Timeline,
        content: &[u8],
    ) -> Result<Pushed, RepositoryError> {
        let text = String::from_utf8_lossy(content);
        windlass_postgres::parse_history(&timeline.history_name(), &text)?;
        let packing = Packing {
            codec: Codec::Zstd(1),
            threads: 1,
        };
        put_file(place, &timeline.history_name(), content, packing)
    }
}

/// Whether a file is there that was to be created.
fn is_taken(opened: &std::io::Result<File>) -> bool {
    let fault = opened.as_ref().err().map(std::io::Error::kind);
    fault == Some(ErrorKind::AlreadyExists)
}

/// Fails if another process writes this object. Without locks there is none that could be asked.
fn lock(file: &File, path: &Path) -> Result<Option<Locked<File>>, RepositoryError> {
    match Locked::take(file.try_clone().doing("open", path)?) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(RepositoryError::Locked { path: path.into() })
        }
        Err(_) => Ok(None),
    }
}
