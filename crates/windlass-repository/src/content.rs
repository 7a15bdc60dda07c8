//! Objects of a place that were checked against what their names say, and a comparison with them.

use std::io::ErrorKind;

use windlass_engine::Reading;
use windlass_media::{FormatError, LogContent, Structure};
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, RepositoryError};
use crate::lost::with_lost;
use crate::object::LogObject;
use crate::place::{LogPlace, ObjectName};

impl LogPlace {
    /// Opens an object of the log. It must hold what its name and its place say. One that grows
    /// says what it has lost; the error `LostEnd` means that nothing of it can be read.
    pub(crate) fn open_object(
        &self,
        timeline: Timeline,
        name: &ObjectName,
        reading: Reading,
    ) -> Result<LogObject, RepositoryError> {
        if name.end.is_some() {
            return self.open_named(timeline, name, reading);
        }
        let marked = self.marked(name)?;
        let opened = match self.has_lost_all(name, marked)? {
            true => Err(RepositoryError::Object {
                path: name.path.clone(),
                source: FormatError::Truncated(Structure::LogHeader),
            }),
            false => self.open_named(timeline, name, reading),
        };
        with_lost(opened, (timeline, name), marked)
    }

    fn open_named(
        &self,
        timeline: Timeline,
        name: &ObjectName,
        reading: Reading,
    ) -> Result<LogObject, RepositoryError> {
        let bytes = self.open_bytes(name, reading).doing("open", &name.path)?;
        let object = LogObject::open(self.at(), (bytes, &name.path), name.end.is_some())?;
        let header = &object.header;
        let fault = if header.system != self.system() {
            Some("holds the log of another cluster")
        } else if header.timeline != timeline.0 || header.content != *self.content() {
            Some("does not hold the log of its timeline")
        } else if header.start != name.start.0 || name.end.is_some_and(|end| object.end() != end.0)
        {
            Some("does not hold the range that its name says")
        } else {
            None
        };
        match fault {
            None => Ok(object),
            Some(what) => Err(RepositoryError::Misplaced {
                path: name.path.clone(),
                what,
            }),
        }
    }

    /// The segment size of a timeline's log: every object states it. `None` if there is no object.
    pub(crate) fn segment_bytes(&self, timeline: Timeline) -> Result<Option<u64>, RepositoryError> {
        let mut fault = None;
        for high in self.upper_halves(timeline)? {
            for name in self.objects_at(timeline, Lsn(high << 32))? {
                match self.open_object(timeline, &name, Reading::Ends) {
                    Ok(object) => return Ok(Some(u64::from(object.header.segment_bytes))),
                    Err(error) => fault = Some(error),
                }
            }
        }
        fault.map_or(Ok(None), Err)
    }

    /// Whether the newest timeline begins or ends with an encrypted object: whoever reads the log
    /// needs a key.
    pub fn is_encrypted(&self) -> Result<bool, RepositoryError> {
        let Some(newest) = self.timelines()?.pop() else {
            return Ok(false);
        };
        let objects = self.objects(newest)?;
        let ends = [objects.first(), objects.last()];
        for name in ends.into_iter().flatten() {
            match self.open_object(newest, name, Reading::Ends) {
                Ok(object) if object.is_encrypted() => return Ok(true),
                // What is damaged, or has another name now, is met by whoever reads it.
                Err(error) if !error.is_damage() && !error.is_gone() => return Err(error),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Opens the object of a file that belongs to the log; `None` if there is none.
    pub(crate) fn open_file(&self, name: &str) -> Result<Option<LogObject>, RepositoryError> {
        let path = self.file_path(name);
        let bytes = match self.at().objects().open(&path, None, Reading::Whole) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.doing("open", &path)?,
        };
        let object = LogObject::open(self.at(), (bytes, &path), true)?;
        let header = &object.header;
        let is_it = matches!(&header.content, LogContent::File(own) if own == name);
        match is_it && header.system == self.system() {
            true => Ok(Some(object)),
            false => Err(RepositoryError::Misplaced {
                path,
                what: "holds another file than its name says",
            }),
        }
    }
}

/// Where two contents differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// The object holds the same, as far as both go: the position up to which.
    Same(Lsn),
    /// It holds something else.
    Other,
}

/// Compares bytes that begin at `from` with those of an object, by the checksums of its frames. It
/// also checks that these frames are stored as they were written. `read` gives bytes at a position.
///
/// A frame has a checksum of 32 bits. A segment has many frames, and two segments of one position
/// with different content differ in most of them. An encrypted frame has a keyed hash instead.
pub(crate) fn compare(
    object: &LogObject,
    (from, to): (Lsn, Lsn),
    mut read: impl FnMut(Lsn, &mut [u8]) -> Result<(), RepositoryError>,
) -> Result<Compared, RepositoryError> {
    let (mut stored, mut raw) = (Vec::new(), Vec::new());
    let mut at = from;
    while at < to {
        let Some(number) = object.frame_of(at.0) else {
            break;
        };
        let frame = object.stored_frame(number, &mut stored)?;
        let end = Lsn(frame.end().min(to.0));
        if (frame.position, frame.end()) == (at.0, end.0) {
            raw.resize(frame.decoded_bytes as usize, 0);
            read(at, &mut raw)?;
            if !object.holds(&frame, (&stored, &raw))? {
                return Ok(Compared::Other);
            }
        } else if !same_part(object, number, (at, end), (&mut raw, &mut read))? {
            return Ok(Compared::Other);
        }
        at = end;
    }
    Ok(Compared::Same(at))
}

/// Compares a part of a frame, byte by byte.
fn same_part(
    object: &LogObject,
    number: usize,
    (from, to): (Lsn, Lsn),
    (raw, read): (
        &mut Vec<u8>,
        &mut impl FnMut(Lsn, &mut [u8]) -> Result<(), RepositoryError>,
    ),
) -> Result<bool, RepositoryError> {
    let mut memory = crate::object::FrameMemory::new(&object.path)?;
    let frame = object.read_frame(number, &mut memory)?;
    let part = |at: Lsn| windlass_media::fitted::<usize, u64>(at.0 - frame.position);
    raw.resize(part(to) - part(from), 0);
    read(from, raw)?;
    Ok(memory.decoded.get(part(from)..part(to)) == Some(&raw[..]))
}
