//! Sets with parity, damaged group by group: as long as no group has lost more members and parities
//! than the set has parity, nothing is lost, whichever devices they were on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{
    Codec, DataKey, Envelope, GroupBlock, GroupDirectory, KeyFile, Lock, ParityEnd, ParityHeader,
    SEAL_BYTES, SetCipher, SetId,
};
use windlass_engine::{
    Cancel, Encryption, EngineError, Files, Keyed, METADATA_LIMIT_DEFAULT, OpenSet, RepairedSet,
    partial_path, repair_set,
};

use crate::encrypted::ByEnvelope;
use crate::support::*;

/// A part of a device, which its file says in its own words.
#[derive(Clone, Copy, Debug)]
struct Part {
    device: usize,
    offset: usize,
    bytes: usize,
}

/// The groups of a set: members and parities of each.
fn groups(devices: &[PathBuf], parities: usize) -> Vec<Vec<Part>> {
    let stripes = devices.len() - parities;
    let mut all: Vec<Vec<Part>> = Vec::new();
    for (number, path) in devices.iter().enumerate().skip(stripes) {
        for (place, (members, offset, bytes)) in groups_of(path).into_iter().enumerate() {
            if number == stripes {
                all.push(members);
            }
            all[place].push(Part {
                device: number,
                offset,
                bytes,
            });
        }
    }
    all
}

/// The groups of one file with parity: the members, and where the parity of each is.
fn groups_of(path: &Path) -> Vec<(Vec<Part>, usize, usize)> {
    let bytes = fs::read(path).unwrap();
    let length = ParityHeader::encoded_bytes(&bytes[..64]).unwrap() as usize;
    let header = ParityHeader::decode(&bytes[..length]).unwrap();
    let record = &bytes[bytes.len() - SEAL_BYTES..];
    let end = ParityEnd::decode(record, bytes.len() as u64, &header).unwrap();
    let at = |offset: u64, bytes: u64| offset as usize..(offset + bytes) as usize;
    let directory = &bytes[at(end.directory_offset, end.directory_bytes)];
    let directory = GroupDirectory::decode(directory, &header, 1 << 20).unwrap();
    let mut found = Vec::new();
    for entry in &directory.entries {
        let block = &bytes[at(entry.offset, entry.bytes.into())];
        let block = GroupBlock::decode(block, entry.offset, &header).unwrap();
        for (group, members) in block.iter() {
            let part = |it: &windlass_engine::media::MemberEntry| Part {
                device: it.stripe.into(),
                offset: it.offset as usize,
                bytes: it.bytes as usize,
            };
            let members = members.iter().map(part).collect();
            found.push((members, group.offset as usize, group.bytes as usize));
        }
    }
    found
}

/// Damages a part somewhere: one byte, a stretch, or all of it.
fn damage(devices: &mut [Vec<u8>], part: Part, random: &mut Random) {
    let bytes = &mut devices[part.device][part.offset..][..part.bytes];
    let from = random.below(bytes.len() as u64) as usize;
    let most = [1, 700, bytes.len()][random.below(3) as usize];
    let count = most.min(bytes.len() - from);
    let noise = random.noise(count);
    let damaged = bytes[from..][..count].iter_mut().zip(noise);
    damaged.for_each(|(byte, noise)| *byte ^= noise | 1);
}

/// Takes so many of the parts, at random.
fn some(parts: &[Part], count: usize, random: &mut Random) -> Vec<Part> {
    let mut left = parts.to_vec();
    let take = |_| left.swap_remove(random.below(left.len() as u64) as usize);
    (0..count.min(parts.len())).map(take).collect()
}

