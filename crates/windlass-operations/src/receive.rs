//! Receives the log of a running database into a place, as it is written.
//!
//!   server --log--> growing object --sync--> durable --status--> server
//!   SQLite --transactions (`captured.rs`)--> growing object --sync--> durable
//!
//! Invariants
//! - The server is told that log is kept only when it is durable in the place.
//! - A session that breaks is opened again. Nothing is left out, and nothing that was durable comes
//!   twice: the server is asked to go on behind the last durable byte. If it has removed that log,
//!   the caller hears what is missing, and what follows is received: the place has a gap there.
//! - When the caller ends it, everything that has come is made durable first.
//! - In a bucket nothing is stored beside another receiver. Whoever slept until its note was gone
//!   opens its session again, and looks for others before that.

mod database;
mod slot;
mod start;
mod stream;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use windlass_engine::{Cancel, EngineError};
use windlass_object::is_in_bucket;
use windlass_postgres::{Lsn, PostgresError, Timeline};
use windlass_repository::{LostEnd, Place, RepositoryError};

use crate::caller::Caller;
use crate::captured::CapturedLog;
use crate::database::DatabaseName;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::privilege;
use crate::receiver::Note;
use crate::recovery::RecoveryError;
use crate::stored::log_into;
use start::Beginning;
use stream::{LogStream, WAIT_MAX};

/// How long to wait before a broken session is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// Whose log to receive, and where to.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The cluster: a connection string. Or the path of a SQLite database.
    pub database: String,
    /// The place. It must exist.
    pub to: PathBuf,
    /// Who can read what is received, as words for keys. If there are none, it is not encrypted.
    pub encrypt: Vec<String>,
    /// A replication slot, which keeps log on the server while nobody receives it. Without it, a
    /// temporary one keeps log as long as the session lasts.
    pub slot: Option<String>,
    /// Whether to make the slot if the server does not have it.
    pub create_slot: bool,
    /// How long log may wait until it is durable; without it [`CLUSTER_INTERVAL`],
    /// [`BUCKET_INTERVAL`] or [`DATABASE_INTERVAL`].
    pub interval: Option<Duration>,
}

/// How long a server's log may wait until it is durable, unless somebody says otherwise.
pub const CLUSTER_INTERVAL: Duration = Duration::from_millis(200);
/// The same for a bucket, where each interval in which something comes costs requests.
pub const BUCKET_INTERVAL: Duration = Duration::from_secs(1);
/// How long a transaction of a SQLite database may wait until it is kept.
pub const DATABASE_INTERVAL: Duration = Duration::from_secs(1);

impl ReceiveRequest {
    /// How long what comes may wait, of a SQLite database or of a cluster.
    fn interval(&self, is_database: bool) -> Duration {
        let usual = match (is_database, is_in_bucket(&self.to)) {
            (true, _) => DATABASE_INTERVAL,
            (false, true) => BUCKET_INTERVAL,
            (false, false) => CLUSTER_INTERVAL,
        };
        self.interval.unwrap_or(usual)
    }
}

/// What was received.
#[derive(Clone, Debug, PartialEq)]
pub enum Received {
    /// Log of a cluster.
    Cluster(ReceivedLog),
    /// Transactions of a SQLite database.
    Database(CapturedLog),
}

/// Log of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedLog {
    /// The cluster.
    pub system: u64,
    /// The timeline at the end.
    pub timeline: Timeline,
    /// Everything before this position is durable.
    pub durable: Lsn,
    /// Bytes of log that came.
    pub bytes: u64,
}

/// Receives log until the caller ends it.
pub fn receive(
    caller: &Caller,
    request: &ReceiveRequest,
    cancel: &Cancel,
) -> Result<(Received, Ending), OperationError> {
    let place = log_into(&request.to, &request.encrypt)?;
    let conninfo = match DatabaseName::resolve(&request.database)? {
        DatabaseName::Postgres(conninfo) => conninfo,
        DatabaseName::Sqlite(path) if request.slot.is_none() => {
            let received = database::receive(caller, (request, &path, &place), cancel)?;
            return Ok((Received::Database(received), Ending::Done));
        }
        DatabaseName::Sqlite(path) => return Err(RecoveryError::NoSlot { path }.into()),
    };
    // Fails if the place is not there: its disk may not be mounted.
    place.find()?;
    if let Some((uid, gid)) = privilege::owner(&request.to) {
        privilege::become_user(caller.process, uid, gid)?;
    }
    let mut receiver = Receiver {
        caller,
        request,
        place: &place,
        cancel,
        lock: None,
        bytes: 0,
        received: None,
        told: RefCell::default(),
    };
    loop {
        match receiver.session(&conninfo) {
            Ok(()) => {}
            // Before anything has come, somebody must look at it.
            Err(OperationError::Postgres(error))
                if is_in_use(&error) || receiver.received.is_some() && is_of_session(&error) =>
            {
                caller.tell(&Notice::ReceiveBroken(&error));
            }
            // What came and was not stored comes again.
            Err(error) if is_note_gone(&error) => {
                receiver.lock = None;
                caller.tell(&Notice::NoteGone(&error));
            }
            Err(error) => return Err(error),
        }
        let until = Instant::now() + PAUSE;
        while Instant::now() < until && !cancel.is_cancelled() {
            std::thread::sleep(WAIT_MAX.min(PAUSE));
        }
        if cancel.is_cancelled() {
            let received = receiver.received.ok_or(EngineError::Cancelled)?;
            return Ok((Received::Cluster(received), Ending::Done));
        }
    }
}

