//! Names and lengths: what the journal says of a growing file, and a file that is removed while
//! snapshots without links have it.

use shuttle::sync::Arc;
use shuttle::sync::atomic::Ordering;
use shuttle::thread;

use crate::each_schedule;
use crate::hook::{
    JOURNAL_ENTRY_WORDS, Noted, Process, begin_journal, end_journal, grace, is_lost, note_file,
    note_path, pause, read_journal, resume,
};
use crate::world::{Actor, FILE, World};
use crate::writers::writer;

const ENTRIES: u32 = 2;

/// A server process that makes the file longer.
fn grower(world: &Arc<World>, pid: u32, times: u32) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let memory = world.memory();
        let mut actor = Actor::new(&world, pid);
        let mut process = Process::new();
        process.join(memory, pid, &mut Actor::new(&world, pid));
        for turn in 0..times {
            process.enter(memory, &mut actor);
            match turn % 2 {
                0 => note_file(memory, FILE),
                _ => note_path(memory, b"base/5/4711"),
            }
            world.length.fetch_add(1, Ordering::SeqCst);
            process.leave(memory);
        }
        process.quit(memory);
    })
}

/// The controller lists, and in the pause it looks only at what was noted.
fn length_in_a_pause(world: &Arc<World>, area: u64) {
    let memory = world.memory();
    let mut controller = Actor::new(world, 3);
    for word in 0..u64::from(ENTRIES) * JOURNAL_ENTRY_WORDS as u64 {
        world.set_word(area + word, 0);
    }
    begin_journal(memory, area, ENTRIES);
    grace(memory, &mut controller).unwrap();
    let listed = world.length.load(Ordering::SeqCst);
    pause(memory, 1, &mut controller).unwrap();
    let mut noted = Vec::new();
    let is_whole = read_journal(memory, |it| noted.push(it));
    for it in &noted {
        let mut path = [0; 124];
        path[..11].copy_from_slice(b"base/5/4711");
        assert!([Noted::File(FILE), Noted::Path(path, 11)].contains(it));
    }
    let now = world.length.load(Ordering::SeqCst);
    let known = match is_whole && noted.is_empty() {
        true => listed,
        false => now,
    };
    assert_eq!(known, now, "the length that the snapshot has");
    assert!(resume(memory, 1));
    end_journal(memory);
    grace(memory, &mut controller).unwrap();
    // Nobody writes there any more.
    let before: Vec<_> = (0..32).map(|word| world.word(area + word)).collect();
    thread::yield_now();
    let after: Vec<_> = (0..32).map(|word| world.word(area + word)).collect();
    assert_eq!(before, after);
}

#[test]
fn a_pause_knows_every_file_that_has_grown_since_it_was_listed() {
    each_schedule(|| {
        let world = World::new();
        let growers = [grower(&world, 1, 3), grower(&world, 2, 1)];
        length_in_a_pause(&world, world.journal_at());
        for grower in growers {
            grower.join().unwrap();
        }
    });
}

/// A server process that removes the file, as the hook does it: the grave comes first.
fn remover(world: &Arc<World>, pid: u32) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let mut actor = Actor::new(&world, pid);
        let mut process = Process::new();
        process.join(world.memory(), pid, &mut Actor::new(&world, pid));
        actor.removes(&mut process);
        process.quit(world.memory());
    })
}

#[test]
fn a_file_that_is_removed_stays_for_the_snapshots_that_have_no_link() {
    each_schedule(|| {
        let world = World::new();
        let mut controller = Actor::new(&world, 3);
        let writing = writer(&world, 1, vec![0]);
        let made = controller.creates_late(1).unwrap();
        let removing = remover(&world, 2);
        controller.checks(made.0, &made.1);
        writing.join().unwrap();
        removing.join().unwrap();
        controller.checks(made.0, &made.1);
        assert!(!is_lost(world.memory(), made.0));
    });
}

#[test]
fn a_snapshot_is_dropped_while_a_file_is_removed_that_another_one_has() {
    each_schedule(|| {
        let world = World::new();
        let mut controller = Actor::new(&world, 3);
        let first = controller.creates_late(1).unwrap();
        let second = controller.creates_late(2).unwrap();
        let removing = remover(&world, 2);
        let reading = {
            let (world, first) = (Arc::clone(&world), first.clone());
            thread::spawn(move || Actor::new(&world, 4).checks(first.0, &first.1))
        };
        controller.drops(second.0);
        controller.checks(first.0, &first.1);
        removing.join().unwrap();
        reading.join().unwrap();
        controller.checks(first.0, &first.1);
        controller.drops(first.0);
        // Nobody needs it any more.
        assert_eq!(world.grave.load(Ordering::SeqCst), 0);
        assert_eq!(world.source_now(), vec![crate::world::FREED; 2]);
    });
}
