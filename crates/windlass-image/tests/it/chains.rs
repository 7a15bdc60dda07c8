//! Chains: every set of a random history equals what the files were, through the image and through
//! a restore.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::Codec;
use windlass_engine::{
    BufferRequest, Cancel, DirectoryTarget, EngineError, Files, FoundSet, METADATA_LIMIT_DEFAULT,
    OpenSet, RestoreOptions, Survey, TargetLayout, restore, verify, verify_index,
};
use windlass_image::{Image, SetImage, SetImageOptions};
use windlass_testkit::chains::History;
use windlass_testkit::runs::Setup;
use windlass_testkit::sets::flip;

type Content = BTreeMap<String, Vec<u8>>;

/// Makes a history of sets in `dir`, each in a directory of its own.
fn history(seed: u64, sets: usize, dir: &Path) -> History {
    let mut history = History::new(seed);
    history.live();
    for number in 0..sets {
        let codecs = [Codec::None, Codec::Lz4, Codec::Zstd(1)];
        let setup = Setup {
            request: BufferRequest {
                transfer_bytes: Some(64 * 1024),
                frame_bytes: Some(1 << (12 + history.below(4))),
                alignment: Some(512),
                ..BufferRequest::default()
            },
            ..Setup::small(1 + history.below(3), codecs[history.below(3)])
        };
        // Mostly on the newest, now and then on any earlier one, seldom on none.
        let base = match (number, history.below(8)) {
            (0, _) | (_, 0) => None,
            (_, 1 | 2) => Some(history.below(number)),
            _ => Some(number - 1),
        };
        history.back_up(&dir.join(format!("set{number}")), base, &setup);
        history.live();
    }
    history
}

fn open(stripes: &[PathBuf]) -> Result<OpenSet, EngineError> {
    OpenSet::open(stripes, METADATA_LIMIT_DEFAULT)
}

fn options() -> RestoreOptions {
    let request = BufferRequest {
        transfer_bytes: Some(64 * 1024),
        ..BufferRequest::default()
    };
    RestoreOptions {
        plan: request.plan(1, 1).unwrap(),
        device_rate: None,
        ring: true,
        pacing: None,
    }
}

/// The content of a set as the image shows it, read in pieces of odd lengths.
fn through_image(set: &Arc<OpenSet>, step: usize) -> Content {
    let options = SetImageOptions {
        frame_cache_bytes: 256 * 1024,
        index_cache_bytes: 256 * 1024,
    };
    let image = SetImage::open(Arc::clone(set), &options).unwrap();
    let files = image.files().0.clone();
    let read = |file: &windlass_engine::media::FileEntry| {
        let mut content = Vec::new();
        while (content.len() as u64) < file.bytes {
            let mut piece = vec![0xee; step];
            let at = content.len() as u64;
            let count = image.read(file.file, at, &mut piece).unwrap();
            assert!(count > 0, "{} at {at}", file.path_lossy());
            let known = image.checksum(file.file, at).unwrap().unwrap();
            assert!(known.end > at && known.end <= file.bytes);
            content.extend_from_slice(&piece[..count]);
        }
        (file.path_lossy(), content)
    };
    files.iter().map(read).collect()
}

pub fn through_restore(set: &OpenSet, into: &Path) -> Content {
    let layout = TargetLayout {
        root: into.to_owned(),
        files: set.description().files.clone(),
        ..TargetLayout::default()
    };
    let target = DirectoryTarget::create(layout).unwrap();
    let fitted = options().fit(set).unwrap();
    restore(set, &target, &fitted, &Arc::default(), &Cancel::new()).unwrap();
    let entries = set.description().files.0.iter();
    let read = |path: String| {
        let content = std::fs::read(into.join(&path)).unwrap();
        (path, content)
    };
    entries.map(|entry| read(entry.path_lossy())).collect()
}

fn assert_same(found: &Content, expected: &Content, what: &str) {
    assert!(found.keys().eq(expected.keys()), "{what}");
    for (path, content) in expected {
        let differs = found[path].iter().zip(content).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{what}: {path}");
        assert_eq!(found[path].len(), content.len(), "{what}: {path}");
    }
}

#[test]
fn every_set_of_a_history_is_what_the_files_were() {
    for seed in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let history = history(seed, 7, dir.path());
        for link in 0..history.len() {
            let what = format!("seed {seed}, set {link}");
            let set = Arc::new(open(history.stripes(link)).unwrap());
            set.check_index().unwrap();
            let expected = history.content(link);
            assert_same(&through_image(&set, 300 + 977 * link), &expected, &what);
            let into = dir.path().join(format!("into{link}"));
            assert_same(&through_restore(&set, &into), &expected, &what);
            let survey = Survey::of(&Files, history.stripes(link), METADATA_LIMIT_DEFAULT).unwrap();
            assert!(verify_index(&survey).unwrap().is_empty(), "{what}");
            let fitted = options().fit(survey.set()).unwrap();
            let found = verify(&survey, &fitted, &Arc::default(), &Cancel::new()).unwrap();
            assert!(found.damage.is_empty(), "{what}: {:?}", found.damage);
        }
    }
}

