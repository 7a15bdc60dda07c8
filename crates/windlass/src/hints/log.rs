//! What to do about an archived log that cannot be written or read.

use windlass_operations::{RecoveryError, chain};
use windlass_repository::{LostEnd, RepositoryError};

use super::buckets;
use crate::words::quoted;

const DAMAGED: &str = "The object is damaged. If the server still has the segments, archive them \
    again: Windlass then replaces what is damaged. Otherwise recovery can only go up to there; a \
    server of PostgreSQL 15 and later that stops there before it has reached its target reads \
    ahead, and gets nearer with recovery_prefetch = off.";

/// The hint, if there is something to do.
pub fn hint(error: &RepositoryError) -> Option<String> {
    let text = match error {
        _ if of_access(error).is_some() => of_access(error)?,
        RepositoryError::Io { source, .. } => buckets::hint(buckets::of_io(source)?),
        RepositoryError::Object { .. } | RepositoryError::Misplaced { .. } => DAMAGED,
        RepositoryError::LostEnd { lost, .. } => return Some(do_without(lost)),
        RepositoryError::NotAgain { lost, .. } => return Some(admit(lost)),
        RepositoryError::Name { .. } => {
            "In archive_command, write %p for the file; in restore_command, write %f and then %p."
        }
        RepositoryError::Segment { .. } => {
            "The server did not write this file, or not all of it. Look at the server log."
        }
        RepositoryError::Foreign { .. } => {
            "Somebody copied a segment of another cluster there, or --system names another one."
        }
        RepositoryError::Reused { .. } => {
            "The server removes its log faster than it can be copied. Raise wal_keep_size, or use \
             archive-push or receive."
        }
        RepositoryError::Spool { .. } => {
            "Name a directory with --spool to which only the server's user may write."
        }
        RepositoryError::WrongTimeline { .. } => {
            "Another server may archive to this place. A restored copy needs a place of its own."
        }
        RepositoryError::Different { .. } => {
            "Two servers archive the same part of the log to this place, for example a cluster and \
             a restored copy of it. Give each a place of its own. What is archived stays as it is."
        }
        RepositoryError::NoLog { .. } => {
            "Is its disk mounted, and is it the place that archive_command names?"
        }
        RepositoryError::Unused { place } => return Some(begin_log(&place.join("log"))),
        RepositoryError::SeveralSystems { systems, .. } => {
            let systems: Vec<_> = systems.iter().map(u64::to_string).collect();
            return Some(format!(
                "Name the cluster with --system: {}.",
                systems.join(", ")
            ));
        }
        RepositoryError::Gap { .. } => {
            "If the server or another archive still has these segments, archive them again. \
             Otherwise a restore goes up to there (--target-lsn) or takes the set alone \
             (--target-immediate), and a newer set is needed for later moments."
        }
        RepositoryError::Unrelated { .. } => {
            "Take an older set with --set, or a timeline that the set is on, or the set alone: \
             --target-timeline current, --target-immediate."
        }
        RepositoryError::NoHistory { .. } => {
            "Archive the history file of that timeline: it lies in pg_wal of its server."
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// What to do about keys, locks and spools.
fn of_access(error: &RepositoryError) -> Option<&'static str> {
    Some(match error {
        RepositoryError::NotReadAgain { .. } => {
            "Whoever receives the log of a SQLite database reads where it ends. Name the key with \
             --key, too."
        }
        RepositoryError::Sealed { .. } => {
            "Name the key: --key identity-file:PATH, --key passphrase-file:PATH, or --key \
             command:PROGRAM, which prints one. Log that was received (`windlass receive`) cannot \
             be compared without it: archive to another place, or name the key."
        }
        RepositoryError::Locked { path } if windlass_object::is_in_bucket(path) => {
            "End the other one. If it is gone with its machine, its note below readers/ counts for \
             seven minutes; remove the note to go on at once."
        }
        RepositoryError::NoteGone { .. } => {
            "What was stored before is whole. Run the command again: it looks for others first."
        }
        RepositoryError::SpoolInside { .. } => {
            "Name a directory with --spool that lies outside of the data directory and its pg_wal."
        }
        _ => return None,
    })
}

/// How log comes again that was lost, and what to do if it cannot.
fn do_without(lost: &LostEnd) -> String {
    format!(
        "Targets before {} can be restored, and --target-latest goes up to there. `windlass \
         receive` asks the server for what is missing. If this place is a copy that was taken \
         while the log was received, copy it again.",
        lost.end
    )
}

/// What to do if no server has the lost log any more.
fn admit(lost: &LostEnd) -> String {
    format!(
        "If another copy of this place has it, copy it from there. Otherwise make a full backup, \
         and copy what the server still has with `windlass backup --type log`: then receive goes \
         on behind that. To have a gap like any other instead of damage, remove {}.",
        quoted(&lost.path.with_extension("until").display().to_string())
    )
}

/// How the log of a new place begins.
fn begin_log(log: &std::path::Path) -> String {
    let log = quoted(&log.display().to_string());
    format!(
        "If it is mounted and the place is new, make a backup into it first, or begin its log \
         with: mkdir {log}"
    )
}

/// Whether another moment could be reached.
fn is_of_moment(error: &RecoveryError) -> bool {
    matches!(
        error,
        RecoveryError::BeforeSet { .. }
            | RecoveryError::WithinBackup { .. }
            | RecoveryError::NotCaptured { .. }
            | RecoveryError::NotLinked { .. }
            | RecoveryError::NoStanding
    )
}

/// What to do where the log is not what the point needs.
fn of_log(error: &RecoveryError) -> &'static str {
    match error {
        RecoveryError::NotLinked { .. } => {
            "Take a set that was made while the log was received, with --set, or the set alone, \
             with --target-immediate."
        }
        RecoveryError::LogAway { .. } => {
            "Is its disk mounted? If the log lies elsewhere, name its place with --log-from. \
             --target-immediate restores the set alone."
        }
        RecoveryError::LogShrank { .. } => "Somebody removed objects of the log. Try again.",
        RecoveryError::OtherLog { .. } => {
            "One of the two servers comes from a restore of the other's backup. Name the place of \
             this server's log with --log-from, or a set of the other server with --set. Without a \
             --target option, a set that you name with --set is restored as it is."
        }
        _ => {
            "Archive what is missing (on the running server: SELECT pg_switch_wal()), or choose an \
             earlier target. --target-latest goes as far as the log does."
        }
    }
}

/// The message and the hint for a point to which a cluster cannot recover.
pub fn recovery(error: &RecoveryError) -> (String, Option<String>) {
    if let RecoveryError::NoSet { error: inner, .. } = error {
        let (words, hint) = recovery(inner);
        let message = error.to_string().replacen(&inner.to_string(), &words, 1);
        let is_before = is_of_moment(inner);
        let choose = "Choose a moment that can be restored.".to_owned();
        return (message, if is_before { Some(choose) } else { hint });
    }
    let hint = match error {
        RecoveryError::NotACluster | RecoveryError::NoMoment => "Leave --at out.",
        RecoveryError::Damaged { .. } => {
            "`windlass verify` of the set says what is lost. Choose another set with --set."
        }
        RecoveryError::NotOfDatabase { .. } => {
            "Name a time. A restore also takes --target-latest and --target-immediate."
        }
        RecoveryError::NoServer => "Leave --target-timeline and --target-action out.",
        RecoveryError::NoDelta => "Leave --delta out. --force replaces the database that is there.",
        RecoveryError::NoSlot { .. } => "Leave --slot out.",
        RecoveryError::NoStanding => {
            "It is of a database in rollback mode, or of an earlier version of Windlass. Make a \
             new backup while the log is received."
        }
        RecoveryError::NotCaptured { .. } => {
            "Choose an earlier target, or another set with --set. `windlass info` shows which \
             moments can be restored. --target-immediate restores the set alone."
        }
        RecoveryError::Minimal { .. } => {
            "Choose an earlier target, or a set that was made after that. If there is none, make a \
             full backup."
        }
        RecoveryError::Broken { .. } => {
            "The server wrote it so, or its disk changed it. Choose an earlier target, and make a \
             full backup."
        }
        RecoveryError::BeforeSet { .. } | RecoveryError::WithinBackup { .. } => {
            "Take an older set with --set, or leave --set out: Windlass then looks for one."
        }
        RecoveryError::NotInLog { gap: Some(gap), .. } => {
            let message = format!("{error}; {}", chain(gap.to_string(), gap));
            return (message, hint(gap));
        }
        _ => of_log(error),
    };
    (error.to_string(), Some(hint.to_owned()))
}
