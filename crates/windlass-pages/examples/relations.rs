//! What the page codec gains over relation files, beside a codec (zstd:1) on their raw pages:
//! ratio, and the time of both directions, one thread, CPU time, with the very code that a backup
//! runs. It checks each round trip.
//!
//!   cargo run --release -p windlass-pages --example relations -- DATA [FRAMES [lz4]] < LIST
//!
//! LIST has one relation a line, as `scripts/bench pages` makes it from the catalogs: NAME|heap or
//! btree|page size|attlen attalign atttypid,...|path below DATA. A database of SQLite has `sqlite`
//! and its reserved bytes instead. At most FRAMES frames of each are read, from all over its first
//! file. Each is measured several times, and the least time counts: another program can only make
//! it longer.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::fs;
use std::io::BufRead;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use windlass_media::{
    Codec, Encoder, FrameDecoder, FrameEntry, LAYOUT_STREAMS, PageEncoder, PageFrame, PageLayout,
    Taken, is_zero,
};
use windlass_pages::{Column, Layout, PageSize};

const FRAME_BYTES: usize = 131_072;
const PASSES: usize = 5;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let data = arguments.next().expect("the data directory");
    let frames = arguments
        .next()
        .map_or(2000, |frames| frames.parse().unwrap());
    let codec = match arguments.next().as_deref() {
        Some("lz4") => Codec::Lz4,
        _ => Codec::Zstd(1),
    };
    println!(
        "{:<34} {:>7} {:>11} {:>7} {:>7} {:>10} {:>7}",
        "relation", "MB", "as they are", "apart", "time", "with proof", "reading"
    );
    let mut all = Totals::default();
    let mut bench = Bench::new(codec);
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let fields: Vec<&str> = line.split('|').collect();
        let layout = PageLayout::new(layout(fields[1], fields[2], fields[3]));
        let Ok(bytes) = fs::read(Path::new(&data).join(fields[4])) else {
            continue;
        };
        // A backup stores no frame of zeros.
        let chunks = bytes.chunks(FRAME_BYTES);
        let chunks: Vec<&[u8]> = chunks.filter(|raw| !is_zero(raw)).collect();
        let step = chunks.len().div_ceil(frames).max(1);
        let chunks: Vec<&[u8]> = chunks.into_iter().step_by(step).collect();
        let totals = bench.relation(&layout, &chunks);
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
#[derive(Clone, Copy, Default)]
struct Totals {
    raw: usize,
    plain: usize,
    apart: usize,
    plain_time: f64,
    time: f64,
    proven_time: f64,
    plain_reading: f64,
    reading: f64,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.raw += other.raw;
        self.plain += other.plain;
        self.apart += other.apart;
        let mut other = *other;
        let pairs = self.times().into_iter().zip(other.times());
        pairs.for_each(|(time, other)| *time += *other);
    }

    /// Keeps the least time of each.
    fn least(&mut self, other: &Self) {
        let mut other = *other;
        let pairs = self.times().into_iter().zip(other.times());
        pairs.for_each(|(time, other)| *time = time.min(*other));
    }

    fn times(&mut self) -> [&mut f64; 5] {
        [
            &mut self.plain_time,
            &mut self.time,
            &mut self.proven_time,
            &mut self.plain_reading,
            &mut self.reading,
        ]
    }

    #[expect(clippy::cast_precision_loss, reason = "what is printed is rounded")]
    fn print(&self, name: &str) {
        let raw = self.raw as f64;
        println!(
            "{name:<34} {:>7.1} {:>11.2} {:>7.2} {:>7.2} {:>10.2} {:>7.2}",
            raw / 1e6,
            raw / self.plain as f64,
            raw / self.apart as f64,
            self.time / self.plain_time,
            self.proven_time / self.plain_time,
            self.reading / self.plain_reading,
        );
    }
}

/// Runs something, and gives the CPU time that it took.
fn timed<T>(seconds: &mut f64, run: impl FnOnce() -> T) -> T {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        #[expect(clippy::cast_precision_loss, reason = "a run takes seconds")]
        let seconds = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
        seconds
    };
    let start = now();
    let result = run();
    *seconds = now() - start;
    result
}

struct Bench {
    encoder: Encoder,
    decoder: FrameDecoder,
    unproven: PageEncoder,
    proven: PageEncoder,
    stored: Vec<u8>,
    back: Vec<u8>,
}

