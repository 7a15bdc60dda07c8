//! Replays the corpus of both fuzz targets for pages, and small changes of each input, on every
//! run.
//!
//! `testdata/corpus/pages/` and `testdata/corpus/page_streams/` hold one input a file. With
//! WINDLASS_WRITE_CORPUS set, the seeds that follow from golden frames are written; what a fuzzer
//! finds is put beside them by hand.

use std::fs;
use std::path::{Path, PathBuf};

use windlass_pages::{Encoded, Encoder, Layout, Streams};

use crate::decoders::{page_streams, pages};
use crate::golden::{Golden, decode, golden};
use crate::support::{Draw, damage, slices};

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 2] = [("pages", pages), ("page_streams", page_streams)];
/// How many golden frames of each kind become seeds.
const SEEDS: usize = 3;
const CHANGES: usize = if cfg!(miri) { 1 } else { 60 };

fn place(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/corpus")
        .join(target)
}

/// A number as the directory of a frame has it.
fn number(bytes: &mut &[u8]) -> usize {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (number, rest) = bytes.split_at(length);
    *bytes = rest;
    let digits = number.iter().rev();
    digits.fold(0, |all, byte| all << 7 | usize::from(byte & 0x7F))
}

/// The description of the pages of a golden frame, as docs/format.md says where it is.
pub fn description(golden: &Golden) -> &[u8] {
    let mut rest = &golden.stored[1 + 8 * usize::from(golden.stored[0])..];
    for _ in 0..number(&mut rest) {
        number(&mut rest);
    }
    let length = number(&mut rest);
    &rest[..length]
}

fn with_layout(layout: &[u8]) -> Vec<u8> {
    [&(layout.len() as u16).to_le_bytes(), layout].concat()
}

/// What both targets read: a layout with pages, and the same layout with the streams of them.
fn seeds(golden: &Golden) -> [Vec<u8>; 2] {
    let (description, raw) = (description(golden), decode(golden));
    let layout = Layout::from_bytes(description).unwrap();
    let mut streams = Streams::new();
    let encoded = Encoder::new().encode(&layout, &raw, &mut streams);
    assert_eq!(encoded, Encoded::Streams, "{}", golden.name);
    let mut of_streams = with_layout(description);
    of_streams.push((raw.len() / layout.page_size().bytes()) as u8);
    for stream in slices(&streams) {
        of_streams.extend(&(stream.len() as u32).to_le_bytes()[..3]);
        of_streams.extend(stream);
    }
    [[with_layout(description), raw].concat(), of_streams]
}

fn write_seeds() {
    for kind in ["heap", "btree", "sqlite"] {
        let of_kind = |golden: &&Golden| golden.name.starts_with(kind);
        for golden in golden().iter().filter(of_kind).step_by(4).take(SEEDS) {
            for ((target, _), seed) in TARGETS.into_iter().zip(seeds(golden)) {
                fs::create_dir_all(place(target)).unwrap();
                fs::write(place(target).join(&golden.name), seed).unwrap();
            }
        }
    }
}

#[test]
fn the_corpus_and_small_changes_of_it_do_no_harm() {
    if std::env::var_os("WINDLASS_WRITE_CORPUS").is_some() {
        write_seeds();
    }
    let mut draw = Draw::new(23);
    for (target, run) in TARGETS {
        let entries = fs::read_dir(place(target)).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(paths.len() >= 3 * SEEDS, "no corpus for {target}");
        for path in paths {
            let input = fs::read(path).unwrap();
            run(&input);
            for _ in 0..CHANGES {
                let mut changed = input.clone();
                damage(&mut changed, &mut draw);
                changed.truncate(input.len() - draw.below(4) * draw.below(input.len()) / 4);
                run(&changed);
            }
        }
    }
}
