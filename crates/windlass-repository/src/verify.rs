//! A check of an archived log: of every byte, or only of what says where the bytes are.
//!
//! Invariants
//! - One frame is in memory at a time.
//! - A fault of one object does not end the check of the others.

use std::io::ErrorKind;

use windlass_engine::{Cancel, Reading};
use windlass_media::{LogContent, fitted};
use windlass_postgres::{SegmentHead, Timeline};

use crate::error::{LostEnd, RepositoryError};
use crate::history::Histories;
use crate::object::{FrameMemory, LogObject};
use crate::place::LogPlace;
use crate::ranges::TimelineLog;

/// How much a check reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDepth {
    /// Every byte.
    Everything,
    /// Headers, indexes and ends. Of an object that grows everything, because it has no index.
    Indexes,
}

/// What a check of a log found.
#[derive(Debug, Default)]
pub struct LogCheck {
    /// How many objects there are.
    pub objects: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// How many of them are encrypted, and were not read: there is no key.
    pub unread: u64,
    /// What is wrong with objects.
    pub faults: Vec<RepositoryError>,
    /// What objects have lost of timelines that were left before: a gap of those alone.
    pub left: Vec<LostEnd>,
    /// Timelines of which there is log and no history: nobody knows where they came from.
    pub without_history: Vec<Timeline>,
}

impl LogPlace {
    /// Checks all objects and files of this log. It ends early if it is cancelled.
    pub fn verify(&self, depth: CheckDepth, cancel: &Cancel) -> Result<LogCheck, RepositoryError> {
        let mut check = LogCheck::default();
        for timeline in self.timelines()? {
            if timeline.0 > 1 && *self.content() == LogContent::Log {
                check.history(self, timeline)?;
            }
            for name in self.objects(timeline)? {
                let reading = match depth {
                    CheckDepth::Everything => Reading::Whole,
                    CheckDepth::Indexes => Reading::Ends,
                };
                let before = check.faults.len();
                check.object(self.open_object(timeline, &name, reading), depth);
                if check.faults.len() > before {
                    check.sort_lost(self)?;
                }
                if cancel.is_cancelled() {
                    return Ok(check);
                }
            }
        }
        for name in self.files()? {
            let missing = || RepositoryError::NoLog {
                place: self.place().to_owned(),
                system: Some(self.system()),
            };
            let opened = self.open_file(&name);
            let opened = opened.and_then(|found| found.ok_or_else(missing));
            check.object(opened, depth);
        }
        Ok(check)
    }
}

impl LogCheck {
    /// Notes a timeline whose history is not there. That a history is damaged is found with the
    /// other files.
    fn history(&mut self, place: &LogPlace, timeline: Timeline) -> Result<(), RepositoryError> {
        match Histories::of(place).of_timeline(timeline) {
            Ok(Some(_)) => {}
            Ok(None) => self.without_history.push(timeline),
            Err(error) if error.is_damage() => {}
            Err(error) => self.faults.push(error),
        }
        Ok(())
    }

    /// Takes what the last object has lost out of the faults, if its timeline was left before.
    fn sort_lost(&mut self, place: &LogPlace) -> Result<(), RepositoryError> {
        let Some(RepositoryError::LostEnd { lost, .. }) = self.faults.last() else {
            return Ok(());
        };
        let known = TimelineLog::of(place, lost.timeline)?.lost.into_iter();
        let left = { known }.find(|one| one.is_left && one.path == lost.path);
        if left.is_some() {
            self.faults.pop();
        }
        self.left.extend(left);
        Ok(())
    }

    fn object(&mut self, opened: Result<LogObject, RepositoryError>, depth: CheckDepth) {
        self.objects += 1;
        let checked = match opened {
            Ok(object) => {
                self.stored_bytes += object.stored_bytes();
                self.faults.extend(object.lost.clone().map(|lost| {
                    let goes_on = false;
                    RepositoryError::LostEnd { lost, goes_on }
                }));
                match depth {
                    CheckDepth::Everything => object.verify().map(|is_read| {
                        self.unread += u64::from(!is_read);
                    }),
                    CheckDepth::Indexes => Ok(()),
                }
            }
            // A receiver has sealed it meanwhile, and it is listed under its new name next time.
            Err(RepositoryError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.faults.extend(checked.err());
    }
}

/// Refuses decoded log in which a segment begins that is not the one of its position. `memory`
/// holds the frame that begins at `position`.
pub(crate) fn check_segments(
    object: &LogObject,
    position: u64,
    memory: &FrameMemory,
) -> Result<(), RepositoryError> {
    let header = &object.header;
    if header.content != LogContent::Log {
        return Ok(());
    }
    let bytes = u64::from(header.segment_bytes);
    let mut start = position.next_multiple_of(bytes);
    while let Some(found) = memory.decoded.get(fitted::<usize, u64>(start - position)..) {
        // A part of a head is in the next frame. What is received comes in parts of any length.
        if found.len() < SegmentHead::BYTES {
            break;
        }
        let head = SegmentHead::parse(found);
        let is_right = head.is_ok_and(|head| {
            head.start.0 == start
                && head.system == header.system
                && head.timeline.0 <= header.timeline
                && head.segment_bytes == header.segment_bytes
        });
        if !is_right {
            return Err(RepositoryError::Misplaced {
                path: object.path.clone(),
                what: "holds a segment that is not the one of its position",
            });
        }
        start += bytes;
    }
    Ok(())
}
