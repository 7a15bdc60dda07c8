//! Fuzzes the decoder of the same name: see `decoders::laid_frame`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::decoders::laid_frame(bytes));
