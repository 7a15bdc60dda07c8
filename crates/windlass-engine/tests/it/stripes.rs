//! Ids decide, not names: stripes are found wherever they are, and strangers are refused.

use std::fs;
use std::path::{Path, PathBuf};

use windlass_engine::media::{Codec, FileTable, SetId, StripeIndex};
use windlass_engine::{
    BackupRun, Cancel, EngineError, FileDevice, FileDeviceOptions, glance, partial_path,
};

use crate::support::*;

fn three() -> Setup {
    Setup::small(3, Codec::Zstd(1))
}

struct Fixture {
    dir: tempfile::TempDir,
    tree: Tree,
    places: Vec<PathBuf>,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let tree = mixed_tree(1);
    let places = make_set(&tree, &dir.path().join("sets"), &three());
    Fixture { dir, tree, places }
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Asserts that `places` lead to this set, and that it restores right.
    fn assert_opens(&self, places: &[PathBuf]) {
        let set = verify(places).unwrap();
        let into = tempfile::tempdir().unwrap();
        bring_back(&set, into.path()).unwrap();
        assert_same(&self.tree, into.path());
    }
}

fn copy_to(from: &[PathBuf], dir: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(dir).unwrap();
    let copy = |path: &PathBuf| {
        let to = dir.join(path.file_name().unwrap());
        fs::copy(path, &to).unwrap();
        to
    };
    from.iter().map(copy).collect()
}

#[test]
fn any_stripe_alone_leads_to_the_others() {
    let fixture = fixture();
    for place in &fixture.places {
        fixture.assert_opens(std::slice::from_ref(place));
    }
}

#[test]
fn a_directory_leads_to_the_set_in_it() {
    let fixture = fixture();
    fixture.assert_opens(&[fixture.path("sets")]);
}

#[test]
fn a_set_moved_to_another_directory_opens() {
    let fixture = fixture();
    let moved = fixture.path("elsewhere");
    rename(&fixture.path("sets"), &moved);
    fixture.assert_opens(std::slice::from_ref(&moved));
    fixture.assert_opens(&[stripe_path(&moved, 1)]);
}

#[test]
fn stripes_in_different_directories_open_when_all_are_named() {
    let fixture = fixture();
    let mut named = Vec::new();
    for (index, place) in fixture.places.iter().enumerate() {
        let to = fixture.path(&format!("disk{index}"));
        fs::create_dir(&to).unwrap();
        named.push(to.join(format!("renamed-{index}")));
        rename(place, &named[index]);
    }
    fixture.assert_opens(&named);
    let directories: Vec<_> = named
        .iter()
        .rev()
        .map(|path| path.parent().unwrap().to_owned())
        .collect();
    fixture.assert_opens(&directories);
}

#[test]
fn a_sibling_is_found_at_its_recorded_location() {
    let fixture = fixture();
    let away = fixture.path("away.windlass");
    rename(&fixture.places[0], &away);
    fixture.assert_opens(&[away]);
}

#[test]
fn names_swapped_change_nothing() {
    let fixture = fixture();
    let spare = fixture.path("spare");
    rename(&fixture.places[0], &spare);
    rename(&fixture.places[2], &fixture.places[0]);
    rename(&spare, &fixture.places[2]);
    for place in &fixture.places {
        fixture.assert_opens(std::slice::from_ref(place));
    }
    fixture.assert_opens(&[fixture.path("sets")]);
}

#[test]
fn a_missing_stripe_is_named() {
    for index in 0..3u16 {
        let fixture = fixture();
        fs::remove_file(&fixture.places[usize::from(index)]).unwrap();
        let error = open(&[fixture.path("sets")]).unwrap_err();
        let expected = StripeIndex(index);
        assert!(
            matches!(&error, EngineError::StripeMissing { stripe, location, .. }
                if *stripe == expected && location.ends_with(&format!("set.{index}.windlass"))),
            "{error}"
        );
    }
}

