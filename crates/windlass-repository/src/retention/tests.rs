//! Rules on sets that are only numbers.

use proptest::prelude::*;

use super::*;

const DAY: i64 = 86_400_000_000_000;
/// Monday, 2026-11-23.
const MONDAY: i64 = 20_780 * DAY;

fn full(number: u8, day: i64) -> Member {
    Member {
        id: SetId([number; 16]),
        base: None,
        is_full: true,
        begun_nanos: MONDAY + day * DAY,
        ended_nanos: MONDAY + day * DAY + DAY / 24,
        origin: (String::new(), Lsn(1000 + u64::from(number))),
        always: BTreeSet::new(),
    }
}

fn on(number: u8, base: u8, day: i64) -> Member {
    Member {
        base: Some(SetId([base; 16])),
        is_full: false,
        ..full(number, day)
    }
}

fn numbers(policy: &Policy, sets: &[Member], now: i64) -> Vec<u8> {
    let kept = kept(policy, sets, now, &TimeZone::UTC);
    let mut kept: Vec<_> = kept.keys().map(|set| set.0[0]).collect();
    kept.sort_unstable();
    kept
}

fn counting(full: u32) -> Policy {
    Policy {
        full: Some(full),
        ..Policy::default()
    }
}

fn within(days: i64) -> Policy {
    Policy {
        within: Some(SignedDuration::from_hours(24 * days)),
        ..Policy::default()
    }
}

/// A full set each Monday for three weeks, with an incremental one on each other day.
fn weeks() -> Vec<Member> {
    let mut sets = Vec::new();
    for week in 0..3_u8 {
        let first = week * 7 + 1;
        sets.push(full(first, i64::from(week) * 7));
        sets.extend((1..7).map(|day| on(first + day, first + day - 1, i64::from(week * 7 + day))));
    }
    sets
}

#[test]
fn the_newest_full_sets_stay_with_all_that_came_since() {
    let now = MONDAY + 30 * DAY;
    assert_eq!(
        numbers(&counting(1), &weeks(), now),
        (15..=21).collect::<Vec<_>>()
    );
    assert_eq!(
        numbers(&counting(2), &weeks(), now),
        (8..=21).collect::<Vec<_>>()
    );
    assert_eq!(
        numbers(&counting(9), &weeks(), now),
        (1..=21).collect::<Vec<_>>()
    );
    // A set of an older chain that is newer than the full set brings its chain along.
    let mut sets = weeks();
    sets.push(on(30, 2, 22));
    let expected: Vec<u8> = [1, 2].into_iter().chain(15..=21).chain([30]).collect();
    assert_eq!(numbers(&counting(1), &sets, now), expected);
}

