//! The errors of PostgreSQL and SQLite.

use std::path::Path;

use windlass_operations::snapshots::ClusterBack;
use windlass_postgres::{OverFault, PostgresError, ServerEnd};
use windlass_sqlite::SqliteError;

/// What to do about a set that no backup of this version writes.
const FOREIGN_SET: &str = "No backup of this version writes such a set. If `windlass info` says \
    that a newer version wrote it, use that version.";

/// PostgreSQL's code for a slot that is of another kind, or lost.
const SLOT_UNUSABLE: &str = "55000";

/// What to do about an opened cluster whose files are damaged.
const CLUSTER_DAMAGED: &str = "`windlass verify` says whether the set is damaged. If it is not, \
    the source was damaged before the backup.";

/// What to do about a cluster, a session, a restore of a cluster, or an opened server: first the
/// server's advice, then ours.
pub fn postgres(error: &PostgresError) -> Option<String> {
    if let PostgresError::Io { path, .. } = error
        && let Some(data) = ClusterBack::without_control(path)
    {
        return Some(cut_off(data));
    }
    let ours = match error {
        PostgresError::Engine(error) => return super::engine(error),
        PostgresError::ServerEnded { .. } => error.server_end().and_then(server_end),
        error => postgres_text(error),
    };
    match ours {
        Some(ours) => Some(error.with_server_hint(ours)),
        None => error.hint(),
    }
}

/// What to do about a cluster whose revert or undo was cut off.
fn cut_off(data: &Path) -> String {
    let what = match ClusterBack::is_undo(data) {
        true => "An undo",
        false => "A revert",
    };
    format!(
        "{what} of this cluster was cut off. `windlass snapshot list {}` finishes or undoes it.",
        data.display()
    )
}

fn postgres_text(error: &PostgresError) -> Option<&'static str> {
    Some(match error {
        PostgresError::Programs { .. } => {
            "Install that version's server package, or name its directory with --bindir."
        }
        PostgresError::ClusterDamaged { .. } => CLUSTER_DAMAGED,
        PostgresError::OpenedConnect { .. } | PostgresError::Amcheck { .. }
            if error.is_damage() =>
        {
            CLUSTER_DAMAGED
        }
        PostgresError::OpenedConnect { .. } => "Name a role of the cluster with --user.",
        PostgresError::Amcheck { .. } => {
            "Install PostgreSQL's contrib package of that version, or name a directory of programs \
             that has it with --bindir."
        }
        PostgresError::SocketPath { .. } => "Name a shorter directory with --scratch.",
        PostgresError::Set { .. } => FOREIGN_SET,
        PostgresError::Refused { code, .. } if code == SLOT_UNUSABLE => {
            "The slot may be lost: the server had to remove log that it kept. See wal_status in \
             pg_replication_slots. Drop the slot (SELECT pg_drop_replication_slot), or name \
             --create-slot: a lost slot is made anew then."
        }
        PostgresError::TargetNotEmpty { .. } => {
            "Name an empty directory or a new one. If it is the place of a tablespace, name \
             another with --tablespace-map OLD=NEW, both absolute. To restore in place of an old \
             cluster, stop its server and move the old directory away. If a restore that \
             was cut off left these files, and no server uses them, remove them. --delta makes \
             the cluster that is there into that of the set. --force alone replaces SQLite files \
             only."
        }
        PostgresError::TargetKept(_, OverFault::Snapshots) => {
            "Drop them first. `windlass snapshot list` shows them."
        }
        PostgresError::TargetKept(_, OverFault::Part) => {
            "Name an empty directory or a new one, or restore all without --only-database and \
             --only-tablespace."
        }
        PostgresError::TargetKept(_, OverFault::Another { .. }) => {
            "Is it the right directory? If the cluster there is to be replaced, add --force."
        }
        PostgresError::Target { .. } => {
            "`windlass info` names the set's tablespaces. Each goes into a directory of its own: \
             --tablespace-map OLD=NEW, both absolute."
        }
        PostgresError::TablespaceUnlisted { .. } => {
            "Map that directory to an empty one: --tablespace-map OLD=NEW, both absolute."
        }
        _ => return None,
    })
}

/// What to do when an opened server ended.
fn server_end(end: ServerEnd) -> Option<&'static str> {
    Some(match end {
        ServerEnd::LibraryNeeded => "Name the library that the set needs with --preload.",
        ServerEnd::Unreadable => "The set may be damaged: `windlass verify` says where.",
        ServerEnd::NoSpace => "Free space, or name a roomier directory with --scratch.",
        ServerEnd::Parameter => "Set or leave out the parameter with -c NAME=VALUE.",
        ServerEnd::Denied => {
            "The server's user must be able to enter the scratch directory: name one with \
             --scratch."
        }
        ServerEnd::LibraryMissing => {
            "Install the library that the server names, or leave it out of --preload."
        }
        ServerEnd::FileMissing => {
            "The set lacks a file that the server needs. `windlass verify` says whether the set is \
             damaged. If it is not, the source lacked the file during the backup."
        }
        ServerEnd::FileDamaged => CLUSTER_DAMAGED,
        ServerEnd::OtherFileMissing => {
            "Put the file where the server looks for it, or leave out the -c that names it."
        }
        _ => return None,
    })
}

/// What to do about a database of SQLite.
pub fn sqlite(error: &SqliteError) -> Option<String> {
    let text = match error {
        SqliteError::Engine(error) => return super::engine(error),
        SqliteError::Busy { .. } => {
            "A connection with locking_mode=EXCLUSIVE or a long write transaction holds it; end \
             that one. A backup waits longer with --lock-wait."
        }
        SqliteError::LockLimit { .. } => {
            "Windlass gave the lock back and made no backup. Run the backup when less is written, \
             allow more with --lock-limit SECONDS, or put the database into WAL mode, where \
             writers are never locked out."
        }
        SqliteError::TargetExists { .. } => {
            "Choose another path, or use --force to replace the database and its -wal, -shm and \
             -journal files."
        }
        SqliteError::NoLog { .. } => {
            "PRAGMA journal_mode=wal gives the database a log. Otherwise make a backup of another \
             type: a set has the state of its moment."
        }
        SqliteError::Facts { .. } => FOREIGN_SET,
        error => error.hint()?,
    };
    Some(text.to_owned())
}
