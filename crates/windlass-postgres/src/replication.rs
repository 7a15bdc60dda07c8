//! A session in which a server streams its log, as to a standby.
//!
//!   connect --> IDENTIFY_SYSTEM --> slot --> START_REPLICATION --> log, keepalives, ends
//!                                                  ^                    |
//!                                                  +--- status: durable up to here
//!
//! The client crate cannot copy in both directions, so this is a connection of its own, with the
//! same connection strings and the same encryption.
//!
//! Invariants
//! - A status never tells less than one before: a slot would move back.
//! - The session never waits longer than its read timeout without a word to the server.

mod login;
mod message;
mod wire;

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::conninfo::Conninfo;
use crate::error::PostgresError;
use crate::lsn::{Lsn, Timeline};
use message::Message;
use wire::Wire;

/// PostgreSQL's times begin with the year 2000.
const EPOCH_SECONDS: i64 = 946_684_800;

/// What a server says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationSystem {
    /// The cluster.
    pub system: u64,
    /// Its timeline.
    pub timeline: Timeline,
    /// How far its log is written and durable.
    pub flushed: Lsn,
}

/// What a server keeps for a physical replication slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKeeps {
    /// Log from a position on.
    From {
        /// The timeline of that position.
        timeline: Timeline,
        /// The position.
        at: Lsn,
    },
    /// No log: it had to remove what the slot needed, or the slot was never used.
    Nothing,
    /// There is no such slot, it is a logical one, or the server does not say it.
    Unknown,
}

/// What comes while log is streamed.
#[derive(Debug)]
pub enum Streamed {
    /// Log, from a position on.
    Log {
        /// Position of the first byte.
        start: Lsn,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The server is alive. It may want to hear how far the log is kept.
    Alive {
        /// Where its log ends.
        end: Lsn,
        /// Whether it wants a status at once.
        wants_status: bool,
    },
    /// The timeline ended, and the next one goes on.
    TimelineEnd {
        /// The next one.
        next: Timeline,
        /// Where it begins.
        at: Lsn,
    },
    /// Nothing came for a while.
    Nothing,
    /// The server shuts down, or somebody ended the session.
    Closed,
}

/// A session for replication.
pub struct ReplicationSession {
    wire: Wire,
    /// How far the server was told that log is kept.
    told: Lsn,
    told_at: Instant,
}

impl ReplicationSession {
    /// Opens a session with the first address that accepts one.
    pub fn connect(conninfo: &str) -> Result<Self, PostgresError> {
        let conninfo = Conninfo::resolve(conninfo)?;
        let wire = login::connect(&conninfo)?;
        Ok(Self {
            wire,
            told: Lsn(0),
            told_at: Instant::now(),
        })
    }

    /// Asks the server who it is.
    pub fn identify(&mut self) -> Result<ReplicationSystem, PostgresError> {
        const DOING: &str = "identify the system";
        let rows = self.wire.query(DOING, "IDENTIFY_SYSTEM")?;
        let field = |at: usize| rows.first().and_then(|row| row.get(at)?.clone());
        let found = || {
            Some(ReplicationSystem {
                system: field(0)?.parse().ok()?,
                timeline: Timeline(field(1)?.parse().ok()?),
                flushed: Lsn::parse(&field(2)?)?,
            })
        };
        found().ok_or_else(|| unclear(DOING, &rows))
    }

    /// The value of a setting of the server.
    pub fn setting(&mut self, name: &str) -> Result<String, PostgresError> {
        const DOING: &str = "ask for a setting";
        let rows = self.wire.query(DOING, &format!("SHOW {name}"))?;
        let value = rows.first().and_then(|row| row.first()?.clone());
        value.ok_or_else(|| unclear(DOING, &rows))
    }

    /// Makes a slot that keeps log from now on. A temporary one ends with the session.
    pub fn create_slot(&mut self, name: &str, is_temporary: bool) -> Result<(), PostgresError> {
        let kind = if is_temporary { "TEMPORARY " } else { "" };
        let name = quoted(name);
        let sql = format!("CREATE_REPLICATION_SLOT {name} {kind}PHYSICAL RESERVE_WAL");
        self.wire.query("create a replication slot", &sql).map(drop)
    }

    /// Removes a slot.
    pub fn drop_slot(&mut self, name: &str) -> Result<(), PostgresError> {
        let sql = format!("DROP_REPLICATION_SLOT {}", quoted(name));
        self.wire.query("drop a replication slot", &sql).map(drop)
    }

    /// What the server keeps for a slot. Servers before PostgreSQL 15 do not say it.
    pub fn slot(&mut self, name: &str) -> Result<SlotKeeps, PostgresError> {
        let sql = format!("READ_REPLICATION_SLOT {}", quoted(name));
        let rows = match self.wire.query("ask for a replication slot", &sql) {
            Err(PostgresError::Refused { .. }) => return Ok(SlotKeeps::Unknown),
            rows => rows?,
        };
        let field = |at: usize| rows.first().and_then(|row| row.get(at)?.clone());
        if field(0).as_deref() != Some("physical") {
            return Ok(SlotKeeps::Unknown);
        }
        let from = || {
            Some(SlotKeeps::From {
                at: Lsn::parse(&field(1)?)?,
                timeline: Timeline(field(2)?.parse().ok()?),
            })
        };
        Ok(from().unwrap_or(SlotKeeps::Nothing))
    }

