//! Damage at drawn places of small sets, as often as `scripts/soak damage` asks for; with counts.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use windlass_engine::media::Codec;

use crate::support::*;

const KINDS: [&str; 5] = ["flip", "zero", "truncate", "swap", "noise"];

/// What became of the damaged sets.
#[derive(Default)]
struct Counts {
    damaged: [u64; KINDS.len()],
    unchanged: u64,
    refused: u64,
    restored_same: u64,
}

/// Does one kind of damage to a stripe.
fn damage(bytes: &mut Vec<u8>, kind: usize, random: &mut Random) {
    let length = bytes.len() as u64;
    let at = random.below(length) as usize;
    let end = (at + 1 + random.below(600) as usize).min(bytes.len());
    match KINDS[kind] {
        "flip" => bytes[at] ^= 1 << random.below(8),
        "zero" => bytes[at..end].fill(0),
        "truncate" => bytes.truncate(at),
        "swap" => {
            let other = random.below(length) as usize;
            let count = 512.min(bytes.len() - at.max(other));
            for index in 0..count {
                bytes.swap(at + index, other + index);
            }
        }
        _ => {
            let noise = random.noise(end - at);
            bytes[at..end].copy_from_slice(&noise);
        }
    }
}

/// Asserts that verify finds the damage, and that a restore fails or gives the same bytes.
fn judge(tree: &Tree, dir: &Path, counts: &mut Counts) {
    let places = [dir.to_owned()];
    let found = check(&places).map_or(true, |report| !report.is_empty());
    assert!(found, "verify found nothing");
    let into = tempfile::tempdir().unwrap();
    let restored = open(&places).and_then(|set| bring_back(&set, into.path()));
    match restored {
        Err(_) => counts.refused += 1,
        Ok(_) => {
            assert_same(tree, into.path());
            counts.restored_same += 1;
        }
    }
}

/// Gives a damaged content to one stripe, judges the set, and restores the stripe.
fn one(tree: &Tree, place: &PathBuf, what: &str, counts: &mut Counts, bytes: &[u8]) {
    let sound = fs::read(place).unwrap();
    if bytes == sound {
        counts.unchanged += 1;
        return;
    }
    write(place, bytes);
    let dir = place.parent().unwrap();
    let judged = catch_unwind(AssertUnwindSafe(|| judge(tree, dir, counts)));
    assert!(judged.is_ok(), "{what}");
    write(place, &sound);
}

#[test]
#[ignore = "takes as long as one asks it to: scripts/soak damage"]
fn drawn_damage_is_found_and_never_restored() {
    let number = |name: &str, default| {
        let text = std::env::var(name).unwrap_or_default();
        text.parse().unwrap_or(default)
    };
    let (cases, seed) = (
        number("WINDLASS_TEST_CASES", 500),
        number("WINDLASS_TEST_SEED", 1),
    );
    let mut random = Random::new(seed);
    let mut counts = Counts::default();
    let mut headers = 0;
    let codecs = [Codec::None, Codec::Lz4, Codec::Zstd(1)];
    for (round, codec) in codecs.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let tree = mixed_tree(seed + round as u64);
        let places = make_set(&tree, dir.path(), &Setup::small(round + 1, codec));
        for place in &places {
            for offset in 0..512 {
                let mut bytes = fs::read(place).unwrap();
                bytes[offset] ^= 1 << random.below(8);
                one(
                    &tree,
                    place,
                    &format!("header byte {offset}"),
                    &mut counts,
                    &bytes,
                );
                headers += 1;
            }
        }
        for case in 0..cases / codecs.len() as u64 {
            let place = &places[random.below(places.len() as u64) as usize];
            let kind = random.below(KINDS.len() as u64) as usize;
            let mut bytes = fs::read(place).unwrap();
            damage(&mut bytes, kind, &mut random);
            let what = format!("seed {seed} codec {codec} case {case}: {}", KINDS[kind]);
            one(&tree, place, &what, &mut counts, &bytes);
            counts.damaged[kind] += 1;
        }
    }
    let drawn: Vec<_> = KINDS.iter().zip(counts.damaged).collect();
    println!(
        "header bytes flipped: {headers}; drawn: {drawn:?}; of these no change: {}",
        counts.unchanged
    );
    println!(
        "found by verify: all; refused by restore: {}; restored with the same bytes: {}",
        counts.refused, counts.restored_same
    );
}
