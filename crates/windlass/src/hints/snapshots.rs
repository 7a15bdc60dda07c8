//! Errors of snapshots in the words of the command line.

use std::path::{Path, PathBuf};

use windlass_operations::nearest;
use windlass_operations::privilege::as_typed;
use windlass_operations::snapshots::{HookError, Left, Method, Obstacle, Older, SnapshotError};

use crate::words::{moment_of, quoted};

/// What to type next.
pub fn hint(error: &SnapshotError) -> Option<String> {
    let text = match error {
        SnapshotError::Name { .. } => "Write a name like before-upgrade.",
        SnapshotError::Taken {
            name,
            owner,
            is_listed,
            ..
        } => return Some(taken(name, owner.as_deref(), *is_listed)),
        SnapshotError::Unknown { name, known, .. } => return Some(unknown(name, known)),
        SnapshotError::NoName { .. } => {
            "Write DATABASE@NAME, like shop.db@before-upgrade. `windlass snapshot list DATABASE` \
             shows the names."
        }
        SnapshotError::Standby { .. } => {
            "Go back on the primary, and then make the standby anew. The manual says what a revert \
             means for standbys."
        }
        SnapshotError::FirstProcess { .. } => {
            "Stop the server with its container, and type the command again with the data \
             directory as DATABASE."
        }
        SnapshotError::NotShutDown { .. } => {
            "Start the server once, so that it recovers, and type the command again."
        }
        SnapshotError::ServerRuns { .. } => {
            "Find out who started a server, or wait until a recovery has ended, and type the \
             command again."
        }
        SnapshotError::Stopped { .. } => return stopped(error),
        SnapshotError::OtherCluster { .. } => {
            "Restore it into a new directory: windlass restore DATABASE@NAME --into DIRECTORY. If \
             the snapshot is no copy, back it up first."
        }
        SnapshotError::Disturbed { .. } => {
            "Make it when nobody creates or moves databases and tablespaces. No snapshot was left."
        }
        SnapshotError::NotASet { .. } => {
            "Open, mount, extract, verify or compare it. For a restore, back it up first: windlass \
             backup DATABASE@NAME --to DIRECTORY"
        }
        SnapshotError::Unfinished { .. } => "If nobody makes it now, the next snapshot removes it.",
        SnapshotError::NeededToUndo { .. } => {
            "`windlass snapshot undo` or `list` ends that revert first. Then drop the snapshot."
        }
        SnapshotError::InUse { .. } => {
            "End what is mounted or opened of it, or wait until it is made. `windlass status` \
             shows what runs, and shows root what all users run."
        }
        SnapshotError::Damaged { .. } | SnapshotError::Lost { .. } => {
            "The database itself is as it was. Drop the snapshot, and make another one."
        }
        SnapshotError::Version { .. } => "Use the windlass that made it, or a newer one.",
        other => return of_place(other),
    };
    Some(text.to_owned())
}

/// What to do about a name that is in use.
fn taken(name: &str, owner: Option<&Path>, is_listed: bool) -> String {
    match owner {
        Some(owner) => format!(
            "It is of the database {}. Choose another name, or give each database a directory of \
             its own with --to.",
            owner.display()
        ),
        None if is_listed => {
            format!("Choose another name, or drop it: windlass snapshot drop DATABASE {name}")
        }
        None => "The list of this database does not have it: another database's may, or it was \
                 dropped while its disk was not there. Choose another name. If nobody needs it, \
                 remove that directory."
            .to_owned(),
    }
}

/// What to do about what is in a place, or is not there.
fn of_place(error: &SnapshotError) -> Option<String> {
    let text = match error {
        SnapshotError::PlaceAway { .. } => {
            "Mount the disk that they are on. If they are gone for good, remove that link."
        }
        SnapshotError::OfAnother { .. } => {
            "Name that database instead. To take the snapshot out of the list of this one, remove \
             the link, or drop the snapshot if it is a copy: the other database keeps its own."
        }
        SnapshotError::Missing { .. } => {
            "Mount the disk that it is on. If it is gone for good, drop the snapshot."
        }
        SnapshotError::KeptTwice { .. } => {
            "One of these directories is a copy of the other. Move the copied snapshot out of the \
             directory of the snapshots, and type the command again."
        }
        SnapshotError::NotASnapshot { .. } => {
            "`windlass snapshot list DATABASE` shows the snapshots of a database. Windlass removes \
             no directory that it did not make."
        }
        other => return of_states(other),
    };
    Some(text.to_owned())
}

