//! What an operation's error means on the command line: its message, and what to do about it.

use std::io::ErrorKind;

use nix::libc::{EMFILE, ENFILE};
use windlass_engine::{EngineError, place_hint_for_all};
use windlass_model::ModelError;
use windlass_operations::denied::Denied;
use windlass_operations::expire::ExpireError;
use windlass_operations::extract::ExtractError;
use windlass_operations::kept::KeptError;
use windlass_operations::{
    CompressionError, DatabaseError, DeviceError, HookError, HookFault, OperationError, OwnerError,
    chain,
};
use windlass_postgres::user_shown;

use super::{OPTION_VALUES, buckets};
use crate::words::quoted;

/// The hint if this process may not open another file.
const OPEN_FILES_LIMIT: &str =
    "Raise the limit on open files (ulimit -n, LimitNOFILE= of a systemd unit).";

/// The message, and the hint if there is one.
pub fn words(error: &OperationError) -> (String, Option<String>) {
    let said = |hint: &str| Some(hint.to_owned());
    match error {
        OperationError::Engine(error) => engine(error),
        OperationError::Image(inner) => (error.to_string(), or_limited(super::image(inner), inner)),
        OperationError::Lab(inner) => (
            chain(super::lab_message(inner), inner),
            or_limited(super::lab(inner), inner),
        ),
        OperationError::Model(error) => model(error),
        OperationError::Postgres(inner) => {
            (error.to_string(), or_limited(super::postgres(inner), inner))
        }
        OperationError::Sqlite(inner) => {
            (error.to_string(), or_limited(super::sqlite(inner), inner))
        }
        OperationError::Snapshot(inner) => (error.to_string(), super::snapshots::hint(inner)),
        OperationError::Repository(inner) => {
            (error.to_string(), or_limited(super::log(inner), inner))
        }
        OperationError::Recovery(error) => super::recovery(error),
        OperationError::Database(error) => (error.to_string(), Some(database(error))),
        OperationError::Device(error) => device(error),
        OperationError::Owner(error) => (error.to_string(), Some(owner(error))),
        OperationError::Hook(error) => (hook_text(error), said(hook(error))),
        OperationError::Expire(inner) => (error.to_string(), said(expire(inner))),
        OperationError::Kept(inner) => (error.to_string(), Some(kept(inner))),
        OperationError::Compression(error) => {
            (format!("--compress: {error}"), said(compression(error)))
        }
        OperationError::MetricsAddress { .. } => (
            format!("--metrics: {error}"),
            said("Write ADDRESS:PORT for --metrics, as in 127.0.0.1:9187."),
        ),
        OperationError::OfDamage(inner) => {
            let (message, hint) = words(inner);
            (message, hint.or_else(|| said(super::DAMAGED)))
        }
        OperationError::Place(error) => super::places::words(error),
        OperationError::OfSet { error, advice } => {
            let (message, hint) = words(error);
            let hint = super::places::advice(advice, hint.as_deref());
            (message, Some(hint))
        }
        OperationError::OfSource(inner) => (words(inner).0, said(super::OF_SOURCE)),
        OperationError::EventsOfSeveral => (
            "--events records one run, and each set of a directory has its own".to_owned(),
            said("Choose a set with --latest or --set, or name a stripe."),
        ),
        OperationError::OfTarget(_)
        | OperationError::CutOff { .. }
        | OperationError::StagingLeft { .. }
        | OperationError::UnknownOwner { .. } => super::restore::words(error),
        OperationError::UnknownKind { .. } => (
            error.to_string(),
            said("Use a newer windlass: this version knows PostgreSQL and SQLite."),
        ),
        other => of_place(other),
    }
}

/// What can be wrong with a directory, a user, a mount or a key.
fn of_place(error: &OperationError) -> (String, Option<String>) {
    let said = |hint: &str| Some(hint.to_owned());
    match error {
        OperationError::Key(_) | OperationError::NotEncrypted { .. } => {
            (error.to_string(), super::keys::hint(error))
        }
        OperationError::Mount(inner) => (error.to_string(), super::mount(inner)),
        OperationError::Scratch { .. } => (
            error.to_string(),
            said("Name another directory with --scratch."),
        ),
        OperationError::ScratchFull { .. } => (
            error.to_string(),
            said("Free space there, or name a directory on a larger disk with --scratch."),
        ),
        OperationError::NoServerUser { .. } => {
            (error.to_string(), said("Name another user with --run-as."))
        }
        OperationError::Repair(inner) => {
            let said = super::repair::hint(inner);
            (chain(error.to_string(), inner), Some(said.to_owned()))
        }
        OperationError::Drill(inner) => super::drill::words(inner),
        OperationError::Schedule(inner) => (error.to_string(), said(super::schedule::hint(inner))),
        OperationError::History(error) => super::history::words(error),
        OperationError::Plan(inner) => super::plan::words(inner),
        OperationError::Sweep(inner) => super::experiments::sweep(inner),
        OperationError::Experiment(inner) => super::experiments::snapshots(inner),
        OperationError::Rehearse(inner) => super::experiments::rehearse(inner),
        OperationError::Extract(inner) => extract(inner),
        OperationError::DifferentKinds { .. } => (
            error.to_string(),
            said("Compare two images of PostgreSQL clusters, or two of SQLite databases."),
        ),
        OperationError::OverlayBelow { .. } => (
            error.to_string(),
            said("Name a directory elsewhere with --overlay."),
        ),
        OperationError::NoBase { .. } => (
            error.to_string(),
            said("Leave --strict out, or make a full backup with --type full."),
        ),
        OperationError::BaseUnfit { .. } => (
            error.to_string(),
            said("Name another set with --base, or make a full backup with --type full."),
        ),
        OperationError::DataDirectory { .. } => (
            error.to_string(),
            said("Run as the owner of the data directory."),
        ),
        other => (other.to_string(), None),
    }
}

