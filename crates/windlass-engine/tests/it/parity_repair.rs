//! Repairs of sets with parity: what lies in the way, what cannot be read, what was cut off, and
//! what a clean-up may take for granted.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{Codec, SEAL_BYTES, Seal, SetId};
use windlass_engine::{
    Cancel, CleanedUp, EngineError, Files, Lies, METADATA_LIMIT_DEFAULT, PlaceFile, ReadAt,
    Storage, clean_up, hold_path, list_sets, partial_path, repair_set,
};

use crate::parity::{Fixture, Loss, repair};
use crate::support::*;

/// A set of which the disk gives errors for a part of one file.
#[derive(Debug)]
struct SickDisk {
    file: u64,
    part: Range<u64>,
}

#[derive(Debug)]
struct SickFile(Arc<dyn ReadAt>, Range<u64>);

impl ReadAt for SickFile {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match offset < self.1.end && self.1.start < offset + into.len() as u64 {
            // EIO
            true => Err(io::Error::from_raw_os_error(5)),
            false => self.0.read_at(offset, into),
        }
    }
}

impl Storage for SickDisk {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        Files.look(location)
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        let opened = Files.open(location)?;
        let number = location.metadata()?.ino();
        Ok(match number == self.file {
            true => Arc::new(SickFile(opened, self.part.clone())),
            false => opened,
        })
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        Files.list(place, each)
    }
}

#[test]
fn what_the_disk_cannot_read_is_written_anew_like_what_is_damaged() {
    let set = Fixture::new(4, 2, Codec::Zstd(1));
    for (device, content) in set.content.iter().enumerate() {
        let length = content.len() as u64;
        let step = (length / 9).max(512);
        let tail = length - SEAL_BYTES as u64;
        for from in (0..length).step_by(step as usize).chain([tail]) {
            set.whole();
            let sick = SickDisk {
                file: set.devices[device].metadata().unwrap().ino(),
                part: from..from + 1,
            };
            let limits = (METADATA_LIMIT_DEFAULT, &Cancel::new());
            let places = [set.dir.path().to_owned()];
            let done = repair_set(&sick, (&places, &[]), limits, &mut |_, _| {});
            let case = format!("device {device} at {from} of {length}");
            let done = done.unwrap_or_else(|error| panic!("{case}: {error}"));
            let numbers: Vec<_> = done.repaired.iter().map(|it| it.number).collect();
            assert_eq!(numbers, [device as u16 + 1], "{case}");
            assert!(
                &fs::read(&set.devices[device]).unwrap() == content,
                "{case}"
            );
        }
    }
}

#[test]
fn what_is_left_of_a_damaged_device_goes_if_its_end_says_that_it_is_of_the_set() {
    let set = Fixture::new(4, 1, Codec::Zstd(1));
    for device in [0, 3] {
        let mut damaged = set.content[device].clone();
        damaged[..1024].fill(0x5a);
        write(&set.devices[device], &damaged);
        let done = set.repaired().repaired;
        assert_eq!((done.len(), &done[0].moved), (1, &None), "{done:?}");
        assert_eq!(fs::read_dir(set.dir.path()).unwrap().count(), 4);
        assert!(set.restored().is_empty());
    }
}

/// Cancels when the first device is to be written.
fn cancelled(set: &Fixture) -> Result<(), EngineError> {
    let cancel = Cancel::new();
    let limits = (METADATA_LIMIT_DEFAULT, &cancel);
    let places = [set.dir.path().to_owned()];
    repair_set(&Files, (&places, &[]), limits, &mut |_, _| cancel.cancel()).map(drop)
}

#[test]
fn what_lies_in_the_way_stays_until_the_new_device_is_whole() {
    let set = Fixture::new(3, 1, Codec::Zstd(1));
    for device in [1, 2] {
        write(&set.devices[device], b"somebody's notes");
        let ended = cancelled(&set);
        assert!(matches!(ended, Err(EngineError::Cancelled)), "{ended:?}");
        let there = fs::read(&set.devices[device]).unwrap();
        assert_eq!(there, b"somebody's notes", "device {device}");
        let done = set.repaired().repaired;
        let moved = done[0].moved.as_ref().unwrap();
        assert_eq!(fs::read(moved).unwrap(), b"somebody's notes");
        // Parity that was all lost may have other groups than before.
        let is_same = fs::read(&set.devices[device]).unwrap() == set.content[device];
        assert!(is_same || device == 2 && set.restored().is_empty());
        set.whole();
    }
}

