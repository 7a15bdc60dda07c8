//! Up to where a running server has written its log, and where that log lies.
//!
//!   primary --empty transaction--> its commit is durable --> everything before it is, too
//!   standby --what it has replayed--> that position
//!
//! On a primary, Windlass commits a transaction that changes nothing. It makes durable what other
//! transactions wrote without waiting, and the log then ends with the end of a transaction: a
//! recovery to a moment needs a later one to stop at.

use std::path::PathBuf;

use crate::cluster::Cluster;
use crate::error::{IoContext, PostgresError};
use crate::lsn::{Lsn, Segment, Timeline};
use crate::session::Session;
use crate::wal::parse_history;

/// It waits for no standby, because the log is copied from this server.
const MARK: &str = "BEGIN; SET LOCAL synchronous_commit = local; \
     SELECT pg_logical_emit_message(true, 'windlass', 'backup of the log'); COMMIT";
/// The end of the log as a position, and the name of the segment that has it.
const WRITTEN: &str = "SELECT flushed::text, pg_walfile_name(flushed) \
     FROM (SELECT pg_current_wal_flush_lsn() AS flushed) AS now";
const REPLAYED: &str = "SELECT pg_last_wal_replay_lsn()::text";

/// How far a server has written its log, or replayed that of another one.
const REACHED: &str = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
     ELSE pg_current_wal_flush_lsn() END)::text";

/// Asks the server how far it is.
pub(crate) fn reached(session: &mut Session) -> Result<Lsn, PostgresError> {
    let text: String = session.value("ask how far the log is written", REACHED)?;
    Ok(Lsn::parse(&text).unwrap_or(Lsn(u64::MAX)))
}

/// How far a server has written its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenLog {
    /// The timeline at its end.
    pub timeline: Timeline,
    /// Everything before this position is durable.
    pub end: Lsn,
    /// The older timelines, and where each was left, oldest first.
    pub history: Vec<(Timeline, Lsn)>,
    /// The directory of the segments.
    pub directory: PathBuf,
}

impl Cluster {
    /// Asks the server how far its log goes now. Every transaction that has committed is in it.
    pub fn written_log(&mut self) -> Result<WrittenLog, PostgresError> {
        let mut opened;
        let session = match &mut self.session {
            Some(session) => session,
            None => {
                opened = crate::cluster::open(&self.conninfo)?;
                &mut opened
            }
        };
        let directory = self.facts.data_directory.join("pg_wal");
        let bytes = u64::from(self.facts.wal_segment_bytes);
        let (timeline, end) = match session.in_recovery()? {
            false => of_primary(session)?,
            true => of_standby(session, &directory, bytes)?,
        };
        let history = match timeline.0 {
            0 | 1 => Vec::new(),
            _ => {
                let name = timeline.history_name();
                let path = directory.join(&name);
                let text = std::fs::read_to_string(&path).doing("read", &path)?;
                parse_history(&name, &text)?
            }
        };
        Ok(WrittenLog {
            timeline,
            end,
            history,
            directory,
        })
    }
}

fn of_primary(session: &mut Session) -> Result<(Timeline, Lsn), PostgresError> {
    const DOING: &str = "ask how far the log is written";
    session.batch("mark the end of the log", MARK)?;
    let rows = session.rows(DOING, WRITTEN)?;
    let row = rows.first().map(|row| (row.get(0), row.get(1)));
    let (position, segment): (String, String) = row.unwrap_or_default();
    let timeline = segment
        .get(..8)
        .and_then(|text| u32::from_str_radix(text, 16).ok());
    match (Lsn::parse(&position), timeline) {
        (Some(end), Some(timeline)) => Ok((Timeline(timeline), end)),
        _ => Err(PostgresError::Answer {
            doing: DOING,
            answer: format!("{position} in {segment}"),
        }),
    }
}

/// A standby does not say on which timeline it is. The newest segment that has the position does:
/// its directory has segments of its own timelines only.
fn of_standby(
    session: &mut Session,
    directory: &std::path::Path,
    segment_bytes: u64,
) -> Result<(Timeline, Lsn), PostgresError> {
    const DOING: &str = "ask how far the log was replayed";
    let position: Option<String> = session.value(DOING, REPLAYED)?;
    let position = position.unwrap_or_default();
    let end = Lsn::parse(&position).ok_or_else(|| PostgresError::Answer {
        doing: DOING,
        answer: position,
    })?;
    let number = end.0.saturating_sub(1) / segment_bytes;
    let mut newest = None;
    for entry in std::fs::read_dir(directory).doing("list", directory)? {
        let name = entry.doing("list", directory)?.file_name();
        let segment = Segment::of_name(&name.to_string_lossy(), segment_bytes);
        let found = segment.filter(|one| one.number == number);
        newest = newest.max(found.map(|one| one.timeline));
    }
    match newest {
        Some(timeline) => Ok((timeline, end)),
        None => Err(PostgresError::WalMissing {
            segment: format!("with {end}"),
            directory: directory.to_owned(),
            slot_limit: None,
        }),
    }
}
