//! Timelines: which segments can be on them, and the way from one to another.

use windlass_postgres::{Lsn, RecoveryTimeline, Timeline};
use windlass_repository::{KnownLog, LogPath, Pushed, RepositoryError, TimelineLog};

use crate::support::*;

/// A segment whose first page is on another timeline than its name.
fn mixed(place: &Place, (timeline, page): (u32, u32), number: u64) -> std::path::PathBuf {
    let path = place.wal(&name(timeline, number));
    std::fs::write(&path, content((timeline, page), number, number)).unwrap();
    path
}

fn history(place: &Place, timeline: u32, text: &str) {
    let path = place.wal(&Timeline(timeline).history_name());
    std::fs::write(&path, text).unwrap();
}

/// Timeline 1 left in segment 6, timeline 2 left in segment 8.
fn tree() -> Place {
    let place = Place::new();
    history(&place, 2, "1\t0/680000\tno reason\n");
    history(
        &place,
        3,
        "1\t0/680000\tno reason\n2\t0/880000\tno reason\n",
    );
    for number in [4, 5, 6, 7] {
        place.push(&place.segment((1, number), number)).unwrap();
    }
    place.push(&mixed(&place, (2, 1), 6)).unwrap();
    place.push(&place.segment((2, 7), 7)).unwrap();
    place.push(&mixed(&place, (3, 2), 8)).unwrap();
    place.push(&place.segment((3, 9), 9)).unwrap();
    place
}

#[test]
fn a_push_stores_the_history_of_its_timeline_too() {
    let place = tree();
    let files = place.log().files().unwrap();
    assert_eq!(files, ["00000002.history", "00000003.history"]);
    assert_eq!(
        place.push(&place.wal("00000002.history")).unwrap(),
        Pushed::Already
    );
}

#[test]
fn a_segment_that_its_timeline_cannot_have_is_refused() {
    let place = tree();
    for (timelines, number) in [
        // Before the timeline began.
        ((2, 1), 5),
        // Its first page must still be of timeline 1 there.
        ((2, 2), 6),
        // And of timeline 2 behind the switch.
        ((2, 1), 9),
        ((3, 1), 8),
        ((3, 1), 6),
    ] {
        let error = place.push(&mixed(&place, timelines, number)).unwrap_err();
        assert!(
            matches!(error, RepositoryError::WrongTimeline { .. }),
            "{timelines:?} {number}: {error}"
        );
    }
}

#[test]
fn the_way_to_a_timeline_is_found_and_how_far_the_log_goes_on_it() {
    let place = tree();
    let log = place.log();
    let from = (Timeline(1), Lsn(0x450000));
    let way = |to| LogPath::find(&log, from, to);
    let latest = way(RecoveryTimeline::Latest).unwrap();
    assert_eq!(latest.timeline(), Timeline(3));
    let covered =
        |path: &LogPath, up_to| path.covered(&KnownLog::of(&log), from.1, (SEGMENT, up_to));
    assert_eq!(covered(&latest, None).unwrap(), Lsn(0xA00000));
    let current = way(RecoveryTimeline::Current).unwrap();
    assert_eq!(covered(&current, None).unwrap(), Lsn(0x800000));
    let second = way(RecoveryTimeline::Number(Timeline(2))).unwrap();
    assert_eq!(covered(&second, None).unwrap(), Lsn(0x800000));
    let error = way(RecoveryTimeline::Number(Timeline(7))).unwrap_err();
    assert!(
        matches!(error, RepositoryError::NoHistory { .. }),
        "{error}"
    );
    let later = (Timeline(1), Lsn(0x700000));
    let error = LogPath::find(&log, later, RecoveryTimeline::Latest).unwrap_err();
    assert!(
        matches!(error, RepositoryError::Unrelated { .. }),
        "{error}"
    );
}

