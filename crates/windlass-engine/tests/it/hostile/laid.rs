//! Hostile frames whose pages are taken apart, of the largest size that there is: small inputs that
//! state lengths, counts and columns which they do not hold.

use windlass_engine::media::{Codec, FrameEntry, LAYOUT_STREAMS, PageFrame, crc32c};
use windlass_testkit::heap::{HEAP_PAGE, heap_pages};

use super::cases::{Cases, with, zstd};
use crate::forge::{Forge, piece};
use crate::laid_out::store;

/// The largest frame.
pub const FRAME_BYTES: usize = 4 << 20;
/// As many line pointers as a page has room for.
const POINTERS: usize = (HEAP_PAGE - 24) / 4;
/// The length of the header of a row without NULLs, where the column of flags has it.
const HEADER: u64 = 24 << 32;

/// A frame's entry and its stored bytes.
type Frame = (FrameEntry, Vec<u8>);

/// A set of one frame, whose pages are said to be `raw`. The checksum of the stored bytes is right.
fn set(raw: &[u8], (mut entry, stored): Frame) -> Forge {
    entry.crc32c = crc32c(&stored);
    entry.stored_bytes = stored.len() as u32;
    with(|forge| {
        forge.header.page_frames = true;
        forge.header.frame_bytes = FRAME_BYTES as u32;
        forge.files[0].bytes = raw.len() as u64;
        forge.frames = vec![(entry, vec![piece(0, 0, raw)], stored)];
    })
}

/// Stored bytes of which somebody says that they are 4 MiB of zeros.
fn zeros(codec: Codec, laid_bytes: usize, stored: Vec<u8>) -> Forge {
    let raw = vec![0; FRAME_BYTES];
    let entry = FrameEntry {
        offset: 0,
        stored_bytes: 0,
        raw_bytes: FRAME_BYTES as u32,
        crc32c: 0,
        codec,
        piece_count: 0,
        page: Some(PageFrame {
            raw_crc32c: crc32c(&raw),
            laid_bytes: laid_bytes as u32,
            layout: LAYOUT_STREAMS,
            kind: 0,
        }),
    };
    set(&raw, (entry, stored))
}

/// The same with a part table of one part.
fn one_part(codec: Codec, laid_bytes: usize, part: &[u8]) -> Forge {
    let mut stored = vec![1];
    stored.extend((part.len() as u32).to_le_bytes());
    stored.extend((laid_bytes as u32).to_le_bytes());
    stored.extend(part);
    zeros(codec, laid_bytes, stored)
}

/// Laid out bytes of these streams.
fn laid(description: &[u8], streams: &[&[u8]]) -> Forge {
    let mut laid = number(streams.len() as u64);
    for stream in streams {
        laid.extend(number((stream.len() as u64) << 1));
    }
    laid.extend(number(description.len() as u64));
    laid.extend(description);
    streams.iter().for_each(|stream| laid.extend(*stream));
    one_part(Codec::None, laid.len(), &laid)
}

fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push((value & 0x7f | 0x80) as u8);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A table with so many columns of int8.
fn table(columns: usize) -> Vec<u8> {
    let mut description = vec![1, 13];
    description.extend(number(columns as u64));
    (0..columns).for_each(|_| description.extend([11, 8]));
    description
}

/// The beginning of the main stream of pages that have nothing but line pointers, and a row for
/// each.
fn full_of_pointers() -> Vec<u8> {
    let pages = FRAME_BYTES / HEAP_PAGE;
    let mut header = [0; 24];
    for at in [12, 14, 16] {
        header[at..at + 2].copy_from_slice(&(HEAP_PAGE as u16).to_le_bytes());
    }
    // All pages are taken apart.
    let mut main = vec![0, 4];
    for byte in header {
        main.push(byte);
        main.resize(main.len() + pages - 1, 0);
    }
    main.push(0);
    main.extend(number(2 * POINTERS as u64));
    // Line pointers in order, the unit, and no gaps.
    main.extend([0, 0, 1, 0, 0]);
    main
}

