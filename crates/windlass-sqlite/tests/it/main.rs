//! Backups of real SQLite databases while other processes write to them, judged by their content.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

mod at_rest;
mod capture;
mod capture_boot;
mod capture_index;
mod capture_rest;
mod cut_off;
mod hot_journal;
mod live;
mod lock_limit;
mod locks;
mod pages;
mod paths;
mod pinned;
mod publish;
mod support;
mod wal_reader;
