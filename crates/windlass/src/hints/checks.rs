//! What a check found, and what to do about it, in the words of the command line.

use windlass_object::Removal;
use windlass_operations::checks::{Check, Finding, Level};
use windlass_operations::hooks::{HookEvent, ProgramFault};
use windlass_operations::warnings::acceptable;

use super::metrics::REMOVE;
use super::operation;
use crate::words::{duration, quoted};

/// What was found; then what to do about it, unless it is right.
pub fn words(check: &Check) -> (String, Option<String>) {
    let text = match &check.finding {
        Finding::Hook { event, path } => {
            format!("--{} would run {}", event.word(), path.display())
        }
        Finding::NoHook {
            event,
            program,
            fault,
        } => {
            let follows = match event {
                HookEvent::OnFailure => ", so nobody would be told of a failure",
                HookEvent::Before | HookEvent::After => "",
            };
            format!("--{}: {}{follows}", event.word(), fault.text(program))
        }
        Finding::Error(error) => {
            let (message, hint) = operation::words(error);
            return match check.level {
                Level::Warning => (message, hint.or_else(|| Some(sink(check.name)))),
                _ => (message, hint),
            };
        }
        other => other.to_string(),
    };
    let is_right = check.level == Level::Ok;
    let hint = (!is_right).then(|| hint(&check.finding)).flatten();
    (text, hint)
}

/// What to do about a file that cannot be written, and without which the run goes on.
fn sink(name: &str) -> String {
    let text = match name {
        "metrics" => REMOVE,
        _ => "Name another file. A run goes on without it.",
    };
    text.to_owned()
}

fn hint(finding: &Finding) -> Option<String> {
    let text = match finding {
        Finding::NoSlots { .. } => {
            "Raise max_replication_slots: without a slot of its own a backup fails if the server \
             recycles the log that it needs."
        }
        Finding::Journal { .. } => {
            "A backup waits for a transaction (--lock-wait), and plays a cut-off one back as every \
             reader does."
        }
        Finding::NoDevices => "Name the devices of the backup with --to, or in the configuration.",
        Finding::Exists { .. } => "Choose another name, name a directory, or pass --overwrite.",
        Finding::MayNotWrite { .. } => {
            "Give the directory to the database's owner: backups run as that user."
        }
        Finding::NoConditions { .. } => {
            "Backups there are safe. Only if two runs gave one stripe the same name at the same \
             moment, both might succeed: let Windlass choose the names."
        }
        Finding::NoRemoval { removal, .. } if *removal == Removal::Locked => {
            "Backups there are safe. What expires takes room until its lock ends: let a rule of \
             the bucket remove old versions then."
        }
        Finding::NoRemoval { .. } => {
            "Backups there are safe, but nothing ever goes: not what expires, not what a cut-off \
             run or this check left. If the bucket is not meant to protect its objects, give the \
             keys the right to remove them."
        }
        Finding::Vanished { .. } => {
            "If a disk belongs there, mount it. Otherwise make the directory, or let the backup \
             make it once."
        }
        Finding::MayNotMake { .. } => {
            "If a disk belongs there, mount it. Or make the directory and give it to the \
             database's owner, or run the backup as root."
        }
        Finding::RoomForSet { .. } => "Free space there, name another device, or compress harder.",
        Finding::RoomForFiles { .. } => "Free space there, or restore to another place.",
        Finding::Unfinished { .. } => {
            "Another backup is under way there, or one was cut off: then the next one cleans up."
        }
        Finding::Unserved { .. } => {
            "Name another address, or end what uses this one. A run goes on without it."
        }
        Finding::NotArchived { .. } => {
            "Does archive_command run `windlass archive-push %p` with this repository? The server \
             log and pg_stat_archiver say why a segment is not archived."
        }
        Finding::Replaced { .. } => "Leave out --force, or restore to another path.",
        Finding::NotWritable { .. } => {
            "Give the directory to the user who restores, or name another one with --into."
        }
        other => return composed(other),
    };
    Some(text.to_owned())
}

/// The hints that name something.
fn composed(finding: &Finding) -> Option<String> {
    match finding {
        Finding::Foreseen { name, .. } => {
            let may_accept = acceptable().contains(&name.as_str());
            let hint = match name.as_str() {
                _ if !may_accept => {
                    return Some(
                        "Every backup will warn of this. Look at the database.".to_owned(),
                    );
                }
                "configuration-outside" => "Back this up by other means, and add",
                "configuration-error" => "Correct that line, or add",
                _ => "If it is meant to be so, add",
            };
            Some(format!("{hint} --accept {name}."))
        }
        Finding::NoHook { program, fault, .. } => Some(match fault {
            ProgramFault::NotInPath => "Write its whole path.".to_owned(),
            ProgramFault::Missing => "Correct the path.".to_owned(),
            ProgramFault::NoFile => "Name the program itself.".to_owned(),
            ProgramFault::NotExecutable => {
                let program = quoted(program);
                format!("Type chmod +x {program}: the database's owner runs it.")
            }
        }),
        Finding::Right {
            database, grant, ..
        } => Some(format!(
            "As a superuser, type in database {database}: {grant}"
        )),
        Finding::Locked { wait, .. } => Some(format!(
            "A backup waits for {} at most (--lock-wait), and fails if the lock stays: a long \
             write transaction, or a connection with locking_mode=EXCLUSIVE. `ps -p PID` shows the \
             process.",
            duration(wait.as_secs_f64())
        )),
        _ => None,
    }
}
