//! Received log: nothing that was durable is lost, wherever its writer is cut off.

use proptest::prelude::*;
use std::path::PathBuf;
use windlass_postgres::{Lsn, Timeline};
use windlass_repository::{
    Fetched, GrowingLog, GrowingStart, KnownLog, LogPath, LogPlace, LogReader, LogStep, Pushed,
    RepositoryError, TimelineLog,
};

use crate::support::*;

const ONE: Timeline = Timeline(1);

fn open(place: &LogPlace, at: u64) -> GrowingLog {
    GrowingLog::open(place, (ONE, SEGMENT as u32), Lsn(at), 1).unwrap()
}

fn behind(place: &LogPlace) -> Option<u64> {
    match GrowingLog::start(place, ONE).unwrap() {
        GrowingStart::Behind(lsn) => Some(lsn.0),
        GrowingStart::Nothing => None,
    }
}

#[test]
fn received_segments_are_those_that_a_server_archives() {
    let place = Place::new();
    let mut log = open(&place.log(), 5 * SEGMENT);
    let two = [content((1, 1), 5, 5), content((1, 1), 6, 6)].concat();
    for (count, part) in two.chunks(70_001).enumerate() {
        log.append(log.position(), part).unwrap();
        if count % 3 == 0 {
            log.sync().unwrap();
            assert_eq!(log.durable(), log.position());
        }
    }
    assert_eq!(log.durable(), Lsn(7 * SEGMENT));
    let names: Vec<_> = place.log().objects(ONE).unwrap();
    assert!(names.iter().all(|name| name.end.is_some()), "{names:?}");
    for number in [5, 6] {
        assert!(place.fetch(&name(1, number)).unwrap().1 == content((1, 1), number, number));
        // The server archives the same segments, too.
        let path = place.segment((1, number), number);
        assert_eq!(place.push(&path).unwrap(), Pushed::Already);
    }
    let error = log.append(Lsn(9 * SEGMENT), b"x").unwrap_err();
    assert!(matches!(error, RepositoryError::NotNext { .. }));
}

#[test]
fn the_last_segment_is_fetched_as_far_as_the_log_goes() {
    let place = Place::new();
    let mut log = open(&place.log(), 5 * SEGMENT);
    let whole = content((1, 1), 5, 5);
    log.append(Lsn(5 * SEGMENT), &whole[..3000]).unwrap();
    log.sync().unwrap();
    let (fetched, bytes) = place.fetch(&name(1, 5)).unwrap();
    assert_eq!(
        fetched,
        Fetched::UpTo {
            end: Lsn(5 * SEGMENT + 3000)
        }
    );
    assert!(bytes[..3000] == whole[..3000] && bytes[3000..].iter().all(|byte| *byte == 0));
    assert_eq!(bytes.len() as u64, SEGMENT);
    let cut = |bytes: usize| {
        let mut own = whole.clone();
        own[bytes..].fill(0);
        std::fs::write(place.wal(&name(1, 5)), &own).unwrap();
        place.fetch_beside(&name(1, 5)).unwrap().0
    };
    // A server never looks into its own segment if it gets one, so it gets none if its own goes on.
    assert_eq!(cut(3500), Fetched::Absent);
    assert_eq!(cut(3000), fetched);
    assert_eq!(cut(2500), fetched);
    place.segment((1, 5), 6);
    assert_eq!(place.fetch_beside(&name(1, 5)).unwrap().0, fetched);
    // The whole segment comes from the server, and then it is the one that is fetched.
    place.push(&place.segment((1, 5), 5)).unwrap();
    assert!(place.fetch(&name(1, 5)).unwrap().1 == whole);
    // What the server archives must agree with what was received.
    log.append(log.position(), &[7; 100]).unwrap();
    log.sync().unwrap();
    let error = place.push(&place.segment((1, 5), 5)).unwrap_err();
    assert!(
        matches!(error, RepositoryError::Different { .. }),
        "{error}"
    );
}

