//! Words for durations, moments and limits. They are the same wherever they are shown.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use windlass_engine::{Live, Resource};

/// A duration: `0.35 s`, `12.3 s`, `5 min 10 s`, `3 h 20 min`, `4 days`.
pub fn duration(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a duration of a run or an age"
    )]
    let whole = seconds.max(0.0).round() as u64;
    let two = |first: String, rest: u64, unit: &str| match rest {
        0 => first,
        rest => format!("{first} {rest} {unit}"),
    };
    match whole {
        0..=119 if seconds.fract() == 0.0 => format!("{whole} s"),
        0..=9 if seconds < 9.995 => format!("{seconds:.2} s"),
        0..=119 if seconds < 99.95 => format!("{seconds:.1} s"),
        0..=119 => format!("{whole} s"),
        120..=7_199 => two(format!("{} min", whole / 60), whole % 60, "s"),
        7_200..=172_799 => two(format!("{} h", whole / 3600), whole % 3600 / 60, "min"),
        _ => format!("{} days", whole / 86_400),
    }
}

/// A moment in this time zone, and how long ago it was: `2026-11-21 11:15:00 +01:00, 3 h ago`.
pub fn moment(time: Timestamp) -> String {
    at_zone(time, Timestamp::now(), &TimeZone::system())
}

/// The text of a time, followed by its [`moment`] in brackets. If the text is not a time, it stays
/// as it is.
pub fn moment_of(text: &str) -> String {
    text.parse()
        .map_or(text.to_owned(), |time| format!("{text} ({})", moment(time)))
}

/// The [`moment`] that a text of RFC 3339 means. If the text is not a time, it stays as it is.
pub fn moment_of_begin(text: &str) -> String {
    text.parse().map_or(text.to_owned(), moment)
}

fn at_zone(time: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let local = time.to_zoned(zone.clone()).strftime("%F %T %:z");
    format!("{local}, {}", age(now.duration_since(time)))
}

/// How long ago something was. The clocks of two machines may differ a little.
pub fn age(passed: SignedDuration) -> String {
    let seconds = passed.as_secs();
    let coarse = |seconds: i64| match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    match seconds {
        ..-1 => format!("in {}", coarse(-seconds)),
        -1..=1 => "just now".to_owned(),
        _ => format!("{} ago", coarse(seconds)),
    }
}

/// What binds a run right now; empty while that is not known.
pub fn bound_now(live: &Live) -> String {
    let words = |limit: &windlass_engine::LiveLimit| bound(limit.stage);
    live.limit.as_ref().map_or(String::new(), words)
}

/// What bound a run, in a few words.
pub fn bound(resource: Resource) -> String {
    format!("bound by {}", resource.words())
}

/// A word as a shell takes it: in quotes if it has letters that a shell would change.
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:@%+,".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let expected = [
            (0.0, "0 s"),
            (3.0, "3 s"),
            (0.004, "0.00 s"),
            (0.354, "0.35 s"),
            (12.34, "12.3 s"),
            (110.2, "110 s"),
            (310.0, "5 min 10 s"),
            (7_200.0, "2 h"),
            (12_000.0, "3 h 20 min"),
            (360_000.0, "4 days"),
        ];
        for (seconds, words) in expected {
            assert_eq!(duration(seconds), words);
        }
    }

    #[test]
    fn a_word_can_be_typed_as_it_is_shown() {
        assert_eq!(quoted("/backup/shop-1.windlass"), "/backup/shop-1.windlass");
        assert_eq!(quoted("/my backup/x"), "'/my backup/x'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn moments_are_local_and_have_an_age() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let shown = |time, now| at_zone(at(time), at(now), &zone);
        let time = "2026-11-21T10:15:00Z";
        assert_eq!(
            shown(time, "2026-11-21T13:20:01Z"),
            "2026-11-21 11:15:00 +01:00, 3 h ago"
        );
        assert!(shown(time, "2026-11-21T10:15:01Z").ends_with("just now"));
        assert!(shown(time, "2026-11-21T10:17:30Z").ends_with("2 min ago"));
        assert!(shown(time, "2026-11-21T10:14:30Z").ends_with("in 30 s"));
        assert!(shown(time, "2026-11-30T10:14:30Z").ends_with("8 days ago"));
        assert!(shown("2026-07-21T10:15:00Z", time).starts_with("2026-07-21 12:15:00 +02:00"));
    }
}