/// Whether the next session must leave its note again, and look whether another receiver has the
/// place by now: this process may have slept.
fn is_note_gone(error: &OperationError) -> bool {
    matches!(
        error,
        OperationError::Repository(RepositoryError::NoteGone { .. })
    )
}

/// Whether the slot is in use: the server may not know yet that an earlier receiver is gone.
fn is_in_use(error: &PostgresError) -> bool {
    matches!(error, PostgresError::Refused { code, .. } if code == "55006")
}

/// Whether another session may succeed.
fn is_of_session(error: &PostgresError) -> bool {
    !slot::is_lost(error)
        && matches!(
            error,
            PostgresError::Stream { .. }
                | PostgresError::Refused { .. }
                | PostgresError::Answer { .. }
        )
}

struct Receiver<'a> {
    caller: &'a Caller,
    request: &'a ReceiveRequest,
    place: &'a Place,
    cancel: &'a Cancel,
    /// Nobody else receives this log meanwhile.
    lock: Option<Note>,
    /// Bytes of earlier sessions.
    bytes: u64,
    received: Option<ReceivedLog>,
    /// What the place has lost, as far as it was told.
    told: RefCell<Vec<LostEnd>>,
}

impl Receiver<'_> {
    /// Receives until the session ends or the caller ends it.
    fn session(&mut self, conninfo: &str) -> Result<(), OperationError> {
        let earlier = self.received.map(|received| received.system);
        let request = self.request;
        let slot = (request.slot.as_deref(), request.create_slot);
        let interval = request.interval(false);
        let (place, caller, told) = (self.place, self.caller, &self.told);
        let open = |beginning, lock: &mut Option<Note>| {
            let tell = |notice: &Notice<'_>| match notice {
                Notice::LogLost(lost) if told.borrow().contains(lost) => {}
                Notice::LogLost(lost) => {
                    caller.tell(notice);
                    told.borrow_mut().push((*lost).clone());
                }
                other => caller.tell(other),
            };
            let of = (place, earlier, lock);
            LogStream::open(conninfo, of, (slot, interval), beginning, &tell)
        };
        let mut stream = open(Beginning::Compared, &mut self.lock)?;
        let (system, from) = (stream.system(), stream.position());
        let timeline = stream.timeline();
        self.caller.tell(&Notice::Receives {
            system,
            timeline,
            from,
        });
        let before = self.bytes;
        loop {
            self.bytes = before + stream.bytes();
            self.received = Some(ReceivedLog {
                system,
                timeline: stream.timeline(),
                durable: stream.durable(),
                bytes: self.bytes,
            });
            if stream.has_ended() {
                return Ok(());
            }
            let stepped = match self.cancel.is_cancelled() {
                true => stream.end(),
                false => stream.step(),
            };
            let Err(error) = stepped else {
                continue;
            };
            let Some(beginning) = stream.again(&error) else {
                return Err(stream.naming_lost(error));
            };
            if beginning == Beginning::BehindGap {
                stream.leave()?;
            }
            drop(stream);
            stream = open(beginning, &mut self.lock)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_a_second_is_lost_unless_somebody_wants_more() {
        let mut request = ReceiveRequest {
            database: "host=/run".to_owned(),
            to: "/backup".into(),
            encrypt: Vec::new(),
            slot: None,
            create_slot: false,
            interval: None,
        };
        let millis = |request: &ReceiveRequest| {
            [false, true].map(|is_database| request.interval(is_database).as_millis())
        };
        assert_eq!(millis(&request), [200, 1000]);
        request.to = "s3://backups/shop".into();
        assert_eq!(millis(&request), [1000, 1000]);
        request.interval = Some(Duration::from_millis(10));
        assert_eq!(millis(&request), [10, 10]);
    }
}
