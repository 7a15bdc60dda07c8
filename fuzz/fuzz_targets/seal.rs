//! Fuzzes the decoder of the same name: see `decoders::seal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::decoders::seal(bytes));
