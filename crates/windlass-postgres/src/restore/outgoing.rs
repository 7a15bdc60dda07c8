//! What a restored server would do to its source, and the settings that prevent this.
//!
//! Windlass puts these settings at the end of postgresql.auto.conf. The server reads that file
//! last, even if its configuration lies outside the data directory. So they win over every other
//! file, from the first start on. Only the server's command line wins over them. This is why
//! Windlass sets more than archive_mode: if a service file says `-c archive_mode=on`, the server
//! still has no command to run.
//!
//! Windlass does not change primary_conninfo, primary_slot_name, restore_command,
//! recovery_end_command and the recovery targets. A server uses them only if there is a
//! recovery.signal or standby.signal. No set contains these files; a restore to a recovery target
//! makes the first, and then sets them all (`recovery`). archive_cleanup_command is
//! different: from PostgreSQL 15 on it runs in every recovery that is long enough for a
//! restartpoint.

use std::fmt::Write;
use std::path::Path;

use super::{Kept, put};
use crate::facts::DatabaseFacts;

const INTRODUCTION: &str = "\n# Written by Windlass when it restored this cluster, so that the \
     server reaches nothing of its source.\n";
/// A file in the data directory. If the setting is empty, the server complains that it cannot write
/// a file without a name.
const EXTERNAL_PID_FILE: &str = "external.pid";
/// The server's own default.
const LOG_FILENAME: &str = "postgresql-%Y-%m-%d_%H%M%S.log";
/// Where PostgreSQL 14 keeps temporary statistics by default. Every cluster has this directory.
const STATISTICS_DIRECTORY: &str = "pg_stat_tmp";
/// First major version with archive_library.
const ARCHIVE_LIBRARY_SINCE: u32 = 15;

/// Lines for the end of postgresql.auto.conf; empty if everything stays on.
pub(super) fn block(facts: &DatabaseFacts, keep: Kept) -> Vec<u8> {
    let settings = settings(facts, keep);
    let mut text = String::new();
    for (name, value) in settings {
        if text.is_empty() {
            text.push_str(INTRODUCTION);
        }
        put(&mut text, format_args!("{name} = '{value}'\n"));
    }
    text.into_bytes()
}

fn settings(facts: &DatabaseFacts, keep: Kept) -> Vec<(&'static str, &'static str)> {
    let mut settings = Vec::new();
    let outgoing = &facts.outgoing;
    // Sets of older versions do not record this setting.
    if outgoing.external_pid_file.as_deref() != Some("") {
        settings.push(("external_pid_file", EXTERNAL_PID_FILE));
    }
    for (name, inside, found) in [
        ("log_directory", "log", &outgoing.log_directory),
        ("log_filename", LOG_FILENAME, &outgoing.log_filename),
        (
            "stats_temp_directory",
            STATISTICS_DIRECTORY,
            &outgoing.statistics_directory,
        ),
    ] {
        if found.is_some() {
            settings.push((name, inside));
        }
    }
    if !keep.archive {
        settings.extend([
            ("archive_mode", "off"),
            ("archive_command", ""),
            ("archive_cleanup_command", ""),
        ]);
        if facts.major() >= ARCHIVE_LIBRARY_SINCE {
            settings.push(("archive_library", ""));
        }
    }
    if !keep.subscriptions && may_subscribe(facts) {
        settings.push(("max_logical_replication_workers", "0"));
    }
    settings
}

/// True also for sets of older versions, which do not record the subscriptions.
fn may_subscribe(facts: &DatabaseFacts) -> bool {
    facts.outgoing.subscriptions != Some(0)
}

/// Tells the user which connections are off and which stay on.
pub(super) fn words(facts: &DatabaseFacts, keep: Kept, into: &Path) -> String {
    let mut text = String::new();
    let mut say = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a string takes everything");
    };
    let outgoing = &facts.outgoing;
    if keep.archive {
        say(format_args!(
            "It archives its log as its source does. Make sure that no other server does so too."
        ));
    } else {
        say(format_args!(
            "Archiving is off, to protect the archive of its source. Turn it on with"
        ));
        say(format_args!(
            "  ALTER SYSTEM SET archive_mode = 'on', and set archive_command likewise."
        ));
    }
    match outgoing.subscriptions {
        Some(count) if count > 0 && keep.subscriptions => say(format_args!(
            "Its subscriptions ({count}) go on. Stop those of its source first."
        )),
        Some(count) if count > 0 => {
            say(format_args!(
                "Its subscriptions ({count}) are off, to leave those of its source alone. Turn \
                 them on with"
            ));
            say(format_args!(
                "  ALTER SYSTEM RESET max_logical_replication_workers."
            ));
        }
        _ => {}
    }
    if let Some(directory) = &outgoing.log_directory {
        let log = into.join("log");
        let log = log.display();
        say(format_args!(
            "Its server log goes to {log} instead of {directory}."
        ));
    }
    if let Some(name) = &outgoing.log_filename {
        say(format_args!(
            "The files of its server log are called {LOG_FILENAME} instead of {name}."
        ));
    }
    if let Some(directory) = &outgoing.statistics_directory {
        let own = into.join(STATISTICS_DIRECTORY);
        let own = own.display();
        say(format_args!(
            "Its temporary statistics go to {own} instead of {directory}."
        ));
    }
    for path in &outgoing.includes {
        say(format_args!(
            "Its configuration includes {path}, which is not in the set."
        ));
    }
    text
}
