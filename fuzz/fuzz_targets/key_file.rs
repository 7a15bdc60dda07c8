//! Fuzzes the decoder of the same name: see `decoders::key_file`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::decoders::key_file(bytes));
