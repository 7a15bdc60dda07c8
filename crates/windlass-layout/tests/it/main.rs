//! The protocol of the write hook, as its users see it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod changed;
mod pauses;
mod times;
