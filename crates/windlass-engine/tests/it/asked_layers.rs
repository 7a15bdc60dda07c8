//! What lies over the bytes of a file is found out when somebody asks for the file.

use windlass_engine::media::{Codec, FileNo, FileSpan};
use windlass_testkit::chains::{History, long_pair};
use windlass_testkit::reforge::reforge;
use windlass_testkit::sets::flip;

use crate::support::*;

#[test]
fn opening_reads_no_index_block_and_a_file_costs_those_that_tell_of_it() {
    let dir = tempfile::tempdir().unwrap();
    long_pair(dir.path());
    let newest = stripe_path(&dir.path().join("2"), 0);
    // As an older version wrote it.
    reforge(&newest, |_| {});
    let set = open(&[newest]).unwrap();
    let (first, second) = (FileNo(0), FileNo(1));
    let stripe = &set.stripes()[0];
    let blocks = stripe.directory();
    let others = blocks.iter().filter(|block| block.file_min > first);
    let others: Vec<_> = others.map(|block| block.offset + 40).collect();
    assert!(!others.is_empty() && others.len() < blocks.len());
    let layers = set.asked_layers().unwrap();
    // A full set without layers has no such blocks.
    let unread = || [layers[0].unread_blocks(), layers[1].unread_blocks()];
    assert_eq!(unread(), [blocks.len(), 0]);
    let flip_others = || {
        others
            .iter()
            .for_each(|offset| flip(stripe.location(), *offset))
    };
    flip_others();
    assert_eq!(layers[0].near(first, 0, 1).unwrap().unwrap().len(), 1);
    assert_eq!(layers[1].near(first, 0, 1).unwrap(), None);
    // Nobody has this file.
    assert_eq!(layers[0].near(FileNo(7), 0, 1).unwrap(), None);
    assert_eq!(unread(), [others.len(), 0]);
    let error = layers[0].near(second, 0, 1).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(unread(), [others.len(), 0]);
    flip_others();
    assert_eq!(layers[0].near(second, 0, 1).unwrap().unwrap().len(), 1);
    assert_eq!(unread(), [0, 0]);
    let all = set.upper_layers().unwrap();
    for from in (0..6000 * 4096).step_by(4096 * 7 + 1) {
        let expected = all[0].near(first, from, from + 9000).unwrap();
        let found = layers[0].near(first, from, from + 9000).unwrap();
        assert_eq!(found, Some(expected), "at {from}");
    }
}

#[test]
fn who_asks_for_a_file_gets_what_a_reader_of_all_gets() {
    for seed in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::new(seed);
        for number in 0..5usize {
            history.live();
            let setup = Setup::small(1 + history.below(3), Codec::Lz4);
            let place = dir.path().join(number.to_string());
            history.back_up(&place, number.checked_sub(1), &setup);
        }
        let set = open(history.stripes(4)).unwrap();
        let all = set.upper_layers().unwrap();
        let asked = set.asked_layers().unwrap();
        assert_eq!((all.len(), asked.len()), (5, 5));
        for _ in 0..400 {
            let link = history.below(5);
            let file = FileNo(history.below(18) as u32);
            let from = history.below(64_000) as u64;
            let to = from + history.below(6000) as u64;
            let expected = all[link].near(file, from, to).unwrap();
            let found = asked[link].near(file, from, to).unwrap();
            let what = format!("seed {seed}, set {link}, file {file}, {from} to {to}");
            assert_eq!(found.is_some(), all[link].has(file), "{what}");
            assert_eq!(found.unwrap_or_default(), expected, "{what}");
        }
    }
}

/// A block that two threads have read counts once.
#[test]
fn threads_that_ask_at_once_get_what_one_gets() {
    let dir = tempfile::tempdir().unwrap();
    long_pair(dir.path());
    let newest = stripe_path(&dir.path().join("2"), 0);
    reforge(&newest, |_| {});
    let set = open(&[newest]).unwrap();
    let all = set.upper_layers().unwrap();
    for _ in 0..20 {
        let asked = set.asked_layers().unwrap();
        let ask = |thread: u64| {
            for step in 0..50 {
                let file = FileNo(((thread + step) % 2) as u32);
                let from = (thread * 50 + step) * 100_000;
                let expected = all[0].near(file, from, from + 9000).unwrap();
                let found = asked[0].near(file, from, from + 9000).unwrap();
                assert_eq!(found, Some(expected), "file {file} at {from}");
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let ask = &ask;
                scope.spawn(move || ask(thread));
            }
        });
        assert_eq!(asked[0].unread_blocks(), 0);
    }
}

#[test]
fn a_range_costs_only_the_blocks_whose_spans_reach_it() {
    let dir = tempfile::tempdir().unwrap();
    long_pair(dir.path());
    let set = open(&[stripe_path(&dir.path().join("2"), 0)]).unwrap();
    let stripe = &set.stripes()[0];
    assert_eq!(set.asked_layers().unwrap()[0].unread_blocks(), 0);
    let blocks = stripe.directory();
    assert!(blocks.len() > 1);
    let spans = |block: usize| stripe.spans(block).unwrap().iter().copied();
    for block in 0..blocks.len() {
        let others = || (0..blocks.len()).filter(move |other| *other != block);
        let flip_others =
            || others().for_each(|other| flip(stripe.location(), blocks[other].offset + 40));
        flip_others();
        let layers = set.asked_layers().unwrap();
        for FileSpan { file, first, .. } in (0..blocks.len()).flat_map(spans) {
            let reaches =
                |span: FileSpan| span.file == file && (span.first..span.end).contains(&first);
            // Frames may be out of order, so blocks may reach into each other.
            let needs_other = others().flat_map(spans).any(reaches);
            match layers[0].near(file, first, first + 1) {
                Ok(found) => {
                    assert!(!needs_other, "block {block}, file {file}, {first}");
                    assert_eq!(found.unwrap().len(), 1);
                }
                Err(error) => assert!(needs_other && error.is_damage(), "{error}"),
            }
        }
        flip_others();
    }
}

#[test]
fn with_spans_and_without_them_every_range_is_the_same() {
    let mut compared = 0;
    for seed in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::new(seed);
        for number in 0..3usize {
            history.live();
            let place = dir.path().join(number.to_string());
            let setup = Setup::small(1, Codec::Lz4);
            history.back_up(&place, number.checked_sub(1), &setup);
        }
        let answers = || {
            let set = open(history.stripes(2)).unwrap();
            let has_spans = set.stripes()[0].spans(0).is_some();
            let asked = set.asked_layers().unwrap();
            let mut found = Vec::new();
            for file in 0..18 {
                for from in (0..64_000).step_by(1500) {
                    found.push(asked[0].near(FileNo(file), from, from + 2200).unwrap());
                }
            }
            (has_spans, found)
        };
        let (has_spans, with) = answers();
        if !has_spans {
            // Nothing has changed, so the set has no index block.
            continue;
        }
        reforge(&history.stripes(2)[0], |_| {});
        let (has_spans, without) = answers();
        assert!(!has_spans && with == without, "seed {seed}");
        compared += 1;
    }
    assert!(compared > 0);
}
