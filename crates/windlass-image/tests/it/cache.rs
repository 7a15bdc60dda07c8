//! The caches keep within their capacities, whatever is read.

use windlass_engine::media::Codec;
use windlass_image::{SetImage, SetImageOptions};

use crate::support::*;

fn set_of_frames(dir: &std::path::Path) -> Tree {
    let tree = vec![
        ("a".to_owned(), text(4_000_000, 1)),
        ("b".to_owned(), text(3_000_000, 2)),
    ];
    let setup = Setup {
        frame_bytes: 16 * 1024,
        codec: Codec::Lz4,
        ..Setup::default()
    };
    back_up(&tree, &[], dir, &setup);
    tree
}

#[test]
fn the_caches_never_exceed_their_capacities() {
    let dir = tempfile::tempdir().unwrap();
    let tree = set_of_frames(dir.path());
    for frame_cache_bytes in [0, 1, 20_000, 100_000, 1_000_003, 64 << 20] {
        for index_cache_bytes in [0, 5_000, 32 << 20] {
            let options = SetImageOptions {
                frame_cache_bytes,
                index_cache_bytes,
            };
            let image = SetImage::open(open_set(dir.path()), &options).unwrap();
            let mut random = Random(frame_cache_bytes + 1);
            for _ in 0..400 {
                let file = random.below(2) as usize;
                assert_range(&image, &tree, file, random.below(3_000_000), 8192);
                let statistics = image.statistics();
                assert!(
                    statistics.frame_cache_bytes <= frame_cache_bytes,
                    "{statistics:?}"
                );
                assert!(
                    statistics.index_cache_bytes <= index_cache_bytes,
                    "{statistics:?}"
                );
            }
        }
    }
}

#[test]
fn many_threads_keep_within_the_capacity_too() {
    let dir = tempfile::tempdir().unwrap();
    let tree = set_of_frames(dir.path());
    let options = SetImageOptions {
        frame_cache_bytes: 300_000,
        index_cache_bytes: 32 << 20,
    };
    let image = SetImage::open(open_set(dir.path()), &options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (image, tree) = (&image, &tree);
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                for _ in 0..300 {
                    assert_range(image, tree, 0, random.below(4_000_000), 40_000);
                    assert!(image.statistics().frame_cache_bytes <= 300_000);
                }
            });
        }
    });
    assert!(image.statistics().frame_cache_bytes > 0);
}

#[test]
fn what_is_in_the_cache_is_not_decoded_again() {
    let dir = tempfile::tempdir().unwrap();
    let tree = set_of_frames(dir.path());
    let image = open(dir.path());
    let read_pages = || {
        for offset in (0..4_000_000).step_by(8192) {
            assert_range(&image, &tree, 0, offset, 8192);
        }
    };
    read_pages();
    let first = image.statistics();
    read_pages();
    let second = image.statistics();
    assert_eq!(first.frames_decoded, second.frames_decoded);
    assert_eq!(first.fetched_bytes, second.fetched_bytes);
    assert_eq!(
        second.frame_hits - first.frame_hits,
        first.frame_misses + first.frame_hits
    );
}
