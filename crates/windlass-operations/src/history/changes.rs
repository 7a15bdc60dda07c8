//! Where the rate or the ratio of a database's backups changed, as far as that can be told from
//! noise.
//!
//!   runs of one type --> each place between two runs: few before, few after --> noise --> breaks
//!
//! Windlass compares the runs before a place with those after it by the laboratory's judgement of
//! noise: the means must differ by more than Student's t allows, and no run of one side may lie
//! among those of the other. All places are compared, so each comparison gets its part of the 5 %.

use std::ops::Range;

use jiff::Timestamp;
use windlass_lab::{Difference, Noise};
use windlass_repository::CatalogRun;

use super::causes::{self, Cause};
use super::figures::{is_backup, rate, ratio};

/// The newest runs that are looked at.
const RUNS_MAX: usize = 200;
/// So many runs on each side are compared: with all, and where two breaks are near each other with
/// fewer.
const SIDES: [usize; 2] = [12, 5];
/// Fewer runs than this before a break, and after it, say nothing.
const BEFORE_MIN: usize = 3;
const AFTER_MIN: usize = 2;
/// Most breaks of one quantity that are told, the newest.
const BREAKS_MAX: usize = 3;

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes of the database in each second.
    Rate,
    /// Bytes of the database for each stored byte.
    Ratio,
}

impl Quantity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Ratio => "ratio",
        }
    }

    fn of(self, run: &CatalogRun) -> Option<f64> {
        match self {
            Self::Rate => rate(run),
            Self::Ratio => ratio(run),
        }
    }
}

/// A place in a row of runs at which a quantity changed.
#[derive(Clone, Debug)]
pub struct Break {
    /// What changed.
    pub quantity: Quantity,
    /// The type of the backups.
    pub set_type: String,
    /// When the first run with the new value began.
    pub since: Timestamp,
    /// The mean before, of so many runs.
    pub before: (f64, usize),
    /// The mean since, of so many runs.
    pub after: (f64, usize),
    /// The ratio of both, and what it had to exceed.
    pub difference: Difference,
    /// What else changed there.
    pub causes: Vec<Cause>,
}

/// The breaks of all types of backups, the oldest first.
pub(super) fn breaks(runs: &[CatalogRun]) -> Vec<Break> {
    let mut all = Vec::new();
    for set_type in ["full", "diff", "incr"] {
        let is_one =
            |run: &&CatalogRun| is_backup(run) && run.set_type.as_deref() == Some(set_type);
        let of_type: Vec<_> = runs.iter().filter(is_one).collect();
        let newest = &of_type[of_type.len().saturating_sub(RUNS_MAX)..];
        for quantity in [Quantity::Rate, Quantity::Ratio] {
            all.extend(of_quantity(newest, quantity, set_type));
        }
    }
    all.sort_by_key(|one| one.since);
    all
}

fn of_quantity(runs: &[&CatalogRun], quantity: Quantity, set_type: &str) -> Vec<Break> {
    let measured = runs
        .iter()
        .filter_map(|run| Some((*run, quantity.of(run)?)));
    let measured: Vec<(&CatalogRun, f64)> = measured.collect();
    let values: Vec<_> = measured.iter().map(|(_, value)| *value).collect();
    let places = places(&values);
    let ends: Vec<_> = places.iter().map(|(place, _)| *place).collect();
    let newest = places.len().saturating_sub(BREAKS_MAX);
    let each = places.into_iter().enumerate().skip(newest);
    let one = |(index, (place, difference)): (usize, (usize, Difference))| {
        let first = index.checked_sub(1).map_or(0, |before| ends[before]);
        let last = ends.get(index + 1).copied().unwrap_or(values.len());
        let runs = |range: Range<usize>| -> Vec<&CatalogRun> {
            measured[range].iter().map(|(run, _)| *run).collect()
        };
        let (before, after) = (runs(first..place), runs(place..last));
        Some(Break {
            quantity,
            set_type: set_type.to_owned(),
            since: Timestamp::from_millisecond(after.first()?.began).ok()?,
            before: (mean(&values[first..place]), place - first),
            after: (mean(&values[place..last]), last - place),
            difference,
            causes: causes::between(&before, &after),
        })
    };
    each.filter_map(one).collect()
}

