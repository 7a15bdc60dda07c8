//! The write hook in real servers of each version.
//!
//! WINDLASS_TEST_PG_BINDIRS says where the versions are (`14=/dir:17=/dir`). `scripts/test` sets
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod census;
mod loading;
mod support;
