//! A moment in the log of a database, `--at`, and how its set is brought there.

use std::path::{Path, PathBuf};

use clap::Args;
use windlass_operations::{MomentRequest, OpenSettings, RecoveryRequest};
use windlass_postgres::{RecoveryAction, RecoveryPoint, RecoveryTimeline};

use super::target::{fetch, lsn, time, timeline};

/// Memory for decoded frames while a set recovers.
const CACHE_BYTES: u64 = 64 << 20;

/// A moment in the log of a database.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "At a moment")]
pub struct At {
    /// The database at this moment, not at that of the set: a time with its zone, a position of the
    /// log (PostgreSQL), or `latest` for the end of the archived log
    #[arg(id = "moment", long = "at", value_name = "TIME|LSN|latest", value_parser = point)]
    pub point: Option<RecoveryPoint>,
    /// Where the log is
    #[command(flatten)]
    pub log: AtLog,
}

/// Where the log of a moment is.
#[derive(Clone, Debug, Default, Args)]
pub struct AtLog {
    /// The place of the archived log [default: that of the set]
    #[arg(long, value_name = "PLACE", requires = "moment")]
    pub log_from: Option<PathBuf>,
    /// PostgreSQL: follow this timeline: latest, current (that of the set) or a number [default:
    /// latest]
    #[arg(long, value_name = "TIMELINE", requires = "moment", value_parser = timeline)]
    pub timeline: Option<RecoveryTimeline>,
}

/// How a set is brought to a moment: by a private server, if it is of a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct Recovering {
    /// Directory for what the recovery up to --at writes [default: the temporary directory]
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_SCRATCH")]
    pub scratch: Option<PathBuf>,
    /// The directory of the programs of the server that recovers. They must have the set's major
    /// version
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_BINDIR")]
    pub bindir: Option<PathBuf>,
    /// If root asks, run the server that recovers as this user [default: the owner of the set, or
    /// postgres]
    #[arg(long, value_name = "USER", env = "WINDLASS_RUN_AS")]
    pub run_as: Option<String>,
}

impl At {
    /// The moment, if one was asked for.
    pub fn recovery(&self) -> Option<RecoveryRequest> {
        self.point.as_ref().map(|point| self.log.recovery(point))
    }

    /// The moment, and how it is reached.
    pub fn request(&self, recovering: &Recovering) -> Option<MomentRequest> {
        let point = self.point.as_ref();
        point.map(|point| self.log.request(point, recovering))
    }
}

impl AtLog {
    /// The place of the log of sets in this place.
    pub fn place<'a>(&'a self, sets: &'a Path) -> &'a Path {
        self.log_from.as_deref().unwrap_or(sets)
    }

    fn recovery(&self, point: &RecoveryPoint) -> RecoveryRequest {
        RecoveryRequest {
            point: point.clone(),
            inclusive: true,
            timeline: self.timeline.unwrap_or_default(),
            action: RecoveryAction::Promote,
            needs_log: true,
            log: self.log_from.clone(),
            fetch,
        }
    }

    /// A moment, and how it is reached.
    pub fn request(&self, point: &RecoveryPoint, recovering: &Recovering) -> MomentRequest {
        MomentRequest {
            recovery: self.recovery(point),
            settings: OpenSettings {
                name: None,
                scratch: recovering.scratch.clone(),
                cache_bytes: CACHE_BYTES,
                bindir: recovering.bindir.clone(),
                preload: String::new(),
                settings: Vec::new(),
                role: None,
                run_as: recovering.run_as.clone(),
                port: None,
                listen: String::new(),
                writable: false,
            },
        }
    }
}

/// Parses a moment: the end of the log, a position, or a time.
pub(super) fn point(text: &str) -> Result<RecoveryPoint, String> {
    if text == "latest" {
        return Ok(RecoveryPoint::Latest);
    }
    match lsn(text) {
        Ok(lsn) => Ok(RecoveryPoint::Lsn(lsn)),
        Err(_) => time(text)
            .map(RecoveryPoint::Time)
            .map_err(|says| format!("{says}, a position of the log like 0/3000028, or latest")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_a_position_or_the_end() {
        assert_eq!(point("latest"), Ok(RecoveryPoint::Latest));
        assert!(matches!(point("0/3000028"), Ok(RecoveryPoint::Lsn(_))));
        let time = point("2026-11-21T12:00:00+01:00");
        assert!(matches!(time, Ok(RecoveryPoint::Time(_))));
        assert!(point("2026-11-21 12:00").is_err());
        assert!(point("yesterday").is_err());
    }
}
