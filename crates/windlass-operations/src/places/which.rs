//! Which set of a place, as people write it: an id, `latest`, or a moment.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use thiserror::Error;

use crate::moments::zone;

/// The positions at which an id may have dashes, because other programs write it so.
const DASHES: [usize; 4] = [8, 13, 18, 23];
const ID_DIGITS: usize = 32;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Which set of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    Latest,
    /// The set whose id begins like this: hexadecimal digits in lower case, no dashes.
    Id(String),
    /// The newest set that was begun at or before this moment, in nanoseconds since 1970 UTC.
    By(i64),
}

/// How a set was chosen among those of its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Its id begins like this.
    Id(String),
    /// It is the newest.
    Newest {
        /// Of how many.
        count: usize,
        /// Of those that were begun by this moment, in nanoseconds since 1970.
        by: Option<i64>,
        /// Where.
        place: String,
    },
}

/// Why a text says no set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WhichError {
    /// A day that no calendar has.
    #[error("there is no day {0}")]
    NoDay(String),
    /// A time that no clock shows.
    #[error("there is no time {0}: write 02:15, or with a zone 02:15Z or 02:15+01:00")]
    NoTime(String),
    /// Something else.
    #[error(
        "write the beginning of a set's id, latest, or a time: 2026-11-22, '2026-11-22 03:00', \
         2026-11-22T03:00:00Z"
    )]
    Unknown,
}

impl Which {
    /// Parses a choice. A time without seconds means the end of its minute, and a date means the
    /// end of its day: a backup that a list shows at 03:00 was begun a few seconds later.
    pub fn parse(text: &str) -> Result<Self, WhichError> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        if is_id(text) {
            return Ok(Self::Id(text.replace('-', "").to_ascii_lowercase()));
        }
        let moment = moment(text).map(Self::By);
        moment.ok_or_else(|| impossible(text).unwrap_or(WhichError::Unknown))
    }
}

/// Gives the hour its second digit: people write 1:15 for 01:15.
fn with_whole_hour(text: &str) -> String {
    let hour = text
        .get(10..)
        .and_then(|rest| rest.strip_prefix(['T', 't', ' ']));
    let digits = hour.and_then(|hour| hour.split_once(':'));
    match (hour, digits) {
        (Some(hour), Some((digits, _))) if digits.len() == 1 => {
            format!("{}0{hour}", &text[..11])
        }
        _ => text.to_owned(),
    }
}

/// Says what is wrong with a text that is written like a time, but is none.
fn impossible(text: &str) -> Option<WhichError> {
    let day = text.get(..10)?;
    let is_day = day.char_indices().all(|(at, letter)| match at {
        4 | 7 => letter == '-',
        _ => letter.is_ascii_digit(),
    });
    match day.parse::<Date>() {
        _ if !is_day => None,
        Err(_) => Some(WhichError::NoDay(day.to_owned())),
        Ok(_) => {
            let clock = text[10..].trim_start_matches(['T', 't', ' ']);
            Some(WhichError::NoTime(clock.to_owned()))
        }
    }
}

fn is_id(text: &str) -> bool {
    let fits = |(at, letter): (usize, char)| {
        letter.is_ascii_hexdigit() || (letter == '-' && DASHES.contains(&at))
    };
    let digits = text.chars().filter(|letter| *letter != '-').count();
    (1..=ID_DIGITS).contains(&digits) && text.chars().enumerate().all(fits)
}

/// The last nanosecond of the written time.
fn moment(text: &str) -> Option<i64> {
    // Messages show times like this, with a space before the zone.
    let text = text
        .replace(" +", "+")
        .replace(" -", "-")
        .replace(" Z", "Z");
    let text = &with_whole_hour(&text);
    let Some(at) = text.find(['T', 't', ' ']) else {
        let day: Date = text.parse().ok()?;
        let next = day.tomorrow().ok()?.to_zoned(zone()).ok()?;
        return nanos(next.timestamp()).map(|nanos| nanos - 1);
    };
    let begin = match text.parse::<Timestamp>() {
        Ok(moment) => moment,
        Err(_) => {
            let local: DateTime = text.parse().ok()?;
            local.to_zoned(zone()).ok()?.timestamp()
        }
    };
    let time = &text[at + 1..];
    let clock = time.split(['Z', 'z', '+', '-', '[']).next()?;
    let seconds = match clock.bytes().filter(u8::is_ascii_digit).count() {
        _ if clock.contains(['.', ',']) => return nanos(begin),
        0..=2 => 3600,
        3..=4 => 60,
        _ => 1,
    };
    nanos(begin).map(|nanos| nanos + seconds * NANOS_PER_SECOND - 1)
}

