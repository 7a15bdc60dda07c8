//! A check lists all damage, and what of the files it costs: no more and no less.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use windlass_engine::media::{Codec, FrameEntry, PieceEntry};
use windlass_engine::{
    Cancel, DAMAGE_LISTED_MAX, DamageReport, DamagedPart, Files, OpenSet, Survey, verify_index,
};

use crate::spread::*;
use crate::support::*;

/// A set on three stripes, with frames on each.
struct Fixture {
    dir: tempfile::TempDir,
    places: Vec<PathBuf>,
    set: OpenSet,
}

fn fixture(codec: Codec) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::small(3, codec);
    setup.request.frame_bytes = Some(4096);
    let mut tree = mixed_tree(5);
    let mut random = Random::new(6);
    tree.extend((0..10).map(|index| (format!("more/file{index}"), random.noise(60_000))));
    // Each stripe gets at least one transfer, whichever device is faster.
    let mut run = begin(
        &setup,
        in_turn(file_devices(dir.path(), &setup)),
        &Cancel::new(),
    )
    .unwrap();
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    let files = table(&run, &tree);
    run.finish(files, facts()).unwrap();
    let places = stripe_paths(dir.path(), &setup);
    let set = verify(&places).unwrap();
    Fixture { dir, places, set }
}

type Ranges = BTreeMap<String, Vec<(u64, u64)>>;

impl Fixture {
    fn frames(&self, stripe: usize) -> Vec<(FrameEntry, Vec<PieceEntry>)> {
        let stripe = &self.set.stripes()[stripe];
        let blocks = stripe
            .directory()
            .iter()
            .map(|entry| stripe.index_block(entry).unwrap());
        let mut frames = Vec::new();
        for block in blocks {
            frames.extend(
                block
                    .iter()
                    .map(|(frame, pieces)| (*frame, pieces.to_vec())),
            );
        }
        frames.retain(|(frame, _)| frame.stored_bytes > 0);
        frames
    }

    /// The ranges of files that the pieces cover. Neighbours are joined.
    fn ranges<'a>(&self, pieces: impl Iterator<Item = &'a PieceEntry>) -> Ranges {
        let files = &self.set.description().files.0;
        let mut ranges = Ranges::new();
        for piece in pieces {
            let file = files.iter().find(|file| file.file == piece.file).unwrap();
            let range = (piece.offset, piece.offset + u64::from(piece.bytes));
            ranges.entry(file.path_lossy()).or_default().push(range);
        }
        for ranges in ranges.values_mut() {
            ranges.sort_unstable();
            ranges.dedup_by(|next, last| {
                let joins = next.0 <= last.1;
                if joins {
                    last.1 = next.1;
                }
                joins
            });
        }
        ranges
    }

    fn check(&self) -> DamageReport {
        check(&self.places).unwrap()
    }

    fn index_of(&self) -> DamageReport {
        verify_index(&Survey::of(&Files, &self.places, 1 << 30).unwrap()).unwrap()
    }
}

fn lost(report: &DamageReport) -> Ranges {
    let ranges = |file: &windlass_engine::LostFile| {
        let ranges = file
            .ranges
            .iter()
            .map(|range| (range.offset, range.offset + range.bytes));
        let bytes: u64 = file.ranges.iter().map(|range| range.bytes).sum();
        assert_eq!(bytes, file.lost_bytes, "{}", file.path);
        (file.path.clone(), ranges.collect())
    };
    report.lost.iter().map(ranges).collect()
}

fn parts(report: &DamageReport) -> Vec<(u16, DamagedPart)> {
    let damage = report.damage.iter();
    damage.map(|damage| (damage.stripe, damage.part)).collect()
}

fn flip(place: &Path, offset: u64) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(place)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[test]
fn a_sound_set_has_no_damage() {
    let fixture = fixture(Codec::Zstd(1));
    let report = fixture.check();
    assert!(report.is_empty() && report.files_known, "{report:?}");
    assert_eq!(report, fixture.index_of());
}

