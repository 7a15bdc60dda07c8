//! `windlass expire`: what stays.

use std::path::PathBuf;

use clap::Args;
use jiff::SignedDuration;

use super::Repo;

/// `windlass expire`
#[derive(Debug, Args)]
pub struct Expire {
    /// A directory or a place in a bucket with sets, or the name of a configured database. Name
    /// all places if the stripes are in several
    #[arg(required = true, value_name = "PLACE")]
    pub set: Vec<PathBuf>,
    /// In which repository
    #[command(flatten)]
    pub repo: Repo,
    /// Keep the newest N full sets, and all that was made since the oldest of them
    #[arg(long, value_name = "N", value_parser = count(), env = "WINDLASS_KEEP_FULL")]
    pub keep_full: Option<u32>,
    /// Keep all sets of this time, and what leads to each moment in it: 12h, 30d, 8w
    #[arg(long, value_name = "TIME", value_parser = parse_age, env = "WINDLASS_KEEP_WITHIN")]
    pub keep_within: Option<SignedDuration>,
    /// Keep the newest set of each of the last N days that have one
    #[arg(long, value_name = "N", value_parser = count(), env = "WINDLASS_KEEP_DAILY")]
    pub keep_daily: Option<u32>,
    /// Keep the newest set of each of the last N weeks that have one
    #[arg(long, value_name = "N", value_parser = count(), env = "WINDLASS_KEEP_WEEKLY")]
    pub keep_weekly: Option<u32>,
    /// Keep the newest set of each of the last N months that have one
    #[arg(long, value_name = "N", value_parser = count(), env = "WINDLASS_KEEP_MONTHLY")]
    pub keep_monthly: Option<u32>,
    /// Keep the newest set of each of the last N years that have one
    #[arg(long, value_name = "N", value_parser = count(), env = "WINDLASS_KEEP_YEARLY")]
    pub keep_yearly: Option<u32>,
    /// Only sets of this database, if the directory holds sets of several
    #[arg(long = "database", value_name = "NAME")]
    pub of: Option<String>,
    /// In a bucket, hide sets for this time before they are removed: 12h, 2d, 0
    #[arg(long, value_name = "TIME", value_parser = parse_grace, env = "WINDLASS_GRACE")]
    pub grace: Option<SignedDuration>,
    /// Say what would go and why the rest stays; remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

fn count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// A time in hours, days or weeks.
fn parse_age(text: &str) -> Result<SignedDuration, String> {
    let wrong = || "write hours, days or weeks: 12h, 30d, 8w".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let hours: i64 = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 7 * 24,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).map(str::parse::<i64>);
    let number = number.and_then(Result::ok).ok_or_else(wrong)?;
    let hours = number
        .checked_mul(hours)
        .filter(|hours| (1..=10_000_000).contains(hours));
    hours.map(SignedDuration::from_hours).ok_or_else(wrong)
}

/// A time that may be none.
fn parse_grace(text: &str) -> Result<SignedDuration, String> {
    match text {
        "0" => Ok(SignedDuration::ZERO),
        text => parse_age(text).map_err(|wrong| format!("{wrong}, or 0 for none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit() {
        let hours = |text: &str| parse_age(text).map(|time| time.as_hours());
        assert_eq!(hours("12h"), Ok(12));
        assert_eq!(hours("30d"), Ok(720));
        assert_eq!(hours("8w"), Ok(1344));
        for wrong in [
            "",
            "30",
            "d",
            "0d",
            "-3d",
            "1.5d",
            "30 days",
            "3dd",
            "99999999999w",
        ] {
            assert!(hours(wrong).is_err(), "{wrong}");
        }
    }
}
