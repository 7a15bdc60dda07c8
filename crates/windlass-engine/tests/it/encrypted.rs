//! Encrypted sets: they come back with the key, say nothing without it, and nothing in them can be
//! changed, moved or mixed.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{
    Codec, DataKey, Envelope, FrameEntry, KeyFile, Lock, SEAL_BYTES, SetId, crc32c,
};
use windlass_engine::{
    Cancel, DamageReport, EngineError, Files, KeyFault, Keyed, Keys, METADATA_LIMIT_DEFAULT,
    OpenSet, SetState, Survey, check_locked, list_sets,
};
use windlass_testkit::encrypted::{OneKey, encryption, one_key};
use windlass_testkit::reforge::reforge_with;

use crate::support::*;

pub fn encrypted(mut setup: Setup, seed: u8) -> Setup {
    setup.encryption = Some(encryption(seed, setup.set_id));
    setup
}

pub fn open_with(keys: &OneKey, places: &[PathBuf]) -> Result<OpenSet, EngineError> {
    let storage = Keyed {
        storage: &Files,
        keys,
    };
    OpenSet::open_in(&storage, places, METADATA_LIMIT_DEFAULT)
}

pub fn check_with(keys: &OneKey, places: &[PathBuf]) -> Result<DamageReport, EngineError> {
    let storage = Keyed {
        storage: &Files,
        keys,
    };
    let survey = Survey::of(&storage, places, METADATA_LIMIT_DEFAULT)?;
    let options = lean_options().fit(survey.set())?;
    let found = windlass_engine::verify(&survey, &options, &Arc::default(), &Cancel::new())?;
    Ok(found.damage)
}

/// Whether a restore takes the set, and gives all of it.
pub fn restores(keys: &OneKey, places: &[PathBuf], tree: &Tree) -> Result<(), EngineError> {
    let set = open_with(keys, places)?;
    let into = tempfile::tempdir().unwrap();
    bring_back(&set, &into.path().join("into"))?;
    assert_same(tree, &into.path().join("into"));
    Ok(())
}

#[test]
fn an_encrypted_set_comes_back_whatever_the_codec_the_stripes_and_the_frames() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd(1)] {
        for stripes in [1, 3] {
            for page_frames in [false, true] {
                let (tree, dir) = (mixed_tree(7), tempfile::tempdir().unwrap());
                let setup = Setup {
                    page_frames,
                    ..Setup::small(stripes, codec)
                };
                let setup = Setup {
                    set_id: SetId(*b"an id like none!"),
                    ..setup
                };
                let setup = encrypted(setup, 1);
                let places = make_set(&tree, dir.path(), &setup);
                restores(&one_key(1), &places, &tree).unwrap();
                assert!(check_with(&one_key(1), &places).unwrap().is_empty());
                no_piece_of_the_tree_is_readable(&tree, &places);
            }
        }
    }
}

/// Searches the stripes for pieces of eight bytes of the files, and for their names.
fn no_piece_of_the_tree_is_readable(tree: &Tree, places: &[PathBuf]) {
    let mut wanted = std::collections::HashSet::new();
    for (name, bytes) in tree {
        wanted.extend(name.as_bytes().windows(8).map(<[u8]>::to_vec));
        let varied = bytes
            .chunks_exact(8)
            .filter(|piece| piece.iter().any(|it| *it > 0));
        wanted.extend(varied.take(4000).map(<[u8]>::to_vec));
    }
    for place in places {
        let bytes = std::fs::read(place).unwrap();
        for (at, piece) in bytes.windows(8).enumerate() {
            assert!(!wanted.contains(piece), "byte {at} of {}", place.display());
        }
    }
}

