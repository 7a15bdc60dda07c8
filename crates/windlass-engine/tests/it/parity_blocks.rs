//! Sets of which a group block is damaged in every file with parity: nobody knows what the groups
//! of that block were. Everything else is repaired, the rest is named, and nothing gets worse.

use std::fs;
use std::path::Path;

use windlass_engine::media::{Codec, MemberEntry, SEAL_BYTES};
use windlass_engine::{EngineError, RepairedSet};
use windlass_testkit::groups::{ParityParts, with_short_blocks};
use windlass_testkit::sets::flip;

use crate::parity::{Fixture, Loss, repair};
use crate::support::*;

/// Three stripes and two parities, whose files have several group blocks.
fn fixture() -> Fixture {
    let mut set = Fixture::new(5, 2, Codec::None);
    for device in [3, 4] {
        set.content[device] = with_short_blocks(&set.content[device], 2);
    }
    assert!(set.whole().restored().is_empty());
    assert!(set.repaired().repaired.is_empty());
    assert!(ParityParts::of(&set.content[3]).blocks.len() >= 4);
    set
}

/// Damages a group block in both files with parity.
fn damage_block(set: &Fixture, block: usize) {
    for device in [3, 4] {
        let offset = ParityParts::of(&set.content[device]).blocks[block].0;
        flip(&set.devices[device], offset + 80);
    }
}

/// Damages the middle of a member.
fn damage_member(set: &Fixture, member: &MemberEntry) {
    let middle = member.offset + u64::from(member.bytes) / 2;
    flip(&set.devices[usize::from(member.stripe)], middle);
}

/// The header of a stripe, which is its first member.
fn header_of(set: &Fixture, stripe: u16) -> MemberEntry {
    let parity = ParityParts::of(&set.content[3]);
    let mut members = parity.members(0).iter();
    *members
        .find(|it| (it.stripe, it.offset) == (stripe, 0))
        .unwrap()
}

/// A block without headers and seals, and a transfer that it describes.
fn transfer(set: &Fixture) -> (usize, MemberEntry) {
    let parity = ParityParts::of(&set.content[3]);
    let inner = 1..parity.blocks.len() - 1;
    let transfer = |block: usize| {
        let mut members = parity.members(block).iter();
        let member = members.find(|member| member.bytes >= 32 * 1024)?;
        Some((block, *member))
    };
    inner.into_iter().find_map(transfer).unwrap()
}

/// The numbers of the devices that were written anew, and of those that were left.
fn numbers(done: &RepairedSet) -> (Vec<u16>, Vec<u16>) {
    let repaired = done.repaired.iter().map(|it| it.number).collect();
    (repaired, done.left.iter().map(|it| it.number).collect())
}

fn is_as(path: &Path, content: &[u8]) -> bool {
    fs::read(path).unwrap() == content
}

