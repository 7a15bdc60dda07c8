//! A helper copies pages ahead of their writers: none is overwritten before its copy is durable,
//! whether the helper lives or not.

use shuttle::rand::Rng;
use shuttle::sync::Arc;
use shuttle::sync::atomic::Ordering;
use shuttle::thread;

use crate::each_schedule;
use crate::hook::{Process, Snapshot, is_lost};
use crate::world::{Actor, World};
use crate::writers::writer;

/// What a helper that copies two pages asks of the system: reads, writes and one sync.
const CALLS: u32 = 8;

/// Starts a helper that goes over the file twice, and dies at a call.
fn helper(world: &Arc<World>, pid: u32, dies_at: u32) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let mut actor = Actor::new(&world, pid);
        actor.dies_at = dies_at;
        let mut process = Process::new();
        process.join(world.memory(), pid, &mut Actor::new(&world, pid));
        actor.copies_ahead(&mut process, &[0, 1]);
        actor.copies_ahead(&mut process, &[1, 0]);
        process.quit(world.memory());
    })
}

#[test]
fn a_page_that_was_copied_ahead_is_durable_before_it_is_overwritten() {
    each_schedule(|| {
        let world = World::new();
        let mut controller = Actor::new(&world, 3);
        let first = controller.creates_durable(1).unwrap();
        let helper = helper(&world, 1, 0);
        let writer = writer(&world, 2, vec![1, 0]);
        let second = controller.creates(2).unwrap();
        controller.checks(first.0, &first.1);
        for thread in [helper, writer] {
            thread.join().unwrap();
        }
        controller.checks(first.0, &first.1);
        controller.checks(second.0, &second.1);
        assert!(!is_lost(world.memory(), first.0));
        // Each block once, and once more for the second moment.
        assert!(world.memory().next_slot() <= 4);
    });
}

#[test]
fn a_helper_that_dies_leaves_no_page_that_a_writer_takes_for_durable() {
    each_schedule(|| {
        let world = World::new();
        let mut controller = Actor::new(&world, 3);
        let (number, expected) = controller.creates_durable(1).unwrap();
        let dies_at = shuttle::rand::thread_rng().gen_range(1..=CALLS);
        let helper = helper(&world, 1, dies_at);
        let writer = writer(&world, 2, vec![0, 1]);
        controller.checks(number, &expected);
        writer.join().unwrap();
        controller.checks(number, &expected);
        assert!(!is_lost(world.memory(), number));
        world.over.store(1, Ordering::SeqCst);
        helper.join().unwrap();
    });
}

/// Drops one of two durable snapshots while a helper is at work.
fn one_of_two_is_dropped(is_first: bool) {
    let world = World::new();
    let mut controller = Actor::new(&world, 3);
    let early = writer(&world, 2, vec![0]);
    let first = controller.creates_durable(1).unwrap();
    let helper = helper(&world, 1, 0);
    let second = controller.creates_durable(2).unwrap();
    let (dropped, kept) = match is_first {
        true => (first, second),
        false => (second, first),
    };
    early.join().unwrap();
    controller.drops(dropped.0);
    let late = writer(&world, 2, vec![1, 0]);
    controller.checks(kept.0, &kept.1);
    for thread in [helper, late] {
        thread.join().unwrap();
    }
    controller.checks(kept.0, &kept.1);
    assert!(Snapshot::numbered(world.memory(), dropped.0).is_none());
}

#[test]
fn the_older_snapshot_can_be_dropped_while_pages_are_copied_ahead() {
    each_schedule(|| one_of_two_is_dropped(true));
}

#[test]
fn the_newer_snapshot_can_be_dropped_while_pages_are_copied_ahead() {
    each_schedule(|| one_of_two_is_dropped(false));
}