#[test]
fn without_its_key_a_set_says_who_has_it_and_what_can_be_seen() {
    let (tree, dir) = (mixed_tree(3), tempfile::tempdir().unwrap());
    let places = make_set(
        &tree,
        dir.path(),
        &encrypted(Setup::small(2, Codec::Lz4), 1),
    );
    let Err(EngineError::Locked {
        recipients, fault, ..
    }) = open(&places)
    else {
        panic!("it opens")
    };
    assert_eq!(
        (recipients, fault),
        (vec!["age1somebody".to_owned()], KeyFault::NoKey)
    );
    let wrong = open_with(&one_key(2), &places).unwrap_err();
    assert!(matches!(
        wrong,
        EngineError::Locked {
            fault: KeyFault::WrongKey,
            ..
        }
    ));
    let list = list_sets(&Files, &[dir.path().to_owned()], METADATA_LIMIT_DEFAULT).unwrap();
    let [set] = list.sets.as_slice() else {
        panic!()
    };
    assert!(matches!(set.state, SetState::Locked(_)), "{:?}", set.state);
    assert!(set.about.is_none() && set.bytes() > 0 && set.begun_nanos == 1);
    let seen = check_locked(&Files, &places, METADATA_LIMIT_DEFAULT)
        .unwrap()
        .unwrap();
    assert!(seen.damage.is_empty() && seen.stripes.len() == 2);
}

#[test]
fn without_its_key_a_cut_a_lost_stripe_and_a_changed_footer_are_found() {
    let (tree, dir) = (mixed_tree(3), tempfile::tempdir().unwrap());
    let places = make_set(
        &tree,
        dir.path(),
        &encrypted(Setup::small(2, Codec::Lz4), 1),
    );
    let whole = std::fs::read(&places[1]).unwrap();
    let damaged = |bytes: &[u8]| {
        write(&places[1], bytes);
        let seen = check_locked(&Files, &places[..1], METADATA_LIMIT_DEFAULT);
        !seen.unwrap().unwrap().damage.is_empty()
    };
    assert!(!damaged(&whole));
    assert!(damaged(&whole[..whole.len() - 512]));
    let mut footer = whole.clone();
    footer[whole.len() - 2 * SEAL_BYTES] ^= 1;
    assert!(damaged(&footer));
    std::fs::remove_file(&places[1]).unwrap();
    let seen = check_locked(&Files, &places[..1], METADATA_LIMIT_DEFAULT);
    assert!(!seen.unwrap().unwrap().damage.is_empty());
}

/// A set of a few KiB with frames of the same stored length.
fn tiny(dir: &Path, setup: &Setup) -> (Tree, Vec<PathBuf>) {
    let mut random = Random::new(5);
    let file = |index: usize| (format!("file{index}"), random.noise(300));
    let tree: Tree = (0..3).map(file).collect();
    std::fs::create_dir_all(dir).unwrap();
    let mut run = begin(setup, file_devices(dir, setup), &Cancel::new()).unwrap();
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
        // A drain ends the bundle, so each file is a frame.
        run.drain().unwrap();
    }
    let files = table(&run, &tree);
    run.finish(files, facts()).unwrap();
    (tree, stripe_paths(dir, setup))
}

#[test]
fn every_flipped_byte_of_an_encrypted_set_is_found() {
    for stripes in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let setup = encrypted(Setup::small(stripes, Codec::None), 1);
        let (tree, places) = tiny(dir.path(), &setup);
        restores(&one_key(1), &places, &tree).unwrap();
        for place in &places {
            let bytes = std::fs::read(place).unwrap();
            let file = std::fs::File::options().write(true).open(place).unwrap();
            for (offset, byte) in bytes.iter().enumerate() {
                let flipped = byte ^ (1 << (offset % 8));
                file.write_all_at(&[flipped], offset as u64).unwrap();
                let found = check_with(&one_key(1), &places);
                let found = found.map_or(true, |damage| !damage.is_empty());
                assert!(found, "byte {offset} of {}", place.display());
                file.write_all_at(&[*byte], offset as u64).unwrap();
            }
        }
        restores(&one_key(1), &places, &tree).unwrap();
    }
}

fn frame(stripe: &Path, entry: &FrameEntry) -> Vec<u8> {
    let mut bytes = vec![0; entry.stored_bytes as usize];
    let file = std::fs::File::open(stripe).unwrap();
    file.read_exact_at(&mut bytes, entry.offset).unwrap();
    bytes
}

fn put_frame(stripe: &Path, entry: &FrameEntry, bytes: &[u8]) {
    assert_eq!(bytes.len(), entry.stored_bytes as usize);
    let file = std::fs::File::options().write(true).open(stripe).unwrap();
    file.write_all_at(bytes, entry.offset).unwrap();
}

