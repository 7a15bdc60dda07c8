//! Any range of any file of any set is what was backed up.

use proptest::prelude::*;
use windlass_engine::media::{Codec, FileKind, FileNo};
use windlass_image::{Image, ImageError};
use windlass_testkit::heap::{HEAP_PAGE, heap_pages};

use crate::support::*;

fn content() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![
        Just(0usize),
        1usize..9000,
        60_000usize..70_000,
        100_000usize..400_000
    ];
    (size, any::<u64>(), 0u8..4).prop_map(|(size, seed, kind)| {
        let mut random = Random(seed | 1);
        let mut bytes: Vec<u8> = match kind {
            0 => vec![0; size],
            1 => (0..size).map(|_| random.next().to_le_bytes()[3]).collect(),
            _ => text(size, seed),
        };
        if kind == 3 && size > 200_000 {
            bytes[5000..180_000].fill(0);
        }
        bytes
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    proptest::collection::vec(content(), 1..12).prop_map(|contents| {
        let name = |index: usize| format!("dir{}/file{index}", index % 3);
        contents
            .into_iter()
            .enumerate()
            .map(|(index, bytes)| (name(index), bytes))
            .collect()
    })
}

fn setup() -> impl Strategy<Value = Setup> {
    let codec = prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd(1))];
    (1usize..6, codec, 1usize..4, 9u32..17, 12u32..17).prop_map(
        |(stripes, codec, transfers, alignment, frame)| Setup {
            stripes,
            codec,
            frame_bytes: 1 << frame,
            alignment: 1 << alignment,
            transfer_bytes: transfers * 64 * 1024,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_range_of_any_set_is_what_was_backed_up(
        tree in tree(),
        setup in setup(),
        ranges in proptest::collection::vec((any::<u64>(), any::<u64>(), 0usize..300_000), 1..60),
    ) {
        let (_dir, image) = image_of(&tree, &setup);
        for (file, offset, length) in ranges {
            let file = (file % tree.len() as u64) as usize;
            // The offset may lie a little beyond the end of the file.
            let offset = offset % (tree[file].1.len() as u64 + 100);
            assert_range(&image, &tree, file, offset, length);
        }
        for (file, (_, bytes)) in tree.iter().enumerate() {
            assert_range(&image, &tree, file, 0, bytes.len() + 1);
        }
    }
}

#[test]
fn any_range_of_pages_that_were_taken_apart_is_what_was_backed_up() {
    let tree = vec![
        ("table".to_owned(), heap_pages(150, 1)),
        ("other".to_owned(), text(300_000, 5)),
    ];
    for codec in [Codec::Lz4, Codec::Zstd(1)] {
        let (_dir, image) = image_of_pages(&tree, codec);
        let mut random = Random(9);
        for _ in 0..200 {
            let file = (random.next() % 2) as usize;
            let offset = random.next() % tree[file].1.len() as u64;
            let length = (random.next() % 300_000) as usize;
            assert_range(&image, &tree, file, offset, length);
        }
        for page in (0..150).rev() {
            assert_range(&image, &tree, 0, page * HEAP_PAGE as u64, HEAP_PAGE);
        }
    }
}

#[test]
fn one_page_of_a_compressed_set_costs_one_frame() {
    let tree = vec![("table".to_owned(), text(3_000_000, 5))];
    let (_dir, image) = image_of(&tree, &Setup::default());
    assert_range(&image, &tree, 0, 1_000_000 / 8192 * 8192, 8192);
    let statistics = image.statistics();
    assert_eq!(statistics.frames_decoded, 1);
    assert_eq!((statistics.frame_misses, statistics.frame_hits), (1, 0));
    assert_eq!((statistics.reads, statistics.read_bytes), (1, 8192));
    assert_eq!(statistics.decoded_bytes, 64 * 1024);
    let stored = index_blocks(image.set());
    let largest = stored
        .iter()
        .flat_map(|(_, block)| &block.frames)
        .map(|f| f.stored_bytes)
        .max();
    let index: u64 = image
        .set()
        .stripes()
        .iter()
        .filter_map(|stripe| stripe.directory().first())
        .map(|block| u64::from(block.bytes))
        .sum();
    assert!(statistics.fetched_bytes <= index + u64::from(largest.unwrap()));
    // A page of the same frame costs nothing more.
    assert_range(&image, &tree, 0, 1_000_000 / 8192 * 8192 + 4096, 4096);
    assert_eq!(image.statistics().frames_decoded, 1);
    assert_eq!(image.statistics().frame_hits, 1);
    assert_eq!(image.statistics().fetched_bytes, statistics.fetched_bytes);
}

#[test]
fn a_set_with_many_index_blocks_is_read_right_and_reads_few_of_them() {
    // Small frames need many index entries: the writer begins a new block every 5,400 frames or so.
    let tree = vec![
        ("small".to_owned(), text(100, 1)),
        ("huge".to_owned(), text(100_000_000, 2)),
        ("tail".to_owned(), text(3_000_000, 3)),
    ];
    let frame_bytes = 4096;
    let (_dir, image) = image_of(
        &tree,
        &Setup {
            frame_bytes,
            ..Setup::default()
        },
    );
    let blocks: usize = image
        .set()
        .stripes()
        .iter()
        .map(|stripe| stripe.directory().len())
        .sum();
    assert!(
        blocks >= 4,
        "{blocks} index blocks are too few for this test"
    );
    assert_range(&image, &tree, 0, 0, 100);
    assert_range(&image, &tree, 2, 2_999_000, 9000);
    let mut random = Random(99);
    for _ in 0..3000 {
        assert_range(&image, &tree, 1, random.below(100_000_000), 8192);
    }
    // The last block of a stripe may tell of a few frames only: chance need not meet them.
    for (_, block) in index_blocks(image.set()) {
        let first = &block.pieces[0];
        assert_range(&image, &tree, first.file.0 as usize, first.offset, 1);
    }
    let statistics = image.statistics();
    assert_eq!(
        statistics.index_misses, blocks as u64,
        "each index block is read once"
    );
}

#[test]
fn many_threads_reading_at_once_get_the_right_bytes() {
    let tree: Tree = (0..6)
        .map(|index| (format!("d/{index}"), text(900_000, index + 10)))
        .collect();
    let (_dir, image) = image_of(
        &tree,
        &Setup {
            stripes: 3,
            ..Setup::default()
        },
    );
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (image, tree) = (&image, &tree);
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                for _ in 0..200 {
                    let file = random.below(6) as usize;
                    // These reads are shorter than a frame: only such reads share frames through
                    // the cache.
                    let (offset, length) = (random.below(900_000), random.below(60_000));
                    assert_range(image, tree, file, offset, length as usize);
                }
            });
        }
    });
    // All frames fit into the cache, and threads that miss a frame at the same time decode it once.
    let statistics = image.statistics();
    let blocks = index_blocks(image.set());
    let frames = blocks
        .iter()
        .map(|(_, block)| block.frames.len() as u64)
        .sum::<u64>();
    assert!(
        statistics.frames_decoded <= frames,
        "{statistics:?}, {frames} frames"
    );
    assert_eq!(statistics.reads, 16 * 200);
}