fn contents(devices: &[PathBuf]) -> Vec<Vec<u8>> {
    devices.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn put(devices: &[PathBuf], contents: &[Vec<u8>]) {
    let pairs = devices.iter().zip(contents);
    pairs.for_each(|(path, content)| write(path, content));
}

fn restored(devices: &[PathBuf], tree: &Tree) -> Result<(), EngineError> {
    let set = OpenSet::open(devices, METADATA_LIMIT_DEFAULT)?;
    let into = tempfile::tempdir().unwrap();
    bring_back(&set, &into.path().join("into"))?;
    assert_same(tree, &into.path().join("into"));
    Ok(())
}

fn repaired(places: &[PathBuf], further: &[PathBuf]) -> Result<RepairedSet, EngineError> {
    let limits = (METADATA_LIMIT_DEFAULT, &Cancel::new());
    repair_set(&Files, (places, further), limits, &mut |_, _| {})
}

#[test]
fn any_damage_of_up_to_as_many_parts_of_each_group_is_rebuilt_byte_for_byte() {
    for seed in 0..10u64 {
        let mut random = Random::new(seed + 77);
        let parities = 1 + random.below(3) as usize;
        let count = parities + 1 + random.below(5) as usize;
        let codec = [Codec::None, Codec::Zstd(1)][random.below(2) as usize];
        let (tree, dir) = (mixed_tree(seed), tempfile::tempdir().unwrap());
        let setup = Setup {
            parities: parities as u16,
            ..Setup::small(count, codec)
        };
        let devices = make_set(&tree, dir.path(), &setup);
        let right = contents(&devices);
        let mut wrong = right.clone();
        let groups = groups(&devices, parities);
        for parts in &groups {
            let lost = random.below(parities as u64 + 1) as usize;
            for part in some(parts, lost, &mut random) {
                damage(&mut wrong, part, &mut random);
            }
        }
        let case = format!("seed {seed}: {count} devices, {parities} with parity");
        put(&devices, &wrong);
        restored(&devices, &tree).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(contents(&devices) == wrong, "{case}: a restore only reads");
        repaired(&devices, &[]).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(contents(&devices) == right, "{case}");
    }
}

#[test]
fn one_part_of_a_group_too_many_is_refused_and_all_damaged_devices_are_named() {
    for seed in 0..8u64 {
        let mut random = Random::new(seed + 5);
        let parities = 1 + random.below(2) as usize;
        let (tree, dir) = (mixed_tree(seed), tempfile::tempdir().unwrap());
        let setup = Setup {
            parities: parities as u16,
            ..Setup::small(parities + 3, Codec::None)
        };
        let devices = make_set(&tree, dir.path(), &setup);
        let mut wrong = contents(&devices);
        let groups = groups(&devices, parities);
        // Behind the headers, and before the footers.
        let parts = &groups[1 + random.below(3) as usize];
        let lost = some(parts, parities + 1, &mut random);
        for part in &lost {
            wrong[part.device][part.offset..][..part.bytes]
                .iter_mut()
                .for_each(|byte| *byte ^= 1);
        }
        let stripes = lost.iter().any(|part| part.device < 3);
        put(&devices, &wrong);
        let mut expected: Vec<_> = lost.iter().map(|part| part.device).collect();
        expected.sort_unstable();
        for result in [restored(&devices, &tree), repaired(&devices, &[]).map(drop)] {
            match result {
                Err(EngineError::BeyondParity { lost, .. }) => {
                    let number =
                        |name: &String| devices.iter().position(|it| it.to_str() == Some(name));
                    let mut named: Vec<_> = lost.iter().filter_map(number).collect();
                    named.sort_unstable();
                    assert_eq!(named, expected, "seed {seed}");
                }
                other => panic!("seed {seed}: {stripes} {other:?}"),
            }
        }
        assert!(
            contents(&devices) == wrong,
            "seed {seed}: nothing was written"
        );
    }
}

/// Two groups have lost more than can be rebuilt. A stripe of which all can be rebuilt is named,
/// too.
#[test]
fn every_damaged_device_is_named_whichever_group_is_lost() {
    let (tree, dir) = (mixed_tree(3), tempfile::tempdir().unwrap());
    let setup = Setup {
        parities: 1,
        ..Setup::small(4, Codec::None)
    };
    let devices = make_set(&tree, dir.path(), &setup);
    let mut wrong = contents(&devices);
    let groups = groups(&devices, 1);
    // Behind the headers, and before the footers: a part of a stripe, and the parity.
    let mut lost = Vec::new();
    for parts in &groups[1..=2] {
        lost.extend([parts[0], parts[parts.len() - 1]]);
    }
    let is_whole = |part: &&Part| lost.iter().all(|other| other.device != part.device);
    let mut others = groups[..1].iter().chain(&groups[3..]).flatten();
    let part = *others.find(is_whole).unwrap();
    lost.push(part);
    for part in &lost {
        wrong[part.device][part.offset..][..part.bytes]
            .iter_mut()
            .for_each(|byte| *byte ^= 1);
    }
    put(&devices, &wrong);
    let named = (0..devices.len()).filter(|it| lost.iter().any(|part| part.device == *it));
    let named: Vec<_> = named.map(|it| devices[it].to_string_lossy()).collect();
    match repaired(&devices, &[]) {
        Err(EngineError::BeyondParity { lost, .. }) => assert_eq!(lost, named),
        other => panic!("{other:?}"),
    }
    assert!(contents(&devices) == wrong, "nothing was written");
}

/// Two sets in the same directories, one of them with a device that is gone.
#[test]
fn a_repair_looks_at_its_own_set_only_and_moves_nothing_of_another() {
    let (tree, dir) = (mixed_tree(1), tempfile::tempdir().unwrap());
    let disks: Vec<_> = (0..4)
        .map(|number| dir.path().join(format!("d{number}")))
        .collect();
    let mut sets = Vec::new();
    for seed in 1..=2u8 {
        let setup = Setup {
            parities: 1,
            set_id: SetId([seed; 16]),
            ..Setup::small(4, Codec::Zstd(1))
        };
        let own = dir.path().join(format!("set{seed}"));
        let made = make_set(&tree, &own, &setup);
        let moved = made.iter().zip(&disks).map(|(path, disk)| {
            fs::create_dir_all(disk).unwrap();
            let name = format!("s{seed}.{}", path.file_name().unwrap().to_str().unwrap());
            rename(path, &disk.join(&name));
            disk.join(name)
        });
        sets.push(moved.collect::<Vec<_>>());
    }
    let right = contents(&sets[1]);
    // What is not where it was written is found in the places that are named.
    let mut wrong = right.clone();
    let middle = wrong[1].len() / 2;
    wrong[1][middle] ^= 4;
    put(&sets[1], &wrong);
    let done = repaired(&sets[1][..1], &disks).unwrap();
    assert_eq!(done.repaired.len(), 1, "{done:?}");
    assert_eq!(done.repaired[0].location, sets[1][1]);
    assert!(contents(&sets[1]) == right);
    let mixed = [sets[0][0].clone(), sets[1][1].clone()];
    assert!(matches!(
        OpenSet::open(&mixed, METADATA_LIMIT_DEFAULT),
        Err(EngineError::SetsMixed { .. })
    ));
    assert!(repaired(&mixed, &[]).is_err());
}

/// A file of somebody else has the place of a device that is gone.
#[test]
fn a_file_in_the_place_of_a_lost_device_is_moved_away_and_kept() {
    let (tree, dir) = (mixed_tree(2), tempfile::tempdir().unwrap());
    let setup = Setup {
        parities: 1,
        ..Setup::small(3, Codec::Zstd(1))
    };
    let devices = make_set(&tree, dir.path(), &setup);
    let right = contents(&devices);
    write(&devices[0], b"somebody's notes");
    let done = repaired(&devices[1..], &[]).unwrap();
    let moved = done.repaired[0].moved.clone().unwrap();
    assert_eq!(fs::read(&moved).unwrap(), b"somebody's notes");
    assert!(contents(&devices) == right);
    // The next such file gets another name.
    write(&devices[0], b"other notes");
    let done = repaired(&devices[1..], &[]).unwrap();
    let other = done.repaired[0].moved.clone().unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"other notes");
    assert_eq!(fs::read(&moved).unwrap(), b"somebody's notes");
}

