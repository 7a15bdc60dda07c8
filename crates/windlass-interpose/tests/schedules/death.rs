//! Processes die in the middle of a preserve: their locks are taken over, and no page is wrong.

use shuttle::rand::Rng;
use shuttle::sync::Arc;
use shuttle::sync::atomic::Ordering;
use shuttle::thread;

use crate::each_schedule;
use crate::hook::{Process, is_lost};
use crate::world::{Actor, World};
use crate::writers::writer;

/// A preserve has three calls of the system, and the write itself is the fourth.
const CALLS: u32 = 4;

fn one_dies(dies_at: u32) {
    let world = World::new();
    let mut controller = Actor::new(&world, 3);
    let (number, expected) = controller.creates(1).unwrap();
    let dying = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let mut actor = Actor::new(&world, 1);
            actor.dies_at = dies_at;
            let mut process = Process::new();
            process.join(world.memory(), 1, &mut Actor::new(&world, 1));
            actor.writes(&mut process, &[0]);
        })
    };
    let other = writer(&world, 2, vec![0, 1]);
    controller.checks(number, &expected);
    other.join().unwrap();
    controller.checks(number, &expected);
    assert!(!is_lost(world.memory(), number));
    // Nobody waits for the dead.
    let (second, at_second) = controller.creates(2).unwrap();
    controller.checks(second, &at_second);
    controller.drops(number);
    world.over.store(1, Ordering::SeqCst);
    dying.join().unwrap();
}

#[test]
fn whoever_dies_in_a_preserve_leaves_nothing_wrong_behind() {
    each_schedule(|| one_dies(shuttle::rand::thread_rng().gen_range(1..=CALLS)));
}
