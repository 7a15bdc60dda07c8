//! What the page codec gains over relation files, beside zstd:1 on their raw pages: ratio, and the
//! speed of both directions, one thread, CPU time. It checks each round trip.
//!
//!   cargo run --release -p windlass-pages --example relations -- DATA [FRAMES] < LIST
//!
//! LIST has one relation a line, as `scripts/bench pages` makes it from the catalogs: NAME|heap or
//! btree|page size|attlen attalign atttypid,...|path below DATA. A database of SQLite has `sqlite`
//! and its reserved bytes instead. At most FRAMES frames of each are
//! read, from all over its first file.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::fs;
use std::io::BufRead;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use windlass_pages::{Column, Decoder, Encoded, Encoder, Hint, Layout, PageSize, Streams};

const FRAME_BYTES: usize = 131_072;
const LEVEL: i32 = 1;
/// How much of a dense stream is tried before all of it is compressed, and what must be gained.
const TRIED_BYTES: usize = 4096;
const WORTH_PERCENT: usize = 95;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let data = arguments.next().expect("the data directory");
    let frames = arguments
        .next()
        .map_or(2000, |frames| frames.parse().unwrap());
    println!(
        "{:<34} {:>7} {:>7} {:>7} {:>8} {:>8} {:>9}",
        "relation", "MB", "zstd:1", "pages", "encode", "decode", "transform"
    );
    let mut all = Totals::default();
    let mut bench = Bench::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let fields: Vec<&str> = line.split('|').collect();
        let layout = layout(fields[1], fields[2], fields[3]);
        let Ok(bytes) = fs::read(Path::new(&data).join(fields[4])) else {
            continue;
        };
        let chunks: Vec<&[u8]> = bytes.chunks(FRAME_BYTES).collect();
        let step = chunks.len().div_ceil(frames).max(1);
        let mut totals = Totals::default();
        for frame in chunks.into_iter().step_by(step) {
            bench.frame(&layout, frame, &mut totals);
        }
        totals.print(fields[0]);
        all.add(&totals);
    }
    all.print("all");
}

fn layout(kind: &str, page_size: &str, columns: &str) -> Layout {
    let page_size = PageSize::new(page_size.parse().unwrap()).unwrap();
    if kind == "sqlite" {
        let reserved_bytes = columns.parse().unwrap();
        return Layout::Sqlite {
            page_size,
            reserved_bytes,
        };
    }
    let columns = columns.split(',').filter(|column| !column.is_empty());
    let column = |text: &str| {
        let fields: Vec<&str> = text.split(' ').collect();
        let (length, kind) = (fields[0].parse().unwrap(), fields[2].parse().unwrap());
        Column::postgres(length, fields[1].as_bytes()[0], kind)
    };
    let columns = columns.map(column).collect::<Option<_>>();
    let columns = columns.unwrap_or_default();
    match kind {
        "heap" => Layout::PostgresHeap { page_size, columns },
        _ => Layout::PostgresBtree { page_size, columns },
    }
}

/// Bytes, and seconds of the processor.
#[derive(Default)]
struct Totals {
    raw: usize,
    zstd: usize,
    pages: usize,
    zstd_encode: f64,
    zstd_decode: f64,
    encode: f64,
    decode: f64,
    transform: f64,
    back: f64,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.raw += other.raw;
        self.zstd += other.zstd;
        self.pages += other.pages;
        self.zstd_encode += other.zstd_encode;
        self.zstd_decode += other.zstd_decode;
        self.encode += other.encode;
        self.decode += other.decode;
        self.transform += other.transform;
        self.back += other.back;
    }

    #[expect(clippy::cast_precision_loss, reason = "what is printed is rounded")]
    fn print(&self, name: &str) {
        let raw = self.raw as f64;
        println!(
            "{name:<34} {:>7.1} {:>7.2} {:>7.2} {:>8.2} {:>8.2} {:>4.2}/{:.2} ns",
            raw / 1e6,
            raw / self.zstd as f64,
            raw / self.pages as f64,
            self.zstd_encode / self.encode,
            self.zstd_decode / self.decode,
            self.transform / raw * 1e9,
            self.back / raw * 1e9,
        );
    }
}

/// Runs something, and adds the CPU time that it took.
fn timed<T>(seconds: &mut f64, run: impl FnOnce() -> T) -> T {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        #[expect(clippy::cast_precision_loss, reason = "a run takes seconds")]
        let seconds = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
        seconds
    };
    let start = now();
    let result = run();
    *seconds += now() - start;
    result
}

