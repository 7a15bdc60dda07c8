//! Round trips, and what random pages and layouts are made of.

use proptest::prelude::*;
use windlass_pages::{Align, Column, Decoder, Encoded, Encoder, Layout, PageSize, Streams};

/// Encodes and decodes, twice with the same memory: other bytes never come back. Returns how long
/// the
/// streams are; `None` if the frame stays raw.
pub fn round_trip(layout: &Layout, raw: &[u8]) -> Option<usize> {
    let mut codec = Codec::default();
    let first = codec.round_trip(layout, raw);
    assert_eq!(first, codec.round_trip(layout, raw), "the second time");
    first
}

/// An encoder and a decoder that are used again and again.
#[derive(Default)]
pub struct Codec {
    encoder: Encoder,
    decoder: Decoder,
    pub streams: Streams,
}

impl Codec {
    pub fn round_trip(&mut self, layout: &Layout, raw: &[u8]) -> Option<usize> {
        if self.encoder.encode(layout, raw, &mut self.streams) == Encoded::NotWorth {
            return None;
        }
        let slices = slices(&self.streams);
        let mut back = vec![0xA5; raw.len()];
        self.decoder.decode(layout, &slices, &mut back).unwrap();
        if let Some(at) = back.iter().zip(raw).position(|(one, other)| one != other) {
            panic!("byte {at} of the frame is {} and was {}", back[at], raw[at]);
        }
        Some(self.streams.bytes())
    }
}

pub fn slices(streams: &Streams) -> Vec<&[u8]> {
    streams.iter().map(|(stream, _)| stream).collect()
}

pub fn page_size(bytes: u32) -> PageSize {
    PageSize::new(bytes).unwrap()
}

fn align() -> impl Strategy<Value = Align> {
    prop::sample::select(vec![Align::One, Align::Two, Align::Four, Align::Eight])
}

pub fn column() -> impl Strategy<Value = Column> {
    let bytes = prop::sample::select(vec![1, 2, 3, 4, 6, 8, 12, 16, 64]);
    prop_oneof![
        (bytes, align()).prop_map(|(bytes, align)| Column::Fixed { bytes, align }),
        (align(), any::<bool>()).prop_map(|(align, numeric)| Column::Variable { align, numeric }),
    ]
}

/// A layout with any columns.
pub fn layout() -> impl Strategy<Value = Layout> {
    let sizes = prop::sample::select(vec![512, 1024, 8192, 16_384, 32_768, 65_536]);
    let columns = prop::collection::vec(column(), 0..12);
    (sizes, columns, 0u8..3, any::<u8>()).prop_map(|(size, columns, kind, reserved_bytes)| {
        let page_size = page_size(size);
        match kind {
            0 => Layout::PostgresHeap { page_size, columns },
            1 => Layout::PostgresBtree { page_size, columns },
            _ => Layout::Sqlite {
                page_size,
                reserved_bytes,
            },
        }
    })
}

/// Numbers drawn from a seed: the same ones on every machine.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Less than `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }
}

/// Damages bytes in one of several ways: bits, runs of other bytes, an end of zeros, an older end.
pub fn damage(bytes: &mut [u8], draw: &mut Draw) {
    let length = bytes.len();
    if length == 0 {
        return;
    }
    match draw.below(5) {
        0 => bytes[draw.below(length)] ^= 1 << draw.below(8),
        1 => bytes[draw.below(length)] = draw.next() as u8,
        2 => {
            let from = draw.below(length);
            let to = (from + draw.below(64)).min(length);
            bytes[from..to]
                .iter_mut()
                .for_each(|byte| *byte = draw.next() as u8);
        }
        3 => {
            let from = draw.below(length);
            bytes[from..].fill(0);
        }
        _ => {
            let (from, to) = (draw.below(length), draw.below(length));
            let count = draw.below(512).min(length - from.max(to));
            bytes.copy_within(from..from + count, to);
        }
    }
}
