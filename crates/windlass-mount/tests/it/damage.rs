//! Rot in a set that is mounted: an error for what is damaged, and for nothing else.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use windlass_engine::media::{Codec, FrameEntry, LAYOUT_STREAMS};
use windlass_mount::{DamageHook, Mount, MountOptions};
use windlass_testkit::heap::{HeapHook, heap_pages};

use crate::support::*;

const PAGE: usize = 8192;
/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(120);

/// A set of one file in two parts with one damaged frame. Also returns the damaged range of the
/// file.
fn damaged() -> (Place, std::ops::Range<usize>) {
    let tree = vec![Planted::file("table", text(3_000_000, 5))];
    let spec = Setup {
        codec: Codec::Zstd(1),
        ..two_stripes()
    };
    let place = Place::new(tree, &spec);
    let damaged = damage(&place, |_| true);
    (place, damaged)
}

/// Damages one frame of those that are meant. Returns what the file has there.
fn damage(place: &Place, is_meant: impl Fn(&FrameEntry) -> bool) -> std::ops::Range<usize> {
    let set = open_set(&place.set());
    let blocks = index_blocks(&set);
    let meant = |frame: &&FrameEntry| is_meant(frame);
    let (stripe, block) = blocks
        .iter()
        .max_by_key(|(_, block)| block.frames.iter().filter(meant).count())
        .unwrap();
    let count = block.frames.iter().filter(meant).count();
    let mut frames = block.iter().filter(|(frame, _)| is_meant(frame));
    let (frame, pieces) = frames.nth(count / 2).unwrap();
    let middle = frame.offset + u64::from(frame.stored_bytes) / 2;
    flip(&stripe_path(&place.set(), *stripe), middle);
    let start = pieces[0].offset as usize;
    let bytes: usize = pieces.iter().map(|piece| piece.bytes as usize).sum();
    start..start + bytes
}

/// A set of a table whose pages were taken apart, and of another file.
fn taken_apart(codec: Codec, hook: HeapHook, frame_proof: bool) -> Place {
    let mut spec = Setup {
        codec,
        page_frames: true,
        frame_proof,
        ..two_stripes()
    };
    // On every machine: what more of them take before the first samples are there stays as it is.
    spec.request.compressors = Some(2);
    let tree = vec![
        Planted::file("table", heap_pages(400, 1)),
        Planted::file("other", text(300_000, 5)),
    ];
    Place::hooked(tree, &spec, hook)
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

/// Pages of a table depend on each other within their frame, and on no other frame.
#[test]
fn exactly_the_pages_of_a_damaged_frame_are_errors_if_they_were_taken_apart() {
    let is_apart = |frame: &FrameEntry| {
        let page = frame.page;
        page.is_some_and(|page| page.layout == LAYOUT_STREAMS)
    };
    for codec in [Codec::Lz4, Codec::Zstd(1)] {
        for (flags, direct_io) in WAYS {
            let place = taken_apart(codec, HeapHook::new(&[0]), true);
            let damaged = damage(&place, is_apart);
            let _mount = place.mount_as(direct_io);
            let content = &place.tree[0].content;
            let failed = failing_pages(&place.path("table"), content, flags);
            let expected = expected_pages(content.len(), &damaged);
            assert_eq!(failed, expected, "{codec} {flags:#x} {direct_io}");
            let other = failing_pages(&place.path("other"), &place.tree[1].content, flags);
            assert_eq!(other, [0; 0], "{codec} {flags:#x} {direct_io}");
        }
    }
}

/// A mistake of the encoder that no proof has caught: every stored byte is right, and only the
/// checksum of the pages themselves tells.
#[test]
fn pages_that_were_taken_apart_wrongly_are_errors_in_a_mount_and_are_told() {
    for (flags, direct_io) in WAYS {
        let place = taken_apart(Codec::Zstd(1), HeapHook::wrong(&[0]), false);
        let told = Arc::<Mutex<Vec<String>>>::default();
        let telling = Arc::clone(&told);
        let options = MountOptions {
            direct_io,
            on_damage: Some(DamageHook::new(move |error| {
                telling.lock().unwrap().push(error.to_string());
            })),
            ..MountOptions::default()
        };
        let mount = Mount::image(place.image(), &place.at(), &options).unwrap();
        let failed = failing_pages(&place.path("table"), &place.tree[0].content, flags);
        assert!(!failed.is_empty(), "{flags:#x} {direct_io}");
        let other = failing_pages(&place.path("other"), &place.tree[1].content, flags);
        assert_eq!(other, [0; 0], "{flags:#x} {direct_io}");
        // A thread that reads ahead may be the one that tells it.
        let begin = Instant::now();
        while told.lock().unwrap().is_empty() {
            assert!(begin.elapsed() < LIMIT, "nobody is told");
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = told.lock().unwrap().clone();
        assert!(told.iter().all(|one| one.contains("table")), "{told:?}");
        assert!(mount.statistics().damaged > 0);
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
