//! A chain is opened without its index, and a file costs the index blocks that tell of it.

use std::sync::Arc;

use windlass_engine::FoundSet;
use windlass_engine::media::FileNo;
use windlass_image::{Image, SetImage, SetImageOptions};
use windlass_testkit::chains::long_pair;

use crate::support::*;

#[test]
fn a_chain_opens_whatever_its_index_blocks_are_and_a_file_costs_only_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let files = long_pair(dir.path());
    let set = open_set(&dir.path().join("2"));
    assert_eq!(set.links().count(), 2);
    let stripes = set.links().flat_map(FoundSet::stripes);
    // Where each index block is, and the first file that it tells of.
    let blocks: Vec<_> = stripes
        .flat_map(|stripe| {
            let blocks = stripe.directory().iter();
            blocks.map(move |block| (stripe.location(), block.offset + 40, block.file_min))
        })
        .collect();
    let (of_first, of_second): (Vec<_>, Vec<_>) =
        blocks.iter().partition(|(_, _, file)| *file == FileNo(0));
    assert!(!of_first.is_empty() && !of_second.is_empty());
    let flip_all = |blocks: &[&(&std::path::Path, u64, FileNo)]| {
        blocks.iter().for_each(|(path, at, _)| flip(path, *at));
    };
    flip_all(&of_first);
    flip_all(&of_second);
    let image = SetImage::open(Arc::clone(&set), &SetImageOptions::default()).unwrap();
    let read = |file: usize| {
        let mut into = vec![0; files[file].len()];
        let count = image.read(FileNo(file as u32), 0, &mut into)?;
        assert!(count == into.len() && into == files[file], "file {file}");
        Ok::<_, windlass_image::ImageError>(())
    };
    for file in 0..2 {
        assert!(read(file).unwrap_err().is_damage());
    }
    flip_all(&of_first);
    read(0).unwrap();
    assert!(read(1).unwrap_err().is_damage());
    flip_all(&of_second);
    read(1).unwrap();
}