#[test]
fn a_gap_on_the_way_is_named_and_one_behind_the_target_is_none() {
    let place = tree();
    let log = place.log();
    let gone = log.objects(Timeline(2)).unwrap();
    std::fs::remove_file(&gone[1].path).unwrap();
    let from = (Timeline(1), Lsn(0x450000));
    let path = LogPath::find(&log, from, RecoveryTimeline::Latest).unwrap();
    let error = path
        .covered(&KnownLog::of(&log), from.1, (SEGMENT, None))
        .unwrap_err();
    match error {
        RepositoryError::Gap { timeline, from, .. } => {
            assert_eq!((timeline, from), (Timeline(2), Lsn(0x700000)));
        }
        other => panic!("{other}"),
    }
    let near = path
        .covered(&KnownLog::of(&log), from.1, (SEGMENT, Some(Lsn(0x6F0000))))
        .unwrap();
    assert!(near >= Lsn(0x6F0000));

    place.push(&place.segment((1, 20), 20)).unwrap();
    let one = TimelineLog::of(&log, Timeline(1)).unwrap();
    let gaps: Vec<_> = one.gaps().collect();
    assert_eq!(gaps.len(), 1);
    assert_eq!(
        (gaps[0].start, gaps[0].end),
        (Lsn(0x800000), Lsn(0x1400000))
    );
}

#[test]
fn log_that_begins_behind_a_position_has_a_gap_there() {
    let place = Place::new();
    for number in [6, 7, 9] {
        place.push(&place.segment((1, number), number)).unwrap();
    }
    let log = TimelineLog::of(&place.log(), Timeline(1)).unwrap();
    let gap = |from: u64| {
        let gap = log.gap_after(Lsn(from << 20));
        gap.map(|gap| (gap.start.0 >> 20, gap.end.0 >> 20))
    };
    assert_eq!(gap(4), Some((4, 6)));
    assert_eq!(gap(6), Some((8, 9)));
    assert_eq!(gap(8), Some((8, 9)));
    assert_eq!(gap(9), None);
    let path = LogPath::find(
        &place.log(),
        (Timeline(1), Lsn(4 << 20)),
        RecoveryTimeline::Current,
    );
    let covered = path
        .unwrap()
        .covered(&KnownLog::of(&place.log()), Lsn(4 << 20), (1 << 20, None));
    assert!(
        matches!(covered, Err(RepositoryError::Gap { .. })),
        "{covered:?}"
    );
}

/// A server that recovers would end there, although its timeline was written further.
#[test]
fn a_segment_that_is_missing_where_a_newer_timeline_goes_on_is_a_gap() {
    let place = tree();
    let has_gap = |number| match place.fetch_beside(&name(1, number)) {
        Err(RepositoryError::Gap { to, .. }) => to == Lsn(0x680000),
        Err(error) => panic!("{error}"),
        Ok((fetched, _)) => {
            assert_eq!(fetched, windlass_repository::Fetched::Absent);
            false
        }
    };
    for name in place.log().objects(Timeline(1)).unwrap() {
        if name.start.0 > 4 * SEGMENT {
            std::fs::remove_file(&name.path).unwrap();
        }
    }
    for number in [5, 6] {
        std::fs::remove_file(place.wal(&name(1, number))).unwrap();
    }
    assert!(has_gap(5));
    // Timeline 2 repeats what timeline 1 wrote of this one.
    assert!(!has_gap(6));
    // A standby may get it from its primary.
    let signal = place.dir.path().join("data/standby.signal");
    std::fs::write(&signal, "").unwrap();
    assert!(!has_gap(5));
    std::fs::remove_file(&signal).unwrap();
    // A server that was promoted stores what it has of timeline 1 before it stores more.
    let two = place.place().join("log").join(SYSTEM.to_string());
    std::fs::remove_dir_all(two.join("00000002")).unwrap();
    std::fs::remove_file(two.join("files/00000003.history.wlog")).unwrap();
    assert!(!has_gap(5));
}

#[test]
fn a_damaged_history_is_replaced_by_that_of_the_server() {
    let place = tree();
    let path = place.place().join("log").join(SYSTEM.to_string());
    let path = path.join("files/00000002.history.wlog");
    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    place.push(&place.segment((2, 8), 8)).unwrap();
    assert!(place.verify().faults.is_empty());
    std::fs::remove_file(place.wal("00000002.history")).unwrap();
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    assert!(
        place
            .push(&place.segment((2, 9), 9))
            .unwrap_err()
            .is_damage()
    );
}
