//! What is refused, whoever reads: damage of any byte of a header, empty stripes, sections that
//! nobody knows.

use std::fs;
use std::path::PathBuf;

use windlass_engine::media::Codec;
use windlass_engine::{Files, METADATA_LIMIT_DEFAULT, OpenSet, Survey};

use crate::forge::*;
use crate::support::*;

#[test]
fn a_flipped_bit_in_any_byte_of_a_header_is_damage_where_the_directory_is_named_too() {
    let dir = tempfile::tempdir().unwrap();
    let places = make_set(&mixed_tree(1), dir.path(), &Setup::small(1, Codec::Zstd(1)));
    let sound = fs::read(&places[0]).unwrap();
    for named in [places[0].clone(), dir.path().to_owned()] {
        for offset in 0..512 {
            let mut bytes = sound.clone();
            bytes[offset] ^= 1 << (offset % 8);
            write(&places[0], &bytes);
            let named = [named.clone()];
            let error = open(&named).unwrap_err();
            assert!(error.is_damage(), "{offset}: {error}");
            let survey = Survey::of(&Files, &named, METADATA_LIMIT_DEFAULT).unwrap();
            assert!(!survey.found().is_empty(), "{offset}");
        }
    }
}

#[test]
fn an_empty_stripe_beside_the_set_is_damage_although_another_copy_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let places = make_set(&mixed_tree(1), dir.path(), &Setup::small(2, Codec::Zstd(1)));
    let copies = tempfile::tempdir().unwrap();
    let copy = |place: &PathBuf| copies.path().join(place.file_name().unwrap());
    for place in &places {
        fs::copy(place, copy(place)).unwrap();
    }
    write(&copy(&places[1]), b"");
    for named in [copies.path().to_owned(), copy(&places[0])] {
        let error = open(std::slice::from_ref(&named)).unwrap_err();
        assert!(error.is_damage(), "{error}");
        let survey = Survey::of(&Files, &[named], METADATA_LIMIT_DEFAULT).unwrap();
        assert!(!survey.found().is_empty());
    }
}

#[test]
fn a_section_that_nobody_knows_costs_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut forge = Forge::default();
    let bytes = 512u64 << 20;
    forge.sections = Box::new(move |sections| {
        // The section is as dense as the format allows: it would become a hundred times as large.
        sections.push(Section {
            kind: 77,
            flags: 1 << 8,
            raw_bytes: bytes,
            stored: vec![0x5a; (bytes / 200) as usize + 4096],
        });
    });
    let place = forge.write(dir.path());
    // The decompressed section would not fit, and its bytes are not even compressed data.
    let set = OpenSet::open(&[place], 64 << 20).unwrap();
    let into = tempfile::tempdir().unwrap();
    bring_back(&set, into.path()).unwrap();
    assert_same(&vec![("file".into(), plain(3000, 1))], into.path());
}
