//! Growing objects that have lost log which was durable: found by their marks, and admitted by
//! whoever asks the source for it again.

use std::path::Path;

use windlass_engine::Reading;
use windlass_postgres::{Lsn, Timeline};

use crate::error::{LostEnd, RepositoryError};
use crate::mark::{self, DurableMark};
use crate::object::LogObject;
use crate::place::{LogPlace, ObjectName};

impl LogPlace {
    /// Up to where an object was durable that grows in a directory. To be asked for before the
    /// object is read, for somebody may write both.
    pub(crate) fn marked(&self, name: &ObjectName) -> Result<Option<u64>, RepositoryError> {
        match name.end.is_none() && self.at().is_directory() {
            true => mark::read(&name.path),
            false => Ok(None),
        }
    }

    /// The same. Fails if the object has lost even its header.
    pub(crate) fn marked_and_begun(
        &self,
        name: &ObjectName,
    ) -> Result<Option<u64>, RepositoryError> {
        let marked = self.marked(name)?;
        match marked {
            // One that was sealed meanwhile is not there, and another one never gets its name.
            Some(durable) if !self.has_header(name)? && name.path.exists() => {
                Err(lost_end(&name.path, name.start, durable))
            }
            _ => Ok(marked),
        }
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
                let opened = self.open_object(timeline, &name, Reading::Whole);
                if let Err(RepositoryError::LostEnd { lost: end }) = opened {
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

/// Refuses a growing object that ends before what was durable.
pub(crate) fn check_end(object: &LogObject, marked: Option<u64>) -> Result<(), RepositoryError> {
    match marked {
        Some(durable) if object.end() < durable => {
            Err(lost_end(&object.path, Lsn(object.end()), durable))
        }
        _ => Ok(()),
    }
}

fn lost_end(path: &Path, end: Lsn, durable: u64) -> RepositoryError {
    RepositoryError::LostEnd {
        lost: LostEnd {
            path: path.to_owned(),
            end,
            durable: Lsn(durable),
        },
    }
}
