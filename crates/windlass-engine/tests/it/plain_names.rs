//! Names on a file system that has no hard links, and no rename that refuses to replace.

use std::fs;
use std::path::PathBuf;

use windlass_engine::media::Codec;
use windlass_engine::{
    CleanedUp, Device, EngineError, FileDevice, FileDeviceOptions, clean_up, partial_path,
};
use windlass_testkit::plain_names::{PlainNames, Renames};

use crate::support::*;

fn one() -> Setup {
    Setup::small(1, Codec::Zstd(1))
}

/// A sealed set in the directory `sets` whose only stripe has no name yet.
fn unnamed(names: &PlainNames) -> (Tree, PathBuf) {
    let tree = mixed_tree(1);
    let stripes = make_set(&tree, &names.path("sets"), &one());
    rename(&stripes[0], &partial_path(&stripes[0]));
    (tree, stripes[0].clone())
}

fn create(path: &std::path::Path) -> FileDevice {
    FileDevice::create(path, FileDeviceOptions::default()).unwrap()
}

fn publish(names: &PlainNames, renames: Renames) -> (Result<(), EngineError>, PathBuf) {
    let path = names.path("set");
    let mut device = create(&path);
    device.write(0, &[1; 4096]).unwrap();
    names.set_renames(renames);
    let published = device.publish();
    drop(device);
    names.set_renames(Renames::Work);
    (published, path)
}

#[test]
fn a_backup_gets_its_names_where_no_rename_refuses_to_replace() {
    let names = PlainNames::mount();
    let tree = mixed_tree(1);
    let stripes = make_set(&tree, &names.path("sets"), &Setup::small(3, Codec::Lz4));
    let into = tempfile::tempdir().unwrap();
    bring_back(&open(&stripes).unwrap(), into.path()).unwrap();
    assert_same(&tree, into.path());
    assert_eq!(fs::read_dir(names.path("sets")).unwrap().count(), 3);
}

#[test]
fn what_has_the_name_there_is_not_replaced() {
    let names = PlainNames::mount();
    let path = names.path("set");
    let mut device = create(&path);
    write(&path, b"eggs, milk");
    let error = device.publish().unwrap_err();
    assert!(error.to_string().contains("appeared"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"eggs, milk");
    assert!(partial_path(&path).exists());
}

#[test]
fn a_name_that_cannot_be_given_is_not_kept_reserved() {
    let names = PlainNames::mount();
    let (published, path) = publish(&names, Renames::Fail);
    assert!(matches!(published, Err(EngineError::DeviceIo { .. })));
    assert!(!path.exists() && partial_path(&path).exists());
}

#[test]
fn a_rename_whose_answer_was_lost_gave_the_name() {
    let names = PlainNames::mount();
    let (published, path) = publish(&names, Renames::LoseAnswer);
    published.unwrap();
    assert_eq!(fs::read(&path).unwrap(), [1; 4096]);
    assert!(!partial_path(&path).exists());
}

#[test]
fn a_name_that_a_crash_left_reserved_is_given_by_the_next_run() {
    let names = PlainNames::mount();
    let (tree, stripe) = unnamed(&names);
    names.set_renames(Renames::Die);
    clean_up(&names.path("sets")).unwrap_err();
    names.set_renames(Renames::Work);
    let reserved = fs::read_to_string(&stripe).unwrap();
    assert!(reserved.contains("set.0.windlass.partial"), "{reserved}");
    let done = clean_up(&names.path("sets")).unwrap();
    assert_eq!(done, [CleanedUp::Published(stripe.clone())]);
    let into = tempfile::tempdir().unwrap();
    bring_back(&open(&[stripe]).unwrap(), into.path()).unwrap();
    assert_same(&tree, into.path());
}

#[test]
fn a_name_that_is_reserved_for_another_stripe_is_not_taken() {
    let names = PlainNames::mount();
    let (_, stripe) = unnamed(&names);
    names.set_renames(Renames::Die);
    clean_up(&names.path("sets")).unwrap_err();
    names.set_renames(Renames::Work);
    let reserved = fs::read(&stripe).unwrap();
    let other = names.path("sets/other.windlass");
    rename(&stripe, &other);
    let mut device = create(&names.path("sets/new.windlass"));
    rename(&other, &names.path("sets/new.windlass"));
    device.publish().unwrap_err();
    let kept = fs::read(names.path("sets/new.windlass")).unwrap();
    assert_eq!(kept, reserved);
}
