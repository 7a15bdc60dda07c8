//! The hook's protocol under many schedules: its own source, compiled against shuttle, which
//! decides at each access to the shared memory which process runs next.
//!
//!   writers --enter, preserve, write, leave--> source, store <--find, read, find again-- reader
//!                        ^-- pause, publish, drain, merge, unlink, free -- controller
//!
//! A page is one number here. Each test compares what readers see of a snapshot with what the
//! source held at the moment of its creation.
//!
//! `PROPTEST_CASES` says how many schedules, as it does for the properties.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

mod ahead;
mod chain;
mod changed;
mod death;
mod hook;
mod names;
mod world;
mod writers;

mod crc {
    pub(crate) use windlass_layout::crc32c;
}

mod map {
    pub(crate) use windlass_layout::{MapCell, Slot};
}

mod store {
    pub(crate) use windlass_layout::SlotEntry;
}

/// Replaces the module of this name with the types of shuttle, and with small tables.
mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, Ordering};

    pub(crate) const PROCESSES: u32 = 4;
    pub(crate) const READERS: usize = 2;
    pub(crate) const LOCKS: usize = 2;
    // Each word costs the model time, in every schedule.
    pub(crate) const HEADER_WORDS: usize = 64;
    pub(crate) const SNAPSHOTS: u32 = 4;
    pub(crate) const AREA_ALIGNED: usize = 16;
}

const SCHEDULES: usize = 1000;
const SEED: u64 = 11;
/// Most faults need only a few changes of process, but at the wrong moments.
const CHANGES: usize = 4;

/// Runs a model under random schedules, and under schedules that hold one process back for long.
fn each_schedule(model: impl Fn() + Send + Sync + 'static) {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let schedules = cases.and_then(|text| text.parse().ok());
    let schedules = schedules.unwrap_or(SCHEDULES);
    let model = std::sync::Arc::new(model);
    let again = std::sync::Arc::clone(&model);
    let mut config = Config::new();
    config.max_steps = shuttle::MaxSteps::FailAfter(2_000_000);
    let random = RandomScheduler::new_from_seed(SEED, schedules);
    Runner::new(random, config.clone()).run(move || model());
    let held_back = PctScheduler::new_from_seed(SEED, CHANGES, schedules);
    Runner::new(held_back, config).run(move || again());
}
