//! Damage of any byte, and any cut, is found before the byte is used.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use windlass_engine::Cancel;
use windlass_engine::media::Codec;

use crate::spread::*;
use crate::support::*;

const BLOCK: usize = 512;

/// A set with a few KiB on each stripe, and at least one frame on each.
fn tiny_set(dir: &Path, stripes: usize, codec: Codec) -> Vec<PathBuf> {
    let mut setup = Setup::small(stripes, codec);
    setup.request.compressors = Some(stripes);
    setup.request.buffers = Some(8);
    let mut run = begin(&setup, in_turn(file_devices(dir, &setup)), &Cancel::new()).unwrap();
    // Without compression, each file gets a transfer of its own, because a drain ends the bundle.
    let packed = codec != Codec::None;
    let bytes = if packed { 40_000 } else { 300 };
    let file = |index| (format!("f{index}"), plain(bytes, index as u8));
    let mut tree: Tree = (0..stripes).map(file).collect();
    tree.push(("small".into(), Random::new(3).noise(200)));
    if packed {
        run.set_hook(one_each(stripes));
    }
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
        if !packed {
            run.drain().unwrap();
        }
    }
    run.drain().unwrap();
    let files = table(&run, &tree);
    run.finish(files, facts()).unwrap();
    let places = stripe_paths(dir, &setup);
    let set = verify(&places).unwrap();
    let mut stripes = set.stripes().iter();
    assert!(stripes.all(|stripe| !stripe.directory().is_empty()));
    places
}

/// Set for every byte of sets of several stripes: `scripts/soak damage` does that.
const EVERY_BYTE: &str = "WINDLASS_TEST_EVERY_BYTE";
/// One of so many bytes of each stripe is flipped, where a set has several.
const DRAWN: u64 = 16;

/// Every byte of a set of one stripe. Stripes beside others have the same parts, and drawn bytes
/// of them show that all stripes are looked at.
fn every_flip_is_found(codec: Codec) {
    let mut random = Random::new(23);
    let every_byte = std::env::var_os(EVERY_BYTE).is_some();
    for stripes in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        let places = tiny_set(dir.path(), stripes, codec);
        let of = if stripes == 1 || every_byte { 1 } else { DRAWN };
        for place in &places {
            flip(place, std::slice::from_ref(place), || random.below(of) == 0);
        }
        verify(&places).unwrap();
    }
}

/// Flips one bit of each byte of `place`, one byte at a time.
pub fn flip_all(place: &Path, named: &[PathBuf]) {
    flip(place, named, || true);
}

/// Flips one bit of each byte that is wanted, one byte at a time.
fn flip(place: &Path, named: &[PathBuf], mut is_wanted: impl FnMut() -> bool) {
    let bytes = std::fs::read(place).unwrap();
    assert!(
        bytes.len() < 16 * 1024,
        "{} bytes are too many for this test",
        bytes.len()
    );
    let file = std::fs::File::options().write(true).open(place).unwrap();
    for (offset, byte) in bytes.iter().enumerate() {
        if !is_wanted() {
            continue;
        }
        let flipped = byte ^ (1 << (offset % 8));
        file.write_all_at(&[flipped], offset as u64).unwrap();
        assert!(
            verify(named).is_err(),
            "byte {offset} of {} is not looked at",
            place.display()
        );
        let listed = check(named).map_or(true, |report| !report.is_empty());
        assert!(listed, "byte {offset} of {} is not listed", place.display());
        file.write_all_at(&[*byte], offset as u64).unwrap();
    }
}

#[test]
fn every_flipped_byte_of_an_uncompressed_set_is_found() {
    every_flip_is_found(Codec::None);
}

#[test]
fn every_flipped_byte_of_an_lz4_set_is_found() {
    every_flip_is_found(Codec::Lz4);
}

#[test]
fn every_flipped_byte_of_a_zstd_set_is_found() {
    every_flip_is_found(Codec::Zstd(1));
}

/// Two stripes with incompressible and other data, several blocks long.
fn blocky_set(dir: &Path) -> Vec<PathBuf> {
    let mut random = Random::new(11);
    let tree = vec![
        ("a".to_owned(), random.noise(5000)),
        ("b".to_owned(), plain(70_000, 3)),
        ("c".to_owned(), random.noise(3000)),
        ("d".to_owned(), vec![0; 50_000]),
    ];
    make_set(&tree, dir, &Setup::small(2, Codec::Zstd(1)))
}