#[test]
fn a_device_of_another_set_is_never_replaced_or_emptied() {
    let (set, other) = (
        Fixture::new(3, 1, Codec::Zstd(1)),
        tempfile::tempdir().unwrap(),
    );
    let setup = Setup {
        parities: 1,
        set_id: SetId([9; 16]),
        ..Setup::small(3, Codec::Zstd(1))
    };
    let others = make_set(&mixed_tree(5), other.path(), &setup);
    let stripe = fs::read(&others[0]).unwrap();
    let parity = fs::read(&others[2]).unwrap();
    let mut headless = parity.clone();
    headless[..1024].fill(3);
    for device in [0, 2] {
        for content in [&stripe, &parity, &headless] {
            for place in [
                set.devices[device].clone(),
                partial_path(&set.devices[device]),
            ] {
                fs::remove_file(&set.devices[device]).unwrap();
                write(&place, content);
                // All devices are named: a directory with two sets is another question.
                let named: Vec<_> = (0..3).filter(|it| *it != device).collect();
                let named: Vec<_> = named.iter().map(|it| set.devices[*it].clone()).collect();
                let limits = (METADATA_LIMIT_DEFAULT, &Cancel::new());
                let done = repair_set(&Files, (&named, &[]), limits, &mut |_, _| {});
                assert!(
                    matches!(done, Err(EngineError::RepairOtherSet { .. })),
                    "{place:?}: {done:?}"
                );
                assert!(&fs::read(&place).unwrap() == content, "{place:?}");
                fs::remove_file(&place).unwrap();
                write(&set.devices[device], &set.content[device]);
            }
        }
    }
}

/// A set that has as many parities as stripes, or more: no stripe may be left.
#[test]
fn a_repair_of_the_last_stripe_that_was_cut_off_does_not_make_the_set_unfinished() {
    let set = Fixture::new(3, 2, Codec::Zstd(1));
    let partial = partial_path(&set.devices[0]);
    for cut in [4096, set.content[0].len() - SEAL_BYTES] {
        set.whole();
        fs::remove_file(&set.devices[0]).unwrap();
        write(&partial, &set.content[0][..cut]);
        let list = list_sets(&Files, &[set.dir.path().to_owned()], METADATA_LIMIT_DEFAULT).unwrap();
        assert_eq!(list.sets.len(), 1);
        assert_eq!(list.sets[0].state.name(), "sealed", "{:?}", list.sets);
        assert!(list.sets[0].parity.mended.is_some());
        assert_eq!(list.unfinished, std::slice::from_ref(&partial));
        // Parity that has not its name yet is proven by the other one.
        let second = partial_path(&set.devices[2]);
        rename(&set.devices[2], &second);
        let done = clean_up(set.dir.path()).unwrap();
        assert!(
            done.contains(&CleanedUp::Published(set.devices[2].clone())),
            "{done:?}"
        );
        assert!(partial.exists(), "{done:?}");
        assert_eq!(set.restored().lost.len(), 1);
        set.repaired();
        assert!(fs::read(&set.devices[0]).unwrap() == set.content[0]);
        assert!(!partial.exists());
        assert!(set.restored().is_empty());
    }
}

/// What became of the parity of a set whose stripes were left as they are.
fn parity_after(set: &Fixture, parity: &[u8]) -> &'static str {
    let (own, partial) = (&set.devices[2], partial_path(&set.devices[2]));
    write(&partial, parity);
    let done = clean_up(set.dir.path()).unwrap();
    let there = (own.exists(), partial.exists());
    let became = match there {
        (true, false) => "named",
        (false, true) => "left",
        (false, false) => "removed",
        (true, true) => panic!("{done:?}"),
    };
    for path in [own, &partial] {
        fs::remove_file(path).unwrap_or_default();
    }
    became
}