#[test]
fn every_damaged_frame_is_listed_with_the_ranges_it_held() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd(1)] {
        let fixture = fixture(codec);
        let (mut expected, mut pieces) = (Vec::new(), Vec::new());
        for (stripe, place) in fixture.places.iter().enumerate() {
            for (frame, own) in fixture.frames(stripe).into_iter().step_by(3) {
                flip(place, frame.offset + u64::from(frame.stored_bytes / 2));
                expected.push((
                    stripe as u16 + 1,
                    frame.offset,
                    u64::from(frame.stored_bytes),
                ));
                pieces.extend(own);
            }
        }
        assert!(expected.len() > 3, "{}", expected.len());
        let report = fixture.check();
        let damage = report.damage.iter();
        let listed: Vec<_> = damage
            .map(|one| (one.stripe, one.offset, one.bytes))
            .collect();
        assert_eq!(listed, expected);
        assert!(
            report
                .damage
                .iter()
                .all(|one| one.part == DamagedPart::Frame)
        );
        assert_eq!(report.damage_count, expected.len() as u64);
        assert_eq!(lost(&report), fixture.ranges(pieces.iter()));
        let bytes: u64 = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        assert_eq!(report.lost_bytes, bytes);
        for one in &report.damage {
            assert_eq!(one.range_count, one.files.len() as u64);
            assert!(one.fault.contains("checksum"), "{}", one.fault);
        }
        // The quick check does not read frames.
        assert!(fixture.index_of().is_empty());
    }
}

#[test]
fn an_index_block_costs_what_it_alone_lists() {
    let fixture = fixture(Codec::Zstd(1));
    let stripe = &fixture.set.stripes()[1];
    let entry = &stripe.directory()[0];
    let block = stripe.index_block(entry).unwrap();
    flip(&fixture.places[1], entry.offset + 70);
    // There is also a damaged frame, on another stripe.
    let (frame, pieces) = fixture.frames(2).remove(0);
    flip(&fixture.places[2], frame.offset);
    for (report, frames) in [(fixture.check(), true), (fixture.index_of(), false)] {
        let mut expected = vec![(2, DamagedPart::IndexBlock)];
        let mut held = block.pieces.clone();
        if frames {
            expected.push((3, DamagedPart::Frame));
            held.extend(&pieces);
        }
        assert_eq!(parts(&report), expected);
        assert_eq!(lost(&report), fixture.ranges(held.iter()));
    }
}

#[test]
fn a_missing_stripe_costs_all_that_it_held() {
    let fixture = fixture(Codec::Lz4);
    let stripe = &fixture.set.stripes()[0];
    let blocks = stripe
        .directory()
        .iter()
        .map(|entry| stripe.index_block(entry).unwrap());
    let pieces: Vec<_> = blocks.flat_map(|block| block.pieces).collect();
    std::fs::remove_file(&fixture.places[0]).unwrap();
    let places = [fixture.places[2].clone()];
    let report = check(&places).unwrap();
    assert_eq!(parts(&report), [(1, DamagedPart::Stripe)]);
    assert_eq!(
        report.damage[0].location,
        fixture.places[0].to_str().unwrap()
    );
    assert_eq!(lost(&report), fixture.ranges(pieces.iter()));
}

#[test]
fn a_damaged_header_footer_or_seal_costs_nothing_and_the_frames_are_still_checked() {
    let places = |fixture: &Fixture| {
        let stripe = &fixture.set.stripes()[1];
        let last = stripe.directory().last().unwrap();
        let footer = last.offset + u64::from(last.bytes);
        [
            (DamagedPart::Header, 40),
            (DamagedPart::Footer, footer + 100),
            (DamagedPart::Seal, stripe.bytes() - 300),
        ]
    };
    for which in 0..3 {
        let fixture = fixture(Codec::Zstd(1));
        let (part, offset) = places(&fixture)[which];
        flip(&fixture.places[1], offset);
        let report = fixture.check();
        assert_eq!(parts(&report), [(2, part)], "{report:?}");
        assert_eq!(lost(&report), Ranges::new());
        let (frame, pieces) = fixture.frames(1).remove(0);
        flip(&fixture.places[1], frame.offset);
        let report = fixture.check();
        let mut expected = vec![(2, part), (2, DamagedPart::Frame)];
        expected.sort_by_key(|(_, part)| *part);
        let mut found = parts(&report);
        found.sort_by_key(|(_, part)| *part);
        assert_eq!(found, expected);
        assert_eq!(lost(&report), fixture.ranges(pieces.iter()));
    }
}

