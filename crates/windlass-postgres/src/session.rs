//! The SQL session of a backup. It must stay open from start to stop, or the server ends the
//! backup.
//!
//! Invariants
//! - Windlass uses only the non-exclusive interface. When a session is dropped, its backup ends.
//!   Windlass never writes a file into the live data directory.
//! - No timeout of the server or the role ends a statement or the idle session.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row};
use windlass_engine::Cancel;

use crate::conninfo::Conninfo;
use crate::error::{PostgresError, SqlContext};
use crate::lsn::Lsn;
use crate::rights;
use crate::tls::{self, Canceller};

/// How long the session may be silent: less than the idle limits of common proxies and firewalls.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const KEEPING_ALIVE: &str = "keep the session of the backup alive";
const CANCEL_POLL: Duration = Duration::from_millis(200);
/// 17 and newer also have transaction_timeout, but no transaction of ours stays open.
const SETTINGS: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
     SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0; \
     SET search_path = pg_catalog; SET default_transaction_read_only = off; \
     SET datestyle = ISO; SET client_min_messages = error";
const WHO: &str = "SELECT current_setting('server_version_num'), quote_ident(current_user), \
     current_database()::text";
const CLOCK: &str = "to_char(clock_timestamp() AT TIME ZONE 'UTC', \
     'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";

/// A session with the server.
pub(crate) struct Session {
    client: Client,
    canceller: Canceller,
    /// The server's version as a number.
    version_number: u32,
    /// The role, quoted as SQL wants it, and the database.
    role: String,
    database: String,
    last_answer: Instant,
}

/// What the server returned at the end of the backup.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) lsn: Lsn,
    /// The server's clock when it had stopped, as RFC 3339.
    pub(crate) time: String,
    /// backup_label, byte for byte.
    pub(crate) label: Vec<u8>,
    /// tablespace_map, byte for byte; empty if there are no tablespaces.
    pub(crate) tablespace_map: Vec<u8>,
}

impl Session {
    pub(crate) fn connect(conninfo: &Conninfo) -> Result<Self, PostgresError> {
        let (mut client, canceller) = tls::connect(conninfo)?;
        const DOING: &str = "ask for the server's version";
        let rows = client.query_typed(WHO, &[]).doing(DOING)?;
        let row = rows.first().ok_or_else(|| no_row(DOING))?;
        let column = |number: usize| row.try_get::<_, String>(number).doing(DOING);
        let (text, role, database) = (column(0)?, column(1)?, column(2)?);
        let version_number = text.parse().map_err(|_| PostgresError::Answer {
            doing: DOING,
            answer: text,
        })?;
        Ok(Self {
            client,
            canceller,
            version_number,
            role,
            database,
            last_answer: Instant::now(),
        })
    }

    /// Turns timeouts off. Call it once the version is known, because older servers lack some of
    /// them.
    pub(crate) fn prepare(&mut self) -> Result<(), PostgresError> {
        self.client
            .batch_execute(SETTINGS)
            .doing("set up the session")
    }

    pub(crate) fn version_number(&self) -> u32 {
        self.version_number
    }

    /// The role of the session, quoted as SQL wants it.
    pub(crate) fn role(&self) -> &str {
        &self.role
    }

    /// The database of the session.
    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    /// Turns the error into a missing right if the role may not run this function.
    fn lacking(&self, error: PostgresError, function: &str) -> PostgresError {
        error.or_right(&self.database, || {
            rights::grant_function(function, &self.role)
        })
    }

    fn has_exclusive_mode(&self) -> bool {
        self.version_number < 150_000
    }

    /// Asks with one message. A statement that is prepared first takes three, and on a busy machine
    /// each may wait for its turn.
    pub(crate) fn rows(
        &mut self,
        doing: &'static str,
        sql: &str,
    ) -> Result<Vec<Row>, PostgresError> {
        let rows = self.client.query_typed(sql, &[]).doing(doing)?;
        self.last_answer = Instant::now();
        Ok(rows)
    }

