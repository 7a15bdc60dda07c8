//! How far a restored server recovers: the target, as settings and a signal file.
//!
//! Without a target, a restored server recovers as after a crash: to the end of the log in its
//! directory. With one, it does an archive recovery: it also asks a command for log, and stops at
//! the target.
//!
//! Invariants
//! - Every setting that could be a target is written, because one in the source's configuration
//!   would be a second target, and PostgreSQL accepts only one. It takes the settings in order, so
//!   the empty ones come first.
//! - The server fetches log only with a command that the caller names. PostgreSQL requires one, so
//!   without it the server gets a command that has nothing.

use std::fmt;

use jiff::Timestamp;

use crate::error::PostgresError;
use crate::facts::DatabaseFacts;
use crate::lsn::{Lsn, Timeline};

/// The file that makes a server do an archive recovery, and then end it.
pub(crate) const SIGNAL: &str = "recovery.signal";
const INTRODUCTION: &str = "\n# Written by Windlass when it restored this cluster: how far the \
     server recovers.\n";
/// There is nothing in this archive, so the server goes on with the log in its own directory.
const NO_ARCHIVE: &str = "false";
/// Longest name of a restore point, in bytes (PostgreSQL's MAXFNAMELEN with its last zero is 64).
const NAME_BYTES_MAX: usize = 63;

/// Up to where a server recovers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryPoint {
    /// The end of the log that it has or fetches.
    Latest,
    /// As soon as it is consistent: the moment at which the backup ended.
    Immediate,
    /// The last transaction that ended before this moment.
    Time(Timestamp),
    /// A position in the log.
    Lsn(Lsn),
    /// A restore point that somebody has named (`pg_create_restore_point`).
    Name(String),
    /// The end of a transaction.
    Transaction(u64),
}

/// The timeline that a server follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryTimeline {
    /// The newest one that it finds.
    #[default]
    Latest,
    /// That of the backup.
    Current,
    /// This one.
    Number(Timeline),
}

/// What a server does at its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryAction {
    /// It ends its recovery and takes writes, on a new timeline.
    #[default]
    Promote,
    /// It takes only reads, until somebody ends its recovery.
    Pause,
    /// It shuts down.
    ShutDown,
}

/// How a restored server recovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Up to where.
    pub point: RecoveryPoint,
    /// Whether what lies exactly at the point is still recovered. It counts for times, positions
    /// and transactions.
    pub inclusive: bool,
    /// On which timeline.
    pub timeline: RecoveryTimeline,
    /// What happens then.
    pub action: RecoveryAction,
    /// A command that fetches log, in the form of `restore_command`. Without it, the server has
    /// only the log of the set.
    pub fetch: Option<String>,
}

impl Recovery {
    /// A recovery to a point, with PostgreSQL's own settings for everything else, except that the
    /// server takes writes at the end.
    pub fn to(point: RecoveryPoint) -> Self {
        Self {
            point,
            inclusive: true,
            timeline: RecoveryTimeline::default(),
            action: RecoveryAction::default(),
            fetch: None,
        }
    }

    /// Refuses a target that a server could not reach from this set, or that it would silently not
    /// reach: PostgreSQL takes a time before the end of the backup for the end of the backup.
    pub(super) fn check(&self, facts: &DatabaseFacts) -> Result<(), PostgresError> {
        let refused = |what| {
            Err(PostgresError::RecoveryTarget {
                target: self.point.to_string(),
                what,
            })
        };
        match &self.point {
            // Only a label lets a server know where it is consistent.
            RecoveryPoint::Immediate | RecoveryPoint::Name(_) | RecoveryPoint::Transaction(_)
                if facts.crash_lsn.is_some() =>
            {
                return refused(
                    "may lie before the state of the snapshot, which has no checkpoint",
                );
            }
            RecoveryPoint::Lsn(lsn) if *lsn < facts.crash_lsn.unwrap_or(facts.stop_lsn) => {
                return refused("lies before the end of the backup");
            }
            RecoveryPoint::Time(time) => match facts.stop_time.parse::<Timestamp>() {
                Ok(stop) if *time < stop => return refused("lies before the end of the backup"),
                Ok(_) => {}
                Err(_) => return refused("cannot be compared with the time of the backup"),
            },
            RecoveryPoint::Name(name) if name.is_empty() || name.len() > NAME_BYTES_MAX => {
                return refused("is not a name of 1 to 63 bytes");
            }
            RecoveryPoint::Name(name) if !is_line(name) => {
                return refused("has a character that no name can have");
            }
            _ => {}
        }
        match self.timeline {
            RecoveryTimeline::Number(timeline) if timeline < facts.timeline => {
                refused("is on a timeline that ended before the backup")
            }
            _ if !self.fetch.as_deref().is_none_or(is_line) => {
                refused("has a command of more than one line")
            }
            _ => Ok(()),
        }
    }