/// A row for each line pointer of 4 MiB, each with so many columns: a few kilobytes say that.
fn rows_in_every_pointer(columns: usize) -> Forge {
    let mut main = full_of_pointers();
    // All rows are cut, and have one header.
    main.extend([0, 0, 0]);
    main.extend(number(2 * (HEADER | columns as u64)));
    // The other columns of headers, no rows that are kept, and the values.
    (0..5).for_each(|_| main.extend([0, 0]));
    main.push(0);
    (0..columns).for_each(|_| main.extend([0, 0]));
    laid(&table(columns), &[&main, &[]])
}

/// A page that is to have more rows than there are numbers.
fn rows_without_end() -> Forge {
    let mut main = full_of_pointers();
    main.truncate(2 + 24 * (FRAME_BYTES / HEAP_PAGE) + 1);
    main.extend([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    laid(&table(4), &[&main, &[]])
}

/// 4 MiB of pages as a backup stores them, with one thing that is wrong.
fn changed(change: impl FnOnce(&mut Vec<u8>, &mut Frame)) -> Forge {
    let mut raw = heap_pages(FRAME_BYTES / HEAP_PAGE, 1);
    let mut frame = store(&raw, Codec::None);
    change(&mut raw, &mut frame);
    set(&raw, frame)
}

fn page(entry: &mut FrameEntry) -> &mut PageFrame {
    entry.page.as_mut().unwrap()
}

pub fn laid_frames() -> Cases {
    let mut cases = changed_frames();
    cases.extend(claims());
    cases
}

fn changed_frames() -> Cases {
    vec![
        (
            "laid-stored-byte",
            changed(|_, (_, stored)| {
                let middle = stored.len() / 2;
                stored[middle] ^= 0x55;
            }),
        ),
        (
            "laid-checksum-of-pages",
            changed(|_, (entry, _)| page(entry).raw_crc32c ^= 1),
        ),
        (
            "laid-longer-than-pages",
            changed(|_, (entry, _)| page(entry).laid_bytes = FRAME_BYTES as u32 + 1),
        ),
        (
            "laid-pages-more-than-stated",
            changed(|raw, (entry, _)| {
                raw.truncate(FRAME_BYTES - HEAP_PAGE);
                entry.raw_bytes = raw.len() as u32;
                page(entry).raw_crc32c = crc32c(raw);
            }),
        ),
    ]
}

/// Frames that no backup has ever stored.
fn claims() -> Cases {
    let mut parts = vec![255];
    parts.extend([0xff; 255 * 8]);
    let (bomb, sevens) = (zstd(64 << 20), zstd(FRAME_BYTES));
    let empty: &[u8] = &[];
    let streams = vec![empty; 1024];
    vec![
        (
            "laid-parts-of-4-gib",
            zeros(Codec::None, FRAME_BYTES, parts),
        ),
        ("laid-no-parts", zeros(Codec::None, FRAME_BYTES, vec![0])),
        ("laid-no-bytes", zeros(Codec::None, 0, Vec::new())),
        (
            "laid-part-of-more-than-it-says",
            one_part(Codec::Zstd(3), FRAME_BYTES, &bomb),
        ),
        (
            "laid-4-mib-of-one-byte",
            one_part(Codec::Zstd(3), FRAME_BYTES, &sevens),
        ),
        ("laid-1024-streams", laid(&table(4), &streams)),
        ("laid-no-streams", laid(&table(4), &[])),
        ("laid-no-description", laid(empty, &[empty, empty])),
        ("laid-1601-columns", laid(&table(1601), &[empty, empty])),
        ("laid-rows-in-every-pointer", rows_in_every_pointer(4)),
        ("laid-rows-of-1600-columns", rows_in_every_pointer(1600)),
        ("laid-rows-without-end", rows_without_end()),
    ]
}
