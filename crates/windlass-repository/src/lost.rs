//! Growing objects that have lost log which was durable: found by their marks, until it has come
//! again.
//!
//! Invariants
//! - What such an object still has can be read. What is missing is told, and never looks like the
//!   end of the log.
//! - A mark goes only when what it tells of is there again, or cannot come at its position.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use windlass_engine::{Reading, durable};
use windlass_media::FormatError;
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, LostEnd, RepositoryError};
use crate::mark::{self, DurableMark, Marked};
use crate::object::LogObject;
use crate::place::{LogPlace, ObjectName};
use crate::ranges::{LogSpan, has_lost, merged};
use crate::writer::MODE;

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

    /// What growing objects have lost of their ends, and no sealed object has. A mark goes if such
    /// objects have what it tells of.
    pub fn lost_ends(&self) -> Result<Vec<LostEnd>, RepositoryError> {
        let mut found = Vec::new();
        for end in self.all_lost_ends()? {
            let objects = self.objects(end.timeline)?.into_iter();
            let sealed = objects.filter_map(|name| Some((name.start, name.end?)));
            let sealed = merged(sealed.map(|(start, end)| LogSpan { start, end }).collect());
            match sealed.iter().any(|span| has_lost(span, &end)) {
                true => DurableMark::of(&end.path).remove()?,
                false => found.push(end),
            }
        }
        Ok(found)
    }

    /// Takes growing objects as they are now that have lost their ends: what is gone has come again
    /// at another position, or a new timeline tells that it may be lost.
    pub(crate) fn admit_lost_ends(&self) -> Result<(), RepositoryError> {
        for end in self.all_lost_ends()? {
            DurableMark::of(&end.path).remove()?;
        }
        Ok(())
    }

    fn all_lost_ends(&self) -> Result<Vec<LostEnd>, RepositoryError> {
        let mut lost = Vec::new();
        if !self.at().is_directory() {
            return Ok(lost);
        }
        for timeline in self.timelines()? {
            for name in self.growing(timeline)? {
                match self.open_object(timeline, &name, Reading::Whole) {
                    Ok(object) => lost.extend(object.lost),
                    Err(RepositoryError::LostEnd { lost: end, .. }) => lost.push(end),
                    Err(_) => {}
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
        Marked::Nothing | Marked::Unknown => None,
    };
    let lost = |end, durable| LostEnd::new(&name.path, timeline, end, durable);
    match opened {
        Ok(mut object) => {
            let durable = said.max(object.said_behind);
            let is_lost = durable.is_some_and(|durable| durable > object.end());
            if is_lost || marked == Marked::Unknown {
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

/// Keeps a durable copy of a damaged object beside it, under a name that no reader looks at, before
/// what comes again takes its place. An earlier copy stays.
pub(crate) fn keep_aside(path: &Path) -> Result<(), RepositoryError> {
    let mut number = 1;
    let mut aside = path.with_extension("damaged");
    let copy = loop {
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(MODE).open(&aside) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => break opened.doing("create", &aside)?,
        }
        aside = path.with_extension(format!("damaged-{number}"));
    };
    let mut object = windlass_engine::open_regular(path).doing("open", path)?;
    std::io::copy(&mut object, &mut &copy).doing("copy", path)?;
    copy.sync_all().doing("sync", &aside)?;
    durable::sync_parent(&aside).doing("sync the directory of", &aside)
}
