//! Fuzzes the decoder of the same name: see `decoders::index_block`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::decoders::index_block(bytes));