#[test]
fn a_clean_up_removes_parity_only_if_it_is_proven_that_its_set_never_was() {
    let set = Fixture::new(3, 1, Codec::Zstd(1));
    let whole = &set.content[2];
    let end = whole.len() - SEAL_BYTES;
    let edited = |from: usize, bytes: &[u8]| {
        let mut content = whole.clone();
        content[from..from + bytes.len()].copy_from_slice(bytes);
        content
    };
    let headless = edited(0, &[3; 600]);
    let wrong_end = edited(end + 70, &[0xa5; 8]);
    let endless = &whole[..whole.len() - 512];
    let partials: Vec<_> = set.devices.iter().map(|path| partial_path(path)).collect();
    let stripes = |places: [Option<(bool, usize)>; 2]| {
        for (number, place) in places.into_iter().enumerate() {
            for path in [&set.devices[number], &partials[number]] {
                fs::remove_file(path).unwrap_or_default();
            }
            if let Some((is_named, short)) = place {
                let content = &set.content[number];
                let path = match is_named {
                    true => &set.devices[number],
                    false => &partials[number],
                };
                write(path, &content[..content.len() - short]);
            }
        }
    };
    let (sealed, unsealed, named) = (Some((false, 0)), Some((false, 512)), Some((true, 0)));
    fs::remove_file(&set.devices[2]).unwrap();
    for (there, parity, expected) in [
        // Nobody can see the stripes: their disks may not be mounted.
        ([None, None], whole, "left"),
        ([sealed, None], whole, "left"),
        ([None, None], &endless.to_vec(), "removed"),
        ([sealed, None], &endless.to_vec(), "left"),
        ([None, None], &wrong_end, "left"),
        ([None, None], &headless, "left"),
        ([sealed, None], &wrong_end, "left"),
        ([unsealed, None], whole, "removed"),
        ([unsealed, sealed], &wrong_end, "removed"),
        // A stripe with its name was sealed.
        ([unsealed, named], whole, "named"),
        ([unsealed, named], &wrong_end, "left"),
        ([None, named], &endless.to_vec(), "left"),
        ([sealed, sealed], whole, "named"),
    ] {
        stripes(there);
        assert_eq!(parity_after(&set, parity), expected, "{there:?}");
    }
}

/// What a repair that was cut off left: it is named, and goes as soon as nobody needs it.
#[test]
fn what_a_repair_began_is_listed_and_goes_when_the_device_is_whole() {
    let set = Fixture::spread(4, 1, Codec::Zstd(1));
    for device in 0..4 {
        let partial = partial_path(&set.devices[device]);
        let content = &set.content[device];
        let before_seal = content.len() - SEAL_BYTES;
        let seal = Seal::decode(&content[before_seal..], content.len() as u64).ok();
        let in_footer = seal.map(|seal| seal.footer_offset as usize + SEAL_BYTES);
        for length in [Some(2048), in_footer, Some(before_seal)]
            .into_iter()
            .flatten()
        {
            set.whole();
            write(&partial, &content[..length]);
            let places = [set.dir.path().to_owned()];
            let list = list_sets(&Files, &places, METADATA_LIMIT_DEFAULT).unwrap();
            assert_eq!(list.unfinished, std::slice::from_ref(&partial), "{device}");
            let [one] = list.sets.as_slice() else {
                panic!("{:?}", list.sets)
            };
            assert_eq!(
                (one.state.name(), one.parity.lost),
                ("sealed", 0),
                "{device}"
            );
            assert_eq!(one.locations().len(), 4, "{device}");
            // The device is there: nobody needs the other one.
            let done = clean_up(set.dir.path()).unwrap();
            assert_eq!(done, [CleanedUp::Superfluous(partial.clone())], "{device}");
            assert!(set.restored().is_empty(), "{device}");
            // The device is damaged, so it stays until the next repair.
            write(&partial, &content[..length]);
            set.lose(device, Loss::Short);
            let done = clean_up(set.dir.path()).unwrap();
            let [CleanedUp::Left(left, why)] = done.as_slice() else {
                panic!("{done:?}")
            };
            assert_eq!(left, &partial);
            assert!(why.contains("its repair was cut off"), "{why}");
            let numbers: Vec<_> = set.repaired().repaired.iter().map(|it| it.number).collect();
            assert_eq!(numbers, [device as u16 + 1]);
            let left = fs::read_dir(set.dir.path()).unwrap().count();
            assert_eq!(left, 4, "device {device}: nothing else is left");
        }
    }
}