#[test]
fn two_sets_in_one_directory_are_told_apart_by_naming_a_stripe() {
    let fixture = fixture();
    let setup = Setup {
        set_id: SetId([8; 16]),
        ..three()
    };
    let other = make_set(&mixed_tree(2), &fixture.path("other"), &setup);
    for (index, path) in other.iter().enumerate() {
        rename(path, &fixture.path("sets").join(format!("other{index}")));
    }
    let error = open(&[fixture.path("sets")]).unwrap_err();
    assert!(matches!(error, EngineError::SetsMixed { .. }), "{error}");
    fixture.assert_opens(&fixture.places[1..2]);
    let named = [fixture.places[0].clone(), fixture.path("sets/other1")];
    let error = open(&named).unwrap_err();
    assert!(matches!(error, EngineError::SetsMixed { .. }), "{error}");
    // Which stripe is of which set.
    let mixed = error.to_string();
    for (path, set) in named.iter().zip([three().set_id, setup.set_id]) {
        let says = format!("\n  {} is of set {set}", path.display());
        assert!(mixed.contains(&says), "{mixed}");
    }
}

#[test]
fn a_stripe_of_another_set_in_a_siblings_place_is_not_taken_for_it() {
    let fixture = fixture();
    let setup = Setup {
        set_id: SetId([8; 16]),
        ..three()
    };
    let other = make_set(&mixed_tree(1), &fixture.path("other"), &setup);
    fs::copy(&other[1], &fixture.places[1]).unwrap();
    let error = open(&fixture.places[..1]).unwrap_err();
    assert!(
        matches!(
            &error,
            EngineError::StripeMissing {
                stripe: StripeIndex(1),
                ..
            }
        ),
        "{error}"
    );
}

/// A user who verifies a copy wants to know about the copy, even if the original is still there.
#[test]
fn a_damaged_copy_is_not_replaced_by_its_original() {
    let fixture = fixture();
    let copies = copy_to(&fixture.places, &fixture.path("copies"));
    let mut bytes = fs::read(&copies[1]).unwrap();
    bytes[0] ^= 1;
    write(&copies[1], &bytes);
    for place in [copies[0].clone(), fixture.path("copies")] {
        let error = open(&[place]).unwrap_err();
        let EngineError::Damage { location, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(Path::new(location), copies[1]);
    }
    // If the copy of a stripe is missing, the original is used.
    fs::remove_file(&copies[1]).unwrap();
    fixture.assert_opens(&copies[..1]);
}

#[test]
fn a_copy_of_a_stripe_beside_it_is_refused_in_a_directory_and_ignored_otherwise() {
    let fixture = fixture();
    let copy = fixture.path("sets/copy");
    fs::copy(&fixture.places[1], &copy).unwrap();
    let error = open(&[fixture.path("sets")]).unwrap_err();
    assert!(
        matches!(
            &error,
            EngineError::StripeTwice {
                stripe: StripeIndex(1),
                ..
            }
        ),
        "{error}"
    );
    fixture.assert_opens(&fixture.places[..1]);
    fixture.assert_opens(&[copy]);
}

#[test]
fn a_hard_link_to_a_stripe_is_the_stripe() {
    let fixture = fixture();
    fs::hard_link(&fixture.places[1], fixture.path("sets/link")).unwrap();
    fixture.assert_opens(&[fixture.path("sets")]);
}

#[test]
fn a_stripe_rolled_back_to_an_older_run_of_the_same_id_is_found() {
    let fixture = fixture();
    // The content differs, but id and names are the same, as in a copy of one stripe from
    // yesterday.
    let older = copy_to(&fixture.places, &fixture.path("older"));
    fixture
        .places
        .iter()
        .for_each(|place| fs::remove_file(place).unwrap());
    make_set(&mixed_tree(99), &fixture.path("sets"), &three());
    for (place, old) in fixture.places.iter().zip(&older) {
        let newer = fs::read(place).unwrap();
        fs::copy(old, place).unwrap();
        for named in &fixture.places {
            let error = open(std::slice::from_ref(named)).unwrap_err();
            assert!(error.is_damage(), "{error}");
        }
        write(place, &newer);
    }
    verify(&fixture.places).unwrap();
}

#[test]
fn all_but_one_stripe_rolled_back_together_is_found() {
    let fixture = fixture();
    let older = copy_to(&fixture.places, &fixture.path("older"));
    fixture
        .places
        .iter()
        .for_each(|place| fs::remove_file(place).unwrap());
    make_set(&mixed_tree(99), &fixture.path("sets"), &three());
    fs::copy(&older[0], &fixture.places[0]).unwrap();
    fs::copy(&older[1], &fixture.places[1]).unwrap();
    assert!(open(&[fixture.path("sets")]).unwrap_err().is_damage());
}

#[test]
fn other_files_in_the_directory_do_not_matter() {
    let fixture = fixture();
    write(&fixture.path("sets/README"), b"not a stripe");
    write(&fixture.path("sets/empty"), b"");
    fs::create_dir(fixture.path("sets/dir")).unwrap();
    std::os::unix::fs::symlink("/nowhere", fixture.path("sets/dangling")).unwrap();
    fixture.assert_opens(&[fixture.path("sets")]);
}

#[test]
fn a_place_without_a_set_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for place in [dir.path().to_owned(), dir.path().join("nothing")] {
        let error = open(&[place]).unwrap_err();
        assert!(matches!(error, EngineError::NoSet { .. }), "{error}");
    }
}

