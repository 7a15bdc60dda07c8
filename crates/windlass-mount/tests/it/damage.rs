//! Rot in a set that is mounted: an error for what is damaged, and for nothing else.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use windlass_engine::media::Codec;
use windlass_mount::{DamageHook, Mount, MountOptions};

use crate::support::*;

const PAGE: usize = 8192;

/// A set of one file in two parts with one damaged frame. Also returns the damaged range of the
/// file.
fn damaged() -> (Place, std::ops::Range<usize>) {
    let tree = vec![Planted::file("table", text(3_000_000, 5))];
    let spec = Setup {
        codec: Codec::Zstd(1),
        ..two_stripes()
    };
    let place = Place::new(tree, &spec);
    let set = open_set(&place.set());
    let blocks = index_blocks(&set);
    let (stripe, block) = blocks
        .iter()
        .max_by_key(|(_, block)| block.frames.len())
        .unwrap();
    let (frame, pieces) = block.iter().nth(block.frames.len() / 2).unwrap();
    let middle = frame.offset + u64::from(frame.stored_bytes) / 2;
    flip(&stripe_path(&place.set(), *stripe), middle);
    let start = pieces[0].offset as usize;
    let bytes: usize = pieces.iter().map(|piece| piece.bytes as usize).sum();
    (place, start..start + bytes)
}

/// The ways to read: through the page cache; past it because the reader asks for it; past it
/// because the mount does.
const WAYS: [(i32, bool); 3] = [(0, false), (libc::O_DIRECT, false), (0, true)];

fn open(path: &Path, flags: i32) -> File {
    let mut options = File::options();
    options.read(true).custom_flags(flags);
    options.open(path).unwrap()
}

/// Reads every page and returns the pages that fail. The other pages must be right.
fn failing_pages(path: &Path, content: &[u8], flags: i32) -> Vec<usize> {
    let file = open(path, flags);
    let mut failed = Vec::new();
    for offset in (0..content.len()).step_by(PAGE) {
        let mut page = aligned(PAGE);
        match file.read_at(page.bytes(), offset as u64) {
            Ok(count) => {
                assert_eq!(count, PAGE.min(content.len() - offset));
                assert!(
                    page.bytes()[..count] == content[offset..offset + count],
                    "{offset}"
                );
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
                failed.push(offset);
            }
        }
    }
    failed
}

/// Memory for a direct read.
struct Aligned(Vec<u8>, usize, usize);

fn aligned(bytes: usize) -> Aligned {
    let memory = vec![0xa5; bytes + 4096];
    let start = memory.as_ptr().align_offset(4096);
    Aligned(memory, start, bytes)
}

impl Aligned {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + self.2]
    }
}

fn expected_pages(bytes: usize, damaged: &std::ops::Range<usize>) -> Vec<usize> {
    (0..bytes)
        .step_by(PAGE)
        .filter(|page| *page < damaged.end && damaged.start < page + PAGE)
        .collect()
}

#[test]
fn exactly_the_pages_of_a_damaged_frame_are_errors() {
    for (flags, direct_io) in WAYS {
        let (place, damaged) = damaged();
        let _mount = place.mount_as(direct_io);
        let content = &place.tree[0].content;
        let failed = failing_pages(&place.path("table"), content, flags);
        assert_eq!(
            failed,
            expected_pages(content.len(), &damaged),
            "flags {flags:#x} {direct_io}"
        );
        // Reads again, now with whatever the page cache kept.
        let failed = failing_pages(&place.path("table"), content, flags);
        assert_eq!(
            failed,
            expected_pages(content.len(), &damaged),
            "flags {flags:#x} {direct_io}"
        );
    }
}

#[test]
fn a_large_read_gives_what_is_good_before_the_damage_and_then_the_error() {
    for (flags, direct_io) in WAYS {
        let (place, damaged) = damaged();
        let _mount = place.mount_as(direct_io);
        let content = &place.tree[0].content;
        let file = open(&place.path("table"), flags);
        let mut into = aligned(1 << 20);
        let mut offset = 0;
        let mut errors = 0;
        while offset < content.len() {
            match file.read_at(into.bytes(), offset as u64) {
                Ok(count) => {
                    assert!(count > 0);
                    let got = &into.bytes()[..count];
                    assert!(got == &content[offset..offset + count], "at {offset}");
                    offset += count;
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    assert!(
                        damaged.contains(&offset),
                        "at {offset}: {damaged:?} is damaged"
                    );
                    errors += 1;
                    offset = damaged.end.next_multiple_of(4096);
                }
            }
        }
        assert_eq!(errors, 1, "flags {flags:#x} {direct_io}");
    }
}

#[test]
fn what_is_read_ahead_for_a_direct_reader_deceives_no_other() {
    for (flags, direct_io) in WAYS {
        let (place, damaged) = damaged();
        let _mount = place.mount_as(direct_io);
        let content = &place.tree[0].content;
        let direct = open(&place.path("table"), flags);
        // This read goes into the page cache, as reads of mapped pages do. There a short answer
        // would mean the end of the file.
        rustix::fs::fadvise(&direct, 0, None, rustix::fs::Advice::WillNeed).unwrap();
        let failed = failing_pages(&place.path("table"), content, 0);
        let expected = expected_pages(content.len(), &damaged);
        assert_eq!(failed, expected, "flags {flags:#x} {direct_io}");
        assert_eq!(direct.metadata().unwrap().len(), content.len() as u64);
    }
}

#[test]
fn damage_is_told_once_for_each_frame_and_counted() {
    let (place, _) = damaged();
    let told = Arc::<Mutex<Vec<String>>>::default();
    let telling = Arc::clone(&told);
    let options = MountOptions {
        on_damage: Some(DamageHook::new(move |error| {
            telling.lock().unwrap().push(error.to_string());
        })),
        ..MountOptions::default()
    };
    let mount = Mount::image(place.image(), &place.at(), &options).unwrap();
    let content = &place.tree[0].content;
    for _ in 0..3 {
        failing_pages(&place.path("table"), content, 0);
    }
    let told = told.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("table") && told[0].contains("checksum"),
        "{told:?}"
    );
    let statistics = mount.statistics();
    assert_eq!(statistics.damaged, 1);
    assert!(statistics.reads_failed > 0);
}