/// A run was cut off before it gave the names, and a disk was lost before anybody cleaned up.
#[test]
fn a_repair_of_a_set_without_names_gives_them_first() {
    let (tree, dir) = (mixed_tree(3), tempfile::tempdir().unwrap());
    let setup = Setup {
        parities: 1,
        ..Setup::small(4, Codec::Zstd(1))
    };
    let devices = make_set(&tree, dir.path(), &setup);
    let right = contents(&devices);
    let partials: Vec<_> = devices.iter().map(|path| partial_path(path)).collect();
    devices
        .iter()
        .zip(&partials)
        .for_each(|(own, partial)| rename(own, partial));
    fs::remove_file(&partials[2]).unwrap();
    repaired(&partials[..1], &[]).unwrap();
    assert!(contents(&devices) == right);
    assert!(partials.iter().all(|partial| !partial.exists()));
}

fn lock(key: &DataKey, set: SetId, envelope: &[u8]) -> Lock {
    Lock {
        check: key.check_for(set),
        envelopes: vec![Envelope {
            recipient: "age1somebody".to_owned(),
            bytes: envelope.to_vec(),
        }],
    }
}

#[test]
fn an_encrypted_set_is_repaired_without_its_key_and_keeps_its_newer_envelopes() {
    let (tree, dir) = (mixed_tree(4), tempfile::tempdir().unwrap());
    let key = Arc::new(DataKey::from_bytes(&[9; 32]).unwrap());
    let mut setup = Setup {
        parities: 1,
        ..Setup::small(4, Codec::Zstd(1))
    };
    let set = setup.set_id;
    setup.encryption = Some(Encryption {
        cipher: Arc::new(SetCipher::new(&key, set).unwrap()),
        lock: lock(&key, set, b"the first envelope"),
    });
    let devices = make_set(&tree, dir.path(), &setup);
    let right = contents(&devices);
    let newer = KeyFile {
        set_id: set,
        written_nanos: 3,
        lock: lock(&key, set, b"the newer envelope"),
    };
    let beside = dir.path().join(KeyFile::name(set));
    write(&beside, &newer.encode().unwrap());
    fs::remove_file(&devices[1]).unwrap();
    let keys = ByEnvelope(b"the newer envelope".to_vec(), Arc::clone(&key));
    let storage = Keyed {
        storage: &Files,
        keys: &keys,
    };
    let open = |places: &[PathBuf]| {
        let set = OpenSet::open_in(&storage, places, METADATA_LIMIT_DEFAULT).unwrap();
        let into = tempfile::tempdir().unwrap();
        bring_back(&set, &into.path().join("into")).unwrap();
        assert_same(&tree, &into.path().join("into"));
        set.mends().unwrap()
    };
    assert_eq!(open(&devices[..1]).lost.len(), 1);
    repaired(&devices[..1], &[]).unwrap();
    assert!(contents(&devices) == right);
    assert!(open(&devices).is_empty());
    let mut damaged = right.clone();
    // Frames are wherever a writer was free.
    let parts = groups(&devices, 1).into_iter().flatten();
    let mut frames = parts.filter(|part| part.device < 3 && part.bytes >= 32 * 1024);
    let frames = frames.next().unwrap();
    damaged[frames.device][frames.offset + frames.bytes / 2] ^= 1;
    put(&devices, &damaged);
    assert_eq!(open(&devices).part_count, 1);
    assert!(
        OpenSet::open(&devices, METADATA_LIMIT_DEFAULT).is_err(),
        "it is encrypted"
    );
}