#[test]
fn reading_in_sequence_decodes_each_frame_once_and_keeps_none_whole() {
    let tree = vec![("table".to_owned(), text(3_000_000, 5))];
    let (_dir, image) = image_of(&tree, &Setup::default());
    assert_range(&image, &tree, 0, 0, 8192);
    let before = image.statistics();
    assert_range(&image, &tree, 0, 0, 3_000_000);
    let after = image.statistics();
    let frames = 3_000_000u64.div_ceil(64 * 1024);
    assert_eq!(after.frames_decoded, frames);
    assert_eq!(
        after.frame_hits,
        before.frame_hits + 1,
        "the frame in the cache is used"
    );
    // The last frame is short, so it may be a page and is kept.
    let last = after.frame_cache_bytes - before.frame_cache_bytes;
    assert!(last < 64 * 1024, "{last} bytes were kept");
}

#[test]
fn what_is_no_file_cannot_be_read() {
    let tree = vec![("dir/file".to_owned(), text(10, 1))];
    let (_dir, image) = image_of(&tree, &Setup::default());
    let directory = image
        .files()
        .0
        .iter()
        .find(|entry| entry.kind == FileKind::Directory);
    let error = image
        .read(directory.unwrap().file, 0, &mut [0; 10])
        .unwrap_err();
    assert!(matches!(error, ImageError::NotAFile { path } if path == "dir"));
    let error = image.read(FileNo(77), 0, &mut [0; 10]).unwrap_err();
    assert!(matches!(error, ImageError::NoFile { file: FileNo(77) }));
}
