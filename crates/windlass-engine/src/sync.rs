//! What the buffer pool waits with: the standard library's here, shuttle's in `tests/schedules`,
//! which brings a module of this name and compiles the pool against it.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(test)]
pub(crate) use std::thread;

/// Runs a test once; under shuttle, under many schedules.
#[cfg(test)]
pub(crate) fn each_schedule(test: impl Fn()) {
    test();
}
