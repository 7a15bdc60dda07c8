//! Random page reads from a set: what the frame size is chosen by.
//!
//!   cargo run --release -p windlass-image --example random_read -- SET [READS [THREADS]]
//!
//! Prints the percentiles of random 8 KiB reads with an empty frame cache (each decodes a frame)
//! and with a full one, what of that is fetching and decoding, and the rate of a sequential read.
//! Pages are drawn from all files by their size, with a fixed seed. The stripes should be in the
//! page cache: drop it before the run to measure the device instead.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_engine::media::{FileEntry, FileNo};
use windlass_engine::{METADATA_LIMIT_DEFAULT, OpenSet};
use windlass_image::{Image, ImageStatistics, SetImage, SetImageOptions};

const PAGE: u64 = 8192;
const SEQUENTIAL_BYTES_MAX: u64 = 1 << 30;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments
        .next()
        .ok_or("usage: random_read SET [READS [THREADS]]")?;
    let reads = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let begin = Instant::now();
    let set = Arc::new(OpenSet::open(
        &[PathBuf::from(place)],
        METADATA_LIMIT_DEFAULT,
    )?);
    println!("open: {:?}", begin.elapsed());
    let stripes = set.stripes();
    let blocks: usize = stripes.iter().map(|stripe| stripe.directory().len()).sum();
    let frames: u64 = set
        .description()
        .stripes
        .iter()
        .map(|stripe| stripe.frames)
        .sum();
    let (bytes, stored) = (set.file_bytes(), set.stripe_bytes());
    println!(
        "set: {} stripes, {blocks} index blocks, {frames} frames of at most {} KiB, {} MB of files in {} MB",
        stripes.len(),
        stripes[0].header().frame_bytes / 1024,
        bytes / 1_000_000,
        stored / 1_000_000,
    );
    let cold = SetImageOptions {
        frame_cache_bytes: 0,
        ..SetImageOptions::default()
    };
    run("cold", &set, &cold, reads, threads, 1)?;
    let warm = SetImageOptions {
        frame_cache_bytes: 4 << 30,
        ..SetImageOptions::default()
    };
    run("warm", &set, &warm, reads, threads, 2)?;
    sequential(&set)
}

/// Reads the same random pages `rounds` times, and reports the last round.
fn run(
    name: &str,
    set: &Arc<OpenSet>,
    options: &SetImageOptions,
    reads: usize,
    threads: u64,
    rounds: usize,
) -> Outcome<()> {
    let image = SetImage::open(Arc::clone(set), options)?;
    // The index is read before the clock starts, because an open server soon has it in memory.
    for entry in &image.files().0 {
        for offset in (0..entry.bytes).step_by(64 << 20) {
            image.read(entry.file, offset, &mut [0])?;
        }
    }
    let (mut times, mut before) = (Vec::new(), image.statistics());
    for _ in 0..rounds {
        before = image.statistics();
        times = round(&image, reads, threads)?;
    }
    times.sort_unstable();
    let at = |percent: usize| {
        times
            .get(times.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{name}: p50 {:?}, p90 {:?}, p99 {:?}, {} reads",
        at(50),
        at(90),
        at(99),
        times.len()
    );
    report(&before, &image.statistics());
    Ok(())
}

fn round(image: &SetImage, reads: usize, threads: u64) -> Outcome<Vec<Duration>> {
    let files: Vec<_> = image
        .files()
        .0
        .iter()
        .filter(|entry| entry.bytes >= PAGE)
        .collect();
    let worker = |seed: u64| -> Outcome<Vec<Duration>> {
        let (mut state, mut page) = (seed, vec![0; 8192]);
        let mut times = Vec::with_capacity(reads);
        for _ in 0..reads {
            let (file, offset) = draw(&files, &mut state).ok_or("the set has no pages")?;
            let begin = Instant::now();
            image.read(file, offset, &mut page)?;
            times.push(begin.elapsed());
        }
        Ok(times)
    };
    std::thread::scope(|scope| {
        let start = |number: u64| scope.spawn(move || worker(0x9e37_79b9 + number));
        let running: Vec<_> = (0..threads).map(start).collect();
        let mut times = Vec::new();
        for thread in running {
            times.extend(thread.join().map_err(|_| "a reader panicked")??);
        }
        Ok(times)
    })
}

/// A random page of the image; every page is equally likely.
fn draw(files: &[&FileEntry], state: &mut u64) -> Option<(FileNo, u64)> {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    let pages: u64 = files.iter().map(|entry| entry.bytes / PAGE).sum();
    let mut page = state.checked_rem(pages)?;
    for entry in files {
        let own = entry.bytes / PAGE;
        if page < own {
            return Some((entry.file, page * PAGE));
        }
        page -= own;
    }
    None
}

fn report(before: &ImageStatistics, after: &ImageStatistics) {
    let frames = after.frames_decoded - before.frames_decoded;
    let each = |nanos: u64| Duration::from_nanos(nanos.checked_div(frames).unwrap_or(0));
    println!(
        "  {frames} frames decoded; each: decode {:?}, fetch {:?}; {} index blocks read in {:?}",
        each(after.decode_nanos - before.decode_nanos),
        each(after.fetch_nanos - before.fetch_nanos),
        after.index_misses - before.index_misses,
        Duration::from_nanos(after.index_nanos - before.index_nanos),
    );
}

fn sequential(set: &Arc<OpenSet>) -> Outcome<()> {
    let image = SetImage::open(Arc::clone(set), &SetImageOptions::default())?;
    let (mut buffer, mut total) = (vec![0; 1 << 20], 0);
    let begin = Instant::now();
    for entry in &image.files().0 {
        let mut offset = 0;
        while offset < entry.bytes && total < SEQUENTIAL_BYTES_MAX {
            let count = image.read(entry.file, offset, &mut buffer)? as u64;
            (offset, total) = (offset + count, total + count);
        }
    }
    let statistics = image.statistics();
    let rate = |nanos: f64| total as f64 * 1e3 / nanos;
    println!(
        "sequential: {:.0} MB/s on one thread; decode alone {:.0} MB/s",
        rate(begin.elapsed().as_nanos() as f64),
        statistics.decoded_bytes as f64 * 1e3 / statistics.decode_nanos as f64,
    );
    Ok(())
}