#[test]
fn a_set_of_one_stripe_without_a_footer_is_checked_by_file_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(1, Codec::Zstd(1));
    let places = make_set(&mixed_tree(5), dir.path(), &setup);
    let set = verify(&places).unwrap();
    let stripe = &set.stripes()[0];
    let block = stripe.index_block(&stripe.directory()[0]).unwrap();
    // A frame of zeros has no bytes, and which frame comes first is up to the compressors.
    let mut frames = block.iter();
    let stored = frames.find(|(frame, _)| frame.stored_bytes > 0);
    let (frame, pieces) = stored.unwrap();
    flip(&places[0], stripe.bytes() - 600);
    flip(&places[0], frame.offset);
    let report = check(&places).unwrap();
    assert!(!report.files_known);
    assert_eq!(
        parts(&report),
        [(1, DamagedPart::Frame), (1, DamagedPart::Footer)]
    );
    let number = pieces[0].file;
    assert_eq!(
        report.damage[0].files[0].path,
        format!("file number {number}")
    );
}

#[test]
fn a_stripe_that_was_cut_short_costs_what_lay_behind_the_cut() {
    let fixture = fixture(Codec::None);
    let (last, _) = fixture.frames(0).pop().unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(&fixture.places[0])
        .unwrap();
    file.set_len(last.offset + 1).unwrap();
    let report = fixture.check();
    assert!(
        parts(&report).contains(&(1, DamagedPart::Seal)),
        "{report:?}"
    );
    assert!(
        parts(&report).contains(&(1, DamagedPart::IndexBlock)),
        "{report:?}"
    );
    assert!(report.lost_bytes > 0);
}

#[test]
fn nothing_but_noise_in_the_place_of_a_stripe_is_that_stripe_damaged() {
    let fixture = fixture(Codec::Zstd(1));
    write(&fixture.places[1], &Random::new(1).noise(50_000));
    let report = check(&fixture.places[..1]).unwrap();
    let expected = [
        DamagedPart::Header,
        DamagedPart::IndexBlock,
        DamagedPart::Seal,
    ];
    let found: Vec<_> = report.damage.iter().map(|one| one.part).collect();
    assert!(
        report.damage.iter().all(|one| one.stripe == 2),
        "{report:?}"
    );
    for part in expected {
        assert!(found.contains(&part), "{part:?}: {report:?}");
    }
}

#[test]
fn a_stripe_of_another_run_is_listed_and_not_believed() {
    let fixture = fixture(Codec::Zstd(1));
    let other = tempfile::tempdir().unwrap();
    let places = make_set(
        &mixed_tree(77),
        other.path(),
        &Setup::small(3, Codec::Zstd(1)),
    );
    std::fs::copy(&places[1], &fixture.places[1]).unwrap();
    let report = fixture.check();
    assert_eq!(parts(&report), [(2, DamagedPart::Footer)]);
    assert!(report.lost_bytes > 0);
}

#[test]
fn a_list_that_is_too_long_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::small(1, Codec::None);
    setup.request.frame_bytes = Some(4096);
    let bytes = 4096 * (DAMAGE_LISTED_MAX + 50);
    let tree = vec![("file".to_owned(), Random::new(1).noise(bytes))];
    let places = make_set(&tree, dir.path(), &setup);
    let set = verify(&places).unwrap();
    let stripe = &set.stripes()[0];
    let mut count = 0;
    for entry in stripe.directory() {
        for frame in &stripe.index_block(entry).unwrap().frames {
            flip(&places[0], frame.offset);
            count += 1;
        }
    }
    assert!(count > DAMAGE_LISTED_MAX);
    let report = check(&places).unwrap();
    assert_eq!(report.damage.len(), DAMAGE_LISTED_MAX);
    assert_eq!(report.damage_count, count as u64);
    assert!(report.damage.is_sorted_by_key(|one| one.offset));
    // The whole file is lost, in one range.
    assert_eq!(lost(&report)["file"], [(0, bytes as u64)]);
    assert!(dir.path().exists());
}

#[test]
fn a_set_with_all_its_damage_is_still_refused_by_a_restore() {
    let fixture = fixture(Codec::Zstd(1));
    let (frame, _) = fixture.frames(0).remove(0);
    flip(&fixture.places[0], frame.offset);
    let set = open(&fixture.places).unwrap();
    let error = bring_back(&set, &fixture.dir.path().join("into")).unwrap_err();
    assert!(error.is_damage(), "{error}");
}