    /// Lines for the end of a configuration file.
    pub(crate) fn block(&self) -> String {
        let mut text = INTRODUCTION.to_owned();
        let own = self.point.setting();
        let own_name = own.as_ref().map(|(name, _)| *name);
        for name in POINTS.into_iter().filter(|name| Some(*name) != own_name) {
            put_setting(&mut text, name, "");
        }
        if let Some((name, value)) = &own {
            put_setting(&mut text, name, value);
        }
        let inclusive = if self.inclusive { "on" } else { "off" };
        let timeline = match self.timeline {
            RecoveryTimeline::Latest => "latest".to_owned(),
            RecoveryTimeline::Current => "current".to_owned(),
            RecoveryTimeline::Number(timeline) => timeline.to_string(),
        };
        let action = match self.action {
            RecoveryAction::Promote => "promote",
            RecoveryAction::Pause => "pause",
            RecoveryAction::ShutDown => "shutdown",
        };
        for (name, value) in [
            ("recovery_target_inclusive", inclusive),
            ("recovery_target_timeline", &timeline),
            ("recovery_target_action", action),
            ("recovery_min_apply_delay", "0"),
            ("recovery_end_command", ""),
            (
                "restore_command",
                self.fetch.as_deref().unwrap_or(NO_ARCHIVE),
            ),
        ] {
            put_setting(&mut text, name, value);
        }
        text
    }
}

/// All settings that are a target.
const POINTS: [&str; 5] = [
    "recovery_target",
    "recovery_target_time",
    "recovery_target_lsn",
    "recovery_target_name",
    "recovery_target_xid",
];

impl RecoveryPoint {
    fn setting(&self) -> Option<(&'static str, String)> {
        let (name, value) = match self {
            Self::Latest => return None,
            Self::Immediate => ("recovery_target", "immediate".to_owned()),
            Self::Time(time) => {
                let utc = time.strftime("%Y-%m-%d %H:%M:%S%.6f+00");
                ("recovery_target_time", utc.to_string())
            }
            Self::Lsn(lsn) => ("recovery_target_lsn", lsn.to_string()),
            Self::Name(name) => ("recovery_target_name", name.clone()),
            Self::Transaction(number) => ("recovery_target_xid", number.to_string()),
        };
        Some((name, value))
    }
}

impl fmt::Display for RecoveryPoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => out.write_str("the end of its log"),
            Self::Immediate => out.write_str("the end of the backup"),
            Self::Time(time) => write!(out, "{time}"),
            Self::Lsn(lsn) => write!(out, "{lsn}"),
            Self::Name(name) => write!(out, "restore point {name:?}"),
            Self::Transaction(number) => write!(out, "transaction {number}"),
        }
    }
}

fn is_line(text: &str) -> bool {
    !text.contains(['\n', '\r', '\0'])
}

/// A line of a configuration file. In its strings a backslash begins an escape.
fn put_setting(text: &mut String, name: &str, value: &str) {
    let value = value.replace('\\', r"\\").replace('\'', "''");
    text.push_str(&format!("{name} = '{value}'\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_target_is_emptied_before_the_one_that_counts() {
        let mut recovery = Recovery::to(RecoveryPoint::Name(r"it's a \ name".into()));
        recovery.timeline = RecoveryTimeline::Number(Timeline(3));
        recovery.fetch = Some(r"cp '/a b/%f' %p".into());
        let text = recovery.block();
        let lines: Vec<_> = text.lines().skip(2).collect();
        let expected = [
            "recovery_target = ''",
            "recovery_target_time = ''",
            "recovery_target_lsn = ''",
            "recovery_target_xid = ''",
            r"recovery_target_name = 'it''s a \\ name'",
            "recovery_target_inclusive = 'on'",
            "recovery_target_timeline = '3'",
            "recovery_target_action = 'promote'",
            "recovery_min_apply_delay = '0'",
            "recovery_end_command = ''",
            "restore_command = 'cp ''/a b/%f'' %p'",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn times_are_written_in_utc_with_microseconds() {
        let time: Timestamp = "2026-03-01T12:00:00.5+02:00".parse().unwrap();
        let setting = RecoveryPoint::Time(time).setting().unwrap();
        assert_eq!(setting.1, "2026-03-01 10:00:00.500000+00");
    }
}
