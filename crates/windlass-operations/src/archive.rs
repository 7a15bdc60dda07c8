//! The archived log of a cluster: what a server hands over is stored, and what one asks for is
//! fetched.
//!
//! Invariant: `Absent` is the answer of a place that was looked at. Whoever fetches for a server
//! must tell it from every other failure, because a server ends its recovery where log is absent.

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use windlass_engine::media::Codec;
use windlass_postgres::Lsn;
use windlass_repository::{
    Ahead, Fetched, LogFileName, LogPlace, LookAhead, PushRequest, Pushed, RepositoryError, Spool,
    check_spool, content_key_beside, fetch, push, system_beside,
};

use crate::caller::Caller;
use crate::error::OperationError;
use crate::places::check_used;
use crate::privilege;
use crate::stored::{log_at, log_into};

/// How many segments that are ready go into one object, unless somebody says otherwise.
pub const LOOK_AHEAD_DEFAULT: usize = 16;
/// The server needs the cores, too.
const THREADS_MAX: usize = 4;

/// What a server archives, and where to.
#[derive(Clone, Debug)]
pub struct ArchivePushRequest {
    /// The file: `%p` of archive_command.
    pub path: PathBuf,
    /// The place. It must exist.
    pub to: PathBuf,
    /// The cluster, if the file does not lie in a data directory.
    pub system: Option<u64>,
    /// How many segments that are ready go into one object.
    pub look_ahead: usize,
    /// How to compress.
    pub codec: Codec,
    /// Who can read what is stored, as words for keys. If there are none, it is not encrypted.
    pub encrypt: Vec<String>,
    /// On how many threads; without it on some.
    pub threads: Option<usize>,
    /// Where it is written down which segments were stored ahead.
    pub spool: Option<PathBuf>,
}

/// What became of a file that a server archives. It is durable.
#[derive(Clone, Debug)]
pub struct ArchivePushed {
    /// What was stored.
    pub pushed: Pushed,
    /// Whether the server has more that nobody stores yet: [`archive_push_ahead`] does it.
    pub has_more: bool,
    /// What ended the last run that stored ahead.
    pub failure: Option<String>,
}

/// What a server asks for, and where to look.
#[derive(Clone, Debug)]
pub struct ArchiveGetRequest {
    /// The name of the file: `%f` of restore_command.
    pub name: String,
    /// Where it goes: `%p`.
    pub into: PathBuf,
    /// The place.
    pub from: PathBuf,
    /// The cluster. Without it that of the data directory, or the only one of the place.
    pub system: Option<u64>,
    /// How many threads; without it some.
    pub threads: Option<usize>,
    /// Where segments lie that were fetched ahead.
    pub spool: Option<PathBuf>,
    /// Log that was durable and is lost is an error, unless it is lost from here on.
    pub until: Option<Lsn>,
}

/// Stores a file that a server archives. It is durable when this returns.
pub fn archive_push(
    caller: &Caller,
    request: &ArchivePushRequest,
) -> Result<ArchivePushed, OperationError> {
    if let Some(root) = &request.spool {
        check_spool(root, &request.path)?;
    }
    let to_push = to_push(caller, request)?;
    let Some(root) = &request.spool else {
        return Ok(ArchivePushed {
            pushed: push(&to_push)?,
            has_more: false,
            failure: None,
        });
    };
    let ahead = Ahead::of(root, &to_push);
    // Whatever is wrong there, the segment is stored as without it.
    let is_there = |ahead: &Ahead| ahead.has(&to_push.path).unwrap_or_default();
    let pushed = match ahead.as_ref().is_ok_and(is_there) {
        true => Pushed::Already,
        false => push(&PushRequest {
            // What comes next is stored ahead, while the server has its answer.
            look_ahead: LookAhead(1),
            ..to_push.clone()
        })?,
    };
    let more = ahead.map(|ahead| (ahead.is_wanted(&to_push.path), ahead.failure()));
    let (has_more, failure) = match more {
        Ok((Ok(has_more), failure)) => (has_more, failure),
        Ok((Err(error), _)) | Err(error) => (false, Some(error.to_string())),
    };
    Ok(ArchivePushed {
        pushed,
        has_more,
        failure,
    })
}

/// Stores the segments after the one that the request names, for the next requests. Returns how
/// many.
pub fn archive_push_ahead(
    caller: &Caller,
    request: &ArchivePushRequest,
) -> Result<usize, OperationError> {
    let to_push = to_push(caller, request)?;
    let Some(root) = &request.spool else {
        return Ok(0);
    };
    Ok(Ahead::of(root, &to_push)?.store(&to_push)?)
}

