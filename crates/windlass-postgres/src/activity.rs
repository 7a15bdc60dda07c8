//! What a server says about how much it changes: counters at one moment, and how a laboratory's own
//! server is to be set up like it. Nothing is changed.

use crate::cluster::{Cluster, open};
use crate::error::PostgresError;

/// The counters. `pg_stat_wal` counts the pages that were logged whole, which is at their first
/// change after a checkpoint.
const COUNTERS: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint, \
     (SELECT wal_fpi FROM pg_stat_wal), \
     (SELECT coalesce(sum(tup_inserted + tup_updated + tup_deleted), 0)::bigint \
        FROM pg_stat_database), \
     (pg_current_wal_lsn() - '0/0')::bigint, (redo_lsn - '0/0')::bigint, \
     (extract(epoch FROM checkpoint_time) * 1e6)::bigint, \
     current_setting('full_page_writes') = 'on', current_setting('wal_compression') <> 'off', \
     (SELECT setting::bigint FROM pg_settings WHERE name = 'checkpoint_timeout') \
     FROM pg_control_checkpoint()";

/// Settings that decide how fast a server writes. Its memory is limited: two servers share it.
const LIKE: &str = "SELECT name, CASE WHEN name = 'shared_buffers' AND setting::bigint > 32768 \
     THEN '256MB' ELSE current_setting(name) END FROM pg_settings \
     WHERE source NOT IN ('default', 'override') AND name IN ('shared_buffers', 'wal_buffers', \
     'max_wal_size', 'min_wal_size', 'checkpoint_timeout', 'checkpoint_completion_target', \
     'wal_level', 'wal_compression', 'full_page_writes', 'fsync', 'synchronous_commit', \
     'wal_sync_method', 'bgwriter_delay', 'bgwriter_lru_maxpages', 'bgwriter_lru_multiplier', \
     'bgwriter_flush_after', 'checkpoint_flush_after', 'backend_flush_after', \
     'effective_io_concurrency', 'work_mem', 'maintenance_work_mem', 'random_page_cost', \
     'autovacuum') ORDER BY name";

/// A server's counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCounters {
    /// The server's clock, in microseconds since 1970.
    pub at_micros: i64,
    /// Pages that were logged whole.
    pub whole_pages: i64,
    /// Rows that were inserted, updated and deleted.
    pub row_changes: i64,
    /// Bytes of log, since there is any.
    pub log_bytes: i64,
    /// Where in it the last checkpoint begins.
    pub checkpoint_log_bytes: i64,
    /// When that was, in microseconds since 1970.
    pub checkpoint_at_micros: i64,
    /// Whether it logs whole pages.
    pub full_page_writes: bool,
    /// Whether it compresses them.
    pub compresses: bool,
    /// After so many seconds a checkpoint begins at the latest.
    pub checkpoint_timeout_seconds: i64,
}

impl Cluster {
    /// Asks for the counters. A standby has none.
    pub fn counters(&mut self) -> Result<ServerCounters, PostgresError> {
        const DOING: &str = "ask for the server's counters";
        let ask = |session: &mut crate::session::Session| {
            let rows = session.rows(DOING, COUNTERS)?;
            let row = rows.first().ok_or_else(|| PostgresError::Answer {
                doing: DOING,
                answer: "nothing".to_owned(),
            })?;
            Ok(ServerCounters {
                at_micros: row.get(0),
                whole_pages: row.get(1),
                row_changes: row.get(2),
                log_bytes: row.get(3),
                checkpoint_log_bytes: row.get(4),
                checkpoint_at_micros: row.get(5),
                full_page_writes: row.get(6),
                compresses: row.get(7),
                checkpoint_timeout_seconds: row.get(8),
            })
        };
        match &mut self.session {
            Some(session) => ask(session),
            None => ask(&mut open(&self.conninfo)?),
        }
    }

    /// The settings with which another server writes about as fast as this one.
    pub fn settings_of_speed(&mut self) -> Result<Vec<(String, String)>, PostgresError> {
        let mut session = open(&self.conninfo)?;
        let rows = session.rows("ask for settings", LIKE)?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}
