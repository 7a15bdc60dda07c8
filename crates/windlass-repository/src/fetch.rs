//! Fetches a file for a server that recovers: a segment, or a file that belongs to the log.
//!
//! Invariants
//! - The file appears under its name only when it is complete.
//! - `Absent` means that the place was looked at and does not have the file. Everything else that
//!   prevents a file is an error, because a server ends its recovery where log is absent.
//! - A part of a segment never hides the server's own segment that goes on behind it: a server
//!   reads what it fetched, and looks into its pg_wal only for what is absent.

mod part;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_engine::durable;
use windlass_postgres::{Lsn, Segment, Timeline};

use crate::error::{IoContext, LostEnd, RepositoryError};
use crate::file_name::LogFileName;
use crate::history::Histories;
use crate::object::FrameMemory;
use crate::place::{LogPlace, ObjectName};
use crate::push::data_directory;
use crate::reader::TRIES_MAX;
use crate::writer::MODE;
use part::{Held, Part, own_goes_on, parts, sound};

/// What became of a request for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The file is there, with this many bytes.
    Complete {
        /// Its bytes.
        bytes: u64,
    },
    /// The segment is there as far as the log goes, and then zeros. The log ends in it.
    UpTo {
        /// Where the log ends.
        end: Lsn,
    },
    /// The place does not have it.
    Absent,
}

/// Fetches a file of the log to `into`. It is not durable: the server makes it so. Log that was
/// durable and is lost is an error, unless it is lost from `until` on.
pub fn fetch(
    place: &LogPlace,
    name: &LogFileName,
    into: &Path,
    (threads, until): (usize, Option<Lsn>),
) -> Result<Fetched, RepositoryError> {
    match name {
        LogFileName::Segment(name) => {
            let mut tries = 1;
            loop {
                match fetch_segment(place, name, into, (threads, until)) {
                    // Whoever receives the log gave it another name, after the list was made.
                    Err(error) if error.is_gone() && tries < TRIES_MAX => tries += 1,
                    fetched => return fetched,
                }
            }
        }
        other => match place.open_file(&other.to_string())? {
            None => Ok(Fetched::Absent),
            Some(object) => {
                let end = object.end();
                let parts = [Part {
                    object,
                    from: 0,
                    to: end,
                }];
                write(&parts, (0, end), into, threads)?;
                Ok(Fetched::Complete { bytes: end })
            }
        },
    }
}

fn fetch_segment(
    place: &LogPlace,
    name: &str,
    into: &Path,
    (threads, until): (usize, Option<Lsn>),
) -> Result<Fetched, RepositoryError> {
    let is_expected = |lost: &LostEnd| until.is_some_and(|until| until <= lost.end);
    let timeline = LogFileName::Segment(name.to_owned()).timeline();
    if let Some(part) = whole_segment(place, timeline, name)? {
        let (start, end) = (part.from, part.to);
        write(&[part], (start, end), into, threads)?;
        let bytes = end - start;
        return Ok(Fetched::Complete { bytes });
    }
    let segment_bytes = match place.segment_bytes(timeline) {
        Err(RepositoryError::LostEnd { lost, .. }) if is_expected(&lost) => None,
        found => found?,
    };
    let Some(segment_bytes) = segment_bytes else {
        return Ok(Fetched::Absent);
    };
    let Some(segment) = Segment::of_name(name, segment_bytes) else {
        return Ok(Fetched::Absent);
    };
    let start = segment.start(segment_bytes);
    let end = Lsn(start.0 + segment_bytes);
    let names = place.objects_at(timeline, start)?;
    let (parts, lost) = parts(place, timeline, &names, (start, end))?;
    // Whoever expects the loss wants the log to end there, whatever comes behind it.
    let ends_in_loss = lost.is_some();
    if let Some(lost) = lost.filter(|lost| !is_expected(lost)) {
        let goes_on = false;
        return Err(RepositoryError::LostEnd { lost, goes_on });
    }
    let reached = parts.last().map_or(start, |part| Lsn(part.to));
    if reached < end {
        let own = data_directory(into).join("pg_wal").join(name);
        let has_own = match reached == start {
            true => own.exists(),
            false => own_goes_on(&own, &parts, (start, reached, end))?,
        };
        if !has_own && !ends_in_loss {
            check_end(place, timeline, &names, (start, reached))?;
            check_left(place, timeline, &names, (start, reached, end), into)?;
        }
        if has_own || reached == start {
            return Ok(Fetched::Absent);
        }
    }
    write(&parts, (start.0, end.0), into, threads)?;
    Ok(match reached == end {
        true => Fetched::Complete {
            bytes: segment_bytes,
        },
        false => Fetched::UpTo { end: reached },
    })
}

