//! Places: what is told of many sets from the ends of their stripes.

use std::fs;
use std::path::{Path, PathBuf};

use windlass_engine::media::{Codec, SetId};
use windlass_engine::{
    EngineError, Files, METADATA_LIMIT_DEFAULT, OpenSet, SetList, SetState, list_sets,
};
use windlass_testkit::reads::NotedReads;

use crate::support::*;

fn list(directories: &[&Path]) -> SetList {
    let places: Vec<_> = directories.iter().map(|path| path.to_path_buf()).collect();
    list_sets(&Files, &places, METADATA_LIMIT_DEFAULT).unwrap()
}

fn names(list: &SetList) -> Vec<(u8, &'static str)> {
    let sets = list.sets.iter();
    sets.map(|set| (set.set_id.0[0], set.state.name()))
        .collect()
}

fn tree() -> Tree {
    vec![("file".to_owned(), plain(20_000, 3))]
}

/// A set that was begun `night` seconds after 1970. Its stripes are moved to `sets`.
fn night(dir: &Path, night: u8, stripes: usize) -> Vec<PathBuf> {
    let setup = Setup {
        set_id: SetId([night; 16]),
        created_nanos: i64::from(night) * 1_000_000_000,
        ring: false,
        ..Setup::small(stripes, Codec::Lz4)
    };
    make_set(&tree(), &dir.join(format!("night{night}")), &setup)
}

/// Moves the stripes into one directory, under different names.
fn move_into(sets: &Path, stripes: &[PathBuf]) -> Vec<PathBuf> {
    fs::create_dir_all(sets).unwrap();
    let move_one = |path: &PathBuf| {
        let from = path.parent().unwrap().file_name().unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        let to = sets.join(format!("{}-{name}", from.to_string_lossy()));
        rename(path, &to);
        to
    };
    stripes.iter().map(move_one).collect()
}

#[test]
fn sets_of_several_directories_are_listed_by_id_the_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("disk1"), dir.path().join("disk2"));
    for number in [3, 1, 2] {
        let stripes = night(dir.path(), number, 2);
        move_into(&one, &stripes[..1]);
        move_into(&other, &stripes[1..]);
    }
    write(&one.join("notes.txt"), b"not ours");
    write(&one.join("WNDL"), b"WNDLASS, but no stripe");
    fs::create_dir(one.join("deeper")).unwrap();
    let found = list(&[&one, &other]);
    assert_eq!(names(&found), [(1, "sealed"), (2, "sealed"), (3, "sealed")]);
    let first = &found.sets[0];
    assert_eq!((first.stripe_count, first.stripes.len()), (2, 2));
    assert_eq!(first.begun_nanos, 1_000_000_000);
    let about = first.about.as_ref().unwrap();
    assert_eq!(about.file_bytes, 20_000);
    assert!(found.unknown.is_empty() && found.unfinished.is_empty());
    // Lists only one of the two places, and then one of them twice.
    assert_eq!(names(&list(&[&one]))[0], (1, "incomplete"));
    assert_eq!(names(&list(&[&one, &one, &other]))[0], (1, "sealed"));
}

#[test]
fn of_each_set_its_ends_and_one_footer_are_read_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let sets = dir.path().join("sets");
    for number in 1..=200 {
        move_into(&sets, &night(dir.path(), number, 1));
    }
    let noted = NotedReads::default();
    let found = list_sets(&noted, &[sets], METADATA_LIMIT_DEFAULT).unwrap();
    assert_eq!(found.sets.len(), 200);
    let all_sealed = |set: &windlass_engine::SetEntry| matches!(set.state, SetState::Sealed);
    assert!(found.sets.iter().all(all_sealed));
    let reads = noted.take();
    assert_eq!(reads.len(), 200 * 3, "heads, tails, footers");
    let longest = reads.iter().map(|(_, _, bytes)| *bytes).max();
    assert!(longest <= Some(4096), "{longest:?}");
}

