//! Images as their users see them: sets read page by page, compared, extracted, damaged.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test ends where something is wrong, and its numbers are small"
)]

mod cache;
mod chains;
mod compare;
mod damage;
mod directory;
mod edited;
mod extract;
mod layers;
mod long_chain;
mod on_demand;
mod overlay;
mod reads;
mod sources;
mod spans;
mod support;
