//! What a growing object has lost of its end is told until it has come again.

use std::path::PathBuf;

use windlass_engine::media::Codec;
use windlass_postgres::{Lsn, Timeline};
use windlass_repository::{
    CopyRequest, Expired, Fetched, GrowingLog, GrowingStart, KnownLog, LogPath, LogStep, LostEnd,
    RepositoryError, TimelineLog, copy,
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
    growing(place, "/00000001/")
}

/// The object that grows in this folder.
fn growing(place: &Place, folder: &str) -> PathBuf {
    let is_it = |path: &PathBuf| {
        let path = path.to_string_lossy();
        path.contains(folder) && path.ends_with("-open.wlog")
    };
    place.objects().into_iter().find(is_it).unwrap()
}

fn open(place: &Place, at: u64) -> GrowingLog {
    open_on(place, ONE, at)
}

fn open_on(place: &Place, timeline: Timeline, at: u64) -> GrowingLog {
    GrowingLog::open(&place.log(), (timeline, SEGMENT as u32), Lsn(at), 1).unwrap()
}

/// Appends the bytes from where the log ends up to `to`, of a segment that begins at `START`.
fn append(log: &mut GrowingLog, bytes: &[u8], to: usize) {
    let from = (log.position().0 - START) as usize;
    log.append(log.position(), &bytes[from..to]).unwrap();
    log.sync().unwrap();
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
    let until = |from: Lsn| {
        way(START)
            .lost_from(&KnownLog::of(&log), (from, SEGMENT))
            .unwrap()
    };
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
        way.lost_from(&KnownLog::of(&log), (Lsn(from), SEGMENT))
            .unwrap()
    };
    assert_eq!(until(START, None), Some(Lsn(START)));
    assert_eq!(until(START + 5000, None), Some(Lsn(START)));
    assert_eq!(until(DURABLE, None), None);
    assert_eq!(until(START - 10, Some(START)), None);
}

/// A place whose object ends at 6000, and nobody knows up to where it was durable.
fn unknown(bytes: &[u8]) -> Place {
    let place = Place::new();
    let path = received(&place, bytes);
    let object = std::fs::read(&path).unwrap();
    std::fs::write(&path, &object[..object.len() - 1]).unwrap();
    std::fs::write(&place.marks()[0], [7; 10]).unwrap();
    let lost = lost(&place);
    assert_eq!((lost.end, lost.durable), (Lsn(START + 6000), None));
    place
}

#[test]
fn an_unknown_loss_is_told_until_all_has_come_that_may_be_lost() {
    let bytes = content((1, 1), 5, 5);
    // The receiver is killed after each part. What it asks for ends where the server's log ends.
    let place = unknown(&bytes);
    for (to, bound) in [(6100, None), (6900, Some(7000)), (6950, None), (6960, None)] {
        let mut log = open(&place, behind(&place));
        if let Some(bound) = bound {
            log.bound_lost(Lsn(START + bound));
        }
        append(&mut log, &bytes, to);
        drop(log);
        let lost = lost(&place);
        assert_eq!((lost.end.0 - START, lost.durable), (to as u64, None));
    }
    let mut log = open(&place, behind(&place));
    log.bound_lost(Lsn(START + 7000));
    append(&mut log, &bytes, 7000);
    drop(log);
    assert!(place.verify().faults.is_empty());
    assert_eq!(TimelineLog::of(&place.log(), ONE).unwrap().lost, []);
    // An object ends with its segment, so it has lost nothing behind that.
    let place = unknown(&bytes);
    let mut log = open(&place, behind(&place));
    append(&mut log, &bytes, SEGMENT as usize - 1);
    lost(&place);
    append(&mut log, &bytes, SEGMENT as usize);
    assert!(place.verify().faults.is_empty());
    assert!(place.marks().is_empty());
}

#[test]
fn what_was_copied_of_an_unknown_loss_is_not_all_of_it() {
    let bytes = content((1, 1), 5, 5);
    let place = unknown(&bytes);
    std::fs::write(place.wal(&name(1, 5)), &bytes).unwrap();
    let copied = |to: u64| {
        let request = CopyRequest {
            directory: place.wal(""),
            segment_bytes: SEGMENT,
            from: Lsn(0),
            end: (ONE, Lsn(START + to)),
            history: Vec::new(),
            codec: Codec::Zstd(1),
            threads: 1,
        };
        copy(&place.log(), &request).unwrap().bytes
    };
    assert_eq!(copied(8000), 2000);
    let lost = lost(&place);
    assert_eq!(lost.durable, None);
    let known = TimelineLog::of(&place.log(), ONE).unwrap();
    let gaps: Vec<_> = known.gaps().map(|gap| gap.start.0 - START).collect();
    assert_eq!(gaps, [8000]);
    assert!(!place.log().lost_ends().unwrap().is_empty());
    assert_eq!(copied(SEGMENT), SEGMENT - 8000);
    assert_eq!(place.log().lost_ends().unwrap(), []);
    assert!(place.marks().is_empty());
}

/// A place that has lost 3000 to 9000 of a segment on timeline 1, which timeline 2 left at
/// `left_at`. Timeline 2 begins with the same segment.
fn left(left_at: u64) -> Place {
    let place = Place::new();
    let bytes = content((1, 1), 5, 5);
    place.push(&place.segment((1, 4), 4)).unwrap();
    let path = received(&place, &bytes);
    let object = std::fs::read(&path).unwrap();
    let frames = object.windows(4).enumerate();
    let mut frames = frames.filter(|(_, bytes)| bytes == b"WLFR");
    let second = frames.nth(1).unwrap().0;
    std::fs::write(&path, &object[..second]).unwrap();
    let history = place.wal("00000002.history");
    let text = format!("1\t{}\tno reason\n", Lsn(START + left_at));
    std::fs::write(&history, text).unwrap();
    place.push(&history).unwrap();
    place
}

