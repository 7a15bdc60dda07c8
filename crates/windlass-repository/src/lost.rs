//! Growing objects that have lost log which was durable: found by their marks, and admitted by
//! whoever asks the source for it again.
//!
//! Invariants
//! - What such an object still has can be read. What is missing is told, and never looks like the
//!   end of the log.

use std::path::Path;

use windlass_engine::Reading;
use windlass_media::FormatError;
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, LostEnd, RepositoryError};
use crate::mark::{self, DurableMark, Marked};
use crate::object::LogObject;
use crate::place::{LogPlace, ObjectName};

impl LogPlace {
    /// Up to where an object was durable that grows in a directory. To be asked for before the
    /// object is read, for somebody may write both.
    pub(crate) fn marked(&self, name: &ObjectName) -> Result<Marked, RepositoryError> {
        match name.end.is_none() && self.at().is_directory() {
            true => mark::read(&name.path),
            false => Ok(Marked::Nothing),
        }
    }

    /// Whether an object that grows has lost even its header. `marked` was read before.
    pub(crate) fn has_lost_all(
        &self,
        name: &ObjectName,
        marked: Marked,
    ) -> Result<bool, RepositoryError> {
        // One that was sealed meanwhile is not there, and another one never gets its name.
        Ok(marked.is_there() && !self.has_header(name)? && name.path.exists())
    }

    /// Takes growing objects as they are now that have lost their ends: whoever receives the log
    /// asks for it again, and what nobody has any more is a gap. Returns what is gone.
    pub fn admit_lost_ends(&self) -> Result<Vec<LostEnd>, RepositoryError> {
        let mut lost = Vec::new();
        if !self.at().is_directory() {
            return Ok(lost);
        }
        for timeline in self.timelines()? {
            for name in self.growing(timeline)? {
                let end = match self.open_object(timeline, &name, Reading::Whole) {
                    Ok(object) => object.lost,
                    Err(RepositoryError::LostEnd { lost, .. }) => Some(lost),
                    Err(_) => None,
                };
                if let Some(end) = end {
                    DurableMark::of(&name.path).remove()?;
                    lost.push(end);
                }
            }
        }
        Ok(lost)
    }

    fn growing(&self, timeline: Timeline) -> Result<Vec<ObjectName>, RepositoryError> {
        let mut growing = self.objects(timeline)?;
        growing.retain(|name| name.end.is_none());
        Ok(growing)
    }
}

/// The growing object of a name as it was opened, with what is lost of its end.
pub(crate) fn with_lost(
    opened: Result<LogObject, RepositoryError>,
    (timeline, name): (Timeline, &ObjectName),
    marked: Marked,
) -> Result<LogObject, RepositoryError> {
    let said = match marked {
        Marked::UpTo(durable) => Some(durable),
        Marked::Nothing | Marked::Damaged => None,
    };
    let lost = |end, durable| LostEnd::new(&name.path, timeline, end, durable);
    match opened {
        Ok(mut object) => {
            let durable = said.max(object.said_behind);
            let is_lost = durable.is_some_and(|durable| durable > object.end());
            if is_lost || marked == Marked::Damaged {
                object.lost = Some(lost(Lsn(object.end()), durable));
            }
            Ok(object)
        }
        Err(RepositoryError::Object { source, .. }) if !is_newer(&source) => {
            Err(RepositoryError::LostEnd {
                lost: lost(name.start, said),
                goes_on: false,
            })
        }
        opened => opened,
    }
}

/// Whether a newer version of Windlass wrote it: then it is not damaged.
fn is_newer(error: &FormatError) -> bool {
    matches!(
        error,
        FormatError::Version { .. } | FormatError::Feature { .. }
    )
}

/// Keeps a copy of a damaged object beside it, under a name that no reader looks at, before what
/// comes again takes its place.
pub(crate) fn keep_aside(path: &Path) -> Result<(), RepositoryError> {
    let aside = path.with_extension("damaged");
    std::fs::copy(path, &aside).map(drop).doing("copy", path)
}
