//! What a growing object has lost of its end is told until it has come again.

use std::path::PathBuf;

use windlass_postgres::{Lsn, Timeline};
use windlass_repository::{
    Fetched, GrowingLog, GrowingStart, KnownLog, LogPath, LogStep, LostEnd, RepositoryError,
    TimelineLog,
};

use crate::support::*;

const ONE: Timeline = Timeline(1);
const START: u64 = 5 * SEGMENT;
/// Up to where the log was durable.
const DURABLE: u64 = START + 9000;

/// A place that received 9000 bytes, in three parts. Returns its object.
fn received(place: &Place, bytes: &[u8]) -> PathBuf {
    let mut log = open(place, START);
    for part in bytes[..9000].chunks(3000) {
        log.append(log.position(), part).unwrap();
        log.sync().unwrap();
    }
    drop(log);
    place.objects().remove(0)
}

fn open(place: &Place, at: u64) -> GrowingLog {
    GrowingLog::open(&place.log(), (ONE, SEGMENT as u32), Lsn(at), 1).unwrap()
}

fn behind(place: &Place) -> u64 {
    match GrowingLog::start(&place.log(), ONE).unwrap() {
        GrowingStart::Behind(lsn) => lsn.0,
        GrowingStart::Nothing => panic!("it begins anew"),
    }
}

/// What is lost, as every reader finds it.
fn lost(place: &Place) -> LostEnd {
    let known = TimelineLog::of(&place.log(), ONE).unwrap();
    let lost = known.lost.last().unwrap().clone();
    assert!(place.fetch(&name(1, 5)).unwrap_err().is_damage());
    let faults = place.verify().faults;
    assert!(!faults.is_empty() && faults.iter().all(RepositoryError::is_damage));
    let covered = way(START).covered(&KnownLog::of(&place.log()), Lsn(START), (SEGMENT, None));
    assert!(
        matches!(covered, Err(RepositoryError::LostEnd { .. })),
        "{covered:?}"
    );
    lost
}

fn way(from: u64) -> LogPath {
    let step = LogStep {
        timeline: ONE,
        from: Lsn(from),
        to: None,
    };
    LogPath { steps: vec![step] }
}

#[test]
fn what_is_lost_is_told_until_it_has_come_again_whoever_is_killed_meanwhile() {
    // Damage of the header, of the second frame; the last byte is gone, and everything is.
    for (which, end) in [(0, 0), (1, 3000), (2, 6000), (3, 0)] {
        let place = Place::new();
        let bytes = content((1, 1), 5, 5);
        let path = received(&place, &bytes);
        let mut object = std::fs::read(&path).unwrap();
        match which {
            0 => object[20] ^= 1,
            1 => {
                let frames = object.windows(4).enumerate();
                let mut frames = frames.filter(|(_, bytes)| bytes == b"WLFR");
                let second = frames.nth(1).unwrap().0;
                object[second + 50] ^= 1;
            }
            2 => object.truncate(object.len() - 1),
            _ => object.clear(),
        }
        std::fs::write(&path, &object).unwrap();
        let expected = |end: u64, lost: LostEnd| {
            let found = (lost.end, lost.durable);
            assert_eq!(found, (Lsn(end), Some(Lsn(DURABLE))), "{which}");
        };
        // Nothing comes, twice: the server does not have it, or the receiver is killed.
        for _ in 0..2 {
            assert_eq!(behind(&place), START + end, "{which}");
            drop(open(&place, START + end));
            expected(START + end, lost(&place));
        }
        let copies = place.objects();
        let copies = copies
            .iter()
            .filter(|path| path.extension().unwrap() == "damaged");
        assert_eq!(copies.count(), usize::from(which < 3), "{which}");
        // A part comes.
        let mut log = open(&place, START + end);
        let part = &bytes[end as usize..end as usize + 100];
        log.append(Lsn(START + end), part).unwrap();
        log.sync().unwrap();
        expected(START + end + 100, lost(&place));
        drop(log);
        // Another part comes, and what there is is sealed: the key is another one, for example.
        let mut log = open(&place, START + end + 100);
        let part = &bytes[end as usize + 100..end as usize + 200];
        log.append(log.position(), part).unwrap();
        log.end().unwrap();
        expected(START + end + 200, lost(&place));
        // All of it comes.
        assert_eq!(behind(&place), START + end + 200);
        let mut log = open(&place, START + end + 200);
        log.append(log.position(), &bytes[end as usize + 200..9000])
            .unwrap();
        log.sync().unwrap();
        drop(log);
        assert_eq!(TimelineLog::of(&place.log(), ONE).unwrap().lost, []);
        let faults = place.verify().faults;
        assert!(faults.is_empty(), "{which}: {faults:?}");
        let (fetched, found) = place.fetch(&name(1, 5)).unwrap();
        assert_eq!(fetched, Fetched::UpTo { end: Lsn(DURABLE) });
        assert!(found[..9000] == bytes[..9000]);
    }
}