/// The hint, or what to do if the cause of the error is the limit on the size of a file.
fn or_limited(hint: Option<String>, error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut faults = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    let limit = faults.find_map(|fault| match fault.raw_os_error() {
        Some(EMFILE | ENFILE) => Some(OPEN_FILES_LIMIT),
        _ => place_hint_for_all(fault),
    });
    hint.or_else(|| limit.map(str::to_owned))
}

fn engine(error: &EngineError) -> (String, Option<String>) {
    match Denied::of(error) {
        Some(denied) => {
            let (message, hint) = super::denied::words(&denied);
            (message, Some(hint))
        }
        None => (
            super::engine_message(error),
            or_limited(super::engine(error), error),
        ),
    }
}

fn extract(error: &ExtractError) -> (String, Option<String>) {
    let (message, hint) = match error {
        ExtractError::NoRelations { .. } => (
            format!("--relation: {error}"),
            "A SQLite table comes out of the opened set: windlass open SET -- sqlite3 {} '.dump \
             TABLE'",
        ),
        ExtractError::NoRelation { .. } => (
            error.to_string(),
            "`windlass info SET --files` lists names. A partitioned table has none of its own: \
             name its partitions. If the table was dropped before this backup, take an older set \
             with --set.",
        ),
        _ => (error.to_string(), "Write DATABASE.SCHEMA.TABLE."),
    };
    (message, Some(hint.to_owned()))
}

fn model(error: &ModelError) -> (String, Option<String>) {
    let message = match error {
        ModelError::Emulation { .. } => format!("--emulate: {error}"),
        _ => error.to_string(),
    };
    let hint = error.hint().unwrap_or_else(|| OPTION_VALUES.to_owned());
    (message, Some(hint))
}

fn database(error: &DatabaseError) -> String {
    let text = match error {
        DatabaseError::Missing { .. } => "Check the path of the database.",
        DatabaseError::Vanished { name, .. } => {
            return format!(
                "source of [database.{name}] in the configuration names it. Is its disk mounted, \
                 or was the file moved?"
            );
        }
        DatabaseError::Unknown { .. } | DatabaseError::Empty => {
            "Name a SQLite file, a connection string like 'host=/var/run/postgresql', or a URI \
             like postgresql:///postgres."
        }
        DatabaseError::Divided { .. } => {
            "Quote the password, as in \"password='p@ss'\" or \"password='p@ss'@before\" with a \
             snapshot. In a URI, write %40 for an @ of the password, and & before the @ of a \
             snapshot."
        }
        DatabaseError::DataDirectory { .. } => {
            "Name the running server instead, by a connection string: a data directory alone \
             cannot be copied consistently."
        }
        DatabaseError::NotSqlite { .. } => {
            "Its first bytes are not SQLite's; an encrypted one cannot be read."
        }
        _ => "Name a SQLite database file.",
    };
    text.to_owned()
}

fn device(error: &DeviceError) -> (String, Option<String>) {
    let message = match error {
        // Every other command that needs devices cannot be typed without them.
        DeviceError::NoneNamed => "tune: --to is missing".to_owned(),
        DeviceError::NoPath { .. } => format!("--to {error}"),
        DeviceError::Mixed | DeviceError::NotOnePlace => format!("--to: {error}"),
        DeviceError::MirrorTwice { .. } => format!("--mirror: {error}"),
        _ => error.to_string(),
    };
    let hint = match error {
        DeviceError::NoParent { parent } => {
            let parent = quoted(&parent.display().to_string());
            format!(
                "Is its disk mounted? If no disk belongs there, type mkdir -p {parent}: Windlass \
                 makes the last directory of a path only."
            )
        }
        DeviceError::Attribute {
            directory, letter, ..
        } => {
            let directory = quoted(&directory.display().to_string());
            format!(
                "Type chattr -{letter} {directory}, or name another directory. To protect sets \
                 that are complete, set the attribute on their files."
            )
        }
        DeviceError::Twice { .. } | DeviceError::Same { .. } | DeviceError::Partial { .. } => {
            "Each stripe needs a file of its own. Name another file, or a directory: there \
             Windlass gives each stripe its own name."
                .to_owned()
        }
        DeviceError::Object(error) => buckets::hint(error).to_owned(),
        DeviceError::InBucket { .. } => {
            "Name a directory. The manual's page on buckets says what only directories can do."
                .to_owned()
        }
        DeviceError::NotTuned { text } => not_tuned(text),
        DeviceError::PartsTooMany { .. } => {
            "Name more devices, or allow larger parts: part-size below [object].".to_owned()
        }
        DeviceError::MirrorTwice { .. } => {
            "Name a directory on another disk, a place in a bucket, or a repository.".to_owned()
        }
        DeviceError::NotOnePlace => "Name the directory that has the sets.".to_owned(),
        DeviceError::ParityOfAll { .. } => {
            "Name more devices with --to: the last ones have parity, the others have data."
                .to_owned()
        }
        DeviceError::ParityWithMirror => "Leave --parity or --mirror out.".to_owned(),
        DeviceError::ParityOfNothing => "Leave --parity out.".to_owned(),
        DeviceError::Mixed => "Name nul alone, or leave it out.".to_owned(),
        DeviceError::NoneNamed => "Name the devices that backups are to go to.".to_owned(),
        _ => "Name a file, a directory, s3://BUCKET/PREFIX or nul.".to_owned(),
    };
    (message, Some(hint))
}

