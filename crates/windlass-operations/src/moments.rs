//! Moments as people read them: in this machine's time zone, and how long ago they were.

use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

/// A moment in this time zone, and how long ago it was: `2026-11-21 11:15:00 +01:00, 3 h ago`.
pub fn moment(time: Timestamp) -> String {
    at_zone(time, Timestamp::now(), &TimeZone::system())
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

/// A moment as this machine's clock shows it: `2026-11-22 03:00:07`. If the clock shows this time
/// twice, because it is set back in autumn, the offset tells which one it is.
pub fn local_time(nanos: i64) -> String {
    local_in(timestamp(nanos), TimeZone::system())
}

fn local_in(moment: Timestamp, zone: TimeZone) -> String {
    let local: Zoned = moment.to_zoned(zone);
    let shown = local.time_zone().to_ambiguous_zoned(local.datetime());
    let form = match shown.is_ambiguous() {
        false => "%Y-%m-%d %H:%M:%S",
        true => "%Y-%m-%d %H:%M:%S %:z",
    };
    local.strftime(form).to_string()
}

/// The [`moment`] that so many nanoseconds since 1970 are.
pub fn when(nanos: i64) -> String {
    moment(timestamp(nanos))
}

/// A moment.
pub fn timestamp(nanos: i64) -> Timestamp {
    let time = Timestamp::from_nanosecond(i128::from(nanos));
    time.expect("64 bits of nanoseconds are within its range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_the_clock_shows_twice_has_its_offset() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let shown = |text: &str| local_in(text.parse().unwrap(), zone.clone());
        for (moment, expected) in [
            ("2026-10-25T00:59:59Z", "2026-10-25 02:59:59 +02:00"),
            ("2026-10-25T00:00:00Z", "2026-10-25 02:00:00 +02:00"),
            ("2026-10-25T01:00:00Z", "2026-10-25 02:00:00 +01:00"),
            ("2026-10-25T02:00:00Z", "2026-10-25 03:00:00"),
            ("2026-10-24T23:59:59Z", "2026-10-25 01:59:59"),
            ("2026-03-29T01:00:00Z", "2026-03-29 03:00:00"),
        ] {
            assert_eq!(shown(moment), expected, "{moment}");
        }
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
