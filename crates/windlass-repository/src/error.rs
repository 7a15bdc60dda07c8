//! What can go wrong with an archived log; each error names the thing and the position.

use std::io;
use std::path::{Path, PathBuf};

use windlass_engine::KeyFault;
use windlass_engine::durable::is_full;
use windlass_media::FormatError;
use windlass_postgres::{Lsn, PostgresError, Timeline};

/// Why log cannot be stored or fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// An error of a file or directory.
    #[error("{}", io_text(doing, path, source))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An object is damaged, or not one.
    #[error("log object {}: {source}", path.display())]
    Object {
        /// The object.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: FormatError,
    },
    /// An object is encrypted, and no key that is here opens it.
    #[error("log object {} is encrypted: {}", path.display(), windlass_engine::locked_words(fault, recipients))]
    Sealed {
        /// The object.
        path: PathBuf,
        /// Who can open it.
        recipients: Vec<String>,
        /// Why no key opens it.
        fault: KeyFault,
    },
    /// Whoever writes the log of a SQLite database has to read where it ends.
    #[error(
        "the log in {} would be encrypted, and this host could not go on with it: {}",
        place.display(), windlass_engine::locked_words(fault, recipients)
    )]
    NotReadAgain {
        /// The place.
        place: PathBuf,
        /// Who could open its objects.
        recipients: Vec<String>,
        /// Why no key opens them.
        fault: KeyFault,
    },
    /// An object is whole, and does not hold what its name says.
    #[error("log object {} {what}", path.display())]
    Misplaced {
        /// The object.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// A growing object has lost log that was durable.
    #[error("{lost}{}", goes_on_words(*goes_on))]
    LostEnd {
        /// What is gone.
        lost: LostEnd,
        /// Whether there is later log behind it.
        goes_on: bool,
    },
    /// A server is asked for log that a growing object has lost, and no longer has it.
    #[error("{lost}. The server no longer has it: {source}")]
    NotAgain {
        /// What is gone.
        lost: Box<LostEnd>,
        /// What the server said.
        source: Box<PostgresError>,
    },
    /// The name is none of a file that PostgreSQL archives.
    #[error("{name:?} is no name of a file that PostgreSQL archives")]
    Name {
        /// The name.
        name: String,
    },
    /// A file is not the segment that its name says.
    #[error("{} {what}", path.display())]
    Segment {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// A server removed a segment and used its file again while it was read.
    #[error("the server reused {} while it was copied", path.display())]
    Reused {
        /// The segment.
        path: PathBuf,
    },
    /// Somebody else may write where segments are fetched ahead.
    #[error("{} belongs to another user, or others may write there", path.display())]
    Spool {
        /// The directory.
        path: PathBuf,
    },
    /// What lies in a data directory is part of each backup of it, and of each copy.
    #[error("the spool {} lies in the data directory {}", path.display(), data.display())]
    SpoolInside {
        /// The spool.
        path: PathBuf,
        /// The data directory.
        data: PathBuf,
    },
    /// A segment of another cluster.
    #[error("{} is of cluster {found}, and this data directory is cluster {expected}", path.display())]
    Foreign {
        /// The segment.
        path: PathBuf,
        /// The cluster that wrote it.
        found: u64,
        /// The cluster whose data directory this is.
        expected: u64,
    },
    /// A segment whose timeline did not pass there.
    #[error("{} is on timeline {found}; timeline {timeline} has {at} on timeline {expected}", path.display())]
    WrongTimeline {
        /// The segment.
        path: PathBuf,
        /// The timeline in its name.
        timeline: Timeline,
        /// Where it begins.
        at: Lsn,
        /// The timeline of its first page.
        found: Timeline,
        /// The timeline that has this position, by the history.
        expected: Timeline,
    },
    /// The place holds something else under this name.
    #[error("{name} is archived already, with other content: {} differs", object.display())]
    Different {
        /// The name.
        name: String,
        /// What the place holds.
        object: PathBuf,
    },
    /// The place has no log of this cluster.
    #[error("{} holds no log{}", place.display(), of_cluster(*system))]
    NoLog {
        /// The place.
        place: PathBuf,
        /// The cluster, if it is known.
        system: Option<u64>,
    },
    /// The place has neither sets nor log: it may be the mount point of a disk that is not there.
    #[error("{} has neither a set nor a log: its disk may not be mounted", place.display())]
    Unused {
        /// The place.
        place: PathBuf,
    },
    /// The place has the log of several clusters, and nothing says which is meant.
    #[error("{} holds the log of {} clusters", place.display(), systems.len())]
    SeveralSystems {
        /// The place.
        place: PathBuf,
        /// Their system identifiers.
        systems: Vec<u64>,
    },
    /// Log is missing between two parts that are there.
    #[error("the log of timeline {timeline} has a gap: {from} to {to} is missing")]
    Gap {
        /// The timeline.
        timeline: Timeline,
        /// The first missing byte.
        from: Lsn,
        /// Where it goes on.
        to: Lsn,
    },
    /// The timeline cannot be reached from where a set is.
    #[error("timeline {timeline} does not pass through {at} on timeline {from}")]
    Unrelated {
        /// The timeline.
        timeline: Timeline,
        /// The timeline to come from.
        from: Timeline,
        /// The position to come from.
        at: Lsn,
    },
    /// The history of a timeline is not there, so nobody knows where it came from.
    #[error("the history of timeline {timeline} is not in the log")]
    NoHistory {
        /// The timeline.
        timeline: Timeline,
    },
    /// Somebody else writes this log at the moment.
    #[error("another process receives this log: it has locked {}", path.display())]
    Locked {
        /// The growing object.
        path: PathBuf,
    },
    /// The note is gone that says that this process writes this log. Nothing was stored since.
    #[error(
        "the note of this receiver in {} is gone: another process may have received this log \
         meanwhile",
        place.display()
    )]
    NoteGone {
        /// The place.
        place: PathBuf,
    },
    /// What comes does not follow what is there.
    #[error("log from {found} does not follow what ends at {expected}")]
    NotNext {
        /// Where the log that is there ends.
        expected: Lsn,
        /// Where what comes begins.
        found: Lsn,
    },
    /// Of PostgreSQL's own files.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
}

