//! Real databases for tests: this crate creates them, loads them, writes to them from other
//! processes, and checks copies of them. It also has devices that fail, are slow, or lose what was
//! not synced, a browser that looks at pages, and a server of buckets with a proxy that spoils it.
//!
//! This crate never ships. A fixture that cannot do its work panics, so that the test fails
//! visibly.

mod below;
pub mod browser;
pub mod bucket;
pub mod chains;
pub mod counted;
pub mod encrypted;
pub mod evil;
pub mod faulty;
mod fresh;
pub mod gate;
pub mod google;
pub mod groups;
pub mod heap;
pub mod installed;
pub mod load;
pub mod long_chain;
pub mod memory;
pub mod plain_names;
pub mod postgres;
pub mod reads;
pub mod recording;
pub mod reforge;
pub mod runs;
mod session;
pub mod sets;
pub mod sick;
pub mod sparse;
pub mod sqlite;
pub mod starting;
pub mod volume;
