//! Fuzzes opening, checking and verifying a set of one stripe: see `set_bytes::set`.

#![no_main]

use std::sync::OnceLock;

/// Where the stripe is laid; in memory, so that the disk is not what limits the fuzzer.
static PLACE: OnceLock<tempfile::TempDir> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let place = PLACE.get_or_init(|| tempfile::tempdir_in("/dev/shm").expect("a place in memory"));
    windlass_fuzz::set_bytes::set(bytes, place.path());
});
