//! How durations are spread: sums and percentiles of values, each of which may stand for several.

use serde::Serialize;

/// Durations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub total_seconds: f64,
    /// The mean.
    pub mean_seconds: f64,
    /// The median.
    pub p50_seconds: f64,
    /// The 99th percentile.
    pub p99_seconds: f64,
    /// The longest. Thinning keeps long events, so it is in the file even if shorter ones are not.
    pub max_seconds: f64,
}

impl Spread {
    /// The spread of durations in nanoseconds, each with the number of events that it stands for.
    pub fn of(mut values: Vec<(u64, u64)>) -> Self {
        values.sort_unstable();
        let count = values.iter().map(|(_, weight)| weight).sum::<u64>();
        let total = values
            .iter()
            .map(|(nanos, weight)| u128::from(*nanos) * u128::from(*weight));
        let total_seconds = float(total.sum()) / 1e9;
        Self {
            count,
            total_seconds,
            mean_seconds: total_seconds / float(u128::from(count.max(1))),
            p50_seconds: seconds(percentile(&values, count, 50)),
            p99_seconds: seconds(percentile(&values, count, 99)),
            max_seconds: seconds(values.last().map_or(0, |last| last.0)),
        }
    }
}

/// The smallest value that at least `percent` percent of all do not exceed; `values` are sorted.
fn percentile(values: &[(u64, u64)], count: u64, percent: u64) -> u64 {
    let rank = u128::from(count) * u128::from(percent);
    let mut seen = 0;
    for (value, weight) in values {
        seen += u128::from(*weight) * 100;
        if seen >= rank {
            return *value;
        }
    }
    0
}

/// Nanoseconds as seconds.
pub(super) fn seconds(nanos: u64) -> f64 {
    float(u128::from(nanos)) / 1e9
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a report needs no nanosecond of a year"
)]
pub(super) fn float(value: u128) -> f64 {
    value as f64
}
