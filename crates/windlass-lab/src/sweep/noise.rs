//! Noise: how much runs with one setting differ, and therefore how large a difference between
//! settings must be to mean anything.
//!
//! Windlass compares runs by ratios, so it calculates with logarithms. In rounds, each run is the
//! product of its setting, its round and chance. Taking out the means of setting and round leaves
//! chance. The spread of chance is estimated from all settings together. Windlass tells two
//! settings apart only if both of these are true:
//! - The means of their logarithms differ by more than Student's t allows for this spread, at 5 %
//!   over all comparisons that are made. So each comparison is given 5 % divided by their number.
//! - No run of the one lies among the runs of the other, after the effects of the rounds are taken
//!   out. With few runs the spread itself is uncertain, and one setting may be noisier than the
//!   others.

use super::measure::Measure;
use super::series::Series;
use super::student;

/// The share of reports in which a difference may be seen although there is none.
const ALPHA: f64 = 0.05;
/// A ratio nearer to one than this counts as equal, whatever the runs say: clocks and counts of
/// timer ticks are not more exact.
const RATIO_MIN: f64 = 0.002;

/// The noise of one measure over a series.
#[derive(Clone, Debug)]
pub struct Noise {
    /// For each run, its case and the logarithm of its value without the effect of its round.
    runs: Vec<(usize, f64)>,
    /// Standard deviation of the logarithms. It is roughly a share.
    pub spread: f64,
    /// Degrees of freedom of the estimate. Zero means that the spread is not known.
    pub freedom: usize,
    /// The slowest round divided by the fastest, minus one.
    pub drift: f64,
    /// Rounds.
    pub rounds: usize,
    comparisons: usize,
}

/// The comparison of two groups of runs.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Difference {
    /// The second group's mean over the first's.
    pub ratio: f64,
    /// The ratio (or its inverse) that is needed to tell them apart; infinite when the noise is not
    /// known.
    pub needed: f64,
    /// Whether they can be told apart.
    pub apart: bool,
}

impl Noise {
    /// The noise of a measure. `comparisons` is how many comparisons will be made.
    pub fn of(series: &Series, measure: Measure, comparisons: usize) -> Self {
        let runs = series.runs.iter();
        let values = runs.map(|run| (run.case, run.round, measure.of(run)));
        Self::of_values(values, series.cases.len(), comparisons)
    }

    /// The noise of numbers in groups that were not measured in rounds.
    pub fn of_groups(groups: &[&[f64]], comparisons: usize) -> Self {
        let each = groups.iter().enumerate();
        let values = each.flat_map(|(case, values)| values.iter().map(move |one| (case, 0, *one)));
        Self::of_values(values, groups.len(), comparisons)
    }

    /// The noise of numbers, each given as case, round, value.
    pub(crate) fn of_values(
        values: impl Iterator<Item = (usize, usize, f64)>,
        cases: usize,
        comparisons: usize,
    ) -> Self {
        let log = |(case, round, value): (usize, usize, f64)| (case, round, value.max(1e-9).ln());
        let logs: Vec<_> = values.map(log).collect();
        let rounds = logs
            .iter()
            .map(|(_, round, _)| round + 1)
            .max()
            .unwrap_or(0);
        let all = mean(logs.iter().map(|(.., log)| *log));
        let of_round = |wanted: usize| {
            let logs = logs.iter().filter(|(_, round, _)| *round == wanted);
            mean(logs.map(|(.., log)| *log)) - all
        };
        // With only one case, drift cannot be told from chance, so it is left in.
        let whole = cases > 1;
        let drifts: Vec<_> = (0..rounds)
            .map(|round| if whole { of_round(round) } else { 0.0 })
            .collect();
        let runs: Vec<_> = logs
            .iter()
            .map(|(case, round, log)| (*case, log - drifts[*round]))
            .collect();
        let mut noise = Self {
            runs,
            spread: 0.0,
            freedom: 0,
            drift: range(&drifts).exp_m1(),
            rounds,
            comparisons: comparisons.max(1),
        };
        noise.estimate(cases, if whole { rounds.saturating_sub(1) } else { 0 });
        noise
    }

    fn estimate(&mut self, cases: usize, for_rounds: usize) {
        let mut squares = 0.0;
        let mut seen = 0;
        for case in 0..cases {
            let logs = self.of_case(case);
            if logs.is_empty() {
                continue;
            }
            let middle = mean(logs.iter().copied());
            squares += logs.iter().map(|log| (log - middle).powi(2)).sum::<f64>();
            seen += 1;
        }
        self.freedom = self.runs.len().saturating_sub(seen + for_rounds);
        if self.freedom > 0 {
            self.spread = (squares / count(self.freedom)).sqrt();
        }
    }

    fn of_case(&self, wanted: usize) -> Vec<f64> {
        let runs = self.runs.iter().filter(|(case, _)| *case == wanted);
        runs.map(|(_, log)| *log).collect()
    }

    /// The geometric mean of a case's runs, without the effects of the rounds.
    pub fn mean(&self, case: usize) -> f64 {
        mean(self.of_case(case)).exp()
    }

    /// The factor by which the mean of a case may be off by chance; infinite when the noise is not
    /// known. If the bands of two cases with equally many runs do not touch, the means of these
    /// cases can be told apart.
    pub fn band(&self, case: usize) -> f64 {
        let needed = self.difference(&[(case, case)]).needed;
        needed.sqrt()
    }

    /// Compares two cases.
    pub fn compare(&self, first: usize, second: usize) -> Difference {
        let (one, other) = (self.of_case(first), self.of_case(second));
        let mut difference = self.difference(&[(first, second)]);
        let overlap = |one: &[f64], other: &[f64]| {
            let (low, high) = (least(one), most(one));
            other.iter().any(|log| (low..=high).contains(log))
        };
        difference.apart &= !overlap(&one, &other) && !overlap(&other, &one);
        difference
    }

    /// Compares many pairs that all differ in the same way, and gives the mean ratio.
    pub fn compare_all(&self, pairs: &[(usize, usize)]) -> Difference {
        self.difference(pairs)
    }

    fn difference(&self, pairs: &[(usize, usize)]) -> Difference {
        let ratio = |(first, second): &(usize, usize)| self.mean(*second) / self.mean(*first);
        let log = mean(pairs.iter().map(|pair| ratio(pair).ln()));
        // This is the variance of the mean of the pairs' differences. Each difference is one of
        // means.
        let share = |case: usize| 1.0 / count(self.of_case(case).len().max(1));
        let shares = pairs
            .iter()
            .map(|(first, second)| share(*first) + share(*second));
        let error = self.spread * shares.sum::<f64>().sqrt() / count(pairs.len().max(1));
        let needed = match self.freedom {
            0 => f64::INFINITY,
            freedom => student::quantile(ALPHA / count(self.comparisons), count(freedom)) * error,
        };
        let needed = needed.max(RATIO_MIN);
        Difference {
            ratio: log.exp(),
            needed: needed.exp(),
            apart: log.abs() > needed,
        }
    }
}

fn mean(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut seen) = (0.0, 0.0);
    for number in numbers {
        sum += number;
        seen += 1.0;
    }
    if seen > 0.0 { sum / seen } else { 0.0 }
}

fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn range(numbers: &[f64]) -> f64 {
    (most(numbers) - least(numbers)).max(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
fn count(number: usize) -> f64 {
    number as f64
}