/// The frames of a set of one stripe.
fn frames_of(keys: &OneKey, places: &[PathBuf]) -> Vec<FrameEntry> {
    let set = open_with(keys, places).unwrap();
    let stripe = &set.stripes()[0];
    let block = stripe.index_block(&stripe.directory()[0]).unwrap();
    block.frames
}

/// Puts bytes in the place of a frame, and makes every checksum right that does not need the frame
/// to be encrypted again.
fn replace(stripe: &Path, seed: u8, set_id: SetId, index: usize, bytes: &[u8]) {
    let cipher = encryption(seed, set_id).cipher;
    reforge_with(stripe, Some(&cipher), |parts| {
        parts.block.frames[index].crc32c = crc32c(bytes);
    });
    let places = [stripe.to_owned()];
    put_frame(stripe, &frames_of(&one_key(seed), &places)[index], bytes);
}

#[test]
fn a_frame_is_refused_in_the_place_of_another_one_even_under_right_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let setup = encrypted(Setup::small(1, Codec::None), 1);
    let (tree, places) = tiny(dir.path(), &setup);
    let (stripe, set) = (&places[0], setup.set_id);
    let frames = frames_of(&one_key(1), &places);
    assert!(frames.len() >= 3 && frames[0].stored_bytes == frames[1].stored_bytes);
    let (first, second) = (frame(stripe, &frames[0]), frame(stripe, &frames[1]));
    // As it was: the forger makes no other mistake.
    replace(stripe, 1, set, 0, &first);
    restores(&one_key(1), &places, &tree).unwrap();
    replace(stripe, 1, set, 0, &second);
    restores(&one_key(1), &places, &tree).unwrap_err();
    assert!(!check_with(&one_key(1), &places).unwrap().is_empty());
    replace(stripe, 1, set, 0, &first);
    // Of another set under the same data key, with the same pieces.
    let other_id = SetId([8; 16]);
    let mut other = Setup::small(1, Codec::None);
    other.set_id = other_id;
    let other_dir = tempfile::tempdir().unwrap();
    let (_, others) = tiny(other_dir.path(), &encrypted(other, 1));
    let foreign = frame(&others[0], &frames_of(&one_key(1), &others)[0]);
    assert_eq!(foreign.len(), first.len());
    replace(stripe, 1, set, 0, &foreign);
    restores(&one_key(1), &places, &tree).unwrap_err();
    replace(stripe, 1, set, 0, &first);
    restores(&one_key(1), &places, &tree).unwrap();
}

#[test]
fn stripes_of_two_sets_under_one_key_cannot_be_mixed() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut made = Vec::new();
    for (dir, id) in dirs.iter().zip([7, 8]) {
        let mut setup = Setup::small(2, Codec::Lz4);
        setup.set_id = SetId([id; 16]);
        let tree = mixed_tree(u64::from(id));
        made.push((make_set(&tree, dir.path(), &encrypted(setup, 1)), tree));
    }
    let mixed = [made[0].0[0].clone(), made[1].0[1].clone()];
    open_with(&one_key(1), &mixed).unwrap_err();
    // The id of the other set is forged into all that is not encrypted.
    let mut bytes = std::fs::read(&made[1].0[1]).unwrap();
    let positions: Vec<_> = bytes
        .windows(16)
        .enumerate()
        .filter(|(_, it)| *it == [8; 16])
        .map(|(at, _)| at)
        .collect();
    positions.iter().for_each(|at| bytes[*at..at + 16].fill(7));
    let seal = bytes.len() - 4;
    let crc = crc32c(&bytes[seal + 4 - SEAL_BYTES..seal]);
    bytes[seal..].copy_from_slice(&crc.to_le_bytes());
    write(&made[0].0[1], &bytes);
    restores(&one_key(1), &made[0].0, &made[0].1).unwrap_err();
}

#[test]
fn an_older_state_of_a_stripe_is_refused_beside_the_others() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let setup = encrypted(Setup::small(2, Codec::Lz4), 1);
    let old = make_set(&mixed_tree(1), dirs[0].path(), &setup);
    let new = make_set(&mixed_tree(2), dirs[1].path(), &setup);
    std::fs::copy(&old[1], &new[1]).unwrap();
    restores(&one_key(1), &new, &mixed_tree(2)).unwrap_err();
}

