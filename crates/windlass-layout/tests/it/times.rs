//! Whose change a file's times tell of.

use std::sync::atomic::AtomicU32;

use windlass_layout::hook::{
    AREA_BYTES_AT, Change, FileKey, FileTimes, Memory, Moment, Process, Waiter, begin_changes,
    is_own_change, last_change,
};

const KEY: FileKey = FileKey {
    device: 8,
    inode: 1 << 40 | 5,
};
/// So many processes have a place.
const PLACES: u32 = 4096;

/// Everybody lives but this process.
struct AllBut(u32);

impl Waiter for AllBut {
    fn is_alive(&mut self, pid: u32) -> bool {
        pid != self.0
    }

    fn wait(&mut self, _turn: u32) -> bool {
        false
    }
}

fn words() -> Vec<AtomicU32> {
    let count = usize::try_from(AREA_BYTES_AT / 4).unwrap();
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

fn second(seconds: u32) -> Moment {
    Moment { seconds, nanos: 7 }
}

fn file(changed: u32, modified: u32) -> FileTimes {
    FileTimes {
        key: KEY,
        changed: second(changed),
        modified: second(modified),
    }
}

fn joined(memory: Memory<'_>, pid: u32, dead: u32) -> Process {
    let mut process = Process::new();
    process.join(memory, pid, &mut AllBut(dead));
    process
}

#[test]
fn a_file_is_own_work_until_the_last_change_and_while_a_call_is_at_it() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    let mut process = joined(memory, 70, 0);
    process.note_change(memory, Change::File(KEY), second(100));
    process.note_done(memory, second(110));
    let last = last_change(memory);
    assert_eq!(last, second(110));
    assert!(is_own_change(memory, last, &file(110, 1)));
    assert!(!is_own_change(memory, last, &file(111, 1)));
    // It is killed in the next call.
    process.note_change(memory, Change::File(KEY), second(200));
    assert!(is_own_change(memory, last, &file(230, 230)));
    assert!(!is_own_change(memory, last, &file(300, 300)), "too long");
    let other = FileTimes {
        key: FileKey { inode: 1, ..KEY },
        ..file(230, 230)
    };
    assert!(!is_own_change(memory, last, &other));
    begin_changes(memory, second(240), &mut AllBut(70));
    assert!(!is_own_change(memory, last, &file(241, 241)));
    assert_eq!(last_change(memory), second(240));
}

#[test]
fn a_call_that_is_under_way_stays_so_when_a_server_starts() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    let mut process = joined(memory, 70, 0);
    process.note_change(memory, Change::Names, second(100));
    begin_changes(memory, second(240), &mut AllBut(0));
    assert!(is_own_change(memory, second(240), &file(250, 7)));
}

#[test]
fn who_changes_names_is_not_believed_to_have_changed_a_content() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    let mut process = joined(memory, 70, 0);
    process.note_change(memory, Change::Names, second(100));
    let last = last_change(memory);
    assert!(is_own_change(memory, last, &file(500, 90)));
    assert!(!is_own_change(memory, last, &file(500, 500)));
    process.note_change(memory, Change::All, second(100));
    assert!(is_own_change(memory, last, &file(500, 500)));
    process.note_done(memory, second(501));
    assert!(!is_own_change(memory, last_change(memory), &file(502, 90)));
    // A clock that was set back takes nothing away.
    process.note_change(memory, Change::Names, second(20));
    process.note_done(memory, second(30));
    assert_eq!(last_change(memory), second(501));
}

#[test]
fn a_process_in_the_place_of_a_dead_one_is_later_than_it() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    for pid in 1..PLACES {
        joined(memory, pid, 0);
    }
    let mut dead = joined(memory, PLACES, 0);
    dead.note_change(memory, Change::File(KEY), second(100));
    let mut next = joined(memory, 2 * PLACES + 9, PLACES);
    next.note_change(memory, Change::Names, second(105));
    next.note_done(memory, second(106));
    assert!(is_own_change(memory, Moment::default(), &file(105, 105)));
    assert!(!is_own_change(memory, Moment::default(), &file(107, 107)));
}

#[test]
fn a_process_without_a_place_is_believed_for_two_seconds() {
    let words = words();
    let memory = Memory::new(&words).unwrap();
    for pid in 1..=PLACES {
        joined(memory, pid, 0);
    }
    let mut process = joined(memory, 2 * PLACES, 0);
    process.note_change(memory, Change::File(KEY), second(100));
    assert_eq!(last_change(memory).seconds, 102);
    process.note_done(memory, second(105));
    assert_eq!(last_change(memory).seconds, 107);
}

#[test]
fn moments_of_the_system_are_kept_within_the_words() {
    assert_eq!(Moment::new(-1, 5), Moment::default());
    assert_eq!(Moment::new(1 << 40, 5), Moment::NEVER);
    assert!(Moment::new(7, 5) < Moment::new(7, 6));
}
