//! Up to where a restored database recovers: the targets of `windlass restore`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use windlass_object::is_in_bucket;
use windlass_operations::RecoveryRequest;
use windlass_postgres::{Lsn, RecoveryAction, RecoveryPoint, RecoveryTimeline, Timeline};

use crate::config::named::{keys, named};

/// What a server does at its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TargetAction {
    /// Take writes, on a new timeline
    #[default]
    Promote,
    /// Take only reads, until somebody ends the recovery
    Pause,
    /// Shut down
    Shutdown,
}

/// Up to where a cluster recovers.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Back to a moment")]
pub struct Targets {
    /// Recover up to the end of the archived log. It is the default for a place that has some
    #[arg(long, group = "point")]
    pub target_latest: bool,
    /// Recover up to this moment, with its zone: 2026-11-21T12:00:00+01:00
    #[arg(long, value_name = "TIME", group = "point", value_parser = time)]
    pub target_time: Option<Timestamp>,
    /// PostgreSQL: recover up to this position of the log: 0/3000028
    #[arg(long, value_name = "LSN", group = "point", value_parser = lsn)]
    pub target_lsn: Option<Lsn>,
    /// PostgreSQL: recover up to this restore point (pg_create_restore_point)
    #[arg(long, value_name = "NAME", group = "point")]
    pub target_name: Option<String>,
    /// PostgreSQL: recover up to the end of this transaction
    #[arg(long, value_name = "XID", group = "point")]
    pub target_xid: Option<u64>,
    /// Recover only until the database is consistent: the moment at which the backup ended
    #[arg(long, group = "point")]
    pub target_immediate: bool,
    /// Stop before what lies exactly at the target, instead of after it
    #[arg(long)]
    pub target_exclusive: bool,
    /// PostgreSQL: follow this timeline: latest, current (the set's) or a number [default: latest]
    #[arg(long, value_name = "TIMELINE", value_parser = timeline)]
    pub target_timeline: Option<RecoveryTimeline>,
    /// PostgreSQL: what the server does at the target [default: promote]
    #[arg(long, value_name = "ACTION")]
    pub target_action: Option<TargetAction>,
    /// The place of the archived log [default: that of the set]
    #[arg(long, value_name = "PLACE")]
    pub log_from: Option<PathBuf>,
}

impl Targets {
    /// What was asked for. Without an option, that is the latest state of the place.
    pub fn request(&self) -> RecoveryRequest {
        let point = if let Some(time) = self.target_time {
            RecoveryPoint::Time(time)
        } else if let Some(lsn) = self.target_lsn {
            RecoveryPoint::Lsn(lsn)
        } else if let Some(name) = &self.target_name {
            RecoveryPoint::Name(name.clone())
        } else if let Some(number) = self.target_xid {
            RecoveryPoint::Transaction(number)
        } else if self.target_immediate {
            RecoveryPoint::Immediate
        } else {
            RecoveryPoint::Latest
        };
        RecoveryRequest {
            needs_log: self.target_latest || self.is_special() || !is_end(&point),
            point,
            inclusive: !self.target_exclusive,
            timeline: self.target_timeline.unwrap_or_default(),
            action: match self.target_action.unwrap_or_default() {
                TargetAction::Promote => RecoveryAction::Promote,
                TargetAction::Pause => RecoveryAction::Pause,
                TargetAction::Shutdown => RecoveryAction::ShutDown,
            },
            log: self.log_from.clone(),
            fetch,
        }
    }

    /// Whether an option says how the server recovers, which it does only with log.
    fn is_special(&self) -> bool {
        self.target_timeline.is_some() || self.target_action.is_some() || self.log_from.is_some()
    }
}

/// Whether a set without log behind it has this point: its own end.
fn is_end(point: &RecoveryPoint) -> bool {
    matches!(point, RecoveryPoint::Latest | RecoveryPoint::Immediate)
}

/// The command with which a server fetches the log of a cluster from a place. `lost` is from where
/// on log is lost: the plan has told it.
pub(super) fn fetch(
    place: &Path,
    (system, is_encrypted): (u64, bool),
    lost: Option<Lsn>,
) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "windlass".into());
    // The server replaces %f, %p and %%, and a shell reads the rest.
    let quoted = |text: &str| {
        let quoted =
            shlex::try_quote(text).map_or_else(|_| text.to_owned(), |text| text.into_owned());
        quoted.replace('%', "%%")
    };
    let word = |path: &Path| quoted(&path.to_string_lossy());
    // How a bucket is reached, and perhaps the key, stand in the configuration. The server's
    // environment names none.
    let arguments: Vec<_> = std::env::args_os().collect();
    let config = named(&arguments).filter(|_| is_in_bucket(place) || is_encrypted);
    let config = config.map(|path| std::path::absolute(&path).unwrap_or(path));
    let config = config.map_or_else(String::new, |path| format!(" --config {}", word(&path)));
    let keys = match is_encrypted {
        true => keys(&arguments),
        false => Vec::new(),
    };
    let keys: String = keys
        .iter()
        .map(|key| format!(" --key {}", quoted(key)))
        .collect();
    let until = lost.map_or_else(String::new, |lost| format!(" --until {lost}"));
    format!(
        "{}{config} archive-get %f %p --from {} --system {system}{until}{keys}",
        word(&program),
        word(place)
    )
}

pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        "write a day, a time and its zone: 2026-11-21T12:00:00+01:00, or '2026-11-21 11:00:00Z'"
            .to_owned()
    })
}

pub(super) fn lsn(text: &str) -> Result<Lsn, String> {
    Lsn::parse(text).ok_or_else(|| "write two numbers in hexadecimal digits: 0/3000028".to_owned())
}

pub(super) fn timeline(text: &str) -> Result<RecoveryTimeline, String> {
    match text {
        "latest" => Ok(RecoveryTimeline::Latest),
        "current" => Ok(RecoveryTimeline::Current),
        number => match number.parse() {
            Ok(number @ 1..) => Ok(RecoveryTimeline::Number(Timeline(number))),
            _ => Err("write latest, current or the number of a timeline".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_zone_is_refused() {
        for good in [
            "2026-11-21T12:00:00+01:00",
            "2026-11-21 11:00:00Z",
            "2026-11-21T11:00:00.5Z",
        ] {
            assert!(time(good).is_ok(), "{good}");
        }
        for bad in ["2026-11-21 12:00", "2026-11-21T12:00:00", "yesterday", ""] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_fetching_command_hides_what_a_shell_or_the_server_would_read() {
        let command = fetch(Path::new("/a b/100%"), (7, false), None);
        assert!(
            command.ends_with(" archive-get %f %p --from '/a b/100%%' --system 7"),
            "{command}"
        );
        let command = fetch(Path::new("/a"), (7, false), Some(Lsn(0x3000028)));
        let end = " --from /a --system 7 --until 0/3000028";
        assert!(command.ends_with(end), "{command}");
    }
}
