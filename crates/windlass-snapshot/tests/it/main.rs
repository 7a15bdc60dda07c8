//! Snapshots of real databases with writers in other processes, on real file systems.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

mod life;
mod revert;
mod sqlite;
mod support;
