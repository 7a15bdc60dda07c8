//! The end of the log that a place has, compared with what a server sends of it again.
//!
//! A server that was restored from a backup may go on with the timeline of its source. Its log must
//! not be appended to that of the source, so a receiver asks for the last segment of the place once
//! more. At the end of a segment that is the one before: both servers may begin the next one alike.

use windlass_media::fitted;
use windlass_postgres::{Lsn, Timeline};

use crate::error::RepositoryError;
use crate::path::{LogPath, LogStep};
use crate::place::LogPlace;
use crate::ranges::TimelineLog;
use crate::reader::LogReader;

/// How much of the log is in memory at a time.
const WINDOW_BYTES: u64 = 16 << 20;

/// The last segment of a timeline in a place, as far as the place has it.
pub struct KnownEnd {
    place: LogPlace,
    timeline: Timeline,
    path: LogPath,
    segment_bytes: u64,
    start: Lsn,
    /// Everything before was compared.
    compared: Lsn,
    end: Lsn,
    window: (Lsn, Vec<u8>),
}

impl KnownEnd {
    /// That of a timeline; `None` if the place has nothing of it.
    pub fn of(
        place: &LogPlace,
        timeline: Timeline,
        segment_bytes: u32,
    ) -> Result<Option<Self>, RepositoryError> {
        let segment_bytes = u64::from(segment_bytes);
        let log = TimelineLog::of(place, timeline)?;
        let Some(last) = log.spans.last() else {
            return Ok(None);
        };
        let before = last.end.0.saturating_sub(1);
        let start = last.start.max(Lsn(before / segment_bytes * segment_bytes));
        Ok(Some(Self {
            place: place.clone(),
            timeline,
            path: LogPath {
                steps: vec![LogStep {
                    timeline,
                    from: start,
                    to: None,
                }],
            },
            segment_bytes,
            start,
            compared: start,
            end: last.end,
            window: (start, Vec::new()),
        }))
    }

    /// Where it begins.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Where the log of the place ends.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// Everything before this position is what the server has, too.
    pub fn compared(&self) -> Lsn {
        self.compared
    }

    /// Whether a whole segment is compared, which the server may have removed.
    pub fn is_whole_segment(&self) -> bool {
        self.end.0.is_multiple_of(self.segment_bytes)
    }

    /// Compares what comes next. Returns how many of these bytes the place has. What is damaged
    /// there cannot be compared, and `verify` names it. Nor can what is encrypted, without a key.
    pub fn compare(&mut self, bytes: &[u8]) -> Result<usize, RepositoryError> {
        let count = fitted::<usize, u64>((self.end.0 - self.compared.0).min(bytes.len() as u64));
        let mut left = &bytes[..count];
        while !left.is_empty() {
            let known = match self.window() {
                Err(error) if error.is_damage() || error.is_without_key() => left,
                known => known?,
            };
            let step = known.len().min(left.len());
            if known[..step] != left[..step] {
                return Err(self.different()?);
            }
            self.compared = Lsn(self.compared.0 + step as u64);
            left = &left[step..];
        }
        Ok(count)
    }

    /// What the place has next; at least one byte.
    fn window(&mut self) -> Result<&[u8], RepositoryError> {
        let (start, bytes) = &mut self.window;
        let end = start.0 + bytes.len() as u64;
        if self.compared.0 >= end {
            let room = (self.end.0 - self.compared.0).min(WINDOW_BYTES);
            bytes.resize(fitted(room), 0);
            let mut reader = LogReader::new(&self.place, &self.path, self.segment_bytes);
            let found = reader.read_at(self.compared, bytes)?;
            bytes.truncate(found);
            *start = self.compared;
        }
        let at = fitted::<usize, u64>(self.compared.0 - start.0);
        match bytes.get(at..) {
            Some(known) if !known.is_empty() => Ok(known),
            _ => Err(RepositoryError::Gap {
                timeline: self.timeline,
                from: self.compared,
                to: self.end,
            }),
        }
    }

    fn different(&self) -> Result<RepositoryError, RepositoryError> {
        let objects = self.place.objects_at(self.timeline, self.compared)?;
        let holder = objects
            .into_iter()
            .find(|name| name.may_hold(self.compared));
        let object = holder.map_or_else(|| self.place.place().to_owned(), |name| name.path);
        let name = format!(
            "the log of timeline {} from {}",
            self.timeline, self.compared
        );
        Ok(RepositoryError::Different { name, object })
    }
}
