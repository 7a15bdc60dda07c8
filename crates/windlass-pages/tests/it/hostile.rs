//! Streams that no encoder made: the decoder returns, and takes no more memory than it may.

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

use windlass_pages::{Column, Decoder, Encoded, Encoder, Layout, Streams};

use crate::decoders;
use crate::support::{Draw, damage, page_size, slices};

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts what each thread holds.
struct Counting;

fn count(change: isize) {
    let counted = HELD.try_with(|held| {
        held.set(held.get() + change);
        PEAK.try_with(|peak| peak.set(peak.get().max(held.get())))
    });
    std::hint::black_box(counted.is_ok());
}

// SAFETY: every call goes to the system's allocator as it came.
#[expect(unsafe_code, reason = "an allocator is unsafe")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        count(memory.size() as isize);
        // SAFETY: the caller promises what the system's allocator wants.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        count(-(memory.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What decoding may take, as the decoder promises.
fn bound(raw_bytes: usize) -> isize {
    (64 * raw_bytes + (1 << 20)) as isize
}

fn decode_bounded(layout: &Layout, streams: &[&[u8]], raw: &mut [u8]) {
    let before = HELD.get();
    PEAK.set(before);
    std::hint::black_box(Decoder::new().decode(layout, streams, raw).is_ok());
    let taken = PEAK.get() - before;
    assert!(taken <= bound(raw.len()), "{taken} bytes for {}", raw.len());
}

fn heap(columns: Vec<Column>) -> Layout {
    Layout::PostgresHeap {
        page_size: page_size(8192),
        columns,
    }
}

fn sqlite(size: u32, reserved_bytes: u8) -> Layout {
    let page_size = page_size(size);
    Layout::Sqlite {
        page_size,
        reserved_bytes,
    }
}

#[test]
fn changed_streams_harm_no_decoder() {
    let frames = crate::real::frames().iter().step_by(3);
    let frames = frames.chain(crate::leaves::frames().iter().step_by(7));
    let mut draw = Draw::new(7);
    let mut streams = Streams::new();
    for (layout, raw) in frames {
        if Encoder::new().encode(layout, raw, &mut streams) == Encoded::NotWorth {
            continue;
        }
        let mut back = vec![0; raw.len()];
        for _ in 0..40 {
            let mut changed: Vec<Vec<u8>> = slices(&streams).iter().map(|it| it.to_vec()).collect();
            let which = draw.below(changed.len());
            let stream = &mut changed[which];
            for _ in 0..=draw.below(3) {
                damage(stream, &mut draw);
            }
            if draw.below(8) == 0 {
                stream.truncate(draw.below(stream.len()));
            }
            // Most of the meaning is at the beginning.
            let first = changed[0].len().min(200);
            if draw.below(2) == 0 {
                damage(&mut changed[0][..first], &mut draw);
            }
            let changed: Vec<&[u8]> = changed.iter().map(Vec::as_slice).collect();
            decode_bounded(layout, &changed, &mut back);
        }
    }
}

#[test]
fn random_streams_harm_no_decoder() {
    let mut draw = Draw::new(11);
    let column = |bytes| Column::Fixed {
        bytes,
        align: windlass_pages::Align::One,
    };
    let btree = |columns| Layout::PostgresBtree {
        page_size: page_size(8192),
        columns,
    };
    let layouts = [
        heap(Vec::new()),
        heap(vec![column(1); 1600]),
        heap(vec![column(4); 9]),
        btree(vec![column(4); 2]),
        btree(vec![column(1); 40]),
        sqlite(512, 0),
        sqlite(4096, 9),
        sqlite(8192, 0),
    ];
    for round in 0..6000 {
        // Small bytes are kinds, widths and counts; others are lengths.
        let mask = [0x07, 0x3F, 0xFF][round % 3];
        let mut stream = |length: usize| -> Vec<u8> {
            let length = draw.below(length);
            (0..length).map(|_| draw.next() as u8 & mask).collect()
        };
        let (main, packed, text) = (stream(600), stream(4000), stream(300));
        let streams: [&[u8]; 3] = [&main, &packed, &text];
        let mut raw = vec![0; 8192 * (1 + round % 3)];
        let streams = &streams[..2 + round % 2];
        decode_bounded(&layouts[round % layouts.len()], streams, &mut raw);
    }
}

#[test]
fn too_few_and_too_many_streams_are_refused() {
    let layout = heap(Vec::new());
    let mut raw = vec![0; 8192];
    let empty: &[u8] = &[];
    for count in [0, 1, 65, 1000] {
        let streams = vec![empty; count];
        assert!(Decoder::new().decode(&layout, &streams, &mut raw).is_err());
    }
}

#[test]
fn a_stream_that_is_longer_than_its_pages_is_refused() {
    let (layout, raw) = (heap(Vec::new()), vec![0; 8192]);
    let mut streams = Streams::new();
    assert_eq!(
        Encoder::new().encode(&layout, &raw, &mut streams),
        Encoded::Streams
    );
    for longer in 0..2 {
        let mut copies: Vec<Vec<u8>> = slices(&streams).iter().map(|it| it.to_vec()).collect();
        copies[longer].push(0);
        let copies: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
        let decoded = Decoder::new().decode(&layout, &copies, &mut vec![0; 8192]);
        assert_eq!(decoded, Err(windlass_pages::PagesError::Surplus));
    }
}

/// What the fuzz targets get: a layout with its length, then the rest.
fn input(layout: &Layout, rest: &[u8]) -> Vec<u8> {
    let layout = layout.to_bytes();
    let length = (layout.len() as u16).to_le_bytes();
    [&length, layout.as_slice(), rest].concat()
}

#[test]
fn the_fuzz_targets_harm_nothing() {
    let mut draw = Draw::new(5);
    let mut streams = Streams::new();
    let frames = crate::real::frames().iter().step_by(9);
    for (layout, raw) in frames.chain(crate::leaves::frames().iter().step_by(9)) {
        let mut bytes = input(layout, raw);
        decoders::pages(&bytes);
        damage(&mut bytes, &mut draw);
        decoders::pages(&bytes);
        if Encoder::new().encode(layout, raw, &mut streams) == Encoded::NotWorth {
            continue;
        }
        let mut rest = vec![(raw.len() / layout.page_size().bytes()) as u8];
        for stream in slices(&streams) {
            rest.extend(&(stream.len() as u32).to_le_bytes()[..3]);
            rest.extend(stream);
        }
        let mut bytes = input(layout, &rest);
        decoders::page_streams(&bytes);
        damage(&mut bytes, &mut draw);
        decoders::page_streams(&bytes);
    }
}