/// Asserts that the set fails when `place` holds `bytes`, and that it is whole again afterwards.
fn must_fail(places: &[PathBuf], place: &Path, bytes: &[u8], what: &str) {
    let whole = std::fs::read(place).unwrap();
    assert!(whole != bytes, "{what}: changes nothing");
    write(place, bytes);
    assert!(
        verify(places).is_err(),
        "{}: {what}: not found",
        place.display()
    );
    let listed = check(places).map_or(true, |report| !report.is_empty());
    assert!(listed, "{}: {what}: not listed", place.display());
    write(place, &whole);
}

#[test]
fn a_stripe_cut_at_or_beside_any_boundary_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let places = blocky_set(dir.path());
    for (place, stripe) in places.iter().zip(verify(&places).unwrap().stripes()) {
        let whole = std::fs::read(place).unwrap();
        let mut boundaries = vec![0, 8, 64, 512, whole.len() - 512];
        for entry in stripe.directory() {
            let block = stripe.index_block(entry).unwrap();
            let frames = block.frames.iter();
            boundaries.extend(frames.map(|frame| usize::try_from(frame.offset).unwrap()));
            boundaries.push(usize::try_from(entry.offset).unwrap());
            boundaries.push(usize::try_from(entry.offset).unwrap() + entry.bytes as usize);
        }
        for boundary in boundaries {
            for length in [boundary.saturating_sub(1), boundary, boundary + 1] {
                must_fail(
                    &places,
                    place,
                    &whole[..length],
                    &format!("cut to {length}"),
                );
            }
        }
    }
}

#[test]
fn a_stripe_cut_to_any_of_a_thousand_lengths_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let places = blocky_set(dir.path());
    let mut random = Random::new(5);
    for round in 0..1000 {
        let place = &places[round % places.len()];
        let whole = std::fs::read(place).unwrap();
        let length = usize::try_from(random.below(whole.len() as u64)).unwrap();
        must_fail(
            &places,
            place,
            &whole[..length],
            &format!("cut to {length}"),
        );
    }
}

#[test]
fn appended_bytes_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let places = blocky_set(dir.path());
    for place in &places {
        let whole = std::fs::read(place).unwrap();
        let tails = [vec![0; 1], vec![0; BLOCK], vec![0xff; 4096], whole.clone()];
        let seal = whole[whole.len() - BLOCK..].to_vec();
        for tail in tails.into_iter().chain([seal]) {
            let longer = [whole.as_slice(), &tail].concat();
            must_fail(
                &places,
                place,
                &longer,
                &format!("{} bytes appended", tail.len()),
            );
        }
    }
}

#[test]
fn every_lost_block_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let places = blocky_set(dir.path());
    for place in &places {
        let whole = std::fs::read(place).unwrap();
        for start in (0..whole.len()).step_by(BLOCK) {
            for fill in [0, 0xff] {
                let mut bytes = whole.clone();
                bytes[start..start + BLOCK].fill(fill);
                if bytes != whole {
                    must_fail(&places, place, &bytes, &format!("{fill:#x} at {start}"));
                }
            }
        }
    }
}

#[test]
fn blocks_in_each_others_place_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let places = blocky_set(dir.path());
    let mut random = Random::new(9);
    for place in &places {
        let whole = std::fs::read(place).unwrap();
        let blocks = (whole.len() / BLOCK) as u64;
        for _ in 0..150 {
            let (one, other) = (random.below(blocks), random.below(blocks));
            let (one, other) = (one as usize * BLOCK, other as usize * BLOCK);
            let (first, second) = (&whole[one..one + BLOCK], &whole[other..other + BLOCK]);
            if first == second {
                continue;
            }
            let mut copied = whole.clone();
            copied[other..other + BLOCK].copy_from_slice(first);
            must_fail(
                &places,
                place,
                &copied,
                &format!("block {one} copied over {other}"),
            );
            copied[one..one + BLOCK].copy_from_slice(second);
            must_fail(
                &places,
                place,
                &copied,
                &format!("blocks {one} and {other} swapped"),
            );
            let mut longer = whole.clone();
            longer.splice(other..other, first.iter().copied());
            must_fail(
                &places,
                place,
                &longer,
                &format!("block {one} inserted at {other}"),
            );
        }
    }
}
