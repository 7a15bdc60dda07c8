//! The map of changes: what a backup leaves out is what its base has, whenever writers came.

use shuttle::sync::Arc;
use shuttle::sync::atomic::Ordering;
use shuttle::thread;

use crate::each_schedule;
use crate::hook::{
    MapShape, Memory, Process, begin_map, end_map, grace, is_changed, mark_changed, next_generation,
};
use crate::world::{Actor, BLOCKS, FILE, World};

const BLOCK: u64 = 8192;
const SHAPE: MapShape = MapShape {
    cells_log2: 4,
    unit_log2: 13,
};

fn bytes(block: u32) -> (u64, u64) {
    let from = u64::from(block) * BLOCK;
    (from, from + BLOCK)
}

/// A server process that writes these blocks.
fn writer(world: &Arc<World>, pid: u32, blocks: &'static [u32]) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let memory = world.memory();
        let mut actor = Actor::new(&world, pid);
        let mut process = Process::new();
        process.join(memory, pid, &mut Actor::new(&world, pid));
        for (turn, block) in (0..).zip(blocks) {
            process.enter(memory, &mut actor);
            let (from, to) = bytes(*block);
            mark_changed(memory, FILE, from, to);
            world.source[*block as usize].store(pid * 1000 + turn, Ordering::SeqCst);
            process.leave(memory);
        }
        process.quit(memory);
    })
}

/// What a backup holds that builds on one which began in this generation.
fn on(world: &World, since: u32, base: &[u32]) -> Vec<u32> {
    let load = |block: u32| world.source[block as usize].load(Ordering::SeqCst);
    let taken = |block: u32| {
        let now = load(block);
        match is_changed(world.memory(), since, FILE, bytes(block)) {
            true => load(block),
            false => {
                assert_eq!(base[block as usize], now, "block {block} since {since}");
                now
            }
        }
    };
    (0..BLOCKS).map(taken).collect()
}

fn next(memory: Memory<'_>, controller: &mut Actor) -> u32 {
    let begun = next_generation(memory, 2).unwrap();
    grace(memory, controller).unwrap();
    begun.generation
}

#[test]
fn what_a_backup_leaves_out_is_what_its_base_has() {
    each_schedule(|| {
        let world = World::new();
        let memory = world.memory();
        let writers = [writer(&world, 1, &[0, 1, 0]), writer(&world, 2, &[1])];
        let mut controller = Actor::new(&world, 3);
        let full = begin_map(memory, world.journal_at(), SHAPE, (7, 1)).unwrap();
        grace(memory, &mut controller).unwrap();
        let held = world.source_now();
        let second = next(memory, &mut controller);
        let one = on(&world, full.generation, &held);
        next(memory, &mut controller);
        on(&world, full.generation, &held);
        on(&world, second, &one);
        for writer in writers {
            writer.join().unwrap();
        }
        on(&world, full.generation, &held);
        on(&world, second, &one);
    });
}

#[test]
fn a_map_that_a_new_server_ended_never_goes_on() {
    each_schedule(|| {
        let world = World::new();
        let memory = world.memory();
        begin_map(memory, world.journal_at(), SHAPE, (7, 1)).unwrap();
        let starts = {
            let world = Arc::clone(&world);
            thread::spawn(move || end_map(world.memory()))
        };
        let _ = next_generation(memory, 2);
        starts.join().unwrap();
        assert_eq!(next_generation(memory, 2), None);
    });
}
