//! What the fuzz targets call: the very functions with which the test command replays the corpus.
//!
//!   cargo +nightly fuzz run TARGET fuzz/corpus/TARGET testdata/corpus/TARGET
//!
//! The first directory is the fuzzer's own and not kept; what is worth keeping goes to the second.
//! `set` runs threads, whose thread-locals are freed after they were joined: run it with
//! `-- -detect_leaks=0`, or a thread that is not quite gone is reported as a leak.

#[path = "../../crates/windlass-media/tests/it/decoders.rs"]
pub mod decoders;
#[path = "../../crates/windlass-engine/tests/it/set_bytes.rs"]
pub mod set_bytes;
#[path = "../../crates/windlass-pages/tests/it/decoders.rs"]
pub mod pages;
