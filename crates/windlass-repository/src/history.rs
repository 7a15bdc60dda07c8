//! Where timelines come from: the history files of an archived log.

use windlass_media::fitted;
use windlass_postgres::{Lsn, Timeline, parse_history};

use crate::error::RepositoryError;
use crate::object::FrameMemory;
use crate::place::LogPlace;

/// Longest history file that is read. One line has less than 100 bytes, and few clusters have a
/// thousand timelines.
const HISTORY_BYTES_MAX: u64 = 1 << 20;

/// The histories of the timelines in a place.
#[derive(Debug)]
pub struct Histories<'a> {
    place: &'a LogPlace,
}

impl<'a> Histories<'a> {
    /// Those of this log.
    pub fn of(place: &'a LogPlace) -> Self {
        Self { place }
    }

    /// The ancestors of a timeline, and where each was left, oldest first. `None` if the place has
    /// no history of it. The first timeline has none.
    pub fn of_timeline(
        &self,
        timeline: Timeline,
    ) -> Result<Option<Vec<(Timeline, Lsn)>>, RepositoryError> {
        let name = timeline.history_name();
        let Some(content) = self.place.read_file(&name, HISTORY_BYTES_MAX)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&content);
        Ok(Some(parse_history(&name, &text)?))
    }

    /// The newest timeline that a server would find which comes from this one: it looks for the
    /// history of the next number, as long as there is one.
    pub fn newest_from(&self, timeline: Timeline) -> Result<Timeline, RepositoryError> {
        let files = self.place.files()?;
        let is_there = |timeline: Timeline| files.contains(&timeline.history_name());
        let mut newest = timeline;
        while let Some(next) = newest
            .0
            .checked_add(1)
            .map(Timeline)
            .filter(|it| is_there(*it))
        {
            newest = next;
        }
        Ok(newest)
    }
}

impl LogPlace {
    /// The content of a file that belongs to the log. `None` if there is no such file.
    pub fn read_file(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, RepositoryError> {
        let Some(object) = self.open_file(name)? else {
            return Ok(None);
        };
        if object.end() > bytes_max {
            return Err(RepositoryError::Misplaced {
                path: object.path,
                what: "is longer than such a file can be",
            });
        }
        let mut content = Vec::with_capacity(fitted::<usize, u64>(object.end()));
        let mut memory = FrameMemory::new(&object.path)?;
        for number in 0..object.index().len() {
            object.read_frame(number, &mut memory)?;
            content.extend_from_slice(&memory.decoded);
        }
        Ok(Some(content))
    }
}
