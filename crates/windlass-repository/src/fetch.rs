//! Fetches a file for a server that recovers: a segment, or a file that belongs to the log.
//!
//! Invariants
//! - The file appears under its name only when it is complete.
//! - `Absent` means that the place was looked at and does not have the file. Everything else that
//!   prevents a file is an error, because a server ends its recovery where log is absent.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_engine::durable;
use windlass_postgres::{Lsn, Segment, Timeline};

use crate::error::{IoContext, RepositoryError};
use crate::file_name::LogFileName;
use crate::object::{FrameMemory, LogObject};
use crate::place::{LogPlace, ObjectName};
use crate::push::data_directory;
use crate::writer::MODE;

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

/// Fetches a file of the log to `into`. It is not durable: the server makes it so.
pub fn fetch(
    place: &LogPlace,
    name: &LogFileName,
    into: &Path,
    threads: usize,
) -> Result<Fetched, RepositoryError> {
    match name {
        LogFileName::Segment(name) => fetch_segment(place, name, into, threads),
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

/// Positions of a log, and the object that holds them.
struct Part {
    object: LogObject,
    from: u64,
    to: u64,
}

fn fetch_segment(
    place: &LogPlace,
    name: &str,
    into: &Path,
    threads: usize,
) -> Result<Fetched, RepositoryError> {
    let timeline = LogFileName::Segment(name.to_owned()).timeline();
    let Some(segment_bytes) = segment_bytes(place, timeline)? else {
        return Ok(Fetched::Absent);
    };
    let Some(segment) = Segment::of_name(name, segment_bytes) else {
        return Ok(Fetched::Absent);
    };
    let start = segment.start(segment_bytes);
    let end = Lsn(start.0 + segment_bytes);
    let names = place.objects_at(timeline, start)?;
    let parts = parts(place, timeline, &names, (start, end))?;
    let reached = parts.last().map_or(start, |part| Lsn(part.to));
    if reached < end {
        check_end(place, timeline, &names, (name, into, start, reached))?;
    }
    if reached == start {
        return Ok(Fetched::Absent);
    }
    write(&parts, (start.0, end.0), into, threads)?;
    Ok(match reached == end {
        true => Fetched::Complete {
            bytes: segment_bytes,
        },
        false => Fetched::UpTo { end: reached },
    })
}

/// The segment size of a timeline's log: every object states it. `None` if there is no object.
pub(crate) fn segment_bytes(
    place: &LogPlace,
    timeline: Timeline,
) -> Result<Option<u64>, RepositoryError> {
    let mut fault = None;
    for high in place.upper_halves(timeline)? {
        for name in place.objects_at(timeline, Lsn(high << 32))? {
            match place.open_object(timeline, &name) {
                Ok(object) => return Ok(Some(u64::from(object.header.segment_bytes))),
                Err(error) => fault = Some(error),
            }
        }
    }
    fault.map_or(Ok(None), Err)
}

/// Objects that hold the range, one after the other, as far as there are some. A damaged one is
/// passed over if another one is sound.
fn parts(
    place: &LogPlace,
    timeline: Timeline,
    names: &[ObjectName],
    (start, end): (Lsn, Lsn),
) -> Result<Vec<Part>, RepositoryError> {
    let mut parts: Vec<Part> = Vec::new();
    let mut at = start;
    while at < end {
        let mut holders: Vec<_> = names.iter().filter(|name| name.may_hold(at)).collect();
        // Complete objects first, and of these the one that reaches farthest.
        holders.sort_by_key(|name| (name.end.is_none(), std::cmp::Reverse(name.end)));
        let mut fault = None;
        let mut found = None;
        for name in holders {
            match sound(place, timeline, name, (at, end)) {
                Ok(Some(part)) => {
                    found = Some(part);
                    break;
                }
                Ok(None) => {}
                Err(error) => fault = Some(error),
            }
        }
        match (found, fault) {
            (Some(part), _) => {
                at = Lsn(part.to);
                parts.push(part);
            }
            (None, Some(error)) => return Err(error),
            (None, None) => break,
        }
    }
    Ok(parts)
}

/// The part that an object holds, if all its frames are as they were stored.
fn sound(
    place: &LogPlace,
    timeline: Timeline,
    name: &ObjectName,
    (at, end): (Lsn, Lsn),
) -> Result<Option<Part>, RepositoryError> {
    let object = place.open_object(timeline, name)?;
    let to = object.end().min(end.0);
    let mut stored = Vec::new();
    let mut next = at.0;
    while next < to {
        let Some(number) = object.frame_of(next) else {
            break;
        };
        next = object.stored_frame(number, &mut stored)?.end();
    }
    Ok((next > at.0).then_some(Part {
        object,
        from: at.0,
        to,
    }))
}

/// Refuses a segment that is missing or incomplete although the log goes on behind it. If the
/// server has the segment itself, it is not missing.
fn check_end(
    place: &LogPlace,
    timeline: Timeline,
    names: &[ObjectName],
    (name, into, start, reached): (&str, &Path, Lsn, Lsn),
) -> Result<(), RepositoryError> {
    let high = reached.0 >> 32;
    let mut halves = place.upper_halves(timeline)?;
    let mut later: Vec<Lsn> = names.iter().map(|one| one.start).collect();
    let begins_before = names.iter().any(|one| one.start < start);
    let has_before = reached > start || begins_before || halves.iter().any(|half| *half < high);
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
    let own = data_directory(into).join("pg_wal").join(name);
    match later.into_iter().min() {
        Some(to) if has_before && !own.exists() => Err(RepositoryError::Gap {
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
    let mut tasks = Vec::new();
    for part in parts {
        let first = part.object.frame_of(part.from).unwrap_or_default();
        let last = part.object.frame_of(part.to - 1).unwrap_or_default();
        tasks.extend((first..=last).map(|number| (part, number)));
    }
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
    let frame = part.object.read_frame(number, memory)?;
    let (from, to) = (frame.position.max(part.from), frame.end().min(part.to));
    let of = |at: u64| windlass_media::fitted::<usize, u64>(at - frame.position);
    let bytes = memory.decoded.get(of(from)..of(to)).unwrap_or_default();
    file.write_all_at(bytes, from - start).doing("write", path)
}
