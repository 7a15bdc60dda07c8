//! Real clusters, backed up while they run, then restored, started, and checked with PostgreSQL's
//! own tools.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

mod chains;
mod chains_beside_core;
mod chains_moved;
mod chains_old;
mod checksums;
mod control;
mod damaged;
mod databases;
mod inspect;
mod live;
mod log;
mod lost;
mod messages;
mod open;
mod outgoing;
mod pages;
mod places;
mod recovery;
mod refusals;
mod regression;
mod relations;
mod segments;
mod sick;
mod standby;
mod support;
mod tls;
mod versions;
mod windows;