fn move_file(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap();
    std::fs::remove_file(from).unwrap();
}

/// A chain of a full set and two that build on it, one after the other.
fn three(dir: &Path) -> History {
    let mut history = History::new(5);
    for number in 0..3usize {
        (0..4).for_each(|_| history.live());
        let setup = Setup::small(2, Codec::Zstd(1));
        let place = dir.join(format!("set{number}"));
        history.back_up(&place, number.checked_sub(1), &setup);
    }
    history
}

#[test]
fn a_base_is_found_where_it_was_beside_the_set_and_in_further_places() {
    let dir = tempfile::tempdir().unwrap();
    let history = three(dir.path());
    assert_eq!(open(history.stripes(2)).unwrap().links().count(), 3);
    // All in one place, under other names.
    let together = dir.path().join("together");
    std::fs::create_dir(&together).unwrap();
    let mut newest = Vec::new();
    for link in 0..3 {
        for (index, stripe) in history.stripes(link).iter().enumerate() {
            let to = together.join(format!("any-{link}-{index}"));
            move_file(stripe, &to);
            if link == 2 {
                newest.push(to);
            }
        }
    }
    let set = open(&newest).unwrap();
    let into = dir.path().join("into");
    assert_same(
        &through_restore(&set, &into),
        &history.content(2),
        "together",
    );
    // The newest apart from the others.
    let apart = dir.path().join("apart");
    std::fs::create_dir(&apart).unwrap();
    let moved: Vec<_> = newest
        .iter()
        .map(|stripe| {
            let to = apart.join(stripe.file_name().unwrap());
            move_file(stripe, &to);
            to
        })
        .collect();
    let error = open(&moved).unwrap_err();
    assert!(matches!(error, EngineError::BaseMissing { .. }), "{error}");
    let set = OpenSet::open_among(&Files, &moved, &[together], METADATA_LIMIT_DEFAULT);
    assert_eq!(set.unwrap().links().count(), 3);
}

#[test]
fn a_set_with_the_id_of_the_base_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let history = three(dir.path());
    let error = open(history.stripes(2)).map(drop);
    assert!(error.is_ok());
    let other = tempfile::tempdir().unwrap();
    let mut impostor = History::new(77);
    impostor.live();
    impostor.back_up(other.path(), None, &Setup::small(2, Codec::Zstd(1)));
    for (stripe, with) in history.stripes(0).iter().zip(impostor.stripes(0)) {
        std::fs::copy(with, stripe).unwrap();
    }
    let error = open(history.stripes(2)).unwrap_err();
    assert!(matches!(error, EngineError::BaseDiffers { .. }), "{error}");
    for stripe in history.stripes(0) {
        std::fs::remove_file(stripe).unwrap();
    }
    let error = open(history.stripes(1)).unwrap_err();
    assert!(matches!(error, EngineError::BaseMissing { .. }), "{error}");
    assert!(error.is_damage() && error.hint().is_some());
}

#[test]
fn damage_of_any_set_of_a_chain_is_found_and_costs_only_what_no_newer_set_has() {
    let dir = tempfile::tempdir().unwrap();
    let history = three(dir.path());
    let expected = history.content(2);
    let set = Arc::new(open(history.stripes(2)).unwrap());
    let links: Vec<_> = set.links().map(FoundSet::stripes).collect();
    for stripes in links {
        // Whichever writer is free takes the next frames: a stripe of a small set may have none, or
        // only such as take no room.
        let blocks = stripes.iter().flat_map(|stripe| {
            let blocks = stripe.directory().iter();
            blocks.map(move |block| (stripe, block))
        });
        let mut held = blocks.filter(|(_, block)| block.region_offset < block.offset);
        let (stripe, block) = held.next().unwrap();
        let region = block.region_offset;
        flip(stripe.location(), region + 3);
        let survey = Survey::of(&Files, history.stripes(2), METADATA_LIMIT_DEFAULT).unwrap();
        let fitted = options().fit(survey.set()).unwrap();
        let found = verify(&survey, &fitted, &Arc::default(), &Cancel::new()).unwrap();
        assert_eq!(found.damage.damage_count, 1, "{:?}", found.damage);
        let place = stripe.location().to_string_lossy();
        assert_eq!(found.damage.damage[0].location, place);
        // What the check says is lost cannot be read, and all else is as it was.
        let image = SetImage::open(Arc::clone(&set), &SetImageOptions::default()).unwrap();
        let mut unread = 0;
        for entry in &image.files().0 {
            let content = &expected[&entry.path_lossy()];
            for (at, byte) in (0u64..).zip(content) {
                let mut into = [0];
                match image.read(entry.file, at, &mut into) {
                    Ok(_) => assert_eq!(into, [*byte]),
                    Err(_) => unread += 1,
                }
            }
        }
        assert_eq!(unread, found.damage.lost_bytes, "{:?}", found.damage);
        flip(stripe.location(), region + 3);
    }
}
