//! Fuzzes the decoder of pages: see `pages::page_streams`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::pages::page_streams(bytes));