/// What to do about a database that is gone, and about what reverts overwrote.
fn of_states(error: &SnapshotError) -> Option<String> {
    let text = match error {
        SnapshotError::Gone { .. } => {
            "Put a snapshot back: windlass snapshot revert DATABASE@NAME. `windlass snapshot list \
             DATABASE` shows their names."
        }
        SnapshotError::Recovering { .. } => {
            "Let the server recover to its end, so that it removes that file, and type the command \
             again."
        }
        SnapshotError::Moved { .. } => {
            "A revert was cut off, and what it overwrote may be in that directory. Bring it back, \
             and type the command again."
        }
        SnapshotError::KeptElsewhere { .. } => {
            "Pages of the cluster are overwritten, and only that directory can bring them back. \
             Move the directory of the snapshots back to where it was, beside the data directory, \
             and type the command again. Do not rename pg_control."
        }
        SnapshotError::Unseen { .. } => "Type the command again.",
        SnapshotError::Beside { .. } => {
            "SQLite would write it into the file that is put back. It may hold the last \
             transactions of the old file: move it away, and type the command again."
        }
        SnapshotError::LeftOpen { .. } => {
            "SQLite would mix its log with that of the file that is put back. End that program, \
             and type the command again."
        }
        SnapshotError::Hook(_) if error.is_damage() => {
            "The database itself is as it was. Drop the snapshot, and make another one."
        }
        SnapshotError::EmptySnapshot { .. } => {
            "An empty file has no pages. The database itself is as it was. `windlass snapshot list \
             DATABASE` shows the other snapshots."
        }
        SnapshotError::NotPutBack { .. } => {
            "Restore the snapshot into it: windlass restore DATABASE@NAME --into DIRECTORY. If the \
             snapshot is no copy, back it up first."
        }
        SnapshotError::NewestLost { older, .. } => return Some(older_state(older.as_deref())),
        SnapshotError::NoState { known, .. } => return Some(states(known)),
        SnapshotError::NoUndo { known, .. } if !known.is_empty() => return Some(states(known)),
        SnapshotError::NoUndo { .. } => {
            "Each revert keeps what it overwrote in the directory of its snapshot, until the \
             snapshot is dropped."
        }
        other => return of_method(other),
    };
    Some(text.to_owned())
}

/// What to do about a server that is stopped after a revert: first about the cause.
fn stopped(error: &SnapshotError) -> Option<String> {
    let SnapshotError::Stopped {
        error,
        left,
        path,
        start,
    } = error
    else {
        return None;
    };
    let start = as_typed(start);
    let next = match left {
        Left::CutOff { .. } => format!(
            "Type `windlass snapshot list {}`, which finishes or undoes what was cut off, and then \
             start the server: {start}",
            path.display()
        ),
        _ => format!("Start the server: {start}"),
    };
    let cause = match &**error {
        SnapshotError::Postgres(error) => super::postgres(error),
        error => hint(error),
    };
    Some(match cause {
        Some(cause) => format!("{cause} {next}"),
        None => next,
    })
}

/// What to do about a method, and about the hook in a server.
fn of_method(error: &SnapshotError) -> Option<String> {
    let text = match error {
        SnapshotError::Method { method, obstacle } => return of_obstacle(*method, obstacle),
        SnapshotError::NoLibrary { looked, .. } => return Some(library(looked)),
        SnapshotError::Library { .. } => {
            "The user of the server must be able to read the library, and the library must be made \
             for this processor. --library names another one."
        }
        SnapshotError::PreloadFixed { .. } => {
            "Change the list where the server is started, and start it again. Write every name: \
             the list is not added to."
        }
        SnapshotError::PreloadElsewhere { .. } => {
            "Change that line, and then type the command again."
        }
        SnapshotError::Inactive { .. } => {
            "The server log has a line that begins with `windlass:` and says why. If it has none, \
             somebody removed the memory of the hook in /dev/shm: start the server again."
        }
        SnapshotError::Depending { .. } => {
            "`windlass snapshot list DATABASE` shows them. Drop them first."
        }
        SnapshotError::Hook(error) => return of_hook(error),
        SnapshotError::Io { action, source, .. } => return of_system(action, source),
        _ => return None,
    };
    Some(text.to_owned())
}