#[test]
fn two_receivers_never_write_one_object() {
    let place = Place::new();
    let mut log = open(&place.log(), 5 * SEGMENT);
    log.append(Lsn(5 * SEGMENT), &[1; 100]).unwrap();
    log.sync().unwrap();
    let at = behind(&place.log()).unwrap();
    let second = GrowingLog::open(&place.log(), (ONE, SEGMENT as u32), Lsn(at), 1);
    assert!(matches!(second, Err(RepositoryError::Locked { .. })));
}

#[test]
fn damage_before_what_was_durable_is_no_end_of_the_log() {
    let place = Place::new();
    let mut log = open(&place.log(), 5 * SEGMENT);
    for part in 0..3 {
        log.append(log.position(), &content((1, 1), 5, part)[..3000])
            .unwrap();
        log.sync().unwrap();
    }
    let [path] = &place.objects()[..] else {
        panic!()
    };
    let whole = std::fs::read(path).unwrap();
    for at in (0..whole.len()).step_by(5) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        std::fs::write(path, flipped).unwrap();
        let error = place.fetch(&name(1, 5)).unwrap_err();
        assert!(error.is_damage(), "byte {at}: {error}");
    }
    // After a power cut the mark may be gone. Then damage of the last frame looks like a torn end.
    std::fs::remove_file(&place.marks()[0]).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(path, flipped).unwrap();
    let end = Lsn(5 * SEGMENT + 6000);
    assert_eq!(place.fetch(&name(1, 5)).unwrap().0, Fetched::UpTo { end });
}

#[test]
fn a_growing_object_that_has_lost_its_end_is_damaged() {
    let place = Place::new();
    let start = 5 * SEGMENT;
    let bytes = content((1, 1), 5, 5);
    let mut log = open(&place.log(), start);
    for part in bytes[..9000].chunks(3000) {
        log.append(log.position(), part).unwrap();
        log.sync().unwrap();
    }
    drop(log);
    let path = &place.objects()[0];
    let mark = &place.marks()[0];
    let (whole, marked) = (std::fs::read(path).unwrap(), std::fs::read(mark).unwrap());
    // A copy of the place by hard links is read, too.
    std::fs::hard_link(mark, mark.with_extension("linked")).unwrap();
    assert!(place.verify().faults.is_empty());
    std::fs::remove_file(mark.with_extension("linked")).unwrap();
    for left in (0..whole.len()).step_by(61).chain([whole.len() - 1]) {
        std::fs::write(path, &whole[..left]).unwrap();
        let known = TimelineLog::of(&place.log(), ONE).unwrap();
        assert_eq!(known.lost.len(), 1, "{left} bytes");
        assert_eq!(known.lost[0].durable, Some(Lsn(start + 9000)));
        still_served(&place, &known, &bytes);
    }
    // Damage in the middle, with whole frames behind it, and damage of the mark.
    let middle = second_frame(&whole) + 50;
    let flipped: Vec<_> = (0..)
        .zip(&whole)
        .map(|(at, byte)| byte ^ u8::from(at == middle))
        .collect();
    std::fs::write(path, flipped).unwrap();
    let known = TimelineLog::of(&place.log(), ONE).unwrap();
    assert_eq!(
        (known.lost[0].end, known.lost[0].durable),
        (Lsn(start + 3000), Some(Lsn(start + 9000)))
    );
    still_served(&place, &known, &bytes);
    std::fs::write(path, &whole).unwrap();
    std::fs::write(mark, &marked[1..]).unwrap();
    let known = TimelineLog::of(&place.log(), ONE).unwrap();
    assert_eq!(known.lost[0].end, Lsn(start + 9000));
    assert!(
        known.lost[0].to_string().contains("nobody knows"),
        "{}",
        known.lost[0]
    );
    still_served(&place, &known, &bytes);
    std::fs::write(mark, &marked).unwrap();
    assert_eq!(TimelineLog::of(&place.log(), ONE).unwrap().lost, []);
    std::fs::write(path, &whole[..whole.len() - 1]).unwrap();
    // Whoever receives the log says what is gone, and asks for it again.
    let lost = place.log().lost_ends().unwrap();
    assert_eq!(lost[0].durable, Some(Lsn(start + 9000)));
    assert_eq!(behind(&place.log()), Some(lost[0].end.0));
    let mut log = open(&place.log(), lost[0].end.0);
    let from = (lost[0].end.0 - start) as usize;
    log.append(lost[0].end, &bytes[from..]).unwrap();
    log.end().unwrap();
    assert!(place.fetch(&name(1, 5)).unwrap().1 == bytes);
    assert_eq!(place.marks(), [] as [PathBuf; 0]);
    // An archived segment has what is gone from an object that grows.
    std::fs::write(path, &whole[..whole.len() - 1]).unwrap();
    std::fs::write(mark, marked).unwrap();
    let known = TimelineLog::of(&place.log(), ONE).unwrap();
    assert_eq!(known.covered_from(Lsn(start)), Lsn(start + SEGMENT));
    assert!(place.fetch(&name(1, 5)).unwrap().1 == bytes);
    // Whoever receives the log next has nothing to ask for, and takes the mark away.
    assert_eq!(place.log().lost_ends().unwrap(), []);
    assert_eq!(place.marks(), [] as [PathBuf; 0]);
    assert!(place.verify().faults.is_empty());
}

