//! Real databases for tests: created, loaded, written to by processes of their own, and judged.
//! Devices that fail, lag, or lose what was not synced; a browser that looks at pages.
//!
//! Never ships. A fixture that cannot do its work panics: the test fails, loudly.

pub mod browser;
pub mod faulty;
pub mod gate;
pub mod load;
pub mod postgres;
pub mod recording;
pub mod reforge;
pub mod runs;
pub mod sets;
pub mod sparse;
pub mod sqlite;
