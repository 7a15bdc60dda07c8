//! Snapshots by the hook, of real servers under load.
//!
//! WINDLASS_TEST_PG_BINDIRS says where the versions are (`14=/dir:17=/dir`). `scripts/test` sets
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

mod ahead;
mod census;
mod chain;
mod changed;
mod content;
mod durable;
mod failure;
mod killed;
mod life;
mod limits;
mod modules;
mod names;
mod nested;
mod processes;
mod regression;
mod segments;
mod stopped;
mod support;
