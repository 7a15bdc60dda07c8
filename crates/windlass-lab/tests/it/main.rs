//! The laboratory is compared with published results and with real storage.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod charts;
mod rds;
