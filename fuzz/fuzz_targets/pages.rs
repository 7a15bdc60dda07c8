//! Fuzzes the round trip of pages: see `pages::pages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_fuzz::pages::pages(bytes));
