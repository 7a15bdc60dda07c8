//! What the fuzz targets call: the very functions with which the test command replays the corpus.
//!
//!   cargo +nightly fuzz run TARGET fuzz/corpus/TARGET testdata/corpus/TARGET
//!
//! The first directory is the fuzzer's own and not kept; what is worth keeping goes to the second.

#[path = "../../crates/windlass-media/tests/it/decoders.rs"]
pub mod decoders;
#[path = "../../crates/windlass-engine/tests/it/set_bytes.rs"]
pub mod set_bytes;
