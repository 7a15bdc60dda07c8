//! The order of the runs: in rounds. Each round runs every case once, in shuffled order.
//!
//! A machine drifts: caches fill, clocks drop, other users come and go. If all runs of a case were
//! made in a row, drift would look like an effect of the case. In rounds it affects all cases
//! alike, and the shuffle keeps a case from always running after the same other one.

use windlass_engine::media::fitted;

use crate::sample::next;

/// The cases of each round, in the order of running.
pub fn rounds(cases: usize, repeat: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut state = seed;
    let round = |_| {
        let mut order: Vec<usize> = (0..cases).collect();
        for last in (1..cases).rev() {
            order.swap(last, below(&mut state, last + 1));
        }
        order
    };
    (0..repeat).map(round).collect()
}

/// A number below `end`. The remainder's bias is below 2^-50 for any number of cases.
fn below(state: &mut u64, end: usize) -> usize {
    *state = next(*state);
    let number = *state % (end as u64);
    fitted(number)
}
