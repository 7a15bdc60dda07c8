//! Replays the corpus: what fuzzing found worth keeping, and small changes of each, on every run.
//!
//! `testdata/corpus/TARGET/` holds one input a file. With WINDLASS_WRITE_CORPUS set, the seeds
//! that follow from the samples are written; what a fuzzer finds is put beside them by hand.

use std::fs;
use std::path::{Path, PathBuf};

use windlass_media::Codec;

use crate::decoders::TARGETS;
use crate::{encrypted, samples};

const CHANGES: u64 = 300;

fn place(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/corpus")
        .join(target)
}

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(place(target)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

/// An input that consists of a number and then a structure.
fn at(number: u64, bytes: &[u8]) -> Vec<u8> {
    [&number.to_le_bytes(), bytes].concat()
}

fn frame(number: u8, raw_bytes: usize, stored: &[u8]) -> Vec<u8> {
    [&[number], &(raw_bytes as u32).to_le_bytes()[..3], stored].concat()
}

/// The parts of a file with parity, as their target reads them.
fn parity() -> [Vec<u8>; 4] {
    use crate::parity::{AT, block, directory, end};
    let header = crate::decoders::parity_header();
    let end = windlass_media::ParityEnd {
        set_id: header.set_id,
        ..end()
    };
    let record = end.encode();
    let part = |kind: u8, number: u64, bytes: &[u8]| [&[kind], &*at(number, bytes)].concat();
    [
        part(0, 0, &header.encode().unwrap()),
        part(1, AT, &block().encode(&header).unwrap()),
        part(2, 600, &directory().encode(&header)),
        part(3, end.file_bytes, &record[record.len() - 512..]),
    ]
}

/// A frame of two pages of a table, as its target reads it.
fn laid_frame(codec: Codec) -> Vec<u8> {
    let (laid_bytes, raw_bytes, stored) = samples::laid_frame(codec);
    let length = |bytes: usize| (bytes as u32).to_le_bytes();
    let lengths = [&length(raw_bytes)[..3], &length(laid_bytes)[..3]].concat();
    [&[codec.number()], &lengths[..], &stored].concat()
}

fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let raw: Vec<u8> = (0..5000u32).map(|index| (index / 50) as u8).collect();
    let (footers, _) = samples::footers();
    let seal = samples::seal();
    let block = samples::index_block().encode(512).unwrap();
    let block_at = samples::REGION + samples::REGION_BYTES;
    let (lz4, zstd) = (
        samples::stored(Codec::Lz4, &raw),
        samples::stored(Codec::Zstd(1), &raw),
    );
    let [header, group_block, directory, end] = parity();
    vec![
        ("parity", "header", header),
        ("parity", "block", group_block),
        ("parity", "directory", directory),
        ("parity", "end", end),
        ("header", "two-stripes", samples::header().encode().unwrap()),
        ("header", "locked", encrypted::header().encode().unwrap()),
        ("key_file", "two", encrypted::key_file().encode().unwrap()),
        (
            "encrypted",
            "block",
            at(block_at + 512, &encrypted::block()),
        ),
        ("encrypted", "footer", at(0, &encrypted::footer())),
        ("index_block", "two-frames", at(block_at, &block)),
        ("footer", "first-stripe", footers[0].clone()),
        ("footer", "second-stripe", footers[1].clone()),
        (
            "seal",
            "second-stripe",
            at(seal.stripe_bytes, &seal.encode()),
        ),
        (
            "file_table",
            "four-entries",
            samples::files().encode().unwrap(),
        ),
        ("file_table", "none", vec![0; 4]),
        ("facts", "full", samples::facts().encode().unwrap()),
        ("facts", "nested", vec![b'['; 4000]),
        ("frame", "none", frame(0, raw.len(), &raw)),
        ("frame", "lz4", frame(1, raw.len(), &lz4)),
        ("frame", "zstd", frame(2, raw.len(), &zstd)),
        ("frame", "zero", frame(3, raw.len(), &[])),
        ("laid_frame", "none", laid_frame(Codec::None)),
        ("laid_frame", "lz4", laid_frame(Codec::Lz4)),
        ("laid_frame", "zstd", laid_frame(Codec::Zstd(1))),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn write_seeds() {
    for (target, name, bytes) in seeds() {
        fs::create_dir_all(place(target)).unwrap();
        fs::write(place(target).join(name), bytes).unwrap();
    }
}

/// Makes one of many small changes: flips, cuts, insertions, lengths with extreme values.
fn changed(bytes: &[u8], number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 20).unwrap() % limit.max(1)
    };
    let mut bytes = bytes.to_vec();
    for _ in 0..=next(3) {
        let at = next(bytes.len());
        match next(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, next(256) as u8),
            2 => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << next(8)),
            3 => bytes
                .iter_mut()
                .skip(at)
                .take(next(9))
                .for_each(|byte| *byte = 0xff),
            _ => bytes
                .iter_mut()
                .skip(at)
                .take(next(9))
                .for_each(|byte| *byte = 0),
        }
    }
    bytes
}

#[test]
fn the_corpus_and_small_changes_of_it_harm_no_decoder() {
    if std::env::var_os("WINDLASS_WRITE_CORPUS").is_some() {
        write_seeds();
    }
    for (target, decode) in TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "no corpus for {target}");
        for (_, bytes) in inputs {
            decode(&bytes);
            (0..bytes.len())
                .step_by(7)
                .for_each(|length| decode(&bytes[..length]));
            (0..CHANGES).for_each(|number| decode(&changed(&bytes, number)));
        }
    }
}