/// The time that digits without dashes say, as a person writes it: 2026-11-17 for 20261117. Such a
/// word is taken for the beginning of an id.
pub(super) fn meant(digits: &str) -> Option<String> {
    if !digits.bytes().all(|letter| letter.is_ascii_digit()) {
        return None;
    }
    let day = digits.get(..8)?;
    let day = format!("{}-{}-{}", &day[..4], &day[4..6], &day[6..]);
    let clock = match digits.len() {
        8 => return day.parse::<Date>().is_ok().then_some(day),
        10 => format!("{}:00", &digits[8..]),
        12 => format!("{}:{}", &digits[8..10], &digits[10..]),
        14 => format!("{}:{}:{}", &digits[8..10], &digits[10..12], &digits[12..]),
        _ => return None,
    };
    let time = format!("{day} {clock}");
    time.parse::<DateTime>().is_ok().then_some(time)
}

fn nanos(moment: Timestamp) -> Option<i64> {
    i64::try_from(moment.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(text: &str) -> i64 {
        match Which::parse(text) {
            Ok(Which::By(nanos)) => nanos,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn ids_are_told_from_times() {
        assert_eq!(Which::parse("latest"), Ok(Which::Latest));
        for id in ["1", "1F0C9a2e", "20261122", "1f0c9a2e-00", "1f0c9a2e-"] {
            let expected = Which::Id(id.replace('-', "").to_ascii_lowercase());
            assert_eq!(Which::parse(id), Ok(expected), "{id}");
        }
        for time in ["2026-11-22", "2026-11-22 03:00", "20261122T031500Z"] {
            assert!(matches!(Which::parse(time), Ok(Which::By(_))), "{time}");
        }
        for wrong in [
            "",
            "newest",
            "2026-13-01",
            "22.11.2026",
            "1f0c-9a2e",
            "03:00",
        ] {
            assert!(Which::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_day_that_does_not_exist_is_named() {
        let says = |text: &str| Which::parse(text).unwrap_err().to_string();
        assert_eq!(says("2026-11-31"), "there is no day 2026-11-31");
        assert_eq!(says("2026-02-30 03:00"), "there is no day 2026-02-30");
        for time in ["25:00", "02h15", "02:15 CET"] {
            let says = says(&format!("2026-11-22 {time}"));
            let expected = format!("there is no time {time}: write 02:15, or with a zone");
            assert!(says.starts_with(&expected), "{says}");
        }
        assert!(says("yesterday").starts_with("write the beginning"));
    }

    #[test]
    fn digits_that_read_as_a_time_are_told_from_an_id() {
        for (digits, time) in [
            ("20261117", Some("2026-11-17")),
            ("2026111701", Some("2026-11-17 01:00")),
            ("202611170115", Some("2026-11-17 01:15")),
            ("20261117011530", Some("2026-11-17 01:15:30")),
            ("20261317", None),
            ("202611172515", None),
            ("2026111", None),
            ("2026111a", None),
            ("", None),
        ] {
            assert_eq!(meant(digits).as_deref(), time, "{digits}");
        }
    }

    #[test]
    fn a_time_means_the_end_of_what_was_written() {
        // When a clock is set back, the offset tells the two hours apart.
        let begun = by("2026-10-25 02:00:00 +01:00");
        assert_eq!(begun, by("2026-10-25T01:00:00Z"));
        let exact = by("2026-11-22T03:00:00.0Z");
        assert_eq!(by("2026-11-22T03:00:00Z"), exact + NANOS_PER_SECOND - 1);
        assert_eq!(by("2026-11-22T03:00Z"), exact + 60 * NANOS_PER_SECOND - 1);
        assert_eq!(by("20261122T030000Z"), by("2026-11-22T03:00:00Z"));
        assert_eq!(by("2026-11-22T04:00:00+01:00"), by("2026-11-22T03:00:00Z"));
        // The same moment in this machine's time zone, whichever that is.
        let local = crate::moments::local_time(exact);
        assert_eq!(by(&local), by("2026-11-22T03:00:00Z"));
        assert_eq!(by(&local[..16]), by("2026-11-22T03:00Z"));
        assert_eq!(by("2026-11-22 04:00:00 +01:00"), by("2026-11-22T03:00:00Z"));
        assert_eq!(by("2026-11-22 3:00Z"), by("2026-11-22T03:00Z"));
        assert_eq!(by("2026-11-22 3:00 Z"), by("2026-11-22T03:00Z"));
        assert_eq!(by("2026-11-22 3:00"), by("2026-11-22 03:00"));
        let day = by("2026-11-22") - by("2026-11-21");
        assert!((23..=25).contains(&(day / NANOS_PER_SECOND / 3600)));
    }
}
