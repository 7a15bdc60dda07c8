//! Damage is an error for what is damaged, and for nothing else.

use windlass_engine::EngineError;
use windlass_engine::media::{Codec, FileNo, FormatError};
use windlass_image::{Image, ImageError};
use windlass_testkit::heap::{HeapHook, heap_pages};

use crate::support::*;

const PAGE: usize = 8192;

fn tree() -> Tree {
    (0..3)
        .map(|index| (format!("base/{index}"), text(700_000, index + 3)))
        .collect()
}

/// Reads every page, and returns the pages that fail, with their errors. The others must be right.
fn failing_pages(image: &dyn Image, tree: &Tree) -> Vec<(usize, u64, ImageError)> {
    let mut failed = Vec::new();
    for (file, (_, bytes)) in tree.iter().enumerate() {
        for offset in (0..bytes.len()).step_by(PAGE) {
            let mut page = vec![0; PAGE];
            match image.read(FileNo(file as u32), offset as u64, &mut page) {
                Ok(count) => assert!(page[..count] == bytes[offset..offset + count]),
                Err(error) => failed.push((file, offset as u64, error)),
            }
        }
    }
    failed
}

#[test]
fn a_damaged_frame_fails_exactly_its_pages_and_is_named() {
    let tree = tree();
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd(1)] {
        let dir = tempfile::tempdir().unwrap();
        back_up(
            &tree,
            &[],
            dir.path(),
            &Setup {
                codec,
                ..Setup::default()
            },
        );
        let image = open(dir.path());
        let blocks = index_blocks(image.set());
        // How many frames each stripe holds is different from run to run.
        let most = blocks.iter().max_by_key(|(_, block)| block.frames.len());
        let (stripe, block) = most.unwrap();
        let (frame, pieces) = block.iter().nth(block.frames.len() / 2).unwrap();
        flip(
            &stripe_path(dir.path(), *stripe),
            frame.offset + u64::from(frame.stored_bytes) / 2,
        );

        // The damage happened while the image was open.
        let failed = failing_pages(&image, &tree);
        let touches = |file: usize, offset: u64| {
            pieces.iter().any(|piece| {
                piece.file.0 as usize == file
                    && piece.offset < offset + PAGE as u64
                    && offset < piece.offset + u64::from(piece.bytes)
            })
        };
        let pages = |file: usize| (0..tree[file].1.len() as u64).step_by(PAGE);
        let expected: Vec<_> = (0..tree.len())
            .flat_map(|file| pages(file).map(move |offset| (file, offset)))
            .filter(|(file, offset)| touches(*file, *offset))
            .collect();
        let found: Vec<_> = failed
            .iter()
            .map(|(file, offset, _)| (*file, *offset))
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{codec}");
        for (file, offset, error) in failed {
            assert!(error.is_damage());
            let text = error.to_string();
            let ImageError::Read {
                path,
                offset: at,
                source,
            } = error
            else {
                panic!("{text}")
            };
            assert_eq!((path, at), (tree[file].0.clone(), offset));
            let EngineError::Damage {
                location,
                offset,
                source,
            } = source
            else {
                panic!("{text}")
            };
            assert_eq!(location, stripe_path(dir.path(), *stripe).to_string_lossy());
            assert_eq!(offset, frame.offset);
            assert!(
                matches!(source, FormatError::FrameChecksum { .. }),
                "{text}"
            );
        }
    }
}

/// A mistake of the encoder that no proof has caught: the stored bytes are those that were written,
/// and only the checksum of the pages themselves tells.
#[test]
fn pages_that_were_taken_apart_wrongly_are_damage_and_never_other_bytes() {
    let tree = vec![
        ("table".to_owned(), heap_pages(40, 1)),
        ("other".to_owned(), text(300_000, 5)),
    ];
    for codec in [Codec::Lz4, Codec::Zstd(1)] {
        let (_dir, image) = image_by(&tree, codec, (HeapHook::wrong(&[0]), false));
        let failed = failing_pages(&image, &tree);
        assert!(!failed.is_empty(), "{codec}");
        for (file, offset, error) in failed {
            assert_eq!(file, 0, "{offset}: {error}");
            assert!(error.is_damage(), "{offset}: {error}");
        }
    }
}

