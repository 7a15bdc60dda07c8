//! Newer versions of ranges: everywhere the highest layer holds.

use std::sync::Arc;

use proptest::prelude::*;
use windlass_engine::media::{Codec, FileNo};
use windlass_image::{Image, SetImage, SetImageOptions};
use windlass_testkit::reforge::reforge;

use crate::support::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_highest_layer_is_read_wherever_it_begins(
        patches in proptest::collection::vec((0usize..2, 0u64..8, 1usize..150_000, 1u8..4), 1..8),
        zstd in any::<bool>(),
        frame in 14u32..19,
    ) {
        let mut tree: Tree =
            vec![("a".into(), text(500_000, 1)), ("b".into(), text(480_123, 2))];
        // Ranges of one layer must not overlap. So each layer takes its patches in order, and drops
        // those that overlap.
        let mut patches: Vec<Patch> = patches
            .into_iter()
            .enumerate()
            .map(|(seed, (file, slot, bytes, layer))| {
                let offset = slot * 65_536;
                let left = tree[file].1.len() - offset as usize;
                (file, offset, text(bytes.min(left), seed as u64 + 50), layer)
            })
            .collect();
        patches.sort_by_key(|(file, offset, _, layer)| (*layer, *file, *offset));
        patches.dedup_by(|next, kept| {
            next.0 == kept.0 && next.3 == kept.3 && next.1 < kept.1 + kept.2.len() as u64
        });
        let codec = if zstd { Codec::Zstd(1) } else { Codec::None };
        let dir = tempfile::tempdir().unwrap();
        let (frame_bytes, transfer_bytes) = (1 << frame, 512 * 1024);
        let setup = Setup { codec, frame_bytes, transfer_bytes, ..Setup::default() };
        back_up(&tree, &patches, dir.path(), &setup);
        for (file, offset, bytes, _) in &patches {
            let start = *offset as usize;
            tree[*file].1[start..start + bytes.len()].copy_from_slice(bytes);
        }
        let image = open(dir.path());
        for file in 0..2 {
            let length = tree[file].1.len();
            assert_range(&image, &tree, file, 0, length);
            for offset in (0..length as u64).step_by(8192) {
                assert_range(&image, &tree, file, offset, 8192);
            }
        }
    }
}

/// The last patch is in another index block than the patch that it overlaps.
#[test]
fn upper_layers_that_overlap_in_two_index_blocks_are_refused_by_every_reader() {
    let content = text(FRAMES * FRAME, 1);
    let tree: Tree = vec![("a".into(), content.clone())];
    for layer in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let patches = [(0, 0, content.clone(), 1), (0, 0, text(FRAME, 2), layer)];
        back_up(&tree, &patches, dir.path(), &Setup::many_frames());
        for has_spans in [true, false] {
            if !has_spans {
                // As an older version wrote it.
                reforge(&stripe_path(dir.path(), 0), |_| {});
            }
            let set = open_set(dir.path());
            assert!(set.stripes()[0].directory().len() > 2);
            assert_eq!(set.stripes()[0].spans(0).is_some(), has_spans);
            let image = SetImage::open(Arc::clone(&set), &SetImageOptions::default()).unwrap();
            let is_right = layer == 2;
            assert_eq!(set.upper_layers().is_ok(), is_right);
            // Without spans, no byte of the file is certain, also far from the pieces that overlap.
            for (offset, is_certain) in [(0, is_right), (5999, is_right || has_spans)] {
                match image.read(FileNo(0), offset * FRAME as u64, &mut [0; 16]) {
                    Ok(_) => assert!(is_certain, "the image takes what a restore refuses"),
                    Err(error) => {
                        assert!(!is_certain, "{error}");
                        assert!(error.to_string().contains("overlap"), "{error}");
                        assert!(error.is_damage(), "{error}");
                    }
                }
            }
            // Who reads the whole file gets nothing of it.
            assert_eq!(image.check_layers(FileNo(0)).is_ok(), is_right);
        }
    }
}
