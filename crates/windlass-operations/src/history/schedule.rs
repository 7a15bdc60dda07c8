//! The rhythm of backups: where one is missing, and where the clock went back.
//!
//! A schedule is not asked for. It is what the backups show: the usual time from one to the next.

use jiff::Timestamp;
use windlass_repository::CatalogRun;

use super::figures::is_backup;

/// Fewer intervals than this show no rhythm.
const INTERVALS_MIN: usize = 3;
/// From so many intervals on, nine in ten of them say what is usual. So a weekend is no gap, if
/// nobody makes backups at weekends.
const INTERVALS_MANY: usize = 10;
/// The clocks of machines are set by so little without a word: a minute.
const CLOCK_MILLIS: i64 = 60_000;

/// A time without a backup that is longer than usual.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// The type of the backups.
    pub set_type: String,
    /// When the last one before the gap began.
    pub from: Timestamp,
    /// When the first one after it began; none if there is none yet.
    pub to: Option<Timestamp>,
    /// The usual time from one to the next, in seconds.
    pub usual_seconds: f64,
    /// Runs that failed in the gap.
    pub failed: usize,
}

/// A run that began before the one that was recorded before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// What the clock showed before.
    pub from: Timestamp,
    /// What it showed then.
    pub to: Timestamp,
}

/// The gaps of a database's backups. Those of all types come first to last.
pub(super) fn gaps(runs: &[CatalogRun], now: Timestamp) -> Vec<Gap> {
    let types = ["full", "diff", "incr", "log"].into_iter();
    let mut gaps: Vec<_> = types.flat_map(|one| of_type(runs, one, now)).collect();
    gaps.sort_by_key(|gap| gap.from);
    gaps
}

fn of_type(runs: &[CatalogRun], set_type: &str, now: Timestamp) -> Vec<Gap> {
    let Some(usual) = usual_millis(&starts(runs, &[set_type])) else {
        return Vec::new();
    };
    let starts = starts(runs, in_place_of(set_type));
    let allowed = usual + usual / 2 + CLOCK_MILLIS;
    let after = starts
        .iter()
        .skip(1)
        .map(|start| Some(*start))
        .chain([None]);
    let pairs = starts.iter().zip(after);
    let is_gap = |(from, to): &(&i64, Option<i64>)| {
        to.unwrap_or_else(|| now.as_millisecond()) - **from > allowed
    };
    let gap = |(from, to): (&i64, Option<i64>)| {
        let failed = |run: &&CatalogRun| {
            let is_between = run.began > *from && to.is_none_or(|to| run.began < to);
            is_between
                && run.state.is_failure()
                && matches!(run.operation.as_str(), "backup" | "log")
        };
        Some(Gap {
            set_type: set_type.to_owned(),
            from: Timestamp::from_millisecond(*from).ok()?,
            to: to.and_then(|to| Timestamp::from_millisecond(to).ok()),
            usual_seconds: super::figures::float(usual) / 1e3,
            failed: runs.iter().filter(failed).count(),
        })
    };
    pairs.filter(is_gap).filter_map(gap).collect()
}

/// When backups of these types began, in order.
fn starts(runs: &[CatalogRun], types: &[&str]) -> Vec<i64> {
    let is_one = |run: &&CatalogRun| {
        let set_type = run.set_type.as_deref();
        is_backup(run) && set_type.is_some_and(|one| types.contains(&one))
    };
    let mut starts: Vec<_> = runs.iter().filter(is_one).map(|run| run.began).collect();
    starts.sort_unstable();
    starts
}

/// The types whose backups leave nothing to wish for when one of this type was due.
fn in_place_of(set_type: &str) -> &[&str] {
    match set_type {
        "full" => &["full"],
        "diff" => &["full", "diff"],
        "incr" => &["full", "diff", "incr"],
        _ => &["log"],
    }
}

/// The usual time from one start to the next; none if they show no rhythm.
fn usual_millis(starts: &[i64]) -> Option<i64> {
    let mut intervals: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    intervals.sort_unstable();
    let count = intervals.len();
    let index = match count {
        count if count < INTERVALS_MIN => return None,
        count if count < INTERVALS_MANY => count / 2,
        count => count * 9 / 10 - 1,
    };
    // Whoever makes several backups at once has no rhythm.
    intervals
        .get(index)
        .copied()
        .filter(|usual| *usual >= CLOCK_MILLIS)
}