#[test]
fn a_glance_shows_what_is_there_and_what_is_wrong_with_it() {
    let fixture = fixture();
    let length = fs::metadata(&fixture.places[1]).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&fixture.places[1])
        .unwrap()
        .set_len(length - 1)
        .unwrap();
    let glances = glance(&windlass_engine::Files, &[fixture.path("sets")], 1 << 20).unwrap();
    let faulty: Vec<_> = glances
        .iter()
        .map(|glance| glance.fault.is_some())
        .collect();
    assert_eq!(faulty, [false, true, false]);
    assert_eq!(
        glances[0].description.as_ref().unwrap().files.0.len(),
        fixture.tree.len()
    );
}

/// A backup that is ready to be sealed, to one stripe in `dir`.
fn unsealed(dir: &Path, setup: &Setup, overwrite: bool) -> (BackupRun, FileTable) {
    let tree = mixed_tree(5);
    let options = FileDeviceOptions {
        overwrite,
        alignment: setup.request.alignment.unwrap_or(4096),
        ..FileDeviceOptions::default()
    };
    let device = FileDevice::create(&stripe_path(dir, 0), options).unwrap();
    let mut run = begin(setup, vec![Box::new(device)], &Cancel::new()).unwrap();
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    let files = table(&run, &tree);
    (run, files)
}

#[test]
fn a_file_that_appears_under_the_name_of_a_stripe_is_never_replaced() {
    for overwrite in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::small(1, Codec::Lz4);
        let (run, files) = unsealed(dir.path(), &setup, overwrite);
        let name = stripe_path(dir.path(), 0);
        write(&name, b"precious");
        let error = run.finish(files, facts()).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        assert_eq!(std::fs::read(&name).unwrap(), b"precious", "{overwrite}");
        // The set is sealed and can be used where it is.
        verify(&[partial_path(&name)]).unwrap();
    }
}

#[test]
fn a_stripe_that_was_moved_or_replaced_meanwhile_makes_no_set() {
    for replaced in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::small(1, Codec::Lz4);
        let (run, files) = unsealed(dir.path(), &setup, false);
        let partial = partial_path(&stripe_path(dir.path(), 0));
        rename(&partial, &dir.path().join("away"));
        if replaced {
            write(&partial, b"junk");
        }
        let error = run.finish(files, facts()).unwrap_err();
        assert!(matches!(error, EngineError::StripeTaken { .. }), "{error}");
        assert!(!stripe_path(dir.path(), 0).exists());
        // What is there now belongs to somebody else.
        assert_eq!(partial.exists(), replaced);
        assert!(
            verify(&[dir.path().join("away")]).is_err(),
            "it is not sealed"
        );
    }
}

#[test]
fn a_device_with_other_blocks_than_the_set_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(1, Codec::Lz4);
    let device = FileDevice::create(&stripe_path(dir.path(), 0), FileDeviceOptions::default());
    let begun = begin(&setup, vec![Box::new(device.unwrap())], &Cancel::new());
    let error = begun.map(drop).unwrap_err();
    assert!(error.to_string().contains("4096"), "{error}");
}

#[test]
fn a_second_backup_to_the_same_name_is_told_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let create = || FileDevice::create(&stripe_path(dir.path(), 0), FileDeviceOptions::default());
    let first = create().unwrap();
    let error = create().map(drop).unwrap_err();
    let said = error.to_string();
    let expected = "another run is writing a backup with this name";
    assert!(said.ends_with(expected), "{said}");
    assert!(error.hint().unwrap().starts_with("Wait for that backup"));
    drop(first);
}