/// The request of the layer below, as the owner of the file.
fn to_push(caller: &Caller, request: &ArchivePushRequest) -> Result<PushRequest, OperationError> {
    let place = log_into(&request.to, &request.encrypt)?;
    if let Some((uid, gid)) = privilege::owner(&request.path) {
        privilege::become_user(caller.process, uid, gid)?;
    }
    check_used(&request.to)?;
    Ok(PushRequest {
        place: place.comparing_with(content_key_beside(&request.path)?),
        path: request.path.clone(),
        system: request.system,
        look_ahead: LookAhead(request.look_ahead),
        codec: request.codec,
        threads: threads(request.threads),
    })
}

/// Fetches a file of the log for a server that recovers.
pub fn archive_get(
    caller: &Caller,
    request: &ArchiveGetRequest,
) -> Result<Fetched, OperationError> {
    let (place, name) = wanted(caller, request)?;
    if place.at().is_directory() {
        note_reading(&place, &name, &request.into)?;
    }
    if let Some(bytes) = taken(request, &place, &name) {
        return Ok(Fetched::Complete { bytes });
    }
    let how = (threads(request.threads), request.until);
    let fetched = fetch(&place, &name, &request.into, how)?;
    if fetched == Fetched::Absent && !place.at().is_directory() {
        // A place without any log of the cluster is a mistake, and not the end of its log.
        LogPlace::open(place.at(), Some(place.system()))?;
    }
    Ok(fetched)
}

/// Notes where a server reads, so that nobody removes the log behind it.
fn note_reading(place: &LogPlace, name: &LogFileName, into: &Path) -> Result<(), RepositoryError> {
    let begin = match place.begin_of(name) {
        // What is lost is met by whoever fetches it, and may be what the restore has told.
        Err(RepositoryError::LostEnd { .. }) => None,
        begin => begin?,
    };
    if let (Some(at), Some(directory)) = (begin, into.parent()) {
        place.note_reading(directory, at);
    }
    Ok(())
}

/// The place and the file that are meant, as the owner of the directory where it goes.
fn wanted(
    caller: &Caller,
    request: &ArchiveGetRequest,
) -> Result<(LogPlace, LogFileName), OperationError> {
    let parent = request.into.parent();
    let parent = parent.filter(|path| !path.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    if let Some((uid, gid)) = privilege::owner(directory) {
        privilege::become_user(caller.process, uid, gid)?;
    }
    let name = LogFileName::parse(&request.name).ok_or_else(|| RepositoryError::Name {
        name: request.name.clone(),
    })?;
    let system = match request.system {
        None => system_beside(&request.into)?,
        named => named,
    };
    let at = log_at(&request.from);
    let place = match system {
        // One look less at a bucket: if the file is not there, that follows.
        Some(system) if !at.is_directory() => LogPlace::new(&at, system),
        system => LogPlace::open(&at, system)?,
    };
    Ok((place, name))
}

/// Takes a segment that was fetched ahead. Whatever is wrong there, the place is asked instead.
fn taken(request: &ArchiveGetRequest, place: &LogPlace, name: &LogFileName) -> Option<u64> {
    let LogFileName::Segment(name) = name else {
        return None;
    };
    let spool = Spool::of(request.spool.as_deref()?, place);
    spool
        .and_then(|spool| spool.take(name, &request.into))
        .unwrap_or_default()
}

/// Whether segments after the one that the request names are to be fetched ahead, and nobody does:
/// [`archive_get_ahead`] does it.
pub fn archive_get_has_more(caller: &Caller, request: &ArchiveGetRequest, ahead: usize) -> bool {
    let is_wanted = || -> Result<bool, OperationError> {
        let Some(root) = &request.spool else {
            return Ok(false);
        };
        let (place, name) = wanted(caller, request)?;
        let LogFileName::Segment(name) = name else {
            return Ok(false);
        };
        Ok(Spool::of(root, &place)?.is_wanted((&name, ahead))?)
    };
    // Without it each segment waits for its own request, which meets the cause.
    is_wanted().unwrap_or_default()
}

/// Fetches the segments after the one that the request names, for the next requests. Returns how
/// many are there.
pub fn archive_get_ahead(
    caller: &Caller,
    request: &ArchiveGetRequest,
    ahead: usize,
) -> Result<usize, OperationError> {
    let (place, name) = wanted(caller, request)?;
    let (Some(root), LogFileName::Segment(name)) = (&request.spool, name) else {
        return Ok(0);
    };
    let spool = Spool::of(root, &place)?;
    Ok(spool.fill(&place, (&name, ahead), threads(request.threads))?)
}

pub(crate) fn threads(asked: Option<usize>) -> usize {
    let cores = || available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(|| cores().min(THREADS_MAX)).max(1)
}