#[test]
fn a_window_keeps_what_leads_to_its_first_moment() {
    // The window begins on day 17 at noon: set 18 is the last that ended before.
    let now = MONDAY + 20 * DAY + DAY / 2;
    let mut sets = weeks();
    sets.push(full(22, 21));
    let kept_sets = kept(&within(4), &sets, now + DAY / 2, &TimeZone::UTC);
    let of = |number: u8| {
        kept_sets[&SetId([number; 16])]
            .iter()
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(of(18), [Rule::Within, Rule::Base]);
    assert_eq!(of(17), [Rule::Window, Rule::Base]);
    assert_eq!(of(15), [Rule::Base]);
    assert!(!kept_sets.contains_key(&SetId([14; 16])));
}

#[test]
fn a_clock_that_runs_ahead_removes_nothing_more() {
    let right = numbers(&within(3), &weeks(), MONDAY + 20 * DAY);
    let wrong = numbers(&within(3), &weeks(), MONDAY + 4000 * DAY);
    assert_eq!(right, wrong);
    assert_eq!(right, (15..=21).collect::<Vec<_>>());
}

/// A clock was ten days ahead when set 2 was made. Nobody saw it until that day had come.
#[test]
fn sets_that_were_made_behind_one_with_a_later_time_stay() {
    let now = MONDAY + 30 * DAY;
    let sets = [full(1, 0), full(2, 11), full(3, 2), on(4, 3, 3)];
    assert_eq!(numbers(&counting(1), &sets, now), [2, 3, 4]);
    assert_eq!(numbers(&within(2), &sets, now), [1, 2, 3, 4]);
    // SQLite has no positions. A base was there before what builds on it.
    let mut sets = [full(1, 0), full(2, 11), on(3, 2, 2), on(4, 3, 1)];
    sets.iter_mut().for_each(|set| set.origin.1 = Lsn(0));
    assert_eq!(numbers(&counting(1), &sets, now), [2, 3, 4]);
    // A clock that went back for good: all that came later stays, too.
    let sets = [full(1, 20), full(2, 1), on(3, 2, 2), full(4, 3)];
    assert_eq!(numbers(&within(1), &sets, now), [1, 2, 3, 4]);
    // Backups that ran at once are in the order of their beginnings.
    let mut sets = [full(1, 0), full(2, 1), full(3, 2)];
    sets[0].ended_nanos = MONDAY + 3 * DAY;
    sets[0].origin.1 = Lsn(2000);
    assert_eq!(numbers(&counting(1), &sets, now), [3]);
}

/// Bases in a circle are forged. They end nothing.
#[test]
fn bases_in_a_circle_are_counted_like_any_others() {
    let sets = [full(1, 0), on(2, 3, 1), on(3, 2, 2)];
    assert_eq!(numbers(&counting(1), &sets, MONDAY + 9 * DAY), [1, 2, 3]);
}

#[test]
fn days_weeks_months_and_years_keep_their_newest_set() {
    let sets: Vec<_> = (0..100_u8)
        .map(|day| full(day + 1, i64::from(day) * 5))
        .collect();
    let policy = Policy {
        daily: Some(2),
        monthly: Some(3),
        yearly: Some(5),
        ..Policy::default()
    };
    // From 2026-11-23 in steps of 5 days to 2028-04-01.
    assert_eq!(numbers(&policy, &sets, i64::MAX), [8, 81, 93, 99, 100]);
    let weekly = Policy {
        weekly: Some(2),
        ..Policy::default()
    };
    let sets: Vec<_> = (0..21_u8)
        .map(|day| full(day + 1, i64::from(day)))
        .collect();
    assert_eq!(numbers(&weekly, &sets, i64::MAX), [14, 21]);
}

#[test]
fn the_last_full_set_stays_and_so_does_everything_without_one() {
    let hour = Policy {
        within: Some(SignedDuration::from_hours(1)),
        ..Policy::default()
    };
    let sets = [full(1, 0), full(2, 5), on(3, 1, 9)];
    assert_eq!(numbers(&hour, &sets, MONDAY + 90 * DAY), [1, 2, 3]);
    let sets = [on(2, 99, 0), on(3, 2, 5), on(4, 3, 9)];
    assert_eq!(numbers(&hour, &sets, MONDAY + 90 * DAY), [2, 3, 4]);
    assert!(numbers(&hour, &[], 0).is_empty());
}

#[test]
fn a_restored_server_and_its_source_count_for_themselves() {
    // The copy comes from set 3, and its sets are newer than most of the source.
    let restored = format!("{}@0/{:X}", "1".repeat(32), 1003);
    let copy = |number: u8, day: i64| Member {
        origin: (restored.clone(), Lsn(5000)),
        ..full(number, day)
    };
    let source: Vec<_> = (1..=6_u8).map(|day| full(day, i64::from(day))).collect();
    let mut both = source.clone();
    both.extend([copy(21, 4), copy(22, 5), copy(23, 6)]);
    assert_eq!(numbers(&counting(2), &both, i64::MAX), [5, 6, 22, 23]);
    // If the copy replaces its source, the old line stops counting when it is older than all that
    // is kept.
    let mut replaced = source;
    replaced.extend([copy(21, 7)]);
    assert_eq!(numbers(&counting(2), &replaced, i64::MAX), [3, 5, 6, 21]);
    replaced.push(copy(22, 8));
    assert_eq!(numbers(&counting(2), &replaced, i64::MAX), [21, 22]);
}

#[derive(Clone, Debug)]
struct Case {
    sets: Vec<Member>,
    policy: Policy,
    now: i64,
}

fn cases() -> impl Strategy<Value = Case> {
    let set = (
        any::<bool>(),
        0..40_i64,
        any::<prop::sample::Index>(),
        0..20_u8,
    );
    let sets = prop::collection::vec(set, 0..40);
    let count = || prop::option::of(0..5_u32);
    let policy = (
        count(),
        prop::option::of(1..30_i64),
        count(),
        count(),
        count(),
        count(),
    );
    (sets, policy, 0..80_i64).prop_map(|(drawn, policy, now)| {
        let mut sets: Vec<Member> = Vec::new();
        for (number, (is_full, day, base, always)) in (1..).zip(drawn) {
            let mut set = match is_full || sets.is_empty() {
                true => full(number, day),
                false => on(number, base.get(&sets).id.0[0], day),
            };
            set.always.extend((always == 0).then_some(Rule::Held));
            sets.push(set);
        }
        let (full, within, daily, weekly, monthly, yearly) = policy;
        let within = within.map(|days| SignedDuration::from_hours(24 * days));
        let policy = Policy {
            full,
            within,
            daily,
            weekly,
            monthly,
            yearly,
        };
        Case {
            sets,
            policy,
            now: MONDAY + now * DAY,
        }
    })
}

proptest! {
    /// Whatever the chains and the rules: what stays can be restored, and what the rules ask for
    /// stays. This counts it in another way than the rules do.
    #[test]
    fn what_stays_is_whole_and_what_is_needed_stays(case in cases()) {
        let kept = kept(&case.policy, &case.sets, case.now, &TimeZone::UTC);
        let stays = |set: &Member| kept.contains_key(&set.id);
        for set in case.sets.iter().filter(|set| stays(set)) {
            let base = set.base.map(|base| kept.contains_key(&base));
            prop_assert_ne!(base, Some(false), "{:?} lost its base", set.id);
        }
        for set in case.sets.iter().filter(|set| !set.always.is_empty()) {
            prop_assert!(stays(set));
        }
        let by_time = |set: &&Member| (set.begun_nanos, set.id);
        let newest_full = case.sets.iter().filter(|set| set.is_full).max_by_key(by_time);
        prop_assert!(newest_full.is_none_or(stays));
        for set in case.sets.iter().filter(|set| !stays(set)) {
            let later = |other: &&Member| (other.begun_nanos, other.id) > (set.begun_nanos, set.id);
            let full_later = case.sets.iter().filter(later).filter(|set| set.is_full).count();
            if let Some(count) = case.policy.full {
                prop_assert!(full_later >= count.max(1) as usize);
            }
            let newest = case.sets.iter().map(|set| set.begun_nanos).max().unwrap();
            if let Some(time) = case.policy.within {
                let since = newest.min(case.now) - i64::try_from(time.as_nanos()).unwrap();
                prop_assert!(set.ended_nanos <= since);
                // The window still begins with a set that ended before it.
                let before = |other: &&Member| other.ended_nanos <= since;
                prop_assert!(case.sets.iter().filter(before).any(stays));
            }
            if case.policy.daily.is_some_and(|count| count > 0) {
                let day = |set: &Member| set.begun_nanos.div_euclid(DAY);
                let is_last_day = day(set) == day(case.sets.iter().max_by_key(by_time).unwrap());
                let is_newest = !case.sets.iter().filter(later).any(|other| day(other) == day(set));
                prop_assert!(!(is_last_day && is_newest));
            }
        }
    }
}