/// What to do about a method that cannot make a snapshot.
fn of_obstacle(method: Method, obstacle: &Obstacle) -> Option<String> {
    let text = match obstacle {
        Obstacle::NeedsCheckpoint => "Leave --checkpoint none out, or use --method hook.",
        Obstacle::NoCheckpoint => {
            "Leave --checkpoint out: only snapshots of PostgreSQL begin with one. Nobody waits for \
             a snapshot of a SQLite database in WAL mode."
        }
        Obstacle::NoHook { .. } => {
            "`windlass snapshot enable DATABASE` prepares the server, which must start again after \
             that. Without --method and --checkpoint none, Windlass takes another method."
        }
        Obstacle::Unseen { .. } => {
            "Take the module out of shared_preload_libraries and of whatever loads it later, or \
             leave --method out: then Windlass takes another method."
        }
        _ if method == Method::Hook => {
            "Only PostgreSQL has the hook. `windlass snapshot create` without --method takes a \
             method that the database has, and needs nothing prepared."
        }
        Obstacle::NoLimits => {
            "Only snapshots by the method hook can have limits. `windlass snapshot rotate DATABASE \
             --keep 12` makes a snapshot and drops the oldest of its kind: let a timer type it."
        }
        _ if method == Method::Clone => {
            "Leave --method out: then Windlass copies what it cannot clone."
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// What to do about what the hook needs.
fn of_hook(error: &HookError) -> Option<String> {
    let text = match error {
        HookError::StoreTaken { .. } => {
            "Find out whose it is, and move it away, or name another directory with --to. Windlass \
             changes nothing that it did not make."
        }
        HookError::Blind { .. } => {
            "Restart the server when it suits you. Until then leave --method and --checkpoint none \
             out: then Windlass takes another method."
        }
        HookError::NoRoom { .. } => {
            "Free space there, keep less with --keep-free, or name another disk with --to."
        }
        HookError::Postgres(error) => return super::postgres(error),
        HookError::Io { doing, source, .. } => return of_system(doing, source),
        _ => return None,
    };
    Some(text.to_owned())
}

/// What can be brought back by its name.
fn states(known: &[String]) -> String {
    match known {
        [] => "`windlass snapshot list DATABASE` shows what can be brought back.".to_owned(),
        known => format!(
            "There is {}. To bring one back: windlass snapshot undo DATABASE NAME",
            known.join(", ")
        ),
    }
}

/// What to type if the newest state cannot be brought back.
fn older_state(older: Option<&Older>) -> String {
    match older {
        Some(older) => format!(
            "The next older one is from {}. To bring it back: windlass snapshot undo {} {}",
            moment_of(&older.at),
            quoted(&older.database.display().to_string()),
            older.name
        ),
        None => "No older state can be brought back. `windlass snapshot list DATABASE` says why."
            .to_owned(),
    }
}

fn unknown(name: &str, known: &[String]) -> String {
    let rest = match known {
        [] => "The database has no snapshots.".to_owned(),
        known => format!("There are {}.", known.join(", ")),
    };
    nearest::hint(name, known.iter().map(String::as_str), &rest)
}

/// Where the library should be.
fn library(looked: &[PathBuf]) -> String {
    let looked: Vec<_> = looked
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    format!(
        "It comes with Windlass. Windlass looked for {}. --library names another file or \
         directory.",
        looked.join(", ")
    )
}

/// What is done without writing.
const READING: [&str; 8] = [
    "examine", "find", "inspect", "list", "lock", "open", "read", "resolve",
];

/// What is being done when a cluster that went back recovers.
const RECOVERING: [&str; 2] = ["begin a segment in", "recover"];

fn of_system(action: &str, error: &std::io::Error) -> Option<String> {
    use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let text = match error.kind() {
        PermissionDenied if READING.contains(&action) => {
            "Windlass looks there as the owner of the database, also if root types the command. \
             Let that user read it, or type the command as that user. The snapshot itself may be \
             whole."
        }
        PermissionDenied | ReadOnlyFilesystem => {
            "The owner of the database must be allowed to write there. --to names another \
             directory."
        }
        // The cluster is where it is.
        StorageFull | QuotaExceeded if RECOVERING.contains(&action) => {
            "Free space on the disk of the cluster."
        }
        StorageFull | QuotaExceeded => {
            "Free space there, drop old snapshots, or name another disk with --to."
        }
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use windlass_postgres::PostgresError;

    use super::*;

    #[test]
    fn what_a_server_said_of_a_snapshot_by_the_hook_has_the_hint_of_a_backup() {
        let error = PostgresError::WalLevelMinimal;
        let expected = crate::hints::postgres(&error);
        assert!(expected.is_some());
        let found = hint(&SnapshotError::Hook(HookError::Postgres(error)));
        assert_eq!(found, expected);
    }

    #[test]
    fn nobody_is_told_to_drop_the_snapshot_of_another_database() {
        let taken = |owner| SnapshotError::Taken {
            name: "s1".to_owned(),
            path: PathBuf::from("/disk/s1"),
            owner,
            is_listed: true,
        };
        let other = hint(&taken(Some(PathBuf::from("/srv/main")))).unwrap();
        assert!(other.contains("/srv/main"), "{other}");
        assert!(!other.contains("drop"), "{other}");
        let own = hint(&taken(None)).unwrap();
        assert!(own.contains("windlass snapshot drop DATABASE s1"), "{own}");
    }

    /// A module may come when the method is chosen already, so that no other one is taken.
    #[test]
    fn a_server_with_a_module_that_came_unseen_has_a_hint() {
        let data = PathBuf::from("/srv/main");
        let hint = hint(&SnapshotError::Hook(HookError::Blind { data })).unwrap();
        assert!(hint.contains("another method"), "{hint}");
    }

    /// A revert has no directory of its own that could be elsewhere.
    #[test]
    fn a_full_disk_of_a_cluster_that_recovers_has_a_hint_without_options() {
        for action in RECOVERING {
            let hint = hint(&SnapshotError::Io {
                action,
                path: "/srv/main".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            });
            let hint = hint.unwrap();
            assert!(hint.contains("Free space"), "{hint}");
            assert!(!hint.contains("--"), "{hint}");
        }
    }
}
