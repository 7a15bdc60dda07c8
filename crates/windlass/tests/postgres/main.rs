//! The `windlass` command on real PostgreSQL clusters.
//!
//! These tests are separate from the other tests of the command, because those may run as root.
//! Servers cannot run as root, so this process becomes their user before its first test, for good.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

mod at;
mod backup;
mod buckets;
mod chains_hook;
mod diff;
mod expire;
mod extract;
mod log;
mod log_ahead;
mod log_backup;
mod log_buckets;
mod log_encrypted;
mod log_places;
mod moments;
mod moments_model;
mod only;
mod outputs;
mod pages;
mod pages_alike;
mod receive;
mod receive_kills;
mod receive_standby;
mod receive_sync;
mod repair;
mod restore;
#[path = "../shared/run.rs"]
mod run;
mod support;
mod sweep;
mod timelines;
mod times;
mod went_back;