/// What to do with a bucket instead of trials.
fn not_tuned(place: &str) -> String {
    let place = quoted(place);
    format!(
        "Measure the bucket with `windlass lab probe {place}`. Then `windlass plan DATABASE \
         --source PATH --target {place} --files 1,2,4` says how fast a backup to it would be, \
         with how many stripes and which codec."
    )
}

fn owner(error: &OwnerError) -> String {
    match error {
        OwnerError::Give { .. } => {
            "Give it to that user yourself, or name a directory that does not exist.".to_owned()
        }
        OwnerError::Make { path, uid, source } => {
            let parent = path.parent().unwrap_or(std::path::Path::new("/")).display();
            match source.kind() {
                ErrorKind::NotFound => format!("Make {parent} first."),
                _ if place_hint_for_all(source).is_some() => {
                    place_hint_for_all(source).unwrap_or_default().to_owned()
                }
                ErrorKind::PermissionDenied => format!(
                    "{} may not write to {parent}. Make the directory, and give it to the owner \
                     of the database; or run Windlass as root, which does both.",
                    user_shown(*uid)
                ),
                _ => format!("Look at {parent}, or name another directory."),
            }
        }
        _ => "Run as the database's owner instead of root.".to_owned(),
    }
}

/// A hook that failed, in the words of the command line.
pub fn hook_text(error: &HookError) -> String {
    let HookError {
        event,
        words,
        command,
        subject,
        fault,
        ..
    } = error;
    let option = match fault {
        HookFault::TooLong(_) => " (--hook-timeout)",
        _ => "",
    };
    format!(
        "the hook --{} ({}) of {command} {subject} {fault}{option}",
        event.word(),
        words.join(" ")
    )
}

fn hook(error: &HookError) -> &'static str {
    match error.interrupted {
        true => "Nothing was begun.",
        false => "Nothing was begun. Run the command by hand, as the database's owner.",
    }
}

fn compression(error: &CompressionError) -> &'static str {
    match error {
        CompressionError::Codec { .. } => {
            "Use none, lz4, zstd, auto or zstd:LEVEL, with a LEVEL from 1 to 19, or -7 to -1."
        }
        CompressionError::Range { .. } => {
            "Say auto, or auto:WEAKEST..STRONGEST as in auto:lz4..zstd:6."
        }
    }
}

/// What to do about a database that stays open.
fn kept(error: &KeptError) -> String {
    match error {
        KeptError::Name { .. } => "Write a name like yesterday.".to_owned(),
        KeptError::Taken { .. } => {
            "Choose another name, or close it: windlass close NAME".to_owned()
        }
        KeptError::Unknown { open, .. } if open.is_empty() => {
            "Nothing is kept open by this user. `windlass status` shows what runs.".to_owned()
        }
        KeptError::Unknown { open, .. } => format!("These are: {}.", open.join(", ")),
        KeptError::Several { processes, .. } => {
            let processes: Vec<_> = processes.iter().map(u32::to_string).collect();
            let processes = processes.join(", ");
            format!(
                "Each of them closes on SIGTERM: processes {processes}. `windlass status` shows them."
            )
        }
        _ => "Run as the user who opened it. `windlass status` shows what runs.".to_owned(),
    }
}

fn expire(error: &ExpireError) -> &'static str {
    match error {
        ExpireError::NoPolicy => {
            "Give a rule, as --keep-full 2 or --keep-within 30d. --dry-run shows what would go."
        }
        ExpireError::NoPlace { .. } => "Name the directory. `windlass hold` keeps a set for ever.",
        ExpireError::EmptyPlace { .. } => {
            "Sets on that disk may need sets or log of the other places. If the place is new, make \
             a backup into it first, or leave it out."
        }
        _ => {
            "Windlass cannot find out whether somebody reads a set there, so it removes none. \
             Mount the file system with locks, or run this where they work."
        }
    }
}
