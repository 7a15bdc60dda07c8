//! Fuzzes the decoder of the same name: see `decoders::file_table`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::decoders::file_table(bytes));
