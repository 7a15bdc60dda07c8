//! Stores what a server archives: segments, history files, and what else belongs to the log.
//!
//!   file --> its head and its history are right? --> is it there already? -- same --> done
//!                                                       | no              -- other --> refused
//!                                                       v
//!                            frames --> temporary name --> durable --> name --> durable
//!
//! With look-ahead, segments that the server has also marked as ready go into the same object. The
//! next calls then find their segments there, compare them, and have nothing left to write.
//!
//! Invariants
//! - A push returns only when the file is durable in the place, whoever stored it.
//! - Nothing in the data directory is changed.
//! - Content that differs from what is archived is never stored.

mod file;
pub(crate) mod source;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use windlass_engine::Reading;
use windlass_media::{Codec, LogContent, LogHeader, saturated};
use windlass_postgres::{Control, Lsn, Segment};

use crate::content::{Compared, compare};
use crate::error::{IoContext, RepositoryError};
use crate::file_name::LogFileName;
use crate::history::Histories;
use crate::place::{LogPlace, OBJECT_BYTES_MAX, ObjectName, Place, log_systems};
use crate::token::ContentKey;
use crate::writer::{FRAME_BYTES, LogWriter, Packing};
pub(crate) use file::put_file;
use source::Source;

/// Longest file that belongs to a log. The longest is the last segment of an abandoned timeline.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 30;

/// How many segments that are ready go into one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookAhead(pub usize);

/// What to store.
#[derive(Clone, Debug)]
pub struct PushRequest {
    /// Where to. The place must exist.
    pub place: Place,
    /// The file, as the server names it.
    pub path: PathBuf,
    /// The cluster, if there is no data directory that says it.
    pub system: Option<u64>,
    /// How many ready segments to store with it.
    pub look_ahead: LookAhead,
    /// How to compress.
    pub codec: Codec,
    /// On how many threads.
    pub threads: usize,
}

/// What was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The file, and the segments after it.
    Stored {
        /// How many files.
        files: usize,
        /// Their bytes.
        bytes: u64,
        /// Bytes of the object.
        stored_bytes: u64,
    },
    /// Nothing: the place had it already.
    Already,
}

/// Stores a file that a server archives. It is durable when this returns.
pub fn push(request: &PushRequest) -> Result<Pushed, RepositoryError> {
    let name = request
        .path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let unknown = || RepositoryError::Name {
        name: name.clone().into_owned(),
    };
    let name = LogFileName::parse(&name).ok_or_else(unknown)?;
    match &name {
        LogFileName::Segment(_) => push_segment(request),
        _ => push_file(request, &name),
    }
}

fn push_segment(request: &PushRequest) -> Result<Pushed, RepositoryError> {
    match check(request)? {
        Checked::There(_, object, place) => place.sync_names(&object).map(|()| Pushed::Already),
        Checked::New(group) => {
            let is_alone = group.segments.len() == 1;
            match group.store(request) {
                // What the server hands over may have room where others with it have none.
                Err(error) if error.is_full() && !is_alone => push_segment(&PushRequest {
                    look_ahead: LookAhead(1),
                    ..request.clone()
                }),
                stored => stored.map(|(_, pushed)| pushed),
            }
        }
    }
}

/// A segment that may be stored, after a look at what the place has.
pub(crate) enum Checked {
    /// The segment, and the object that holds all of it.
    There(Source, PathBuf, LogPlace),
    /// The segment, and those after it that go into the same object.
    New(Group),
}

/// Segments that follow each other, and that the place does not have.
pub(crate) struct Group {
    place: LogPlace,
    pub(crate) segments: Vec<Source>,
    /// An object that holds one of them and is damaged.
    damaged: Option<PathBuf>,
}

/// Checks a segment that the server hands over. Refuses what does not belong in the place.
pub(crate) fn check(request: &PushRequest) -> Result<Checked, RepositoryError> {
    let source = Source::open(&request.path)?;
    let expected = system_of(request)?;
    if expected.is_some_and(|system| system != source.head.system) {
        return Err(RepositoryError::Foreign {
            path: source.path,
            found: source.head.system,
            expected: expected.unwrap_or_default(),
        });
    }
    let place = LogPlace::new(&request.place, source.head.system);
    request.place.find()?;
    check_history(request, &place, &source)?;
    let at = (source.start(), source.segment_bytes);
    let there = place.objects_from(source.segment.timeline, at)?;
    let mut damaged = None;
    if let Some(object) = find_same(&place, &source, &there, &mut damaged)? {
        return Ok(Checked::There(source, object, place));
    }
    let segments = ready_after(request, source, &there);
    Ok(Checked::New(Group {
        place,
        segments,
        damaged,
    }))
}

