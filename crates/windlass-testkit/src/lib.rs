//! Real databases for tests: created, loaded, written to by processes of their own, and judged.
//!
//! Never ships. A fixture that cannot do its work panics: the test fails, loudly.

pub mod postgres;
pub mod sqlite;