    /// The history file of a timeline.
    pub fn history(&mut self, timeline: Timeline) -> Result<Vec<u8>, PostgresError> {
        const DOING: &str = "ask for the history of a timeline";
        let rows = self
            .wire
            .query(DOING, &format!("TIMELINE_HISTORY {timeline}"))?;
        let content = rows.first().and_then(|row| row.get(1)?.clone());
        let content = content.ok_or_else(|| unclear(DOING, &rows))?;
        Ok(content.into_bytes())
    }

    /// Begins to stream from a position on. [`ReplicationSession::next`] gives what comes.
    pub fn start(
        &mut self,
        slot: Option<&str>,
        from: Lsn,
        timeline: Timeline,
    ) -> Result<(), PostgresError> {
        let slot = slot.map_or(String::new(), |name| format!("SLOT {} ", quoted(name)));
        let sql = format!("START_REPLICATION {slot}PHYSICAL {from} TIMELINE {timeline}");
        self.wire.start_streaming("start the replication", &sql)
    }

    /// What comes next, or `Nothing` after `at_most`.
    pub fn next(&mut self, at_most: Duration) -> Result<Streamed, PostgresError> {
        const DOING: &str = "receive log";
        match self.wire.receive(DOING, Some(at_most))? {
            None => Ok(Streamed::Nothing),
            Some(Message { tag: b'd', body }) => {
                Streamed::parse(&body).ok_or_else(|| PostgresError::Answer {
                    doing: DOING,
                    answer: "a message of an unknown form".into(),
                })
            }
            Some(Message { tag: b'c', .. }) => self.end_of_timeline(),
            Some(Message { tag: b'C', .. }) => Ok(Streamed::Closed),
            Some(Message { tag: 0, .. }) => Ok(Streamed::Closed),
            Some(_) => Ok(Streamed::Nothing),
        }
    }

    /// The server has sent the end of a timeline. It says which one goes on, and where.
    fn end_of_timeline(&mut self) -> Result<Streamed, PostgresError> {
        const DOING: &str = "ask for the next timeline";
        self.wire.send(DOING, b'c', &[])?;
        let rows = self.wire.answers(DOING)?;
        let field = |at: usize| rows.first().and_then(|row| row.get(at)?.clone());
        let next = field(0).and_then(|text| text.parse().ok()).map(Timeline);
        let at = field(1).and_then(|text| Lsn::parse(&text));
        Ok(match (next, at) {
            (Some(next), Some(at)) => Streamed::TimelineEnd { next, at },
            _ => Streamed::Closed,
        })
    }

    /// Tells the server that everything before `durable` is kept, and that we are alive. Asks
    /// whether it is, too, if that is wanted.
    pub fn tell(&mut self, durable: Lsn, asks: bool) -> Result<(), PostgresError> {
        self.told = self.told.max(durable);
        self.told_at = Instant::now();
        let mut body = vec![b'r'];
        for position in [self.told; 3] {
            body.extend_from_slice(&position.0.to_be_bytes());
        }
        let micros = Timestamp::now().as_microsecond() - EPOCH_SECONDS * 1_000_000;
        body.extend_from_slice(&micros.to_be_bytes());
        body.push(u8::from(asks));
        self.wire.send("tell how far the log is kept", b'd', &body)
    }

    /// How far the server was told that log is kept.
    pub fn told(&self) -> Lsn {
        self.told
    }

    /// How long ago it was told something.
    pub fn silent_for(&self) -> Duration {
        self.told_at.elapsed()
    }
}

impl Streamed {
    /// Reads the body of a message of a stream.
    fn parse(body: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let bytes: [u8; 8] = body.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        match body.first()? {
            b'w' => Some(Self::Log {
                start: Lsn(number(1)?),
                bytes: body.get(25..)?.to_vec(),
            }),
            b'k' => Some(Self::Alive {
                end: Lsn(number(1)?),
                wants_status: *body.get(17)? != 0,
            }),
            _ => None,
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn unclear(doing: &'static str, rows: &[Vec<Option<String>>]) -> PostgresError {
    PostgresError::Answer {
        doing,
        answer: format!("{rows:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_stream_are_read_and_short_ones_are_refused() {
        let mut log = vec![b'w'];
        log.extend(7_u64.to_be_bytes());
        log.extend([0; 16]);
        log.extend(b"bytes");
        match Streamed::parse(&log) {
            Some(Streamed::Log { start, bytes }) => {
                assert_eq!((start, &bytes[..]), (Lsn(7), &b"bytes"[..]));
            }
            other => panic!("{other:?}"),
        }
        assert!(Streamed::parse(&log[..24]).is_none());
        let alive = [&b"k"[..], &9_u64.to_be_bytes(), &[0; 8], &[1]].concat();
        assert!(matches!(
            Streamed::parse(&alive),
            Some(Streamed::Alive {
                end: Lsn(9),
                wants_status: true
            })
        ));
        assert!(Streamed::parse(&alive[..17]).is_none());
        assert!(Streamed::parse(b"?").is_none());
    }
}