/// The path of an object that holds the whole segment, as it is. An object that holds a part of it
/// must agree, too; one that is damaged does not count.
fn find_same(
    place: &LogPlace,
    source: &Source,
    there: &[ObjectName],
    damaged: &mut Option<PathBuf>,
) -> Result<Option<PathBuf>, RepositoryError> {
    let (start, end) = (source.start(), source.end());
    let overlaps =
        |name: &&ObjectName| name.start < end && name.end.is_none_or(|its_end| its_end > start);
    let mut whole = None;
    for name in there.iter().filter(overlaps) {
        let opened = place.open_object(source.segment.timeline, name, Reading::Whole);
        let from = start.max(name.start);
        let compared = opened
            .and_then(|object| compare(&object, (from, end), |at, into| source.read(at, into)));
        match compared {
            Ok(Compared::Other) => {
                return Err(RepositoryError::Different {
                    name: source.segment.name(source.segment_bytes),
                    object: name.path.clone(),
                });
            }
            Ok(Compared::Same(to)) => {
                if from == start && to == end && name.end.is_some() {
                    whole = Some(name.path.clone());
                }
            }
            Err(error) if error.is_damage() => *damaged = Some(name.path.clone()),
            // Whoever receives the log gave it another name, after the list was made.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(whole)
}

/// The segment, and those after it that the server has marked as ready.
fn ready_after(request: &PushRequest, first: Source, there: &[ObjectName]) -> Vec<Source> {
    let most = saturated::<usize, u64>(OBJECT_BYTES_MAX / first.segment_bytes).max(1);
    // In a bucket each segment has its own object, so that one request reads it.
    let most = match request.place.is_directory() {
        true => request.look_ahead.0.max(1).min(most),
        false => 1,
    };
    let directory = request.path.parent().unwrap_or(Path::new(""));
    let mut group = vec![first];
    while let Some(last) = group.last().filter(|_| group.len() < most) {
        let next = Segment {
            timeline: last.segment.timeline,
            number: last.segment.number + 1,
        };
        let (name, bytes) = (next.name(last.segment_bytes), last.segment_bytes);
        let (start, end) = (next.start(bytes), Lsn(next.start(bytes).0 + bytes));
        let is_there = there
            .iter()
            .any(|one| one.start < end && one.end.is_none_or(|its_end| its_end > start));
        if is_there || !is_ready(directory, &name) || start.0 >> 32 != last.start().0 >> 32 {
            break;
        }
        // What is wrong with it is said when the server names it.
        match Source::open(&directory.join(name)) {
            Ok(source) if source.head.system == last.head.system => group.push(source),
            _ => break,
        }
    }
    group
}

/// Whether the server has marked a segment of this directory as ready to be archived.
pub(crate) fn is_ready(directory: &Path, name: &str) -> bool {
    let status = directory.join("archive_status");
    status.join(format!("{name}.ready")).exists()
}

impl Group {
    /// Stores the segments in one object. Returns its path; it is durable then.
    pub(crate) fn store(self, request: &PushRequest) -> Result<(PathBuf, Pushed), RepositoryError> {
        let (first, last) = self.ends();
        let path = (self.place).object_path(first.segment.timeline, first.start(), last.end());
        let object = self.write(request, &path)?;
        let sealed = match &self.damaged {
            Some(damaged) if *damaged == path => Some(object.seal_over()?),
            _ => object.seal()?,
        };
        if let Some(stored_bytes) = sealed {
            let pushed = Pushed::Stored {
                files: self.segments.len(),
                bytes: last.end().0 - first.start().0,
                stored_bytes,
            };
            return Ok((path, pushed));
        }
        // Somebody else was faster. It must be the same.
        let there = (self.place).objects_at(first.segment.timeline, first.start())?;
        match find_same(&self.place, first, &there, &mut None)? {
            Some(path) => {
                self.place.sync_names(&path)?;
                Ok((path, Pushed::Already))
            }
            None => Err(RepositoryError::Different {
                name: first.segment.name(first.segment_bytes),
                object: path,
            }),
        }
    }

    /// The first and the last segment.
    pub(crate) fn ends(&self) -> (&Source, &Source) {
        let last = self.segments.len() - 1;
        (&self.segments[0], &self.segments[last])
    }

    fn write(&self, request: &PushRequest, path: &Path) -> Result<LogWriter, RepositoryError> {
        let (first, _) = self.ends();
        let header = LogHeader {
            system: self.place.system(),
            timeline: first.segment.timeline.0,
            segment_bytes: first.head.segment_bytes,
            start: first.start().0,
            begun_nanos: now_nanos(),
            frame_bytes: FRAME_BYTES,
            content: LogContent::Log,
            // The place says it.
            is_encrypted: false,
        };
        let mut object = self.place.begin_object(path, &header, packing(request))?;
        for source in &self.segments {
            object.append(&source.part_from(source.start()), source.segment_bytes)?;
        }
        Ok(object)
    }
}

/// Refuses a segment that cannot be on its timeline. Stores the history of the timeline if the
/// server has it and the place does not.
fn check_history(
    request: &PushRequest,
    place: &LogPlace,
    source: &Source,
) -> Result<(), RepositoryError> {
    let timeline = source.segment.timeline;
    if timeline.0 <= 1 {
        return Ok(());
    }
    let path = request.path.with_file_name(timeline.history_name());
    let mut history = match Histories::of(place).of_timeline(timeline) {
        // That of the server takes its place.
        Err(error) if error.is_damage() && path.exists() => None,
        history => history?,
    };
    if history.is_none() && path.exists() {
        let request = PushRequest {
            path,
            ..request.clone()
        };
        push_named(&request, place, &LogFileName::History(timeline))?;
        history = Histories::of(place).of_timeline(timeline)?;
    }
    let Some(history) = history else {
        return Ok(());
    };
    let (start, end) = (source.start(), source.end());
    let owner = history.iter().find(|(_, left_at)| start < *left_at);
    let expected = owner.map_or(timeline, |(ancestor, _)| *ancestor);
    let begins_later = history.last().is_some_and(|(_, left_at)| end <= *left_at);
    if expected != source.head.timeline || begins_later {
        return Err(RepositoryError::WrongTimeline {
            path: source.path.clone(),
            timeline,
            at: start,
            found: match begins_later {
                true => timeline,
                false => source.head.timeline,
            },
            expected,
        });
    }
    Ok(())
}

/// Stores a file that is no segment.
fn push_file(request: &PushRequest, name: &LogFileName) -> Result<Pushed, RepositoryError> {
    let systems = log_systems(&request.place)?;
    let system = match (system_of(request)?, systems.as_slice()) {
        (Some(system), _) => system,
        (None, [only]) => *only,
        (None, []) => {
            return Err(RepositoryError::NoLog {
                place: request.place.path().to_owned(),
                system: None,
            });
        }
        (None, _) => {
            return Err(RepositoryError::SeveralSystems {
                place: request.place.path().to_owned(),
                systems,
            });
        }
    };
    push_named(request, &LogPlace::new(&request.place, system), name)
}

fn push_named(
    request: &PushRequest,
    place: &LogPlace,
    name: &LogFileName,
) -> Result<Pushed, RepositoryError> {
    let path = &request.path;
    let content =
        windlass_engine::read_regular_at_most(path, FILE_BYTES_MAX).doing("read", path)?;
    if content.is_empty() {
        return Err(RepositoryError::Segment {
            path: path.clone(),
            what: "is empty",
        });
    }
    if let LogFileName::History(timeline) = name {
        let text = String::from_utf8_lossy(&content);
        windlass_postgres::parse_history(&timeline.history_name(), &text)?;
    }
    put_file(place, &name.to_string(), &content, packing(request))
}

/// The cluster that the data directory above the file is, or that the request names.
pub(crate) fn system_of(request: &PushRequest) -> Result<Option<u64>, RepositoryError> {
    match (system_beside(&request.path)?, request.system) {
        (Some(found), Some(expected)) if expected != found => Err(RepositoryError::Foreign {
            path: request.path.clone(),
            found,
            expected,
        }),
        (found, named) => Ok(found.or(named)),
    }
}

/// The cluster in whose pg_wal this path lies. `None` if that is no data directory.
pub fn system_beside(path: &Path) -> Result<Option<u64>, RepositoryError> {
    let data = data_directory(path);
    match data.join("global/pg_control").exists() {
        true => Ok(Some(Control::read(&data)?.system_identifier)),
        false => Ok(None),
    }
}

/// What tells content from other content in the cluster in whose pg_wal this path lies. `None` too
/// if that is no data directory.
pub fn content_key_beside(path: &Path) -> Result<Option<ContentKey>, RepositoryError> {
    let data = data_directory(path);
    match data.join("global/pg_control").exists() {
        true => Ok(ContentKey::of(&Control::read(&data)?)),
        false => Ok(None),
    }
}

/// The data directory of a file in its pg_wal.
pub(crate) fn data_directory(path: &Path) -> PathBuf {
    let parent = path.parent().and_then(Path::parent);
    match parent.filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("."),
    }
}

fn packing(request: &PushRequest) -> Packing {
    Packing {
        codec: request.codec,
        threads: request.threads,
    }
}

pub(crate) fn now_nanos() -> i64 {
    saturated(Timestamp::now().as_nanosecond())
}
