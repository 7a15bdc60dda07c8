//! The `windlass` command as its users see it: arguments in, files, words and exit codes out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod accepting;
mod chains;
mod chains_sqlite;
mod checking;
mod clusters;
mod diff;
mod documents;
mod endings;
mod events;
mod extremes;
mod foreseen;
mod foretold;
mod forged;
mod glance;
mod hooks;
mod info;
mod lab;
mod life;
mod logging;
mod manual;
mod many_sets;
mod messages;
mod mounting;
mod open_content;
mod open_images;
mod open_places;
mod open_postgres;
mod open_sqlite;
mod opening;
mod other_sets;
mod outputs;
mod pages;
mod places;
mod refusals;
mod renames;
#[path = "../shared/run.rs"]
mod run;
mod samples;
mod set_names;
mod settings;
mod shown;
mod sinks;
mod snapshot_back;
mod snapshot_clones;
mod snapshot_clusters;
mod snapshot_hook;
mod snapshot_images;
mod snapshots;
mod support;
mod sweep;
mod terminal;
mod trouble;
mod verify_open;
mod watching;