#[test]
fn a_repaired_frame_is_read_again() {
    let tree = tree();
    let dir = tempfile::tempdir().unwrap();
    back_up(&tree, &[], dir.path(), &Setup::default());
    let image = open(dir.path());
    let blocks = index_blocks(image.set());
    let (path, offset) = (
        stripe_path(dir.path(), blocks[0].0),
        blocks[0].1.frames[0].offset,
    );
    flip(&path, offset);
    assert!(!failing_pages(&image, &tree).is_empty());
    flip(&path, offset);
    assert!(failing_pages(&image, &tree).is_empty());
}

#[test]
fn a_damaged_index_block_fails_the_pages_only_it_tells_of() {
    let tree = tree();
    let dir = tempfile::tempdir().unwrap();
    back_up(&tree, &[], dir.path(), &Setup::default());
    let image = open(dir.path());
    let set = open_set(dir.path());
    // Whichever writer is free takes the next frames: a stripe may have none.
    let mut held = set
        .stripes()
        .iter()
        .filter(|one| !one.directory().is_empty());
    let stripe = held.next_back().unwrap();
    let entry = stripe.directory()[0].clone();
    let own = stripe.index_block(&entry).unwrap();
    flip(stripe.location(), entry.offset + 40);
    let failed = failing_pages(&image, &tree);
    assert!(!failed.is_empty());
    for (file, offset, error) in failed {
        let overlaps = own.pieces.iter().any(|piece| {
            piece.file.0 as usize == file
                && piece.offset < offset + PAGE as u64
                && offset < piece.offset + u64::from(piece.bytes)
        });
        assert!(
            overlaps,
            "file {file} at {offset} is told of elsewhere: {error}"
        );
        assert!(error.is_damage(), "{error}");
    }
}

/// The patch is in another index block than what it replaces.
#[test]
fn a_file_whose_upper_layers_are_unknown_is_not_read() {
    let tree: Tree = vec![("a".into(), text(FRAMES * FRAME, 1))];
    let patch = text(FRAME, 77);
    let dir = tempfile::tempdir().unwrap();
    let patches = [(0, 0, patch.clone(), 1)];
    back_up(&tree, &patches, dir.path(), &Setup::many_frames());
    let image = open(dir.path());
    let directory = image.set().stripes()[0].directory();
    let [.., before, last] = directory else {
        panic!("{} index blocks", directory.len());
    };
    assert_eq!((before.layer_max, last.layer_max), (0, 1));
    let (stripe, at) = (stripe_path(dir.path(), 0), last.offset + 40);
    flip(&stripe, at);
    // The bytes that nothing replaces could be read, but nobody knows which these are.
    let mut page = vec![0; PAGE];
    for offset in [0, 3000 * FRAME as u64] {
        let error = image.read(FileNo(0), offset, &mut page).unwrap_err();
        assert!(error.is_damage(), "{error}");
    }
    flip(&stripe, at);
    assert_eq!(image.read(FileNo(0), 0, &mut page).unwrap(), PAGE);
    assert!(page[..FRAME] == patch[..] && page[FRAME..] == tree[0].1[FRAME..PAGE]);
}

#[test]
fn a_file_the_set_lists_but_does_not_hold_is_missing_not_zeros() {
    // The tree is the same, except that one file is longer than what was pushed of it.
    let whole = tree();
    let dir = tempfile::tempdir().unwrap();
    back_up_part(&whole, 300_000, dir.path());
    let image = open(dir.path());
    let mut page = vec![0; PAGE];
    assert_eq!(image.read(FileNo(0), 0, &mut page).unwrap(), PAGE);
    let error = image.read(FileNo(0), 400_000, &mut page).unwrap_err();
    assert!(
        matches!(
            error,
            ImageError::Missing {
                offset: 400_000,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.is_damage());
}
