//! Snapshots are dropped while others are read and written to: nothing of the others is lost.

use shuttle::sync::Arc;
use shuttle::thread;

use crate::each_schedule;
use crate::hook::is_lost;
use crate::world::{Actor, World};
use crate::writers::writer;

/// Makes three snapshots under writes, drops one under writes and reads, and checks the others.
fn drop_one_of_three(dropped: usize) {
    let world = World::new();
    let early = writer(&world, 1, vec![0, 1]);
    let mut controller = Actor::new(&world, 3);
    let made: Vec<_> = (1..4)
        .map(|token| controller.creates(token).unwrap())
        .collect();
    let late = writer(&world, 2, vec![1, 0]);
    let kept: Vec<_> = (made.iter().enumerate())
        .filter(|(index, _)| *index != dropped)
        .map(|(_, made)| made.clone())
        .collect();
    let reader = {
        let (world, kept) = (Arc::clone(&world), kept.clone());
        thread::spawn(move || {
            let mut reader = Actor::new(&world, 4);
            for (number, expected) in &kept {
                reader.checks(*number, expected);
            }
        })
    };
    controller.drops(made[dropped].0);
    for thread in [early, late, reader] {
        thread.join().unwrap();
    }
    for (number, expected) in &kept {
        assert!(!is_lost(world.memory(), *number));
        controller.checks(*number, expected);
    }
}

#[test]
fn the_oldest_snapshot_can_be_dropped() {
    each_schedule(|| drop_one_of_three(0));
}

#[test]
fn the_snapshot_in_the_middle_can_be_dropped() {
    each_schedule(|| drop_one_of_three(1));
}

#[test]
fn the_newest_snapshot_can_be_dropped() {
    each_schedule(|| drop_one_of_three(2));
}
