//! Keys as users name them, and envelopes there and back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

mod envelopes;
mod words;