struct Zstd {
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl Zstd {
    /// Compresses to the end of `into`, or appends the bytes as they are if that is shorter.
    fn put(&mut self, bytes: &[u8], into: &mut Vec<u8>) -> Stored {
        let start = into.len();
        into.resize(start + zstd::zstd_safe::compress_bound(bytes.len()), 0);
        let stored = self
            .compressor
            .compress_to_buffer(bytes, &mut into[start..])
            .unwrap();
        let compressed = stored < bytes.len();
        into.truncate(start + if compressed { stored } else { 0 });
        if !compressed {
            into.extend_from_slice(bytes);
        }
        Stored {
            start,
            end: into.len(),
            bytes: bytes.len(),
            compressed,
        }
    }

    fn is_worth(&mut self, bytes: &[u8], into: &mut Vec<u8>) -> bool {
        let tried = &bytes[bytes.len() / 3..][..TRIED_BYTES.min(bytes.len() / 3)];
        let start = into.len();
        let stored = self.put(tried, into);
        into.truncate(start);
        tried.len() >= TRIED_BYTES
            && (stored.end - stored.start) * 100 < tried.len() * WORTH_PERCENT
    }
}

/// One stream as it would be on a device.
struct Stored {
    start: usize,
    end: usize,
    bytes: usize,
    compressed: bool,
}

struct Bench {
    encoder: Encoder,
    decoder: Decoder,
    streams: Streams,
    zstd: Zstd,
    stored: Vec<u8>,
    places: Vec<Stored>,
    between: Vec<Vec<u8>>,
    back: Vec<u8>,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            streams: Streams::new(),
            zstd: Zstd {
                compressor: zstd::bulk::Compressor::new(LEVEL).unwrap(),
                decompressor: zstd::bulk::Decompressor::new().unwrap(),
            },
            stored: Vec::new(),
            places: Vec::new(),
            between: Vec::new(),
            back: Vec::new(),
        }
    }
}

impl Bench {
    fn frame(&mut self, layout: &Layout, raw: &[u8], totals: &mut Totals) {
        self.back.resize(raw.len(), 0);
        totals.raw += raw.len();
        self.stored.clear();
        let mut spent_on_raw = 0.0;
        let plain = timed(&mut spent_on_raw, || self.zstd.put(raw, &mut self.stored));
        totals.zstd += plain.end;
        totals.zstd_encode += spent_on_raw;
        timed(&mut totals.zstd_decode, || {
            if plain.compressed {
                let into = &mut self.back[..];
                self.zstd
                    .decompressor
                    .decompress_to_buffer(&self.stored, into)
                    .unwrap();
            }
        });
        let mut spent = 0.0;
        let encoded = timed(&mut spent, || {
            self.encoder.encode(layout, raw, &mut self.streams)
        });
        totals.transform += spent;
        totals.encode += spent;
        if encoded == Encoded::NotWorth {
            totals.pages += plain.end;
            totals.encode += spent_on_raw;
            return;
        }
        timed(&mut totals.encode, || {
            self.stored.clear();
            self.places.clear();
            for (stream, hint) in self.streams.iter() {
                let worth =
                    hint == Hint::Compressible || self.zstd.is_worth(stream, &mut self.stored);
                let place = if worth {
                    self.zstd.put(stream, &mut self.stored)
                } else {
                    let start = self.stored.len();
                    self.stored.extend_from_slice(stream);
                    Stored {
                        start,
                        end: self.stored.len(),
                        bytes: stream.len(),
                        compressed: false,
                    }
                };
                self.places.push(place);
            }
        });
        totals.pages += self.stored.len() + layout.to_bytes().len();
        self.decode(layout, raw, totals);
    }

    fn decode(&mut self, layout: &Layout, raw: &[u8], totals: &mut Totals) {
        self.back.fill(0xA5);
        let Self {
            zstd,
            stored,
            places,
            between,
            back,
            decoder,
            ..
        } = self;
        between.resize_with(places.len().max(between.len()), Vec::new);
        timed(&mut totals.decode, || {
            for (place, into) in places.iter().zip(between.iter_mut()) {
                let bytes = &stored[place.start..place.end];
                if place.compressed {
                    into.resize(place.bytes, 0);
                    zstd.decompressor.decompress_to_buffer(bytes, into).unwrap();
                }
            }
        });
        let slices: Vec<&[u8]> = places
            .iter()
            .zip(between.iter())
            .map(|(place, decoded)| match place.compressed {
                true => decoded.as_slice(),
                false => &stored[place.start..place.end],
            })
            .collect();
        let mut spent = 0.0;
        timed(&mut spent, || {
            decoder.decode(layout, &slices, back).unwrap()
        });
        totals.decode += spent;
        totals.back += spent;
        assert!(back == raw, "other bytes come back");
    }
}
