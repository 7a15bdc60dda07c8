//! How frame size trades compression, speed and random reads: one core, on a sample file.
//!
//!   cargo run --release -p windlass-media --example frame_sizes -- FILE [LEVEL]
//!
//! Prints, for each frame size, MB/s in and out and the compressed share, through the same encoder
//! and decoder that backups use.

use std::time::Instant;

use windlass_media::{Codec, Decoder, Encoder};

const ROUNDS: usize = 3;

fn main() {
    let mut words = std::env::args().skip(1);
    let file = words.next().expect("usage: frame_sizes FILE [LEVEL]");
    let level = words
        .next()
        .map_or(1, |level| level.parse().expect("a level is a number"));
    let sample = std::fs::read(file).expect("the sample must be readable");
    println!("frame KiB   codec   compress MB/s   decompress MB/s   stored");
    for shift in 14..=20 {
        for codec in [Codec::Lz4, Codec::Zstd(level)] {
            measure(&sample, 1 << shift, codec);
        }
    }
}

fn measure(sample: &[u8], frame_bytes: usize, codec: Codec) {
    let mut encoder = Encoder::new(codec).expect("a codec of this build");
    let mut decoder = Decoder::new().expect("a decoder");
    let mut output = vec![0; encoder.bound(frame_bytes)];
    let mut raw = vec![0; frame_bytes];
    let (mut best_in, mut best_out, mut stored) = (f64::MAX, f64::MAX, 0);
    for _ in 0..ROUNDS {
        let (mut seconds_in, mut seconds_out) = (0.0, 0.0);
        stored = 0;
        for frame in sample.chunks(frame_bytes) {
            let begin = Instant::now();
            let Some((used, bytes)) = encoder.encode(frame, &mut output) else {
                stored += frame.len();
                continue;
            };
            seconds_in += begin.elapsed().as_secs_f64();
            stored += bytes;
            let begin = Instant::now();
            let raw = &mut raw[..frame.len()];
            decoder
                .decode(used, &output[..bytes], raw)
                .expect("what was encoded decodes");
            seconds_out += begin.elapsed().as_secs_f64();
        }
        best_in = best_in.min(seconds_in);
        best_out = best_out.min(seconds_out);
    }
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    let (total, stored) = (
        sample.len() as f64 / 1e6,
        stored as f64 / sample.len() as f64,
    );
    println!(
        "{:>9}   {:>6}   {:>13.0}   {:>15.0}   {:>6.3}",
        frame_bytes / 1024,
        codec.to_string(),
        total / best_in,
        total / best_out,
        stored
    );
}
