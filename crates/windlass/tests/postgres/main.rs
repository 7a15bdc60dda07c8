//! The `windlass` command on real PostgreSQL clusters.
//!
//! Apart from the other tests of the command, which may run as root: servers do not, so this
//! process becomes their user before its first test, and stays it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

mod diff;
mod extract;
mod outputs;
mod restore;
#[path = "../shared/run.rs"]
mod run;
mod support;
mod sweep;
