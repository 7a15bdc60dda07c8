//! Every changed byte of an object is found, and never used.

use std::path::Path;

use windlass_repository::{Fetched, Pushed};

use crate::support::*;

/// Flips a bit in every byte of a file, one after the other.
fn each_flip(path: &Path, mut look: impl FnMut(usize)) {
    let whole = std::fs::read(path).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(path, &flipped).unwrap();
        look(at);
    }
    std::fs::write(path, whole).unwrap();
}

#[test]
fn every_flipped_byte_is_found_and_no_wrong_byte_is_fetched() {
    let place = Place::new();
    place.push(&place.segment((1, 5), 1)).unwrap();
    let history = place.wal("00000002.history");
    std::fs::write(&history, "1\t0/580000\tno reason\n").unwrap();
    place.push(&history).unwrap();
    for (path, name) in place
        .objects()
        .iter()
        .zip([name(1, 5), "00000002.history".into()])
    {
        let right = place.fetch(&name).unwrap();
        each_flip(path, |at| {
            let faults = place.verify().faults;
            assert_eq!(faults.len(), 1, "byte {at} of {}", path.display());
            match place.fetch(&name) {
                Err(error) => assert!(error.is_damage(), "byte {at}: {error}"),
                Ok(fetched) => assert!(fetched == right, "byte {at}"),
            }
        });
    }
}

#[test]
fn an_object_that_is_cut_off_or_longer_is_found() {
    let place = Place::new();
    place.push(&place.segment((1, 5), 1)).unwrap();
    let [path] = &place.objects()[..] else {
        panic!()
    };
    let whole = std::fs::read(path).unwrap();
    for length in (0..whole.len()).step_by(7).chain([whole.len() - 1]) {
        std::fs::write(path, &whole[..length]).unwrap();
        let error = place.fetch(&name(1, 5)).unwrap_err();
        assert!(error.is_damage(), "{length}: {error}");
    }
    std::fs::write(path, [&whole[..], b"x"].concat()).unwrap();
    assert!(place.fetch(&name(1, 5)).unwrap_err().is_damage());
}

#[test]
fn a_push_puts_a_sound_object_in_the_place_of_a_damaged_one() {
    let place = Place::new();
    let path = place.segment((1, 5), 1);
    place.push(&path).unwrap();
    let [object] = &place.objects()[..] else {
        panic!()
    };
    let mut bytes = std::fs::read(object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(object, bytes).unwrap();
    assert!(matches!(place.push(&path).unwrap(), Pushed::Stored { .. }));
    let (fetched, bytes) = place.fetch(&name(1, 5)).unwrap();
    assert_eq!(fetched, Fetched::Complete { bytes: SEGMENT });
    assert!(bytes == content((1, 1), 5, 1));
    assert!(place.verify().faults.is_empty());
}

#[test]
fn an_object_under_the_name_of_another_is_refused() {
    let place = Place::new();
    place.push(&place.segment((1, 5), 1)).unwrap();
    place.push(&place.segment((1, 6), 2)).unwrap();
    let [one, other] = &place.objects()[..] else {
        panic!()
    };
    std::fs::copy(one, other).unwrap();
    assert!(place.fetch(&name(1, 6)).unwrap_err().is_damage());
}
