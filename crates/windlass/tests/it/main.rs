//! The `windlass` command as its users see it: arguments in, files, words and exit codes out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod diff;
mod events;
mod lab;
mod life;
mod places;
mod refusals;
mod support;
mod trouble;
mod watching;