    /// Runs statements that return nothing of interest.
    pub(crate) fn batch(&mut self, doing: &'static str, sql: &str) -> Result<(), PostgresError> {
        self.client.batch_execute(sql).doing(doing)?;
        self.last_answer = Instant::now();
        Ok(())
    }

    /// The first column of the only row.
    pub(crate) fn value<T>(&mut self, doing: &'static str, sql: &str) -> Result<T, PostgresError>
    where
        T: for<'a> postgres::types::FromSql<'a>,
    {
        let rows = self.rows(doing, sql)?;
        let row = rows.first().ok_or_else(|| no_row(doing))?;
        row.try_get(0).doing(doing)
    }

    /// The system identifier.
    pub(crate) fn identifier(&mut self) -> Result<i64, PostgresError> {
        let sql = "SELECT system_identifier FROM pg_control_system()";
        let answer = self.value("ask for the system identifier", sql);
        answer.map_err(|error| self.lacking(error, rights::IDENTIFIER_FUNCTION))
    }

    /// The server's clock, as RFC 3339.
    pub(crate) fn now(&mut self) -> Result<String, PostgresError> {
        self.value("ask for the time", &format!("SELECT {CLOCK}"))
    }

    pub(crate) fn in_recovery(&mut self) -> Result<bool, PostgresError> {
        self.value(
            "ask whether the server is a standby",
            "SELECT pg_is_in_recovery()",
        )
    }

    /// Runs `look` with the name of a file in the server's pg_snapshots. The file exists only while
    /// `look` runs, and nowhere else. It proves that a directory is this server's.
    pub(crate) fn while_snapshot_exported<T>(
        &mut self,
        look: impl FnOnce(&str) -> T,
    ) -> Result<T, PostgresError> {
        const DOING: &str = "export a snapshot";
        self.client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            .doing(DOING)?;
        let name: String = self.value(DOING, "SELECT pg_export_snapshot()")?;
        let seen = look(&name);
        self.client.batch_execute("ROLLBACK").doing(DOING)?;
        Ok(seen)
    }

    /// The limit on the log that slots keep, if there is one and the server still answers.
    pub(crate) fn slot_limit(&mut self) -> Option<String> {
        let sql = "SELECT current_setting('max_slot_wal_keep_size')";
        let limit = self.value::<String>("ask for the limit of slots", sql).ok();
        limit.filter(|limit| limit != "-1")
    }

    /// Pins the log from here on with a temporary slot, which the server drops with the session.
    /// The error gives the server's reason: too few slots, or a role without REPLICATION.
    pub(crate) fn pin_wal(&mut self) -> Result<(), String> {
        let sql = "SELECT pg_create_physical_replication_slot(\
             format('windlass_%s', pg_backend_pid())::name, true, true)";
        let pinned = self.client.query_typed(sql, &[]);
        pinned.map(drop).map_err(|error| match error.as_db_error() {
            Some(error) => error.message().to_owned(),
            None => error.to_string(),
        })
    }

    /// Begins the backup and returns where its log begins. This waits for a checkpoint. Without
    /// `fast` the server spreads it over the time in its settings, so the caller can cancel.
    ///
    /// The statement is sent in one message with its values: a session that the server shows as
    /// idle after this statement has begun its backup, and has not merely prepared the statement.
    pub(crate) fn start_backup(
        &mut self,
        label: &str,
        fast: bool,
        cancel: &Cancel,
    ) -> Result<Lsn, PostgresError> {
        const DOING: &str = "start the backup";
        let sql = if self.has_exclusive_mode() {
            "SELECT pg_start_backup($1, $2, false)::text"
        } else {
            "SELECT pg_backup_start($1, $2)::text"
        };
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&label, Type::TEXT), (&fast, Type::BOOL)];
        let rows = self.interruptible(cancel, |client| client.query_typed(sql, &values))?;
        let function = rights::start_function(self.version_number);
        let rows = rows
            .doing(DOING)
            .map_err(|error| self.lacking(error, function))?;
        position(DOING, rows.first().ok_or_else(|| no_row(DOING))?)
    }

    /// Ends the backup. The server does not wait for its archive, because the log goes into the
    /// set.
    pub(crate) fn stop_backup(&mut self, cancel: &Cancel) -> Result<Stopped, PostgresError> {
        const DOING: &str = "stop the backup";
        let function = if self.has_exclusive_mode() {
            "pg_stop_backup(false, false)"
        } else {
            "pg_backup_stop(false)"
        };
        // As bytes in the database's own encoding, as the server would have written them to a file.
        // The server computes a row's columns when it has the row, so the clock comes last.
        let sql = format!(
            "SELECT lsn::text, convert_to(labelfile, getdatabaseencoding()), \
             convert_to(spcmapfile, getdatabaseencoding()), {CLOCK} FROM {function}"
        );
        let rows = self
            .interruptible(cancel, |client| client.query_typed(&sql, &[]))?
            .doing(DOING)
            .map_err(|error| self.lacking(error, rights::stop_function(self.version_number)))?;
        let row = rows.first().ok_or_else(|| no_row(DOING))?;
        let map: Option<Vec<u8>> = row.try_get(2).doing(DOING)?;
        Ok(Stopped {
            lsn: position(DOING, row)?,
            time: row.try_get(3).doing(DOING)?,
            label: row.try_get(1).doing(DOING)?,
            tablespace_map: map.unwrap_or_default(),
        })
    }

    /// Waits, and notices at once if the server ends the session. It sends something now and then,
    /// so that nothing between this process and the server closes a session that looks dead.
    pub(crate) fn idle(&mut self, at_most: Duration) -> Result<(), PostgresError> {
        let heard = self.client.notifications().timeout_iter(at_most).next();
        heard.doing(KEEPING_ALIVE)?;
        if self.client.is_closed() || self.last_answer.elapsed() > SILENCE_MAX {
            return self.check_alive();
        }
        Ok(())
    }

    /// Fails if the session has ended, because its backup has then ended too.
    pub(crate) fn check_alive(&mut self) -> Result<(), PostgresError> {
        self.rows(KEEPING_ALIVE, "SELECT 1").map(drop)
    }

    /// Runs a statement while another thread watches the cancel flag.
    fn interruptible<T>(
        &mut self,
        cancel: &Cancel,
        run: impl FnOnce(&mut Client) -> T,
    ) -> Result<T, PostgresError> {
        let canceller = self.canceller.clone();
        let (done, watched) = channel::<()>();
        let result = std::thread::scope(|scope| {
            scope.spawn(move || watch(&canceller, cancel, &watched));
            let result = run(&mut self.client);
            drop(done);
            result
        });
        self.last_answer = Instant::now();
        cancel.check()?;
        Ok(result)
    }
}

/// Cancels the running statement if the flag is set. Returns when the statement has ended.
fn watch(canceller: &Canceller, cancel: &Cancel, statement: &Receiver<()>) {
    while statement.recv_timeout(CANCEL_POLL) == Err(RecvTimeoutError::Timeout) {
        if cancel.is_cancelled() && canceller.cancel() {
            return;
        }
    }
}

fn no_row(doing: &'static str) -> PostgresError {
    PostgresError::Answer {
        doing,
        answer: "nothing".into(),
    }
}

/// The log position in the first column of an answer.
fn position(doing: &'static str, row: &postgres::Row) -> Result<Lsn, PostgresError> {
    let text: &str = row.try_get(0).doing(doing)?;
    Lsn::parse(text).ok_or_else(|| PostgresError::Answer {
        doing,
        answer: text.into(),
    })
}