/// Log that was durable and is gone from the end of a growing object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostEnd {
    /// The object.
    pub path: PathBuf,
    /// The timeline.
    pub timeline: Timeline,
    /// Where it ends now.
    pub end: Lsn,
    /// Everything before this position was durable, if somebody knows.
    pub durable: Option<Lsn>,
    /// Nothing behind this position is lost, whatever was durable: an object that grows in the log
    /// of a cluster ends with its segment. If nobody knows that either, everything up to the next
    /// run of log may be lost.
    pub most: Option<Lsn>,
    /// Whether its timeline was left before it, for one that the place has: then it lies on no way
    /// to that.
    pub is_left: bool,
}

/// Where the segment ends that has the bytes before a position.
fn segment_end(at: Lsn, segment_bytes: u64) -> Option<Lsn> {
    at.0.checked_next_multiple_of(segment_bytes).map(Lsn)
}

impl LostEnd {
    /// What an object has lost that ends there.
    pub(crate) fn new(path: &Path, timeline: Timeline, end: Lsn, durable: Option<u64>) -> Self {
        Self {
            path: path.to_owned(),
            timeline,
            end,
            durable: durable.map(Lsn).filter(|durable| *durable > end),
            most: None,
            is_left: false,
        }
    }

    /// The same, in the log of a cluster with segments of this size. None if the object holds all
    /// of its segment: it has lost nothing.
    pub(crate) fn in_segments(self, segment_bytes: u64, start: Lsn) -> Option<Self> {
        let last = self.end.max(Lsn(start.0.saturating_add(1)));
        let most = segment_end(last, segment_bytes);
        let has_all = self.durable.is_none() && most == Some(self.end);
        (!has_all).then_some(Self { most, ..self })
    }