fn lost(refused: Result<RepairedSet, EngineError>) -> Vec<String> {
    match refused {
        Err(EngineError::BeyondParity { lost, .. }) => lost,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_set_is_repaired_although_no_file_can_say_what_some_groups_were() {
    let set = fixture();
    let parity = ParityParts::of(&set.content[3]);
    let blocks = parity.blocks.len();
    for block in 0..blocks {
        set.whole();
        damage_block(&set, block);
        let damaged = parity.members((block + 1) % blocks)[0];
        damage_member(&set, &damaged);
        let done = set.repaired();
        let expected = (vec![damaged.stripe + 1, 4, 5], vec![]);
        assert_eq!(numbers(&done), expected, "block {block}");
        for stripe in 0..3 {
            assert!(is_as(&set.devices[stripe], &set.content[stripe]), "{block}");
        }
        assert!(set.restored().is_empty(), "block {block}");
        assert!(set.repaired().repaired.is_empty(), "block {block}");
        // The new parity is right.
        for lost in [0, 1] {
            fs::remove_file(&set.devices[lost]).unwrap();
        }
        set.restored();
    }
}

#[test]
fn what_cannot_be_rebuilt_is_left_and_named_and_the_rest_is_repaired() {
    let set = fixture();
    let (block, transfer) = transfer(&set);
    let (one, other) = (transfer.stripe, (transfer.stripe + 1) % 3);
    damage_block(&set, block);
    damage_member(&set, &transfer);
    let place = usize::from(one);
    let damaged = fs::read(&set.devices[place]).unwrap();
    damage_member(&set, &header_of(&set, one));
    damage_member(&set, &header_of(&set, other));
    let parities = [3, 4].map(|device| fs::read(&set.devices[device]).unwrap());
    let mut repaired = vec![one + 1, other + 1];
    repaired.sort_unstable();
    let done = set.repaired();
    assert_eq!(numbers(&done), (repaired, vec![one + 1, 4, 5]), "{done:?}");
    // What could be rebuilt is right again, and nothing else is other than before.
    assert!(is_as(&set.devices[place], &damaged));
    let other = usize::from(other);
    assert!(is_as(&set.devices[other], &set.content[other]));
    for (device, parity) in [3, 4].into_iter().zip(&parities) {
        assert!(is_as(&set.devices[device], parity), "parity is as it was");
    }
    // Another repair can do no more, says so, and changes nothing.
    let name = |device: usize| set.devices[device].to_string_lossy().into_owned();
    let expected = [name(place), name(3), name(4)];
    assert_eq!(lost(repair(set.dir.path())), expected);
    assert!(is_as(&set.devices[place], &damaged));
    // As soon as the damaged part is there again, everything becomes whole.
    write(&set.devices[place], &set.content[place]);
    assert_eq!(numbers(&set.repaired()), (vec![4, 5], vec![]));
    assert!(set.restored().is_empty());
}

#[test]
fn a_stripe_that_lacks_a_part_that_nobody_knows_is_left_alone() {
    let set = fixture();
    let (block, transfer) = transfer(&set);
    let (one, other) = (transfer.stripe, (transfer.stripe + 1) % 3);
    let (place, beside) = (usize::from(one), usize::from(other));
    for loss in [Loss::Missing, Loss::Noise] {
        set.whole();
        damage_block(&set, block);
        set.lose(place, loss);
        let there = fs::read(&set.devices[place]).ok();
        damage_member(&set, &header_of(&set, other));
        let done = set.repaired();
        let expected = (vec![other + 1], vec![one + 1, 4, 5]);
        assert_eq!(numbers(&done), expected, "{loss:?}: {done:?}");
        assert!(is_as(&set.devices[beside], &set.content[beside]));
        assert_eq!(fs::read(&set.devices[place]).ok(), there, "{loss:?}");
        let files = fs::read_dir(set.dir.path()).unwrap().count();
        assert_eq!(files, 4 + usize::from(there.is_some()), "{loss:?}");
    }
    // Whatever is wrong with its ends, a stripe that says which one it is has its own parts.
    for end in [0, set.content[place].len() as u64 - 1] {
        set.whole();
        damage_block(&set, block);
        flip(&set.devices[place], end);
        let done = set.repaired();
        assert_eq!(numbers(&done), (vec![one + 1, 4, 5], vec![]), "{end}");
        assert!(is_as(&set.devices[place], &set.content[place]), "{end}");
    }
}

#[test]
fn each_damaged_device_is_named_once() {
    let set = fixture();
    let (block, _) = transfer(&set);
    damage_block(&set, block);
    let parity = ParityParts::of(&set.content[3]);
    let mut damaged: Vec<u16> = Vec::new();
    for member in parity.members(block) {
        // Some of the damage lies before that of another stripe, and some behind it.
        for part in [member.offset, member.offset + u64::from(member.bytes) - 1] {
            flip(&set.devices[usize::from(member.stripe)], part);
        }
        damaged.push(member.stripe);
    }
    damaged.sort_unstable();
    damaged.dedup();
    // Where the footer of a stripe is in the block, the stripe cannot be used as a whole.
    let devices = damaged.iter().chain(&[3, 4]);
    let names = devices.map(|it| set.devices[usize::from(*it)].to_string_lossy());
    assert_eq!(lost(repair(set.dir.path())), names.collect::<Vec<_>>());
}

/// A stripe that cannot be used is left before the others are checked.
#[test]
fn a_stripe_that_is_left_hides_no_damage_of_another() {
    let set = Fixture::spread(3, 1, Codec::None);
    let block = ParityParts::of(&set.content[2]).blocks[0].0;
    for (left, other) in [(0, 1), (1, 0)] {
        set.whole();
        flip(&set.devices[2], block + 80);
        let seal = set.content[left].len() as u64 - SEAL_BYTES as u64 + 60;
        flip(&set.devices[left], seal);
        let middle = set.content[other].len() / 2;
        let mut damaged = set.content[other].clone();
        damaged[middle..middle + 4096].fill(0x77);
        write(&set.devices[other], &damaged);
        let names = [0, 1, 2].map(|it| set.devices[it].to_string_lossy().into_owned());
        assert_eq!(lost(repair(set.dir.path())), names, "{left} is left");
        assert!(is_as(&set.devices[other], &damaged));
    }
}

/// Nothing of the set is described any more, so a damaged seal stays what it is.
#[test]
fn a_stripe_whose_fault_nobody_can_mend_is_not_written_anew() {
    let set = Fixture::new(3, 1, Codec::None);
    let seal = set.content[0].len() as u64 - SEAL_BYTES as u64 + 60;
    flip(&set.devices[0], seal);
    let offset = ParityParts::of(&set.content[2]).blocks[0].0;
    flip(&set.devices[2], offset + 80);
    let before = [0, 2].map(|device| fs::read(&set.devices[device]).unwrap());
    let names = [0, 2].map(|device| set.devices[device].to_string_lossy().into_owned());
    assert_eq!(lost(repair(set.dir.path())), names);
    let after = [0, 2].map(|device| fs::read(&set.devices[device]).unwrap());
    assert!(after == before);
}
