//! Images with edits: other paths, shorter files, other bytes; everything else as it was.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::sync::Arc;

use windlass_image::{DirectoryImage, EditedImage, Image, Patch};

#[test]
fn edits_are_seen_and_nothing_else_changes() {
    let place = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..=255).collect();
    std::fs::write(place.path().join("a"), &content).unwrap();
    std::fs::write(place.path().join("b"), &content).unwrap();
    let image = Arc::new(DirectoryImage::open(place.path()).unwrap());
    let mut files = image.files().clone();
    let [a, b] = [files.0[0].file, files.0[1].file];
    files.0[0].path = b"renamed".to_vec();
    files.0[1].bytes = 10;
    let patch = |file, offset, bytes: &[u8]| Patch {
        file,
        offset,
        bytes: bytes.to_vec(),
    };
    // A patch beyond the end does not make the file longer.
    let patches = vec![
        patch(a, 100, b"one"),
        patch(a, 254, b"four"),
        patch(b, 8, b"two"),
    ];
    let edited = EditedImage::new(image, files, patches);
    assert_eq!(edited.files().0[0].path, b"renamed");

    let mut expected = content.clone();
    expected[100..103].copy_from_slice(b"one");
    expected[254..].copy_from_slice(b"fo");
    // Tries every offset and length, since a read may begin, end or lie within a patch.
    for offset in 0..=256_u64 {
        for length in [1, 2, 3, 5, 64, 300] {
            let mut into = vec![0xEE; length];
            let count = edited.read(a, offset, &mut into).unwrap();
            let start = usize::try_from(offset).unwrap();
            assert_eq!(&into[..count], &expected[start..(start + length).min(256)]);
        }
    }
    let mut into = [0; 64];
    assert_eq!(edited.read(b, 0, &mut into).unwrap(), 10);
    assert_eq!(&into[..10], [0, 1, 2, 3, 4, 5, 6, 7, b't', b'w']);
}
