//! Fuzzes the decoders of files with parity: see `decoders::parity`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::decoders::parity(bytes));