/// The segment, if one sound object holds it and nothing else. The names of objects say so without
/// anything having been read, whatever the size of a segment is.
fn whole_segment(
    place: &LogPlace,
    timeline: Timeline,
    name: &str,
) -> Result<Option<Part>, RepositoryError> {
    let Some(half) = upper_half(name) else {
        return Ok(None);
    };
    for object in place.objects_at(timeline, half)? {
        let Some(end) = object.end else { continue };
        let (start, bytes) = (object.start, end.0 - object.start.0);
        let of_size = Segment::of_name(name, bytes).map(|segment| segment.start(bytes));
        if of_size != Some(start) {
            continue;
        }
        match sound(place, timeline, &object, (start, end)) {
            Ok(Held::Part(part)) if part.is_segment(bytes) => return Ok(Some(*part)),
            // Who looks at all objects finds the damage again, or another one that is sound.
            Err(error) if !error.is_damage() => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}

/// The position, of those in a segment of this name, that every size of segments has in common: its
/// upper half.
fn upper_half(name: &str) -> Option<Lsn> {
    let half = u64::from_str_radix(name.get(8..16)?, 16).ok()?;
    Some(Lsn(half << 32))
}

impl LogPlace {
    /// Where the segment of this name begins. None for other files, and without any log.
    pub fn begin_of(&self, name: &LogFileName) -> Result<Option<Lsn>, RepositoryError> {
        let LogFileName::Segment(text) = name else {
            return Ok(None);
        };
        let Some(bytes) = self.segment_bytes(name.timeline())? else {
            return Ok(None);
        };
        Ok(Segment::of_name(text, bytes).map(|segment| segment.start(bytes)))
    }
}

/// Whether the place has log of a timeline before a position, from its segment on.
fn has_before(names: &[ObjectName], halves: &[u64], (start, reached): (Lsn, Lsn)) -> bool {
    let begins_before = names.iter().any(|one| one.start < start);
    let high = reached.0 >> 32;
    reached > start || begins_before || halves.iter().any(|half| *half < high)
}

/// Refuses a segment that is missing or incomplete although a newer timeline left this one behind
/// it: this one was written at least up to there. A standby may get the segment from its primary.
fn check_left(
    place: &LogPlace,
    timeline: Timeline,
    names: &[ObjectName],
    (start, reached, end): (Lsn, Lsn, Lsn),
    into: &Path,
) -> Result<(), RepositoryError> {
    let is_standby = data_directory(into).join("standby.signal").exists();
    let halves = place.upper_halves(timeline)?;
    if is_standby || !has_before(names, &halves, (start, reached)) {
        return Ok(());
    }
    for name in place.files()? {
        let Some(LogFileName::History(newer)) = LogFileName::parse(&name) else {
            continue;
        };
        let history = Histories::of(place).of_timeline(newer)?.unwrap_or_default();
        let mut passed = history.iter().skip_while(|one| one.0 != timeline);
        let Some((_, left_at)) = passed.next().filter(|one| end <= one.1) else {
            continue;
        };
        // A server stores what it has of the older timelines before it stores a newer one.
        if !place.upper_halves(newer)?.is_empty() {
            return Err(RepositoryError::Gap {
                timeline,
                from: reached,
                to: *left_at,
            });
        }
    }
    Ok(())
}

/// Refuses a segment that is missing or incomplete although the log goes on behind it.
fn check_end(
    place: &LogPlace,
    timeline: Timeline,
    names: &[ObjectName],
    (start, reached): (Lsn, Lsn),
) -> Result<(), RepositoryError> {
    let high = reached.0 >> 32;
    let mut halves = place.upper_halves(timeline)?;
    let mut later: Vec<Lsn> = names.iter().map(|one| one.start).collect();
    let has_before = has_before(names, &halves, (start, reached));
    later.retain(|begin| *begin >= reached);
    halves.retain(|half| *half > high);
    for half in halves {
        later.extend(
            place
                .objects_at(timeline, Lsn(half << 32))?
                .iter()
                .map(|one| one.start),
        );
    }
    match later.into_iter().min() {
        Some(to) if has_before => Err(RepositoryError::Gap {
            timeline,
            from: reached,
            to,
        }),
        _ => Ok(()),
    }
}

/// Writes the parts to a new file of this range; what no part has are zeros.
fn write(
    parts: &[Part],
    (start, end): (u64, u64),
    into: &Path,
    threads: usize,
) -> Result<(), RepositoryError> {
    let (file, temporary) = durable::create_temporary(into, MODE).doing("create", into)?;
    let written = write_to(&file, &temporary, parts, (start, end), threads);
    #[expect(clippy::disallowed_methods, reason = "the server makes it durable")]
    let named = written.and_then(|()| std::fs::rename(&temporary, into).doing("name", into));
    if named.is_err() {
        // The file is ours alone and incomplete. The error to show is the one that stopped it.
        std::fs::remove_file(&temporary).unwrap_or_default();
    }
    named
}

fn write_to(
    file: &File,
    path: &Path,
    parts: &[Part],
    (start, end): (u64, u64),
    threads: usize,
) -> Result<(), RepositoryError> {
    file.set_len(end - start).doing("extend", path)?;
    let tasks: Vec<_> = parts.iter().flat_map(Part::frames).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), RepositoryError> {
        let mut memory = FrameMemory::new(path)?;
        while let Some((part, number)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            copy(file, path, start, part, (*number, &mut memory))?;
        }
        Ok(())
    };
    let others = threads.min(tasks.len()).saturating_sub(1);
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for other in others {
            let ended = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}

/// Copies the part of a frame that is asked for.
fn copy(
    file: &File,
    path: &Path,
    start: u64,
    part: &Part,
    (number, memory): (usize, &mut FrameMemory),
) -> Result<(), RepositoryError> {
    let (from, bytes) = part.frame(number, memory)?;
    file.write_all_at(bytes, from - start).doing("write", path)
}
