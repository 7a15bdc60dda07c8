//! Copies from a server's pg_wal what a place lacks of its log, up to a position.
//!
//!   segments of the way ----+---------------+-------------+-----> end
//!   what the place has      |=======|       |=====|
//!   copied                          |=======|     |=============|
//!
//! What the server has removed already stays missing: the caller finds the gap.
//!
//! Invariants
//! - What is copied is durable when this returns.
//! - A segment that the server reuses while it is read is not stored.
//! - Where the copy joins what is there, both hold the same: another server's log is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use windlass_engine::Reading;
use windlass_media::{Codec, LogContent, LogHeader};
use windlass_postgres::{Lsn, Segment, SegmentHead, Timeline};

use crate::content::{Compared, compare};
use crate::error::{IoContext, RepositoryError};
use crate::file_name::LogFileName;
use crate::place::{LogPlace, OBJECT_BYTES_MAX, ObjectName};
use crate::push::source::Source;
use crate::push::{FILE_BYTES_MAX, now_nanos, put_file};
use crate::ranges::TimelineLog;
use crate::writer::{FRAME_BYTES, LogWriter, Packing};

/// What to copy.
#[derive(Clone, Debug)]
pub struct CopyRequest {
    /// The server's pg_wal.
    pub directory: PathBuf,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Nothing before this position is wanted.
    pub from: Lsn,
    /// The timeline at the end, and where the log ends.
    pub end: (Timeline, Lsn),
    /// The older timelines, and where each was left, oldest first.
    pub history: Vec<(Timeline, Lsn)>,
    /// How to compress.
    pub codec: Codec,
    /// On how many threads.
    pub threads: usize,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedLog {
    /// How many objects were made.
    pub objects: u64,
    /// Bytes of log in them.
    pub bytes: u64,
    /// Their own bytes.
    pub stored_bytes: u64,
}

/// A part of a segment that the place lacks.
struct Wanted {
    source: Source,
    from: Lsn,
    to: Lsn,
}

/// Copies what a place lacks.
pub fn copy(place: &LogPlace, request: &CopyRequest) -> Result<CopiedLog, RepositoryError> {
    let there = segments_in(request)?;
    let mut copied = CopiedLog::default();
    for (timeline, end) in ways(request) {
        put_history(place, request, timeline)?;
        let log = TimelineLog::of(place, timeline)?;
        check_join(place, request, &log, end)?;
        let of_timeline = there.range((timeline, 0)..=(timeline, u64::MAX));
        let mut group: Vec<Wanted> = Vec::new();
        for (&(_, number), path) in of_timeline {
            let segment = Segment { timeline, number };
            for wanted in lacking(request, &log, (segment, path), end)? {
                // In a bucket each segment has its own object, so that one request reads it.
                let may_join = place.at().is_directory();
                if !may_join || !joins(&group, &wanted, request.segment_bytes) {
                    store(place, request, &std::mem::take(&mut group), &mut copied)?;
                }
                group.push(wanted);
            }
        }
        store(place, request, &group, &mut copied)?;
    }
    Ok(copied)
}

/// Each timeline with the position up to which it counts. The segment in which a timeline was left
/// is repeated by the next one.
fn ways(request: &CopyRequest) -> Vec<(Timeline, Lsn)> {
    let whole = |at: Lsn| Lsn(at.0 / request.segment_bytes * request.segment_bytes);
    let older = request.history.iter();
    let older = older.map(|(timeline, left_at)| (*timeline, whole(*left_at)));
    older.chain([request.end]).collect()
}

/// The segments of the directory, by timeline and number.
fn segments_in(
    request: &CopyRequest,
) -> Result<BTreeMap<(Timeline, u64), PathBuf>, RepositoryError> {
    let directory = &request.directory;
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).doing("list", directory)? {
        let entry = entry.doing("list", directory)?;
        let name = entry.file_name();
        if let Some(one) = Segment::of_name(&name.to_string_lossy(), request.segment_bytes) {
            found.insert((one.timeline, one.number), entry.path());
        }
    }
    Ok(found)
}

/// Stores the history of a timeline, unless the place has it or the server does not.
fn put_history(
    place: &LogPlace,
    request: &CopyRequest,
    timeline: Timeline,
) -> Result<(), RepositoryError> {
    let name = timeline.history_name();
    let path = request.directory.join(&name);
    if timeline.0 <= 1 || !path.exists() {
        return Ok(());
    }
    let content =
        windlass_engine::read_regular_at_most(&path, FILE_BYTES_MAX).doing("read", &path)?;
    let name = LogFileName::History(timeline).to_string();
    put_file(place, &name, &content, packing(request)).map(drop)
}

