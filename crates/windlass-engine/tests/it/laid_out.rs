//! Sets whose pages are taken apart before they are compressed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{
    Codec, Encoder, FrameDecoder, FrameEntry, LAYOUT_STREAMS, PageEncoder, PageFrame, Taken, crc32c,
};
use windlass_engine::{Cancel, CodecRange, PagesReport};
use windlass_testkit::heap::{HEAP_PAGE, HeapHook, heap_layout, heap_pages};

use crate::damage::flip_all;
use crate::forge::piece;
use crate::support::*;

const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd(1)];

/// Two compressors, on every machine: what others would take before the first samples of a class
/// are there stays as it is.
fn setup(codec: Codec) -> Setup {
    let mut setup = Setup {
        page_frames: true,
        ..Setup::small(1, codec)
    };
    setup.request.compressors = Some(2);
    setup
}

/// Makes a set of a tree with this hook, checks that all of it comes back, and returns the stripes.
fn made(tree: &Tree, dir: &Path, setup: &Setup, hook: HeapHook) -> (Vec<PathBuf>, PagesReport) {
    let mut run = begin(setup, file_devices(dir, setup), &Cancel::new()).unwrap();
    run.set_hook(Arc::new(hook));
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    let files = table(&run, tree);
    let report = run.finish(files, facts()).unwrap();
    let places = stripe_paths(dir, setup);
    let set = verify(&places).unwrap();
    let into = dir.join("into");
    bring_back(&set, &into).unwrap();
    assert_same(tree, &into);
    (places, report.pages.unwrap_or_default())
}

fn frames(places: &[PathBuf]) -> Vec<FrameEntry> {
    let set = verify(places).unwrap();
    let stripes = set.stripes().iter();
    stripes
        .flat_map(|stripe| {
            let blocks = stripe.directory().iter();
            blocks.flat_map(|entry| stripe.index_block(entry).unwrap().frames)
        })
        .collect()
}

fn laid_out(places: &[PathBuf]) -> usize {
    let is_laid_out = |frame: &&FrameEntry| frame.page.unwrap().layout == LAYOUT_STREAMS;
    frames(places).iter().filter(is_laid_out).count()
}

/// A table, something else, a table with a torn and a short page, and zeros.
fn tree() -> Tree {
    let mut torn = heap_pages(40, 2);
    torn[3 * HEAP_PAGE + 4096..4 * HEAP_PAGE].fill(0x5a);
    torn[9 * HEAP_PAGE..10 * HEAP_PAGE].fill(0);
    torn.truncate(40 * HEAP_PAGE - 100);
    vec![
        ("table".into(), heap_pages(100, 1)),
        ("other".into(), Random::new(5).noise(200_000)),
        ("torn".into(), torn),
        ("zeros".into(), vec![0; 40 * HEAP_PAGE]),
    ]
}

#[test]
fn pages_that_are_taken_apart_come_back_and_take_less() {
    for codec in CODECS {
        let dir = tempfile::tempdir().unwrap();
        let (places, report) = made(
            &tree(),
            dir.path(),
            &setup(codec),
            HeapHook::new(&[0, 2, 3]),
        );
        assert!(laid_out(&places) >= 9, "{codec}: {}", laid_out(&places));
        assert_eq!(report.wrong_frames, 0);
        assert!(report.apart_bytes > 1_000_000, "{report:?}");
        // The same set without layouts.
        let other = tempfile::tempdir().unwrap();
        let (plain, _) = made(&tree(), other.path(), &setup(codec), HeapHook::new(&[]));
        assert_eq!(laid_out(&plain), 0);
        let stored = |places: &[PathBuf]| -> u64 {
            frames(places)
                .iter()
                .map(|frame| u64::from(frame.stored_bytes))
                .sum()
        };
        assert!(stored(&places) < stored(&plain) * 9 / 10, "{codec}");
    }
}

/// The codec follows the waits, and each frame names its own.
#[test]
fn pages_are_taken_apart_with_a_codec_that_adapts() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup {
        range: CodecRange::new(Codec::Zstd(1), Codec::Zstd(3)),
        ..setup(Codec::Zstd(1))
    };
    let (places, report) = made(&tree(), dir.path(), &setup, HeapHook::new(&[0, 2]));
    assert!(laid_out(&places) >= 9);
    assert_eq!(report.wrong_frames, 0);
}

/// If the compressors are the limit, the fastest codec is not slowed down.
#[test]
fn pages_stay_as_they_are_while_the_waits_call_for_a_fast_codec() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup {
        range: CodecRange::new(Codec::Lz4, Codec::Zstd(-1)),
        ..setup(Codec::Lz4)
    };
    assert!(setup.range.is_some());
    let (places, report) = made(&tree(), dir.path(), &setup, HeapHook::new(&[0, 2]));
    assert_eq!(laid_out(&places), 0);
    assert_eq!(report, PagesReport::default());
}

/// A mistake in the encoder costs room, never content.
#[test]
fn a_wrong_encoder_is_caught_before_its_frame_is_written() {
    for codec in CODECS {
        let dir = tempfile::tempdir().unwrap();
        let hook = HeapHook::wrong(&[0, 2]);
        let (places, report) = made(&tree(), dir.path(), &setup(codec), hook);
        assert_eq!((laid_out(&places), report.apart_bytes), (0, 0));
        assert!(report.wrong_frames >= 2, "{report:?}");
    }
}