/// Where the second frame of an object begins.
fn second_frame(object: &[u8]) -> usize {
    let starts = object.windows(4).enumerate();
    let mut starts = starts.filter(|(_, bytes)| bytes == b"WLFR");
    starts.nth(1).unwrap().0
}

/// A growing object has lost its end. What is there is served, and what is missing is named.
fn still_served(place: &Place, known: &TimelineLog, bytes: &[u8]) {
    let start = 5 * SEGMENT;
    let lost = &known.lost[0];
    let held = lost.end.0 - start;
    assert_eq!(known.covered_from(Lsn(start)), lost.end);
    let gaps: Vec<_> = known.gaps().map(|gap| (gap.start, gap.end)).collect();
    assert_eq!(gaps, [(lost.end, lost.up_to())]);
    let log = place.log();
    let step = LogStep {
        timeline: ONE,
        from: Lsn(start),
        to: None,
    };
    let path = LogPath { steps: vec![step] };
    let covered = |up_to: Option<u64>| {
        path.covered(&KnownLog::of(&log), Lsn(start), (SEGMENT, up_to.map(Lsn)))
    };
    assert_eq!(covered(Some(start + held)).unwrap(), lost.end);
    for beyond in [Some(lost.up_to().0), None] {
        match covered(beyond).unwrap_err() {
            RepositoryError::LostEnd {
                lost: found,
                goes_on: false,
            } => assert_eq!(found, *lost),
            other => panic!("{other}"),
        }
    }
    let mut read = vec![1; 9000];
    let count = LogReader::new(&log, &path, SEGMENT).read_at(Lsn(start), &mut read);
    assert_eq!(count.unwrap() as u64, held);
    assert!(read[..held as usize] == bytes[..held as usize]);
    // A server never takes it for the end of the log, unless its restore has said so.
    for error in [
        place.fetch(&name(1, 5)),
        place.fetch_until(&name(1, 5), lost.end.0 + 1),
    ] {
        assert!(error.is_err_and(|error| error.is_damage()));
    }
    match (held, place.fetch_until(&name(1, 5), lost.end.0).unwrap()) {
        (0, fetched) => assert_eq!(fetched.0, Fetched::Absent),
        (_, (fetched, found)) => {
            assert_eq!(fetched, Fetched::UpTo { end: lost.end });
            assert!(found[..held as usize] == bytes[..held as usize]);
            assert!(found[held as usize..].iter().all(|byte| *byte == 0));
        }
    }
    let faults = place.verify().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].is_damage());
}

