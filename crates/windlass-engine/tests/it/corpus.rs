//! Replays the corpus of whole sets, and small changes of each: no panic, no wait without end.

use std::path::{Path, PathBuf};

use crate::forge::*;
use crate::set_bytes;
use crate::support::*;

const CHANGES: u64 = 250;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/corpus/set")
}

#[test]
fn the_corpus_of_sets_and_small_changes_of_it_do_no_harm() {
    if std::env::var_os("WINDLASS_WRITE_CORPUS").is_some() {
        std::fs::create_dir_all(corpus()).unwrap();
        let written = Forge::default().write(&corpus());
        rename(&written, &corpus().join("one-file"));
    }
    let dir = tempfile::tempdir().unwrap();
    let inputs = names(&corpus());
    assert!(set_bytes::set(
        &std::fs::read(corpus().join("one-file")).unwrap(),
        dir.path()
    ));
    for input in inputs {
        let bytes = std::fs::read(input).unwrap();
        set_bytes::set(&bytes, dir.path());
        let mut random = Random::new(bytes.len() as u64);
        for _ in 0..CHANGES {
            let mut changed = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(changed.len() as u64) as usize;
                let value = [0, 0xff, random.next() as u8][random.below(3) as usize];
                let length = 1 + random.below(8) as usize;
                changed
                    .iter_mut()
                    .skip(at)
                    .take(length)
                    .for_each(|byte| *byte = value);
            }
            set_bytes::set(&changed, dir.path());
        }
    }
}