/// Where the clock went back between two runs. Rows are in the order in which runs began.
pub(super) fn jumps(runs: &[CatalogRun]) -> Vec<ClockJump> {
    let mut recorded: Vec<_> = runs.iter().filter(|run| !run.is_rebuilt).collect();
    recorded.sort_by_key(|run| run.row);
    let is_back = |pair: &&[&CatalogRun]| pair[1].began < pair[0].began - CLOCK_MILLIS;
    let jump = |pair: &[&CatalogRun]| {
        Some(ClockJump {
            from: Timestamp::from_millisecond(pair[0].began).ok()?,
            to: Timestamp::from_millisecond(pair[1].began).ok()?,
        })
    };
    recorded
        .windows(2)
        .filter(is_back)
        .filter_map(jump)
        .collect()
}

#[cfg(test)]
mod tests {
    use windlass_repository::RunState;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn nightly(nights: impl IntoIterator<Item = i64>) -> Vec<CatalogRun> {
        let run = |(row, night): (usize, i64)| {
            let mut run = CatalogRun::new("backup", "backup", ("shop", "shop"), night * 24 * HOUR);
            run.row = i64::try_from(row).unwrap();
            run.state = RunState::Done;
            run.set_type = Some("full".to_owned());
            run.ended = Some(run.began + 1);
            run
        };
        nights.into_iter().enumerate().map(run).collect()
    }

    fn at(night: i64) -> Timestamp {
        Timestamp::from_millisecond(night * 24 * HOUR).unwrap()
    }

    #[test]
    fn a_missing_night_is_a_gap_and_says_what_failed_in_it() {
        let mut runs = nightly([1, 2, 3, 4, 6, 7]);
        assert_eq!(gaps(&runs[..4], at(5)), []);
        let mut failed = nightly([5]).remove(0);
        failed.state = RunState::Killed;
        failed.set_type = None;
        runs.push(failed);
        let found = gaps(&runs, at(8));
        let expected = Gap {
            set_type: "full".to_owned(),
            from: at(4),
            to: Some(at(6)),
            usual_seconds: 86_400.0,
            failed: 1,
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn what_has_not_come_yet_is_a_gap_when_it_is_overdue() {
        let runs = nightly([1, 2, 3, 4]);
        assert_eq!(gaps(&runs, at(5)), []);
        let found = gaps(&runs, at(6));
        assert_eq!((found.len(), found[0].to), (1, None));
    }

    #[test]
    fn weekends_without_backups_are_no_gaps() {
        let workdays = (0..40).filter(|day| day % 7 < 5);
        assert_eq!(gaps(&nightly(workdays), at(39)), []);
        let with_holiday = (0..40).filter(|day| day % 7 < 5 && !(14..19).contains(day));
        assert_eq!(gaps(&nightly(with_holiday), at(39)).len(), 1);
    }

    /// A full backup on Sunday, and an incremental one every other night.
    #[test]
    fn a_full_backup_stands_for_an_incremental_one_that_was_due() {
        let mut runs = nightly(0..9);
        for (night, run) in runs.iter_mut().enumerate() {
            run.set_type = Some(if night % 7 == 3 { "full" } else { "incr" }.to_owned());
        }
        assert_eq!(gaps(&runs, at(9)), []);
        runs.remove(3);
        assert_eq!(gaps(&runs, at(8))[0].from, at(2));
    }

    #[test]
    fn few_backups_show_no_rhythm() {
        assert_eq!(gaps(&nightly([1, 2, 30]), at(300)), []);
    }

    #[test]
    fn a_clock_that_goes_back_is_seen_and_makes_no_gap() {
        let mut runs = nightly([1, 2, 3, 4, 5, 6]);
        assert_eq!(jumps(&runs), []);
        runs[4].began = at(2).as_millisecond() + HOUR;
        let expected = ClockJump {
            from: at(4),
            to: Timestamp::from_millisecond(runs[4].began).unwrap(),
        };
        assert_eq!(jumps(&runs), [expected]);
        assert_eq!(
            gaps(&runs, at(3))
                .iter()
                .filter(|gap| gap.to.is_none())
                .count(),
            0
        );
    }
}