#[test]
fn a_copy_of_damaged_bytes_never_takes_the_place_of_an_earlier_one() {
    let place = Place::new();
    let bytes = content((1, 1), 5, 5);
    let path = received(&place, &bytes);
    let mut damaged = Vec::new();
    for at in [20, 30] {
        let mut object = std::fs::read(&path).unwrap();
        object[at] ^= 1;
        std::fs::write(&path, &object).unwrap();
        damaged.push(object);
        let mut log = open(&place, START);
        log.append(Lsn(START), &bytes[..9000]).unwrap();
        log.sync().unwrap();
    }
    let copies = ["damaged", "damaged-2"].map(|name| path.with_extension(name));
    for (copy, damaged) in copies.iter().zip(&damaged) {
        assert!(std::fs::read(copy).unwrap() == *damaged, "{copy:?}");
    }
    assert!(place.verify().faults.is_empty());
}

/// If nobody knows how much is lost, it may be everything up to the next run of log.
#[test]
fn an_unknown_loss_reaches_up_to_the_next_run_of_log() {
    let place = Place::new();
    let bytes = content((1, 1), 5, 5);
    let path = received(&place, &bytes);
    let mut object = std::fs::read(&path).unwrap();
    object[20] ^= 1;
    std::fs::write(&path, &object).unwrap();
    std::fs::remove_file(&place.marks()[0]).unwrap();
    assert_eq!(lost(&place).durable, None);
    let log = place.log();
    let later = Lsn(START + 2 * SEGMENT);
    let covered = |from: Lsn| way(START).covered(&KnownLog::of(&log), from, (SEGMENT, None));
    let until = |from: Lsn| way(START).lost_from(&KnownLog::of(&log), from).unwrap();
    // A set ends behind the beginning of the loss.
    assert!(covered(later).is_err_and(|error| error.is_damage()));
    assert_eq!(until(later), Some(Lsn(START)));
    assert!(
        place
            .fetch(&name(1, 7))
            .is_err_and(|error| error.is_damage())
    );
    assert_eq!(
        place.fetch_until(&name(1, 7), START).unwrap().0,
        Fetched::Absent
    );
    // It stays unknown until something comes.
    drop(open(&place, behind(&place)));
    assert_eq!(lost(&place).durable, None);
    place.push(&place.segment((1, 7), 7)).unwrap();
    assert_eq!(covered(later).unwrap(), Lsn(START + 3 * SEGMENT));
    assert_eq!(until(later), None);
    assert_eq!(place.fetch(&name(1, 8)).unwrap().0, Fetched::Absent);
    assert!(place.fetch(&name(1, 6)).is_err());
}

/// What a set needs may begin within what is lost.
#[test]
fn a_loss_counts_for_what_lies_within_it_and_on_its_timeline() {
    let place = Place::new();
    let bytes = content((1, 1), 5, 5);
    let path = received(&place, &bytes);
    std::fs::write(&path, &std::fs::read(&path).unwrap()[..10]).unwrap();
    let log = place.log();
    let until = |from: u64, to: Option<u64>| {
        let mut way = way(START);
        way.steps[0].to = to.map(Lsn);
        way.lost_from(&KnownLog::of(&log), Lsn(from)).unwrap()
    };
    assert_eq!(until(START, None), Some(Lsn(START)));
    assert_eq!(until(START + 5000, None), Some(Lsn(START)));
    assert_eq!(until(DURABLE, None), None);
    assert_eq!(until(START - 10, Some(START)), None);
}