/// The parts of a segment that the place lacks.
fn lacking(
    request: &CopyRequest,
    log: &TimelineLog,
    (segment, path): (Segment, &Path),
    end: Lsn,
) -> Result<Vec<Wanted>, RepositoryError> {
    let start = segment.start(request.segment_bytes);
    let stop = Lsn(start.0 + request.segment_bytes).min(end);
    let mut parts = Vec::new();
    let mut at = start;
    while at < stop && stop > request.from {
        let next = log.spans.iter().find(|span| span.end > at);
        let lacks_to = next.map_or(stop, |span| span.start.min(stop));
        if lacks_to > at {
            // The server may have removed it, or reused it under another name.
            match Source::open(path) {
                Ok(source) => parts.push(Wanted {
                    source,
                    from: at,
                    to: lacks_to,
                }),
                Err(_) if !path.exists() => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        at = next.map_or(stop, |span| span.end).max(lacks_to);
    }
    Ok(parts)
}

/// Whether a part goes into the object of the parts before.
fn joins(group: &[Wanted], next: &Wanted, segment_bytes: u64) -> bool {
    let Some((first, last)) = group.first().zip(group.last()) else {
        return true;
    };
    let most = OBJECT_BYTES_MAX.max(segment_bytes);
    // An object is found by the upper half of its beginning.
    let is_near = next.from.0 >> 32 == first.from.0 >> 32 && next.to.0 - first.from.0 <= most;
    last.to == next.from && is_near
}

/// Compares what the place has of the segment in which its log ends with the server's.
fn check_join(
    place: &LogPlace,
    request: &CopyRequest,
    log: &TimelineLog,
    end: Lsn,
) -> Result<(), RepositoryError> {
    let Some(last) = log.spans.last() else {
        return Ok(());
    };
    let at = last.end.min(end);
    let segment = Segment {
        timeline: log.timeline,
        number: at.0.saturating_sub(1) / request.segment_bytes,
    };
    let name = segment.name(request.segment_bytes);
    let path = request.directory.join(&name);
    let source = match Source::open(&path) {
        Ok(source) => source,
        // There is nothing to compare with.
        Err(_) if !path.exists() => return Ok(()),
        Err(error) => return Err(error),
    };
    for object in place.objects_at(log.timeline, source.start())? {
        let (from, to) = (object.start.max(source.start()), at);
        if from < to && object.end.is_none_or(|its_end| its_end > from) {
            same(place, &source, &object, (from, to))?;
        }
    }
    Ok(())
}

/// Refuses an object that holds something else than the server. A damaged one does not count.
fn same(
    place: &LogPlace,
    source: &Source,
    name: &ObjectName,
    range: (Lsn, Lsn),
) -> Result<(), RepositoryError> {
    let opened = place.open_object(source.segment.timeline, name, Reading::Whole);
    let compared =
        opened.and_then(|object| compare(&object, range, |at, into| source.read(at, into)));
    match compared {
        Ok(Compared::Other) if source.is_still_there()? => Err(RepositoryError::Different {
            name: source.segment.name(source.segment_bytes),
            object: name.path.clone(),
        }),
        Err(error) if !error.is_damage() => Err(error),
        _ => Ok(()),
    }
}

/// Stores parts that follow each other as one object.
fn store(
    place: &LogPlace,
    request: &CopyRequest,
    group: &[Wanted],
    copied: &mut CopiedLog,
) -> Result<(), RepositoryError> {
    let Some((first, last)) = group.first().zip(group.last()) else {
        return Ok(());
    };
    let timeline = first.source.segment.timeline;
    if first.source.head.system != place.system() {
        return Err(RepositoryError::Foreign {
            path: first.source.path.clone(),
            found: first.source.head.system,
            expected: place.system(),
        });
    }
    let path = place.object_path(timeline, first.from, last.to);
    match pack(place, request, group, (first, &path))?.seal()? {
        Some(stored_bytes) => {
            copied.objects += 1;
            copied.bytes += last.to.0 - first.from.0;
            copied.stored_bytes += stored_bytes;
        }
        // Somebody else was faster, or it is damaged: the place has the name.
        None => {
            let name = ObjectName {
                start: first.from,
                end: Some(last.to),
                path: path.clone(),
                bytes: None,
            };
            place.open_object(timeline, &name, Reading::Ends)?;
            place.sync_names(&path)?;
        }
    }
    Ok(())
}

/// The object of some parts, without a name.
fn pack(
    place: &LogPlace,
    request: &CopyRequest,
    group: &[Wanted],
    (first, path): (&Wanted, &Path),
) -> Result<LogWriter, RepositoryError> {
    let timeline = first.source.segment.timeline;
    let header = LogHeader {
        system: place.system(),
        timeline: timeline.0,
        segment_bytes: first.source.head.segment_bytes,
        start: first.from.0,
        begun_nanos: now_nanos(),
        frame_bytes: FRAME_BYTES,
        content: LogContent::Log,
        // The place says it.
        is_encrypted: false,
    };
    let mut object = place.begin_object(path, &header, packing(request))?;
    for Wanted { source, from, to } in group {
        object.append(&source.part_from(*from), to.0 - from.0)?;
        if !source.is_still_there()? {
            return Err(RepositoryError::Reused {
                path: source.path.clone(),
            });
        }
    }
    Ok(object)
}

impl Source {
    /// Whether the file is still the segment that was opened. A server reuses a segment from its
    /// beginning on.
    fn is_still_there(&self) -> Result<bool, RepositoryError> {
        let mut head = [0; SegmentHead::BYTES];
        self.read(self.start(), &mut head)?;
        Ok(SegmentHead::parse(&head) == Ok(self.head))
    }
}

fn packing(request: &CopyRequest) -> Packing {
    Packing {
        codec: request.codec,
        threads: request.threads,
    }
}
