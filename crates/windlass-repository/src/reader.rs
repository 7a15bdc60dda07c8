//! Reads the archived log along a way through timelines, for those who look into its records.

use windlass_engine::Reading;
use windlass_media::fitted;
use windlass_postgres::{LogSource, Lsn, PostgresError, Timeline};

use crate::error::RepositoryError;
use crate::object::{FrameMemory, LogObject};
use crate::path::LogPath;
use crate::place::{LogPlace, ObjectName};

/// How often objects are listed again because one of them has got another name.
pub(crate) const TRIES_MAX: u32 = 4;

/// The log on a way. Behind its end there are zeros up to the end of a segment.
pub struct LogReader<'a> {
    place: &'a LogPlace,
    path: &'a LogPath,
    segment_bytes: u64,
    opened: Option<Opened>,
    listed: Option<Listed>,
}

/// The objects of a folder, as they were listed last. What is in none of them is looked for in a
/// new list.
struct Listed {
    folder: (Timeline, u64),
    names: Vec<ObjectName>,
}

/// An object, and its last frame that was read.
struct Opened {
    timeline: Timeline,
    object: LogObject,
    memory: FrameMemory,
    frame: Option<(u64, u64)>,
}

impl<'a> LogReader<'a> {
    /// A reader of this log on this way.
    pub fn new(place: &'a LogPlace, path: &'a LogPath, segment_bytes: u64) -> Self {
        Self {
            place,
            path,
            segment_bytes,
            opened: None,
            listed: None,
        }
    }

    /// Fills `into` from a position on. Returns how many bytes are there.
    pub fn read_at(&mut self, from: Lsn, into: &mut [u8]) -> Result<usize, RepositoryError> {
        let mut done = 0;
        while let Some(left) = into.get_mut(done..).filter(|left| !left.is_empty()) {
            let at = Lsn(from.0 + done as u64);
            match self.read_part(at, left)? {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }

    /// Copies what one frame holds of these positions.
    fn read_part(&mut self, at: Lsn, into: &mut [u8]) -> Result<usize, RepositoryError> {
        let Some(opened) = self.object_at(at)? else {
            return Ok(0);
        };
        if !opened
            .frame
            .is_some_and(|(start, end)| start <= at.0 && at.0 < end)
        {
            opened.frame = None;
            let Some(number) = opened.object.frame_of(at.0) else {
                return Ok(0);
            };
            let frame = opened.object.read_frame(number, &mut opened.memory)?;
            opened.frame = Some((frame.position, frame.end()));
        }
        let start = opened.frame.map_or(at.0, |(start, _)| start);
        let skipped = fitted::<usize, u64>(at.0 - start);
        let bytes = opened.memory.decoded.get(skipped..).unwrap_or_default();
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn object_at(&mut self, at: Lsn) -> Result<Option<&mut Opened>, RepositoryError> {
        let timelines = self.timelines_at(at);
        let is_open = self.opened.as_ref().is_some_and(|opened| {
            timelines.contains(&opened.timeline) && opened.object.frame_of(at.0).is_some()
        });
        if !is_open {
            self.opened = None;
            for timeline in timelines {
                if let Some(object) = self.find(timeline, at)? {
                    let memory = FrameMemory::new(&object.path)?;
                    self.opened = Some(Opened {
                        timeline,
                        object,
                        memory,
                        frame: None,
                    });
                    break;
                }
            }
        }
        Ok(self.opened.as_mut())
    }

    /// A sound object that holds a position. Those that are complete come first.
    fn find(&mut self, timeline: Timeline, at: Lsn) -> Result<Option<LogObject>, RepositoryError> {
        let folder = (timeline, at.0 >> 32);
        if let Some(listed) = self.listed.take_if(|listed| listed.folder == folder) {
            let found = self.open_of(timeline, at, &listed.names);
            if let Ok(Some(_)) = found {
                self.listed = Some(listed);
                return found;
            }
        }
        let mut tries = 1;
        loop {
            let names = self.place.objects_at(timeline, at)?;
            let found = self.open_of(timeline, at, &names);
            match found {
                // Whoever receives the log gave it another name, after the list was made.
                Err(error) if error.is_gone() && tries < TRIES_MAX => tries += 1,
                found => {
                    self.listed = Some(Listed { folder, names });
                    return found;
                }
            }
        }
    }

    fn open_of(
        &self,
        timeline: Timeline,
        at: Lsn,
        names: &[ObjectName],
    ) -> Result<Option<LogObject>, RepositoryError> {
        let mut names: Vec<_> = names.iter().filter(|name| name.may_hold(at)).collect();
        names.sort_by_key(|name| name.end.is_none());
        let mut fault = None;
        for name in names {
            match self.place.open_object(timeline, name, Reading::Whole) {
                Ok(object) if object.frame_of(at.0).is_some() => return Ok(Some(object)),
                // What is lost is not there. Whoever asks how far the log goes hears of it.
                Ok(_) | Err(RepositoryError::LostEnd { .. }) => {}
                Err(error) => fault = Some(error),
            }
        }
        fault.map_or(Ok(None), Err)
    }

    /// The timelines that may hold a position, the newest first: the first segment of a timeline
    /// repeats what an older one wrote of it.
    fn timelines_at(&self, at: Lsn) -> Vec<Timeline> {
        let segment_end = (at.0 / self.segment_bytes + 1) * self.segment_bytes;
        let mut found: Vec<_> = self
            .path
            .steps
            .iter()
            .filter(|step| step.to.is_none_or(|to| at < to))
            .filter(|step| step.from <= at || step.from.0 < segment_end)
            .map(|step| step.timeline)
            .collect();
        found.reverse();
        found
    }
}

impl LogSource for LogReader<'_> {
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> Result<bool, PostgresError> {
        let from = Lsn(segment
            .saturating_mul(self.segment_bytes)
            .saturating_add(offset));
        let read = self.read_at(from, into);
        let count = read.map_err(|error| PostgresError::Set {
            what: format!("the archived log cannot be read: {error}"),
        })?;
        into[count..].fill(0);
        Ok(count > 0)
    }
}