/// Without the proof, the frame is written, and its checksum tells every reader.
#[test]
fn a_wrong_encoder_without_the_proof_is_found_when_the_set_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup {
        frame_proof: false,
        ..setup(Codec::Zstd(1))
    };
    let (tree, places) = (tree(), stripe_paths(dir.path(), &setup));
    for (hook, is_right) in [(HeapHook::new(&[0]), true), (HeapHook::wrong(&[0]), false)] {
        let mut run = begin(&setup, file_devices(dir.path(), &setup), &Cancel::new()).unwrap();
        run.set_hook(Arc::new(hook));
        for (index, (_, bytes)) in tree.iter().enumerate() {
            run.push(bytes_spec(index, bytes)).unwrap();
        }
        run.drain().unwrap();
        let files = table(&run, &tree);
        let pages = run.finish(files, facts()).unwrap().pages.unwrap();
        assert!(
            pages.apart_bytes > 500_000 && pages.wrong_frames == 0,
            "{pages:?}"
        );
        assert_eq!(verify(&places).is_ok(), is_right);
        places
            .iter()
            .for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

/// Bytes that are no pages at all, with the layout of a table.
#[test]
fn what_is_not_shorter_apart_stays_as_it_is_and_takes_no_more() {
    let words = windlass_testkit::sets::text(60 * HEAP_PAGE, 7);
    for content in [Random::new(6).noise(60 * HEAP_PAGE), words] {
        for codec in CODECS {
            let tree: Tree = vec![("file".into(), content.clone())];
            let bytes = |hook| {
                let dir = tempfile::tempdir().unwrap();
                let (places, _) = made(&tree, dir.path(), &setup(codec), hook);
                frames(&places)
                    .iter()
                    .map(|frame| u64::from(frame.stored_bytes))
                    .sum::<u64>()
            };
            let (with, without) = (bytes(HeapHook::new(&[0])), bytes(HeapHook::new(&[])));
            assert!(with * 100 <= without * 101, "{codec}: {with} and {without}");
        }
    }
}

#[test]
fn a_set_without_page_aware_frames_leaves_pages_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(1, Codec::Zstd(1));
    let (places, report) = made(&tree(), dir.path(), &setup, HeapHook::new(&[0]));
    assert!(frames(&places).iter().all(|frame| frame.page.is_none()));
    assert_eq!(report, PagesReport::default());
}

#[test]
fn every_flipped_byte_of_a_set_with_pages_apart_is_found() {
    for codec in CODECS {
        let dir = tempfile::tempdir().unwrap();
        let tree: Tree = vec![("table".into(), heap_pages(6, 1))];
        let (places, _) = made(&tree, dir.path(), &setup(codec), HeapHook::new(&[0]));
        assert_eq!(laid_out(&places), 2);
        for place in &places {
            flip_all(place, std::slice::from_ref(place));
        }
        verify(&places).unwrap();
    }
}

/// A frame of the table's pages as a backup stores it: its entry, and the stored bytes.
pub fn store(raw: &[u8], codec: Codec) -> (FrameEntry, Vec<u8>) {
    let (layout, mut pages) = (heap_layout(), PageEncoder::default());
    let mut encoder = Encoder::new(codec).unwrap();
    assert_eq!(pages.take_apart(&layout, raw), Taken::Apart);
    let mut stored = vec![0; encoder.bound(raw.len()) + 4096];
    let laid = pages.store(&layout, raw.len(), &mut encoder, &mut stored);
    let laid = laid.unwrap();
    stored.truncate(laid.stored_bytes);
    let entry = FrameEntry {
        offset: 0,
        stored_bytes: stored.len() as u32,
        raw_bytes: raw.len() as u32,
        crc32c: crc32c(&stored),
        codec,
        piece_count: 1,
        page: Some(PageFrame {
            raw_crc32c: crc32c(raw),
            laid_bytes: laid.laid_bytes as u32,
            layout: LAYOUT_STREAMS,
            kind: 0,
        }),
    };
    (entry, stored)
}

/// Stored bytes that changed together with their checksum: a mistake of whoever wrote them, or of
/// the codec. Only the checksum of the pages can tell.
#[test]
fn no_flipped_byte_with_a_corrected_checksum_gives_other_pages() {
    let raw = heap_pages(6, 1);
    let pieces = [piece(0, 0, &raw)];
    let (mut decoder, mut pages) = (FrameDecoder::new().unwrap(), vec![0; raw.len()]);
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd(1)] {
        let (entry, stored) = store(&raw, codec);
        let mut told = 0;
        for at in 0..stored.len() {
            let mut changed = stored.clone();
            changed[at] ^= 1 << (at % 8);
            let entry = FrameEntry {
                crc32c: crc32c(&changed),
                ..entry
            };
            entry.check_stored(&changed).unwrap();
            if decoder.decode(&entry, &changed, &mut pages).is_err() {
                continue;
            }
            match entry.check_pieces(&pieces, &pages) {
                Ok(()) => assert!(pages == raw, "{codec}: byte {at}"),
                Err(_) => told += 1,
            }
        }
        // Without a codec, most of the bytes are numbers that could be others.
        let least = match codec {
            Codec::None => stored.len() / 4,
            _ => 1,
        };
        assert!(told >= least, "{codec}: {told} of {}", stored.len());
    }
}

#[test]
fn every_flipped_bit_of_the_checksum_of_pages_is_found() {
    let raw = heap_pages(6, 1);
    let pieces = [piece(0, 0, &raw)];
    let (entry, stored) = store(&raw, Codec::Zstd(1));
    let (mut decoder, mut pages) = (FrameDecoder::new().unwrap(), vec![0; raw.len()]);
    decoder.decode(&entry, &stored, &mut pages).unwrap();
    entry.check_pieces(&pieces, &pages).unwrap();
    for bit in 0..32 {
        let page = entry.page.map(|page| PageFrame {
            raw_crc32c: page.raw_crc32c ^ 1 << bit,
            ..page
        });
        let wrong = FrameEntry { page, ..entry };
        wrong.check_pieces(&pieces, &pages).unwrap_err();
    }
}
