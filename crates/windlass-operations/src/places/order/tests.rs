//! Sets that are only numbers. It is day 100, and days are short.

use serde_json::{Value, json};
use windlass_engine::media::BackupType;
use windlass_engine::{SetAbout, SetParity, SetState};

use super::*;

const SECONDS: i64 = 3600;
const DAY: i64 = 1_000_000_000 * SECONDS;

/// The numbers of sets, each with what is wrong with its time.
type Ordered = Vec<(u8, Option<(TimeFault, u8)>)>;

fn set(number: u8, day: i64, base: u8, database: Value) -> SetEntry {
    let base = (base > 0).then_some(SetId([base; 16]));
    SetEntry {
        set_id: SetId([number; 16]),
        begun_nanos: day * DAY,
        is_dated: true,
        stripe_count: 1,
        stripes: Vec::new(),
        about: Some(SetAbout {
            backup_type: base.map_or(BackupType::Full, |_| BackupType::Incr),
            base,
            started: String::new(),
            finished: String::new(),
            file_bytes: 0,
            read_bytes: None,
            database,
        }),
        may_have_base: base.is_some(),
        state: SetState::Sealed,
        holds: Vec::new(),
        hidden: Vec::new(),
        parity: SetParity::default(),
    }
}

/// Sets of a file, each with its number, its day and the number of its base.
fn of_file(sets: &[(u8, i64, u8)]) -> Vec<SetEntry> {
    let one = |(number, day, base): &(u8, i64, u8)| set(*number, *day, *base, Value::Null);
    sets.iter().map(one).collect()
}

/// A full set of a cluster, with its number, its day and where it ends.
fn of_cluster((number, day, stop): (u8, i64, u64), change: impl FnOnce(&mut Value)) -> SetEntry {
    let mut facts = json!({
        "kind": windlass_postgres::KIND,
        "system_identifier": "7",
        "timeline": 1,
        "start_lsn": "0/1",
        "stop_lsn": format!("0/{stop:X}"),
        "stop_time": "",
        "restored": "",
        "standby": false,
        "wal_segment_bytes": 1_048_576,
    });
    change(&mut facts);
    set(number, day, 0, facts)
}

/// The sets in the order of making.
fn ordered(sets: &[SetEntry]) -> Ordered {
    let mut sorted: Vec<_> = sets.iter().collect();
    sorted.sort_by_key(|set| (set.begun_nanos, set.set_id));
    let now = Timestamp::from_second(100 * SECONDS).unwrap();
    let made = in_order(&sorted, now);
    assert!(made.is_sorted_by_key(|one| one.begun_nanos));
    assert_eq!(made.len(), sets.len());
    let shown = made.iter().map(|one| {
        let fault = one.fault.map(|(fault, other)| (fault, other.set_id.0[0]));
        (one.set.set_id.0[0], fault)
    });
    shown.collect()
}

/// These sets, with times that can be right.
fn right(numbers: &[u8]) -> Ordered {
    numbers.iter().map(|number| (*number, None)).collect()
}

fn numbers(sets: &[SetEntry]) -> Vec<u8> {
    ordered(sets)
        .into_iter()
        .map(|(number, _)| number)
        .collect()
}

#[test]
fn times_that_contradict_nothing_are_the_order() {
    let sets = of_file(&[(9, 10, 0), (2, 20, 9), (5, 30, 2), (1, 500, 0), (7, 40, 9)]);
    assert_eq!(ordered(&sets), right(&[9, 2, 5, 7, 1]));
}

#[test]
fn a_set_from_the_future_comes_before_what_builds_on_it() {
    // Nights that all built on it, and a full one of another night.
    let sets = of_file(&[
        (1, 50, 0),
        (2, 107, 1),
        (3, 95, 2),
        (4, 96, 2),
        (5, 97, 0),
        (6, 98, 4),
    ]);
    let mut expected = right(&[1, 2, 3, 4, 5, 6]);
    expected[1].1 = Some((TimeFault::FutureBase, 3));
    assert_eq!(ordered(&sets), expected);
    // Two such nights, one on the other.
    let sets = of_file(&[(1, 50, 0), (2, 107, 1), (3, 105, 2), (4, 96, 3)]);
    let mut expected = right(&[1, 2, 3, 4]);
    expected[1].1 = Some((TimeFault::FutureBase, 4));
    expected[2].1 = Some((TimeFault::FutureBase, 4));
    assert_eq!(ordered(&sets), expected);
}

#[test]
fn sets_with_earlier_times_than_their_base_come_behind_it_one_after_the_other() {
    let sets = of_file(&[
        (1, 50, 0),
        (2, 60, 1),
        (3, 5, 2),
        (4, 6, 3),
        (5, 7, 2),
        (6, 61, 0),
    ]);
    let mut expected = right(&[1, 2, 3, 4, 5, 6]);
    for number in 3..=5 {
        expected[number - 1].1 = Some((TimeFault::BeforeBase, 2));
    }
    assert_eq!(ordered(&sets), expected);
}

#[test]
fn positions_in_the_log_prove_a_time_in_the_future_wrong_and_no_other() {
    let plain = |_: &mut Value| {};
    let behind = |change: &dyn Fn(&mut Value)| {
        [
            of_cluster((1, 107, 10), change),
            of_cluster((2, 95, 20), plain),
            of_cluster((3, 96, 30), plain),
        ]
    };
    let mut expected = right(&[1, 2, 3]);
    expected[0].1 = Some((TimeFault::FutureLog, 2));
    assert_eq!(ordered(&behind(&plain)), expected);
    // Of another server, another branch, or a standby that may be far behind.
    for (key, value) in [
        ("system_identifier", json!("8")),
        ("timeline", json!(2)),
        ("restored", json!("x")),
        ("standby", json!(true)),
        ("stop_lsn", json!("0/FFFF")),
    ] {
        let change = |facts: &mut Value| facts[key] = value.clone();
        assert_eq!(numbers(&behind(&change)), [2, 3, 1], "{key}");
    }
    // A cluster that was reverted writes the same positions again.
    let reverted = [
        of_cluster((1, 50, 30), plain),
        of_cluster((2, 60, 10), plain),
    ];
    assert_eq!(ordered(&reverted), right(&[1, 2]));
}

#[test]
fn chains_without_an_end_lose_no_set() {
    let sets = of_file(&[(1, 50, 2), (2, 107, 1), (3, 120, 3), (4, 10, 0)]);
    assert_eq!(numbers(&sets)[0], 4);
}
