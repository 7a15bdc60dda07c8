//! The engine as its users see it: trees of files in, media sets out, and back.

mod round_trip;
mod support;
