//! Fuzzes the decoder of the same name: see `decoders::footer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::decoders::footer(bytes));
