//! Waits that have not ended: how many there are, and for how long already.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use windlass_media::fitted;

/// How many bits the sum of start times has. The rest is enough for 1023 threads; the sum is enough
/// for a run of half a year.
const SUM_BITS: u32 = 54;

/// How many threads wait, and the sum of the times at which they began. Both are in one word, so
/// nobody ever sees one without the other.
#[derive(Debug, Default)]
pub(super) struct Open(AtomicU64);

/// A waiting thread keeps this, and gives it back when it leaves.
pub(super) struct Entered(u64);

impl Open {
    pub(super) fn enter(&self, begin: Instant) -> Entered {
        let entered = (1 << SUM_BITS) + micros(begin);
        self.0.fetch_add(entered, Ordering::Relaxed);
        Entered(entered)
    }

    pub(super) fn leave(&self, entered: Entered) {
        self.0.fetch_sub(entered.0, Ordering::Relaxed);
    }

    /// Nanoseconds since the waits began, summed.
    pub(super) fn nanos(&self, now: Instant) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        let (count, sum) = (word >> SUM_BITS, word & ((1 << SUM_BITS) - 1));
        (count * micros(now)).saturating_sub(sum) * 1000
    }
}

/// Microseconds since the first call of this function.
fn micros(at: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let first = FIRST.get_or_init(|| at);
    fitted(at.saturating_duration_since(*first).as_micros())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_grows_with_each_that_is_at_it_and_ends_with_the_last() {
        let (open, first) = (Open::default(), Instant::now());
        let one = open.enter(first);
        let second = first + Duration::from_millis(2);
        let two = open.enter(second);
        assert_eq!(open.nanos(second + Duration::from_millis(3)), 8_000_000);
        open.leave(one);
        assert_eq!(open.nanos(second + Duration::from_millis(3)), 3_000_000);
        open.leave(two);
        assert_eq!(open.nanos(second + Duration::from_secs(9)), 0);
    }
}
