//! Options of `windlass history`.

use std::path::PathBuf;

use clap::Args;
use jiff::civil::DateTime;
use jiff::{Span, Timestamp, ToSpan};
use windlass_operations::moments::zone;

/// `windlass history`
#[derive(Debug, Args)]
pub struct History {
    /// Only this database: its name in the configuration, its path, or the name that its sets have
    #[arg(value_name = "DATABASE")]
    pub of: Option<String>,
    /// Only runs that began since then: a time, or how long ago it was, as in 36h, 7d or 4w
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Timestamp>,
    /// Show at most so many runs, the newest; 0 shows all of them
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub limit: usize,
    /// Only runs that failed, found damage, were interrupted or killed
    #[arg(long)]
    pub failed: bool,
    /// Look in the places of the configuration for sets that the history lacks
    #[arg(long)]
    pub rebuild: bool,
    /// Look in this directory for sets that the history lacks. Repeat it for several
    #[arg(long, value_name = "PLACE")]
    pub from: Vec<PathBuf>,
    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// A time, or one that is so long ago.
pub(super) fn since(text: &str) -> Result<Timestamp, String> {
    let now = Timestamp::now();
    match ago(text) {
        Some(span) => now.checked_sub(span).map_err(|error| error.to_string()),
        None => written(text).ok_or_else(|| {
            format!("{text:?} is no time: write 2026-11-20, 2026-11-20T09:00:00Z, 36h, 7d or 4w")
        }),
    }
}

/// A time with a zone, or a time or day of this machine's.
fn written(text: &str) -> Option<Timestamp> {
    let local = |time: DateTime| Some(time.to_zoned(zone()).ok()?.timestamp());
    let whole = text.parse().ok();
    whole.or_else(|| local(text.parse().ok()?))
}

/// How long ago; none if this is not a number with a unit.
fn ago(text: &str) -> Option<Span> {
    let unit = text.chars().last()?;
    let number: i64 = text.strip_suffix(unit)?.parse().ok()?;
    // A timestamp knows no days, because they may have 23 hours.
    let hours = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 24 * 7,
        _ => return None,
    };
    let hours = number
        .checked_mul(hours)
        .filter(|hours| (0..1_000_000).contains(hours))?;
    Some(hours.hours())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_can_be_said_in_both_ways() {
        let before = Timestamp::now();
        let day = since("1d").unwrap() + 24.hours();
        let after = Timestamp::now();
        assert!((before..=after).contains(&day), "{before} {day} {after}");
        assert_eq!(
            since("2026-11-20T09:00:00Z").unwrap().to_string(),
            "2026-11-20T09:00:00Z"
        );
        for wrong in ["", "d", "-1d", "1y", "99999999999w", "yesterday"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
