//! Growing objects that have lost log which was durable: found by their marks, until it has come
//! again.
//!
//!   timeline 1 ----|seg|ment| lost ->        damage: the server is asked for it
//!   timeline 1 ----+---|    | lost ->        left before that: a gap of timeline 1 alone
//!                   \---|seg|ment|----->
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
use windlass_media::{FormatError, LogContent};
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, LostEnd, RepositoryError};
use crate::file_name::LogFileName;
use crate::history::Histories;
use crate::mark::{self, DurableMark, Marked};
use crate::object::LogObject;
use crate::place::{LogPlace, ObjectName};
use crate::ranges::{LogSpan, TimelineLog, has_lost, merged};
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
            let mut found = Vec::new();
            for name in self.growing(timeline)? {
                match self.open_object(timeline, &name, Reading::Whole) {
                    Ok(object) => found.extend(object.lost),
                    Err(RepositoryError::LostEnd { lost: end, .. }) => found.push(end),
                    Err(_) => {}
                }
            }
            lost.append(&mut self.known_lost(timeline, found)?);
        }
        Ok(lost)
    }

    /// What objects of a timeline have lost, with what the rest of the log tells of it: how much it
    /// is at most, and whether the timeline was left before.
    pub(crate) fn known_lost(
        &self,
        timeline: Timeline,
        mut lost: Vec<LostEnd>,
    ) -> Result<Vec<LostEnd>, RepositoryError> {
        if lost.is_empty() || *self.content() != LogContent::Log {
            return Ok(lost);
        }
        let bytes = self.segment_bytes_if_sound(timeline)?;
        if let Some(bytes) = bytes {
            lost = lost.into_iter().map(|one| one.bounded(bytes)).collect();
        }
        for one in &mut lost {
            one.is_left = self.is_left_before(one)?;
        }
        Ok(lost)
    }

    /// Whether a timeline of this place left that of a loss before it, or has its part itself.
    fn is_left_before(&self, lost: &LostEnd) -> Result<bool, RepositoryError> {
        let histories = Histories::of(self);
        for name in self.files()? {
            let Some(LogFileName::History(newer)) = LogFileName::parse(&name) else {
                continue;
            };
            let history = match histories.of_timeline(newer) {
                Err(error) if error.is_damage() => None,
                history => history?,
            };
            let history = history.unwrap_or_default();
            let mut passed = history.iter().skip_while(|one| one.0 != lost.timeline);
            let Some((_, left_at)) = passed.next() else {
                continue;
            };
            if *left_at <= lost.end {
                return Ok(true);
            }
            let next = passed.next().map_or(newer, |one| one.0);
            let Some(bytes) = self.segment_bytes_if_sound(next)? else {
                continue;
            };
            // The first segment of a timeline repeats what the older one wrote of it.
            let repeated = Lsn(left_at.0 / bytes * bytes);
            let log = TimelineLog::of(self, next)?;
            if repeated <= lost.end && log.covered_from(repeated) > repeated {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The segment size of a timeline's log, if an object that can be read states it.
    fn segment_bytes_if_sound(&self, timeline: Timeline) -> Result<Option<u64>, RepositoryError> {
        match self.segment_bytes(timeline) {
            Err(error) if error.is_damage() => Ok(None),
            found => found,
        }
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
            // What nobody knows may be more than what frames behind the end tell of.
            let durable = match marked {
                Marked::Unknown => None,
                _ => said.max(object.said_behind),
            };
            let is_lost = durable.is_some_and(|durable| durable > object.end());
            if is_lost || marked == Marked::Unknown {
                let (header, lost) = (&object.header, lost(Lsn(object.end()), durable));
                object.lost = match header.content {
                    LogContent::Log => {
                        lost.in_segments(header.segment_bytes.into(), Lsn(header.start))
                    }
                    _ => Some(lost),
                };
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