/// The places before which numbers differ from those behind them, and by how much. The clearest one
/// comes first, and then those of the stretches on both sides of it: numbers of both sides together
/// would look like a change beside it.
fn places(values: &[f64]) -> Vec<(usize, Difference)> {
    let comparisons = candidates(0..values.len()).count();
    let mut found: Vec<(usize, Difference)> = Vec::new();
    let whole = 0..values.len();
    let mut stretches = vec![whole];
    while let Some(stretch) = stretches.pop() {
        let compare = |(at, side): (usize, usize)| {
            let before = &values[stretch.start.max(at.saturating_sub(side))..at];
            let after = &values[at..stretch.end.min(at + side)];
            let difference = Noise::of_groups(&[before, after], comparisons).compare(0, 1);
            difference.apart.then_some((at, difference))
        };
        let clearest = candidates(stretch.clone()).filter_map(compare);
        let clearest =
            clearest.max_by(|one, other| strength(&one.1).total_cmp(&strength(&other.1)));
        if let Some((at, difference)) = clearest {
            stretches.extend([stretch.start..at, at..stretch.end]);
            found.push((at, difference));
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found
}

/// The places of a stretch that are compared, each with so many numbers on both sides.
fn candidates(stretch: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let last = (stretch.end + 1).saturating_sub(AFTER_MIN);
    let places = stretch.start + BEFORE_MIN..last;
    places.flat_map(|at| SIDES.map(|side| (at, side)))
}

/// How far a difference is beyond what noise explains.
fn strength(difference: &Difference) -> f64 {
    difference.ratio.ln().abs() / difference.needed.ln()
}

fn mean(values: &[f64]) -> f64 {
    let logs: f64 = values.iter().map(|value| value.max(1e-9).ln()).sum();
    #[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
    let count = values.len().max(1) as f64;
    (logs / count).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers around a mean, within this share of it: the same ones on each call.
    fn noisy(mean: f64, share: f64, count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            f64::from(u32::try_from(state >> 40).unwrap()) / f64::from(1u32 << 24)
        };
        (0..count)
            .map(|_| mean * (1.0 + share * (2.0 * next() - 1.0)))
            .collect()
    }

    fn at(values: &[f64]) -> Vec<usize> {
        places(values).into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn noise_alone_is_no_break() {
        let found = (0..60).filter(|seed| !at(&noisy(100.0, 0.2, 30, *seed)).is_empty());
        // The judgement takes noise for a break in one of twenty rows.
        let count = found.count();
        assert!(count <= 5, "{count}");
    }

    #[test]
    fn a_fall_beyond_the_noise_is_found_where_it_is() {
        let mut others = 0;
        for seed in 0..40 {
            let values = [noisy(100.0, 0.1, 14, seed), noisy(50.0, 0.1, 6, seed + 99)];
            let found = at(&values.concat());
            assert!(found.contains(&14), "{seed}: {found:?}");
            others += usize::from(found.len() > 1);
        }
        assert!(others <= 5, "{others}");
    }

    #[test]
    fn a_fall_within_the_noise_is_none() {
        for seed in 0..20 {
            let values = [noisy(100.0, 0.3, 12, seed), noisy(95.0, 0.3, 6, seed + 99)].concat();
            assert_eq!(at(&values), [] as [usize; 0], "{seed}");
        }
    }

    #[test]
    fn two_slow_runs_in_a_row_are_seen_and_one_is_not() {
        let before = noisy(100.0, 0.02, 12, 7);
        assert_eq!(at(&[before.clone(), vec![50.0]].concat()), [] as [usize; 0]);
        assert_eq!(at(&[before, vec![50.0, 51.0]].concat()), [12]);
    }

    #[test]
    fn a_rise_after_a_fall_is_a_break_of_its_own() {
        let values = [
            noisy(100.0, 0.03, 12, 1),
            noisy(60.0, 0.03, 7, 2),
            noisy(100.0, 0.03, 12, 3),
        ];
        assert_eq!(at(&values.concat()), [12, 19]);
    }

    #[test]
    fn few_runs_say_nothing() {
        assert_eq!(at(&[100.0, 100.0, 10.0]), [] as [usize; 0]);
        assert_eq!(at(&[]), [] as [usize; 0]);
    }
}