/// An older version gave a device its name before it wrote what lies beside it.
#[test]
fn what_a_whole_device_lacks_beside_it_is_put_there_again() {
    let set = Fixture::new(3, 1, Codec::Zstd(1));
    let places = [set.dir.path().to_owned()];
    let list = list_sets(&Files, &places, METADATA_LIMIT_DEFAULT).unwrap();
    let id = list.sets[0].set_id;
    let disks: Vec<_> = (0..3)
        .map(|number| set.dir.path().join(format!("d{number}")))
        .collect();
    for (disk, device) in disks.iter().zip(&set.devices) {
        fs::create_dir(disk).unwrap();
        rename(device, &disk.join(device.file_name().unwrap()));
    }
    write(&hold_path(&disks[1], id), b"{}");
    let limits = (METADATA_LIMIT_DEFAULT, &Cancel::new());
    let done = repair_set(&Files, (&disks, &[]), limits, &mut |_, _| {}).unwrap();
    assert!(done.repaired.is_empty());
    for disk in &disks {
        assert_eq!(fs::read(hold_path(disk, id)).unwrap(), b"{}");
    }
}

#[test]
fn what_holds_a_set_is_seen_and_kept_beside_each_device() {
    let set = Fixture::new(4, 2, Codec::Zstd(1));
    let disks: Vec<_> = (0..4)
        .map(|number| set.dir.path().join(format!("d{number}")))
        .collect();
    let id = list_sets(&Files, &[set.dir.path().to_owned()], METADATA_LIMIT_DEFAULT).unwrap();
    let id = id.sets[0].set_id;
    let mut moved: Vec<PathBuf> = Vec::new();
    for (disk, device) in disks.iter().zip(&set.devices) {
        fs::create_dir(disk).unwrap();
        moved.push(disk.join(device.file_name().unwrap()));
    }
    for (device, moved) in set.devices.iter().zip(&moved).skip(1) {
        rename(device, moved);
    }
    // Somebody looks at all disks but the one with the hold; the set leads there.
    let hold = hold_path(set.dir.path(), id);
    write(&hold, b"{}");
    let list = list_sets(&Files, &disks[1..], METADATA_LIMIT_DEFAULT).unwrap();
    assert_eq!(list.sets[0].holds, std::slice::from_ref(&hold));
    rename(&set.devices[0], &moved[0]);
    rename(&hold, &hold_path(&disks[0], id));
    for lost in [1, 3] {
        fs::remove_file(&moved[lost]).unwrap();
        let limits = (METADATA_LIMIT_DEFAULT, &Cancel::new());
        // Devices that are not where they were written are found in the places that are named.
        let done = repair_set(&Files, (&disks, &[]), limits, &mut |_, _| {}).unwrap();
        let written = &done.repaired[0].location;
        let beside = hold_path(written.parent().unwrap(), id);
        assert_eq!(fs::read(beside).unwrap(), b"{}");
        rename(written, &moved[lost]);
    }
}

#[test]
fn a_set_whose_parity_was_cut_off_while_it_was_written_anew_is_repaired() {
    let set = Fixture::new(4, 2, Codec::Zstd(1));
    set.lose(2, Loss::Missing);
    set.lose(3, Loss::Missing);
    write(&partial_path(&set.devices[3]), &set.content[3][..2048]);
    assert_eq!(set.repaired().repaired.len(), 2);
    assert!(set.restored().is_empty());
    assert!(repair(set.dir.path()).unwrap().repaired.is_empty());
}

/// What the members of the groups are is lost, and a stripe is damaged: nobody may take its bytes
/// for right, and what is damaged is named.
#[test]
fn parity_is_not_computed_anew_from_a_damaged_stripe() {
    let set = Fixture::spread(3, 1, Codec::None);
    let paths = |error: EngineError| match error {
        EngineError::BeyondParity { lost, .. } => lost,
        other => panic!("{other:?}"),
    };
    let name = |device: usize| set.devices[device].to_string_lossy().into_owned();
    let block = set.content[2].windows(8).position(|it| it == b"WNDLGRPS");
    let mut parity = set.content[2].clone();
    parity[block.unwrap() + 80] ^= 1;
    for stripe in [0, 1] {
        set.whole();
        write(&set.devices[2], &parity);
        let middle = set.content[stripe].len() / 2;
        let mut damaged = set.content[stripe].clone();
        damaged[middle..middle + 4096].fill(0x77);
        write(&set.devices[stripe], &damaged);
        let lost = paths(repair(set.dir.path()).unwrap_err());
        assert_eq!(lost, [name(stripe), name(2)]);
        assert!(fs::read(&set.devices[stripe]).unwrap() == damaged);
        assert!(fs::read(&set.devices[2]).unwrap() == parity);
    }
    // With whole stripes it is.
    set.whole();
    write(&set.devices[2], &parity);
    assert_eq!(set.repaired().repaired.len(), 1);
    assert!(set.restored().is_empty());
}