#[test]
fn an_unfinished_copy_of_a_stripe_does_not_hide_a_sealed_set() {
    let dir = tempfile::tempdir().unwrap();
    let sets = dir.path().join("sets");
    let stripes = move_into(&sets, &night(dir.path(), 1, 2));
    let bytes = fs::read(&stripes[0]).unwrap();
    let copy = sets.join("a.windlass.partial");
    write(&copy, &bytes[..bytes.len() / 2]);
    let found = list(&[&sets]);
    assert_eq!(names(&found), [(1, "sealed")]);
    assert_eq!(found.unfinished, [copy]);
    assert!(OpenSet::open(&[sets], METADATA_LIMIT_DEFAULT).is_ok());
}

#[test]
fn a_set_is_damaged_incomplete_or_unfinished_and_the_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let sets = dir.path().join("sets");
    let stripes: Vec<_> = (1..=7)
        .map(|number| move_into(&sets, &night(dir.path(), number, 2)))
        .collect();
    let flip = |path: &Path, from_end: Option<u64>| {
        let mut bytes = fs::read(path).unwrap();
        let at = from_end.map_or(0, |back| bytes.len() - back as usize);
        bytes[at] ^= 1;
        write(path, &bytes);
    };
    flip(&stripes[1][0], None);
    flip(&stripes[2][1], Some(100));
    // The last byte of the footer. The seal has the footer's hash.
    flip(&stripes[3][0], Some(512 + 1));
    fs::remove_file(&stripes[4][1]).unwrap();
    let cut = fs::File::options().write(true).open(&stripes[5][1]);
    cut.unwrap().set_len(1024).unwrap();
    let partial = stripes[5][1].with_extension("windlass.partial");
    rename(&stripes[5][1], &partial);
    write(&sets.join("just-begun.windlass.partial"), b"");
    write(&sets.join("emptied.windlass"), b"");
    let found = list(&[&sets]);
    let expected = [
        (1, "sealed"),
        (2, "damaged"),
        (3, "damaged"),
        (4, "damaged"),
        (5, "incomplete"),
        (6, "unfinished"),
        (7, "sealed"),
    ];
    assert_eq!(names(&found), expected);
    // The seal, the footer or a sibling leads to each damaged set, so each still says what it is.
    assert!(found.sets.iter().all(|set| set.about.is_some()));
    assert_eq!(found.unfinished, [sets.join("just-begun.windlass.partial")]);
    assert_eq!(found.unknown.len(), 1, "{:?}", found.unknown);
    assert_eq!(
        found.unknown[0].file.location,
        sets.join("emptied.windlass")
    );
}

#[test]
fn a_sealed_stripe_that_has_no_name_yet_is_of_a_sealed_set() {
    let dir = tempfile::tempdir().unwrap();
    let stripes = night(dir.path(), 1, 2);
    rename(&stripes[1], &stripes[1].with_extension("windlass.partial"));
    let found = list(&[stripes[0].parent().unwrap()]);
    assert_eq!(names(&found), [(1, "sealed")]);
}

#[test]
fn a_stripe_in_another_place_is_found_where_the_set_says_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let stripes = night(dir.path(), 1, 2);
    let moved = move_into(&dir.path().join("moved"), &stripes[..1]);
    let found = list(&[&dir.path().join("moved")]);
    assert_eq!(names(&found), [(1, "sealed")]);
    assert_eq!(
        found.sets[0].locations(),
        [moved[0].clone(), stripes[1].clone()]
    );
    // The file at that place is no stripe any more. The set counts as damaged, not as incomplete.
    write(&stripes[1], b"overwritten");
    let found = list(&[&dir.path().join("moved")]);
    assert_eq!(names(&found), [(1, "damaged")]);
}

#[test]
fn two_copies_of_a_stripe_in_one_place_are_said_to_be_two() {
    let dir = tempfile::tempdir().unwrap();
    let stripes = night(dir.path(), 1, 1);
    let copy = stripes[0].with_file_name("copy");
    fs::copy(&stripes[0], &copy).unwrap();
    let found = list(&[stripes[0].parent().unwrap()]);
    let fault = found.sets[0].state.fault();
    let is_twice = matches!(fault, Some(EngineError::StripeTwice { .. }));
    assert!(is_twice, "{fault:?}");
    // A second name for the same file does not count as a copy.
    fs::remove_file(&copy).unwrap();
    fs::hard_link(&stripes[0], &copy).unwrap();
    let found = list(&[stripes[0].parent().unwrap()]);
    assert_eq!(names(&found), [(1, "sealed")]);
}
