//! What a sweep tells while it runs.

use std::time::Duration;

use windlass_lab::{Axis, Case, SweptRun};

/// What a sweep is doing.
#[derive(Debug)]
pub enum SweepStep<'a> {
    /// It begins.
    Begins {
        /// How many settings there are.
        cases: usize,
        /// Runs of each.
        repeat: usize,
    },
    /// It makes a set that restores read.
    MakesSet(&'a Case),
    /// A run has ended.
    Ran {
        /// How many have ended.
        done: usize,
        /// Of how many.
        count: usize,
        /// The last one.
        run: &'a SweptRun,
        /// Its case.
        case: &'a Case,
        /// The axes on which the cases differ.
        axes: &'a [Axis],
        /// How many seconds the others will take, by those that have ended.
        left_seconds: f64,
    },
    /// A round of the experiment `device` begins.
    Round {
        /// Which one, from 1.
        round: usize,
        /// Of how many.
        count: usize,
        /// How long it takes.
        budget: Duration,
    },
}
