//! The format as its readers meet it: every structure there and back, damaged, and made up.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::cast_possible_truncation, reason = "what tests count is small")]

mod corpus;
mod decoders;
mod encrypted;
mod limits;
mod parity;
mod samples;
mod structures;
