//! Whether a server archives its log, tried out.

use crate::cluster::Cluster;
use crate::error::PostgresError;

impl Cluster {
    /// Ends a segment of the log. Returns its name, or none if the server does not archive.
    pub fn switch_archived(&mut self) -> Result<Option<String>, PostgresError> {
        let asked = "SELECT current_setting('archive_mode') = 'off' OR pg_is_in_recovery()";
        // Without a record in it, a segment is not ended.
        let switch = "SELECT pg_walfile_name(pg_switch_wal()) \
                      FROM pg_logical_emit_message(false, 'windlass', 'check')";
        self.ask(|session| {
            let rows = session.rows("ask for the archive", asked)?;
            if rows.first().is_none_or(|row| row.get(0)) {
                return Ok(None);
            }
            let rows = session.rows("end a segment", switch)?;
            Ok(rows.first().map(|row| row.get(0)))
        })
    }

    /// Whether the server has archived a segment.
    pub fn has_archived(&mut self, segment: &str) -> Result<bool, PostgresError> {
        let sql = "SELECT coalesce(last_archived_wal, '') FROM pg_stat_archiver";
        self.ask(|session| {
            let rows = session.rows("ask what is archived", sql)?;
            let last: Option<String> = rows.first().map(|row| row.get(0));
            Ok(last.is_some_and(|last| *last >= *segment))
        })
    }
}