/// Whoever receives goes on behind damage, and keeps what was damaged.
#[test]
fn a_receiver_goes_on_behind_what_a_damaged_object_still_has() {
    for (which, end) in [(0, 0), (1, 0), (2, 3000)] {
        let place = Place::new();
        let start = 5 * SEGMENT;
        let bytes = content((1, 1), 5, 5);
        let mut log = open(&place.log(), start);
        for part in bytes[..9000].chunks(3000) {
            log.append(log.position(), part).unwrap();
            log.sync().unwrap();
        }
        drop(log);
        let path = place.objects().remove(0);
        let mut damaged = std::fs::read(&path).unwrap();
        // In the header, in the first frame, in the second one.
        let at = [20, 200, second_frame(&damaged) + 50][which];
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let lost = place.log().lost_ends().unwrap();
        assert_eq!(lost[0].end, Lsn(start + end), "byte {at}");
        let from = behind(&place.log()).unwrap_or(start);
        assert_eq!(from, start + end);
        let mut log = open(&place.log(), from);
        log.append(Lsn(from), &bytes[end as usize..]).unwrap();
        log.end().unwrap();
        assert!(place.fetch(&name(1, 5)).unwrap().1 == bytes);
        assert!(place.verify().faults.is_empty());
        let aside = path.with_extension("damaged");
        assert!(std::fs::read(aside).unwrap() == damaged, "byte {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A writer is killed, or the power fails: everything that was not synced is there, or a part
    /// of it, or nothing.
    #[test]
    fn nothing_durable_is_lost_wherever_the_writer_is_cut_off(
        parts in proptest::collection::vec((1_usize..200_000, any::<bool>()), 1..12),
        cut in 0.0_f64..1.0,
        zeroed in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let place = Place::new();
        let all: Vec<u8> =
            (5..8).flat_map(|number| content((1, 1), number, seed)).collect();
        let mut log = open(&place.log(), 5 * SEGMENT);
        let mut kept = 0;
        for (bytes, is_synced) in parts {
            let from = (log.position().0 - 5 * SEGMENT) as usize;
            let to = (from + bytes).min(all.len());
            log.append(log.position(), &all[from..to]).unwrap();
            if is_synced {
                log.sync().unwrap();
            }
            let growing = place.objects().into_iter().find(|it| it.to_string_lossy().contains("-open"));
            if is_synced || growing.is_none() {
                kept = growing.map_or(0, |path| path.metadata().unwrap().len());
            }
        }
        let durable = log.durable();
        drop(log);
        let growing = place.objects().into_iter().find(|it| it.to_string_lossy().contains("-open"));
        if let Some(path) = growing {
            let mut bytes = std::fs::read(&path).unwrap();
            let kept = kept.min(bytes.len() as u64) as usize;
            let at = kept + ((bytes.len() - kept) as f64 * cut) as usize;
            match zeroed {
                true => bytes[at..].fill(0),
                false => bytes.truncate(at),
            }
            std::fs::write(&path, bytes).unwrap();
        }
        let end = behind(&place.log()).unwrap_or(5 * SEGMENT);
        prop_assert!(end >= durable.0, "{end} and {durable}");
        // It goes on, and in the end everything is there.
        let mut log = open(&place.log(), end);
        log.append(Lsn(end), &all[(end - 5 * SEGMENT) as usize..]).unwrap();
        log.end().unwrap();
        for number in 5..8 {
            prop_assert!(place.fetch(&name(1, number)).unwrap().1 == content((1, 1), number, seed));
        }
        prop_assert!(place.verify().faults.is_empty());
    }
}

#[test]
fn an_object_without_its_header_is_in_nobodys_way() {
    let place = Place::new();
    let bytes = std::fs::read(place.segment((1, 5), 5)).unwrap();
    let start = Lsn(5 * SEGMENT);
    for left in [0, 1, 127, 128] {
        let of = (Timeline(1), 1 << 20);
        let mut log = GrowingLog::open(&place.log(), of, start, 1).unwrap();
        log.append(start, &bytes[..1000]).unwrap();
        log.sync().unwrap();
        drop(log);
        let [path] = &place.objects()[..] else {
            panic!()
        };
        // It was never synced.
        std::fs::remove_file(&place.marks()[0]).unwrap();
        // What a kill before the header leaves, and a power cut before it was durable.
        std::fs::write(path, vec![0; left]).unwrap();
        let begun = GrowingLog::start(&place.log(), Timeline(1)).unwrap();
        assert_eq!(begun, GrowingStart::Nothing, "{left}");
        assert_eq!(place.fetch(&name(1, 5)).unwrap().0, Fetched::Absent);
        assert!(place.verify().faults.is_empty());
        let log = GrowingLog::open(&place.log(), of, start, 1).unwrap();
        assert_eq!(log.end().unwrap(), start);
        assert!(place.objects().is_empty(), "{left}");
    }
}