#[test]
fn a_set_that_is_not_encrypted_is_as_it_always_was() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut setup = Setup::small(1, Codec::Lz4);
    setup.request.compressors = Some(1);
    let (_, clear) = tiny(dirs[0].path(), &setup);
    let (_, locked) = tiny(dirs[1].path(), &encrypted(setup, 1));
    let (clear, locked) = (
        std::fs::read(&clear[0]).unwrap(),
        std::fs::read(&locked[0]).unwrap(),
    );
    assert_eq!((clear[10], clear[57]), (0, 0));
    assert_eq!((locked[10], locked[57]), (2, 1));
}

/// Opens locks with this envelope only.
#[derive(Debug)]
pub struct ByEnvelope(pub Vec<u8>, pub Arc<DataKey>);

impl Keys for ByEnvelope {
    fn open(&self, _set: SetId, lock: &Lock) -> Result<Arc<DataKey>, KeyFault> {
        match lock.envelopes.iter().any(|it| it.bytes == self.0) {
            true => Ok(Arc::clone(&self.1)),
            false => Err(KeyFault::WrongKey),
        }
    }
}

#[test]
fn envelopes_beside_a_set_open_it_and_cannot_give_it_another_key() {
    let (tree, dir) = (mixed_tree(9), tempfile::tempdir().unwrap());
    let setup = encrypted(Setup::small(2, Codec::Lz4), 1);
    let places = make_set(&tree, dir.path(), &setup);
    let before: Vec<_> = places.iter().map(|it| std::fs::read(it).unwrap()).collect();
    let keys = ByEnvelope(vec![2; 99], one_key(1).0);
    let storage = Keyed {
        storage: &Files,
        keys: &keys,
    };
    let open = || OpenSet::open_in(&storage, &places, METADATA_LIMIT_DEFAULT);
    assert!(open().is_err());
    let beside = dir.path().join(KeyFile::name(setup.set_id));
    let mut file = KeyFile {
        set_id: setup.set_id,
        written_nanos: 3,
        lock: Lock {
            check: encryption(1, setup.set_id).lock.check,
            envelopes: vec![Envelope {
                recipient: "age1other".into(),
                bytes: vec![2; 99],
            }],
        },
    };
    let right = file.encode().unwrap();
    write(&beside, &right);
    open().unwrap();
    // A file that was cut off or changed counts for nothing. The set opens by its own envelopes.
    for length in 0..right.len() {
        write(&beside, &right[..length]);
        assert!(open().is_err(), "cut to {length}");
    }
    restores(&one_key(1), &places, &tree).unwrap();
    file.lock.check = encryption(2, setup.set_id).lock.check;
    write(&beside, &file.encode().unwrap());
    assert!(open().is_err(), "the envelopes of another key");
    restores(&one_key(1), &places, &tree).unwrap();
    let after: Vec<_> = places.iter().map(|it| std::fs::read(it).unwrap()).collect();
    assert!(before == after, "the set was not changed");
}

#[test]
fn damage_of_an_encrypted_stripe_is_listed_as_far_as_its_parts_tell() {
    let (tree, dir) = (mixed_tree(4), tempfile::tempdir().unwrap());
    let places = make_set(
        &tree,
        dir.path(),
        &encrypted(Setup::small(2, Codec::Lz4), 1),
    );
    let whole = std::fs::read(&places[0]).unwrap();
    // The envelopes of a damaged header are lost, and those of the other stripe are the same.
    let mut header = whole.clone();
    header[70] ^= 1;
    write(&places[0], &header);
    let found = check_with(&one_key(1), &places).unwrap();
    assert_eq!(found.damage_count, 1, "{:?}", found.damage);
    assert!(found.lost_bytes == 0 && found.files_known);
    // Without its footer, a stripe is walked from block to block.
    let mut footer = whole.clone();
    footer[whole.len() - 2 * SEAL_BYTES] ^= 1;
    write(&places[0], &footer);
    let found = check_with(&one_key(1), &places).unwrap();
    assert!(
        found.lost_bytes == 0 && found.files_known,
        "{:?}",
        found.damage
    );
}