/// The way from timeline 1 to timeline 2.
fn to_two(left_at: u64) -> LogPath {
    let step = |timeline, from, to| LogStep {
        timeline: Timeline(timeline),
        from: Lsn(from),
        to,
    };
    let left_at = START + left_at;
    let steps = vec![
        step(1, 4 * SEGMENT, Some(Lsn(left_at))),
        step(2, left_at, None),
    ];
    LogPath { steps }
}

#[test]
fn a_loss_on_a_timeline_that_was_left_before_it_is_a_gap_of_that_timeline() {
    for left_at in [2000, 5000] {
        let place = left(left_at);
        // Until timeline 2 has the segment, what it repeats of it is needed.
        let is_left = || TimelineLog::of(&place.log(), ONE).unwrap().lost[0].is_left;
        assert_eq!(is_left(), left_at == 2000);
        let path = place.wal(&name(2, 5));
        std::fs::write(&path, content((2, 1), 5, 5)).unwrap();
        place.push(&path).unwrap();
        assert!(is_left(), "{left_at}");
        let check = place.verify();
        assert!(check.faults.is_empty(), "{:?}", check.faults);
        assert_eq!(check.left.len(), 1);
        assert_eq!(check.left[0].end, Lsn(START + 3000));
        let log = place.log();
        let known = KnownLog::of(&log);
        let newer = to_two(left_at);
        let from = Lsn(4 * SEGMENT);
        let covered = newer.covered(&known, from, (SEGMENT, None)).unwrap();
        assert_eq!(covered, Lsn(START + SEGMENT));
        assert_eq!(newer.lost_from(&known, (from, SEGMENT)).unwrap(), None);
        // On timeline 1 it stays missing.
        let current = way(from.0).covered(&known, from, (SEGMENT, None));
        assert!(current.is_err_and(|error| error.is_damage()));
        // It goes with the log around it.
        let passed = Expired::before(Lsn(6 * SEGMENT));
        place.log().expire(passed).unwrap();
        assert!(place.marks().is_empty());
        assert!(place.verify().left.is_empty());
    }
}

/// What timeline 2 repeats of a segment is lost, and no more: a server asks for it on timeline 2.
#[test]
fn a_loss_in_what_a_timeline_repeats_counts_on_the_way_to_it() {
    let place = left(5000);
    place.push(&place.segment((1, 5), 5)).unwrap();
    let two = Timeline(2);
    let bytes = content((2, 1), 5, 5);
    let mut log = open_on(&place, two, START);
    append(&mut log, &bytes, 3000);
    append(&mut log, &bytes, 4000);
    drop(log);
    let path = growing(&place, "/00000002/");
    let object = std::fs::read(&path).unwrap();
    std::fs::write(&path, &object[..object.len() - 1]).unwrap();
    let log = place.log();
    let (known, way) = (KnownLog::of(&log), to_two(5000));
    let from = Lsn(4 * SEGMENT);
    let covered = way.covered(&known, from, (SEGMENT, None));
    assert!(covered.is_err_and(|error| error.is_damage()));
    let end = Lsn(START + 3000);
    assert_eq!(way.lost_from(&known, (from, SEGMENT)).unwrap(), Some(end));
    let fetched = place.fetch_until(&name(2, 5), end.0).unwrap().0;
    assert_eq!(fetched, Fetched::UpTo { end });
}

#[test]
fn what_comes_takes_the_place_of_an_object_without_a_header_behind_a_gap() {
    let place = Place::new();
    let bytes = |number| content((1, 1), number, number);
    let path = received(&place, &bytes(5));
    let mut object = std::fs::read(&path).unwrap();
    object[20] ^= 1;
    std::fs::write(&path, &object).unwrap();
    place.push(&place.segment((1, 3), 3)).unwrap();
    assert_eq!(behind(&place), 4 * SEGMENT);
    let mut log = open(&place, 4 * SEGMENT);
    log.append(log.position(), &bytes(4)).unwrap();
    log.append(log.position(), &bytes(5)[..8000]).unwrap();
    log.sync().unwrap();
    assert_eq!(lost(&place).end, Lsn(START + 8000));
    log.append(log.position(), &bytes(5)[8000..10_000]).unwrap();
    log.sync().unwrap();
    assert!(place.verify().faults.is_empty());
    assert!(std::fs::read(path.with_extension("damaged")).unwrap() == object);
    drop(log);
    // What another receiver has begun meanwhile stays.
    let mut first = open(&place, 7 * SEGMENT);
    let mut second = open(&place, 7 * SEGMENT);
    second.append(second.position(), &bytes(7)[..100]).unwrap();
    second.sync().unwrap();
    drop(second);
    first.append(first.position(), &bytes(7)[..50]).unwrap();
    let error = first.sync().unwrap_err();
    assert!(matches!(error, RepositoryError::Locked { .. }), "{error}");
}

/// A receiver that is killed after a segment was complete, and before the object got its name.
#[test]
fn a_whole_segment_gets_its_name_from_the_next_receiver() {
    let place = Place::new();
    let mut log = open(&place, START);
    log.append(Lsn(START), &content((1, 1), 5, 5)).unwrap();
    drop(log);
    let sealed = place.objects().remove(0);
    let growing = sealed.with_file_name("0000000000500000-open.wlog");
    std::fs::rename(&sealed, &growing).unwrap();
    assert_eq!(behind(&place), START + SEGMENT);
    drop(open(&place, START + SEGMENT));
    assert_eq!(place.objects(), [sealed]);
    assert!(place.verify().faults.is_empty());
}
