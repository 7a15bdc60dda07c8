//! Moments as people read them: in this machine's time zone, and how long ago they were.
//!
//! Invariant: a TZ that names a pipe, a device or a very long file is never waited for.

use std::ffi::OsStr;
use std::io;
use std::sync::OnceLock;

use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};
use windlass_engine::read_regular_at_most;

/// The longest file of a time zone that is read. Those of the system have a few KiB.
const ZONE_BYTES_MAX: u64 = 1024 * 1024;

/// The time zone of this process: that of TZ, or of the machine. It is UTC if there is none.
pub fn zone() -> TimeZone {
    match found() {
        Ok(zone) => zone.clone(),
        Err(_) => TimeZone::UTC,
    }
}

/// Why the file that TZ names is no time zone, if a time was shown. It was shown in UTC then.
pub fn zone_fault() -> Option<&'static io::Error> {
    ZONE.get()?.as_ref().err()
}

static ZONE: OnceLock<io::Result<TimeZone>> = OnceLock::new();

fn found() -> &'static io::Result<TimeZone> {
    ZONE.get_or_init(|| match std::env::var_os("TZ") {
        Some(named) => of_variable(&named),
        None => Ok(TimeZone::system()),
    })
}

/// The time zone of a value of TZ. The library would read a file of any kind to its end, so it gets
/// only values that name no file.
fn of_variable(named: &OsStr) -> io::Result<TimeZone> {
    let text = named.to_string_lossy();
    let path = text.strip_prefix(':').unwrap_or(&text);
    let name = path.rfind("zoneinfo/").map_or(path, |at| &path[at + 9..]);
    if text.is_empty() || TimeZone::posix(&text).is_ok() || TimeZone::get(name).is_ok() {
        return Ok(TimeZone::system());
    }
    match read_regular_at_most(path, ZONE_BYTES_MAX) {
        Ok(bytes) => TimeZone::tzif(path, &bytes).map_err(io::Error::other),
        // It is the name of a zone that this machine does not know.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TimeZone::UTC),
        Err(error) => Err(error),
    }
}

/// A moment in this time zone, and how long ago it was: `2026-11-21 11:15:00 +01:00, 3 h ago`.
pub fn moment(time: Timestamp) -> String {
    at_zone(time, Timestamp::now(), &zone())
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
    local_in(timestamp(nanos), zone())
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
    fn a_value_that_names_no_regular_file_is_an_error_and_not_a_wait() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let pipe = pipe.to_str().unwrap();
        for named in ["/dev/zero", ":/dev/zero", "/dev/../dev/zero", pipe] {
            assert!(of_variable(OsStr::new(named)).is_err(), "{named}");
        }
        for named in ["", "UTC", "EST5EDT", ":Europe/Berlin", "Nowhere/None"] {
            assert!(of_variable(OsStr::new(named)).is_ok(), "{named}");
        }
        let copy = place.path().join("zone");
        if std::fs::copy("/usr/share/zoneinfo/Asia/Tokyo", &copy).is_ok() {
            let zone = of_variable(copy.as_os_str()).unwrap();
            let moment = Timestamp::UNIX_EPOCH.to_zoned(zone);
            assert_eq!(moment.strftime("%H").to_string(), "09");
        }
    }

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