impl Bench {
    fn new(codec: Codec) -> Self {
        let encoder = Encoder::new(codec).unwrap();
        Self {
            stored: vec![0; encoder.bound(FRAME_BYTES).max(FRAME_BYTES)],
            encoder,
            decoder: FrameDecoder::new().unwrap(),
            unproven: PageEncoder::default().without_proof(),
            proven: PageEncoder::default(),
            back: vec![0; FRAME_BYTES],
        }
    }

    fn relation(&mut self, layout: &PageLayout, frames: &[&[u8]]) -> Totals {
        let measured = frames.iter().map(|raw| self.frame(layout, raw));
        let mut best: Vec<Totals> = measured.collect();
        for _ in 1..PASSES {
            for (best, raw) in best.iter_mut().zip(frames) {
                best.least(&self.frame(layout, raw));
            }
        }
        let mut totals = Totals::default();
        best.iter().for_each(|frame| totals.add(frame));
        totals
    }

    fn frame(&mut self, layout: &PageLayout, raw: &[u8]) -> Totals {
        let mut totals = Totals {
            raw: raw.len(),
            ..Totals::default()
        };
        totals.plain = timed(&mut totals.plain_time, || self.plain(raw));
        let entry = entry(self.encoder.codec(), raw, totals.plain, None);
        self.read(&entry, raw, &mut totals.plain_reading);
        let laid = timed(&mut totals.time, || {
            apart(
                &mut self.unproven,
                &mut self.encoder,
                layout,
                raw,
                &mut self.stored,
            )
        });
        let again = timed(&mut totals.proven_time, || {
            apart(
                &mut self.proven,
                &mut self.encoder,
                layout,
                raw,
                &mut self.stored,
            )
        });
        assert_eq!(laid, again, "the proof changes what is stored");
        let Some((stored, laid)) = laid else {
            // As a backup does: tried in vain, and stored as it is.
            totals.apart = totals.plain;
            totals.time += totals.plain_time;
            totals.proven_time += totals.plain_time;
            totals.reading = totals.plain_reading;
            return totals;
        };
        totals.apart = stored;
        let page = PageFrame {
            raw_crc32c: 0,
            laid_bytes: u32::try_from(laid).unwrap(),
            layout: LAYOUT_STREAMS,
            kind: 0,
        };
        let entry = self::entry(self.encoder.codec(), raw, stored, Some(page));
        self.read(&entry, raw, &mut totals.reading);
        totals
    }

    /// Stores a frame as it is, and returns how many bytes that takes.
    fn plain(&mut self, raw: &[u8]) -> usize {
        let encoded = self.encoder.encode(raw, &mut self.stored);
        encoded.map_or(raw.len(), |(_, stored)| stored)
    }

    fn read(&mut self, entry: &FrameEntry, raw: &[u8], seconds: &mut f64) {
        if entry.stored_bytes == entry.raw_bytes {
            return;
        }
        let stored = &self.stored[..entry.stored_bytes as usize];
        let back = &mut self.back[..raw.len()];
        back.fill(0xA5);
        timed(seconds, || self.decoder.decode(entry, stored, back)).unwrap();
        assert!(back == raw, "other bytes come back");
    }
}

/// Takes the pages of a frame apart and stores them. Returns how many bytes that takes, and how
/// many before the codec; `None` if they are better left as they are.
fn apart(
    pages: &mut PageEncoder,
    encoder: &mut Encoder,
    layout: &PageLayout,
    raw: &[u8],
    stored: &mut [u8],
) -> Option<(usize, usize)> {
    match pages.take_apart(layout, raw) {
        Taken::Apart => {}
        Taken::NotWorth => return None,
        Taken::Wrong => panic!("other bytes come back"),
    }
    let laid = pages.store(layout, raw.len(), encoder, stored)?;
    Some((laid.stored_bytes, laid.laid_bytes))
}

fn entry(codec: Codec, raw: &[u8], stored: usize, page: Option<PageFrame>) -> FrameEntry {
    FrameEntry {
        offset: 0,
        stored_bytes: u32::try_from(stored).unwrap(),
        raw_bytes: u32::try_from(raw.len()).unwrap(),
        crc32c: 0,
        codec,
        piece_count: 1,
        page,
    }
}
