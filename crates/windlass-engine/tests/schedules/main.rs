//! The buffer pool under many schedules: the pool's own source, compiled against shuttle, which
//! decides at each lock, wait and wake-up which thread runs next.
//!
//!   readers --> [full] --> compressors --> [chunks] --> writers
//!      ^                        ^             |            |
//!      +------------------------+--- pool <---+------------+
//!
//! A deadlock or a lost wake-up ends a run in which no thread can go on: shuttle then fails with
//! the schedule, which `shuttle::replay` repeats.
//!
//! `PROPTEST_CASES` says how many schedules, as it does for the properties.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

mod pipeline;
mod queue;

#[path = "../../src/buffer.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod buffer;

mod error {
    pub(crate) use windlass_engine::EngineError;
}

mod setting {
    pub(crate) use windlass_engine::{Setting, SettingFault};
}

/// Replaces the engine's module of this name with the types of shuttle.
mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread;

    /// For the pool's own tests. Most of them have one thread.
    pub(crate) fn each_schedule(test: impl Fn() + Send + Sync + 'static) {
        shuttle::check_random_with_seed(test, crate::SEED, 100);
    }
}

const SCHEDULES: usize = 1500;
const SEED: u64 = 5;
/// Most deadlocks need only a few changes of thread, but at the wrong moments.
const CHANGES: usize = 3;

/// Runs a model under random schedules, and under schedules that hold one thread back for long.
fn each_schedule(model: impl Fn() + Send + Sync + 'static) {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let schedules = cases.and_then(|text| text.parse().ok());
    let schedules = schedules.unwrap_or(SCHEDULES);
    let model = std::sync::Arc::new(model);
    let again = std::sync::Arc::clone(&model);
    let random = RandomScheduler::new_from_seed(SEED, schedules);
    Runner::new(random, Config::new()).run(move || model());
    let held_back = PctScheduler::new_from_seed(SEED, CHANGES, schedules);
    Runner::new(held_back, Config::new()).run(move || again());
}
