//! The locks of the buffer pool. Here they are those of the standard library. `tests/schedules` has
//! a module of the same name with shuttle's, and compiles the pool with it.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(test)]
pub(crate) use std::thread;

/// Runs a test once. With shuttle, it runs under many schedules.
#[cfg(test)]
pub(crate) fn each_schedule(test: impl Fn()) {
    test();
}
