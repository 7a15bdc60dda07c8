//! The archived log: what is stored comes back, what is wrong is refused, what is damaged is found.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test are small"
)]

mod ahead;
mod commits;
mod commits_whole;
mod damage;
mod growing;
mod lost_ends;
mod power;
mod spool;
mod store;
mod support;
mod timelines;
