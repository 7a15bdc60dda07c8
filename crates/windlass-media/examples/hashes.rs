//! What a checksum and a hash cost on one core, beside copying the same bytes.
//!
//!   cargo run --release -p windlass-media --example hashes

use std::hint::black_box;
use std::time::Instant;

use windlass_media::{PageHasher, crc32c};

const BUFFER_BYTES: usize = 1024 * 1024;
const PAGE_BYTES: usize = 4096;
const ROUNDS: usize = 2000;

fn main() {
    let buffer: Vec<u8> = (0..BUFFER_BYTES)
        .map(|index| index.to_le_bytes()[0] ^ 0x5a)
        .collect();
    let mut copy = vec![0; BUFFER_BYTES];
    rate("copy", || copy.copy_from_slice(black_box(&buffer)));
    rate("CRC-32C", || {
        black_box(crc32c(black_box(&buffer)));
    });
    rate("BLAKE3", || {
        black_box(blake3::hash(black_box(&buffer)));
    });
    // Hashes of pages, page by page.
    rate("BLAKE3 of 4 KiB", || {
        for page in buffer.chunks(PAGE_BYTES) {
            black_box(blake3::hash(black_box(page)));
        }
    });
    let hasher = PageHasher::new([7; 32]);
    rate("GMAC of 4 KiB", || {
        for page in buffer.chunks(PAGE_BYTES) {
            black_box(hasher.hash(black_box(page)));
        }
    });
    black_box(copy);
}

fn rate(name: &str, mut work: impl FnMut()) {
    work();
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    let bytes = (BUFFER_BYTES * ROUNDS) as f64;
    println!(
        "{name:>15}  {:.1} GB/s",
        bytes / begin.elapsed().as_secs_f64() / 1e9
    );
}
