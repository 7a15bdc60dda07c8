//! Sets that are encrypted, and whose pages were taken apart before: both at once.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::Cancel;
use windlass_engine::media::{Codec, LAYOUT_STREAMS};
use windlass_testkit::encrypted::one_key;
use windlass_testkit::heap::{HeapHook, heap_pages};

use crate::encrypted::{check_with, encrypted, open_with, restores};
use crate::support::*;

/// A word that stands in every row of the table, and in its streams.
const WORD: &[u8] = b"customer ";

/// Two compressors, on every machine: what others would take before the first samples of a class
/// are there stays as it is.
fn setup(stripes: usize, codec: Codec) -> Setup {
    let mut setup = Setup {
        page_frames: true,
        ..Setup::small(stripes, codec)
    };
    setup.request.compressors = Some(2);
    encrypted(setup, 1)
}

/// Makes a set of a tree whose first file is a table.
fn made(tree: &Tree, dir: &Path, setup: &Setup) -> Vec<PathBuf> {
    let mut run = begin(setup, file_devices(dir, setup), &Cancel::new()).unwrap();
    run.set_hook(Arc::new(HeapHook::new(&[0])));
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    let files = table(&run, tree);
    let pages = run.finish(files, facts()).unwrap().pages.unwrap();
    assert_eq!(pages.wrong_frames, 0);
    stripe_paths(dir, setup)
}

/// How many frames of a set have pages that were taken apart.
fn laid_out(places: &[PathBuf]) -> usize {
    let set = open_with(&one_key(1), places).unwrap();
    let stripes = set.stripes().iter();
    let frames = stripes.flat_map(|stripe| {
        let blocks = stripe.directory().iter();
        blocks.flat_map(|entry| stripe.index_block(entry).unwrap().frames)
    });
    frames
        .filter(|frame| frame.page.unwrap().layout == LAYOUT_STREAMS)
        .count()
}

fn has_word(bytes: &[u8]) -> bool {
    bytes.windows(WORD.len()).any(|window| window == WORD)
}

#[test]
fn an_encrypted_set_whose_pages_were_taken_apart_comes_back_with_its_key_only() {
    let tree: Tree = vec![
        ("table".into(), heap_pages(100, 1)),
        ("other".into(), Random::new(5).noise(200_000)),
    ];
    assert!(has_word(&tree[0].1));
    for codec in [Codec::Lz4, Codec::Zstd(1)] {
        for stripes in [1, 3] {
            let dir = tempfile::tempdir().unwrap();
            let places = made(&tree, dir.path(), &setup(stripes, codec));
            let count = laid_out(&places);
            assert!(count >= 4, "{codec}, {stripes}: {count}");
            restores(&one_key(1), &places, &tree).unwrap();
            assert!(check_with(&one_key(1), &places).unwrap().is_empty());
            assert!(restores(&one_key(2), &places, &tree).is_err());
            for place in &places {
                assert!(!has_word(&std::fs::read(place).unwrap()), "{codec}");
            }
        }
    }
}

#[test]
fn flipped_bytes_of_an_encrypted_set_with_pages_apart_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let tree: Tree = vec![("table".into(), heap_pages(6, 1))];
    let places = made(&tree, dir.path(), &setup(1, Codec::Zstd(1)));
    assert!(laid_out(&places) > 0);
    let bytes = std::fs::read(&places[0]).unwrap();
    let file = std::fs::File::options().write(true).open(&places[0]);
    let file = file.unwrap();
    // Every third, and each time another bit.
    for (offset, byte) in bytes.iter().enumerate().step_by(3) {
        let flipped = byte ^ (1 << (offset % 8));
        file.write_all_at(&[flipped], offset as u64).unwrap();
        let found = check_with(&one_key(1), &places);
        let found = found.map_or(true, |damage| !damage.is_empty());
        assert!(found, "byte {offset}");
        file.write_all_at(&[*byte], offset as u64).unwrap();
    }
    restores(&one_key(1), &places, &tree).unwrap();
}