    /// The same, in the log of a cluster with segments of this size, if nothing of the object can
    /// be read.
    pub(crate) fn bounded(self, segment_bytes: u64) -> Self {
        match self.limit() {
            Some(_) => self,
            None => {
                let last = Lsn(self.end.0.saturating_add(1));
                let most = segment_end(last, segment_bytes);
                Self { most, ..self }
            }
        }
    }

    /// Where it ends at the latest, if somebody knows.
    pub(crate) fn limit(&self) -> Option<Lsn> {
        self.durable.or(self.most)
    }

    /// Whether log may be missing at a position, if no run of log lies between.
    pub fn is_at(&self, at: Lsn) -> bool {
        self.end <= at && self.is_behind(at)
    }

    /// Whether log may be missing at a position or behind it, if no run of log lies between.
    pub fn is_behind(&self, at: Lsn) -> bool {
        self.limit().is_none_or(|limit| at < limit)
    }

    /// Up to where log is missing at least.
    pub fn up_to(&self) -> Lsn {
        self.durable.unwrap_or(Lsn(self.end.0.saturating_add(1)))
    }
}

impl std::fmt::Display for LostEnd {
    fn fmt(&self, into: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, end) = (self.path.display(), self.end);
        match self.durable {
            None => write!(
                into,
                "{path} cannot be read from {end} on, and nobody knows up to where it was durable"
            ),
            Some(durable) => write!(
                into,
                "{path} ends at {end}, and its log up to {durable} was durable: {end} to {durable} \
                 is missing"
            ),
        }
    }
}

fn goes_on_words(goes_on: bool) -> &'static str {
    match goes_on {
        true => ", and later log is there",
        false => "",
    }
}

/// An error of a bucket names its object itself.
fn io_text(doing: &str, path: &Path, source: &io::Error) -> String {
    let (path, text) = (path.display().to_string(), source.to_string());
    match text.contains(&path) {
        true => text,
        false => format!("{doing} {path}: {text}"),
    }
}

fn of_cluster(system: Option<u64>) -> String {
    system.map_or_else(String::new, |system| format!(" of cluster {system}"))
}

impl RepositoryError {
    /// Whether a file or an object is not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the disk, or what its user may have of it, is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// Where log is missing, if that is it.
    pub fn missing_from(&self) -> Option<Lsn> {
        match self {
            Self::Gap { from, .. } => Some(*from),
            Self::LostEnd { lost, .. } => Some(lost.end),
            _ => None,
        }
    }

    /// Whether an object cannot be read because there is no key to it.
    pub fn is_without_key(&self) -> bool {
        let no_key = KeyFault::NoKey;
        matches!(self, Self::Sealed { fault, .. } if *fault == no_key)
    }

    /// Whether damage of the archived log causes it.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Object { .. }
                | Self::Misplaced { .. }
                | Self::LostEnd { .. }
                | Self::NotAgain { .. }
        )
    }
}

/// Turns an I/O error into ours. Adds what was tried, and on which file.
pub(crate) trait IoContext<T> {
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, RepositoryError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, RepositoryError> {
        self.map_err(|source| RepositoryError::Io {
            doing,
            path: path.as_ref().into(),
            source,
        })
    }
}

/// Turns an error of the format into ours. Adds the object.
pub(crate) trait FormatContext<T> {
    fn of(self, path: impl AsRef<Path>) -> Result<T, RepositoryError>;
}

impl<T> FormatContext<T> for Result<T, FormatError> {
    fn of(self, path: impl AsRef<Path>) -> Result<T, RepositoryError> {
        self.map_err(|source| RepositoryError::Object {
            path: path.as_ref().into(),
            source,
        })
    }
}
