//! The engine as its users see it: trees of files in, media sets out, and back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "what tests count is small, and patterns may wrap"
)]

mod adaptive;
mod asked_layers;
mod buffers;
mod cache;
mod cleanup;
mod corpus;
mod damage;
mod damage_soak;
mod emulation;
mod encrypted;
mod events;
mod faults;
mod findings;
mod forge;
mod golden;
mod golden_pages;
mod growth;
mod hostile;
mod laid_encrypted;
mod laid_out;
mod layers;
mod memory;
mod nul;
mod pages;
mod parity;
mod parity_blocks;
mod parity_groups;
mod parity_kinds;
mod parity_repair;
mod place;
mod plain_names;
mod readers;
mod round_trip;
mod set_bytes;
mod sources;
mod spans;
mod spread;
mod storage;
mod stripes;
mod superseded;
mod support;
mod target;
mod verdicts;
