//! The laboratory against what was published, and against real storage.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod charts;
mod rds;
