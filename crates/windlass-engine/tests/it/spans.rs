//! What footers say of index blocks: where it is refused, and what a wrong one does.

use std::path::Path;

use windlass_engine::media::{BlockSpans, Codec, FileNo, FileSpan, FileTable};
use windlass_engine::{Cancel, EngineError, Mismatch};
use windlass_testkit::chains::long_pair;
use windlass_testkit::reforge::{Parts, reforge};

use crate::support::*;

/// A set of two files in one index block. A range of the first was copied again.
fn of_two_files(dir: &Path) {
    let setup = Setup::small(1, Codec::None);
    let (layered, plain) = (plain(5000, 3), plain(3000, 4));
    let mut run = begin(&setup, file_devices(dir, &setup), &Cancel::new()).unwrap();
    let spec = bytes_spec(0, &layered);
    run.push(spec.clone()).unwrap();
    run.push(bytes_spec(1, &plain)).unwrap();
    run.drain().unwrap();
    run.push_range(&spec, 1000, 500, 1).unwrap();
    run.drain().unwrap();
    let files = [
        entry(0, "layered", layered.len()),
        entry(1, "plain", plain.len()),
    ];
    run.finish(FileTable(files.into()), facts()).unwrap();
}

/// Makes the set again, with its spans and what this changes of them or of the set.
fn changed(stripe: &Path, change: impl FnOnce(&mut [FileSpan], &mut Parts)) {
    reforge(stripe, |parts| {
        let mut spans = FileSpan::of(&parts.block.pieces).unwrap();
        change(&mut spans, parts);
        parts.spans = vec![Some(spans)];
    });
}

/// Opens a set that is refused.
fn mismatch(stripe: &Path) -> Mismatch {
    match open(&[stripe.to_owned()]).unwrap_err() {
        EngineError::Incomplete { what, .. } => what,
        error => panic!("{error}"),
    }
}

#[test]
fn spans_of_no_file_and_beyond_a_file_are_refused_when_the_set_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    of_two_files(dir.path());
    let stripe = stripe_path(dir.path(), 0);
    let set = verify(std::slice::from_ref(&stripe)).unwrap();
    let spans = set.stripes()[0].spans(0).unwrap();
    let [layered, plain] = spans else {
        panic!("{spans:?}")
    };
    assert_eq!(
        (layered.first, layered.end, layered.layer_max),
        (0, 5000, 1)
    );
    assert_eq!((plain.first, plain.end, plain.layer_max), (0, 3000, 0));
    drop(set);
    let (file, offset) = (FileNo(1), 0);
    changed(&stripe, |spans, _| spans[1].end += 1);
    assert_eq!(mismatch(&stripe), Mismatch::PieceBeyond { file, offset });
    changed(&stripe, |_, parts| drop(parts.description.files.0.pop()));
    assert_eq!(mismatch(&stripe), Mismatch::PieceOfNone { file, offset });
}

/// A file with layers may have been longer, so only its block can tell.
#[test]
fn wrong_spans_are_found_by_verify_by_restore_and_by_who_uses_the_block() {
    let changes: [fn(&mut [FileSpan]); 5] = [
        |spans| spans[0].first += 1,
        |spans| spans[0].end -= 1,
        |spans| spans[0].end += 1,
        |spans| spans[1].first += 1,
        |spans| spans[1].end -= 1,
    ];
    for change in changes {
        let dir = tempfile::tempdir().unwrap();
        of_two_files(dir.path());
        let stripe = stripe_path(dir.path(), 0);
        changed(&stripe, |_, _| {});
        verify(std::slice::from_ref(&stripe)).unwrap();
        changed(&stripe, |spans, _| change(spans));
        let set = open(std::slice::from_ref(&stripe)).unwrap();
        let layers = set.asked_layers().unwrap();
        let used = layers[0].near(FileNo(0), 1000, 1500);
        assert!(used.unwrap_err().is_damage());
        drop(set);
        found_by_verify_and_restore(&stripe, dir.path());
    }
}

fn found_by_verify_and_restore(stripe: &Path, dir: &Path) {
    let stripes = [stripe.to_owned()];
    let set = open(&stripes).unwrap();
    let restored = bring_back(&set, &dir.join("into"));
    assert!(restored.unwrap_err().is_damage());
    drop(set);
    let set = open(&stripes).unwrap();
    assert!(set.check_index().unwrap_err().is_damage());
    drop(set);
    let found = check(&stripes).unwrap().damage;
    let of_spans = |fault: &str| fault.contains("other ranges of files than the footer says");
    assert!(found.iter().any(|one| of_spans(&one.fault)), "{found:?}");
}

/// The spans of all blocks of a stripe.
fn spans_of(stripe: &Path) -> Vec<BlockSpans> {
    let set = open(&[stripe.to_owned()]).unwrap();
    let stripe = &set.stripes()[0];
    let blocks = 0..stripe.directory().len();
    let spans = blocks.map(|block| -> BlockSpans { stripe.spans(block).map(Into::into) });
    spans.collect()
}

