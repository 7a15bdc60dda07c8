//! Writers, a pause, a reader: a snapshot shows one moment.

use shuttle::sync::Arc;
use shuttle::sync::atomic::Ordering;
use shuttle::thread;

use crate::each_schedule;
use crate::hook::{Limits, Process, Snapshot, first_needed, is_lost};
use crate::world::{Actor, BLOCKS, FILE, World};

/// Starts a server process that writes.
pub fn writer(world: &Arc<World>, pid: u32, blocks: Vec<u32>) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let mut actor = Actor::new(&world, pid);
        let mut process = Process::new();
        process.join(world.memory(), pid, &mut Actor::new(&world, pid));
        actor.writes(&mut process, &blocks);
        process.quit(world.memory());
    })
}

#[test]
fn a_snapshot_shows_the_source_at_one_moment() {
    each_schedule(|| {
        let world = World::new();
        let writers = [
            writer(&world, 1, vec![0, 1, 0]),
            writer(&world, 2, vec![1, 0]),
        ];
        let mut controller = Actor::new(&world, 3);
        let (number, expected) = controller.creates(1).unwrap();
        controller.checks(number, &expected);
        for writer in writers {
            writer.join().unwrap();
        }
        controller.checks(number, &expected);
        assert!(!is_lost(world.memory(), number));
    });
}

#[test]
fn two_snapshots_show_two_moments_and_cost_one_page_a_block() {
    each_schedule(|| {
        let world = World::new();
        let writers = [writer(&world, 1, vec![0, 1]), writer(&world, 2, vec![0])];
        let mut controller = Actor::new(&world, 3);
        let first = controller.creates(1).unwrap();
        let second = controller.creates(2).unwrap();
        controller.checks(first.0, &first.1);
        for writer in writers {
            writer.join().unwrap();
        }
        controller.checks(first.0, &first.1);
        controller.checks(second.0, &second.1);
        // Three writes to two blocks, with at most two moments between them.
        assert!(world.memory().next_slot() <= 3);
    });
}

#[test]
fn a_page_that_the_newest_snapshot_has_needs_nothing_and_every_other_one_is_found() {
    each_schedule(|| {
        let world = World::new();
        let memory = world.memory();
        let needed = || first_needed(memory, FILE, 0..BLOCKS.into());
        let two_write = |blocks: &[u32]| {
            for writer in [1, 2].map(|pid| writer(&world, pid, blocks.to_vec())) {
                writer.join().unwrap();
            }
        };
        let mut controller = Actor::new(&world, 3);
        assert_eq!(needed(), None, "there is no snapshot");
        let first = controller.creates(1).unwrap();
        assert_eq!(needed(), Some(0));
        two_write(&[0]);
        assert_eq!(needed(), Some(1));
        let second = controller.creates(2).unwrap();
        assert_eq!(needed(), Some(0), "only the older one has it");
        two_write(&[1, 0]);
        assert_eq!(needed(), None);
        let behind_the_end = u64::from(BLOCKS)..u64::from(BLOCKS) + 9;
        assert_eq!(first_needed(memory, FILE, behind_the_end), None);
        controller.checks(first.0, &first.1);
        controller.checks(second.0, &second.1);
    });
}

#[test]
fn a_durable_snapshot_has_its_page_on_disk_before_the_source_changes() {
    each_schedule(|| {
        let world = World::new();
        let writers = [writer(&world, 1, vec![0, 1]), writer(&world, 2, vec![1, 0])];
        let mut controller = Actor::new(&world, 3);
        let first = controller.creates_durable(1).unwrap();
        let second = controller.creates(2).unwrap();
        controller.checks(first.0, &first.1);
        for writer in writers {
            writer.join().unwrap();
        }
        controller.checks(first.0, &first.1);
        controller.checks(second.0, &second.1);
        assert!(!is_lost(world.memory(), first.0));
    });
}

#[test]
fn processes_without_a_place_are_waited_for_too() {
    each_schedule(|| {
        let world = World::new();
        let outsider = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut process = Process::new();
                Actor::new(&world, 1).writes(&mut process, &[0, 1]);
            })
        };
        let mut controller = Actor::new(&world, 3);
        let (number, expected) = controller.creates(1).unwrap();
        outsider.join().unwrap();
        controller.checks(number, &expected);
    });
}

#[test]
fn a_pause_that_somebody_did_not_wait_for_is_known_to_be_broken() {
    each_schedule(|| {
        let world = World::new();
        let impatient = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut actor = Actor::new(&world, 1);
                actor.patience = 1;
                let mut process = Process::new();
                process.join(world.memory(), 1, &mut Actor::new(&world, 1));
                // Locks are free here, so only a pause can make it wait.
                actor.writes(&mut process, &[0, 1, 0]);
            })
        };
        let mut controller = Actor::new(&world, 3);
        if let Some((number, expected)) = controller.creates(1) {
            controller.checks(number, &expected);
            impatient.join().unwrap();
            controller.checks(number, &expected);
        } else {
            impatient.join().unwrap();
        }
    });
}

#[test]
fn a_full_store_is_an_error_of_the_snapshot_and_never_a_wrong_page() {
    each_schedule(|| {
        let world = World::new();
        let mut controller = Actor::new(&world, 3);
        let first = controller.creates(1).unwrap();
        let writers = [writer(&world, 1, vec![0, 1]), writer(&world, 2, vec![1, 0])];
        let second = controller.creates(2).unwrap();
        world.full.store(1, Ordering::SeqCst);
        controller.checks(first.0, &first.1);
        controller.checks(second.0, &second.1);
        for writer in writers {
            writer.join().unwrap();
        }
        controller.checks(first.0, &first.1);
        controller.checks(second.0, &second.1);
    });
}

/// Two snapshots, of which one may have a single page. It ends, and the other stays as it is.
fn one_reaches_its_limit(is_first: bool) {
    let world = World::new();
    let memory = world.memory();
    let mut controller = Actor::new(&world, 3);
    let first = controller.creates(1).unwrap();
    let second = controller.creates(2).unwrap();
    let (limited, kept) = match is_first {
        true => (&first, &second),
        false => (&second, &first),
    };
    let limits = Limits {
        pages: 1,
        ..Limits::default()
    };
    let limited_entry = Snapshot::numbered(memory, limited.0).unwrap();
    limited_entry.set_limits(&limits);
    let writers = [
        writer(&world, 1, vec![0, 1, 0]),
        writer(&world, 2, vec![1, 0]),
    ];
    controller.checks(limited.0, &limited.1);
    controller.checks(kept.0, &kept.1);
    for writer in writers {
        writer.join().unwrap();
    }
    assert!(is_lost(memory, limited.0));
    assert!(!is_lost(memory, kept.0));
    controller.checks(kept.0, &kept.1);
    assert_eq!(world.told.load(Ordering::SeqCst), 1, "told once");
    controller.drops(limited.0);
    controller.checks(kept.0, &kept.1);
}

#[test]
fn a_snapshot_that_reaches_its_limit_ends_and_the_newer_one_stays() {
    each_schedule(|| one_reaches_its_limit(true));
}

#[test]
fn a_snapshot_that_reaches_its_limit_ends_and_the_older_one_stays() {
    each_schedule(|| one_reaches_its_limit(false));
}
