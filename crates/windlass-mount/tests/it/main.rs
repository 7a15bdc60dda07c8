//! Mounts as programs see them: through the kernel, by real FUSE.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test ends where something is wrong, and its numbers are small"
)]

mod apart;
mod damage;
mod model;
mod overlay;
mod reads;
mod support;