#[test]
fn a_span_that_hides_something_is_believed_until_its_block_is_read_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    long_pair(dir.path());
    let newest = stripe_path(&dir.path().join("2"), 0);
    let mut spans = spans_of(&newest);
    let last = spans.last_mut().unwrap().as_mut().unwrap();
    let last = last.last_mut().unwrap();
    let (file, first, hidden) = (last.file, last.first, last.end - 1);
    assert!(first + 1 < hidden);
    last.end = first + 1;
    reforge(&newest, |parts| parts.spans = spans);
    let stripes = [newest.clone()];
    let set = open(&stripes).unwrap();
    let layers = set.asked_layers().unwrap();
    let near = |file, at| layers[0].near(file, at, at + 1);
    // The format promises no more than that.
    assert_eq!(near(file, hidden).unwrap(), Some(vec![]));
    assert!(near(file, first).unwrap_err().is_damage());
    // From here on the set is known to be damaged, whoever asks for whatever.
    for (file, at) in [(file, hidden), (FileNo(0), 0), (FileNo(7), 0)] {
        assert!(near(file, at).unwrap_err().is_damage());
        assert!(layers[0].has(file).unwrap_err().is_damage());
        assert!(layers[0].check(file).unwrap_err().is_damage());
    }
    assert!(set.asked_layers().unwrap_err().is_damage());
    drop(layers);
    drop(set);
    // Who checks the file first, as readers of whole files do, believes no span of it.
    let set = open(&stripes).unwrap();
    let layers = set.asked_layers().unwrap();
    assert!(layers[0].check(file).unwrap_err().is_damage());
    assert!(set.upper_layers().unwrap_err().is_damage());
    drop(set);
    found_by_verify_and_restore(&newest, dir.path());
}

/// A block may have pieces of few files whose numbers are far apart. Each of the files between them
/// cost a read of it, where one was enough before there were spans.
#[test]
fn a_block_is_read_once_for_all_files_of_which_it_has_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(1, Codec::None);
    let content = plain(3000, 4);
    let mut run = begin(&setup, file_devices(dir.path(), &setup), &Cancel::new()).unwrap();
    let specs = [bytes_spec(0, &content), bytes_spec(9, &content)];
    for spec in &specs {
        run.push(spec.clone()).unwrap();
    }
    run.drain().unwrap();
    for spec in &specs {
        run.push_range(spec, 1000, 500, 1).unwrap();
    }
    run.drain().unwrap();
    let files = [
        entry(0, "first", content.len()),
        entry(9, "last", content.len()),
    ];
    run.finish(FileTable(files.into()), facts()).unwrap();
    let set = open(&[stripe_path(dir.path(), 0)]).unwrap();
    assert_eq!(set.stripes()[0].spans(0).unwrap().len(), 2);
    let layers = set.asked_layers().unwrap();
    let costs = |file| layers[0].blocks_to_check(FileNo(file));
    assert!((0..10).all(|file| costs(file) == 1));
    layers[0].check(FileNo(4)).unwrap();
    for file in 0..10 {
        let has_some = file == 0 || file == 9;
        assert_eq!(costs(file), usize::from(has_some), "file {file}");
        layers[0].check(FileNo(file)).unwrap();
    }
}

/// Every file that is asked for is checked as a reader of all checks it.
#[test]
fn pieces_that_overlap_in_blocks_with_spans_are_found_by_who_checks_the_file() {
    let dir = tempfile::tempdir().unwrap();
    long_pair(dir.path());
    let newest = stripe_path(&dir.path().join("2"), 0);
    let spans = spans_of(&newest);
    assert!(spans.len() > 1);
    let set = open(std::slice::from_ref(&newest)).unwrap();
    let layers = set.asked_layers().unwrap();
    for file in 0..3 {
        layers[0].check(FileNo(file)).unwrap();
    }
    drop(layers);
    drop(set);
    // The last piece of the last block lies where the first of the first block lies.
    reforge(&newest, |parts| {
        let last = parts.block.pieces.last_mut().unwrap();
        assert_eq!(last.file, FileNo(1));
        last.offset = 0;
        let mut spans = spans;
        *spans.last_mut().unwrap() = FileSpan::of(&parts.block.pieces);
        parts.spans = spans;
    });
    let set = open(&[newest]).unwrap();
    let layers = set.asked_layers().unwrap();
    layers[0].check(FileNo(0)).unwrap();
    for error in [
        layers[0].check(FileNo(1)).unwrap_err(),
        layers[0].near(FileNo(1), 0, 1).map(drop).unwrap_err(),
    ] {
        let is_overlap = |what: &Mismatch| matches!(what, Mismatch::Overlap { .. });
        match error {
            EngineError::Incomplete { what, .. } => assert!(is_overlap(&what), "{what}"),
            error => panic!("{error}"),
        }
    }
}
