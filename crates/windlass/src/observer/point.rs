//! Shows what a user may not expect at the point of a recovery, and what log is missing.

use std::path::Path;

use jiff::Timestamp;
use windlass_engine::show_size;
use windlass_operations::PointRemark;
use windlass_postgres::{Lsn, Timeline};
use windlass_repository::LostEnd;

use super::Terminal;
use crate::output;

impl Terminal {
    /// What a user may not expect at the point of a recovery.
    pub(super) fn at_point(&self, remark: &PointRemark) {
        let time = |time: &Timestamp| time.to_string();
        match remark {
            PointRemark::LostEnd(lost) => lost_end(lost),
            PointRemark::RolledBack => output::degrade(
                "the transaction was rolled back: nothing that it did is in what is recovered",
            ),
            PointRemark::Repeated { count, last } => {
                output::degrade(&format!(
                    "{count} later restore point(s) have the same name: the recovery stops at the \
                     first"
                ));
                output::note(&format!(
                    "hint: The last was made at {}: use a target time for it.",
                    time(last)
                ));
            }
            PointRemark::StateOfFork {
                from,
                at,
                last,
                lost,
            } => {
                let last = last.map_or_else(String::new, |last| format!(", of {}", time(&last)));
                let text = format!(
                    "at that moment, nothing had ended yet on the timeline that is followed: this \
                     is the state in which it left timeline {from}, at {at}{last}"
                );
                let Some(lost) = lost else {
                    return self.note(&text);
                };
                output::degrade(&format!(
                    "{text}. Timeline {from} went on without it, and has transactions up to {}",
                    time(lost)
                ));
                output::note(&format!(
                    "hint: Follow timeline {from} to get those: restore --target-timeline {from}, \
                     open --timeline {from}."
                ));
            }
        }
    }
}

/// Warns of log that a server removed before it was received.
pub(super) fn log_gap((timeline, from): (Timeline, Lsn), (next, to): (Timeline, Lsn)) {
    let of = match timeline == next {
        true => format!("of timeline {timeline}"),
        false => format!("of timelines {timeline} to {next}"),
    };
    output::degrade(&format!(
        "the server no longer has the log from {from} on: {from} to {to} {of} is missing. What \
         follows is received"
    ));
    output::note(
        "hint: Make a backup: no set before the gap leads to a moment behind it. If the server \
         runs on this machine, `windlass backup --type log` copies what it still has of the gap. A \
         slot (--slot) keeps log while nobody receives it, up to the server's \
         max_slot_wal_keep_size.",
    );
}

/// Warns of a transaction that a bucket does not take.
pub(super) fn passed_over(database: &Path, timeline: Timeline, bytes: u64) {
    output::note(&format!(
        "warning: a transaction of {} has {}, which is too much for one object of a bucket: \
         timeline {timeline} begins behind it",
        database.display(),
        show_size(bytes)
    ));
    output::note("hint: Make a full backup: no earlier set leads to this timeline.");
}

/// Says where a database's transactions are that its place lacks.
pub(super) fn not_kept(log: &Path, bytes: u64) {
    output::note(&format!(
        "warning: transactions that are not in the place are in {} ({}). `windlass receive` finds \
         them there, unless the database begins this log again before: then it names the gap",
        log.display(),
        show_size(bytes)
    ));
}

/// Warns of what the latest state lacks.
pub(super) fn lost_end(lost: &LostEnd) {
    output::degrade(&format!(
        "{lost}. The latest state that can be restored is the one before"
    ));
    output::note(
        "hint: If this place is a copy that was taken while the log was received, or another copy \
         of it is whole, copy it again. `windlass receive` asks the server for what is missing.",
    );
}
