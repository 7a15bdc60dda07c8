//! The clock of the machine: no time beyond the year 9999 can be written, and whatever asks for one
//! would panic.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::exit::{Code, Failure};

/// Where the year 9999 begins, in seconds since 1970. A year is left for what is added to a time.
const LIMIT_SECONDS: u64 = 253_370_764_800;

/// Refuses a clock that has come so far.
pub fn check(now: SystemTime) -> Result<(), Failure> {
    let limit = UNIX_EPOCH + Duration::from_secs(LIMIT_SECONDS);
    match now < limit {
        true => Ok(()),
        false => Err(Failure::new(
            Code::Failed,
            "the clock of this machine is in the year 9999 or later, and no such time can be \
             written",
            "Set the clock, and type the command again.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_which_no_time_could_be_written_is_refused_and_any_other_is_not() {
        let at = |text: &str| {
            let moment: jiff::Timestamp = text.parse().unwrap();
            SystemTime::from(moment)
        };
        for fine in [
            "1969-12-31T00:00:00Z",
            "2026-11-23T08:00:00Z",
            "9998-12-31T23:59:59Z",
        ] {
            assert!(check(at(fine)).is_ok(), "{fine}");
        }
        let beyond = SystemTime::from(jiff::Timestamp::MAX) + Duration::from_secs(1);
        for late in [at("9999-01-01T00:00:00Z"), beyond] {
            let failure = check(late).unwrap_err();
            assert!(failure.message().contains("the year 9999"), "{failure:?}");
            assert!(failure.hint().is_some());
        }
    }
}
